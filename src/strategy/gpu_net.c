/* Strategy local for nets on a GPU (--device cuda): weights, gradients and optimizer state stay there, and
 * per step only rows and a few numbers are copied to it.
 *
 * The training thread claims rows, copies them to pinned memory and enqueues the step; it never waits for a
 * step, only for one of the staging buffers, so that it works ahead of the GPU by their number. Large batches
 * are filled and copied by all threads of the team.
 *
 * Images of bytes are copied whole, and the GPU crops, mirrors and normalises them. Those of a dataset with
 * random access stay there if they fit: after its first step only the number of a row and its crop travel. So
 * do rows with keys, if all have the same number of keys.
 *
 * Invariants
 * 1. The parameters are copied to the GPU before the first step, and back by settle. Between these the store
 * is out of date, and no other code reads it.
 * 2. Run returns with no step under way: its losses are complete. */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/team.h"
#include "model/chain_gpu.h"
#include "observe/spans.h"
#include "strategy/strategy.h"

extern const mst_strategy_ops mst_strategy_gpu_net;

#define CLAIM_ROWS  8192              /* rows claimed at a time if batches are smaller ... */
#define CLAIM_SIZE  ((size_t)1 << 24) /* ... but no more numbers than this: a feed may copy them */
#define ALONE_BYTES ((size_t)1 << 20) /* of a batch that one thread fills and copies */
#define ALONE_ROWS  512               /* the same of rows with keys */
#define COPY_FLOATS ((size_t)1 << 22) /* of a table that are copied at a time */
#define COPIERS_MAX 16
#define TURNS       4 /* shares of a batch for each thread: threads are not equally fast */

typedef struct gpu_net {
    mst_strategy base;
    const mst_cuda_net_ops *ops;
    mst_cuda_net *net;
    const mst_chain *chain;
    uint32_t batch, claim_steps;
    uint64_t row_size; /* numbers */
    mst_team *team;    /* NULL: one thread */
    mst_grad layout;
    uint32_t n_slots, key_slots; /* state of weights, and of those of keys */
    float *copy;                 /* nets over embeddings: pinned, COPY_FLOATS */
    uint64_t dropout[MST_NET_LAYERS];
    bool there;   /* the parameters are on the GPU */
    bool changed; /* since the last settle */

    /* Rows as images, which the GPU augments: */
    const mst_feed *looked; /* the feed whose rows were looked at */
    bool images;
    uint64_t image_size; /* bytes */
    const mst_augment *augment;
    uint64_t *kept;    /* a bit for every row of the dataset that the GPU has; NULL: none stay */
    uint32_t row_keys; /* of rows with keys that stay */
    uint32_t *numbers;
    mst_crop *crops;

    /* The batch that the team copies: */
    mst_feed *feed;
    mst_batch rows;
    uint32_t first;   /* of the claim */
    atomic_uint next; /* row that no thread has taken */
    mst_cuda_rows places;
    bool floats, fill;
    mst_cuda_entries entries;
    uint64_t n_entries[COPIERS_MAX]; /* by thread: keys of its rows, then its first entry */
    bool odd[COPIERS_MAX];           /* by thread: rows are not whole images of bytes */
    mst_status status[COPIERS_MAX];
    mst_error errors[COPIERS_MAX];
} gpu_net;

static mst_status gpu_net_init_table(gpu_net *self, const mst_strategy_env *env)
{
    if ((uint64_t)self->batch * self->chain->table.n_fields > UINT32_MAX)
        return mst_fail(MST_EUSAGE, "--batch %u: --device cuda takes up to 2^32 fields of rows per step",
                        self->batch);
    return env->model->gpu.ops->host_alloc(COPY_FLOATS * sizeof(float), (void **)&self->copy);
}

static mst_status gpu_net_init(mst_strategy *base, const mst_strategy_options *options,
                               const mst_strategy_env *env)
{
    gpu_net *self = (gpu_net *)base;
    const mst_optimizer *optimizer = env->optimizer;
    if (options->mode != MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE, "--mode async is for the CPU: a GPU trains nets with --mode sync");
    self->ops = env->model->gpu.ops->net;
    self->chain = mst_model_chain(env->model);
    self->batch = (uint32_t)options->batch;
    self->row_size =
        self->chain->table.n_keys != 0 ? self->chain->table.n_dense + 1 : mst_dims_size(&self->chain->in);
    uint64_t rows = CLAIM_SIZE / self->row_size < CLAIM_ROWS ? CLAIM_SIZE / self->row_size : CLAIM_ROWS;
    self->claim_steps = self->batch < rows ? (uint32_t)rows / self->batch : 1;
    env->model->ops->layout(env->model, env->params, &self->layout);
    self->numbers = mst_calloc(self->batch, sizeof *self->numbers);
    self->crops = mst_calloc(self->batch, sizeof *self->crops);
    if (self->numbers == NULL || self->crops == NULL)
        return mst_fail_memory();
    base->max_take = self->batch * self->claim_steps;
    base->n_lanes = 1;
    int64_t n = options->threads < COPIERS_MAX ? options->threads : COPIERS_MAX;
    bool keys = self->chain->table.n_keys != 0;
    if (n > 1 && (keys ? self->batch >= ALONE_ROWS : self->batch * self->row_size > ALONE_BYTES))
        TRY(mst_team_new((unsigned)n, &self->team));
    mst_rule rule = optimizer->ops->rule(optimizer, &(mst_update){.lr = 1.0f, .step = 1});
    const mst_optimizer *of_keys = mst_optimizer_of_keys(optimizer);
    mst_rule rule_keys = of_keys->ops->rule(of_keys, &(mst_update){.lr = 1.0f, .step = 1});
    self->n_slots = mst_rule_slots(rule.kind);
    self->key_slots = mst_rule_slots(rule_keys.kind);
    if (self->chain->table.width != 0)
        TRY(gpu_net_init_table(self, env));
    const mst_view *view =
        self->chain->table.width != 0 ? &env->params->views[self->chain->table.view] : NULL;
    mst_chain_gpu_options spec = {.rule_keys = rule_keys.kind,
                                  .head = view != NULL ? view->head : 0,
                                  .state_per_key = view != NULL && view->state.per_key,
                                  .max_rows = self->batch,
                                  .pos_weight = (float)env->model->options.pos_weight,
                                  .training = true,
                                  .updates = true,
                                  .rule = rule.kind};
    return mst_chain_gpu_open(&env->model->gpu, self->chain, &spec, &self->net);
}

static void gpu_net_fini(mst_strategy *base)
{
    gpu_net *self = (gpu_net *)base;
    mst_team_destroy(self->team);
    mst_free(self->kept);
    mst_free(self->numbers);
    mst_free(self->crops);
    if (self->ops != NULL)
        self->ops->close(self->net);
    if (self->copy != NULL)
        base->env.model->gpu.ops->host_free(self->copy);
}

/* ---- parameters ---- */

/* The table of a net over embeddings, piece by piece. */
static mst_status gpu_net_copy_table(gpu_net *self, bool back)
{
    mst_params *params = self->base.env.params;
    const mst_view *view = &params->views[self->chain->table.view];
    for (uint32_t slot = 0; slot <= self->key_slots; slot++)
        for (uint64_t at = view->offset, first, count;
             mst_params_next_piece(params, slot, &at, view->offset + view->size, &first, &count);)
            for (uint64_t n; count > 0; first += n, count -= n) {
                uint64_t place = first - view->offset;
                n = count < COPY_FLOATS ? count : COPY_FLOATS;
                if (back) {
                    TRY(self->ops->read_table(self->net, slot, place, n, self->copy));
                    mst_params_write(params, slot, first, n, self->copy);
                } else {
                    mst_params_read(params, slot, first, n, self->copy);
                    TRY(self->ops->write_table(self->net, slot, place, n, self->copy));
                }
            }
    return MST_OK;
}

static mst_status gpu_net_copy(gpu_net *self, bool back)
{
    const mst_params *params = self->base.env.params;
    bool table = self->chain->table.width != 0;
    if (table)
        TRY(gpu_net_copy_table(self, back));
    for (uint32_t r = table; r < self->layout.n_ranges; r++) {
        const mst_range *range = &self->layout.ranges[r];
        uint32_t n_slots = range->state ? 0 : self->n_slots;
        for (uint32_t s = 0; s <= n_slots; s++) {
            float *at = (s == 0 ? params->w : params->slots[s - 1]) + range->offset;
            TRY(back ? self->ops->read(self->net, s, r, at) : self->ops->write(self->net, s, r, at));
        }
    }
    return MST_OK;
}

static mst_status gpu_net_settle(mst_strategy *base)
{
    gpu_net *self = (gpu_net *)base;
    if (!self->changed)
        return MST_OK;
    TRY(gpu_net_copy(self, true));
    self->changed = false;
    return MST_OK;
}

/* ---- rows ---- */

/* Copies rows [from, to) of the step to their places. False: a row is no image of bytes. */
static bool gpu_net_copy_rows(gpu_net *self, uint32_t from, uint32_t to)
{
    mst_batch share = {.rows = self->rows.rows + from, .n_rows = to - from};
    if (!self->images) {
        if (mst_rows_need_floats(&share, self->row_size) && !self->floats)
            return false;
        mst_rows_stage(self->base.env.model->kernels, &self->rows, from, to, self->row_size, self->floats,
                       &self->places);
        return true;
    }
    if (mst_rows_need_floats(&share, self->image_size))
        return false;
    for (uint32_t r = from; r < to; r++) {
        const mst_row *row = &self->rows.rows[r];
        memcpy(self->places.images + r * self->places.pitch, row->bytes, self->image_size);
        self->places.labels[r] = row->label;
        self->places.weights[r] = row->weight;
    }
    return true;
}

/* Thread t: takes rows of the step in turn, fills them and copies them to their places, as images, or as
 * bytes or numbers like the rows of the step before. Rows that do not fit that are copied again. */
static void gpu_net_share(void *arg, unsigned t)
{
    gpu_net *self = arg;
    uint32_t n = self->rows.n_rows, threads = self->team != NULL ? mst_team_size(self->team) : 1;
    uint32_t some = self->team != NULL ? n / (threads * TURNS) + 1 : n, from;
    while ((from = atomic_fetch_add_explicit(&self->next, some, memory_order_relaxed)) < n) {
        uint32_t to = n - from < some ? n : from + some, first = self->first;
        if (self->fill)
            self->status[t] = self->images ? mst_feed_fill_plain(self->feed, 0, first + from, first + to)
                                           : mst_feed_fill(self->feed, 0, first + from, first + to);
        if (self->status[t] != MST_OK) {
            mst_error_save(&self->errors[t], self->status[t]);
            return;
        }
        self->odd[t] |= !gpu_net_copy_rows(self, from, to);
    }
}

static void gpu_net_each(gpu_net *self, void (*fn)(void *arg, unsigned t))
{
    if (self->team != NULL)
        mst_team_run(self->team, fn, self);
    else
        fn(self, 0);
}

/* *odd: a row is no image of bytes. */
static mst_status gpu_net_share_out(gpu_net *self, bool fill, bool *odd)
{
    unsigned n = self->team != NULL ? mst_team_size(self->team) : 1;
    for (unsigned t = 0; t < n; t++) {
        self->status[t] = MST_OK;
        self->odd[t] = false;
    }
    self->fill = fill;
    atomic_store(&self->next, 0);
    gpu_net_each(self, gpu_net_share);
    *odd = false;
    for (unsigned t = 0; t < n; t++) {
        if (self->status[t] != MST_OK)
            return mst_error_restore(&self->errors[t]);
        *odd |= self->odd[t];
    }
    return MST_OK;
}

/* ---- keys ---- */

static void gpu_net_key_rows(const gpu_net *self, unsigned t, uint32_t *from, uint32_t *to)
{
    unsigned n = self->team != NULL ? mst_team_size(self->team) : 1;
    *from = (uint32_t)((uint64_t)self->rows.n_rows * t / n);
    *to = (uint32_t)((uint64_t)self->rows.n_rows * (t + 1) / n);
}

/* Thread t: fills its rows and counts their keys. */
static void gpu_net_count_keys(void *arg, unsigned t)
{
    gpu_net *self = arg;
    uint32_t from, to;
    gpu_net_key_rows(self, t, &from, &to);
    self->status[t] = from < to ? mst_feed_fill(self->feed, 0, self->first + from, self->first + to) : MST_OK;
    if (self->status[t] != MST_OK) {
        mst_error_save(&self->errors[t], self->status[t]);
        return;
    }
    self->n_entries[t] = mst_rows_count_keys(&self->rows, from, to);
    self->odd[t] = false;
    for (uint32_t r = from; self->kept != NULL && r < to; r++)
        self->odd[t] |= self->rows.rows[r].n_keys != self->row_keys;
}

static void gpu_net_copy_keys(void *arg, unsigned t)
{
    gpu_net *self = arg;
    uint32_t from, to;
    gpu_net_key_rows(self, t, &from, &to);
    mst_rows_stage_keys(&self->chain->table, &self->rows, from, to, self->n_entries[t], &self->places,
                        &self->entries);
}

/* ---- images ---- */

static void gpu_net_no_images(gpu_net *self)
{
    self->images = false;
    mst_free(self->kept);
    self->kept = NULL;
}

/* Whether the n_rows rows with keys of a dataset can stay on the GPU. */
static mst_status gpu_net_look_keys(gpu_net *self, uint64_t n_rows)
{
    bool keeps = false;
    if (n_rows != 0 && self->row_keys != 0 && self->chain->table.width != 0)
        TRY(self->ops->keep_rows(self->net, n_rows, self->row_keys, &keeps));
    if (keeps && (self->kept = mst_calloc(n_rows / 64 + 1, sizeof *self->kept)) == NULL)
        return mst_fail_memory();
    return MST_OK;
}

/* Whether the rows of a feed are images of bytes that the GPU can augment or keep. */
static mst_status gpu_net_look(gpu_net *self, mst_feed *feed)
{
    mst_cuda_images spec = {.channels = 1, .height = 1, .width = (uint32_t)self->row_size};
    const mst_augment *a = mst_feed_augment(feed);
    uint64_t size = a != NULL ? mst_augment_in(a) : self->row_size;
    mst_row row;
    mst_chunk *chunk;
    uint32_t n;
    bool keeps;
    if (self->looked != NULL) { /* other rows: the numbers of those that stay are not theirs */
        self->looked = feed;
        gpu_net_no_images(self);
        return MST_OK;
    }
    self->looked = feed;
    TRY(mst_feed_first_rows(feed, 1, &row, &n, &chunk));
    if (self->chain->table.n_keys != 0) {
        self->row_keys = n == 1 ? row.n_keys : 0;
        mst_chunk_release(chunk);
        return gpu_net_look_keys(self, mst_feed_numbers(feed, 0, 0, 0, NULL));
    }
    bool bytes = n == 1 && !mst_rows_need_floats(&(mst_batch){.rows = &row, .n_rows = 1}, size);
    mst_chunk_release(chunk);
    spec.n_rows = mst_feed_numbers(feed, 0, 0, 0, NULL);
    if (!bytes || (a == NULL && spec.n_rows == 0))
        return MST_OK;
    if (a != NULL) {
        spec.channels = a->channels;
        spec.height = a->in_height;
        spec.width = a->in_width;
        spec.normalise = a->normalise;
        for (uint32_t c = 0; c < a->channels; c++) {
            spec.scale[c] = mst_augment_scale(a, c, MST_AUGMENT_BYTE);
            spec.shift[c] = mst_augment_shift(a, c);
        }
    }
    spec.out_height = a != NULL ? a->height : 1;
    spec.out_width = a != NULL ? a->width : spec.width;
    mst_status st = self->ops->images(self->net, &spec, &keeps);
    if (st == MST_EUNSUPPORTED)
        return MST_OK;
    TRY(st);
    self->images = a != NULL || keeps;
    self->augment = a;
    self->image_size = size;
    if (keeps && (self->kept = mst_calloc(spec.n_rows / 64 + 1, sizeof *self->kept)) == NULL)
        return mst_fail_memory();
    return MST_OK;
}

static bool gpu_net_is_kept(const gpu_net *self, uint32_t number)
{
    return self->kept[number / 64] >> number % 64 & 1;
}

/* The picks of the step. Returns whether the GPU has all its rows. */
static bool gpu_net_pick(gpu_net *self)
{
    uint32_t n = self->rows.n_rows, first = self->first;
    bool all = self->kept != NULL;
    if (self->kept != NULL)
        mst_feed_numbers(self->feed, 0, first, first + n, self->numbers);
    if (self->augment != NULL)
        mst_feed_crops(self->feed, 0, first, first + n, self->crops);
    for (uint32_t r = 0; r < n; r++) {
        mst_cuda_pick pick = {.number = self->kept != NULL ? self->numbers[r] : 0};
        if (self->augment != NULL) {
            pick.y = (int32_t)self->crops[r].y;
            pick.x = (int32_t)self->crops[r].x;
            pick.mirror = self->crops[r].mirror;
        }
        self->places.picks[r] = pick;
        all = all && gpu_net_is_kept(self, pick.number);
    }
    return all;
}

/* The GPU has the rows of the step. */
static void gpu_net_keep(gpu_net *self)
{
    for (uint32_t r = 0; self->kept != NULL && r < self->rows.n_rows; r++)
        self->kept[self->numbers[r] / 64] |= 1ull << self->numbers[r] % 64;
}

/* The rows of a step of a net over embeddings. */
static mst_status gpu_net_stage_keys(gpu_net *self, mst_cuda_source *source)
{
    unsigned n = self->team != NULL ? mst_team_size(self->team) : 1;
    uint64_t all = 0;
    bool odd = false;
    *source = MST_CUDA_KEPT;
    self->floats = true;
    if (self->kept != NULL && gpu_net_pick(self))
        return MST_OK;
    gpu_net_each(self, gpu_net_count_keys);
    for (unsigned t = 0; t < n; t++) {
        if (self->status[t] != MST_OK)
            return mst_error_restore(&self->errors[t]);
        uint64_t of = self->n_entries[t];
        self->n_entries[t] = all;
        all += of;
        odd |= self->odd[t];
    }
    if (self->chain->table.width != 0)
        TRY(self->ops->entries(self->net, all, &self->entries));
    gpu_net_each(self, gpu_net_copy_keys);
    if (odd)
        gpu_net_no_images(self);
    *source = self->kept != NULL ? MST_CUDA_IMAGES : MST_CUDA_ROWS;
    gpu_net_keep(self);
    return MST_OK;
}

/* Fills and copies the rows of a step, which begin at row `first` of the claim. */
static mst_status gpu_net_stage(gpu_net *self, const mst_batch *rows, uint32_t first, mst_cuda_source *source)
{
    bool odd;
    TRY(self->ops->stage(self->net, &self->places));
    self->rows = *rows;
    self->first = first;
    if (self->chain->table.n_keys != 0)
        return gpu_net_stage_keys(self, source);
    *source = MST_CUDA_KEPT;
    if (self->images && gpu_net_pick(self))
        return MST_OK;
    *source = self->images ? MST_CUDA_IMAGES : MST_CUDA_ROWS;
    TRY(gpu_net_share_out(self, true, &odd));
    if (self->images && !odd) {
        gpu_net_keep(self);
        return MST_OK;
    }
    if (!odd)
        return MST_OK;
    bool filled = !self->images;
    gpu_net_no_images(self);
    *source = MST_CUDA_ROWS;
    if (!filled)
        TRY(gpu_net_share_out(self, true, &odd));
    if (!odd)
        return MST_OK;
    self->floats = true; /* from now on: bytes may be numbers, but not the reverse */
    return gpu_net_share_out(self, false, &odd);
}

/* ---- steps ---- */

static mst_status gpu_net_step(gpu_net *self, const mst_batch *rows, uint32_t first, uint64_t step)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    const mst_optimizer *of_keys = mst_optimizer_of_keys(optimizer);
    mst_update u = mst_optimizer_update(optimizer, step), keys = mst_update_of_keys(optimizer, &u);
    mst_pass pass = {.training = true, .seed = self->base.env.seed, .step = step};
    mst_span_enter(MST_PHASE_PREPARE);
    mst_cuda_source source;
    TRY(gpu_net_stage(self, rows, first, &source));
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_chain_gpu_dropout(self->chain, &pass, self->dropout);
    mst_cuda_step numbers = {.n_rows = rows->n_rows,
                             .source = source,
                             .floats = self->floats,
                             .scale = 1.0f / (float)rows->n_rows,
                             .dropout = self->dropout,
                             .rule = optimizer->ops->rule(optimizer, &u),
                             .rule_keys = of_keys->ops->rule(of_keys, &keys),
                             .clip_norm = optimizer->options.clip_norm};
    self->changed = true;
    return self->ops->step(self->net, &numbers);
}

/* Claims rows for some steps and enqueues these; *over when there are none within the budget. */
static mst_status gpu_net_claim(gpu_net *self, const mst_budget *budget, uint64_t first_step,
                                uint64_t first_row, mst_progress *p, bool *over)
{
    uint64_t steps = budget->steps - (p->steps - first_step), rows = budget->rows - (p->rows - first_row),
             most = mst_span_most_steps(p->steps + 1), position;
    most = most < self->claim_steps ? most : self->claim_steps;
    uint64_t want = (uint64_t)self->batch * (steps < most ? steps : most);
    mst_batch claim;
    bool more;
    want = want < rows ? want : rows;
    *over = true;
    if (want == 0 || mst_budget_over(budget))
        return MST_OK;
    mst_span_enter(MST_PHASE_PREPARE);
    TRY(mst_feed_claim_by(self->feed, 0, (uint32_t)want, self->batch, budget->deadline_ns, &claim, &position,
                          &more));
    p->epoch_ended = !more;
    if (claim.n_rows == 0)
        return MST_OK;
    mst_span_together(p->steps + 1, (claim.n_rows + self->batch - 1) / self->batch);
    for (uint32_t at = 0; at < claim.n_rows; at += self->batch) {
        mst_batch batch = mst_batch_range(&claim, at, self->batch);
        TRY(gpu_net_step(self, &batch, at, p->steps + 1));
        p->steps++;
        p->rows += batch.n_rows;
        p->position = position + at + batch.n_rows;
        mst_span_steps(1, batch.n_rows);
    }
    *over = !more;
    return MST_OK;
}

static mst_status gpu_net_run(mst_strategy *base, mst_feed *feed, const mst_budget *budget,
                              mst_progress *progress)
{
    gpu_net *self = (gpu_net *)base;
    uint64_t first_step = progress->steps, first_row = progress->rows;
    mst_cuda_loss loss;
    bool over = false;
    mst_status st = MST_OK;
    mst_spans_attach(base->env.spans, 0, MST_PHASE_PREPARE);
    self->feed = feed;
    if (!self->there)
        st = gpu_net_copy(self, false);
    self->there = st == MST_OK;
    if (st == MST_OK && self->looked != feed)
        st = gpu_net_look(self, feed);
    while (st == MST_OK && !over)
        st = gpu_net_claim(self, budget, first_step, first_row, progress, &over);
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_error error;
    mst_error_save(&error, st);
    mst_status ended = self->ops->losses(self->net, &loss); /* also after a failure: no step is under way */
    mst_span_enter(MST_PHASE_IDLE);
    if (st != MST_OK)
        return mst_error_restore(&error);
    TRY(ended);
    mst_add_loss(&progress->loss, &(mst_loss_sum){.loss = loss.loss,
                                                  .weight = loss.weight,
                                                  .rows = progress->rows - first_row,
                                                  .correct = loss.correct});
    return MST_OK;
}

const mst_strategy_ops mst_strategy_gpu_net = {
    .size = sizeof(gpu_net),
    .init = gpu_net_init,
    .run = gpu_net_run,
    .fini = gpu_net_fini,
    .settle = gpu_net_settle,
};
