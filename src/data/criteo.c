/* Criteo's click logs: label, 13 integers, 26 categories of 32 bits in hex; 40 columns between tabs, any of
 * them but the label may be empty. To predict, the label's column may be left out, as in Criteo's test file.
 *
 * A category becomes the hash (XXH3) of its column and value; so does the bucket of an integer. An empty
 * field is a category of its own, so every row has the same number of entries. Buckets: a negative integer
 * has one of its own, 0, 1 and 2 stand for themselves, larger ones fall into floor(log(v)^2), which is fine
 * where clicks are many and coarse in the tail.
 *
 *     --criteo-numeric bucket   39 hashed features in [0, features)
 *     --criteo-numeric log      features 0..12 are log(1 + max(v, 0)) / 4 (0 when empty), 26 hashed in [13,
 * features)
 *     --criteo-numeric both     features 0..12 as in log, 39 hashed in [13, features)
 *
 * The dense features and the hashed ones are fields in this order: keys stay in the order of the columns, so
 * the field of a key is its position.
 *
 * Invariants
 * 1. Every key is below the context's features, which prepare sets (2^20 when 0) and which exceeds 13 where
 * 13 are reserved.
 * 2. Every row has the same number of entries. */
#include <ctype.h>

#include "base/alloc.h"
#include "base/status.h"
#include "data/feature_hash.h"
#include "data/format.h"
#include "data/numbers.h"
#include "data/text.h"
#include "data/vocabulary.h"

#define N_INTEGERS       13
#define N_CATEGORIES     26
#define N_COLUMNS        (1 + N_INTEGERS + N_CATEGORIES)
#define DEFAULT_FEATURES (1u << 20)
#define N_SMALL          4096 /* integers whose bucket is looked up */

enum { NUMERIC_BUCKET, NUMERIC_LOG, NUMERIC_BOTH };

typedef struct tables {
    uint16_t bucket[N_SMALL];
    float log[N_SMALL];
} tables;

extern const mst_format mst_format_criteo;

uint32_t mst_criteo_bucket(int64_t v)
{
    if (v <= 2)
        return (uint32_t)v;
    double l = log((double)v);
    return 2 + (uint32_t)(l * l);
}

float mst_criteo_log(int64_t v)
{
    return v > 0 ? (float)(log1p((double)v) * 0.25) : 0.0f;
}

static mst_status criteo_prepare(mst_parse_context *context, const mst_block *first)
{
    (void)first;
    if (context->features == 0)
        context->features = DEFAULT_FEATURES;
    if (context->options->criteo_numeric != NUMERIC_BUCKET && context->features <= N_INTEGERS)
        return mst_fail(MST_EUSAGE,
                        "--features %llu leaves no room beside the 13 numeric features of --criteo-numeric",
                        (unsigned long long)context->features);
    context->n_fields =
        N_CATEGORIES + (context->options->criteo_numeric == NUMERIC_BOTH ? 2 : 1) * N_INTEGERS;
    context->n_numbers = context->options->criteo_numeric == NUMERIC_BUCKET ? 0 : N_INTEGERS;
    tables *t = mst_alloc(sizeof *t);
    if (t == NULL)
        return mst_fail_memory();
    for (int v = 0; v < N_SMALL; v++) {
        t->bucket[v] = (uint16_t)mst_criteo_bucket(v);
        t->log[v] = mst_criteo_log(v);
    }
    context->prepared = t;
    return MST_OK;
}

static void criteo_unprepare(const void *prepared)
{
    mst_free((void *)prepared);
}

/* The key of a value in a column: its hash scaled to [reserved, features). */
typedef struct hasher {
    uint64_t seed, range;
    uint32_t reserved;
} hasher;

static inline uint32_t criteo_hash_key(const hasher *h, unsigned column, unsigned tag, uint32_t value)
{
    return h->reserved + mst_hash_criteo(column, tag, value, h->seed, h->range);
}

/* The key of a value in a vocabulary: its name is the number of a bucket, "-" for that of negative integers,
 * 8 hex digits of a category, or nothing for an empty field. */
static uint32_t criteo_category_key(const mst_vocabulary *v, uint32_t field, unsigned tag, bool bucket,
                                    uint32_t value)
{
    char name[16];
    if (tag == MST_CRITEO_EMPTY)
        return mst_vocabulary_key(v, field, "", 0);
    if (tag == MST_CRITEO_NEGATIVE)
        return mst_vocabulary_key(v, field, "-", 1);
    if (bucket)
        return mst_vocabulary_number_key(v, field, value);
    for (int i = 7; i >= 0; i--, value >>= 4)
        name[i] = "0123456789abcdef"[value & 15];
    return mst_vocabulary_key(v, field, name, 8);
}

static unsigned criteo_count_columns(const uint8_t *line, const uint8_t *line_end)
{
    unsigned columns = 1;
    for (const uint8_t *q = line; q < line_end; q++)
        columns += *q == '\t';
    return columns;
}

/* Fails for a line with the wrong number of columns, or for the column at `p`; `column` counts the
 * label's. */
static mst_status criteo_fail_line(const mst_parse_context *context, const mst_block *block,
                                   const uint8_t *line, const uint8_t *line_end, unsigned column,
                                   const uint8_t *p)
{
    unsigned columns = criteo_count_columns(line, line_end);
    bool unlabelled = columns == N_COLUMNS - 1;
    if (unlabelled && !context->options->unlabelled)
        return mst_block_fail(&mst_format_criteo, block, line,
                              "39 columns instead of 40, as in Criteo's test file: " MST_NO_LABEL);
    if (columns != N_COLUMNS && !unlabelled)
        return mst_block_fail(&mst_format_criteo, block, line,
                              "%u columns instead of 40 (label, 13 integers, 26 categories)", columns);
    const uint8_t *stop = p;
    while (stop < line_end && *stop != '\t')
        stop++;
    mst_token_text shown = mst_token_show(p, stop);
    const char *header = block->line == 1 && p == block->data && isalpha((unsigned char)shown.text[0])
                             ? "; the line looks like a header: remove it"
                             : "";
    bool integer = column <= N_INTEGERS;
    if (column == 0)
        return mst_block_fail(&mst_format_criteo, block, line, "label \"%s\" is neither 0 nor 1%s",
                              shown.text, header);
    return mst_block_fail(&mst_format_criteo, block, line, "column %u (%c%u): \"%s\" is not %s%s",
                          column + 1 - unlabelled, integer ? 'I' : 'C',
                          integer ? column : column - N_INTEGERS, shown.text,
                          integer ? "an integer" : "a category of up to 8 hex digits", header);
}

static mst_status criteo_parse_line(const mst_parse_context *context, const mst_block *block, const hasher *h,
                                    const uint8_t *line, const uint8_t *line_end, mst_chunk_builder *out)
{
    const tables *t = context->prepared;
    const int numeric = context->options->criteo_numeric;
    const float missing = mst_missing_number(context->options);
    const uint8_t *p = line, *end = line_end - (line_end > line && line_end[-1] == '\r');
    const uint8_t *block_end = block->data + block->size;
    unsigned n = h->reserved;
    uint32_t *out_keys = out->keys + out->n_entries;
    float *out_values = out->values + out->n_entries;
    float label = 0.0f;
    if (!context->options->unlabelled || criteo_count_columns(line, end) != N_COLUMNS - 1) {
        if (end - p < N_COLUMNS || (*p != '0' && *p != '1') || p[1] != '\t')
            return criteo_fail_line(context, block, line, line_end, 0, p);
        label = (float)(*p - '0');
        p += 2;
    }
    for (unsigned c = 0; c < N_INTEGERS; c++) { /* each ends with a tab */
        const uint8_t *field = p;
        bool negative = p < end && *p == '-';
        p += negative;
        unsigned digits = block_end - p >= 8 ? mst_digits_count8(mst_load8(p)) : 0;
        int64_t v = 0;
        if (digits > 0 && digits < 8) {
            v = mst_digits_value8(mst_load8(p), digits);
            p += digits;
        } else if (p < end && *p != '\t') {
            uint64_t large;
            p = mst_number_unsigned(p, end, &large);
            if (p == NULL || large > INT64_MAX)
                return criteo_fail_line(context, block, line, line_end, c + 1, field);
            v = (int64_t)large;
        } else if (negative) {
            return criteo_fail_line(context, block, line, line_end, c + 1, field);
        }
        if (p >= end || *p != '\t')
            return criteo_fail_line(context, block, line, line_end, c + 1, field);
        bool empty = p == field;
        p++;
        if (numeric != NUMERIC_LOG) {
            unsigned tag = empty ? MST_CRITEO_EMPTY : negative ? MST_CRITEO_NEGATIVE : MST_CRITEO_VALUE;
            uint32_t bucket = tag != MST_CRITEO_VALUE ? 0 : v < N_SMALL ? t->bucket[v] : mst_criteo_bucket(v);
            out_values[n] = 1.0f;
            out_keys[n] = context->vocabulary != NULL
                              ? criteo_category_key(context->vocabulary, n, tag, true, bucket)
                              : criteo_hash_key(h, c, tag, bucket);
            n++;
        }
        if (numeric != NUMERIC_BUCKET) {
            out_keys[c] = c;
            out_values[c] = empty ? missing : negative ? 0.0f : v < N_SMALL ? t->log[v] : mst_criteo_log(v);
        }
    }
    for (unsigned c = 0; c < N_CATEGORIES; c++) { /* each but the last ends with a tab */
        const uint8_t *field = p;
        uint32_t value = 0;
        unsigned tag = MST_CRITEO_VALUE;
        if (end - p >= 8 && mst_number_hex8(p, &value)) {
            p += 8;
        } else if (p < end && *p != '\t') {
            while (p < end && *p != '\t')
                p++;
            if (!mst_number_hex(field, p, &value))
                return criteo_fail_line(context, block, line, line_end, N_INTEGERS + 1 + c, field);
        } else {
            tag = MST_CRITEO_EMPTY;
        }
        if (c < N_CATEGORIES - 1 ? p >= end || *p != '\t' : p != end)
            return criteo_fail_line(context, block, line, line_end, N_INTEGERS + 1 + c, field);
        p++;
        out_values[n] = 1.0f;
        out_keys[n] = context->vocabulary != NULL
                          ? criteo_category_key(context->vocabulary, n, tag, false, value)
                          : criteo_hash_key(h, N_INTEGERS + c, tag, value);
        n++;
    }
    out->n_entries += n;
    return mst_chunk_builder_end_row(out, label, 1.0f);
}

static mst_status criteo_parse(const mst_parse_context *context, const mst_block *block,
                               mst_chunk_builder *out)
{
    const uint8_t *p = block->data, *end = p + block->size;
    hasher h = {.seed = (uint64_t)context->options->hash_seed,
                .reserved = context->options->criteo_numeric == NUMERIC_BUCKET ? 0 : N_INTEGERS};
    h.range = context->features - h.reserved;
    mst_chunk_builder_set_order(out, MST_ORDER_POSITION, h.reserved);
    while (p < end) {
        const uint8_t *line_end = mst_line_end(p, end);
        if (mst_line_is_row(p, line_end)) {
            TRY(mst_chunk_builder_room(out, 2 * N_INTEGERS + N_CATEGORIES));
            TRY(criteo_parse_line(context, block, &h, p, line_end, out));
        }
        p = line_end + (line_end < end);
    }
    return MST_OK;
}

static json_t *criteo_origin(const mst_parse_context *context)
{
    static const char *const numeric[] = {"bucket", "log", "both"};
    return json_pack("{s:s, s:I, s:I, s:s}", "keys", "criteo", "features", (json_int_t)context->features,
                     "hash-seed", (json_int_t)context->options->hash_seed, "criteo-numeric",
                     numeric[context->options->criteo_numeric]);
}

static bool criteo_missing_key(const json_t *origin, uint32_t field, uint32_t *key)
{
    const char *numeric = json_string_value(json_object_get(origin, "criteo-numeric"));
    json_int_t features = json_integer_value(json_object_get(origin, "features"));
    bool bucket = numeric == NULL || strcmp(numeric, "bucket") == 0,
         log = !bucket && strcmp(numeric, "log") == 0;
    hasher h = {.seed = (uint64_t)json_integer_value(json_object_get(origin, "hash-seed")),
                .reserved = bucket ? 0 : N_INTEGERS};
    if (features <= h.reserved || field < h.reserved)
        return false;
    h.range = (uint64_t)features - h.reserved;
    *key = criteo_hash_key(&h, log ? field : field - h.reserved, MST_CRITEO_EMPTY, 0);
    return true;
}

/* Counts the fields of a row that are neither empty nor valid in their column. */
static unsigned criteo_wrong_fields(const uint8_t *q, const uint8_t *line_end, unsigned tabs,
                                    unsigned *fields)
{
    unsigned wrong = 0;
    for (unsigned column = N_COLUMNS - 1 - tabs; column < N_COLUMNS; column++) {
        const uint8_t *stop = q < line_end ? memchr(q, '\t', (size_t)(line_end - q)) : NULL;
        int64_t integer;
        uint32_t category;
        stop = stop != NULL ? stop : line_end;
        bool good = column <= N_INTEGERS ? mst_number_signed(q, stop, &integer) == stop
                                         : mst_number_hex(q, stop, &category);
        *fields += stop > q;
        wrong += stop > q && !good;
        q = stop < line_end ? stop + 1 : line_end;
    }
    return wrong;
}

/* 2: rows of 40 such columns. 1: rows that the parser refuses with a better message than "unknown": of 39
 * columns, or half of them and three quarters of their fields as they should be. */
static int criteo_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    const uint8_t *p = head, *end = head + n, *line, *line_end;
    bool whole = n < MST_SNIFF_BYTES;
    unsigned lines = 0, labelled = 0, unlabelled = 0, fields = 0, wrong = 0;
    if (!mst_looks_like_text(head, n))
        return 0;
    for (; lines < MST_SNIFF_LINES && mst_sniff_line(&p, end, whole, lines == 0, &line, &line_end); lines++) {
        unsigned tabs = 0;
        line_end -= line_end[-1] == '\r';
        for (const uint8_t *q = line; q < line_end; q++)
            tabs += *q == '\t';
        labelled += tabs == N_COLUMNS - 1;
        unlabelled += tabs == N_COLUMNS - 2;
        if (tabs == N_COLUMNS - 1 || tabs == N_COLUMNS - 2)
            wrong += criteo_wrong_fields(line, line_end, tabs, &fields);
    }
    if (lines == 0 || 2 * (labelled + unlabelled) < lines || 4 * wrong > fields)
        return 0;
    return labelled == lines && wrong == 0 ? 2 : 1;
}

const mst_format mst_format_criteo = {
    .kind =
        {
            .name = "criteo",
            .help = "Criteo click logs: label, 13 integers, 26 hex categories between tabs, hashed into "
                    "--features "
                    "(2^20 when 0)",
            .capabilities = MST_DATA_FORMAT | MST_DATA_PARSED,
            .reads = "criteo- hash-seed vocabulary",
            .sniff = criteo_sniff,
            .open = mst_format_open,
        },
    .text = true,
    .categories = true,
    .hashes = true,
    .prepare = criteo_prepare,
    .unprepare = criteo_unprepare,
    .origin = criteo_origin,
    .missing_key = criteo_missing_key,
    .parse = criteo_parse,
};
