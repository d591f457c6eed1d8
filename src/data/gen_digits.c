/* Digit images; contract in gen.h.
 *
 * A digit is a list of strokes, each a run of points in the unit square (y downwards) joined by straight
 * pieces. The points are jittered one by one, then moved by one affine map, and drawn with a round pen: a
 * pixel's ink follows its distance to the nearest piece. Some images get a stray stroke; all get noise. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/gen.h"

#define SIDE       MST_GEN_DIGIT_SIDE
#define PIXELS     MST_GEN_DIGIT_PIXELS
#define CHUNK_ROWS 1024

#define JITTER      0.055 /* of a point, in digit heights */
#define SHIFT       1.75  /* pixels, either way */
#define SLANT       0.32
#define TURN        0.16 /* radians */
#define STRAY_SHARE 0.15
#define MAX_POINTS  16

typedef struct stroke_point {
    float x, y;
} stroke_point;

typedef struct stroke {
    unsigned n;
    float xy[2 * MAX_POINTS]; /* x and y of n points */
} stroke;

/* Two ways to write each digit where people do. */
typedef struct glyph {
    unsigned digit, n_strokes;
    stroke strokes[3];
} glyph;

static const glyph glyphs[] = {
    {0, 1, {{11, {.5f, 0,   .2f, .1f,  .05f, .35f, .05f, .65f, .2f, .9f, .5f,
                  1,   .8f, .9f, .95f, .65f, .95f, .35f, .8f,  .1f, .5f, 0}}}},
    {0,
     1,
     {{9, {.55f, 0, .25f, .2f, .2f, .55f, .3f, .9f, .5f, 1, .7f, .85f, .8f, .5f, .75f, .15f, .55f, 0}}}},
    {1, 1, {{2, {.5f, 0, .5f, 1}}}},
    {1, 2, {{3, {.3f, .2f, .55f, 0, .55f, 1}}, {2, {.3f, 1, .8f, 1}}}},
    {2,
     1,
     {{9, {.1f, .25f, .2f, .06f, .5f, 0, .8f, .08f, .88f, .3f, .7f, .55f, .4f, .78f, .1f, 1, .95f, 1}}}},
    {2, 1, {{12, {.15f, .2f, .35f, .02f, .65f, .02f, .85f, .2f, .8f, .45f, .55f, .7f,
                  .3f,  .9f, .1f,  .95f, .15f, .75f, .35f, .8f, .6f, .95f, .95f, .95f}}}},
    {3, 1, {{11, {.1f,  .1f,  .4f,  0,    .75f, .07f, .85f, .25f, .7f, .43f, .4f,
                  .48f, .75f, .55f, .92f, .75f, .75f, .95f, .4f,  1,   .08f, .88f}}}},
    {3, 1, {{7, {.1f, 0, .85f, 0, .45f, .4f, .8f, .5f, .9f, .75f, .6f, 1, .1f, .92f}}}},
    {4, 2, {{3, {.6f, 0, .05f, .65f, .95f, .65f}}, {2, {.7f, .3f, .68f, 1}}}},
    {4, 2, {{4, {.15f, 0, .12f, .35f, .3f, .5f, .85f, .45f}}, {2, {.85f, 0, .75f, 1}}}},
    {5,
     2,
     {{9, {.25f, 0, .2f, .42f, .5f, .36f, .8f, .45f, .92f, .68f, .8f, .92f, .5f, 1, .25f, .97f, .08f, .86f}},
      {2, {.25f, 0, .88f, .02f}}}},
    {6, 1, {{12, {.78f, .02f, .45f, .12f, .2f,  .38f, .1f, .68f, .2f,  .92f, .5f,  1,
                  .8f,  .92f, .9f,  .72f, .78f, .53f, .5f, .47f, .25f, .57f, .12f, .72f}}}},
    {6,
     1,
     {{9, {.4f, 0, .2f, .3f, .12f, .7f, .3f, .97f, .6f, .98f, .75f, .8f, .65f, .6f, .4f, .58f, .18f, .75f}}}},
    {7, 1, {{3, {.08f, 0, .92f, 0, .4f, 1}}}},
    {7, 2, {{5, {.1f, .1f, .12f, 0, .9f, .02f, .6f, .5f, .45f, 1}}, {2, {.3f, .52f, .8f, .5f}}}},
    {8, 1, {{15, {.5f,  .47f, .2f,  .35f, .15f, .15f, .5f, 0,   .85f, .15f, .8f,  .35f, .5f,  .47f, .18f,
                  .62f, .1f,  .82f, .3f,  .98f, .5f,  1,   .7f, .98f, .9f,  .82f, .82f, .62f, .5f,  .47f}}}},
    {9, 1, {{11, {.85f, .3f, .7f,  .48f, .4f,  .52f, .15f, .38f, .15f, .15f, .4f,
                  0,    .7f, .05f, .87f, .25f, .85f, .55f, .7f,  .85f, .4f,  1}}}},
    {9, 1, {{8, {.8f, .15f, .5f, 0, .2f, .12f, .18f, .35f, .45f, .48f, .78f, .3f, .8f, .15f, .75f, 1}}}},
};
#define N_GLYPHS (sizeof glyphs / sizeof *glyphs)

typedef struct affine {
    double xx, xy, yx, yy, x0, y0;
} affine;

static double digits_between(mst_rng *rng, double low, double high)
{
    return low + (high - low) * (mst_rng_u32(rng) * 0x1p-32);
}

static stroke_point digits_move(const affine *m, double x, double y)
{
    return (stroke_point){(float)(m->xx * x + m->xy * y + m->x0), (float)(m->yx * x + m->yy * y + m->y0)};
}

/* Lowers distance[] to the squared distance from the piece a-b, for pixels within `reach` of it. */
static void draw_piece(float *distance, stroke_point a, stroke_point b, float reach)
{
    int x0 = (int)floorf(fminf(a.x, b.x) - reach), x1 = (int)ceilf(fmaxf(a.x, b.x) + reach);
    int y0 = (int)floorf(fminf(a.y, b.y) - reach), y1 = (int)ceilf(fmaxf(a.y, b.y) + reach);
    x0 = x0 < 0 ? 0 : x0;
    y0 = y0 < 0 ? 0 : y0;
    x1 = x1 > SIDE - 1 ? SIDE - 1 : x1;
    y1 = y1 > SIDE - 1 ? SIDE - 1 : y1;
    float dx = b.x - a.x, dy = b.y - a.y, inverse = 1.0f / (dx * dx + dy * dy + 1e-9f);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            float px = (float)x - a.x, py = (float)y - a.y;
            float t = (px * dx + py * dy) * inverse;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            float ex = px - t * dx, ey = py - t * dy, d = ex * ex + ey * ey;
            float *slot = &distance[y * SIDE + x];
            *slot = d < *slot ? d : *slot;
        }
}

static const glyph *choose_glyph(mst_rng *rng, unsigned digit)
{
    unsigned first = 0, n = 0;
    while (glyphs[first].digit != digit)
        first++;
    while (first + n < N_GLYPHS && glyphs[first + n].digit == digit)
        n++;
    return &glyphs[first + mst_rng_below(rng, n)];
}

/* Height, width, slant, turn and place of one image; the digit's centre is (0.5, 0.5). */
static affine choose_affine(mst_rng *rng)
{
    double height = digits_between(rng, 15, 20), width = height * digits_between(rng, 0.55, 0.9);
    double slant = digits_between(rng, -SLANT / 3, SLANT), turn = digits_between(rng, -TURN, TURN);
    double c = cos(turn), s = sin(turn);
    affine m = {
        .xx = c * width,
        .xy = -slant * height * c - s * height,
        .yx = s * width,
        .yy = -slant * height * s + c * height,
    };
    m.x0 = (SIDE - 1) / 2.0 + digits_between(rng, -SHIFT, SHIFT) - 0.5 * (m.xx + m.xy);
    m.y0 = (SIDE - 1) / 2.0 + digits_between(rng, -SHIFT, SHIFT) - 0.5 * (m.yx + m.yy);
    return m;
}

unsigned mst_gen_digit(uint64_t seed, uint64_t index, uint8_t pixels[MST_GEN_DIGIT_PIXELS])
{
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_GENERATE, index);
    unsigned digit = mst_rng_below(&rng, 10);
    const glyph *g = choose_glyph(&rng, digit);
    affine m = choose_affine(&rng);
    float pen = (float)digits_between(&rng, 0.7, 1.9), ink = (float)digits_between(&rng, 170, 255),
          noise = (float)digits_between(&rng, 0, 24);
    float reach = pen + 1.0f, distance[PIXELS];
    for (size_t i = 0; i < PIXELS; i++)
        distance[i] = 1e9f;
    for (unsigned k = 0; k < g->n_strokes; k++) {
        const stroke *s = &g->strokes[k];
        stroke_point last = {0, 0};
        for (unsigned i = 0; i < s->n; i++) {
            double x = s->xy[2 * i] + digits_between(&rng, -JITTER, JITTER) * 1.7;
            double y = s->xy[2 * i + 1] + digits_between(&rng, -JITTER, JITTER) * 1.7;
            stroke_point p = digits_move(&m, x, y);
            if (i > 0)
                draw_piece(distance, last, p, reach);
            last = p;
        }
    }
    if (digits_between(&rng, 0, 1) < STRAY_SHARE) {
        stroke_point a = {(float)digits_between(&rng, 2, SIDE - 2), (float)digits_between(&rng, 2, SIDE - 2)};
        stroke_point b = {a.x + (float)digits_between(&rng, -7, 7), a.y + (float)digits_between(&rng, -7, 7)};
        draw_piece(distance, a, b, reach);
    }
    uint32_t random = 0;
    for (size_t i = 0; i < PIXELS; i++) {
        float cover =
            distance[i] < reach * reach ? reach - sqrtf(distance[i]) : 0; /* at least 1 within the pen */
        random = i % 4 == 0 ? mst_rng_u32(&rng) : random >> 8;
        float v = (cover > 1 ? 1 : cover) * ink + ((float)(random & 255) / 255.0f - 0.5f) * noise;
        pixels[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
    return digit;
}

/* ---- rows ---- */

static mst_status digits_make(const void *self, uint64_t first_row, uint32_t n, mst_chunk_builder *builder,
                              mst_chunk **out)
{
    const mst_gen_digits_options *o = self;
    (void)builder; /* a builder holds floats, images stay bytes */
    TRY(mst_chunk_images_new(n, PIXELS, false, out));
    for (uint32_t i = 0; i < n; i++)
        mst_chunk_image_label(*out, i,
                              (float)mst_gen_digit(o->seed, first_row + i, mst_chunk_image(*out, i)));
    return MST_OK;
}

mst_status mst_gen_digits_rows(const mst_gen_digits_options *o, mst_chunk_fn *fn, void *arg)
{
    return mst_gen_run(o->first_row, o->rows, CHUNK_ROWS, o->n_threads, digits_make, o, fn, arg);
}

/* ---- IDX files ---- */

typedef struct idx_pair {
    mst_out *images, *labels;
    mst_chunk_fn *observe; /* NULL: none */
    void *arg;
} idx_pair;

static mst_status write_u32(mst_out *out, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                        (uint8_t)value};
    return mst_out_write(out, bytes, sizeof bytes);
}

static mst_status write_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    idx_pair *files = arg;
    if (files->observe != NULL)
        TRY(files->observe(files->arg, first_row, chunk));
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        TRY(mst_out_write(files->images, row.bytes, PIXELS));
        TRY(mst_out_write(files->labels, &(uint8_t){(uint8_t)row.label}, 1));
    }
    return MST_OK;
}

static mst_status open_in(const char *folder, const char *part, const char *kind, mst_out **out)
{
    char *path = mst_sprintf("%s/%s-%s-ubyte", folder, part, kind);
    if (path == NULL)
        return mst_fail_memory();
    mst_status st = mst_out_open(path, out);
    mst_free(path);
    return st;
}

/* Opens both files and writes them; the caller commits and closes. */
static mst_status write_pair(const char *folder, const char *part, const mst_gen_digits_options *o,
                             idx_pair *files)
{
    TRY(open_in(folder, part, "images-idx3", &files->images));
    TRY(open_in(folder, part, "labels-idx1", &files->labels));
    TRY(write_u32(files->images, 0x00000803)); /* unsigned bytes, three dimensions */
    TRY(write_u32(files->images, (uint32_t)o->rows));
    TRY(write_u32(files->images, SIDE));
    TRY(write_u32(files->images, SIDE));
    TRY(write_u32(files->labels, 0x00000801));
    TRY(write_u32(files->labels, (uint32_t)o->rows));
    return mst_gen_digits_rows(o, write_chunk, files);
}

mst_status mst_gen_digits(const char *folder, uint32_t n_train, uint32_t n_test, uint64_t seed,
                          mst_chunk_fn *observe, void *arg)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n_threads = cores < 1 ? 1 : cores > 16 ? 16 : (unsigned)cores;
    mst_gen_digits_options train = {.rows = n_train, .seed = seed, .n_threads = n_threads};
    mst_gen_digits_options test = {
        .rows = n_test, .first_row = n_train, .seed = seed, .n_threads = n_threads};
    idx_pair files[2] = {{.observe = observe, .arg = arg}, {.observe = observe, .arg = arg}};
    mst_status st;
    TRY_OUT(st, mst_make_folders(folder));
    TRY_OUT(st, write_pair(folder, "train", &train, &files[0]));
    TRY_OUT(st, write_pair(folder, "t10k", &test, &files[1]));
    for (int i = 0; i < 2; i++) {
        TRY_OUT(st, mst_out_commit(files[i].labels));
        TRY_OUT(st, mst_out_commit(files[i].images));
    }
out:
    for (int i = 0; i < 2; i++) {
        mst_out_close(files[i].images);
        mst_out_close(files[i].labels);
    }
    return st;
}
