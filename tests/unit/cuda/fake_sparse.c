/* Sparse models for the fake GPU plug-in, computed by plain loops of this thread: for tests of the code
 * around the table (packing of rows, blocks, rows that stay, copies of weights). logreg, softmax and fm;
 * other models are refused. Every key of the head, and every key of a row, is updated once per step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda.h"
#include "cuda/cuda_sparse.h"
#include "fake_rule.h"

extern const mst_cuda_host *mst_cuda_plugin_host;

typedef struct fake_rows {
    float *labels, *weights, *values;
    uint32_t *ends, *keys;
    mst_cuda_sparse_rows head; /* the numbers of the block */
} fake_rows;

struct mst_cuda_sparse {
    mst_cuda_sparse_spec spec;
    float *params[3];
    mst_cuda_sparse_rows pinned[MST_CUDA_SPARSE_SLOTS];
    fake_rows blocks[MST_CUDA_SPARSE_SLOTS];
    fake_rows kept;
    uint32_t n_kept;
    float *gradient; /* of the keys */
    bool *touched;
    float *scores; /* width */
    mst_cuda_sparse_sums sums;
};

static mst_status fake_open(const mst_cuda_sparse_spec *spec, mst_cuda_sparse **out)
{
    if (spec->kind > MST_CUDA_FM || spec->clip_norm > 0.0f)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "the fake GPU does not train this model");
    mst_cuda_sparse *self = calloc(1, sizeof *self);
    self->spec = *spec;
    for (uint32_t s = 0; s <= spec->n_slots; s++)
        self->params[s] = calloc(spec->size, sizeof(float));
    self->gradient = calloc(spec->n_features * spec->width, sizeof(float));
    self->touched = calloc(spec->n_features, sizeof(bool));
    self->scores = calloc(spec->width + 1, sizeof(float));
    *out = self;
    return MST_OK;
}

static void fake_free_rows(fake_rows *r)
{
    free(r->labels), free(r->weights), free(r->values), free(r->ends), free(r->keys);
    *r = (fake_rows){0};
}

static void fake_free_pinned(mst_cuda_sparse_rows *r)
{
    free(r->labels), free(r->weights), free(r->values), free(r->ends), free(r->keys), free(r->fields),
        free(r->dense), free(r->numbers);
    *r = (mst_cuda_sparse_rows){0};
}

static void fake_close(mst_cuda_sparse *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_SLOTS; i++) {
        fake_free_rows(&self->blocks[i]);
        fake_free_pinned(&self->pinned[i]);
    }
    fake_free_rows(&self->kept);
    for (uint32_t s = 0; s < 3; s++)
        free(self->params[s]);
    free(self->gradient), free(self->touched), free(self->scores);
    free(self);
}

static mst_status fake_write(mst_cuda_sparse *self, uint32_t slot, uint64_t first, uint64_t count,
                             const float *in)
{
    memcpy(self->params[slot] + first, in, count * sizeof *in);
    return MST_OK;
}

static mst_status fake_read(mst_cuda_sparse *self, uint32_t slot, uint64_t first, uint64_t count, float *out)
{
    memcpy(out, self->params[slot] + first, count * sizeof *out);
    return MST_OK;
}

static uint32_t fake_block_steps(const mst_cuda_sparse *self)
{
    (void)self;
    return 3; /* blocks are small, so that small tests have many */
}

static mst_status fake_reserve(mst_cuda_sparse *self, uint32_t at, uint32_t rows, uint32_t entries,
                               mst_cuda_sparse_rows **out)
{
    mst_cuda_sparse_rows *r = &self->pinned[at];
    fake_free_pinned(r);
    size_t n = rows + 1, m = entries + 1;
    *r = (mst_cuda_sparse_rows){.row_capacity = rows,
                                .entry_capacity = entries,
                                .labels = calloc(n, 4),
                                .weights = calloc(n, 4),
                                .ends = calloc(n, 4),
                                .keys = calloc(m, 4),
                                .values = calloc(m, 4),
                                .fields = calloc(m, 2),
                                .dense = calloc(n * (self->spec.head + 1), 4),
                                .numbers = calloc(n, 4)};
    *out = r;
    return MST_OK;
}

static void fake_room(fake_rows *r, uint64_t rows, uint64_t entries)
{
    fake_free_rows(r);
    r->labels = calloc(rows + 1, 4), r->weights = calloc(rows + 1, 4), r->ends = calloc(rows + 1, 4);
    r->keys = calloc(entries + 1, 4), r->values = calloc(entries + 1, 4);
}

static mst_status fake_prepare(mst_cuda_sparse *self, uint32_t at)
{
    const mst_cuda_sparse_rows *from = &self->pinned[at];
    fake_rows *to = &self->blocks[at];
    uint32_t n = 0, entry = 0;
    fake_room(to, from->n_rows, from->n_entries + (uint64_t)from->n_rows * from->n_dense);
    to->head = *from;
    to->head.row_entries += from->row_entries != 0 ? from->n_dense : 0;
    memcpy(to->labels, from->labels, from->n_rows * 4ul);
    for (uint32_t i = 0; i < from->n_rows; i++) {
        uint32_t end = from->row_entries != 0 ? (i + 1) * from->row_entries : from->ends[i];
        to->weights[i] = from->weighted ? from->weights[i] : 1.0f;
        for (uint32_t c = 0; c < from->n_dense; c++, n++) {
            to->keys[n] = c;
            to->values[n] = from->dense[(size_t)i * from->n_dense + c];
        }
        for (; entry < end; entry++, n++) {
            to->keys[n] = from->keys[entry];
            to->values[n] = from->valued ? from->values[entry] : 1.0f;
        }
        to->ends[i] = n;
    }
    return MST_OK;
}

static void fake_copy_row(const fake_rows *from, uint32_t i, fake_rows *to, uint32_t j, uint32_t n)
{
    to->labels[j] = from->labels[i];
    to->weights[j] = from->weights[i];
    to->ends[j] = (j + 1) * n;
    memcpy(to->keys + (size_t)j * n, from->keys + (size_t)i * n, n * 4ul);
    memcpy(to->values + (size_t)j * n, from->values + (size_t)i * n, n * 4ul);
}

static mst_status fake_keep(mst_cuda_sparse *self, uint32_t at, uint64_t n_numbers, bool *kept)
{
    const mst_cuda_sparse_rows *r = &self->pinned[at];
    *kept = r->row_entries != 0;
    if (!*kept)
        return MST_OK;
    if (self->n_kept == 0) {
        fake_room(&self->kept, n_numbers, n_numbers * self->blocks[at].head.row_entries);
        self->kept.head = self->blocks[at].head;
        self->n_kept = (uint32_t)n_numbers;
    }
    self->kept.head.fill_head |= r->fill_head;
    for (uint32_t i = 0; i < r->n_rows; i++)
        fake_copy_row(&self->blocks[at], i, &self->kept, r->numbers[i], self->kept.head.row_entries);
    return MST_OK;
}

static mst_status fake_prepare_kept(mst_cuda_sparse *self, uint32_t at)
{
    const mst_cuda_sparse_rows *r = &self->pinned[at];
    uint32_t n = self->kept.head.row_entries, n_rows = r->n_rows;
    fake_room(&self->blocks[at], n_rows, (uint64_t)n_rows * n);
    self->blocks[at].head = self->kept.head;
    self->blocks[at].head.n_rows = n_rows;
    for (uint32_t i = 0; i < n_rows; i++)
        fake_copy_row(&self->kept, r->numbers[i], &self->blocks[at], i, n);
    return MST_OK;
}

static void fake_forget(mst_cuda_sparse *self)
{
    fake_free_rows(&self->kept);
    self->n_kept = 0;
}

/* ---- steps ---- */

static float *fake_weight(mst_cuda_sparse *self, uint32_t key, uint32_t j)
{
    const mst_cuda_sparse_spec *s = &self->spec;
    return self->params[0] + s->weight_at + key * s->key_step + j * s->weight_step;
}

/* fm: the sum of v_i x_i of a factor, and of its squares. */
static float fake_factor_sum(mst_cuda_sparse *self, const fake_rows *b, uint32_t from, uint32_t to,
                             uint32_t j, float *squares)
{
    float sum = 0.0f;
    *squares = 0.0f;
    for (uint32_t e = from; e < to; e++) {
        float xv = b->values[e] * *fake_weight(self, b->keys[e], j);
        sum += xv;
        *squares += xv * xv;
    }
    return sum;
}

/* Scores of a row; then d(loss)/d(score), scaled, in their place. */
static void fake_scores(mst_cuda_sparse *self, const fake_rows *b, uint32_t row, uint32_t from, uint32_t to,
                        float scale)
{
    const mst_cuda_sparse_spec *s = &self->spec;
    uint32_t n = s->kind == MST_CUDA_SOFTMAX ? s->width : 1, best = 0;
    float *y = self->scores, label = b->labels[row], weight = b->weights[row], top, sum = 0.0f, squares;
    for (uint32_t c = 0; c < n; c++) {
        y[c] = c < s->n_bias ? self->params[0][s->bias_at + c] : 0.0f;
        for (uint32_t e = from; e < to; e++)
            y[c] += b->values[e] * *fake_weight(self, b->keys[e], c);
    }
    for (uint32_t j = 1; s->kind == MST_CUDA_FM && j < s->width; j++) {
        float total = fake_factor_sum(self, b, from, to, j, &squares);
        y[0] += 0.5f * (total * total - squares);
    }
    if (n == 1) {
        bool positive = label > 0.0f;
        float z = positive ? y[0] : -y[0], by = positive ? weight * s->pos_weight : weight,
              e = expf(-fabsf(z));
        self->sums.correct += (y[0] > 0.0f) == positive;
        self->sums.weight += (double)by;
        self->sums.loss += (double)(by * ((z < 0.0f ? -z : 0.0f) + log1pf(e)));
        y[0] = (positive ? -scale : scale) * by * (z >= 0.0f ? e : 1.0f) / (1.0f + e);
        return;
    }
    for (uint32_t c = 1; c < n; c++)
        best = y[c] > y[best] ? c : best;
    top = y[best];
    uint32_t own = (uint32_t)label;
    for (uint32_t c = 0; c < n; c++)
        sum += expf(y[c] - top);
    self->sums.correct += best == own;
    self->sums.weight += (double)weight;
    self->sums.loss += (double)weight * (log((double)sum) + (double)top - (double)y[own]);
    for (uint32_t c = 0; c < n; c++)
        y[c] = scale * weight * (expf(y[c] - top) / sum - (c == own ? 1.0f : 0.0f));
}

static void fake_add_row(mst_cuda_sparse *self, const fake_rows *b, uint32_t row, uint32_t from, uint32_t to,
                         float scale, float *bias)
{
    const mst_cuda_sparse_spec *s = &self->spec;
    fake_scores(self, b, row, from, to, scale);
    for (uint32_t c = 0; c < s->n_bias; c++)
        bias[c] += self->scores[c];
    for (uint32_t e = from; e < to; e++) {
        float *g = self->gradient + (size_t)b->keys[e] * s->width, x = b->values[e], squares;
        self->touched[b->keys[e]] = true;
        for (uint32_t j = 0; j < s->width; j++) {
            if (s->kind != MST_CUDA_FM || j == 0) {
                g[j] += self->scores[s->kind == MST_CUDA_FM ? 0 : j] * x;
                continue;
            }
            float c = self->scores[0] * x, sum = fake_factor_sum(self, b, from, to, j, &squares);
            g[j] += c * sum -
                    (c * x - s->l2_factors * scale * b->weights[row]) * *fake_weight(self, b->keys[e], j);
        }
    }
}

static void fake_step(mst_cuda_sparse *self, const fake_rows *b, uint32_t number,
                      const mst_cuda_sparse_rules *r)
{
    const mst_cuda_sparse_spec *s = &self->spec;
    uint32_t first = number * s->batch, left = b->head.n_rows - first, n = left < s->batch ? left : s->batch;
    float *bias = calloc(s->n_bias + 1, sizeof *bias);
    for (uint32_t row = first; row < first + n; row++)
        fake_add_row(self, b, row, row > 0 ? b->ends[row - 1] : 0, b->ends[row], 1.0f / (float)n, bias);
    for (uint32_t c = 0; c < s->n_bias; c++)
        fake_apply(&r->rest, self->params[0], self->params[1], self->params[2], s->bias_at + c, bias[c]);
    for (uint32_t key = 0; key < s->n_features; key++) {
        float *g = self->gradient + (size_t)key * s->width;
        if (!self->touched[key] && (key >= s->head || !b->head.fill_head))
            continue;
        if (r->keys.by_row && s->state_per_key && key >= s->head)
            mst_rule_adagrad_row(&r->keys, fake_weight(self, key, 0), fake_weight(self, key, 0) + 1,
                                 self->params[1] + s->weight_at + (uint64_t)s->head * s->width + key -
                                     s->head,
                                 g, s->width - 1);
        else
            for (uint32_t j = 0; j < s->width; j++)
                fake_apply(&r->keys, self->params[0], self->params[1], self->params[2],
                           (uint64_t)(fake_weight(self, key, j) - self->params[0]), g[j]);
        memset(g, 0, s->width * sizeof *g);
        self->touched[key] = false;
    }
    free(bias);
}

static mst_status fake_train(mst_cuda_sparse *self, uint32_t at, uint32_t first, uint32_t n,
                             const mst_cuda_sparse_rules *rules)
{
    for (uint32_t i = 0; i < n; i++)
        fake_step(self, &self->blocks[at], first + i, &rules[i]);
    return MST_OK;
}

static mst_status fake_finish(mst_cuda_sparse *self, mst_cuda_sparse_sums *sums)
{
    *sums = self->sums;
    self->sums = (mst_cuda_sparse_sums){0};
    return MST_OK;
}

const mst_cuda_sparse_ops mst_cuda_sparse_table = {
    .open = fake_open,
    .close = fake_close,
    .write = fake_write,
    .read = fake_read,
    .block_steps = fake_block_steps,
    .reserve = fake_reserve,
    .prepare = fake_prepare,
    .keep = fake_keep,
    .prepare_kept = fake_prepare_kept,
    .forget = fake_forget,
    .train = fake_train,
    .finish = fake_finish,
};
