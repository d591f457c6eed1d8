/* Augmentation (contract: augment.h). A row is rewritten line by line: a line of the output is a piece of a
 * line of the input, black where it lies outside, reversed when mirrored, and scaled when normalised. */
#include "data/augment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "data/images.h"
#include "data/stream.h"

#define SAMPLE_CHEAP  65536 /* rows looked at for --normalise auto */
#define SAMPLE_COSTLY 512
#define LEAST         1e-6 /* deviation of a channel that does not vary */

#define FIELD(name) offsetof(mst_augment_options, name)

const mst_option mst_augment_option_table[] = {
    {.name = "crop",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(crop),
     .metavar = "HxW",
     .help = "Train on crops of this size at random positions; evaluate on the centre crop."},
    {.name = "crop-pad",
     .type = MST_OPTION_INT,
     .offset = FIELD(crop_pad),
     .fallback = "0",
     .min = 0,
     .max = 4096,
     .metavar = "N",
     .help = "Take crops from the image with N black pixels added on every side. Without --crop, crops have "
             "the size of the image."},
    {.name = "mirror",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(mirror),
     .help = "Mirror half of the training rows left to right, at random."},
    {.name = "normalise",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(normalise),
     .fallback = "none",
     .metavar = "HOW",
     .help = "Normalise each channel to (x - mean) / deviation, where x is byte/255: none, auto (from a "
             "sample of the training data), or numbers such as 0.49,0.48,0.45/0.25,0.24,0.26."},
    {.name = NULL},
};

/* ---- normalising ---- */

static mst_status bad_numbers(const char *text, uint32_t channels)
{
    const char *s = channels > 1 ? "s" : "", *example = channels > 1 ? "" : ", as in 0.13/0.31";
    return mst_fail(MST_EUSAGE,
                    "--normalise %s: give none, auto, or %u mean%s%s, a slash and %u deviation%s above 0%s",
                    text, channels, s, channels > 1 ? " separated by commas" : "", channels, s, example);
}

/* Parses n numbers separated by commas; returns the text after them, NULL when there are fewer. */
static const char *parse_numbers(const char *text, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        char *end;
        out[i] = strtof(text, &end);
        if (end == text || !isfinite(out[i]) || (i + 1 < n && *end != ','))
            return NULL;
        text = i + 1 < n ? end + 1 : end;
    }
    return text;
}

static mst_status parse_normalise(mst_augment *a, const char *text)
{
    const char *at = parse_numbers(text, a->channels, a->mean);
    if (at == NULL || *at != '/' || (at = parse_numbers(at + 1, a->channels, a->deviation)) == NULL ||
        *at != '\0')
        return bad_numbers(text, a->channels);
    for (uint32_t c = 0; c < a->channels; c++)
        if (!(a->deviation[c] > 0.0f))
            return bad_numbers(text, a->channels);
    return MST_OK;
}

typedef struct sums {
    double sum[MST_AUGMENT_CHANNELS], squares[MST_AUGMENT_CHANNELS];
    double n; /* numbers per channel */
} sums;

static mst_status augment_add_row(const mst_augment *a, const mst_dataset *d, const mst_row *row, sums *s)
{
    size_t plane = (size_t)a->in_height * a->in_width;
    if (row->n_dense != mst_augment_in(a) || (row->bytes == NULL && row->dense == NULL))
        return mst_fail(MST_EINPUT, "%s: a row of %u numbers among images of %llu", d->name, row->n_dense,
                        (unsigned long long)mst_augment_in(a));
    for (uint32_t c = 0; c < a->channels; c++) {
        if (row->bytes != NULL) {
            const uint8_t *p = row->bytes + c * plane;
            uint64_t sum = 0, squares = 0;
            for (size_t i = 0; i < plane; i++) {
                sum += p[i];
                squares += (uint32_t)p[i] * p[i];
            }
            s->sum[c] += (double)sum / 255.0;
            s->squares[c] += (double)squares / (255.0 * 255.0);
        } else {
            const float *p = row->dense + c * plane;
            for (size_t i = 0; i < plane; i++) {
                s->sum[c] += (double)p[i];
                s->squares[c] += (double)p[i] * (double)p[i];
            }
        }
    }
    s->n += (double)plane;
    return MST_OK;
}

static mst_status add_chunk_rows(const mst_augment *a, const mst_dataset *d, const mst_chunk *chunk, sums *s)
{
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        TRY(augment_add_row(a, d, &row, s));
    }
    return MST_OK;
}

/* A stream is read from its start until there are rows enough. */
static mst_status measure_stream(const mst_augment *a, mst_dataset *d, sums *s)
{
    const char *once = mst_stream_reads_once(d);
    if (once != NULL)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, and --normalise auto reads its images first: give the "
                        "means and deviations, or a file",
                        once);
    double wanted = (double)SAMPLE_COSTLY * a->in_height * a->in_width;
    mst_status st = MST_OK;
    mst_chunk_builder builder;
    mst_chunk_builder_init(&builder);
    while (st == MST_OK && s->n < wanted) {
        mst_raw_block *block;
        mst_chunk *chunk;
        TRY_OUT(st, d->ops->read(d, &block));
        if (block == NULL)
            break;
        TRY_OUT(st, d->ops->parse(d, block, &builder, &chunk));
        st = add_chunk_rows(a, d, chunk, s);
        mst_chunk_release(chunk);
    }
    if (st == MST_OK)
        st = d->ops->rewind(d);
out:
    mst_chunk_builder_fini(&builder);
    return st;
}

/* Rows of chunks at even distances over the dataset. */
static mst_status measure_chunks(const mst_augment *a, mst_dataset *d, sums *s)
{
    uint64_t wanted = d->load_is_cheap ? SAMPLE_CHEAP : SAMPLE_COSTLY;
    uint64_t n = (wanted + d->chunk_rows - 1) / d->chunk_rows;
    n = n < d->n_chunks ? n : d->n_chunks;
    for (uint64_t k = 0; k < n; k++) {
        mst_chunk *chunk;
        TRY(d->ops->load(d, (uint32_t)(k * d->n_chunks / n), &chunk));
        mst_status st = add_chunk_rows(a, d, chunk, s);
        mst_chunk_release(chunk);
        TRY(st);
    }
    return MST_OK;
}

/* Means and deviations of a sample of the rows. */
static mst_status augment_measure(mst_augment *a, mst_dataset *d)
{
    sums s = {0};
    TRY(d->random ? measure_chunks(a, d, &s) : measure_stream(a, d, &s));
    for (uint32_t c = 0; c < a->channels; c++) {
        double mean = s.n > 0 ? s.sum[c] / s.n : 0.0;
        double variance = s.n > 0 ? s.squares[c] / s.n - mean * mean : 1.0;
        a->mean[c] = (float)mean;
        a->deviation[c] = variance > LEAST * LEAST ? (float)sqrt(variance) : 1.0f;
    }
    return MST_OK;
}

char *mst_augment_normalise_text(const mst_augment *a)
{
    char text[2 * MST_AUGMENT_CHANNELS * 20];
    size_t n = 0;
    if (!a->any || !a->normalise)
        return mst_strdup("none");
    for (uint32_t i = 0; i < 2 * a->channels; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.9g",
                              i == 0             ? ""
                              : i == a->channels ? "/"
                                                 : ",",
                              (double)(i < a->channels ? a->mean[i] : a->deviation[i - a->channels]));
    return mst_strdup(text);
}

/* ---- set-up ---- */

/* Everything but "auto", which is the caller's; *measures then. */
static mst_status augment_set_up(mst_augment *a, const mst_augment_options *o, const char *name,
                                 uint32_t channels, uint32_t height, uint32_t width, bool *measures)
{
    const char *how = o->normalise != NULL ? o->normalise : "none";
    bool normalise = strcmp(how, "none") != 0, crop = o->crop != NULL && *o->crop != '\0';
    *a = (mst_augment){0};
    *measures = false;
    if (!normalise && !crop && o->crop_pad == 0 && !o->mirror)
        return MST_OK;
    const char *option = normalise ? "normalise" : crop ? "crop" : o->mirror ? "mirror" : "crop-pad";
    if (channels == 0)
        return mst_fail(MST_EUSAGE, "--%s is for images, but the sides of those in %s are not known", option,
                        name);
    if (channels > MST_AUGMENT_CHANNELS)
        return mst_fail(MST_EUSAGE, "--%s is for images of up to %d channels, but those in %s have %u",
                        option, MST_AUGMENT_CHANNELS, name, channels);
    a->channels = channels;
    a->in_height = a->height = height;
    a->in_width = a->width = width;
    a->pad = (uint32_t)o->crop_pad;
    a->mirror = o->mirror;
    a->normalise = normalise;
    if (crop)
        TRY(mst_parse_sides("crop", o->crop, NULL, &a->height, &a->width));
    if (a->height > a->in_height + 2 * a->pad || a->width > a->in_width + 2 * a->pad)
        return mst_fail(MST_EUSAGE, "--crop %s: the images of %s have %u x %u pixels%s", o->crop, name,
                        a->in_height + 2 * a->pad, a->in_width + 2 * a->pad,
                        a->pad > 0 ? " with --crop-pad" : "");
    *measures = normalise && strcmp(how, "auto") == 0;
    if (normalise && !*measures)
        TRY(parse_normalise(a, how));
    a->any = true;
    return MST_OK;
}

mst_status mst_augment_init(mst_augment *a, const mst_augment_options *o, mst_dataset *d, uint64_t seed)
{
    const mst_data_info *info = &d->info;
    bool measures;
    TRY(augment_set_up(a, o, d->name, info->channels, info->height, info->width, &measures));
    a->seed = seed;
    return measures ? augment_measure(a, d) : MST_OK;
}

mst_status mst_augment_init_for(mst_augment *a, const mst_augment_options *o, const char *name,
                                uint32_t channels, uint32_t height, uint32_t width)
{
    bool measures;
    TRY(augment_set_up(a, o, name, channels, height, width, &measures));
    return measures ? bad_numbers(o->normalise, channels) : MST_OK;
}

/* ---- rows ---- */

mst_crop mst_augment_choose(const mst_augment *a, bool training, uint64_t epoch, uint64_t number)
{
    uint32_t room_y = a->in_height + 2 * a->pad - a->height, room_x = a->in_width + 2 * a->pad - a->width;
    mst_crop k = {.y = room_y / 2, .x = room_x / 2};
    if (training && (room_y > 0 || room_x > 0 || a->mirror)) {
        mst_rng rng;
        mst_rng_init(&rng, a->seed ^ epoch * 0x9E3779B97F4A7C15ull, MST_RNG_AUGMENT, number);
        k.y = mst_rng_below(&rng, room_y + 1);
        k.x = mst_rng_below(&rng, room_x + 1);
        k.mirror = a->mirror && (mst_rng_u32(&rng) & 1) != 0;
    }
    k.y -= a->pad;
    k.x -= a->pad;
    return k;
}

/* One line: out[x] or, mirrored, out[width - 1 - x] = value of in[from + x], `black` outside [0, n). */
#define DEFINE_LINE(name, in_type, out_type, value)                                                          \
    static void name(const in_type *in, uint32_t n, int64_t from, uint32_t width, bool mirror, float scale,  \
                     float shift, out_type black, out_type *out)                                             \
    {                                                                                                        \
        uint32_t begin = from < 0 ? (uint32_t)(-from < width ? -from : width) : 0;                           \
        uint32_t end = from + width > n ? (from < n ? (uint32_t)(n - from) : 0) : width;                     \
        end = end > begin ? end : begin;                                                                     \
        (void)scale, (void)shift;                                                                            \
        for (uint32_t x = 0; x < begin; x++)                                                                 \
            out[mirror ? width - 1 - x : x] = black;                                                         \
        for (uint32_t x = end; x < width; x++)                                                               \
            out[mirror ? width - 1 - x : x] = black;                                                         \
        const in_type *at = in + from;                                                                       \
        if (mirror) {                                                                                        \
            for (uint32_t x = begin; x < end; x++)                                                           \
                out[width - 1 - x] = (value);                                                                \
        } else {                                                                                             \
            for (uint32_t x = begin; x < end; x++)                                                           \
                out[x] = (value);                                                                            \
        }                                                                                                    \
    }

DEFINE_LINE(line_bytes, uint8_t, uint8_t, at[x])
DEFINE_LINE(line_scaled_bytes, uint8_t, float, (float)at[x] * scale + shift)
DEFINE_LINE(line_floats, float, float, at[x] * scale + shift)

/* Every line of every plane. A line outside the image is read as one of no pixels. */
#define DEFINE_PLANES(name, line, in_type, out_type)                                                         \
    static void name(const mst_augment *a, const mst_crop *k, float unit, const in_type *in, out_type *out)  \
    {                                                                                                        \
        for (uint32_t c = 0; c < a->channels; c++) {                                                         \
            float scale = mst_augment_scale(a, c, unit), shift = mst_augment_shift(a, c);                    \
            for (uint32_t y = 0; y < a->height; y++, out += a->width) {                                      \
                int64_t from = k->y + y;                                                                     \
                bool inside = from >= 0 && from < a->in_height;                                              \
                const in_type *at =                                                                          \
                    in + ((size_t)c * a->in_height + (size_t)(inside ? from : 0)) * a->in_width;             \
                line(at, inside ? a->in_width : 0, inside ? k->x : 0, a->width, k->mirror, scale, shift,     \
                     (out_type)shift, out);                                                                  \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_PLANES(planes_bytes, line_bytes, uint8_t, uint8_t)
DEFINE_PLANES(planes_scaled_bytes, line_scaled_bytes, uint8_t, float)
DEFINE_PLANES(planes_floats, line_floats, float, float)

void mst_augment_row(const mst_augment *a, bool training, uint64_t epoch, uint64_t number, void *memory,
                     mst_row *row)
{
    mst_crop k = mst_augment_choose(a, training, epoch, number);
    if (!a->normalise && !k.mirror && k.y == 0 && k.x == 0 && a->height == a->in_height &&
        a->width == a->in_width)
        return;
    row->n_dense = (uint32_t)mst_augment_out(a);
    if (row->bytes == NULL) {
        planes_floats(a, &k, 1.0f, row->dense, memory);
        row->dense = memory;
    } else if (a->normalise) {
        planes_scaled_bytes(a, &k, MST_AUGMENT_BYTE, row->bytes, memory);
        row->bytes = NULL;
        row->dense = memory;
    } else {
        planes_bytes(a, &k, 1.0f, row->bytes, memory);
        row->bytes = memory;
    }
}
