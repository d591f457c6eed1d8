/* Vowpal Wabbit text: "[label [importance [base]]] ['tag]|namespace[:scale] feature[:value] ... |namespace
 * ...".
 *
 * Features are named, not numbered: a name is hashed with XXH64, seeded by the hash of its namespace, which
 * is seeded by
 * --hash-seed, and the hash's upper half is scaled to --features (2^18 when 0). Names that look like numbers
 * are hashed like any other. As in Vowpal Wabbit, a word that touches the first bar is a tag; tags and base
 * are ignored.
 *
 * Invariants
 * 1. Every key is below the context's features, which prepare sets.
 * 2. Labels, weights and values (scale included) are finite as floats; weights are not negative. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/format.h"
#include "data/numbers.h"
#include "data/text.h"

#define DEFAULT_FEATURES (1u << 18)

extern const mst_format mst_format_vw;

static mst_status vw_prepare(mst_parse_context *context, const mst_block *first)
{
    (void)first;
    if (context->features == 0)
        context->features = DEFAULT_FEATURES;
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

/* The end of a name or a value: a blank, a bar, a colon, or the line's end. */
static inline const uint8_t *name_end(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p != ' ' && *p != ':' && *p != '|' && *p != '\t' && *p != '\r')
        p++;
    return p;
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
            space = XXH64(name, (size_t)(stop - name), (uint64_t)context->options->hash_seed);
            scale = value;
        } else if (stop > name) {
            value *= scale;
            if (!isfinite(value))
                return mst_block_fail(&mst_format_vw, block, name,
                                      "value of %s times its namespace's scale is not finite",
                                      mst_token_show(name, stop).text);
            uint64_t hash = XXH64(name, (size_t)(stop - name), space);
            mst_chunk_builder_add(out, (uint32_t)((hash >> 32) * context->features >> 32), value);
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
    return json_pack("{s:s, s:I, s:I}", "keys", "vw", "features", (json_int_t)context->features, "hash-seed",
                     (json_int_t)context->options->hash_seed);
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
            .sniff = vw_sniff,
            .open = mst_format_open,
        },
    .text = true,
    .hashes = true,
    .prepare = vw_prepare,
    .origin = vw_origin,
    .parse = vw_parse,
};
