/* Nets of the fake GPU plug-in, for tests of the code around it. The gradient of a weight is the mean of its
 * differences to the labels of the rows, so that it depends on rows and on weights; state (batch norm)
 * becomes the mean label. The loss is the sum of the numbers of all rows, augmented:
 * rows that arrive as images, or stay, must be those that the feed would have filled. MUSTER_FAKE_IMAGES=0
 * refuses images. The score of class c is c times the first weight: with small weights the losses of
 * evaluations follow it. */
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_net.h"
#include "fake_rule.h"

extern const mst_cuda_host *mst_cuda_plugin_host;
extern const mst_cuda_net_ops mst_cuda_fake_nets;

enum { PLACES = 4 }; /* of a parameter: weights, state, gradient */

struct mst_cuda_net {
    mst_cuda_net_spec spec;
    mst_cuda_param *params;
    float **places;
    char *rows;
    float *labels;
    mst_cuda_images images;
    uint8_t *raw, *kept; /* of max_rows rows, of the dataset */
    float *kept_labels;
    mst_cuda_pick *picks;
    size_t image_size;
    uint32_t *entries; /* of the step: ends, keys, places, values */
    uint64_t n_entries;
    float *table[3];
    struct { /* rows with keys that stay: entries and numbers of each */
        uint32_t row_entries, *entries;
        float *numbers;
    } rows_kept;
    mst_cuda_loss loss;
};

static void fake_net_close(mst_cuda_net *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; self->places != NULL && i < PLACES * self->spec.n_params; i++)
        free(self->places[i]);
    free(self->places);
    free(self->params);
    free(self->rows);
    free(self->labels);
    free(self->raw);
    free(self->kept);
    free(self->kept_labels);
    free(self->picks);
    free(self->entries);
    free(self->rows_kept.entries);
    free(self->rows_kept.numbers);
    for (int i = 0; i < 3; i++)
        free(self->table[i]);
    free(self);
}

static mst_status fake_net_open(const mst_cuda_net_spec *spec, mst_cuda_net **out)
{
    mst_cuda_net *self = calloc(1, sizeof *self);
    size_t size = (size_t)spec->in.c * spec->in.h * spec->in.w;
    bool whole = self != NULL;
    if (whole) {
        self->spec = *spec;
        self->params = calloc(spec->n_params, sizeof *self->params);
        self->places = calloc(PLACES * spec->n_params, sizeof *self->places);
        for (int i = 0; i < 3; i++)
            self->table[i] = calloc(spec->table.n_keys * spec->table.width + 1, sizeof(float));
        self->rows = malloc(spec->max_rows * size * sizeof(float) + 1);
        self->labels = malloc(2 * spec->max_rows * sizeof(float));
        whole = self->params != NULL && self->places != NULL && self->rows != NULL && self->labels != NULL;
    }
    for (uint32_t i = 0; whole && i < PLACES * spec->n_params; i++)
        whole = (self->places[i] = calloc(spec->params[i / PLACES].size, sizeof(float))) != NULL;
    if (!whole) {
        fake_net_close(self);
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left");
    }
    memcpy(self->params, spec->params, spec->n_params * sizeof *spec->params);
    *out = self;
    return MST_OK;
}

static float *fake_net_place(mst_cuda_net *self, uint32_t slot, uint32_t param)
{
    return self->places[PLACES * param + (slot == MST_CUDA_GRADIENT ? PLACES - 1 : slot)];
}

static mst_status fake_net_write(mst_cuda_net *self, uint32_t slot, uint32_t param, const float *from)
{
    memcpy(fake_net_place(self, slot, param), from, self->params[param].size * sizeof *from);
    return MST_OK;
}

static mst_status fake_net_read(mst_cuda_net *self, uint32_t slot, uint32_t param, float *to)
{
    memcpy(to, fake_net_place(self, slot, param), self->params[param].size * sizeof *to);
    return MST_OK;
}

static mst_status fake_net_stage(mst_cuda_net *self, mst_cuda_rows *out)
{
    *out = (mst_cuda_rows){.bytes = (uint8_t *)self->rows,
                           .numbers = (float *)self->rows,
                           .labels = self->labels,
                           .weights = self->labels + self->spec.max_rows,
                           .images = self->raw,
                           .pitch = self->image_size,
                           .picks = self->picks};
    return MST_OK;
}

static mst_status fake_net_images(mst_cuda_net *self, const mst_cuda_images *images, bool *keeps)
{
    const char *takes = getenv("MUSTER_FAKE_IMAGES");
    if (takes != NULL && strcmp(takes, "0") == 0)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "the fake GPU takes no images");
    self->images = *images;
    self->image_size = (size_t)images->channels * images->height * images->width;
    self->raw = malloc(self->spec.max_rows * self->image_size);
    self->picks = calloc(self->spec.max_rows, sizeof *self->picks);
    *keeps = images->n_rows != 0;
    self->kept = malloc(images->n_rows * self->image_size + 1);
    self->kept_labels = malloc((2 * images->n_rows + 1) * sizeof *self->kept_labels);
    bool whole = self->raw != NULL && self->picks != NULL && self->kept != NULL && self->kept_labels != NULL;
    return whole ? MST_OK : mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left");
}

/* Row r becomes numbers, as the plug-in makes them. */
static void fake_net_augment(mst_cuda_net *self, mst_cuda_source source, uint32_t r)
{
    const mst_cuda_images *o = &self->images;
    const mst_cuda_pick *p = &self->picks[r];
    float *labels = self->labels, *weights = labels + self->spec.max_rows;
    if (source == MST_CUDA_KEPT) {
        labels[r] = self->kept_labels[2 * p->number];
        weights[r] = self->kept_labels[2 * p->number + 1];
    } else if (o->n_rows != 0) {
        memcpy(self->kept + p->number * self->image_size, self->raw + r * self->image_size, self->image_size);
        self->kept_labels[2 * p->number] = labels[r];
        self->kept_labels[2 * p->number + 1] = weights[r];
    }
    const uint8_t *from = source == MST_CUDA_KEPT ? self->kept + p->number * self->image_size
                                                  : self->raw + r * self->image_size;
    float *to = (float *)self->rows + (size_t)r * o->channels * o->out_height * o->out_width;
    for (uint32_t c = 0; c < o->channels; c++)
        for (uint32_t y = 0; y < o->out_height; y++)
            for (uint32_t x = 0; x < o->out_width; x++) {
                int64_t sy = (int64_t)y + p->y, sx = (int64_t)(p->mirror ? o->out_width - 1 - x : x) + p->x;
                bool inside = sy >= 0 && sy < o->height && sx >= 0 && sx < o->width;
                uint8_t byte =
                    inside ? from[((size_t)c * o->height + (size_t)sy) * o->width + (size_t)sx] : 0;
                *to++ = o->normalise ? (float)byte * o->scale[c] + o->shift[c] : (float)byte / 255.0f;
            }
}

/* A sum that depends on the order of the numbers. */
static double fake_net_sum(const mst_cuda_net *self, uint32_t r, bool floats)
{
    size_t size = (size_t)self->spec.in.c * self->spec.in.h * self->spec.in.w;
    double sum = 0.0;
    for (size_t i = 0; i < size; i++)
        sum +=
            (double)(i % 37 + 1) * (double)(floats ? ((float *)self->rows)[r * size + i]
                                                   : (float)((uint8_t *)self->rows)[r * size + i] / 255.0f);
    return sum / (double)size;
}

static mst_status fake_net_entries(mst_cuda_net *self, uint64_t n, mst_cuda_entries *out)
{
    uint32_t rows = self->spec.max_rows;
    free(self->entries);
    self->entries = malloc((rows + 3 * n + 1) * sizeof *self->entries);
    if (self->entries == NULL)
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left");
    self->n_entries = n;
    *out = (mst_cuda_entries){.ends = self->entries,
                              .keys = self->entries + rows,
                              .places = self->entries + rows + n,
                              .values = (float *)(self->entries + rows + 2 * n)};
    return MST_OK;
}

static mst_status fake_net_keep_rows(mst_cuda_net *self, uint64_t n_rows, uint32_t row_entries, bool *keeps)
{
    const char *takes = getenv("MUSTER_FAKE_IMAGES");
    *keeps = takes == NULL || strcmp(takes, "0") != 0;
    if (!*keeps)
        return MST_OK;
    self->picks = calloc(self->spec.max_rows, sizeof *self->picks);
    self->kept_labels = malloc(2 * n_rows * sizeof(float));
    self->rows_kept.row_entries = row_entries;
    self->rows_kept.entries = malloc(3 * n_rows * row_entries * sizeof(uint32_t));
    self->rows_kept.numbers = malloc(n_rows * self->spec.in.c * sizeof(float) + 1);
    return MST_OK;
}

/* Row r of the step becomes one of those that stay, or the reverse. */
static void fake_net_keep(mst_cuda_net *self, mst_cuda_source source, uint32_t r)
{
    uint32_t size = self->rows_kept.row_entries, first = self->spec.table.n_fields * r;
    uint64_t number = self->picks[r].number, n = self->n_entries;
    uint32_t *own = self->entries + self->spec.max_rows + (uint64_t)r * size,
             *kept = self->rows_kept.entries + 3 * number * size;
    float *row = (float *)self->rows + (uint64_t)r * self->spec.in.c,
          *numbers = self->rows_kept.numbers + number * self->spec.in.c;
    bool keep = source == MST_CUDA_IMAGES;
    for (uint32_t part = 0; part < 3; part++)
        for (uint32_t e = 0; e < size; e++) {
            uint32_t *at = &own[part * n + e], *to = &kept[part * size + e], place = part == 1 ? first : 0;
            if (keep)
                *to = *at - place;
            else
                *at = *to + place;
        }
    memcpy(keep ? numbers : row, keep ? row : numbers, self->spec.in.c * sizeof *row);
    for (uint32_t i = 0; i < 2; i++) {
        float *at = &self->labels[i * self->spec.max_rows + r], *to = &self->kept_labels[2 * number + i];
        *(keep ? to : at) = *(keep ? at : to);
    }
    self->entries[r] = (r + 1) * size;
}

static mst_status fake_net_write_table(mst_cuda_net *self, uint32_t slot, uint64_t first, uint64_t n,
                                       const float *from)
{
    memcpy(self->table[slot] + first, from, n * sizeof *from);
    return MST_OK;
}

static mst_status fake_net_read_table(mst_cuda_net *self, uint32_t slot, uint64_t first, uint64_t n,
                                      float *to)
{
    memcpy(to, self->table[slot] + first, n * sizeof *to);
    return MST_OK;
}

/* Every entry adds a thousandth of its value and label, and of its field, to the weights of its key. */
static void fake_net_keys(mst_cuda_net *self, uint32_t n_rows)
{
    const mst_cuda_table *t = &self->spec.table;
    const uint32_t *keys = self->entries + self->spec.max_rows, *places = keys + self->n_entries;
    const float *values = (const float *)(places + self->n_entries);
    for (uint32_t r = 0, e = 0; r < n_rows; r++)
        for (; e < self->entries[r]; e++)
            for (uint32_t k = 0; k < t->width && keys[e] < t->n_keys && places[e] / t->n_fields == r; k++)
                self->table[0][(uint64_t)keys[e] * t->width + k] +=
                    0.001f * (values[e] * self->labels[r] + (float)(places[e] % t->n_fields));
}

static mst_status fake_net_gradient(mst_cuda_net *self, const mst_cuda_step *step)
{
    float sum = 0.0f;
    if (self->rows_kept.row_entries != 0 && step->source == MST_CUDA_KEPT) {
        mst_cuda_entries ignored;
        mst_status st =
            fake_net_entries(self, (uint64_t)step->n_rows * self->rows_kept.row_entries, &ignored);
        if (st != MST_OK)
            return st;
    }
    for (uint32_t r = 0; r < step->n_rows; r++) {
        if (step->source != MST_CUDA_ROWS && self->rows_kept.row_entries != 0)
            fake_net_keep(self, step->source, r);
        else if (step->source != MST_CUDA_ROWS)
            fake_net_augment(self, step->source, r);
        sum += self->labels[r];
        self->loss.loss += fake_net_sum(self, r, step->floats || step->source != MST_CUDA_ROWS);
        self->loss.weight += (double)self->labels[self->spec.max_rows + r];
        self->loss.correct += self->labels[r] == 0.0f;
    }
    for (uint32_t i = 0; i < self->spec.n_params; i++) {
        float *g = fake_net_place(self, MST_CUDA_GRADIENT, i);
        const float *w = fake_net_place(self, 0, i);
        for (uint64_t k = 0; k < self->params[i].size; k++)
            g[k] = self->params[i].state ? sum / (float)step->n_rows
                                         : step->scale * ((float)step->n_rows * w[k] - sum);
    }
    return MST_OK;
}

static mst_status fake_net_step(mst_cuda_net *self, const mst_cuda_step *step)
{
    fake_net_gradient(self, step);
    if (self->spec.table.width != 0)
        fake_net_keys(self, step->n_rows);
    for (uint32_t i = 0; i < self->spec.n_params; i++) {
        float *w = fake_net_place(self, 0, i), *g = fake_net_place(self, MST_CUDA_GRADIENT, i);
        for (uint64_t k = 0; k < self->params[i].size; k++)
            if (self->params[i].state)
                w[k] = g[k];
            else
                fake_apply(&step->rule, w, fake_net_place(self, 1, i), fake_net_place(self, 2, i), k, g[k]);
    }
    return MST_OK;
}

static mst_status fake_net_forward(mst_cuda_net *self, uint32_t n_rows, bool floats, float *scores)
{
    (void)floats;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = 0; c < self->spec.n_scores; c++)
            scores[r * self->spec.n_scores + c] = (float)c * self->places[0][0];
    return MST_OK;
}

static mst_status fake_net_losses(mst_cuda_net *self, mst_cuda_loss *out)
{
    *out = self->loss;
    self->loss = (mst_cuda_loss){0};
    return MST_OK;
}

const mst_cuda_net_ops mst_cuda_fake_nets = {
    .open = fake_net_open,
    .close = fake_net_close,
    .write = fake_net_write,
    .read = fake_net_read,
    .images = fake_net_images,
    .stage = fake_net_stage,
    .entries = fake_net_entries,
    .keep_rows = fake_net_keep_rows,
    .write_table = fake_net_write_table,
    .read_table = fake_net_read_table,
    .step = fake_net_step,
    .gradient = fake_net_gradient,
    .forward = fake_net_forward,
    .losses = fake_net_losses,
};
