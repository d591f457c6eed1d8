/* TFRecord framing, shared by the reader, its preparation and the tests. See tfrecord.c for the rows. */
#ifndef MST_DATA_TFRECORD_H
#define MST_DATA_TFRECORD_H

#include "data/example.h"
#include "data/format.h"
#include "data/images.h"

#define MST_TFRECORD_HEAD   12u         /* length: u64, masked CRC of the length: u32 */
#define MST_TFRECORD_TAIL   4u          /* masked CRC of the data */
#define MST_TFRECORD_LIMIT  (64u << 20) /* bytes of one record's data */
#define MST_TFRECORD_HASHED (1u << 20)  /* --features when columns are hashed and none is given */
#define MST_TFRECORD_NAMES  4096u       /* columns, label, weight, index and value together */

extern const mst_format mst_format_tfrecord;

typedef enum mst_tf_role {
    MST_TF_LABEL,
    MST_TF_WEIGHT,
    MST_TF_INDEX,
    MST_TF_VALUE,
    MST_TF_DENSE,    /* float column: features base .. base + width - 1 */
    MST_TF_CATEGORY, /* int64 or bytes column: base is its number among the categories */
    MST_TF_IMAGE,
    MST_TF_SIDE,     /* of an image of raw pixels: its int64 must be `width` */
    MST_TF_LEFT_OUT, /* seen in the first block, and used for nothing */
} mst_tf_role;

/* A feature that is looked for in every record. */
typedef struct mst_tf_name {
    char *text;
    uint32_t size;
    uint64_t head; /* mst_tf_head of the name: equal heads and sizes up to 8 are equal names */
    mst_tf_role role;
    mst_example_kind kind; /* columns: as found in the first records */
    uint32_t base, width;
} mst_tf_name;

/* Facts settled before parsing starts; read-only afterwards. */
typedef struct mst_tf_layout {
    bool columns; /* fixed columns; otherwise index/value pairs */
    bool hashed;  /* category keys are hashes; otherwise they are feature numbers as they stand */
    mst_tf_name *names;
    size_t n_names, name_capacity;
    uint32_t n_dense;
    uint64_t hash_seed;
    mst_image_rows *images; /* rows are images; NULL: they are not */
    size_t image;           /* whose feature is at this place in names */
    bool encoded;           /* JPEG or PNG; otherwise raw pixels, height x width x channels */
    mst_text_list left_out; /* names, for people */
    atomic_flag *strange;   /* set once a feature was met that the first block lacks; NULL: of no interest */
    atomic_flag *bare;      /* set once a record was met that has none of the columns, or no indices */
    uint16_t *buckets;      /* hash table of positions in names + 1; 0: free */
    unsigned bucket_bits;
} mst_tf_layout;

/* Checks the frame at `at` and its CRCs; *data and *n are the record's. *at moves past it, also on MST_EINPUT
 * where its length is known; past the last record of a file that ends within it. */
mst_status mst_tfrecord_next(const mst_block *block, const uint8_t **at, const uint8_t **data, size_t *n);

/* Checks all frames of a block and the encoding of their records. */
mst_status mst_tfrecord_check(const mst_block *block);

/* The layout of a dataset from the options and the first block (empty: no records). Sets
 * context->features when columns are hashed and no number of features is given, and the context's facts about
 * images and features left out. */
mst_status mst_tf_layout_new(mst_parse_context *context, const mst_block *first, mst_tf_layout **out);
void mst_tf_layout_destroy(mst_tf_layout *layout); /* NULL-safe */

/* The origin of the rows (origin.h): "columns" are "NAME float", "NAME float[WIDTH]", "NAME int64" and
 * "NAME bytes". New reference, NULL when memory is short. */
json_t *mst_tf_layout_origin(const mst_tf_layout *layout, uint64_t features);

/* The first 8 bytes of a name, zero-filled; `end` bounds what may be read. */
static inline uint64_t mst_tf_head(const uint8_t *name, size_t size, const uint8_t *end)
{
    uint64_t head = 0;
    if (end - name >= 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        memcpy(&head, name, 8);
        return size >= 8 ? head : size == 0 ? 0 : head & (~0ull >> (64 - 8 * size));
    }
    memcpy(&head, name, size < 8 ? size : 8);
    return head;
}

static inline uint32_t mst_tf_bucket(uint64_t head, size_t size, unsigned bits)
{
    return (uint32_t)((head ^ size << 56) * 0x9e3779b97f4a7c15u >> (64 - bits));
}

static inline bool mst_tf_same(const mst_tf_name *name, const uint8_t *text, size_t size, uint64_t head)
{
    return name->head == head && name->size == size && (size <= 8 || memcmp(name->text, text, size) == 0);
}

/* Position in layout->names, or n_names when the feature is none of ours. */
static inline size_t mst_tf_find(const mst_tf_layout *layout, const uint8_t *text, size_t size, uint64_t head)
{
    uint32_t mask = (1u << layout->bucket_bits) - 1;
    for (uint32_t s = mst_tf_bucket(head, size, layout->bucket_bits);; s = (s + 1) & mask) {
        if (layout->buckets[s] == 0)
            return layout->n_names;
        size_t i = layout->buckets[s] - 1u;
        if (mst_tf_same(&layout->names[i], text, size, head))
            return i;
    }
}

#endif
