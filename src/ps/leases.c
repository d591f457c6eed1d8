/* Leases; contract in leases.h.
 *
 * The pool is a list of ranges not yet leased (at most one growing segment per worker plus returned ranges)
 * and, per worker, a queue of ranges leased and not done. New segments are taken from the front of the epoch;
 * when the epoch has none left, the next epoch begins at once, unless it is beyond the limit: asynchronous
 * workers do not wait for each other at the end of an epoch.
 *
 * Invariants
 * 1. Every row of an epoch that has begun is done, or in exactly one range of the pool or of a worker.
 * 2. Ranges begin at multiples of the batch, or where a lease was taken back in the middle.
 * 3. leased_steps and leased_rows count steps and rows that are leased or done; returned ones are subtracted.
 */
#include "ps/leases.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define NO_WORKER UINT32_MAX

typedef struct range {
    mst_lease lease;
    uint32_t owner; /* in the pool: whose segment it is, or NO_WORKER */
} range;

typedef struct ranges {
    range *items;
    size_t n, capacity;
} ranges;

struct mst_leases {
    mst_lease_options options;
    uint64_t next_epoch, next_position; /* rows from here on are in no range yet */
    uint64_t leased_steps, leased_rows;
    uint32_t n_sharing; /* workers that take leases */
    ranges pool;
    ranges *held;         /* n_workers, as the next three */
    ranges *recent;       /* done by the last MST_LEASES_RECENT pushes, oldest first; owner: of which push */
    uint32_t *n_pushes;   /* modulo 2^32 */
    uint64_t *most_rows;  /* of a lease */
    uint64_t first_epoch; /* epochs before it are done */
    uint64_t *done;       /* rows done of epochs first_epoch, first_epoch + 1, ... */
    size_t n_done, done_capacity;
};

static bool leases_ranges_insert(ranges *r, size_t at, const range *item)
{
    if (!mst_grow(&r->items, &r->capacity, r->n + 1, sizeof *r->items))
        return false;
    memmove(r->items + at + 1, r->items + at, (r->n - at) * sizeof *r->items);
    r->items[at] = *item;
    r->n++;
    return true;
}

static void leases_ranges_remove(ranges *r, size_t at)
{
    r->n--;
    memmove(r->items + at, r->items + at + 1, (r->n - at) * sizeof *r->items);
}

static uint64_t leases_rows_of(const mst_lease *lease)
{
    return lease->to - lease->from;
}

static uint64_t leases_steps_of(const mst_leases *self, uint64_t rows)
{
    return (rows + self->options.batch - 1) / self->options.batch;
}

static mst_status leases_new(const mst_lease_options *options, mst_leases **out)
{
    mst_leases *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->n_sharing = options->n_workers;
    uint64_t batch = options->batch;
    uint64_t batches = options->lease_rows / batch;
    self->options.lease_rows = (batches ? batches : 1) * batch;
    uint64_t leases = options->segment_rows / self->options.lease_rows;
    self->options.segment_rows = (leases ? leases : 1) * self->options.lease_rows;
    self->held = mst_calloc(options->n_workers, sizeof *self->held);
    self->most_rows = mst_calloc(options->n_workers, sizeof *self->most_rows);
    self->recent = mst_calloc(options->n_workers, sizeof *self->recent);
    self->n_pushes = mst_calloc(options->n_workers, sizeof *self->n_pushes);
    if (self->held == NULL || self->most_rows == NULL || self->recent == NULL || self->n_pushes == NULL) {
        mst_leases_destroy(self);
        return mst_fail_memory();
    }
    for (uint32_t w = 0; w < options->n_workers; w++)
        self->most_rows[w] = self->options.lease_rows;
    *out = self;
    return MST_OK;
}

mst_status mst_leases_new(const mst_lease_options *options, uint64_t epoch, uint64_t position,
                          mst_leases **out)
{
    mst_leases *self = NULL;
    TRY(leases_new(options, &self));
    if (position >= options->epoch_rows) { /* an epoch's end is the next one's beginning */
        epoch++;
        position = 0;
    }
    self->next_epoch = self->first_epoch = epoch;
    self->next_position = position;
    if (position > 0) {
        if (!mst_grow(&self->done, &self->done_capacity, 1, sizeof *self->done)) {
            mst_leases_destroy(self);
            return mst_fail_memory();
        }
        self->done[0] = position;
        self->n_done = 1;
    }
    *out = self;
    return MST_OK;
}

void mst_leases_destroy(mst_leases *self)
{
    if (self == NULL)
        return;
    for (uint32_t w = 0; self->held != NULL && w < self->options.n_workers; w++)
        mst_free(self->held[w].items);
    for (uint32_t w = 0; self->recent != NULL && w < self->options.n_workers; w++)
        mst_free(self->recent[w].items);
    mst_free(self->held);
    mst_free(self->recent);
    mst_free(self->n_pushes);
    mst_free(self->most_rows);
    mst_free(self->pool.items);
    mst_free(self->done);
    mst_free(self);
}

/* ---- counting rows that are done ---- */

static mst_status leases_count_done(mst_leases *self, uint64_t epoch, uint64_t rows)
{
    size_t at = (size_t)(epoch - self->first_epoch), had = self->n_done;
    if (at >= had) {
        if (!mst_grow(&self->done, &self->done_capacity, at + 1, sizeof *self->done))
            return mst_fail_memory();
        memset(self->done + had, 0, (at + 1 - had) * sizeof *self->done);
        self->n_done = at + 1;
    }
    self->done[at] += rows;
    while (self->n_done > 0 && self->done[0] >= self->options.epoch_rows) {
        self->n_done--;
        memmove(self->done, self->done + 1, self->n_done * sizeof *self->done);
        self->first_epoch++;
    }
    return MST_OK;
}

void mst_leases_position(const mst_leases *self, uint64_t *epoch, uint64_t *rows_done)
{
    *epoch = self->first_epoch;
    *rows_done = self->n_done > 0 ? self->done[0] : 0;
}

/* ---- taking ---- */

static bool leases_epochs_left(const mst_leases *self)
{
    return self->next_epoch < self->options.epochs;
}

void mst_leases_divide(mst_leases *self, uint32_t n_workers)
{
    self->n_sharing = n_workers > 0 ? n_workers : 1;
}

uint64_t mst_lease_rows(uint64_t rows, uint32_t n_workers, uint32_t batch, uint64_t most)
{
    uint64_t share = rows / (2ull * n_workers) / batch * batch;
    share = share < most ? share : most;
    return share < batch ? batch : share;
}

static uint64_t leases_times(uint64_t a, uint64_t b)
{
    return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

/* The rows that may still be leased. */
static uint64_t leases_rows_left(const mst_leases *self)
{
    const mst_lease_options *o = &self->options;
    uint64_t rows = leases_epochs_left(self) ? leases_times(o->epochs - self->next_epoch, o->epoch_rows) : 0,
             steps = leases_times(o->steps - self->leased_steps, o->batch);
    rows -= rows > 0 ? self->next_position : 0;
    for (size_t i = 0; i < self->pool.n && rows < UINT64_MAX / 2; i++)
        rows += leases_rows_of(&self->pool.items[i].lease);
    rows = rows < o->rows - self->leased_rows ? rows : o->rows - self->leased_rows;
    return rows < steps ? rows : steps;
}

/* Puts the next segment of the epoch into the pool for a worker. */
static mst_status leases_cut_segment(mst_leases *self, uint32_t worker, uint64_t lease_rows)
{
    uint64_t left = self->options.epoch_rows - self->next_position;
    /* near the end of an epoch segments shrink, so that all workers get some of the rest */
    uint64_t fair = left / ((uint64_t)self->n_sharing * 2) / lease_rows;
    uint64_t rows = (fair ? fair : 1) * lease_rows;
    rows = rows < self->options.segment_rows ? rows : self->options.segment_rows;
    rows = rows < left ? rows : left;
    range segment = {{self->next_epoch, self->next_position, self->next_position + rows}, worker};
    if (!leases_ranges_insert(&self->pool, self->pool.n, &segment))
        return mst_fail_memory();
    self->next_position += rows;
    if (self->next_position == self->options.epoch_rows) {
        self->next_epoch++;
        self->next_position = 0;
    }
    return MST_OK;
}

/* The range of the pool that a worker takes from: one without an owner (taken back) first, then its own, else
 * NO_WORKER. */
static size_t leases_find_range(const mst_leases *self, uint32_t worker)
{
    for (size_t i = 0; i < self->pool.n; i++)
        if (self->pool.items[i].owner == NO_WORKER)
            return i;
    for (size_t i = 0; i < self->pool.n; i++)
        if (self->pool.items[i].owner == worker)
            return i;
    return SIZE_MAX;
}

static size_t leases_longest_range(const mst_leases *self)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < self->pool.n; i++)
        if (best == SIZE_MAX ||
            leases_rows_of(&self->pool.items[i].lease) > leases_rows_of(&self->pool.items[best].lease))
            best = i;
    return best;
}

mst_status mst_leases_take(mst_leases *self, uint32_t worker, mst_lease *out, bool *got)
{
    *got = false;
    if (self->leased_steps >= self->options.steps || self->leased_rows >= self->options.rows)
        return MST_OK;
    uint64_t most =
        mst_lease_rows(leases_rows_left(self), self->n_sharing, self->options.batch, self->most_rows[worker]);
    size_t at = leases_find_range(self, worker);
    if (at == SIZE_MAX && leases_epochs_left(self)) {
        TRY(leases_cut_segment(self, worker, most));
        at = self->pool.n - 1;
    } else if (at == SIZE_MAX) {
        at = leases_longest_range(self);
    }
    if (at == SIZE_MAX)
        return MST_OK;
    range *from = &self->pool.items[at];
    uint64_t rows = leases_rows_of(&from->lease);
    uint64_t steps_left = self->options.steps - self->leased_steps,
             rows_left = self->options.rows - self->leased_rows;
    most = steps_left < most / self->options.batch ? steps_left * self->options.batch : most;
    most = rows_left < most ? rows_left : most;
    rows = rows < most ? rows : most;
    range lease = {{from->lease.epoch, from->lease.from, from->lease.from + rows}, worker};
    ranges *held = &self->held[worker];
    if (!leases_ranges_insert(held, held->n, &lease))
        return mst_fail_memory();
    from->lease.from += rows;
    if (leases_rows_of(&from->lease) == 0)
        leases_ranges_remove(&self->pool, at);
    self->leased_rows += rows;
    self->leased_steps += leases_steps_of(self, rows);
    *out = lease.lease;
    *got = true;
    return MST_OK;
}

void mst_leases_shrink(mst_leases *self, uint32_t worker, double share)
{
    uint64_t batches = (uint64_t)(share * (double)self->options.lease_rows) / self->options.batch;
    self->most_rows[worker] = (batches > 0 ? batches : 1) * self->options.batch;
}

/* ---- giving back ---- */

/* Forgets what pushes up to number `push` have done. */
static void leases_forget(ranges *recent, uint32_t push)
{
    while (recent->n > 0 && (int32_t)(recent->items[0].owner - push) <= 0)
        leases_ranges_remove(recent, 0);
}

/* The rows are not done any more. */
static mst_status leases_uncount(mst_leases *self, uint64_t epoch, uint64_t rows)
{
    while (epoch < self->first_epoch) {
        if (!mst_grow(&self->done, &self->done_capacity, self->n_done + 1, sizeof *self->done))
            return mst_fail_memory();
        memmove(self->done + 1, self->done, self->n_done * sizeof *self->done);
        self->done[0] = self->options.epoch_rows;
        self->n_done++;
        self->first_epoch--;
    }
    self->done[epoch - self->first_epoch] -= rows;
    return MST_OK;
}

mst_status mst_leases_redo(mst_leases *self, uint32_t worker, uint32_t pushes, uint64_t *rows)
{
    ranges *recent = &self->recent[worker];
    uint32_t n = self->n_pushes[worker];
    *rows = 0;
    leases_forget(recent, n - pushes);
    for (; recent->n > 0; leases_ranges_remove(recent, 0)) {
        range back = recent->items[0];
        uint64_t part = leases_rows_of(&back.lease);
        back.owner = NO_WORKER;
        TRY(leases_uncount(self, back.lease.epoch, part));
        if (!leases_ranges_insert(&self->pool, 0, &back))
            return mst_fail_memory();
        *rows += part;
        self->leased_rows -= part;
        self->leased_steps -= leases_steps_of(self, part);
    }
    return MST_OK;
}

uint64_t mst_leases_done(mst_leases *self, uint32_t worker, uint64_t rows)
{
    ranges *held = &self->held[worker], *recent = &self->recent[worker];
    uint32_t push = ++self->n_pushes[worker];
    leases_forget(recent, push - MST_LEASES_RECENT);
    while (rows > 0 && held->n > 0) {
        mst_lease *first = &held->items[0].lease;
        uint64_t part = rows < leases_rows_of(first) ? rows : leases_rows_of(first);
        if (leases_count_done(self, first->epoch, part) != MST_OK)
            break; /* no memory for a counter: the rows count as repeats */
        range part_done = {{first->epoch, first->from, first->from + part}, push};
        (void)leases_ranges_insert(recent, recent->n, &part_done);
        first->from += part;
        rows -= part;
        if (leases_rows_of(first) == 0)
            leases_ranges_remove(held, 0);
    }
    return rows;
}

mst_status mst_leases_return(mst_leases *self, uint32_t worker, uint64_t *rows)
{
    ranges *held = &self->held[worker];
    *rows = 0;
    for (size_t i = 0; i < self->pool.n; i++)
        if (self->pool.items[i].owner == worker)
            self->pool.items[i].owner = NO_WORKER;
    while (held->n > 0) {
        range back = held->items[0];
        back.owner = NO_WORKER;
        if (!leases_ranges_insert(&self->pool, 0, &back))
            return mst_fail_memory();
        *rows += leases_rows_of(&back.lease);
        self->leased_rows -= leases_rows_of(&back.lease);
        self->leased_steps -= leases_steps_of(self, leases_rows_of(&back.lease));
        leases_ranges_remove(held, 0);
    }
    return MST_OK;
}

uint64_t mst_leases_held(const mst_leases *self, uint32_t worker)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < self->held[worker].n; i++)
        rows += leases_rows_of(&self->held[worker].items[i].lease);
    return rows;
}

bool mst_leases_dry(const mst_leases *self)
{
    return self->leased_steps >= self->options.steps || self->leased_rows >= self->options.rows ||
           (self->pool.n == 0 && !leases_epochs_left(self));
}

bool mst_leases_overdue(const mst_leases *self, uint32_t worker, uint64_t silent_ns)
{
    return silent_ns > MST_LEASE_PATIENCE_NS && mst_leases_dry(self) && mst_leases_held(self, worker) > 0;
}

bool mst_leases_finished(const mst_leases *self)
{
    for (uint32_t w = 0; w < self->options.n_workers; w++)
        if (self->held[w].n > 0)
            return false;
    return mst_leases_dry(self);
}

/* ---- checkpoints ---- */

static bool leases_append_ranges(json_t *todo, const ranges *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const mst_lease *l = &r->items[i].lease;
        if (json_array_append_new(todo, json_pack("[I, I, I]", (json_int_t)l->epoch, (json_int_t)l->from,
                                                  (json_int_t)l->to)) != 0)
            return false;
    }
    return true;
}

json_t *mst_leases_json(const mst_leases *self)
{
    json_t *todo = json_array();
    bool good = todo != NULL;
    for (uint32_t w = 0; good && w < self->options.n_workers; w++)
        good = leases_append_ranges(todo, &self->held[w]);
    good = good && leases_append_ranges(todo, &self->pool);
    if (!good) {
        json_decref(todo);
        return NULL;
    }
    return json_pack("{s:[I, I], s:o}", "next", (json_int_t)self->next_epoch, (json_int_t)self->next_position,
                     "todo", todo);
}

static bool leases_fits(const mst_leases *self, const mst_lease *l)
{
    bool begun =
        l->epoch < self->next_epoch || (l->epoch == self->next_epoch && l->to <= self->next_position);
    return begun && l->from < l->to && l->to <= self->options.epoch_rows;
}

static int leases_by_place(const void *a, const void *b)
{
    const mst_lease *x = &((const range *)a)->lease, *y = &((const range *)b)->lease;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* Rows of begun epochs that are in no range are done. */
static mst_status leases_count_from_pool(mst_leases *self)
{
    const ranges *pool = &self->pool;
    if (pool->n > 0)
        qsort(pool->items, pool->n, sizeof *pool->items, leases_by_place);
    self->first_epoch = pool->n > 0 ? pool->items[0].lease.epoch : self->next_epoch;
    size_t i = 0;
    for (uint64_t epoch = self->first_epoch; epoch <= self->next_epoch; epoch++) {
        uint64_t done = epoch < self->next_epoch ? self->options.epoch_rows : self->next_position, end = 0;
        for (; i < pool->n && pool->items[i].lease.epoch == epoch; i++) {
            const mst_lease *l = &pool->items[i].lease;
            if (l->from < end)
                return mst_fail(MST_EINPUT, "the checkpoint's leases overlap");
            end = l->to;
            done -= leases_rows_of(l);
        }
        if (done > 0)
            TRY(leases_count_done(self, epoch, done));
    }
    return MST_OK;
}

mst_status mst_leases_resume(const mst_lease_options *options, const json_t *json, mst_leases **out)
{
    mst_leases *self = NULL;
    json_int_t epoch, position;
    json_t *todo, *item;
    size_t i;
    TRY(leases_new(options, &self));
    mst_status st = MST_OK;
    if (json_unpack((json_t *)json, "{s:[I, I], s:o}", "next", &epoch, &position, "todo", &todo) != 0 ||
        epoch < 0 || position < 0 || (uint64_t)position >= options->epoch_rows || !json_is_array(todo))
        TRY_OUT(st, mst_fail(MST_EINPUT, "the checkpoint's leases do not match the data of %" PRIu64 " rows",
                             options->epoch_rows));
    self->next_epoch = (uint64_t)epoch;
    self->next_position = (uint64_t)position;
    json_array_foreach(todo, i, item)
    {
        json_int_t e, from, to;
        range r = {.owner = NO_WORKER};
        if (json_unpack(item, "[I, I, I]", &e, &from, &to) == 0 && e >= 0 && from >= 0 && to >= 0)
            r.lease = (mst_lease){(uint64_t)e, (uint64_t)from, (uint64_t)to};
        if (!leases_fits(self, &r.lease) || self->next_epoch - r.lease.epoch > 1000000)
            TRY_OUT(st,
                    mst_fail(MST_EINPUT, "the checkpoint's leases do not match the data of %" PRIu64 " rows",
                             options->epoch_rows));
        if (!leases_ranges_insert(&self->pool, self->pool.n, &r))
            TRY_OUT(st, mst_fail_memory());
    }
    TRY_OUT(st, leases_count_from_pool(self));
    *out = self;
    self = NULL;
out:
    mst_leases_destroy(self);
    return st;
}
