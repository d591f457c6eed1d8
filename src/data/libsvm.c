/* libsvm text: "label index:value index:value ... # comment", one row a line. To predict, the label may be
 * "?" or be left out; a blank line is never a row: a row without features is "?".
 *
 * Parsing number after number is bound by latency: where one starts is known only when the one before has
 * been read. So the fast path works in two steps. The first lists the positions of all characters that are
 * not digits, some kilobytes ahead (the "marks"); the second takes features by their marks: digits ':' digits
 * ['.' digits] blank. Index of up to 8 digits, value of up to 7 digits and 8 more after the point. Everything
 * else, errors included, is decided by the careful path, character by character, as is the last hundred bytes
 * of a block. Where the processor has the instructions, whole rows of the most common form are parsed by
 * libsvm_vector.c first.
 *
 * Invariants
 * 1. Keys are stored from 0: key = index - index_base, and every key is below mst_key_limit. The subtraction
 * wraps for an index 0 in a 1-based file, so one comparison finds both faults.
 * 2. Entries never exceed a quarter of the bytes left plus one: "1:1" and a blank. Room is made by that
 * bound.
 * 3. Labels and values are finite as floats.
 * 4. Marks are listed only for bytes with at least 8 more behind them in the block, so that 8-byte loads stay
 * inside. */
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "data/format.h"
#include "data/libsvm_vector.h"
#include "data/numbers.h"
#include "data/text.h"

#define MARKED_BYTES  4096
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* With a mantissa below 2^24 and up to 7 decimals, the product with one of these rounds to the same float as
 * the quotient: no such number lies halfway between two floats, or closer than 2^-49 of itself to that. */
static const double inverses[8] = {1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7};
static const uint32_t powers[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* ":1 " as the first three bytes of a word. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ONE_MASK 0x00ffffffu
#define ONE_TEXT (':' | '1' << 8 | ' ' << 16)
#else
#define ONE_MASK 0xffffff00u
#define ONE_TEXT ((uint32_t)':' << 24 | '1' << 16 | ' ' << 8)
#endif

typedef struct marks {
    const uint8_t *from; /* positions count from here */
    uint32_t n, next;
    uint32_t at[MARKED_BYTES + 64]; /* the list is written 16 or more at a time */
} marks;

extern const mst_format mst_format_libsvm;

static mst_status fail_number(const mst_block *block, const uint8_t *p, const uint8_t *end, const char *what)
{
    return mst_block_fail(&mst_format_libsvm, block, p, "%s \"%s\" is not a finite number", what,
                          mst_token_show(p, mst_token_end(p, end)).text);
}

static mst_status fail_index(const mst_parse_context *context, const mst_block *block, const uint8_t *at,
                             uint64_t index)
{
    if (index == 0 && context->index_base == 1)
        return mst_block_fail(
            &mst_format_libsvm, block, at, "%s",
            context->options->set == MST_SET_TEST
                ? "index 0, but the training data count from 1: train with --index-base 0, or, if only this "
                  "file counts from 0, apply the model with --index-base 0 --force"
                : "index 0 in a file whose first index was taken to be 1; pass --index-base 0");
    if (mst_key_limit(context) == UINT32_MAX)
        return mst_block_fail(&mst_format_libsvm, block, at, "index %llu does not fit 32 bits",
                              (unsigned long long)index);
    if (context->names != NULL)
        return mst_block_fail(
            &mst_format_libsvm, block, at, "index %llu has no name: --feature-names %s has %llu names",
            (unsigned long long)index, context->names, (unsigned long long)context->features);
    return mst_block_fail(
        &mst_format_libsvm, block, at,
        "index %llu is beyond --features %llu; a run keeps the number that it was started with, so start "
        "it with a larger one",
        (unsigned long long)index, (unsigned long long)context->features);
}

/* One feature, or a qid, at *p, by the careful path; steps *p to the token's end. */
static mst_status libsvm_careful(const mst_parse_context *context, const mst_block *block, const uint8_t **p,
                                 const uint8_t *end, uint64_t limit, mst_chunk_builder *out)
{
    const uint8_t *at = *p;
    uint64_t index;
    if (end - at > 4 && memcmp(at, "qid:", 4) == 0) {
        *p = mst_token_end(at, end);
        return MST_OK;
    }
    const uint8_t *q = mst_number_unsigned(at, end, &index);
    if (q == NULL || q == end || *q != ':') {
        const uint8_t *stop = mst_token_end(at, end);
        if (q == stop)
            return mst_block_fail(&mst_format_libsvm, block, at,
                                  "index %s has no value; write it as index:value",
                                  mst_token_show(at, stop).text);
        return mst_block_fail(&mst_format_libsvm, block, at, "\"%s\" is not index:value",
                              mst_token_show(at, stop).text);
    }
    if (index - context->index_base >= limit)
        return fail_index(context, block, at, index);
    float value;
    q++;
    if (!mst_token_float(&q, end, &value))
        return fail_number(block, q, end, "value");
    mst_chunk_builder_add(out, (uint32_t)(index - context->index_base), value);
    *p = q;
    return MST_OK;
}

/* Bit j: p[j] is not a digit, for 64 bytes. */
ALWAYS_INLINE uint64_t others64(const uint8_t *p)
{
    uint64_t bits = 0;
#if defined(__SSE2__)
    for (int i = 0; i < 4; i++) {
        __m128i t = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), _mm_set1_epi8('0'));
        __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(t, _mm_set1_epi8(9)), t);
        bits |= (uint64_t)(uint16_t)~_mm_movemask_epi8(digit) << (16 * i);
    }
#else
    for (int i = 0; i < 8; i++) {
        uint64_t t = mst_load8(p + 8 * i) ^ 0x3030303030303030u;
        uint64_t other = (((t & 0x7f7f7f7f7f7f7f7fu) + 0x7676767676767676u) | t) & 0x8080808080808080u;
        bits |= ((other >> 7) * 0x0102040810204080u >> 56) << (8 * i);
    }
#endif
    return bits;
}

ALWAYS_INLINE void marks_fill(marks *m, const uint8_t *p, const uint8_t *end)
{
    uint32_t *out = m->at;
    m->from = p;
    m->next = 0;
    for (uint32_t base = 0; base < MARKED_BYTES && end - p >= 64 + 8; base += 64, p += 64) {
        uint64_t bits = others64(p);
        unsigned count = (unsigned)__builtin_popcountll(bits);
        for (int j = 0; j < 16; j++, bits &= bits - 1) /* words beyond count are overwritten */
            out[j] = base + (bits ? (uint32_t)__builtin_ctzll(bits) : 64);
        for (unsigned j = 16; j < count; j++, bits &= bits - 1)
            out[j] = base + (uint32_t)__builtin_ctzll(bits);
        out += count;
    }
    m->n = (uint32_t)(out - m->at);
}

typedef void marks_filler(marks *m, const uint8_t *p, const uint8_t *end);

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512vbmi2,popcnt"))) static void marks_fill_avx512(
    marks *m, const uint8_t *p, const uint8_t *end)
{
    const __m512i zero = _mm512_set1_epi8('0'), nine = _mm512_set1_epi8(9);
    uint8_t numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = (uint8_t)i;
    const __m512i places = _mm512_loadu_si512(numbers);
    uint32_t *out = m->at;
    m->from = p;
    m->next = 0;
    for (uint32_t base = 0; base < MARKED_BYTES && end - p >= 64 + 8; base += 64, p += 64) {
        __mmask64 others = _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(_mm512_loadu_si512(p), zero), nine);
        unsigned count = (unsigned)__builtin_popcountll(others);
        __m512i list = _mm512_maskz_compress_epi8(others, places), from = _mm512_set1_epi32((int)base);
        __m512i first = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(list)),
                second = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(list, 1));
        _mm512_storeu_si512(out, _mm512_add_epi32(first, from));
        _mm512_storeu_si512(out + 16, _mm512_add_epi32(second, from));
        if (count > 32) {
            first = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(list, 2));
            second = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(list, 3));
            _mm512_storeu_si512(out + 32, _mm512_add_epi32(first, from));
            _mm512_storeu_si512(out + 48, _mm512_add_epi32(second, from));
        }
        out += count;
    }
    m->n = (uint32_t)(out - m->at);
}
#endif

/* Features from p on, as many of the line as have the common form; returns the end of the last one's blank,
 * or the line's '\n', or the position where the careful path continues. */
ALWAYS_INLINE const uint8_t *fast(marks *m, const uint8_t *p, const uint8_t *end, uint32_t base,
                                  uint64_t limit, mst_chunk_builder *out, marks_filler *fill)
{
    uint32_t *keys = out->keys;
    float *values = out->values;
    size_t n = out->n_entries;
    for (;;) {
        if (m->n - m->next < 4 || p < m->from) {
            if (end - p < 128)
                break;
            fill(m, p, end);
            if (m->n < 4)
                break;
        }
        const uint8_t *from = m->from;
        uint32_t next = m->next, last = m->n - 4, start = (uint32_t)(p - from);
        uint8_t stop = ' ';
        while (next <= last) {
            uint32_t colon = m->at[next], mark = m->at[next + 1], digits = colon - start;
            if (digits - 1 >= 8)
                break;
            uint64_t key = (uint64_t)mst_digits_value8(mst_load8(from + start), digits) - base;
            if (key >= limit)
                break;
            uint32_t text;
            memcpy(&text, from + colon, sizeof text);
            if ((text & ONE_MASK) == ONE_TEXT) {
                values[n] = 1.0f;
                next += 2;
                stop = ' ';
            } else {
                uint32_t whole = colon + 1, used = 2;
                stop = from[mark];
                if (from[colon] != ':')
                    break;
                bool negative = mark == whole;
                if (negative) {
                    if (stop != '-')
                        break;
                    whole++;
                    mark = m->at[next + used++];
                    stop = from[mark];
                }
                digits = mark - whole;
                uint64_t mantissa = (uint64_t)from[whole] - '0';
                if (digits != 1) {
                    if (digits - 1 >= 7)
                        break;
                    mantissa = mst_digits_value8(mst_load8(from + whole), digits);
                }
                double value;
                if (stop == '.') {
                    uint32_t part = mark + 1;
                    mark = m->at[next + used++];
                    stop = from[mark];
                    digits = mark - part;
                    if (digits - 1 >= 8)
                        break;
                    mantissa = mantissa * powers[digits] + mst_digits_value8(mst_load8(from + part), digits);
                    value = mantissa < 1u << 24 && digits < 8
                                ? (double)(int64_t)mantissa * inverses[digits]
                                : (double)(int64_t)mantissa / mst_powers_of_ten[digits];
                } else {
                    value = (double)(int64_t)mantissa;
                }
                if (stop != ' ' && stop != '\n')
                    break;
                values[n] = (float)(negative ? -value : value);
                next += used;
            }
            keys[n++] = (uint32_t)key;
            start = mark + 1;
            if (stop == '\n')
                break;
        }
        m->next = next;
        bool ended = stop == '\n' && start > 0 && from[start - 1] == '\n' && from + start > p;
        bool stuck = next <= last;
        p = from + start;
        if (ended) {
            p--;
            break;
        }
        if (stuck)
            break;
    }
    out->n_entries = n;
    return p;
}

/* Passes over the marks before p. */
ALWAYS_INLINE void marks_skip(marks *m, const uint8_t *p)
{
    while (m->next < m->n && m->from + m->at[m->next] < p)
        m->next++;
}

/* Skips the place of a missing label: "?", or nothing before the features. False when it is something else.
 */
static bool no_label(const uint8_t **p, const uint8_t *end)
{
    const uint8_t *stop = mst_token_end(*p, end), *colon = memchr(*p, ':', (size_t)(stop - *p));
    uint64_t index;
    if (stop - *p == 1 && **p == '?') {
        *p = stop;
        return true;
    }
    return colon != NULL && ((colon - *p == 3 && memcmp(*p, "qid", 3) == 0) ||
                             mst_number_unsigned(*p, colon, &index) == colon);
}

ALWAYS_INLINE mst_status parse_rows(const mst_parse_context *context, const mst_block *block,
                                    mst_chunk_builder *out, marks_filler *fill, mst_libsvm_list *list)
{
    const uint8_t *p = block->data, *end = p + block->size;
    uint64_t limit = mst_key_limit(context);
    marks m;
    m.from = p;
    m.n = m.next = 0;
    while (p < end) {
        p = mst_skip_blanks(p, end);
        if (p < end && *p == '#')
            p = mst_line_end(p, end);
        if (p == end)
            break;
        if (*p == '\n') {
            p++;
            continue;
        }
        TRY(mst_chunk_builder_room(out, (size_t)(end - p) / 4 + 1));
        float label;
        if (end - p > 2 && (*p == '0' || *p == '1') && p[1] == ' ') {
            label = (float)(*p - '0');
            p++;
        } else if (!mst_token_float(&p, end, &label)) {
            const uint8_t *at = p;
            if (!no_label(&p, end))
                return fail_number(block, p, end, "label");
            if (!context->options->unlabelled)
                return mst_block_fail(&mst_format_libsvm, block, at, MST_NO_LABEL);
            label = 0.0f;
        }
        const uint8_t *line_end =
            list != NULL ? mst_libsvm_vector_row(list, p, end, context->index_base, limit, out) : NULL;
        p = line_end != NULL ? line_end : p;
        while (line_end == NULL) {
            if (p < end && *p == ' ')
                p++;
            marks_skip(&m, p);
            p = fast(&m, p, end, context->index_base, limit, out, fill);
            p = mst_skip_blanks(p, end);
            if (p < end && *p == '#')
                p = mst_line_end(p, end);
            if (p == end || *p == '\n')
                break;
            TRY(libsvm_careful(context, block, &p, end, limit, out));
        }
        p += p < end;
        TRY(mst_chunk_builder_end_row(out, label, 1.0f));
    }
    return MST_OK;
}

static mst_status parse_portable(const mst_parse_context *context, const mst_block *block,
                                 mst_chunk_builder *out)
{
    return parse_rows(context, block, out, marks_fill, NULL);
}

#if defined(__x86_64__)
/* The same code with instructions for bits that most x86-64 have; the rows do not depend on it. */
__attribute__((target("bmi,bmi2,popcnt"))) static mst_status parse_bmi(const mst_parse_context *context,
                                                                       const mst_block *block,
                                                                       mst_chunk_builder *out)
{
    return parse_rows(context, block, out, marks_fill, NULL);
}

__attribute__((target("bmi,bmi2,popcnt"))) static mst_status parse_avx512(const mst_parse_context *context,
                                                                          const mst_block *block,
                                                                          mst_chunk_builder *out)
{
    mst_libsvm_list list;
    mst_libsvm_list_init(&list, block->data);
    return parse_rows(context, block, out, marks_fill_avx512, &list);
}
#endif

static mst_status libsvm_parse(const mst_parse_context *context, const mst_block *block,
                               mst_chunk_builder *out)
{
#if defined(__x86_64__)
    if (mst_libsvm_vector_works())
        return parse_avx512(context, block, out);
    if (__builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
        return parse_bmi(context, block, out);
#endif
    return parse_portable(context, block, out);
}

/* Whether a row of the block has an index 0: a blank, zeros, a colon. */
static bool has_index_zero(const mst_block *block)
{
    const uint8_t *p = block->data, *end = p + block->size;
    while (p < end) {
        const uint8_t *line_end = mst_line_end(p, end);
        for (; p < line_end && *p != '#'; p = mst_token_end(mst_skip_blanks(p, line_end), line_end)) {
            const uint8_t *token = mst_skip_blanks(p, line_end), *q = token;
            while (q < line_end && *q == '0')
                q++;
            if (q > token && q < line_end && *q == ':')
                return true;
            if (token < line_end && *token == '#')
                break;
        }
        p = line_end + (line_end < end);
    }
    return false;
}

static mst_status libsvm_prepare(mst_parse_context *context, const mst_block *first)
{
    int given = context->options->index_base; /* auto, 0, 1 */
    context->index_base = given ? (uint32_t)given - 1 : !has_index_zero(first);
    return MST_OK;
}

static json_t *libsvm_origin(const mst_parse_context *context)
{
    return json_pack("{s:s, s:I}", "keys", "numbers", "index-base", (json_int_t)context->index_base);
}

/* index:value or qid:number. */
static bool libsvm_is_entry(const uint8_t *p, const uint8_t *stop)
{
    const uint8_t *colon = memchr(p, ':', (size_t)(stop - p));
    uint64_t index;
    bool qid = colon != NULL && colon - p == 3 && memcmp(p, "qid", 3) == 0;
    return colon != NULL && (qid || mst_number_unsigned(p, colon, &index) == colon) &&
           memchr(colon + 1, ':', (size_t)(stop - colon - 1)) == NULL;
}

/* 2: rows of index:value; 1: nothing but labels, or rows without them. */
static int libsvm_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    mst_sniffed_rows rows;
    (void)file_size;
    if (!mst_sniff_rows(head, n, no_label, libsvm_is_entry, &rows) || rows.lines == 0)
        return 0;
    return rows.unlabelled ? rows.entries : rows.entries ? 2 : 1;
}

const mst_format mst_format_libsvm = {
    .kind =
        {
            .name = "libsvm",
            .help = "text rows \"label index:value ...\", numbered from 0 or 1",
            .capabilities = MST_DATA_FORMAT | MST_DATA_PARSED | MST_DATA_INDEX_BASE,
            .reads = "index-base",
            .sniff = libsvm_sniff,
            .open = mst_format_open,
        },
    .text = true,
    .numbered = true,
    .prepare = libsvm_prepare,
    .origin = libsvm_origin,
    .parse = libsvm_parse,
};
