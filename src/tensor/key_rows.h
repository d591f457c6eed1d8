/* The place of a key in a store by rows (params.h).
 *
 * A key has 4 floats: its first weight, that weight's state in up to two slots, and one float of scratch. If
 * it has more weights, these and their state, slot by slot, are `stride` - 4 further floats. Four keys are a
 * group: the first weights of all four share a cache line, and their other weights follow. A group is a
 * whole number of quarters of a line, so that the weights of a key that fill whole lines begin one: vectors
 * of 16 factors and their state take two lines and cross none. With one weight per key the stride is 4, and
 * keys are side by side. */
#ifndef MST_TENSOR_KEY_ROWS_H
#define MST_TENSOR_KEY_ROWS_H

#include <stddef.h>
#include <stdint.h>

#define MST_ROW_GROUP   4 /* keys */
#define MST_ROW_FIRST   4 /* floats of a key with one weight */
#define MST_ROW_SLOTS   2 /* the most slots */
#define MST_ROW_SCRATCH 3 /* from the first weight to the scratch float; to its state: 1 and 2 */

/* Floats from key 0 on: of the first weight of a key, and of the others. The state of the first in slot s
 * (from 0 on) is 1 + s floats behind it; that of n others n * (1 + s) floats behind them. */
static inline size_t mst_row_first(uint64_t key, size_t stride)
{
    return key / MST_ROW_GROUP * MST_ROW_GROUP * stride + key % MST_ROW_GROUP * MST_ROW_FIRST;
}

static inline size_t mst_row_rest(uint64_t key, size_t stride)
{
    return key / MST_ROW_GROUP * MST_ROW_GROUP * stride + MST_ROW_GROUP * MST_ROW_FIRST +
           key % MST_ROW_GROUP * (stride - MST_ROW_FIRST);
}

#endif
