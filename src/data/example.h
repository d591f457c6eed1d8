/* tf.Example on the wire: a walker that reads a message in place, and an encoder of TFRecord files.
 *
 *     Example  { Features features = 1; }
 *     Features { repeated Entry { string key = 1; Feature value = 2; } feature = 1; }      (a protobuf map)
 *     Feature  { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }, each { repeated ... value = 1; }
 *
 * The walker takes any field order, packed and unpacked lists, unknown fields, and fields that occur more
 * than once, as protobuf does: the last key of an entry counts, its values are merged, and so are lists of
 * one kind within a feature; a list of another kind replaces those before it. Of entries with the same key
 * the last counts; the caller must ensure that. The walker is stricter than protobuf in that it refuses a
 * known field of the wrong wire type, and groups. Invariants:
 *   1. No byte outside the message is read, whatever the message contains.
 *   2. Whatever the walker accepts, protobuf accepts and sees the same entries and lists in the same order.
 */
#ifndef MST_DATA_EXAMPLE_H
#define MST_DATA_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "tensor/batch.h"

/* ---- reading ---- */

typedef enum mst_example_kind {
    MST_EXAMPLE_NONE, /* a feature without a list */
    MST_EXAMPLE_BYTES,
    MST_EXAMPLE_FLOATS,
    MST_EXAMPLE_INTS,
} mst_example_kind;

/* One feature; pointers lead into the message. */
typedef struct mst_example_feature {
    const uint8_t *name;
    const uint8_t *list; /* body of the list message */
    size_t name_size, list_size;
    mst_example_kind kind;
    /* More lists of this kind may follow: in the feature, up to its end, then in the values of the entry.
     * NULL: none do. */
    const uint8_t *more, *feature_end, *entry_end;
} mst_example_feature;

/* Bytes that all lists of a feature take at most. */
static inline size_t mst_example_size(const mst_example_feature *feature)
{
    return feature->more == NULL ? feature->list_size : (size_t)(feature->entry_end - feature->list);
}

typedef struct mst_example_walk {
    const uint8_t *at, *end;             /* in the present Features part */
    const uint8_t *outer_at, *outer_end; /* in the Example */
    const char *problem;                 /* NULL, or the problem: "the message is cut short" */
} mst_example_walk;

void mst_example_walk_init(mst_example_walk *walk, const uint8_t *message, size_t n);

/* The next feature; false at the end of the message or with walk->problem set. */
bool mst_example_next(mst_example_walk *walk, mst_example_feature *out);

/* A list is read as runs: a packed part is one run, an unpacked value a run of one. */
typedef struct mst_example_list {
    const uint8_t *at, *end;
    mst_example_kind kind;
    const char *problem;
    const uint8_t *more, *feature_end, *entry_end; /* as in mst_example_feature */
} mst_example_list;

static inline void mst_example_list_init(mst_example_list *list, const mst_example_feature *feature)
{
    list->at = feature->list;
    list->end = feature->list + feature->list_size;
    list->kind = feature->kind;
    list->problem = NULL;
    list->more = feature->more;
    if (list->more != NULL) {
        list->feature_end = feature->feature_end;
        list->entry_end = feature->entry_end;
    }
}

/* The next run: FLOATS: little-endian floats, *n a multiple of 4; INTS: varints, to be read with mst_varint
 * until the run's end; BYTES: one string. False at the end or with list->problem set. */
bool mst_example_run(mst_example_list *list, const uint8_t **run, size_t *n);

/* Reads a varint of at most 10 bytes that ends before `end`; NULL when there is none. */
const uint8_t *mst_varint_slow(const uint8_t *at, const uint8_t *end, uint64_t *out);

static inline const uint8_t *mst_varint(const uint8_t *at, const uint8_t *end, uint64_t *out)
{
    if (end - at >= 8) { /* up to 8 bytes without a branch on the length: lengths cannot be predicted */
        uint64_t w;
        memcpy(&w, at, 8);
        uint64_t stops = ~w & 0x8080808080808080u;
        if (stops != 0) {
            w &= stops ^ (stops - 1); /* the bytes up to and with the first that ends a varint */
            w &= 0x7f7f7f7f7f7f7f7fu;
            w = (w & 0x007f007f007f007fu) | (w & 0x7f007f007f007f00u) >> 1;
            w = (w & 0x00003fff00003fffu) | (w & 0x3fff00003fff0000u) >> 2;
            w = (w & 0x000000000fffffffu) | (w & 0x0fffffff00000000u) >> 4;
            *out = w;
            return at + (__builtin_ctzll(stops) >> 3) + 1;
        }
    }
    return mst_varint_slow(at, end, out);
}

/* ---- writing ---- */

typedef enum mst_example_layout {
    MST_EXAMPLE_PAIRS, /* label: float; index: int64 list; value: float list, left out when all values are one
                        */
    MST_EXAMPLE_COLUMNS, /* label: float; I1..: the dense features, float; C1..: the keys, int64, unchanged
                          */
} mst_example_layout;

/* A growing run of bytes; zeroed to start with, reused, released with mst_free(data). */
typedef struct mst_example_buffer {
    uint8_t *data;
    size_t n, capacity;
} mst_example_buffer;

/* Appends the row as one framed TFRecord record. A weight other than 1 becomes the float feature `weight`.
 * MST_EINPUT when the layout cannot hold the row (values beside keys in COLUMNS). Thread: any, one per
 * buffer. */
mst_status mst_example_append(mst_example_buffer *buffer, mst_example_layout layout, const mst_row *row);

#endif
