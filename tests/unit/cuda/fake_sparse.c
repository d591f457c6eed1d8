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
    mst_cuda_sparse_records records;
    mst_cuda_sparse_part *parts; /* by chunk: places in `words` */
    uint64_t n_sent;
    uint32_t *strides, *words, *staged[MST_CUDA_SPARSE_LOADS];
    bool bad;        /* a record has a number that is not finite */
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

static void fake_drop(mst_cuda_sparse *self)
{
    free(self->parts), free(self->strides), free(self->words);
    self->parts = NULL, self->strides = self->words = NULL;
    self->n_sent = 0;
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_LOADS; i++) {
        free(self->staged[i]);
        self->staged[i] = NULL;
    }
}

static void fake_close(mst_cuda_sparse *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_SLOTS; i++) {
        fake_free_rows(&self->blocks[i]);
        fake_free_pinned(&self->pinned[i]);
    }
    fake_drop(self);
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

/* ---- records ---- */

static mst_status fake_hold(mst_cuda_sparse *self, const mst_cuda_sparse_records *records, bool *held)
{
    size_t n = records->n_chunks;
    *held = getenv("MUSTER_FAKE_RECORDS") == NULL;
    if (!*held)
        return MST_OK;
    self->records = *records;
    self->parts = calloc(n, sizeof *self->parts);
    self->strides = calloc(n, sizeof *self->strides);
    self->words = calloc(records->n_words + 1, sizeof *self->words);
    memcpy(self->strides, records->strides, n * sizeof *self->strides);
    return MST_OK;
}

static mst_status fake_stage(mst_cuda_sparse *self, uint32_t i, uint32_t **out)
{
    uint64_t n = self->records.longest;
    free(self->staged[i]);
    *out = self->staged[i] = malloc((n < MST_CUDA_SPARSE_LOAD ? MST_CUDA_SPARSE_LOAD : n) * sizeof(uint32_t));
    return MST_OK;
}

static mst_status fake_send(mst_cuda_sparse *self, uint32_t i, const mst_cuda_sparse_part *parts, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        self->parts[parts[k].chunk] =
            (mst_cuda_sparse_part){.chunk = parts[k].chunk, .at = self->n_sent, .n = parts[k].n};
        memcpy(self->words + self->n_sent, self->staged[i] + parts[k].at, parts[k].n * sizeof(uint32_t));
        self->n_sent += parts[k].n;
    }
    return MST_OK;
}

static mst_status fake_reserve_held(mst_cuda_sparse *self, uint32_t at, uint32_t rows,
                                    mst_cuda_sparse_rows **out)
{
    return fake_reserve(self, at, rows, 0, out);
}

static float fake_number(const uint32_t *word)
{
    float x;
    memcpy(&x, word, sizeof x);
    return x;
}

/* Appends the entries of a record to a block: its numbers, then its keys. */
static uint32_t fake_unpack(const mst_cuda_sparse_records *r, const uint32_t *record, uint32_t length,
                            fake_rows *to, uint32_t row, uint32_t at)
{
    const uint32_t *dense = record + 1 + r->has_weights;
    uint32_t head = 1 + r->has_weights + (r->dense_bytes ? (r->n_dense + 3) / 4 : r->n_dense), from = at;
    uint32_t n = (length - head) * 2 / (2 + 2 * r->has_values + r->has_fields);
    float squares = 0.0f;
    to->labels[row] = fake_number(record);
    to->weights[row] = r->has_weights ? fake_number(record + 1) : 1.0f;
    for (uint32_t c = 0; c < r->n_dense; c++, at++) {
        to->keys[at] = c;
        to->values[at] =
            r->dense_bytes ? (float)((const uint8_t *)dense)[c] / 255.0f : fake_number(dense + c);
    }
    for (uint32_t k = 0; k < n; k++, at++) {
        to->keys[at] = record[head + k];
        to->values[at] = r->has_values ? fake_number(record + head + n + k) : 1.0f;
    }
    for (uint32_t e = from; e < at; e++)
        squares += to->values[e] * to->values[e];
    for (uint32_t e = from; e < at && r->row_norm && squares > 0.0f; e++)
        to->values[e] /= sqrtf(squares);
    return at;
}

static mst_status fake_prepare_held(mst_cuda_sparse *self, uint32_t at)
{
    const mst_cuda_sparse_records *r = &self->records;
    const mst_cuda_sparse_rows *p = &self->pinned[at];
    fake_rows *to = &self->blocks[at];
    uint32_t n = 0;
    fake_room(to, p->n_rows, p->n_entries + (uint64_t)p->n_rows * p->n_dense);
    to->head = *p;
    for (uint32_t i = 0; i < p->n_rows; i++) {
        uint32_t c = p->numbers[i] / r->chunk_rows, k = p->numbers[i] % r->chunk_rows,
                 length = self->strides[c];
        const uint32_t *body = self->words + self->parts[c].at, *record = body + (size_t)k * length;
        if (length == 0) {
            uint64_t rows = c + 1 < r->n_chunks ? r->chunk_rows : r->n_rows - (uint64_t)c * r->chunk_rows;
            const uint32_t *positions = body + self->parts[c].n - (rows + 1);
            record = body + positions[k];
            length = positions[k + 1] - positions[k];
        }
        uint32_t from = n;
        n = fake_unpack(r, record, length, to, i, n);
        for (; from < n; from++)
            self->bad |= !isfinite(to->values[from]);
        to->ends[i] = n;
        uint32_t end = p->row_entries != 0 ? (i + 1) * p->row_entries : p->ends[i];
        if (n != end + (i + 1) * p->n_dense)
            return mst_cuda_plugin_host->fail(MST_EINPUT, "row %u ends at entry %u instead of %u", i, n, end);
    }
    return MST_OK;
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

/* As on a GPU, the weights are of no use afterwards. */
static mst_status fake_rehearse(mst_cuda_sparse *self, uint32_t at, uint32_t n,
                                const mst_cuda_sparse_rules *rules)
{
    (void)at, (void)n, (void)rules;
    for (uint32_t s = 0; s <= self->spec.n_slots; s++)
        for (uint64_t i = 0; i < self->spec.size; i++)
            self->params[s][i] = NAN;
    return MST_OK;
}

static mst_status fake_finish(mst_cuda_sparse *self, mst_cuda_sparse_sums *sums)
{
    if (self->bad)
        return mst_cuda_plugin_host->fail(MST_EINPUT, "the fake GPU found a bad row");
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
    .hold = fake_hold,
    .stage = fake_stage,
    .send = fake_send,
    .reserve_held = fake_reserve_held,
    .prepare_held = fake_prepare_held,
    .drop = fake_drop,
    .rehearse = fake_rehearse,
    .train = fake_train,
    .finish = fake_finish,
};
