/* Fake photographs in classes (contract: gen.h), generated as rows to write, or while loading a file that
 * holds only the options.
 *
 * A pattern is a grid of GRID x GRID numbers per channel, drawn from the class alone. A row's grid is its
 * class's times a contrast, plus coarse noise; it is interpolated linearly, along y into a line of GRID + 1
 * numbers and along x into pixels, and fine noise from a table is added. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/gen.h"
#include "data/images.h"
#include "data/stream.h"

enum { GRID = 7, CELLS = GRID * GRID, CHANNELS_MAX = 16, CLASSES_MAX = 10000, SIDE_MAX = 8192 };
#define NUMBERS_MAX  ((uint64_t)1 << 26) /* of an image */
#define NOISE        8192                /* numbers of the table of fine noise, a line's length left out */
#define CHUNK_BYTES  (1u << 20)
#define WINDOW_BYTES (16u << 20)
#define FILE_MAX     4096
#define MAGIC        "muster generated images 1\n"

/* Row numbers, blocks of rows and class numbers name streams of one purpose. */
#define CLASS_FIRST (1ull << 63)
#define BLOCK_FIRST (1ull << 62)

typedef struct image_maker {
    mst_gen_images_options o;
    float *patterns; /* (classes, channels, GRID, GRID), each in [-1, 1] */
    int8_t *noise;   /* NOISE + width */
} image_maker;

static mst_status gen_check_options(const mst_gen_images_options *o)
{
    uint64_t numbers = (uint64_t)o->channels * o->height * o->width;
    if (o->classes < 2 || o->classes > CLASSES_MAX || o->channels < 1 || o->channels > CHANNELS_MAX ||
        o->height < 1 || o->height > SIDE_MAX || o->width < 1 || o->width > SIDE_MAX || numbers > NUMBERS_MAX)
        return mst_fail(MST_EUSAGE,
                        "gen images needs 2 to %d classes, 1 to %d channels and sides of 1 to %d with 2^26 "
                        "numbers at most, not %u, %u and %u x %u",
                        CLASSES_MAX, CHANNELS_MAX, SIDE_MAX, o->classes, o->channels, o->height, o->width);
    return MST_OK;
}

static void maker_fini(image_maker *m)
{
    mst_free(m->patterns);
    mst_free(m->noise);
}

static mst_status maker_init(image_maker *m, const mst_gen_images_options *o)
{
    mst_rng rng;
    *m = (image_maker){.o = *o};
    TRY(gen_check_options(o));
    size_t per_class = (size_t)o->channels * CELLS, n_noise = NOISE + o->width;
    m->patterns = mst_calloc(o->classes * per_class, sizeof *m->patterns);
    m->noise = mst_alloc(n_noise);
    if (m->patterns == NULL || m->noise == NULL) {
        maker_fini(m);
        return mst_fail_memory();
    }
    for (uint32_t c = 0; c < o->classes; c++) {
        mst_rng_init(&rng, o->seed, MST_RNG_GENERATE, CLASS_FIRST + c);
        for (size_t i = 0; i < per_class; i++)
            m->patterns[c * per_class + i] = (float)(2.0 * mst_rng_uniform(&rng) - 1.0);
    }
    mst_rng_init(&rng, o->seed, MST_RNG_GENERATE, CLASS_FIRST - 1);
    for (size_t i = 0; i < n_noise; i++) /* the sum of two dice, from -16 to 16 */
        m->noise[i] = (int8_t)((int)mst_rng_below(&rng, 17) + (int)mst_rng_below(&rng, 17) - 16);
    return MST_OK;
}

static uint32_t label_of(const mst_gen_images_options *o, uint64_t row)
{
    uint64_t turn = mst_rng_at(o->seed, MST_RNG_GENERATE, BLOCK_FIRST + row / o->classes) % o->classes;
    return (uint32_t)((row % o->classes + turn) % o->classes);
}

/* Pixel i, with `step` cells to a pixel, moved by `by` cells: the cell below it and the part above that. */
static inline void gen_locate(uint32_t i, float step, float by, uint32_t *cell, float *part)
{
    float at = ((float)i + 0.5f) * step + by;
    at = at < 0.0f ? 0.0f : at > GRID - 1 ? GRID - 1 : at;
    *cell = at >= GRID - 1 ? GRID - 2 : (uint32_t)at;
    *part = at - (float)*cell;
}

static void draw_plane(const image_maker *m, const float *grid, float by_y, float by_x, mst_rng *rng,
                       uint8_t *out)
{
    const mst_gen_images_options *o = &m->o;
    float step_y = (GRID - 1) / (float)o->height, step_x = (GRID - 1) / (float)o->width;
    for (uint32_t y = 0; y < o->height; y++) {
        float line[GRID], part;
        uint32_t cell;
        gen_locate(y, step_y, by_y, &cell, &part);
        for (uint32_t i = 0; i < GRID; i++)
            line[i] = grid[cell * GRID + i] * (1.0f - part) + grid[(cell + 1) * GRID + i] * part;
        const int8_t *noise = m->noise + mst_rng_below(rng, NOISE);
        for (uint32_t x = 0; x < o->width; x++) {
            gen_locate(x, step_x, by_x, &cell, &part);
            float v = line[cell] + (line[cell + 1] - line[cell]) * part + (float)noise[x];
            out[(size_t)y * o->width + x] = (uint8_t)(v < 0.0f ? 0.0f : v > 255.0f ? 255.0f : v);
        }
    }
}

/* Draws image number `row`; returns its class. */
static uint32_t gen_draw(const image_maker *m, uint64_t row, uint8_t *planes)
{
    const mst_gen_images_options *o = &m->o;
    uint32_t label = label_of(o, row);
    mst_rng rng;
    mst_rng_init(&rng, o->seed, MST_RNG_GENERATE, row);
    float contrast = 100.0f * (float)(0.7 + 0.4 * mst_rng_uniform(&rng));
    float brightness = 128.0f + 30.0f * (float)(mst_rng_uniform(&rng) - 0.5);
    float by_y = 0.4f * (float)(mst_rng_uniform(&rng) - 0.5),
          by_x = 0.4f * (float)(mst_rng_uniform(&rng) - 0.5);
    const float *pattern = m->patterns + (size_t)label * o->channels * CELLS;
    for (uint32_t c = 0; c < o->channels; c++) {
        float grid[CELLS];
        for (uint32_t i = 0; i < CELLS; i++)
            grid[i] =
                brightness + contrast * pattern[c * CELLS + i] + 30.0f * (float)(mst_rng_uniform(&rng) - 0.5);
        draw_plane(m, grid, by_y, by_x, &rng, planes + (size_t)c * o->height * o->width);
    }
    return label;
}

/* ---- chunks ---- */

static uint32_t rows_per_chunk(const mst_gen_images_options *o)
{
    uint64_t bytes = (uint64_t)o->channels * o->height * o->width;
    uint64_t rows = CHUNK_BYTES / bytes;
    return rows < 1 ? 1 : rows > 1024 ? 1024 : (uint32_t)rows;
}

static mst_status images_make(const void *self, uint64_t first_row, uint32_t n, mst_chunk_builder *builder,
                              mst_chunk **out)
{
    const image_maker *m = self;
    const mst_gen_images_options *o = &m->o;
    (void)builder;
    TRY(mst_chunk_images_new(n, o->channels * o->height * o->width, false, out));
    for (uint32_t i = 0; i < n; i++)
        mst_chunk_image_label(*out, i, (float)gen_draw(m, first_row + i, mst_chunk_image(*out, i)));
    return MST_OK;
}

mst_status mst_gen_images(const mst_gen_images_options *o, mst_chunk_fn *fn, void *arg)
{
    image_maker m;
    TRY(maker_init(&m, o));
    mst_status st =
        mst_gen_run(o->first_row, o->rows, rows_per_chunk(o), o->n_threads, images_make, &m, fn, arg);
    maker_fini(&m);
    return st;
}

/* ---- files of options ---- */

mst_status mst_gen_images_save(const mst_gen_images_options *o, const char *path)
{
    mst_out *out = NULL;
    mst_status st;
    TRY(gen_check_options(o));
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_printf(out,
                               MAGIC "classes %u\nsize %ux%ux%u\nrows %" PRIu64 "\nfirst-row %" PRIu64
                                     "\nseed %" PRIu64 "\n",
                               o->classes, o->channels, o->height, o->width, o->rows, o->first_row, o->seed));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    return st;
}

static int gen_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    return n >= sizeof MAGIC - 1 && memcmp(head, MAGIC, sizeof MAGIC - 1) == 0 ? MST_SNIFF_BINARY : 0;
}

static bool gen_parse_number(const char *text, uint64_t *out)
{
    int64_t value;
    if (!mst_parse_int(text, &value) || value < 0)
        return false;
    *out = (uint64_t)value;
    return true;
}

/* Parses a line "NAME VALUE"; false when it is not one. */
static bool gen_parse_line(char *line, mst_gen_images_options *o, unsigned *seen)
{
    static const char *const names[] = {"classes", "size", "rows", "first-row", "seed"};
    char *value = strchr(line, ' ');
    uint64_t number = 0;
    unsigned i = 0;
    if (value == NULL)
        return false;
    *value++ = '\0';
    while (i < 5 && strcmp(names[i], line) != 0)
        i++;
    if (i == 5 || (*seen & 1u << i) != 0)
        return false;
    *seen |= 1u << i;
    if (i == 1)
        return mst_parse_sides("size", value, &o->channels, &o->height, &o->width) == MST_OK;
    if (!gen_parse_number(value, &number))
        return false;
    switch (i) {
    case 0:
        o->classes = number <= CLASSES_MAX ? (uint32_t)number : 0;
        return o->classes >= 2;
    case 2:
        o->rows = number;
        return number > 0;
    case 3:
        o->first_row = number;
        return number < BLOCK_FIRST;
    default:
        o->seed = number;
        return true;
    }
}

static mst_status read_file(const char *path, mst_gen_images_options *o)
{
    mst_status st;
    char *text = NULL;
    size_t size;
    unsigned seen = 0, number = 1;
    *o = (mst_gen_images_options){0};
    TRY_OUT(st, mst_file_read_all(path, FILE_MAX, &text, &size));
    if (gen_sniff((const uint8_t *)text, size, 0) == 0) {
        st = mst_fail(MST_EINPUT, "%s: not a file of generated images: it does not begin with \"%.*s\"", path,
                      (int)sizeof MAGIC - 2, MAGIC);
        goto out;
    }
    for (char *line = text + sizeof MAGIC - 1, *end; *line != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n' ? (*end = '\0', 1) : 0;
        number++;
        if (!gen_parse_line(line, o, &seen)) {
            st = mst_fail(MST_EINPUT,
                          "%s:%u: not one of \"classes N\", \"size CxHxW\", \"rows N\", \"first-row N\" and "
                          "\"seed N\", once each and with possible values",
                          path, number);
            goto out;
        }
    }
    if ((seen & 7) != 7) {
        st = mst_fail(MST_EINPUT, "%s: a file of generated images must give classes, size and rows", path);
        goto out;
    }
    if (gen_check_options(o) != MST_OK)
        st = mst_fail(MST_EINPUT, "%s: images of %u x %u x %u in %u classes cannot be generated", path,
                      o->channels, o->height, o->width, o->classes);
    else if (o->rows / rows_per_chunk(o) >= UINT32_MAX || o->rows >= BLOCK_FIRST)
        st = mst_fail(MST_EINPUT, "%s: %" PRIu64 " rows are too many", path, o->rows);
out:
    mst_free(text);
    return st;
}

typedef struct gen_file {
    image_maker maker;
    uint32_t first_chunk;
} gen_file;

typedef struct gen_dataset {
    mst_dataset base;
    gen_file *files; /* one per file */
    size_t n_files;
} gen_dataset;

static mst_status gen_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    const gen_dataset *d = (const gen_dataset *)self;
    size_t i = d->n_files - 1;
    while (i > 0 && d->files[i].first_chunk > c)
        i--;
    const gen_file *p = &d->files[i];
    uint64_t at = (uint64_t)(c - p->first_chunk) * self->chunk_rows, left = p->maker.o.rows - at;
    return images_make(&p->maker, p->maker.o.first_row + at,
                       left < self->chunk_rows ? (uint32_t)left : self->chunk_rows, NULL, out);
}

static void gen_destroy(mst_dataset *self)
{
    gen_dataset *d = (gen_dataset *)self;
    for (size_t i = 0; d->files != NULL && i < d->n_files; i++)
        maker_fini(&d->files[i].maker);
    mst_free(d->files);
    mst_free(self->name);
    mst_free(d);
}

static const mst_dataset_ops gen_ops = {.load = gen_load, .destroy = gen_destroy};

/* Number of rows of class 0: one in every whole run of classes, and those of the runs cut at the
 * ends. */
static uint64_t gen_zeros(const mst_gen_images_options *o)
{
    uint64_t row = o->first_row, end = row + o->rows, n = 0;
    while (row < end && row % o->classes != 0)
        n += label_of(o, row++) == 0;
    n += (end - row) / o->classes;
    row += (end - row) / o->classes * o->classes;
    while (row < end)
        n += label_of(o, row++) == 0;
    return n;
}

/* Adds a file's rows to the dataset. */
static mst_status gen_join(gen_dataset *d, const char *path, const mst_gen_images_options *o, bool last)
{
    mst_data_info *info = &d->base.info;
    uint32_t rows = rows_per_chunk(o);
    uint64_t n_chunks = (o->rows + rows - 1) / rows;
    const mst_gen_images_options *first = &d->files[0].maker.o;
    if (d->n_files > 0 && (first->classes != o->classes || first->channels != o->channels ||
                           first->height != o->height || first->width != o->width))
        return mst_fail(MST_EINPUT, "%s: its classes or sides differ from those of the files before it",
                        path);
    if (!last && o->rows % rows != 0)
        return mst_fail(MST_EINPUT, "%s: with other files after it its rows must be a multiple of %u", path,
                        rows);
    if (d->base.n_chunks + n_chunks > UINT32_MAX)
        return mst_fail(MST_EINPUT, "%s: too many rows", path);
    gen_file *p = &d->files[d->n_files];
    TRY(maker_init(&p->maker, o));
    p->first_chunk = d->base.n_chunks;
    d->n_files++;
    d->base.n_chunks += (uint32_t)n_chunks;
    d->base.chunk_rows = rows;
    info->n_rows += o->rows;
    info->n_positive += o->rows - gen_zeros(o);
    info->channels = o->channels;
    info->height = o->height;
    info->width = o->width;
    info->n_dense = o->channels * o->height * o->width;
    info->n_features = info->n_dense;
    info->max_label = (float)(o->classes - 1);
    return MST_OK;
}

mst_status mst_gen_images_open(const mst_text_list *paths, mst_dataset **out)
{
    mst_status st = MST_OK;
    gen_dataset *d = mst_zalloc(sizeof *d);
    if (d == NULL)
        return mst_fail_memory();
    d->base.kind = &mst_data_gen;
    d->base.ops = &gen_ops;
    d->base.random = true;
    d->base.name = mst_paths_name(paths);
    d->files = mst_calloc(paths->n, sizeof *d->files);
    if (d->base.name == NULL || d->files == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (size_t i = 0; i < paths->n; i++) {
        mst_gen_images_options o;
        TRY_OUT(st, read_file(paths->items[i], &o));
        TRY_OUT(st, gen_join(d, paths->items[i], &o, i + 1 == paths->n));
    }
    mst_data_info *info = &d->base.info;
    info->n_entries = info->n_rows * info->n_dense;
    info->labels_integral = true;
    info->scanned = true;
    d->base.window_rows = WINDOW_BYTES / info->n_dense + 1;
    *out = &d->base;
    d = NULL;
out:
    if (d != NULL)
        gen_destroy(&d->base);
    return st;
}

static mst_status gen_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    (void)self;
    return mst_gen_images_open(source->paths, out);
}

const mst_data_kind mst_data_gen = {
    .name = "gen",
    .help = "files of `data gen images`, whose rows are made as they are read",
    .capabilities = MST_DATA_FIXED_ROWS | MST_DATA_OWN_CLASSES,
    .sniff = gen_sniff,
    .open = gen_open,
};
