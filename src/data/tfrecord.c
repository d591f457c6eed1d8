/* TFRecord files of tf.Example: from framed records to rows.
 *
 * A record is length:u64, masked CRC-32C of the length, data, masked CRC-32C of the data, little-endian; both
 * CRCs are always checked. Rows come in one of three layouts, settled once per dataset (tfrecord_layout.c):
 *
 *   pairs      int64 list `index` and float list `value` (absent: all ones), names by option
 *   columns    float columns become the dense features 0..k-1, int64 and bytes columns become keys
 *   images     one bytes feature is the row: a JPEG or PNG file, or raw pixels
 *
 * Columns come in the order of --tf-columns or by name (I2 before I10); without --tf-columns every feature of
 * numbers or text is a column. A float column of w floats takes w features (absent: zeros). By --tf-keys, a
 * key is the int64 itself, a feature number of the whole data set (global), or a hash of column and value
 * into [k, features) (hash). `auto`: global when, in the first block, every column's values lie above those
 * of the column before it and none is below k; otherwise hash. Every float and every category column is a
 * field, in the order of the columns, floats first.
 *
 * Raw pixels are height x width x depth bytes, given by int64 features of these names. Images are chosen over
 * columns where there is such a feature, unless --tf-columns names other ones. The label is one float or
 * int64 (ignored when predicting); the weight likewise. Of a feature that occurs twice in a record the last
 * one counts, as in protobuf.
 *
 * Finding a feature by name: most writers keep the order of features, so the name at position i is first
 * compared with the one at position i of the record before; only then is it looked up.
 *
 * Invariants
 * 1. Parsing keeps no state between blocks and writes only to its builder.
 * 2. A row is ended only when the whole record has been checked. */
#include "data/tfrecord.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/log.h"
#include "data/image.h"
#include "data/text.h"
#include "data/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { REMEMBERED = 128 }; /* positions of the last record that are remembered */

/* ---- frames ---- */

static inline uint32_t tf_load32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, 4);
    return v;
}

static inline uint64_t tf_load64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, 8);
    return v;
}

static inline bool head_is_good(const uint8_t *at)
{
    return tf_load64(at) <= MST_TFRECORD_LIMIT && mst_crc_mask(mst_crc32c(0, at, 8)) == tf_load32(at + 8);
}

static mst_status bad_head(const mst_block *block, const uint8_t *at)
{
    if (mst_crc_mask(mst_crc32c(0, at, 8)) != tf_load32(at + 8))
        return mst_block_fail(&mst_format_tfrecord, block, at,
                              block->offset == 0 && at == block->data
                                  ? "not a TFRecord record: the checksum of its length is wrong"
                                  : "the checksum of the record's length is wrong: later records are lost");
    return mst_block_fail(&mst_format_tfrecord, block, at, "a record of %" PRIu64 " bytes; the limit is %u",
                          tf_load64(at), MST_TFRECORD_LIMIT);
}

static int tfrecord_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    return n >= MST_TFRECORD_HEAD && head_is_good(head) ? 2 : 0;
}

/* The length of the frame at `at`; 0: the block ends within it. */
static inline mst_status frame_length(const mst_block *block, size_t at, size_t *out)
{
    *out = 0;
    if (block->size - at < MST_TFRECORD_HEAD)
        return MST_OK;
    if (!head_is_good(block->data + at))
        return bad_head(block, block->data + at);
    size_t n = MST_TFRECORD_HEAD + (size_t)tf_load64(block->data + at) + MST_TFRECORD_TAIL;
    if (n <= block->size - at)
        *out = n;
    return MST_OK;
}

static mst_status tfrecord_find_end(const mst_parse_context *context, const mst_block *block, size_t *whole)
{
    (void)context;
    size_t n;
    mst_status st;
    for (*whole = 0; (st = frame_length(block, *whole, &n)) == MST_OK && n > 0;)
        *whole += n;
    return *whole > 0 ? MST_OK : st; /* the records before one without a length come first */
}

static mst_status tfrecord_record(const mst_parse_context *context, const mst_block *block, size_t *n,
                                  bool *row)
{
    (void)context;
    *row = true;
    return frame_length(block, 0, n);
}

mst_status mst_tfrecord_next(const mst_block *block, const uint8_t **at, const uint8_t **data, size_t *n)
{
    const uint8_t *start = *at, *body = start + MST_TFRECORD_HEAD;
    size_t frame;
    TRY(frame_length(block, (size_t)(start - block->data), &frame));
    *at = frame > 0 ? start + frame : block->data + block->size;
    if (frame == 0)
        return mst_block_fail(&mst_format_tfrecord, block, start, "the file ends in the middle of a record");
    size_t size = frame - MST_TFRECORD_HEAD - MST_TFRECORD_TAIL;
    if (mst_crc_mask(mst_crc32c(0, body, size)) != tf_load32(body + size))
        return mst_block_fail(&mst_format_tfrecord, block, start, "the record's checksum is wrong");
    *data = body;
    *n = size;
    return MST_OK;
}

/* ---- one record ---- */

/* The record being parsed, and facts about the whole block. */
typedef struct tf_parser {
    const mst_tf_layout *layout;
    const mst_block *block;
    const uint8_t *record;      /* its frame: for messages */
    const uint8_t *message_end; /* of the tf.Example */
    mst_chunk_builder *builder;
    const mst_vocabulary *vocabulary; /* of categories; or NULL */
    uint64_t limit;                   /* hashed keys are below */
    uint64_t bound;                   /* feature numbers are below */
    const mst_data_options *options;
    uint64_t seen[MST_TFRECORD_NAMES / 64];
    uint16_t order[REMEMBERED]; /* the name at each position of the record before */
    bool twice;                 /* the record has a feature twice: only the last of each name counts ... */
    uint32_t *last;             /* ... which is at this position; NULL until the first such record */
} tf_parser;

#define FAIL(p, ...) mst_block_fail(&mst_format_tfrecord, (p)->block, (p)->record, __VA_ARGS__)

/* Names come from options or from the file; the printed length is bounded. */
#define NAME(name) (int)((name)->size < 80 ? (name)->size : 80), (name)->text

static mst_status fail_key(const tf_parser *p, const mst_tf_name *name, uint64_t key)
{
    if ((int64_t)key < 0)
        return FAIL(p, "feature \"%.*s\" holds the negative index %" PRId64, NAME(name), (int64_t)key);
    if (key < p->layout->n_dense)
        return FAIL(p,
                    "feature \"%.*s\" holds index %" PRIu64
                    ", which is that of a float column: use --tf-keys hash",
                    NAME(name), key);
    return FAIL(
        p, "feature \"%.*s\" holds index %" PRIu64 ", which is not below the number of features %" PRIu64,
        NAME(name), key, p->bound);
}

static inline bool finite_bits(uint32_t bits)
{
    return (bits & 0x7f800000u) != 0x7f800000u;
}

/* Copies n little-endian floats; false when one is not finite. */
static bool copy_floats(float *to, const uint8_t *from, size_t n)
{
    uint32_t bad = 0;
    memcpy(to, from, 4 * n);
    for (size_t i = 0; i < n; i++)
        bad |= !finite_bits(tf_load32(from + 4 * i));
    return !bad;
}

/* The single number of a label or weight. */
static mst_status tf_read_number(const tf_parser *p, const mst_tf_name *name,
                                 const mst_example_feature *feature, float *out)
{
    mst_example_list list;
    const uint8_t *run;
    size_t n, count = 0;
    if (feature->kind != MST_EXAMPLE_FLOATS && feature->kind != MST_EXAMPLE_INTS)
        return FAIL(p, "feature \"%.*s\" is not a number", NAME(name));
    mst_example_list_init(&list, feature);
    while (mst_example_run(&list, &run, &n)) {
        if (feature->kind == MST_EXAMPLE_FLOATS) {
            if (n >= 4)
                memcpy(out, run, 4);
            count += n / 4;
            continue;
        }
        for (const uint8_t *at = run; at < run + n; count++) {
            uint64_t value;
            at = mst_varint(at, run + n, &value);
            if (at == NULL)
                return FAIL(p, "feature \"%.*s\" holds a broken int64", NAME(name));
            *out = (float)(int64_t)value;
        }
    }
    if (list.problem != NULL)
        return FAIL(p, "%s", list.problem);
    if (count != 1)
        return FAIL(p, "feature \"%.*s\" holds %zu numbers instead of one", NAME(name), count);
    if (!isfinite(*out))
        return FAIL(p, "feature \"%.*s\" is not a finite number", NAME(name));
    return MST_OK;
}

/* Appends the int64 list to the row's keys. */
static mst_status tf_read_index(tf_parser *p, const mst_tf_name *name, const mst_example_feature *feature,
                                size_t *count)
{
    mst_chunk_builder *b = p->builder;
    mst_example_list list;
    const uint8_t *run;
    size_t n;
    *count = 0;
    if (feature->kind == MST_EXAMPLE_NONE)
        return MST_OK;
    if (feature->kind != MST_EXAMPLE_INTS)
        return FAIL(p, "feature \"%.*s\" is not a list of int64", NAME(name));
    TRY(mst_chunk_builder_room(b, mst_example_size(feature))); /* an int64 takes a byte or more */
    uint32_t *to = b->keys + b->n_entries;
    mst_example_list_init(&list, feature);
    while (mst_example_run(&list, &run, &n))
        for (const uint8_t *at = run, *end = run + n; at < end;) {
            uint64_t key;
            at = mst_varint(at, end, &key);
            if (at == NULL)
                return FAIL(p, "feature \"%.*s\" holds a broken int64", NAME(name));
            if (key >= p->bound)
                return fail_key(p, name, key);
            *to++ = (uint32_t)key;
        }
    if (list.problem != NULL)
        return FAIL(p, "%s", list.problem);
    *count = (size_t)(to - (b->keys + b->n_entries));
    return MST_OK;
}

/* Writes the float list, which must have n numbers: those of a column, or as many as `beside` has, which is
 * NULL where the record has no feature numbers. */
static mst_status read_floats(const tf_parser *p, const mst_tf_name *name, const mst_example_feature *feature,
                              const mst_tf_name *beside, float *to, size_t n)
{
    mst_example_list list;
    const uint8_t *run;
    size_t size, count = 0;
    if (feature->kind != MST_EXAMPLE_FLOATS)
        return FAIL(p, "feature \"%.*s\" is not a list of floats", NAME(name));
    mst_example_list_init(&list, feature);
    while (mst_example_run(&list, &run, &size)) {
        if (count + size / 4 <= n && !copy_floats(to + count, run, size / 4))
            return FAIL(p, "feature \"%.*s\" holds a number that is not finite", NAME(name));
        count += size / 4;
    }
    if (list.problem != NULL)
        return FAIL(p, "%s", list.problem);
    if (count != n && !(count == 0 && name->role == MST_TF_DENSE)) /* an empty list: the column is absent */
        return name->role == MST_TF_DENSE
                   ? FAIL(p, "feature \"%.*s\" holds %zu numbers, but its column has %zu", NAME(name), count,
                          n)
               : beside != NULL
                   ? FAIL(p, "feature \"%.*s\" holds %zu numbers, but \"%.*s\" holds %zu", NAME(name), count,
                          NAME(beside), n)
                   : FAIL(p, "feature \"%.*s\" holds %zu numbers, but the record has no feature numbers",
                          NAME(name), count);
    return MST_OK;
}

static inline uint32_t hashed_key(const tf_parser *p, const mst_tf_name *name, const void *value, size_t n)
{
    uint64_t hash = XXH3_64bits_withSeed(value, n, p->layout->hash_seed + name->base * 0x9e3779b97f4a7c15u);
    uint32_t n_dense = p->layout->n_dense;
    return n_dense + (uint32_t)((unsigned __int128)hash * (p->limit - n_dense) >> 64);
}

static inline uint32_t tf_field(const tf_parser *p, const mst_tf_name *name)
{
    return p->layout->n_dense + name->base;
}

static inline void tf_add_key(const tf_parser *p, const mst_tf_name *name, uint32_t key)
{
    mst_chunk_builder *b = p->builder;
    if (b->order == MST_ORDER_FIELDS)
        mst_chunk_builder_add_field(b, (uint16_t)tf_field(p, name), key, 1.0f);
    else
        mst_chunk_builder_add(b, key, 1.0f);
}

/* Adds the keys of one run of a category column. */
static inline mst_status tf_add_keys(tf_parser *p, const mst_tf_name *name, const uint8_t *at,
                                     const uint8_t *end)
{
    const mst_tf_layout *layout = p->layout;
    while (at < end) {
        uint64_t value;
        at = mst_varint(at, end, &value);
        if (at == NULL)
            return FAIL(p, "feature \"%.*s\" holds a broken int64", NAME(name));
        if (p->vocabulary != NULL)
            tf_add_key(p, name, mst_vocabulary_number_key(p->vocabulary, tf_field(p, name), (int64_t)value));
        else if (layout->hashed)
            tf_add_key(p, name, hashed_key(p, name, &value, 8));
        else if (value - layout->n_dense < p->bound - layout->n_dense)
            tf_add_key(p, name, (uint32_t)value);
        else
            return fail_key(p, name, value);
    }
    return MST_OK;
}

static inline mst_status read_category(tf_parser *p, const mst_tf_name *name,
                                       const mst_example_feature *feature)
{
    const uint8_t *run = feature->list;
    size_t n = feature->list_size;
    mst_example_list list;
    if (name->kind == MST_EXAMPLE_INTS && feature->more == NULL && n >= 2 && n < 0x82 && run[0] == 0x0a &&
        run[1] == n - 2)
        return tf_add_keys(p, name, run + 2, run + n); /* one packed run is all */
    mst_example_list_init(&list, feature);
    while (mst_example_run(&list, &run, &n)) {
        if (name->kind == MST_EXAMPLE_BYTES)
            tf_add_key(p, name,
                       p->vocabulary != NULL ? mst_vocabulary_key(p->vocabulary, tf_field(p, name), run, n)
                                             : hashed_key(p, name, run, n));
        else
            TRY(tf_add_keys(p, name, run, run + n));
    }
    return list.problem == NULL ? MST_OK : FAIL(p, "%s", list.problem);
}

static const char *kind_name(mst_example_kind kind)
{
    static const char *const names[] = {"nothing", "bytes", "floats", "int64"};
    return names[kind];
}

static mst_status read_column(tf_parser *p, const mst_tf_name *name, const mst_example_feature *feature,
                              size_t start)
{
    mst_chunk_builder *b = p->builder;
    if (feature->kind == MST_EXAMPLE_NONE)
        return MST_OK;
    if (feature->kind != name->kind)
        return FAIL(p, "column \"%.*s\" holds %s, and %s in the first records", NAME(name),
                    kind_name(feature->kind), kind_name(name->kind));
    if (name->role == MST_TF_CATEGORY)
        return read_category(p, name, feature);
    float *to = b->values + start + name->base;
    if (name->width == 1 && feature->more == NULL && feature->list_size == 6 && feature->list[0] == 0x0a &&
        feature->list[1] == 4 && finite_bits(tf_load32(feature->list + 2))) {
        memcpy(to, feature->list + 2, 4);
        return MST_OK;
    }
    return read_floats(p, name, feature, NULL, to, name->width);
}

#define RARE __attribute__((noinline, cold)) /* stays out of the loop over features */

/* A feature that the first block does not have is named once, unless the user chose the columns. */
RARE static void note_strange(const tf_parser *p, const mst_example_feature *feature)
{
    if (p->layout->strange == NULL || feature->kind == MST_EXAMPLE_NONE ||
        atomic_flag_test_and_set(p->layout->strange))
        return;
    mst_token_text name = mst_token_show(feature->name, feature->name + feature->name_size);
    mst_warn(
        "%s: feature \"%s\" was not in the first records and is ignored; so are other features that first "
        "appear later; --tf-columns chooses the features to use",
        p->block->path, name.text);
}

/* The first record without any feature to use is named. */
RARE static void note_bare(const tf_parser *p)
{
    if (atomic_flag_test_and_set(p->layout->bare))
        return;
    mst_warn("%s at byte %" PRIu64 ": the record has %s; such records count as rows without features",
             p->block->path, p->block->offset + (uint64_t)(p->record - p->block->data),
             p->layout->columns ? "none of the columns" : "no indices");
}

/* Position in layout->names of the feature at this position of the record; n_names: none of ours. */
static inline size_t tf_find_name(tf_parser *p, const mst_example_feature *feature, unsigned position)
{
    const mst_tf_layout *layout = p->layout;
    uint64_t head = mst_tf_head(feature->name, feature->name_size, p->message_end);
    unsigned at = position % REMEMBERED;
    size_t i = p->order[at];
    if (mst_tf_same(&layout->names[i], feature->name, feature->name_size, head))
        return i;
    i = mst_tf_find(layout, feature->name, feature->name_size, head);
    if (i < layout->n_names)
        p->order[at] = (uint16_t)i;
    return i;
}

/* The next feature of the record that we look for; NULL at its end, with *st set, or when one occurs for the
 * second time, with p->twice set. */
static inline const mst_tf_name *next_named(tf_parser *p, mst_example_walk *walk, unsigned *position,
                                            mst_example_feature *feature, mst_status *st)
{
    const mst_tf_layout *layout = p->layout;
    while (mst_example_next(walk, feature)) {
        unsigned at = (*position)++;
        size_t i = tf_find_name(p, feature, at);
        if (i == layout->n_names) {
            note_strange(p, feature);
            continue;
        }
        uint64_t bit = 1ull << i % 64;
        if (p->twice && p->last[i] != at)
            continue;
        if (p->seen[i / 64] & bit) {
            p->twice = true;
            return NULL;
        }
        p->seen[i / 64] |= bit;
        return &layout->names[i];
    }
    if (walk->problem != NULL)
        *st = FAIL(p, "%s", walk->problem);
    return NULL;
}

/* Finds where each name occurs last. */
RARE static mst_status find_last(tf_parser *p, const uint8_t *message, size_t n)
{
    mst_example_walk walk;
    mst_example_feature feature;
    if (p->last == NULL)
        p->last = mst_calloc(p->layout->n_names, sizeof *p->last);
    if (p->last == NULL)
        return mst_fail_memory();
    mst_example_walk_init(&walk, message, n);
    for (unsigned position = 0; mst_example_next(&walk, &feature); position++) {
        size_t i = tf_find_name(p, &feature, position);
        if (i < p->layout->n_names)
            p->last[i] = position;
    }
    return walk.problem == NULL ? MST_OK : FAIL(p, "%s", walk.problem);
}

/* Makes the bytes of an image the row. */
__attribute__((noinline)) static mst_status read_image(const tf_parser *p, const mst_tf_name *name,
                                                       const mst_example_feature *feature)
{
    mst_image_rows *images = p->layout->images;
    size_t area = (size_t)images->height * images->width, n = area * images->channels, run_size, size = 0;
    const uint8_t *run, *bytes = NULL;
    unsigned count = 0;
    mst_example_list list;
    uint8_t *planes;
    if (feature->kind != MST_EXAMPLE_BYTES)
        return FAIL(p, "feature \"%.*s\" does not hold bytes", NAME(name));
    mst_example_list_init(&list, feature);
    for (; mst_example_run(&list, &run, &run_size); count++) {
        bytes = run;
        size = run_size;
    }
    if (list.problem != NULL)
        return FAIL(p, "%s", list.problem);
    if (count != 1)
        return FAIL(p, "feature \"%.*s\" holds %u images instead of one", NAME(name), count);
    TRY(mst_chunk_builder_image(p->builder, (uint32_t)n, &planes));
    if (p->layout->encoded) {
        char where[PATH_MAX + 32];
        if (!mst_image_sniff(bytes, size))
            return FAIL(p, "feature \"%.*s\" is neither a JPEG nor a PNG image", NAME(name));
        snprintf(where, sizeof where, "%s at byte %" PRIu64, p->block->path,
                 p->block->offset + (uint64_t)(p->record - p->block->data));
        return mst_image_rows_decode(images, where, bytes, size, planes);
    }
    if (size != n)
        return FAIL(p, "feature \"%.*s\" holds %zu bytes, and images of %u x %u x %u are %zu", NAME(name),
                    size, images->height, images->width, images->channels, n);
    for (size_t c = 0; c < images->channels; c++)
        for (size_t i = 0; i < area; i++)
            planes[c * area + i] = bytes[i * images->channels + c];
    return MST_OK;
}

__attribute__((noinline)) static mst_status read_side(const tf_parser *p, const mst_tf_name *name,
                                                      const mst_example_feature *feature)
{
    float side = 0.0f;
    TRY(tf_read_number(p, name, feature, &side));
    return side == (float)name->width
               ? MST_OK
               : FAIL(p, "feature \"%.*s\" is %g, and %u in the first record: raw images must have one size",
                      NAME(name), (double)side, name->width);
}

/* again: the record has a feature twice, and find_last has run. Otherwise p->twice is set in that case, and
 * no row was made. */
static mst_status parse_example(tf_parser *p, const uint8_t *message, size_t n, bool again)
{
    const mst_tf_layout *layout = p->layout;
    mst_chunk_builder *b = p->builder;
    mst_example_walk walk;
    mst_example_feature feature, index = {0}, value = {0};
    const mst_tf_name *name, *index_name = NULL, *value_name = NULL;
    bool labelled = false, pictured = false, used = false;
    float label = 0.0f, weight = 1.0f;
    unsigned position = 0;
    mst_status st = MST_OK;
    size_t start = b->n_entries;

    p->message_end = message + n;
    p->twice = again;
    memset(p->seen, 0, (layout->n_names + 63) / 64 * 8);
    if (layout->columns) { /* every category value takes a byte or more of the message */
        TRY(mst_chunk_builder_room(b, layout->n_dense + n));
        for (uint32_t i = 0; i < layout->n_dense; i++) {
            if (b->order == MST_ORDER_FIELDS)
                b->fields[b->n_entries] = (uint16_t)i;
            mst_chunk_builder_add(b, i, mst_missing_number(p->options));
        }
    }
    mst_example_walk_init(&walk, message, n);
    while ((name = next_named(p, &walk, &position, &feature, &st)) != NULL) {
        switch (name->role) {
        case MST_TF_LABEL:
            if (!p->options->unlabelled)
                TRY(tf_read_number(p, name, &feature, &label));
            labelled = true;
            break;
        case MST_TF_WEIGHT:
            TRY(tf_read_number(p, name, &feature, &weight));
            if (weight < 0.0f)
                return FAIL(p, "feature \"%.*s\" is a negative weight", NAME(name));
            break;
        case MST_TF_INDEX:
            index = feature;
            index_name = name;
            used = true;
            break;
        case MST_TF_VALUE:
            value = feature;
            value_name = name;
            break;
        case MST_TF_DENSE:
        case MST_TF_CATEGORY:
            TRY(read_column(p, name, &feature, start));
            used |= feature.kind != MST_EXAMPLE_NONE;
            break;
        case MST_TF_IMAGE:
            TRY(read_image(p, name, &feature));
            pictured = true;
            break;
        case MST_TF_SIDE:
            TRY(read_side(p, name, &feature));
            break;
        case MST_TF_LEFT_OUT:
            break;
        }
    }
    TRY(st);
    if (p->twice && !again)
        return MST_OK; /* the caller starts over */
    if (!labelled && !p->options->unlabelled)
        return FAIL(
            p,
            "the record has no feature \"%.*s\": name the one with the label with --tf-label (only predict "
            "takes rows without a label)",
            NAME(&layout->names[0]));
    if (layout->images != NULL && !pictured)
        return FAIL(p, "the record has no image in feature \"%s\"", layout->names[layout->image].text);
    if (!used && !pictured)
        note_bare(p);
    if (!layout->columns && layout->images == NULL) {
        size_t count = 0;
        if (index_name != NULL)
            TRY(tf_read_index(p, index_name, &index, &count));
        TRY(mst_chunk_builder_room(b, count));
        float *values = b->values + b->n_entries;
        if (value_name != NULL && value.kind != MST_EXAMPLE_NONE)
            TRY(read_floats(p, value_name, &value, index_name, values, count));
        else
            for (size_t i = 0; i < count; i++)
                values[i] = 1.0f;
        b->n_entries += count;
    }
    return mst_chunk_builder_end_row(b, label, weight);
}

/* Whether a record that was refused has a feature twice: it may have been refused for one that does not
 * count. */
RARE static bool has_twice(tf_parser *p, const uint8_t *message, size_t n)
{
    mst_example_walk walk;
    mst_example_feature feature;
    memset(p->seen, 0, sizeof p->seen);
    mst_example_walk_init(&walk, message, n);
    for (unsigned position = 0; mst_example_next(&walk, &feature); position++) {
        size_t i = tf_find_name(p, &feature, position);
        uint64_t bit = 1ull << i % 64;
        if (i == p->layout->n_names)
            continue;
        if (p->seen[i / 64] & bit)
            return true;
        p->seen[i / 64] |= bit;
    }
    return false;
}

/* A record with a feature twice. */
RARE static mst_status parse_again(tf_parser *p, const uint8_t *message, size_t n)
{
    mst_chunk_builder_drop_row(p->builder);
    TRY(find_last(p, message, n));
    return parse_example(p, message, n, true);
}

/* ---- the format ---- */

static mst_status tfrecord_prepare(mst_parse_context *context, const mst_block *first)
{
    mst_tf_layout *layout;
    TRY(mst_tf_layout_new(context, first, &layout));
    context->prepared = layout;
    return MST_OK;
}

static void tfrecord_unprepare(const void *prepared)
{
    mst_tf_layout_destroy((mst_tf_layout *)prepared);
}

static json_t *tfrecord_origin(const mst_parse_context *context)
{
    return mst_tf_layout_origin(context->prepared, context->features);
}

static mst_status tfrecord_parse(const mst_parse_context *context, const mst_block *block,
                                 mst_chunk_builder *out)
{
    tf_parser p = {
        .layout = context->prepared,
        .block = block,
        .builder = out,
        .vocabulary = context->vocabulary,
        .options = context->options,
        .limit = context->features != 0 && context->features < UINT32_MAX ? context->features : UINT32_MAX,
        .bound = mst_key_limit(context),
    };
    const uint8_t *at = block->data, *end = block->data + block->size;
    if (context->n_fields > 0)
        mst_chunk_builder_set_order(out, MST_ORDER_FIELDS, p.layout->n_dense);
    mst_status st = mst_chunk_builder_room(out, 1); /* from here on the arrays are there */
    while (at < end && st == MST_OK) {
        const uint8_t *data = NULL;
        size_t n = 0;
        p.record = at;
        st = mst_tfrecord_next(block, &at, &data, &n);
        if (st != MST_OK)
            break;
        st = parse_example(&p, data, n, false);
        if (st == MST_OK ? p.twice : has_twice(&p, data, n))
            st = parse_again(&p, data, n);
        if (st != MST_OK)
            mst_chunk_builder_drop_row(out);
    }
    mst_free(p.last);
    return st;
}

const mst_format mst_format_tfrecord = {
    .kind =
        {
            .name = "tfrecord",
            .help = "TFRecord files of tf.Example: index/value pairs, columns of numbers and text, or images",
            .capabilities = MST_DATA_FORMAT | MST_DATA_PARSED,
            .reads = "tf- hash-seed vocabulary",
            .sniff = tfrecord_sniff,
            .open = mst_format_open,
        },
    .categories = true,
    .find_end = tfrecord_find_end,
    .record = tfrecord_record,
    .prepare = tfrecord_prepare,
    .unprepare = tfrecord_unprepare,
    .origin = tfrecord_origin,
    .check = mst_tfrecord_check,
    .parse = tfrecord_parse,
};
