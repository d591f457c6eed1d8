/* libffm text: "label field:index:value field:index:value ... # comment", one row a line. Fields and indices
 * are numbers from 0. To predict, the label may be "?" or be left out.
 *
 * The entries of a row are kept in the order of their fields. No feature becomes dense: any field may have
 * any index.
 *
 * Invariants
 * 1. Every key is below mst_key_limit, every field below the context's n_fields, or below MST_FIELDS_MAX
 * where that is 0.
 * 2. Labels and values are finite as floats.
 * 3. Entries never exceed a sixth of the bytes left plus one: "0:0:0" and a blank. Room is made by that
 * bound. */
#include "data/format.h"
#include "data/numbers.h"
#include "data/text.h"
#include "data/vocabulary.h"

extern const mst_format mst_format_libffm;

/* Skips the place of a missing label: "?", or nothing before the features. False when it is something else.
 */
static bool ffm_no_label(const uint8_t **p, const uint8_t *end)
{
    const uint8_t *stop = mst_token_end(*p, end);
    if (stop - *p == 1 && **p == '?') {
        *p = stop;
        return true;
    }
    return memchr(*p, ':', (size_t)(stop - *p)) != NULL;
}

/* The two numbers of "field:index:" at p: returns where the value starts, NULL when they are not there. */
static const uint8_t *ffm_numbers(const uint8_t *p, const uint8_t *end, uint64_t *field, uint64_t *index)
{
    p = mst_number_unsigned(p, end, field);
    if (p == NULL || p == end || *p != ':')
        return NULL;
    p = mst_number_unsigned(p + 1, end, index);
    return p != NULL && p < end && *p == ':' ? p + 1 : NULL;
}

static mst_status ffm_parse_entry(const mst_parse_context *context, const mst_block *block, const uint8_t **p,
                                  const uint8_t *end, mst_chunk_builder *out)
{
    const uint8_t *at = *p;
    uint64_t field, index, limit = mst_key_limit(context),
                           fields = context->n_fields != 0 ? context->n_fields : MST_FIELDS_MAX;
    float value = 1.0f;
    const uint8_t *q = ffm_numbers(at, end, &field, &index);
    if (q == NULL)
        return mst_block_fail(&mst_format_libffm, block, at, "\"%s\" is not field:index:value",
                              mst_token_show(at, mst_token_end(at, end)).text);
    if (field >= fields)
        return mst_block_fail(&mst_format_libffm, block, at, "field %llu is not below %s%llu",
                              (unsigned long long)field, context->n_fields != 0 ? "--fields " : "",
                              (unsigned long long)fields);
    if (context->vocabulary == NULL && index >= limit && context->names != NULL)
        return mst_block_fail(&mst_format_libffm, block, at,
                              "index %llu has no name: --feature-names %s has %llu names",
                              (unsigned long long)index, context->names, (unsigned long long)limit);
    if (context->vocabulary == NULL && index >= limit)
        return mst_block_fail(&mst_format_libffm, block, at, "index %llu is not below %s%llu",
                              (unsigned long long)index, limit != UINT32_MAX ? "--features " : "",
                              (unsigned long long)limit);
    if (q + 1 < end && *q == '1' && mst_is_blank(q[1]))
        q++;
    else if (!mst_token_float(&q, end, &value))
        return mst_block_fail(&mst_format_libffm, block, at, "value \"%s\" is not a finite number",
                              mst_token_show(q, mst_token_end(q, end)).text);
    uint32_t key = context->vocabulary != NULL
                       ? mst_vocabulary_number_key(context->vocabulary, (uint32_t)field, (int64_t)index)
                       : (uint32_t)index;
    mst_chunk_builder_add_field(out, (uint16_t)field, key, value);
    *p = q;
    return MST_OK;
}

static mst_status ffm_parse_line(const mst_parse_context *context, const mst_block *block,
                                 const uint8_t *line, const uint8_t *end, mst_chunk_builder *out)
{
    const uint8_t *p = mst_skip_blanks(line, end);
    float label = 0.0f;
    TRY(mst_chunk_builder_room(out, (size_t)(end - p) / 6 + 1));
    if (!mst_token_float(&p, end, &label)) {
        const uint8_t *at = p;
        if (!ffm_no_label(&p, end))
            return mst_block_fail(&mst_format_libffm, block, p, "label \"%s\" is not a finite number",
                                  mst_token_show(p, mst_token_end(p, end)).text);
        if (!context->options->unlabelled)
            return mst_block_fail(&mst_format_libffm, block, at, MST_NO_LABEL);
        label = 0.0f;
    }
    while ((p = mst_skip_blanks(p, end)) < end && *p != '#')
        TRY(ffm_parse_entry(context, block, &p, end, out));
    return mst_chunk_builder_end_row(out, label, 1.0f);
}

static mst_status ffm_parse(const mst_parse_context *context, const mst_block *block, mst_chunk_builder *out)
{
    const uint8_t *p = block->data, *end = p + block->size;
    mst_chunk_builder_set_order(out, MST_ORDER_FIELDS, 0);
    while (p < end) {
        const uint8_t *line_end = mst_line_end(p, end);
        if (mst_line_is_row(p, line_end))
            TRY(ffm_parse_line(context, block, p, line_end, out));
        p = line_end + (line_end < end);
    }
    return MST_OK;
}

static mst_status ffm_prepare(mst_parse_context *context, const mst_block *first)
{
    (void)first;
    context->n_fields = (uint32_t)context->options->fields;
    if (context->vocabulary != NULL && context->options->counter == NULL)
        context->n_fields = mst_vocabulary_fields(context->vocabulary);
    return MST_OK;
}

static bool ffm_is_entry(const uint8_t *p, const uint8_t *stop)
{
    uint64_t field, index;
    return ffm_numbers(p, stop, &field, &index) != NULL;
}

/* 2: rows of field:index:value; 1: without labels. */
static int ffm_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    mst_sniffed_rows rows;
    (void)file_size;
    if (!mst_sniff_rows(head, n, ffm_no_label, ffm_is_entry, &rows) || !rows.entries)
        return 0;
    return rows.unlabelled ? 1 : 2;
}

const mst_format mst_format_libffm = {
    .kind =
        {
            .name = "libffm",
            .help = "text rows \"label field:index:value ...\", numbered from 0",
            .capabilities = MST_DATA_FORMAT | MST_DATA_PARSED,
            .reads = "fields vocabulary",
            .sniff = ffm_sniff,
            .open = mst_format_open,
        },
    .text = true,
    .fields = true,
    .categories = true,
    .numbered = true,
    .prepare = ffm_prepare,
    .parse = ffm_parse,
};
