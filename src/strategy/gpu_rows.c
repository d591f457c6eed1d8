/* Rows for sparse models on a GPU; contract in gpu_rows.h.
 *
 * Invariants
 * 1. Blocks form a ring: packed ones are [n_used, n_packed), modulo the number of blocks. The thread changes
 * n_packed, the caller n_used. The GPU prepares, or has prepared, those before n_prepared: the caller asks it
 * to, since the thread is the busier one; the thread does before it drops records.
 * 2. Blocks begin with a step. Only the last block of an epoch, or of the rows of resume, has a short step.
 */
#include "strategy/gpu_rows.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/team.h"
#include "strategy/gpu_records.h"

#define LOOK_NS    (MST_S / 10) /* between looks for rows of a live dataset */
#define SPARSE_ROW 64           /* dense numbers from which zeros are left out of a row */

/* The share of a thread in a block. */
typedef struct rows_share {
    _Alignas(64) uint32_t first_entry, n_entries, row_entries;
    uint64_t n_dense, n_all; /* of all rows: dense numbers, entries */
    bool uniform, weighted, valued, distinct_fields, fill_head;
    bool apart; /* all rows have the whole head, which is an array of the block */
    mst_status status;
    mst_error error;
} rows_share;

struct mst_gpu_rows {
    mst_gpu_rows_options options;
    bool factors, fields, drop_zeros;
    bool apart;     /* the GPU takes the head as an array */
    mst_team *team; /* NULL until rows are packed */
    rows_share *shares;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool leaving, wanted, busy, ended; /* wanted: resume was called; ended: the epoch has no more rows */
    bool preparing;                    /* one of the two threads */
    uint64_t n_packed, n_prepared, n_used, rows_left;
    uint64_t position; /* by order: of the next row to pack */
    bool begins;       /* no row was packed since resume, and no block is ready */
    mst_gpu_block blocks[MST_CUDA_SPARSE_SLOTS];
    bool held[MST_CUDA_SPARSE_SLOTS]; /* the rows of the block are records on the GPU */
    mst_error error;                  /* code MST_OK: none */
    mst_feed *feed;

    /* The thread's own: */
    mst_gpu_records *records; /* on the GPU; NULL: rows are packed */
    mst_feed *records_feed;   /* the feed that `records` was made for, or none could be */
    mst_batch claim;
    mst_cuda_sparse_rows *rows;
};

/* ---- packing ---- */

/* Adds one entry to the row of a block, or counts it (rows NULL). */
typedef struct rows_cursor {
    mst_cuda_sparse_rows *rows;
    uint32_t at;
    int64_t last_field;
    bool distinct, apart;
} rows_cursor;

static inline void rows_put(rows_cursor *c, uint32_t key, float x, uint32_t field)
{
    if (c->rows != NULL) {
        c->rows->keys[c->at] = key;
        if (c->rows->valued)
            c->rows->values[c->at] = x;
        if (c->rows->fielded)
            c->rows->fields[c->at] = (uint16_t)field;
    }
    c->distinct &= (int64_t)field > c->last_field;
    c->last_field = field;
    c->at++;
}

/* Entries of a linear model. */
static void rows_put_linear(const mst_gpu_rows *self, const mst_row *row, rows_cursor *c)
{
    for (uint32_t i = 0; i < row->n_dense && !c->apart; i++) {
        float x = mst_row_dense(row, i);
        if (x != 0.0f || !self->drop_zeros)
            rows_put(c, i, x, 0);
    }
    if (c->rows == NULL) {
        c->at += row->n_keys;
        return;
    }
    memcpy(c->rows->keys + c->at, row->keys, row->n_keys * sizeof *row->keys);
    if (c->rows->valued && row->values != NULL)
        memcpy(c->rows->values + c->at, row->values, row->n_keys * sizeof *row->values);
    else if (c->rows->valued)
        for (uint32_t i = 0; i < row->n_keys; i++)
            c->rows->values[c->at + i] = 1.0f;
    c->at += row->n_keys;
}

static uint32_t rows_field(const mst_gpu_rows *self, uint32_t field)
{
    return field < self->options.model->shape.n_fields ? field : 0; /* a mapped file may have changed */
}

/* The sum of the squares of the values: of --row-norm. */
static float rows_scale(const mst_cuda_sparse_rows *rows, uint32_t from, uint32_t to)
{
    float sum = 0.0f;
    for (uint32_t i = from; i < to; i++)
        sum += rows->values[i] * rows->values[i];
    return sum > 0.0f ? 1.0f / sqrtf(sum) : 1.0f;
}

/* Entries of a second-order model: a key that repeats counts once, with the sum of its values. */
static void rows_put_terms(const mst_gpu_rows *self, const mst_row *row, rows_cursor *c)
{
    uint32_t last = UINT32_MAX, last_field = 0, from = c->at;
    c->last_field = -1;
    for (uint32_t i = 0; i < row->n_dense; i++)
        rows_put(c, i, mst_row_dense(row, i), rows_field(self, i));
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = row->keys[i], field = self->fields ? rows_field(self, mst_row_field(row, i)) : 0;
        float x = row->values != NULL ? row->values[i] : 1.0f;
        if (key == last && field == last_field) {
            if (c->rows != NULL)
                c->rows->values[c->at - 1] += x;
            continue;
        }
        last = key;
        last_field = field;
        rows_put(c, key, x, field);
    }
    if (self->options.model->options.row_norm && c->rows != NULL) {
        float by = rows_scale(c->rows, from, c->at);
        for (uint32_t i = from; i < c->at; i++)
            c->rows->values[i] *= by;
    }
}

static void rows_put_row(const mst_gpu_rows *self, const mst_row *row, rows_cursor *c)
{
    if (self->factors)
        rows_put_terms(self, row, c);
    else
        rows_put_linear(self, row, c);
}

static void rows_bounds(const mst_gpu_rows *self, unsigned t, uint32_t *from, uint32_t *to)
{
    unsigned n = self->options.n_threads;
    *from = (uint32_t)((uint64_t)self->claim.n_rows * t / n);
    *to = (uint32_t)((uint64_t)self->claim.n_rows * (t + 1) / n);
}

/* Whether a row of a second-order model may have a repeated key, whose values are added up. */
static bool rows_repeats(const mst_row *row)
{
    for (uint32_t i = 1; i < row->n_keys; i++)
        if (row->keys[i] == row->keys[i - 1])
            return true;
    return false;
}

/* Thread t: makes its rows readable and measures them. */
static void rows_measure(void *arg, unsigned t)
{
    mst_gpu_rows *self = arg;
    rows_share *s = &self->shares[t];
    uint32_t from, to;
    rows_bounds(self, t, &from, &to);
    *s = (rows_share){.uniform = true, .distinct_fields = true, .apart = self->apart};
    s->status = from < to ? mst_feed_fill(self->feed, 0, from, to) : MST_OK;
    if (s->status != MST_OK) {
        mst_error_save(&s->error, s->status);
        return;
    }
    bool norm = self->options.model->options.row_norm;
    rows_cursor c = {.distinct = true, .apart = self->apart};
    for (uint32_t i = from; i < to; i++) {
        const mst_row *row = &self->claim.rows[i];
        uint32_t before = c.at;
        rows_put_row(self, row, &c);
        if (i == from)
            s->row_entries = c.at;
        s->uniform &= c.at - before == s->row_entries;
        s->weighted |= row->weight != 1.0f;
        s->apart &= row->n_dense == self->options.head;
        s->n_dense += row->n_dense;
        s->valued |= row->values != NULL || norm || (self->factors && rows_repeats(row));
        s->fill_head |= row->n_dense < self->options.head || self->drop_zeros;
    }
    s->n_entries = c.at;
    s->distinct_fields = c.distinct;
}

/* Thread t: writes its rows to the block. */
static void rows_write(void *arg, unsigned t)
{
    mst_gpu_rows *self = arg;
    mst_cuda_sparse_rows *rows = self->rows;
    uint32_t from, to;
    rows_bounds(self, t, &from, &to);
    rows_cursor c = {.rows = rows, .at = self->shares[t].first_entry, .apart = rows->n_dense != 0};
    for (uint32_t i = from; i < to; i++) {
        const mst_row *row = &self->claim.rows[i];
        rows_put_row(self, row, &c);
        for (uint32_t j = 0; j < rows->n_dense; j++)
            rows->dense[(size_t)i * rows->n_dense + j] = mst_row_dense(row, j);
        rows->labels[i] = row->label;
        rows->weights[i] = row->weight;
        rows->ends[i] = c.at;
    }
}

/* Runs a function in every thread of the team, whose threads cost time while they wait. */
static mst_status rows_team(mst_gpu_rows *self, mst_team_fn *fn)
{
    if (self->team == NULL)
        TRY(mst_team_new(self->options.n_threads, &self->team));
    mst_team_run(self->team, fn, self);
    return MST_OK;
}

static mst_status rows_fail_entries(uint32_t n_rows)
{
    return mst_fail(MST_EINPUT,
                    "a block of %u rows has more than %u keys, the most that --device cuda takes; "
                    "reduce --batch or use --device cpu",
                    n_rows, MST_CUDA_SPARSE_ENTRIES);
}

/* The shares of all threads make a block. */
static mst_status rows_add_shares(mst_gpu_rows *self, uint32_t at)
{
    uint64_t n_entries = 0;
    bool first = true;
    rows_share all = {.uniform = true, .distinct_fields = true, .apart = self->apart};
    for (unsigned t = 0; t < self->options.n_threads; t++)
        all.apart &= self->shares[t].apart;
    for (unsigned t = 0; t < self->options.n_threads; t++) {
        rows_share *s = &self->shares[t];
        uint32_t from, to;
        rows_bounds(self, t, &from, &to);
        if (s->status != MST_OK)
            return mst_error_restore(&s->error);
        if (from == to)
            continue;
        if (self->apart && !all.apart) { /* the numbers are entries after all */
            s->n_entries += (uint32_t)s->n_dense;
            s->uniform = false;
        }
        if (first)
            all.row_entries = s->row_entries;
        first = false;
        s->first_entry = (uint32_t)n_entries;
        n_entries += s->n_entries;
        all.uniform &= s->uniform && s->row_entries == all.row_entries;
        all.weighted |= s->weighted;
        all.valued |= s->valued || (s->n_dense != 0 && !all.apart);
        all.distinct_fields &= s->distinct_fields;
        all.fill_head |= s->fill_head;
        if (n_entries > MST_CUDA_SPARSE_ENTRIES)
            return rows_fail_entries(self->claim.n_rows);
    }
    TRY(self->options.ops->reserve(self->options.gpu, at, self->claim.n_rows, (uint32_t)n_entries,
                                   &self->rows));
    mst_cuda_sparse_rows *rows = self->rows;
    rows->n_rows = self->claim.n_rows;
    rows->n_entries = (uint32_t)n_entries;
    rows->n_dense = all.apart ? self->options.head : 0;
    rows->row_entries = all.uniform ? all.row_entries : 0;
    rows->weighted = all.weighted;
    rows->valued = all.valued;
    rows->fielded = self->fields;
    rows->distinct_fields = all.distinct_fields;
    rows->fill_head = all.fill_head && self->options.head != 0;
    return MST_OK;
}

/* ---- rows of records on the GPU ---- */

/* Thread t: the ends of its rows' entries, from 0 on. */
static void rows_find_ends(void *arg, unsigned t)
{
    mst_gpu_rows *self = arg;
    uint32_t from, to;
    uint64_t n = 0;
    rows_bounds(self, t, &from, &to);
    for (uint32_t i = from; i < to; i++) {
        n += mst_gpu_records_entries(self->records, self->rows->numbers[i]);
        self->rows->ends[i] = (uint32_t)(n < UINT32_MAX ? n : UINT32_MAX);
    }
    self->shares[t].n_all = n;
}

/* Thread t: the same from the entries of the threads before it on. */
static void rows_move_ends(void *arg, unsigned t)
{
    mst_gpu_rows *self = arg;
    uint32_t from, to;
    rows_bounds(self, t, &from, &to);
    for (uint32_t i = from; i < to; i++)
        self->rows->ends[i] += self->shares[t].first_entry;
}

/* Describes a block of the rows whose numbers it has. */
static mst_status rows_describe_held(mst_gpu_rows *self, uint32_t n)
{
    const mst_gpu_rows_options *o = &self->options;
    mst_gpu_records_describe(self->records, n, self->rows);
    uint64_t n_entries = (uint64_t)n * self->rows->row_entries;
    if (self->rows->row_entries == 0) {
        self->claim.n_rows = n;
        TRY(rows_team(self, rows_find_ends));
        for (unsigned t = 0; t < o->n_threads && n_entries <= MST_CUDA_SPARSE_ENTRIES; t++) {
            self->shares[t].first_entry = (uint32_t)n_entries;
            n_entries += self->shares[t].n_all;
        }
        TRY(rows_team(self, rows_move_ends));
    }
    if (n_entries > MST_CUDA_SPARSE_ENTRIES)
        return rows_fail_entries(n);
    self->rows->n_entries = (uint32_t)n_entries;
    return MST_OK;
}

/* The next rows by their order alone; *usable is false if they have to be claimed. */
static mst_status rows_pack_order(mst_gpu_rows *self, uint32_t at, uint64_t want, mst_gpu_block *block,
                                  bool *more, bool *usable)
{
    const mst_gpu_rows_options *o = &self->options;
    uint64_t left = mst_feed_epoch_rows(self->feed) - self->position;
    uint32_t n = (uint32_t)(want < left ? want : left);
    *more = n == want;
    *usable = true;
    block->position = self->position;
    block->n_rows = n;
    if (n == 0)
        return MST_OK;
    TRY(mst_gpu_records_wait(self->records, self->position + n, usable));
    if (!*usable)
        return MST_OK;
    TRY(o->ops->reserve_held(o->gpu, at, n, &self->rows));
    TRY(mst_gpu_records_numbers(self->records, self->position, n, self->rows->numbers));
    return rows_describe_held(self, n);
}

/* Thread t: numbers its rows of the claim. */
static void rows_number(void *arg, unsigned t)
{
    mst_gpu_rows *self = arg;
    uint32_t from, to;
    rows_bounds(self, t, &from, &to);
    mst_feed_numbers(self->feed, 0, from, to, self->rows->numbers + from);
}

/* The rows of the claim. */
static mst_status rows_pack_claim(mst_gpu_rows *self, uint32_t at, const mst_gpu_block *block, bool *usable)
{
    const mst_gpu_rows_options *o = &self->options;
    TRY(mst_gpu_records_wait(self->records, block->position + block->n_rows, usable));
    if (!*usable)
        return MST_OK;
    TRY(o->ops->reserve_held(o->gpu, at, block->n_rows, &self->rows));
    TRY(rows_team(self, rows_number));
    return rows_describe_held(self, block->n_rows);
}

/* Under the mutex, which is released meanwhile: lets the GPU prepare the next packed block. */
static mst_status rows_prepare(mst_gpu_rows *self)
{
    const mst_gpu_rows_options *o = &self->options;
    uint32_t at = (uint32_t)(self->n_prepared % MST_CUDA_SPARSE_SLOTS);
    if (self->preparing) {
        mst_cond_wait(&self->changed, &self->mutex, UINT64_MAX);
        return MST_OK;
    }
    self->preparing = true;
    pthread_mutex_unlock(&self->mutex);
    mst_status st = (self->held[at] ? o->ops->prepare_held : o->ops->prepare)(o->gpu, at);
    pthread_mutex_lock(&self->mutex);
    self->preparing = false;
    self->n_prepared += st == MST_OK;
    pthread_cond_broadcast(&self->changed);
    return st;
}

/* Blocks of records are prepared before. */
static mst_status rows_drop_records(mst_gpu_rows *self)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&self->mutex);
    while (self->n_prepared < self->n_packed && st == MST_OK)
        st = rows_prepare(self);
    pthread_mutex_unlock(&self->mutex);
    mst_gpu_records_destroy(self->records);
    self->records = NULL;
    return st;
}

/* The GPU has room for the records of the feed, if it can take them. */
static mst_status rows_hold(mst_gpu_rows *self)
{
    const mst_gpu_rows_options *o = &self->options;
    if (self->records_feed == self->feed)
        return MST_OK;
    TRY(rows_drop_records(self));
    mst_gpu_records_options records = {.ops = o->ops,
                                       .gpu = o->gpu,
                                       .model = o->model,
                                       .head = o->head,
                                       .apart = self->apart,
                                       .n_threads = o->n_threads};
    TRY(mst_gpu_records_new(&records, self->feed, &self->records));
    self->records_feed = self->feed;
    return MST_OK;
}

/* An epoch, or its rest, begins. */
static mst_status rows_begin(mst_gpu_rows *self)
{
    TRY(rows_hold(self));
    if (self->records != NULL)
        mst_gpu_records_begin(self->records, self->position);
    return MST_OK;
}

/* ---- the thread ---- */

/* Packs the next rows, at most `most`, into block `at`; n_rows 0: there are none now. */
static mst_status rows_pack(mst_gpu_rows *self, uint32_t at, uint64_t most, mst_gpu_block *block, bool *more)
{
    const mst_gpu_rows_options *o = &self->options;
    uint64_t want = (uint64_t)o->batch * o->block_steps;
    bool usable = true;
    want = want < most ? want : most;
    *block = (mst_gpu_block){.at = at};
    self->held[at] = true;
    if (self->begins)
        TRY(rows_begin(self));
    self->begins = false;
    if (self->records != NULL && mst_gpu_records_ordered(self->records)) {
        TRY(rows_pack_order(self, at, want, block, more, &usable));
        if (usable)
            return MST_OK;
        TRY(rows_drop_records(self)); /* the rest of the epoch is claimed */
        TRY(mst_feed_start_range(self->feed, mst_feed_epoch(self->feed), self->position, UINT64_MAX));
    }
    TRY(mst_feed_claim_by(self->feed, 0, (uint32_t)want, o->batch, mst_now_ns() + LOOK_NS, &self->claim,
                          &block->position, more));
    block->n_rows = self->claim.n_rows;
    if (block->n_rows == 0)
        return MST_OK;
    if (self->records != NULL) {
        TRY(rows_pack_claim(self, at, block, &usable));
        if (usable)
            return MST_OK;
        TRY(rows_drop_records(self));
    }
    self->held[at] = false;
    TRY(rows_team(self, rows_measure));
    TRY(rows_add_shares(self, at));
    return rows_team(self, rows_write);
}

static bool rows_can_pack(const mst_gpu_rows *self)
{
    return self->wanted && !self->ended && self->error.code == MST_OK && self->rows_left > 0 &&
           self->n_packed - self->n_used < MST_CUDA_SPARSE_SLOTS;
}

static void *rows_main(void *arg)
{
    mst_gpu_rows *self = arg;
    pthread_mutex_lock(&self->mutex);
    while (!self->leaving) {
        if (!rows_can_pack(self)) {
            mst_cond_wait(&self->changed, &self->mutex, UINT64_MAX);
            continue;
        }
        mst_gpu_block block;
        bool more = true;
        uint32_t at = (uint32_t)(self->n_packed % MST_CUDA_SPARSE_SLOTS);
        uint64_t most = self->rows_left;
        self->busy = true;
        pthread_mutex_unlock(&self->mutex);
        mst_status st = rows_pack(self, at, most, &block, &more);
        pthread_mutex_lock(&self->mutex);
        self->busy = false;
        if (st != MST_OK)
            mst_error_save(&self->error, st);
        self->ended = !more;
        if (st == MST_OK && block.n_rows != 0) {
            self->rows_left -= block.n_rows;
            self->position = block.position + block.n_rows;
            self->blocks[at] = block;
            self->n_packed++;
        }
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

/* ---- life ---- */

void mst_gpu_rows_destroy(mst_gpu_rows *self)
{
    if (self == NULL)
        return;
    mst_cond_set(&self->changed, &self->mutex, &self->leaving);
    if (self->started)
        pthread_join(self->thread, NULL);
    mst_team_destroy(self->team);
    mst_free(self->shares);
    mst_gpu_records_destroy(self->records);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    mst_free(self);
}

mst_status mst_gpu_rows_new(const mst_gpu_rows_options *options, mst_gpu_rows **out)
{
    const mst_model_ops *model = options->model->ops;
    mst_status st = MST_OK;
    mst_gpu_rows *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->factors = mst_model_has(model, MST_MODEL_FACTORS);
    self->fields = mst_model_has(model, MST_MODEL_FIELDS);
    self->drop_zeros = !self->factors && options->head > SPARSE_ROW;
    self->apart = model->gpu_kind == MST_CUDA_LOGREG && options->head != 0 &&
                  options->head <= MST_CUDA_SPARSE_DENSE && !options->splits;
    mst_cond_init(&self->changed);
    pthread_mutex_init(&self->mutex, NULL);
    self->shares = mst_alloc_lines(options->n_threads * sizeof *self->shares);
    if (self->shares == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    if (pthread_create(&self->thread, NULL, rows_main, self) != 0) {
        st = mst_fail(MST_EIO, "cannot start the thread that packs rows for the GPU");
        goto out;
    }
    self->started = true;
    *out = self;
    self = NULL;
out:
    mst_gpu_rows_destroy(self);
    return st;
}

/* ---- the training thread ---- */

mst_status mst_gpu_rows_ready(mst_gpu_rows *self, mst_feed *feed, const mst_cuda_sparse_rules *rules)
{
    const mst_gpu_rows_options *o = &self->options;
    uint64_t n = (uint64_t)o->batch * o->block_steps, all = mst_feed_epoch_rows(feed);
    n = n < all ? n : all;
    self->feed = feed; /* the thread is idle */
    TRY(rows_hold(self));
    bool known = self->records != NULL && mst_gpu_records_uniform(self->records) && n > 0;
    for (uint32_t at = 0; at < MST_CUDA_SPARSE_SLOTS && known; at++) {
        TRY(o->ops->reserve_held(o->gpu, at, (uint32_t)n, &self->rows));
        memset(self->rows->numbers, 0, n * sizeof *self->rows->numbers);
        TRY(rows_describe_held(self, (uint32_t)n));
        TRY(o->ops->rehearse(o->gpu, at, (uint32_t)((n + o->batch - 1) / o->batch), rules));
    }
    return MST_OK;
}

void mst_gpu_rows_resume(mst_gpu_rows *self, mst_feed *feed, uint64_t rows, uint64_t position)
{
    uint64_t ready = 0;
    pthread_mutex_lock(&self->mutex);
    self->feed = feed;
    for (uint64_t i = self->n_used; i < self->n_packed; i++)
        ready += self->blocks[i % MST_CUDA_SPARSE_SLOTS].n_rows;
    if (ready == 0) {
        self->begins = self->ended || position != self->position || self->n_packed == 0;
        self->ended = false;
        self->position = position;
    }
    self->rows_left = rows > ready ? rows - ready : 0;
    self->wanted = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

void mst_gpu_rows_pause(mst_gpu_rows *self)
{
    pthread_mutex_lock(&self->mutex);
    self->wanted = false;
    while (self->busy)
        mst_cond_wait(&self->changed, &self->mutex, UINT64_MAX);
    pthread_mutex_unlock(&self->mutex);
    mst_gpu_records_pause(self->records);
}

mst_status mst_gpu_rows_next(mst_gpu_rows *self, uint64_t deadline_ns, const mst_gpu_block **out, bool *ended)
{
    mst_status st = MST_OK;
    *out = NULL;
    *ended = false;
    pthread_mutex_lock(&self->mutex);
    for (;;) {
        if (self->n_used < self->n_prepared) {
            *out = &self->blocks[self->n_used % MST_CUDA_SPARSE_SLOTS];
            break;
        }
        if (self->n_used < self->n_packed) {
            st = rows_prepare(self);
            if (st != MST_OK)
                break;
            continue;
        }
        if (self->error.code != MST_OK) {
            st = mst_error_restore(&self->error);
            break;
        }
        *ended = self->ended;
        if (*ended || (!self->busy && self->rows_left == 0) || mst_now_ns() >= deadline_ns)
            break;
        mst_cond_wait(&self->changed, &self->mutex, deadline_ns);
    }
    pthread_mutex_unlock(&self->mutex);
    return st;
}

void mst_gpu_rows_release(mst_gpu_rows *self)
{
    pthread_mutex_lock(&self->mutex);
    self->n_used++;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

mst_status mst_gpu_rows_explain(mst_gpu_rows *self)
{
    return self->records != NULL ? mst_gpu_records_explain(self->records) : MST_OK;
}
