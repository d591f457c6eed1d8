/* Requests that are scored together; contract in batcher.h.
 *
 * Waits: threads of the batcher wait for jobs, at most a second at a time; submit and destroy wake them. */
#include "serve/batcher.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cond.h"

struct mst_batcher {
    mst_batcher_options options;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    mst_job *first, *last; /* the queue; guarded by mutex, like all below */
    uint64_t waiting_rows, batches, rows;
    bool leaving;
    pthread_t *threads;
    unsigned n_threads; /* started */
};

bool mst_batcher_helps(const mst_model *model)
{
    return mst_model_has(model->ops, MST_MODEL_NET);
}

/* ---- a batch ---- */

/* The place of a row of the scorer. */
typedef struct batch_place {
    mst_job *job;
    uint32_t row;
} batch_place;

static mst_status batch_flush(mst_scorers *scorers, mst_scorer *s, const batch_place *places, uint32_t n)
{
    uint32_t n_scores = scorers->model->n_scores;
    if (n == 0)
        return MST_OK;
    TRY(mst_scorers_run(scorers, s, n));
    for (uint32_t i = 0; i < n; i++)
        memcpy(places[i].job->scores + (size_t)places[i].row * n_scores, s->scores + (size_t)i * n_scores,
               n_scores * sizeof(float));
    return MST_OK;
}

static mst_status batch_rows(mst_scorers *scorers, mst_scorer *s, mst_job *jobs)
{
    batch_place places[MST_SCORER_ROWS];
    uint32_t n = 0;
    for (mst_job *job = jobs; job != NULL; job = job->next)
        for (uint32_t i = 0; i < job->n_rows; i++) {
            mst_job_row(job, i, &s->rows[n]);
            places[n++] = (batch_place){job, i};
            if (n == MST_SCORER_ROWS) {
                TRY(batch_flush(scorers, s, places, n));
                n = 0;
            }
        }
    return batch_flush(scorers, s, places, n);
}

/* All jobs of one model. */
static mst_status batch_score(const mst_batcher *self, mst_job *jobs)
{
    mst_scorers *scorers = &jobs->model->scorers;
    mst_scorer *s = NULL;
    for (mst_job *job = jobs; job != NULL; job = job->next)
        if (!mst_grow(&job->scores, &job->score_capacity, (size_t)job->n_rows * scorers->model->n_scores,
                      sizeof *job->scores))
            return mst_fail_memory();
    TRY(mst_scorers_take(scorers, mst_model_threads(scorers->model) ? self->options.n_threads : 1, &s));
    mst_status st = batch_rows(scorers, s, jobs);
    mst_scorers_give_back(scorers, s);
    return st;
}

/* ---- threads ---- */

/* Under the mutex: the first jobs of the queue that share a model, up to a full scorer. */
static mst_job *batcher_take(mst_batcher *self)
{
    mst_job *jobs = self->first, *end = jobs;
    uint64_t rows = jobs->n_rows;
    while (end->next != NULL && end->next->model == jobs->model &&
           rows + end->next->n_rows <= MST_SCORER_ROWS) {
        end = end->next;
        rows += end->n_rows;
    }
    self->first = end->next;
    if (self->first == NULL)
        self->last = NULL;
    end->next = NULL;
    self->waiting_rows -= rows;
    self->batches++;
    self->rows += rows;
    return jobs;
}

/* Takes the jobs beyond their time off the list and ends them. */
static mst_job *batcher_drop_late(const mst_batcher *self, mst_job *jobs)
{
    uint64_t now = mst_now_ns();
    for (mst_job **at = &jobs; *at != NULL;) {
        mst_job *job = *at;
        if (now < job->due_ns) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        self->options.done(self->options.arg, job,
                           mst_fail(MST_ETIMEOUT,
                                    "the request waited longer than its deadline; the server is "
                                    "overloaded"));
    }
    return jobs;
}

static void *batcher_thread(void *arg)
{
    mst_batcher *self = arg;
    pthread_mutex_lock(&self->mutex);
    while (self->first != NULL || !self->leaving) {
        if (self->first == NULL) {
            mst_cond_wait(&self->changed, &self->mutex, UINT64_MAX);
            continue;
        }
        mst_job *jobs = batcher_take(self);
        pthread_mutex_unlock(&self->mutex);
        jobs = batcher_drop_late(self, jobs);
        mst_status st = jobs != NULL ? batch_score(self, jobs) : MST_OK;
        for (mst_job *job = jobs, *next; job != NULL; job = next) {
            next = job->next; /* the job is the owner's once it is done */
            self->options.done(self->options.arg, job, st);
        }
        pthread_mutex_lock(&self->mutex);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

mst_status mst_batcher_new(const mst_batcher_options *options, const mst_model *model, mst_batcher **out)
{
    mst_batcher *self = mst_zalloc(sizeof *self);
    unsigned n = mst_model_threads(model) ? 1 : options->n_threads;
    mst_status st = MST_OK;
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    pthread_mutex_init(&self->mutex, NULL);
    mst_cond_init(&self->changed);
    self->threads = mst_calloc(n, sizeof *self->threads);
    if (self->threads == NULL)
        st = mst_fail_memory();
    for (; st == MST_OK && self->n_threads < n; self->n_threads++)
        if (pthread_create(&self->threads[self->n_threads], NULL, batcher_thread, self) != 0) {
            st = mst_fail(MST_EIO, "cannot start a thread");
            break;
        }
    if (st != MST_OK) {
        mst_batcher_destroy(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

void mst_batcher_stop(mst_batcher *self)
{
    if (self == NULL)
        return;
    mst_cond_set(&self->changed, &self->mutex, &self->leaving);
    for (unsigned t = 0; t < self->n_threads; t++)
        pthread_join(self->threads[t], NULL);
    self->n_threads = 0;
}

void mst_batcher_destroy(mst_batcher *self)
{
    if (self == NULL)
        return;
    mst_batcher_stop(self);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    mst_free(self->threads);
    mst_free(self);
}

bool mst_batcher_submit(mst_batcher *self, mst_job *job, uint64_t due_ns)
{
    pthread_mutex_lock(&self->mutex);
    bool room = !self->leaving &&
                (self->first == NULL || self->waiting_rows + job->n_rows <= self->options.queue_rows);
    if (room) {
        job->due_ns = due_ns;
        job->next = NULL;
        *(self->last != NULL ? &self->last->next : &self->first) = job;
        self->last = job;
        self->waiting_rows += job->n_rows;
        pthread_cond_signal(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    return room;
}

void mst_batcher_count(mst_batcher *self, uint64_t *batches, uint64_t *rows)
{
    pthread_mutex_lock(&self->mutex);
    *batches = self->batches;
    *rows = self->rows;
    pthread_mutex_unlock(&self->mutex);
}
