/* Rows of libsvm text with vector instructions: eight features at a time, all of a row or none. */
#ifndef MST_DATA_LIBSVM_VECTOR_H
#define MST_DATA_LIBSVM_VECTOR_H

#include "data/chunk.h"

#define MST_LIBSVM_LISTED 16384 /* bytes */

/* The characters that divide rows, some kilobytes ahead. Positions count from `from`. */
typedef struct mst_libsvm_list {
    const uint8_t *from;
    uint32_t n_ends, n_colons, n_lines;       /* listed */
    uint32_t next_end, next_colon, next_line; /* at or after the row to come */
    uint32_t pause;                           /* rows to leave to the other path */
    uint16_t ends[MST_LIBSVM_LISTED + 64];    /* blanks and line feeds ... */
    uint16_t colons[MST_LIBSVM_LISTED + 64];
    uint16_t lines[MST_LIBSVM_LISTED + 64]; /* ... and the line feeds among them, by their place in `ends` */
} mst_libsvm_list;

/* Whether this machine has the instructions. */
bool mst_libsvm_vector_works(void);

static inline void mst_libsvm_list_init(mst_libsvm_list *list, const uint8_t *data)
{
    list->from = data;
    list->n_ends = list->n_colons = list->n_lines = 0;
    list->next_end = list->next_colon = list->next_line = 0;
    list->pause = 0;
}

/* Adds the features of the row from p, the blank after the label, to its line feed, which it returns. NULL,
 * and nothing added, unless all of them are " digits:digits" or " digits:digits.digits", with at most 8
 * characters on either side of the colon, keys below limit after subtraction of base, and the row is neither
 * longer than the list nor in the last bytes before `end`. The builder has room for (end - p) / 4 entries. */
const uint8_t *mst_libsvm_vector_row(mst_libsvm_list *list, const uint8_t *p, const uint8_t *end,
                                     uint32_t base, uint64_t limit, mst_chunk_builder *out);

#endif
