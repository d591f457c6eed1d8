/* Vowpal Wabbit text: "[label [importance [base]]] ['tag]|namespace[:scale] feature[:value] ... |namespace
 * ...".
 *
 * Features are named, not numbered: a name is hashed with XXH64, seeded by the hash of its namespace, which
 * is seeded by
 * --hash-seed, and the hash's upper half is scaled to --features (2^18 when 0). Names that look like numbers
 * are hashed like any other. As in Vowpal Wabbit, a word that touches the first bar is a tag; tags and base
 * are ignored.
 *
 * Namespaces are fields: those of --vw-fields, or those of the first block in the order of their appearance;
 * all others share one more field. A first block with a single namespace makes rows without fields.
 *
 * Invariants
 * 1. Every key is below the context's features, which prepare sets.
 * 2. Labels, weights and values (scale included) are finite as floats; weights are not negative. */
#include "base/alloc.h"
#include "base/json_text.h"
#include "base/strings.h"
#include "data/feature_hash.h"
#include "data/format.h"
#include "data/numbers.h"
#include "data/origin.h"
#include "data/text.h"
#include "data/vocabulary.h"

#define DEFAULT_FEATURES (1u << 18)

extern const mst_format mst_format_vw;

/* The namespaces that are fields. */
typedef struct vw_fields {
    mst_text_list names;
    uint64_t *hashes; /* mask + 1: of names, or 0 */
    uint32_t *numbers;
    uint32_t mask;
} vw_fields;

static void vw_unprepare(const void *prepared)
{
    vw_fields *f = (vw_fields *)prepared;
    if (f == NULL)
        return;
    mst_text_list_fini(&f->names);
    mst_free(f->hashes);
    mst_free(f->numbers);
    mst_free(f);
}

static uint64_t vw_name_hash(const void *name, size_t n)
{
    return XXH64(name, n, 0) | 1;
}

/* The slot of a namespace, or the free one for it. */
static inline uint32_t vw_slot(const vw_fields *f, uint64_t hash)
{
    uint32_t s = (uint32_t)(hash >> 32) & f->mask;
    while (f->hashes[s] != 0 && f->hashes[s] != hash)
        s = (s + 1) & f->mask;
    return s;
}

/* The field of a namespace: the last one for those without a field of their own. */
static inline uint16_t vw_field(const vw_fields *f, const uint8_t *name, size_t n)
{
    uint32_t s = vw_slot(f, vw_name_hash(name, n));
    return (uint16_t)(f->hashes[s] != 0 ? f->numbers[s] : f->names.n);
}

static mst_status vw_add_name(vw_fields *f, const uint8_t *name, size_t n)
{
    uint64_t hash = vw_name_hash(name, n);
    uint32_t s = vw_slot(f, hash);
    if (f->hashes[s] != 0 || f->names.n >= f->mask / 2 || memchr(name, '\0', n) != NULL)
        return MST_OK;
    char *text = mst_sprintf("%.*s", (int)n, (const char *)name);
    mst_status st = text != NULL ? mst_text_list_add(&f->names, text) : mst_fail_memory();
    mst_free(text);
    TRY(st);
    f->hashes[s] = hash;
    f->numbers[s] = (uint32_t)f->names.n - 1;
    return MST_OK;
}

/* The end of a name or a value: a blank, a bar, a colon, or the line's end. */
static inline const uint8_t *name_end(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p != ' ' && *p != ':' && *p != '|' && *p != '\t' && *p != '\r' && *p != '\n')
        p++;
    return p;
}

static mst_status vw_find_fields(const mst_parse_context *context, const mst_block *first, vw_fields *f)
{
    const uint8_t *p = first->data, *end = p + first->size;
    const char *given = context->options->vw_fields;
    const json_t *counted =
        context->vocabulary != NULL
            ? json_object_get(mst_vocabulary_origin(context->vocabulary), MST_ORIGIN_FIELDS)
            : NULL;
    for (size_t i = 0; i < json_array_size(counted); i++) {
        const char *name = json_string_value(json_array_get(counted, i));
        TRY(vw_add_name(f, (const uint8_t *)name, name != NULL ? strlen(name) : 0));
    }
    if (counted != NULL)
        return MST_OK;
    if (given != NULL && *given != '\0')
        for (const char *stop;; given = stop + 1) {
            stop = strchrnul(given, ',');
            TRY(vw_add_name(f, (const uint8_t *)given, (size_t)(stop - given)));
            if (*stop == '\0')
                return MST_OK;
        }
    while (p < end && (p = memchr(p, '|', (size_t)(end - p))) != NULL) {
        const uint8_t *stop = name_end(++p, end);
        TRY(vw_add_name(f, p, (size_t)(stop - p)));
    }
    return MST_OK;
}

static mst_status vw_prepare(mst_parse_context *context, const mst_block *first)
{
    enum { SLOTS = 1 << 13 }; /* twice the most fields */
    if (context->features == 0)
        context->features = DEFAULT_FEATURES;
    vw_fields *f = mst_zalloc(sizeof *f);
    if (f == NULL)
        return mst_fail_memory();
    f->mask = SLOTS - 1;
    f->hashes = mst_calloc(SLOTS, sizeof *f->hashes);
    f->numbers = mst_calloc(SLOTS, sizeof *f->numbers);
    mst_status st =
        f->hashes != NULL && f->numbers != NULL ? vw_find_fields(context, first, f) : mst_fail_memory();
    if (st != MST_OK) {
        vw_unprepare(f);
        return st;
    }
    bool given = context->options->vw_fields != NULL && *context->options->vw_fields != '\0';
    context->n_fields = given || f->names.n > 1 ? (uint32_t)f->names.n + 1 : 0;
    context->prepared = f;
    return MST_OK;
}

/* A finite float that fills [p, end). */
static bool finite_number(const uint8_t *p, const uint8_t *end, float *out)
{
    double value = 0.0;
    if (end - p == 1 && (unsigned)(*p - '0') < 10) {
        *out = (float)(*p - '0');
        return true;
    }
    if (mst_number_real(p, end, &value) != end || p == end || !isfinite((float)value))
        return false;
    *out = (float)value;
    return true;
}

static inline const uint8_t *value_end(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p != ' ' && *p != '|' && *p != '\t' && *p != '\r')
        p++;
    return p;
}

/* [label [importance [base]]] ['tag], the part of the line before its first bar. */
static mst_status parse_head(const mst_block *block, const uint8_t *p, const uint8_t *bar, bool unlabelled,
                             float *label, float *weight)
{
    static const char *const names[] = {"label", "importance", "base"};
    float numbers[3] = {0.0f, 1.0f, 0.0f};
    const uint8_t *line = p;
    int n = 0;
    while ((p = mst_skip_blanks(p, bar)) < bar) {
        const uint8_t *stop = mst_token_end(p, bar);
        if (*p == '\'' || stop == bar)
            break;
        if (n == 3)
            return mst_block_fail(&mst_format_vw, block, p,
                                  "\"%s\" is one word too many before the first '|'; a tag starts with '",
                                  mst_token_show(p, stop).text);
        if (!finite_number(p, stop, &numbers[n]))
            return mst_block_fail(&mst_format_vw, block, p, "%s \"%s\" is not a finite number", names[n],
                                  mst_token_show(p, stop).text);
        p = stop;
        n++;
    }
    if (n == 0 && !unlabelled)
        return mst_block_fail(&mst_format_vw, block, line,
                              p < bar ? MST_NO_LABEL " (a word that touches '|' is a tag)" : MST_NO_LABEL);
    if (numbers[1] < 0.0f)
        return mst_block_fail(&mst_format_vw, block, line, "importance %g is negative", (double)numbers[1]);
    *label = numbers[0];
    *weight = numbers[1];
    return MST_OK;
}

static mst_status vw_parse_line(const mst_parse_context *context, const mst_block *block, const uint8_t *line,
                                const uint8_t *end, mst_chunk_builder *out)
{
    const uint8_t *p = memchr(line, '|', (size_t)(end - line));
    float label = 0.0f, weight = 1.0f, scale = 1.0f;
    uint64_t space = 0;
    uint16_t field = 0;
    const bool fields = out->order == MST_ORDER_FIELDS;
    const mst_vocabulary *v = context->vocabulary;
    if (p == NULL)
        return mst_block_fail(&mst_format_vw, block, line, "the row has no '|'");
    TRY(parse_head(block, line, p, context->options->unlabelled, &label, &weight));
    TRY(mst_chunk_builder_room(out, (size_t)(end - p) / 2 + 1));
    while (p < end) {
        bool opens = *p == '|'; /* a namespace's name touches its bar; without one it is nameless */
        p += opens;
        const uint8_t *name = p, *stop = name_end(p, end);
        float value = 1.0f;
        p = stop;
        if (p < end && *p == ':') {
            const uint8_t *number = p + 1;
            p = value_end(number, end);
            if (!finite_number(number, p, &value))
                return mst_block_fail(&mst_format_vw, block, name,
                                      "value \"%s\" of %s is not a finite number",
                                      mst_token_show(number, p).text, mst_token_show(name, stop).text);
        }
        if (opens) {
            space = mst_hash_space(name, (size_t)(stop - name), (uint64_t)context->options->hash_seed);
            scale = value;
            if (fields)
                field = vw_field(context->prepared, name, (size_t)(stop - name));
        } else if (stop > name) {
            value *= scale;
            if (!isfinite(value))
                return mst_block_fail(&mst_format_vw, block, name,
                                      "value of %s times its namespace's scale is not finite",
                                      mst_token_show(name, stop).text);
            uint32_t key = v != NULL ? mst_vocabulary_key(v, field, name, (size_t)(stop - name))
                                     : mst_hash_name(space, name, (size_t)(stop - name), context->features);
            if (fields)
                mst_chunk_builder_add_field(out, field, key, value);
            else
                mst_chunk_builder_add(out, key, value);
        } else if (p > name) {
            return mst_block_fail(&mst_format_vw, block, name, "\"%s\" has no feature name before its colon",
                                  mst_token_show(name, p).text);
        }
        p = mst_skip_blanks(p, end);
    }
    return mst_chunk_builder_end_row(out, label, weight);
}

static mst_status vw_parse(const mst_parse_context *context, const mst_block *block, mst_chunk_builder *out)
{
    const uint8_t *p = block->data, *end = p + block->size;
    if (context->n_fields > 0)
        mst_chunk_builder_set_order(out, MST_ORDER_FIELDS, 0);
    while (p < end) {
        const uint8_t *line_end = mst_line_end(p, end);
        if (mst_line_is_row(p, line_end))
            TRY(vw_parse_line(context, block, p, line_end, out));
        p = line_end + (line_end < end);
    }
    return MST_OK;
}

static json_t *vw_origin(const mst_parse_context *context)
{
    json_t *origin = json_pack("{s:s, s:I, s:I}", "keys", "vw", "features", (json_int_t)context->features,
                               "hash-seed", (json_int_t)context->options->hash_seed);
    const vw_fields *f = context->prepared;
    if (origin != NULL && context->n_fields > 0)
        json_object_set_new(origin, MST_ORIGIN_FIELDS, mst_json_texts(f->names.items, (uint32_t)f->names.n));
    return origin;
}

/* Every line has a bar and nothing but numbers and a tag before it. */
static int vw_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    const uint8_t *p = head, *end = head + n, *line, *line_end;
    bool whole = n < MST_SNIFF_BYTES;
    int lines = 0;
    if (!mst_looks_like_text(head, n))
        return 0;
    for (; lines < MST_SNIFF_LINES && mst_sniff_line(&p, end, whole, lines == 0, &line, &line_end); lines++) {
        const uint8_t *bar = memchr(line, '|', (size_t)(line_end - line));
        if (bar == NULL)
            return 0;
        for (const uint8_t *q = mst_skip_blanks(line, bar); q < bar; q = mst_skip_blanks(q, bar)) {
            const uint8_t *stop = mst_token_end(q, bar);
            float number;
            if (*q != '\'' && stop != bar && !finite_number(q, stop, &number))
                return 0;
            q = stop;
        }
    }
    return lines == 0 ? 0 : 2;
}

const mst_format mst_format_vw = {
    .kind =
        {
            .name = "vw",
            .help = "Vowpal Wabbit text \"label |namespace feature:value ...\", names hashed into --features "
                    "(2^18 "
                    "when 0)",
            .capabilities = MST_DATA_FORMAT | MST_DATA_PARSED,
            .reads = "vw- hash-seed vocabulary",
            .sniff = vw_sniff,
            .open = mst_format_open,
        },
    .text = true,
    .categories = true,
    .hashes = true,
    .prepare = vw_prepare,
    .unprepare = vw_unprepare,
    .origin = vw_origin,
    .parse = vw_parse,
};
