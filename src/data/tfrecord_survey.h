/* Tables of feature names, and the survey of a TFRecord dataset's first block: the features, their kinds and
 * widths, and facts about their values. Private to tfrecord_layout.c. */
#ifndef MST_DATA_TFRECORD_SURVEY_H
#define MST_DATA_TFRECORD_SURVEY_H

#include "data/image.h"
#include "data/tfrecord.h"

enum { MST_TF_HEIGHT, MST_TF_WIDTH, MST_TF_DEPTH, MST_TF_SIDES };

/* Facts about a feature in the first block; parallel to the survey's names. */
typedef struct mst_tf_finding {
    mst_example_kind kind; /* NONE: no value yet */
    bool mixed;            /* of more than one kind */
    bool varying;          /* float lists of different lengths */
    uint32_t width;        /* of its float lists; 0: only empty ones */
    int64_t min, max;      /* of its int64 values; min > max: none */
    bool text;             /* bytes: all values are text */
    bool encoded;          /* bytes: the first value is a JPEG or PNG file */
    bool raw;        /* bytes: the first value has the length that the sides of the record's image give */
    size_t length;   /* bytes: of the first value ... */
    uint64_t record; /* ... which is in the record of this number, from 1; 0: no value yet */
    int64_t sides[MST_TF_SIDES]; /* ... of the image of that record */
    uint32_t last;               /* its last occurrence in the current record, which counts */
} mst_tf_finding;

typedef struct mst_tf_survey {
    mst_tf_layout *names;
    mst_tf_finding *findings; /* MST_TFRECORD_NAMES */
    uint64_t n_records;
    int64_t sides[MST_TF_SIDES],
        first_sides[MST_TF_SIDES]; /* of the record's image; of the first image; 0: none */
} mst_tf_survey;

/* An empty table; NULL when memory is short. */
mst_tf_layout *mst_tf_layout_alloc(void);

/* Adds a name that is not there yet; *out is its entry, to be filled by the caller. */
mst_status mst_tf_add_name(mst_tf_layout *l, const char *text, size_t size, mst_tf_name **out);

/* Position in l->names; n_names: not there. */
size_t mst_tf_find_text(const mst_tf_layout *l, const char *text, size_t size);

/* Whether a side of an image can have this length; 0: it is not known. */
static inline bool mst_tf_side_possible(int side, int64_t length)
{
    return length >= 0 && length <= (side == MST_TF_DEPTH ? 255 : MST_IMAGE_SIDE_MAX);
}

/* The side of an image that a feature holds; MST_TF_SIDES: none. */
int mst_tf_side_of(const mst_example_feature *feature);

/* Looks at all records of the block; skip: except malformed ones, unless there are no others. s->names and
 * s->findings are the caller's, empty. */
mst_status mst_tf_take_survey(const mst_block *block, bool skip, mst_tf_survey *s);

#endif
