/* The records of a dataset on a GPU; contract in gpu_records.h.
 *
 * Invariants
 * 1. A chunk is taken by one thread, in the order of the epoch, copied into the load that is open, and sent
 * once, by the thread that copied the last chunk of the load.
 * 2. order[0, ready) are sent. No chunk at or beyond `want` + AHEAD is taken.
 * 3. The first failure in the order is kept. No chunk is taken or sent after it.
 * 4. Windows [window, next_window) are numbered or being numbered, each in the slot of its number modulo
 * WINDOWS.
 * 5. A thread without work waits for `work`, the caller for `arrived`. A copied chunk, one of 100,000 in a
 * second, wakes no thread. */
#include "strategy/gpu_records.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/fault.h"
#include "observe/cpu_quota.h"

#define LANES      32
#define AHEAD      256 /* chunks */
#define SPARSE_ROW 64  /* dense numbers from which zeros are left out of a row of a linear model */
#define PATIENCE_S 600
#define LOOK_NS    (20 * MST_MS) /* between looks at the files */
#define WINDOWS    256
#define AHEAD_ROWS (2u << 20) /* numbered ahead, unless a window has more */

enum { CHUNK_ABSENT, CHUNK_TAKEN, CHUNK_SENT };

/* Chunks that are copied to the GPU at once. */
typedef struct records_load {
    enum { LOAD_FREE, LOAD_STAGING, LOAD_OPEN, LOAD_CLOSED } state; /* closed: it takes no more chunks */
    uint32_t *words;
    uint64_t n_words;
    uint32_t n, n_copied;
    mst_cuda_sparse_part parts[MST_CUDA_SPARSE_PARTS];
} records_load;

/* The numbers of the rows of a window. */
typedef struct records_window {
    uint64_t first, end; /* positions */
    uint32_t *numbers;
    size_t capacity;
    bool ready;
} records_window;

typedef struct records_lane {
    mst_gpu_records *self;
    pthread_t thread;
    uint64_t look_ns, faults;
} records_lane;

struct mst_gpu_records {
    mst_gpu_records_options options;
    bool factors, fields;
    mst_feed *feed;
    mst_dataset *dataset;
    mst_chunk **chunks; /* of the dataset; held */
    uint64_t *n_words;  /* of chunks, on the GPU */
    uint32_t *strides;
    mst_cuda_sparse_records layout;
    uint32_t row_entries; /* 0: rows differ */
    bool held;
    records_lane lanes[LANES];
    unsigned n_lanes;

    pthread_mutex_t mutex;
    pthread_cond_t work, arrived;
    bool leaving, paused, unusable;
    bool distinct_fields; /* of all chunks that were sent */
    unsigned n_busy;
    uint64_t position; /* of the first chunk of the order */
    uint32_t *order, n_order, next, ready, want;
    uint8_t *states;   /* of chunks */
    mst_error error;   /* code MST_OK: none */
    uint32_t error_at; /* place in the order */
    uint64_t sent_ns;  /* when the last chunk was sent */
    records_load loads[MST_CUDA_SPARSE_LOADS];
    uint32_t load; /* that takes chunks, or will */
    bool staging;
    pthread_mutex_t send_mutex; /* taken alone */

    bool ordered;
    records_window windows[WINDOWS];
    uint64_t window, next_window,
        next_position;    /* the first one in use; the next one, and its first position */
    uint32_t next_chunks; /* before it in the order */
};

/* ---- chunks ---- */

/* Words of a chunk on the GPU. */
static uint64_t records_words(const mst_chunk *c)
{
    if (c->arrays == NULL)
        return c->n_words + (c->stride != 0 ? 0 : (uint64_t)c->n_rows + 1);
    const mst_row_arrays *a = c->arrays;
    uint64_t n = 0;
    if (a->starts == NULL)
        return (uint64_t)c->n_rows * mst_chunk_head_words(c);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        uint64_t keys = mst_array_start(a, c->array_row + i + 1) - mst_array_start(a, c->array_row + i);
        n += mst_chunk_head_words(c) + mst_chunk_key_words(c, keys - a->prefix);
    }
    return n + c->n_rows + 1;
}

static uint32_t records_stride(const mst_chunk *c)
{
    return c->arrays == NULL ? c->stride : c->arrays->starts == NULL ? mst_chunk_head_words(c) : 0;
}

/* The record of a row that is in arrays; returns its words. */
static uint32_t records_write_row(const mst_chunk *c, const mst_row *row, uint32_t *out)
{
    uint32_t head = mst_chunk_head_words(c), *dense = out + 1 + c->has_weights;
    uint64_t n = mst_chunk_key_words(c, row->n_keys);
    memcpy(out, &row->label, 4);
    /* NOLINTBEGIN(clang-analyzer-core.NonNullParamChecker): rows of arrays have the parts of their chunk */
    if (c->has_weights)
        memcpy(out + 1, &row->weight, 4);
    if (c->n_dense != 0)
        memcpy(dense, row->bytes != NULL ? (const void *)row->bytes : (const void *)row->dense,
               (size_t)c->n_dense * (row->bytes != NULL ? 1 : 4));
    if (row->n_keys != 0) {
        memcpy(out + head, row->keys, row->n_keys * 4ul);
        if (c->has_values)
            memcpy(out + head + row->n_keys, row->values, row->n_keys * 4ul);
        if (c->has_fields)
            memcpy(out + head + (c->has_values ? 2ul : 1ul) * row->n_keys, row->fields, row->n_keys * 2ul);
    }
    /* NOLINTEND(clang-analyzer-core.NonNullParamChecker) */
    return head + (uint32_t)n;
}

static void records_write(const mst_chunk *c, uint64_t n_words, uint32_t *out)
{
    if (c->arrays == NULL) { /* the positions of records follow them */
        memcpy(out, c->words, c->n_words * sizeof *out);
        if (c->stride == 0)
            memcpy(out + c->n_words, c->offsets, ((size_t)c->n_rows + 1) * sizeof *out);
        return;
    }
    uint32_t *positions = out + n_words - (c->n_rows + 1), at = 0;
    bool ragged = records_stride(c) == 0;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        if (ragged)
            positions[i] = at;
        at += records_write_row(c, &row, out + at);
    }
    if (ragged)
        positions[c->n_rows] = at;
}

/* Second-order models: whether no row repeats a key, which the host would have to add up; *distinct is false
 * if a row has two entries of one field. */
static bool records_scan(const mst_gpu_records *self, const mst_chunk *c, bool *distinct)
{
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        for (uint32_t k = 0; k < row.n_keys; k++) {
            bool follows = k > 0 && self->fields && mst_row_field(&row, k) == mst_row_field(&row, k - 1);
            if (k > 0 && row.keys[k] == row.keys[k - 1] && (follows || !self->fields))
                return false;
            int64_t before = k > 0 ? (int64_t)mst_row_field(&row, k - 1) : (int64_t)row.n_dense - 1;
            *distinct &= (int64_t)mst_row_field(&row, k) > before;
        }
    }
    return true;
}

/* The files of the dataset, at intervals and after faults. */
static mst_status records_look(records_lane *lane, bool due)
{
    uint64_t faults = mst_fault_count(), now = mst_now_ns();
    if (!due && faults == lane->faults && now < lane->look_ns)
        return MST_OK;
    TRY(mst_dataset_intact(lane->self->dataset));
    lane->faults = faults;
    lane->look_ns = mst_now_ns() + LOOK_NS;
    return MST_OK;
}

/* Fills `to` with a chunk. */
static mst_status records_copy(mst_gpu_records *self, uint32_t c, uint64_t n_words, uint32_t *to)
{
    mst_dataset *d = self->dataset;
    if (d->ops->copy != NULL)
        return d->ops->copy(d, c, to);
    TRY(mst_chunk_check_wait(self->chunks[c]));
    records_write(self->chunks[c], n_words, to);
    return MST_OK;
}

static mst_status records_read(records_lane *lane, const mst_cuda_sparse_part *part, bool last, uint32_t *to,
                               bool *usable, bool *distinct)
{
    mst_gpu_records *self = lane->self;
    uint32_t c = part->chunk;
    *usable = *distinct = true;
    TRY(mst_feed_check(self->feed, c, self->chunks[c]));
    TRY(records_copy(self, c, part->n, to));
    if (self->factors)
        *usable = records_scan(self, self->chunks[c], distinct);
    return records_look(lane, last);
}

/* ---- threads ---- */

/* Under the mutex. */
static void records_advance(mst_gpu_records *self)
{
    while (self->ready < self->n_order && self->states[self->order[self->ready]] == CHUNK_SENT)
        self->ready++;
}

/* Under the mutex: keeps the failure that is the first in the order. */
static void records_fail(mst_gpu_records *self, mst_status st, uint32_t at)
{
    if (st == MST_OK || (self->error.code != MST_OK && at >= self->error_at))
        return;
    mst_error_save(&self->error, st);
    self->error_at = at;
}

/* Under the mutex, which is released meanwhile: makes the load ready for chunks. */
static void records_stage(mst_gpu_records *self, uint32_t i)
{
    records_load *load = &self->loads[i];
    load->state = LOAD_STAGING;
    self->staging = true;
    pthread_mutex_unlock(&self->mutex);
    mst_status st = self->options.ops->stage(self->options.gpu, i, &load->words);
    pthread_mutex_lock(&self->mutex);
    records_fail(self, st, self->next);
    load->state = st == MST_OK ? LOAD_OPEN : LOAD_FREE;
    load->n = load->n_copied = 0;
    load->n_words = 0;
    self->staging = false;
    pthread_cond_broadcast(&self->work);
}

/* Under the mutex: whether there is a chunk to take. */
static bool records_more(mst_gpu_records *self)
{
    while (self->next < self->n_order && self->states[self->order[self->next]] != CHUNK_ABSENT)
        self->next++;
    return self->next < self->n_order && self->next < self->want + AHEAD;
}

/* Under the mutex: the open load takes no more chunks. */
static void records_close(mst_gpu_records *self)
{
    self->loads[self->load].state = LOAD_CLOSED;
    self->load = (self->load + 1) % MST_CUDA_SPARSE_LOADS;
}

/* Under the mutex: takes the next chunk, for the open load; *at is its place in the order. */
static mst_cuda_sparse_part *records_take(mst_gpu_records *self, records_load *load, uint32_t *at)
{
    mst_cuda_sparse_part *part = &load->parts[load->n++];
    *at = self->next++;
    part->chunk = self->order[*at];
    part->at = load->n_words;
    part->n = self->n_words[part->chunk];
    load->n_words += part->n;
    self->states[part->chunk] = CHUNK_TAKEN;
    if (load->n == MST_CUDA_SPARSE_PARTS || load->n_words + self->layout.longest > MST_CUDA_SPARSE_LOAD)
        records_close(self);
    return part;
}

/* Under the mutex, which is released meanwhile: sends a load whose chunks are copied. */
static void records_send(mst_gpu_records *self, uint32_t i, uint32_t at)
{
    records_load *load = &self->loads[i];
    if (self->error.code != MST_OK)
        return;
    pthread_mutex_unlock(&self->mutex);
    pthread_mutex_lock(&self->send_mutex);
    mst_status st = self->options.ops->send(self->options.gpu, i, load->parts, load->n);
    pthread_mutex_unlock(&self->send_mutex);
    pthread_mutex_lock(&self->mutex);
    records_fail(self, st, at);
    for (uint32_t k = 0; k < load->n && st == MST_OK; k++)
        self->states[load->parts[k].chunk] = CHUNK_SENT;
    load->state = LOAD_FREE;
    self->sent_ns = mst_now_ns();
    records_advance(self);
    pthread_cond_signal(&self->arrived);
    pthread_cond_signal(&self->work); /* the load can be staged */
}

/* Under the mutex, which is released meanwhile: copies the next chunk into load i, which is open. */
static void records_load_next(records_lane *lane, uint32_t i)
{
    mst_gpu_records *self = lane->self;
    records_load *load = &self->loads[i];
    uint32_t at;
    const mst_cuda_sparse_part *part = records_take(self, load, &at);
    bool usable, distinct, last = at + 1 == self->n_order;
    pthread_mutex_unlock(&self->mutex);
    mst_status st = records_read(lane, part, last, load->words + part->at, &usable, &distinct);
    pthread_mutex_lock(&self->mutex);
    records_fail(self, st, at);
    if (st != MST_OK || !usable)
        pthread_cond_signal(&self->arrived);
    self->unusable |= st == MST_OK && !usable;
    self->distinct_fields &= distinct;
    load->n_copied++;
    if (load->state == LOAD_CLOSED && load->n_copied == load->n)
        records_send(self, i, at);
}

/* Under the mutex, which may be released meanwhile: works on the next chunk; false if there is nothing to do.
 */
static bool records_work(records_lane *lane)
{
    mst_gpu_records *self = lane->self;
    uint32_t i = self->load;
    records_load *load = &self->loads[i];
    if (!records_more(self)) { /* the last load may have room left */
        if (self->next < self->n_order || load->state != LOAD_OPEN || load->n == 0)
            return false;
        records_close(self);
        if (load->n_copied == load->n)
            records_send(self, i, self->next);
        return true;
    }
    uint32_t next = load->state == LOAD_FREE ? i : (i + 1) % MST_CUDA_SPARSE_LOADS;
    if (!self->staging && self->loads[next].state == LOAD_FREE)
        records_stage(self, next);
    else if (load->state == LOAD_OPEN)
        records_load_next(lane, i);
    else
        return false;
    return true;
}

/* Under the mutex: takes the next window to number, once its chunks are taken or no chunk can be. */
static bool records_take_window(mst_gpu_records *self, records_window **w)
{
    uint64_t n = self->next_window - self->window, first, end;
    if (!self->ordered || n == WINDOWS || (self->next_chunks > self->next && records_more(self)) ||
        (n > 0 && self->next_position - self->windows[self->window % WINDOWS].first >= AHEAD_ROWS) ||
        !mst_feed_window_at(self->feed, self->next_position, &first, &end))
        return false;
    *w = &self->windows[self->next_window++ % WINDOWS];
    (*w)->first = first;
    (*w)->end = self->next_position = end;
    (*w)->ready = false;
    self->next_chunks = mst_feed_chunks_until(self->feed, self->position, end);
    return true;
}

/* Under the mutex, which is released meanwhile. */
static void records_number(mst_gpu_records *self, records_window *w)
{
    pthread_mutex_unlock(&self->mutex);
    bool room = mst_grow(&w->numbers, &w->capacity, w->end - w->first, sizeof *w->numbers);
    if (room)
        mst_feed_window_numbers(self->feed, w->first, w->numbers);
    pthread_mutex_lock(&self->mutex);
    w->ready = true;
    if (!room && self->error.code == MST_OK)
        mst_error_save(&self->error, mst_fail_memory());
    pthread_cond_signal(&self->arrived);
}

static void *records_main(void *arg)
{
    records_lane *lane = arg;
    mst_gpu_records *self = lane->self;
    pthread_mutex_lock(&self->mutex);
    while (!self->leaving) {
        bool may = !self->paused && !self->unusable && self->error.code == MST_OK;
        records_window *window;
        self->n_busy++;
        if (may && records_take_window(self, &window))
            records_number(self, window);
        else
            may = may && records_work(lane);
        self->n_busy--;
        if (self->n_busy == 0)
            pthread_cond_signal(&self->arrived);
        if (!may && !self->leaving)
            mst_cond_wait(&self->work, &self->mutex, UINT64_MAX);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

void mst_gpu_records_begin(mst_gpu_records *self, uint64_t position)
{
    const uint32_t *chunks;
    uint64_t first, end;
    mst_gpu_records_pause(self);
    pthread_mutex_lock(&self->mutex);
    self->position = position;
    self->n_order = mst_feed_chunk_order(self->feed, position, &chunks);
    memcpy(self->order, chunks, self->n_order * sizeof *chunks);
    self->next = self->ready = self->want = 0;
    self->window = self->next_window = 0;
    self->ordered = mst_feed_window_at(self->feed, position, &first, &end);
    self->next_position = self->ordered ? first : 0;
    self->next_chunks = 0;
    self->paused = false;
    records_advance(self);
    pthread_cond_broadcast(&self->work);
    pthread_mutex_unlock(&self->mutex);
}

void mst_gpu_records_pause(mst_gpu_records *self)
{
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    self->paused = true;
    while (self->n_busy > 0)
        mst_cond_wait(&self->arrived, &self->mutex, UINT64_MAX);
    pthread_mutex_unlock(&self->mutex);
}

/* Under the mutex: waits for a chunk or a window since the time; fails if none can come. */
static mst_status records_wait_progress(mst_gpu_records *self, uint64_t since_ns)
{
    uint64_t last = self->sent_ns > since_ns ? self->sent_ns : since_ns;
    if (self->error.code != MST_OK && self->n_busy == 0)
        return mst_error_restore(&self->error);
    if (mst_now_ns() - last > PATIENCE_S * MST_S)
        return mst_fail(MST_ETIMEOUT, "%s: no rows arrived for %d s", self->dataset->name, PATIENCE_S);
    mst_cond_wait(&self->arrived, &self->mutex, UINT64_MAX);
    return MST_OK;
}

/* Under the mutex: the threads go on. */
static void records_go_on(mst_gpu_records *self)
{
    if (self->paused)
        pthread_cond_broadcast(&self->work);
    self->paused = false;
}

mst_status mst_gpu_records_wait(mst_gpu_records *self, uint64_t to, bool *usable)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&self->mutex);
    uint32_t n = mst_feed_chunks_until(self->feed, self->position, to);
    uint64_t begun = mst_now_ns();
    if (self->ready < self->n_order)
        records_go_on(self);
    if (n > self->want && self->next < self->n_order)
        pthread_cond_broadcast(&self->work);
    self->want = n > self->want ? n : self->want;
    while (self->ready < n && !self->unusable && st == MST_OK)
        st = records_wait_progress(self, begun);
    *usable = !self->unusable;
    pthread_mutex_unlock(&self->mutex);
    return st;
}

mst_status mst_gpu_records_numbers(mst_gpu_records *self, uint64_t position, uint32_t n, uint32_t *out)
{
    mst_status st = MST_OK;
    uint64_t begun = mst_now_ns(), end = position + n;
    pthread_mutex_lock(&self->mutex);
    records_go_on(self);
    while (position < end && st == MST_OK) {
        records_window *w = &self->windows[self->window % WINDOWS];
        if (self->window == self->next_window || !w->ready || self->error.code == MST_ENOMEM) {
            st = records_wait_progress(self, begun);
            continue;
        }
        uint64_t to = end < w->end ? end : w->end;
        pthread_mutex_unlock(&self->mutex);
        memcpy(out, w->numbers + (position - w->first), (to - position) * sizeof *out);
        pthread_mutex_lock(&self->mutex);
        out += to - position;
        position = to;
        if (to == w->end) {
            self->window++;
            pthread_cond_signal(&self->work);
        }
    }
    pthread_mutex_unlock(&self->mutex);
    return st;
}

bool mst_gpu_records_ordered(const mst_gpu_records *self)
{
    return self->ordered;
}

mst_status mst_gpu_records_explain(mst_gpu_records *self)
{
    for (uint32_t c = 0; c < self->dataset->n_chunks; c++)
        TRY(mst_chunk_check_wait(self->chunks[c]));
    return MST_OK;
}

/* ---- rows ---- */

bool mst_gpu_records_uniform(const mst_gpu_records *self)
{
    return self->row_entries != 0;
}

static bool records_apart(const mst_gpu_records *self)
{
    return self->options.apart && self->layout.n_dense == self->options.head;
}

uint32_t mst_gpu_records_entries(const mst_gpu_records *self, uint32_t number)
{
    const mst_chunk *c = self->chunks[number / self->layout.chunk_rows];
    mst_row row;
    mst_chunk_row(c, number % self->layout.chunk_rows, &row);
    return row.n_keys + (records_apart(self) ? 0 : row.n_dense);
}

void mst_gpu_records_describe(mst_gpu_records *self, uint32_t n_rows, mst_cuda_sparse_rows *rows)
{
    const mst_cuda_sparse_records *l = &self->layout;
    bool apart = records_apart(self);
    rows->n_rows = n_rows;
    rows->row_entries = self->row_entries;
    rows->n_entries = n_rows * self->row_entries;
    rows->n_dense = apart ? l->n_dense : 0;
    rows->weighted = l->has_weights;
    rows->valued = l->has_values || l->row_norm || (l->n_dense != 0 && !apart);
    rows->fielded = self->fields;
    rows->fill_head = l->n_dense < self->options.head;
    pthread_mutex_lock(&self->mutex);
    rows->distinct_fields = self->distinct_fields;
    pthread_mutex_unlock(&self->mutex);
}

/* ---- life ---- */

void mst_gpu_records_destroy(mst_gpu_records *self)
{
    if (self == NULL)
        return;
    mst_cond_set(&self->work, &self->mutex, &self->leaving);
    for (unsigned i = 0; i < self->n_lanes; i++)
        pthread_join(self->lanes[i].thread, NULL);
    if (self->held)
        self->options.ops->drop(self->options.gpu);
    for (uint32_t c = 0; self->chunks != NULL && c < self->dataset->n_chunks; c++)
        mst_chunk_release(self->chunks[c]);
    for (uint32_t i = 0; i < WINDOWS; i++)
        mst_free(self->windows[i].numbers);
    mst_free(self->chunks);
    mst_free(self->n_words);
    mst_free(self->strides);
    mst_free(self->order);
    mst_free(self->states);
    pthread_cond_destroy(&self->work);
    pthread_cond_destroy(&self->arrived);
    pthread_mutex_destroy(&self->mutex);
    pthread_mutex_destroy(&self->send_mutex);
    mst_free(self);
}

/* Whether a chunk has the parts of the first one; sets the layout from that. */
static bool records_join(mst_gpu_records *self, uint32_t c)
{
    mst_cuda_sparse_records *l = &self->layout;
    const mst_chunk *chunk = self->chunks[c];
    if (c == 0) {
        l->n_dense = chunk->n_dense;
        l->dense_bytes = chunk->dense_bytes;
        l->has_weights = chunk->has_weights;
        l->has_values = chunk->has_values;
        l->has_fields = chunk->has_fields;
        l->min_label = chunk->min_label;
        l->max_label = chunk->max_label;
    }
    l->min_label = fminf(l->min_label, chunk->min_label);
    l->max_label = fmaxf(l->max_label, chunk->max_label);
    self->strides[c] = records_stride(chunk);
    self->n_words[c] = records_words(chunk);
    l->n_words += self->n_words[c];
    l->longest = self->n_words[c] > l->longest ? self->n_words[c] : l->longest;
    return l->n_dense == chunk->n_dense && l->dense_bytes == chunk->dense_bytes &&
           l->has_weights == chunk->has_weights && l->has_values == chunk->has_values &&
           l->has_fields == chunk->has_fields;
}

/* Looks at all chunks, whose bodies are not read. */
static mst_status records_survey(mst_gpu_records *self, bool *fit)
{
    mst_dataset *d = self->dataset;
    bool uniform = true;
    for (uint32_t c = 0; c < d->n_chunks && *fit; c++) {
        TRY((d->ops->peek != NULL ? d->ops->peek : d->ops->load)(d, c, &self->chunks[c]));
        *fit = records_join(self, c);
        uniform &= self->strides[c] == self->strides[0];
    }
    mst_cuda_sparse_records *l = &self->layout;
    l->n_rows = d->info.n_rows;
    l->n_chunks = d->n_chunks;
    l->chunk_rows = d->chunk_rows;
    l->strides = self->strides;
    l->row_norm = self->options.model->options.row_norm;
    *fit = *fit && (self->factors || l->n_dense <= SPARSE_ROW);
    if (*fit && uniform && self->strides[0] != 0)
        self->row_entries =
            mst_chunk_n_keys(self->chunks[0], self->strides[0] - mst_chunk_head_words(self->chunks[0])) +
            (records_apart(self) ? 0 : l->n_dense);
    return MST_OK;
}

/* All cores but two copy: the thread of rows and the training thread keep theirs. */
static mst_status records_start(mst_gpu_records *self)
{
    unsigned cores = mst_cpu_cores(), most = cores > 3 ? cores - 2 : 1;
    most = most < LANES ? most : LANES;
    for (unsigned i = 0; i < self->options.n_threads && i < most; i++) {
        self->lanes[i].self = self;
        if (pthread_create(&self->lanes[i].thread, NULL, records_main, &self->lanes[i]) != 0)
            return mst_fail(MST_EIO, "cannot start a thread that copies rows to the GPU");
        self->n_lanes++;
    }
    return MST_OK;
}

mst_status mst_gpu_records_new(const mst_gpu_records_options *options, mst_feed *feed, mst_gpu_records **out)
{
    mst_dataset *dataset = mst_feed_chunks(feed);
    mst_status st = MST_OK;
    bool fit = true;
    *out = NULL;
    if (dataset == NULL || !dataset->load_is_cheap || dataset->n_chunks == 0)
        return MST_OK;
    mst_gpu_records *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->factors = mst_model_has(options->model->ops, MST_MODEL_FACTORS);
    self->fields = mst_model_has(options->model->ops, MST_MODEL_FIELDS);
    self->feed = feed;
    self->dataset = dataset;
    self->paused = self->distinct_fields = true;
    mst_cond_init(&self->work);
    mst_cond_init(&self->arrived);
    pthread_mutex_init(&self->mutex, NULL);
    pthread_mutex_init(&self->send_mutex, NULL);
    size_t n = dataset->n_chunks;
    self->chunks = mst_calloc(n, sizeof(mst_chunk *));
    self->n_words = mst_calloc(n, sizeof *self->n_words);
    self->strides = mst_calloc(n, sizeof *self->strides);
    self->order = mst_calloc(n, sizeof *self->order);
    self->states = mst_calloc(n, sizeof *self->states);
    if (self->chunks == NULL || self->n_words == NULL || self->strides == NULL || self->order == NULL ||
        self->states == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, records_survey(self, &fit));
    if (!fit)
        goto out;
    TRY_OUT(st, options->ops->hold(options->gpu, &self->layout, &self->held));
    if (!self->held)
        goto out;
    TRY_OUT(st, records_start(self));
    *out = self;
    self = NULL;
out:
    mst_gpu_records_destroy(self);
    return st;
}
