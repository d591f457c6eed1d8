/* A frame of `muster top`: runs as text. No line is longer than the width. */
#ifndef MST_DASH_TOP_FRAME_H
#define MST_DASH_TOP_FRAME_H

#include "dash/board.h"

typedef struct mst_frame_options {
    size_t width, height; /* height 0: as many lines as it takes */
    bool colour, utf8;    /* ANSI colours; characters beyond ASCII for bars and curves */
    bool keys;            /* the last line lists the keys */
    unsigned chosen;      /* id of the run that is shown in full; 0: the newest */
} mst_frame_options;

/* Lines that end in \n. */
void mst_top_frame(const mst_board *board, const mst_frame_options *options, mst_string *out);

#endif
