/* A worker under test: its data, feed and job, with scripted servers; and scripts that several tests use.
 */
#ifndef MST_TESTS_WORKER_TRIAL_H
#define MST_TESTS_WORKER_TRIAL_H

#include "base/alloc.h"
#include "base/rng.h"
#include "fake_dataset.h"
#include "scripted_servers.h"

#define N_ROWS   200
#define FEATURES 6000
#define DENSE    3

/* Features 0 .. 2 in every row, then three keys of which some are frequent. */
static inline mst_status make_row(void *arg, uint64_t row, mst_chunk_builder *b)
{
    mst_rng rng;
    uint32_t classes = *(const uint32_t *)arg;
    mst_rng_init(&rng, 5, 1, row);
    TRY(mst_chunk_builder_room(b, DENSE + 3));
    for (uint32_t i = 0; i < DENSE; i++)
        mst_chunk_builder_add(b, i, (float)(mst_rng_uniform(&rng) - 0.5));
    uint32_t key = DENSE + mst_rng_below(&rng, 20);
    for (uint32_t i = 0; i < 3; i++) {
        mst_chunk_builder_add(b, key, (float)(1 + mst_rng_below(&rng, 3)) / 2.0f);
        key += 1 + mst_rng_below(&rng, 1900);
    }
    return mst_chunk_builder_end_row(b, (float)mst_rng_below(&rng, classes), 1.0f);
}

/* A worker's end of a test. */
typedef struct job {
    script s;
    mst_model_options model;
    mst_shape shape;
    uint32_t classes;
    fake_dataset *data;
    mst_feed *feed;
    mst_feed_options feed_options;
    mst_worker_job job;
    mst_worker_options worker;
    mst_params params; /* views only */
    mst_worker_counts counts;
    atomic_bool stop;
} job;

static inline job *job_new(fake_kind kind, const char *model, uint32_t classes, uint32_t features)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->classes = classes;
    j->model = (mst_model_options){.model = strcmp(model, "softmax") == 0, .bias = true, .pos_weight = 1.0};
    j->shape = (mst_shape){.n_features = features, .n_dense = DENSE, .n_classes = classes};
    j->data = fake_new(kind, N_ROWS, 16, make_row, &j->classes);
    j->worker = (mst_worker_options){.engine = &mst_net_inproc,
                                     .net = script_net_options(MST_ROLE_WORKER, 0),
                                     .stop_grace_ms = 30000,
                                     .start_timeout_ms = 5000,
                                     .stall_timeout_ms = 5000,
                                     .stop = &j->stop};
    j->job = (mst_worker_job){.mode = MST_MODE_SYNC, .batch = 10, .global_batch = 10};
    return j;
}

/* Starts the servers and runs the worker to its end. */
static inline mst_status job_run(job *j)
{
    mst_worker *worker = NULL;
    json_t *json = NULL;
    j->s.dense_model = j->job.dense_model;
    script_start(&j->s, &j->model, &j->shape);
    j->worker.servers = j->s.addresses;
    j->worker.n_servers = j->s.n_servers;
    const mst_model *model = j->s.assembly.model;
    j->params = j->s.assembly.params;
    j->params.w = NULL; /* a worker has no store */
    j->feed_options = (mst_feed_options){.seed = 7,
                                         .shuffle_rows = 64,
                                         .prefetch_threads = 1,
                                         .n_lanes = j->job.pipeline + 2,
                                         .max_take = j->job.global_batch > j->job.batch ? j->job.global_batch
                                                                                        : j->job.batch,
                                         .features = j->shape.n_features,
                                         .classes = j->classes,
                                         .stop = &j->stop};
    assert_int_equal(mst_feed_new(&j->data->base, &j->feed_options, &j->feed), MST_OK);
    j->job.model = model;
    j->job.optimizer = &j->s.optimizer;
    j->job.params = &j->params;
    j->job.feed = j->feed;
    j->job.dataset = &j->data->base;
    j->job.join = json_pack("{s:s}", "model", "it");
    mst_status st = mst_worker_new(&j->worker, &worker, &json);
    if (st == MST_OK) {
        assert_string_equal(json_string_value(json_object_get(json, "job")), "scripted");
        st = mst_worker_run(worker, &j->job, &j->counts);
    }
    json_decref(json);
    mst_worker_destroy(worker);
    script_join(&j->s);
    return st;
}

static inline void job_free(job *j)
{
    json_decref(j->job.join);
    mst_feed_destroy(j->feed);
    script_fini(&j->s);
    mst_dataset_destroy(&j->data->base);
    free(j);
}

/* ---- scripts: slices of ten rows, leases of forty ---- */

static inline mst_work slice(uint64_t step, uint32_t share, uint32_t n_shares)
{
    uint64_t from = (step - 1) * 10;
    return from >= N_ROWS ? (mst_work){.kind = MST_WORK_STOP}
                          : (mst_work){MST_WORK_SLICE, share, n_shares, step, 0, from, from + 10};
}

static inline void next_slice(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)drop;
    (void)s;
    *trailer = slice(push->step + 2, 0, 1);
}

static inline void lease_more(script *s, const mst_message *m)
{
    (void)m;
    uint64_t from = 40 * (uint64_t)s->n_wants;
    mst_work w = {.kind = MST_WORK_WAIT};
    if (from < N_ROWS)
        w = (mst_work){.kind = MST_WORK_LEASE, .from = from, .to = from + 40};
    script_work(s, &w, 1);
    if (from >= N_ROWS && m->count == 0) /* it has nothing in flight any more */
        script_plain(s, MST_PS_STOP, 0, 0, 0);
}

static inline job *leased(uint32_t pipeline)
{
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    static const mst_work first[] = {{.kind = MST_WORK_LEASE, .to = 40}};
    j->job.mode = MST_MODE_ASYNC;
    j->job.pipeline = pipeline;
    j->s.first = first;
    j->s.n_first = 1;
    j->s.wanted = lease_more;
    return j;
}

#endif
