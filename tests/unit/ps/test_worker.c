/* A worker against scripted servers: slices, leases and grants become the right pushes, the weights end where
 * one plain loop brings them, drops are counted, marks and evaluations follow cuts, and every way a job can
 * end or fail has its sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "fake_dataset.h"
#include "scripted_servers.h"

#define N_ROWS   200
#define FEATURES 6000
#define DENSE    3

/* Features 0 .. 2 in every row, then three keys of which some are frequent. */
static mst_status make_row(void *arg, uint64_t row, mst_chunk_builder *b)
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

static job *job_new(fake_kind kind, const char *model, uint32_t classes, uint32_t features)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->classes = classes;
    j->model = (mst_model_options){.model = strcmp(model, "softmax") == 0, .bias = true, .pos_weight = 1.0};
    j->shape = (mst_shape){.n_features = features, .n_dense = DENSE, .n_classes = classes};
    j->data = fake_new(kind, N_ROWS, 16, make_row, &j->classes);
    j->worker = (mst_worker_options){.engine = &mst_net_inproc,
                                     .net = script_net_options(MST_ROLE_WORKER, 0),
                                     .start_timeout_ms = 5000,
                                     .stall_timeout_ms = 5000,
                                     .stop = &j->stop};
    j->job = (mst_worker_job){.mode = MST_PS_SYNC, .batch = 10, .global_batch = 10};
    return j;
}

/* Starts the servers and runs the worker to its end. */
static mst_status job_run(job *j)
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
        assert_string_equal(json_string_value(json_object_get(json, "run")), "scripted");
        st = mst_worker_run(worker, &j->job, &j->counts);
    }
    json_decref(json);
    mst_worker_destroy(worker);
    script_join(&j->s);
    return st;
}

static void job_free(job *j)
{
    json_decref(j->job.join);
    mst_feed_destroy(j->feed);
    script_fini(&j->s);
    mst_dataset_destroy(&j->data->base);
    free(j);
}

/* One plain loop over the same rows: steps of `batch` rows from the start of the epoch, n of them. */
static void expect_weights(job *j, uint32_t batch_rows, uint32_t n_steps, double tolerance)
{
    const mst_model *model = j->s.assembly.model;
    mst_assembly plain;
    mst_grad layout = {0}, grad;
    mst_weights w;
    uint64_t position, d = j->params.size;
    assert_int_equal(mst_assembly_init(&plain, &j->model, &j->shape, model->kernels, 0, 0, 1), MST_OK);
    model->ops->layout(model, &plain.params, &layout);
    assert_int_equal(
        mst_grad_init(&grad, layout.ranges, layout.n_ranges, layout.sparse_offset, layout.width, 1), MST_OK);
    mst_model_weights(model, &plain.params, &w);
    void *scratch = malloc(model->ops->scratch_size(model, batch_rows));
    float *g = malloc(d * sizeof *g);
    assert_int_equal(mst_feed_start(j->feed, 0, 0), MST_OK);
    for (uint32_t step = 0; step < n_steps; step++) {
        mst_batch batch;
        mst_loss_sum sum = {0};
        assert_int_equal(mst_feed_take(j->feed, 0, batch_rows, &batch, &position), MST_OK);
        memset(g, 0, d * sizeof *g);
        mst_grad_clear(&grad);
        assert_int_equal(
            model->ops->compute(model, scratch, &batch, &w, 1.0f / (float)batch.n_rows, &grad, NULL, &sum),
            MST_OK);
        for (uint32_t r = 0; r < grad.n_ranges; r++)
            for (uint64_t i = 0; i < grad.ranges[r].size; i++)
                g[grad.ranges[r].offset + i] += grad.ranges[r].g[i];
        for (size_t i = 0; grad.width > 0 && i < grad.owners[0].n; i++)
            for (uint32_t c = 0; c < grad.width; c++)
                g[grad.sparse_offset + (uint64_t)grad.owners[0].keys[i] * grad.width + c] +=
                    grad.owners[0].values[i * grad.width + c];
        if (step < j->s.n_pushes)
            assert_true(fabs(j->s.pushes[step].loss - sum.loss) < 1e-4);
        for (uint64_t i = 0; i < d; i++)
            plain.params.w[i] -= (float)j->s.optimizer.options.lr * g[i];
    }
    for (uint64_t i = 0; i < d; i++)
        if (fabs((double)plain.params.w[i] - (double)j->s.assembly.params.w[i]) > tolerance)
            fail_msg("weight %llu is %g, not %g", (unsigned long long)i, (double)j->s.assembly.params.w[i],
                     (double)plain.params.w[i]);
    free(scratch);
    free(g);
    mst_grad_fini(&grad);
    mst_assembly_fini(&plain);
}

/* ---- slices ---- */

static mst_work slice(uint64_t step, uint32_t share, uint32_t n_shares)
{
    uint64_t from = (step - 1) * 10;
    return from >= N_ROWS ? (mst_work){.kind = MST_WORK_STOP}
                          : (mst_work){MST_WORK_SLICE, share, n_shares, step, 0, from, from + 10};
}

static void next_slice(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)drop;
    (void)s;
    *trailer = slice(push->step + 2, 0, 1);
}

static void check_slices(job *j)
{
    mst_work first[] = {slice(1, 0, 1), slice(2, 0, 1)};
    j->s.first = first;
    j->s.n_first = 2;
    j->s.pushed = next_slice;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_pushes, N_ROWS / 10);
    for (uint32_t i = 0; i < j->s.n_pushes; i++) {
        assert_int_equal(j->s.pushes[i].step, i + 1);
        assert_int_equal(j->s.pushes[i].rows, 10);
        assert_int_equal(j->s.pushes[i].alone, i + 1 == j->s.n_pushes); /* else with the next pull */
    }
    assert_int_equal(j->counts.steps, N_ROWS / 10);
    assert_int_equal(j->counts.rows, N_ROWS);
    assert_int_equal(j->s.n_last_reports, 1);
    assert_int_equal(json_integer_value(json_object_get(j->s.report, "rows")), N_ROWS);
    assert_true(j->counts.bytes_out > 0 && j->counts.bytes_in > 0);
    expect_weights(j, 10, N_ROWS / 10, 2e-6);
    job_free(j);
}

static void slices_of_sparse_logreg(void **state)
{
    (void)state;
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    check_slices(j);
}

static void slices_of_sparse_softmax(void **state)
{
    (void)state;
    check_slices(job_new(FAKE_COSTLY, "softmax", 3, FEATURES));
}

static void slices_of_dense_softmax(void **state)
{
    (void)state;
    job *j = job_new(FAKE_CHEAP, "softmax", 3, 4096);
    j->data->base.info.n_rows = N_ROWS;
    check_slices(j);
}

static void slices_with_the_whole_vector(void **state)
{
    (void)state;
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    j->job.dense_model = true;
    check_slices(j);
}

static void sample_tells_keys(void **state)
{
    (void)state;
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    mst_work first[] = {{.kind = MST_WORK_STOP}};
    j->s.first = first;
    j->s.n_first = 1;
    assert_int_equal(job_run(j), MST_OK);
    const json_t *sample = json_object_get(j->s.join, "sample");
    assert_string_equal(json_string_value(json_object_get(j->s.join, "model")), "it");
    assert_true(json_array_size(sample) > 300 && json_array_size(sample) <= 3 * N_ROWS);
    for (size_t i = 0; i < json_array_size(sample); i++) {
        json_int_t key = json_integer_value(json_array_get(sample, i));
        assert_true(key >= DENSE && key < FEATURES);
    }
    assert_int_equal(j->s.n_pushes, 0);
    job_free(j);
}

/* Shares of global batches, one of them empty. */
static void next_share(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)s;
    (void)drop;
    *trailer = (mst_work){.kind = MST_WORK_STOP};
    if (push->step + 2 <= 4)
        *trailer = slice(push->step + 2, 1, 3);
}

static void shares_may_be_empty(void **state)
{
    (void)state;
    job *j = job_new(FAKE_COSTLY, "logreg", 2, FEATURES);
    /* two rows for four workers: the first gets none; then thirds of ten; not consecutive */
    mst_work first[] = {{MST_WORK_SLICE, 0, 4, 1, 0, 30, 32}, slice(2, 1, 3)};
    j->s.first = first;
    j->s.n_first = 2;
    j->s.pushed = next_share;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_pushes, 4);
    assert_int_equal(j->s.pushes[0].rows, 0);
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(j->s.pushes[i].rows, 3);
    assert_int_equal(j->counts.steps, 3);
    assert_int_equal(j->counts.rows, 9);
    job_free(j);
}

static void slice_beyond_the_data(void **state)
{
    (void)state;
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    mst_work first[] = {{MST_WORK_SLICE, 0, 1, 1, 0, N_ROWS - 5, N_ROWS + 5}};
    j->s.first = first;
    j->s.n_first = 1;
    assert_int_equal(job_run(j), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "fake.data ends before rows 195 to 205"));
    assert_non_null(strstr(json_string_value(json_object_get(j->s.fail, "text")), "195 to 205"));
    job_free(j);
}

/* ---- leases ---- */

static void lease_more(script *s, const mst_message *m)
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

static job *leased(uint32_t pipeline)
{
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    static const mst_work first[] = {{.kind = MST_WORK_LEASE, .to = 40}};
    j->job.mode = MST_PS_ASYNC;
    j->job.pipeline = pipeline;
    j->s.first = first;
    j->s.n_first = 1;
    j->s.wanted = lease_more;
    return j;
}

static void leases_without_pipeline_are_a_plain_loop(void **state)
{
    (void)state;
    job *j = leased(0);
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_pushes, N_ROWS / 10);
    for (uint32_t i = 0; i < j->s.n_pushes; i++)
        assert_int_equal(j->s.pushes[i].step, i + 1);
    assert_int_equal(j->counts.rows, N_ROWS);
    expect_weights(j, 10, N_ROWS / 10, 2e-6);
    job_free(j);
}

static void leases_with_pipeline(void **state)
{
    (void)state;
    job *j = leased(3);
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_pushes, N_ROWS / 10);
    assert_int_equal(j->counts.steps, N_ROWS / 10);
    assert_int_equal(j->counts.rows, N_ROWS);
    job_free(j);
}

static void too_long_a_pipeline(void **state)
{
    (void)state;
    job *j = leased(15);
    assert_int_equal(job_run(j), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "--pipeline 15: at most 14 requests may be in flight");
    job_free(j);
}

static void clipped_gradients(void **state)
{
    (void)state;
    job *j = leased(0);
    j->job.clip = true;
    j->s.optimizer.options.clip_norm = 1e-3;
    assert_int_equal(job_run(j), MST_OK);
    double square = 0.0;
    for (uint64_t i = 0; i < j->params.size; i++)
        square += pow((double)j->s.assembly.params.w[i], 2);
    /* 20 steps of at most lr * clip_norm each */
    assert_true(sqrt(square) <= 20 * 0.5 * 1e-3 * 1.0001 && square > 0.0);
    job_free(j);
}

/* Every third push is late. */
static void drop_third(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)push;
    (void)trailer;
    *drop = s->n_pushes % 3 == 0;
}

static void drops_are_counted(void **state)
{
    (void)state;
    job *j = leased(0);
    j->job.mode = MST_PS_SYNC; /* with backup workers */
    j->s.n_servers = 1;
    j->s.pushed = drop_third;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_pushes, 20);
    assert_int_equal(j->counts.dropped_steps, 6);
    assert_int_equal(j->counts.dropped_rows, 60);
    assert_int_equal(j->counts.steps, 14);
    assert_int_equal(j->counts.rows, 140);
    /* a push is for the step after the version it was computed on */
    uint64_t version = 0;
    for (uint32_t i = 0; i < j->s.n_pushes; i++) {
        assert_int_equal(j->s.pushes[i].step, version + 1);
        version += (i + 1) % 3 != 0;
    }
    job_free(j);
}

/* ---- grants ---- */

static void grant_more(script *s, const mst_message *m)
{
    mst_work w = {.kind = MST_WORK_GRANT, .epoch = s->n_ended_wants, .to = 35};
    (void)m;
    if (s->n_ended_wants == 2)
        w = (mst_work){.kind = MST_WORK_STOP};
    script_work(s, &w, 1);
}

static void grants_of_a_stream(void **state)
{
    (void)state;
    job *j = job_new(FAKE_STREAM, "logreg", 2, FEATURES);
    mst_work first[] = {{.kind = MST_WORK_GRANT, .to = 35}};
    j->job.mode = MST_PS_ASYNC;
    j->s.first = first;
    j->s.n_first = 1;
    j->s.wanted = grant_more;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->counts.rows, 2 * N_ROWS); /* every row in each of two epochs */
    assert_int_equal(j->s.n_ended_wants, 2);
    job_free(j);
}

static void next_grant(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)drop;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < s->n_pushes; i++)
        ended += (s->pushes[i].flags & MST_STEP_EXHAUSTED) != 0;
    *trailer = (mst_work){.kind = MST_WORK_GRANT, .step = push->step + 2, .epoch = ended, .to = 30};
    if (push->flags & MST_STEP_EXHAUSTED) {
        mst_work again = {.kind = MST_WORK_GRANT, .step = push->step, .epoch = ended, .to = 30};
        if (ended == 2)
            again.kind = trailer->kind = MST_WORK_STOP;
        trailer->step = push->step + 1;
        script_work(s, &again, 1);
    }
}

static void exhausted_streams_in_sync(void **state)
{
    (void)state;
    job *j = job_new(FAKE_STREAM, "logreg", 2, FEATURES);
    mst_work first[] = {{.kind = MST_WORK_GRANT, .step = 1, .to = 30},
                        {.kind = MST_WORK_GRANT, .step = 2, .to = 30}};
    j->job.batch = j->job.global_batch = 30;
    j->s.first = first;
    j->s.n_first = 2;
    j->s.pushed = next_grant;
    assert_int_equal(job_run(j), MST_OK);
    /* 200 rows: six batches of 30 and one of 20, and a push that says so; twice */
    assert_int_equal(j->s.n_pushes, 16);
    for (uint32_t i = 0; i < 16; i++) {
        bool ended = i % 8 == 7;
        assert_int_equal(j->s.pushes[i].rows, ended ? 0 : i % 8 == 6 ? 20 : 30);
        assert_int_equal((j->s.pushes[i].flags & MST_STEP_EXHAUSTED) != 0, ended);
        assert_true(!ended || j->s.pushes[i].alone);
    }
    assert_int_equal(j->counts.rows, 2 * N_ROWS);
    assert_int_equal(j->counts.steps, 14);
    job_free(j);
}

/* ---- cuts and evaluation ---- */

static void cut_at_five(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    next_slice(s, push, drop, trailer);
    if (push->step == 5)
        script_plain(s, MST_PS_CUT, 3, MST_CUT_SAVE, 5);
}

static void marks_follow_cuts(void **state)
{
    (void)state;
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    mst_work first[] = {slice(1, 0, 1), slice(2, 0, 1)};
    j->s.first = first;
    j->s.n_first = 2;
    j->s.pushed = cut_at_five;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_marks[0], 1);
    assert_int_equal(j->s.n_marks[1], 1);
    assert_int_equal(j->s.mark_count, 3);
    assert_int_equal(j->s.mark_step, 5);
    job_free(j);
}

typedef struct fake_eval {
    mst_list want;
    uint32_t keys[4];
    mst_status open_status, run_status;
    float seen[16];
    unsigned runs;
    bool blocks; /* run returns when stopped only */
    atomic_bool stopped, running;
} fake_eval;

static mst_status fake_eval_open(void *arg, mst_list *list)
{
    fake_eval *e = arg;
    if (e->open_status != MST_OK)
        return mst_fail(e->open_status, "no test set here");
    list->n_ranges = e->want.n_ranges;
    memcpy(list->ranges, e->want.ranges, sizeof list->ranges);
    list->n_keys = e->want.n_keys;
    if (list->n_keys > 0) {
        SCRIPT_MUST(mst_list_room(list, list->n_keys));
        memcpy(list->keys, e->keys, sizeof e->keys[0] * list->n_keys);
    }
    return MST_OK;
}

static mst_status fake_eval_run(void *arg, const float *values, json_t **out)
{
    fake_eval *e = arg;
    e->runs++;
    atomic_store(&e->running, true);
    while (e->blocks && !atomic_load(&e->stopped))
        usleep(1000);
    if (e->run_status != MST_OK || e->blocks)
        return mst_fail(e->blocks ? MST_ESTOPPED : e->run_status, "the test set is torn");
    memcpy(e->seen, values, sizeof e->seen[0] * (4 + e->want.n_keys));
    *out = json_pack("{s:{s:f}}", "test", "loss", 0.25);
    return MST_OK;
}

static void fake_eval_stop(void *arg)
{
    atomic_store(&((fake_eval *)arg)->stopped, true);
}

/* The dense prefix, the bias, and a key of each server. */
static void chief_wants(job *j, fake_eval *e)
{
    e->want.n_ranges = 2;
    e->want.ranges[0] = (mst_extent){0, DENSE};
    e->want.ranges[1] = (mst_extent){6000, 1};
    e->want.n_keys = 2;
    e->keys[0] = 10;
    e->keys[1] = 5000;
    j->s.chief = true;
    j->job.evaluation = (mst_worker_evaluation){
        .arg = e, .open = fake_eval_open, .run = fake_eval_run, .stop = fake_eval_stop};
}

static void stop_when_evaluated(script *s, uint32_t cut, const json_t *result)
{
    (void)cut;
    (void)result;
    script_plain(s, MST_PS_STOP, 0, 0, 0);
}

static job *chief_new(fake_eval *e)
{
    job *j = job_new(FAKE_CHEAP, "logreg", 2, FEATURES);
    static const mst_work first[] = {{.kind = MST_WORK_WAIT}};
    chief_wants(j, e);
    j->s.first = first;
    j->s.n_first = 1;
    j->s.evaluated = stop_when_evaluated;
    return j;
}

static void chief_evaluates(void **state)
{
    (void)state;
    fake_eval e = {0};
    job *j = chief_new(&e);
    j->s.n_servers = 2;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_lists, 2);
    assert_int_equal(e.runs, 1);
    assert_true(json_real_value(json_object_get(json_object_get(j->s.result, "test"), "loss")) == 0.25);
    assert_int_equal(j->counts.n_evaluations, 1);
    assert_int_equal(j->counts.eval_bytes_in, 6 * sizeof(float));
    assert_int_equal(j->s.watched_bytes, 6 * sizeof(float));
    job_free(j);
}

/* Trains first, then evaluates: the values are the servers' at the end. */
static void cut_at_end(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    next_slice(s, push, drop, trailer);
    if (trailer->kind == MST_WORK_STOP)
        trailer->kind = MST_WORK_WAIT;
    if (push->step == N_ROWS / 10)
        script_plain(s, MST_PS_CUT, 2, MST_CUT_EVAL | MST_CUT_LAST, push->step);
}

static void stop_at_second(script *s, uint32_t cut, const json_t *result)
{
    (void)result;
    if (cut == 2)
        script_plain(s, MST_PS_STOP, 0, 0, 0);
}

static void chief_sees_trained_weights(void **state)
{
    (void)state;
    fake_eval e = {0};
    job *j = chief_new(&e);
    mst_work first[] = {slice(1, 0, 1), slice(2, 0, 1)};
    j->s.first = first;
    j->s.n_first = 2;
    j->s.pushed = cut_at_end;
    j->s.evaluated = stop_at_second;
    assert_int_equal(job_run(j), MST_OK);
    const float *w = j->s.assembly.params.w;
    for (uint32_t i = 0; i < DENSE; i++)
        assert_true(e.seen[i] == w[i] && w[i] != 0.0f);
    assert_true(e.seen[3] == w[6000] && w[6000] != 0.0f);
    assert_true(e.seen[4] == w[10]);
    assert_true(e.seen[5] == w[5000]);
    job_free(j);
}

static void evaluation_failures_are_told(void **state)
{
    (void)state;
    fake_eval e = {.run_status = MST_EINPUT};
    job *j = chief_new(&e);
    assert_int_equal(job_run(j), MST_OK);
    assert_string_equal(json_string_value(json_object_get(j->s.result, "error")), "the test set is torn");
    assert_int_equal(json_integer_value(json_object_get(j->s.result, "code")), MST_EINPUT);
    job_free(j);
    e = (fake_eval){.open_status = MST_EIO};
    j = chief_new(&e);
    assert_int_equal(job_run(j), MST_OK);
    assert_string_equal(json_string_value(json_object_get(j->s.result, "error")), "no test set here");
    assert_int_equal(j->s.n_lists, 0);
    job_free(j);
}

static void nothing_to_evaluate(void **state)
{
    (void)state;
    fake_eval e = {0};
    job *j = chief_new(&e);
    e.want.n_ranges = e.want.n_keys = 0;
    assert_int_equal(job_run(j), MST_OK);
    assert_true(json_is_object(j->s.result));
    assert_int_equal(json_object_size(j->s.result), 0);
    assert_int_equal(e.runs, 0);
    job_free(j);
}

static fake_eval *watched;

static void end_in_evaluation(script *s)
{
    if (watched != NULL && atomic_load(&watched->running)) {
        watched = NULL;
        script_plain(s, MST_PS_STOP, 0, 0, 0);
    }
}

static void end_does_not_wait_for_an_evaluation(void **state)
{
    (void)state;
    fake_eval e = {.blocks = true};
    job *j = chief_new(&e);
    watched = &e;
    j->s.tick = end_in_evaluation;
    assert_int_equal(job_run(j), MST_OK);
    assert_true(atomic_load(&e.stopped) && atomic_load(&e.running));
    job_free(j);
}

/* ---- ends ---- */

static void end_with_a_failure(void **state)
{
    (void)state;
    job *j = leased(0);
    j->s.end_code = MST_EPEER;
    j->s.end_text = "worker 3 is lost; resume with --resume --run scripted";
    assert_int_equal(job_run(j), MST_EPEER);
    assert_string_equal(mst_error_text(), "worker 3 is lost; resume with --resume --run scripted");
    assert_null(j->s.fail);
    job_free(j);
}

static void server_death_as_the_coordinator_tells_it(void **state)
{
    (void)state;
    job *j = leased(1);
    j->s.die_after = 4;
    assert_int_equal(job_run(j), MST_EPEER);
    assert_string_equal(mst_error_text(), "server 1 died; resume with --resume --run scripted");
    job_free(j);
}

static void server_death_without_a_word(void **state)
{
    (void)state;
    job *j = leased(1);
    j->s.die_after = 4;
    j->s.mute_after_death = true;
    assert_int_equal(job_run(j), MST_EPEER);
    assert_non_null(strstr(mst_error_text(), "server 1"));
    assert_non_null(strstr(mst_error_text(), "the job cannot go on; resume it with --resume --run scripted"));
    job_free(j);
}

static void refused_at_join(void **state)
{
    (void)state;
    job *j = leased(0);
    j->s.refusal = "worker 0 has another model";
    assert_int_not_equal(job_run(j), MST_OK);
    assert_non_null(strstr(mst_error_text(), "worker 0 has another model"));
    job_free(j);
}

static void no_welcome(void **state)
{
    (void)state;
    job *j = leased(0);
    j->s.silent_welcome = true;
    j->worker.start_timeout_ms = 1000;
    assert_int_equal(job_run(j), MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "waited 1 s for server 0 at script-"));
    assert_non_null(strstr(mst_error_text(), "to let this worker in"));
    job_free(j);
}

static void no_answer_to_a_step(void **state)
{
    (void)state;
    job *j = leased(0);
    j->s.mute = true;
    j->worker.stall_timeout_ms = 300;
    assert_int_equal(job_run(j), MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "server 0"));
    assert_int_equal(json_integer_value(json_object_get(j->s.fail, "code")), MST_ETIMEOUT);
    job_free(j);
}

static void no_server_at_all(void **state)
{
    (void)state;
    const char *const servers[] = {"nobody-0", "nobody-1"};
    mst_worker_options options = {.engine = &mst_net_inproc,
                                  .net = script_net_options(MST_ROLE_WORKER, 0),
                                  .servers = servers,
                                  .n_servers = 2,
                                  .start_timeout_ms = 1000,
                                  .stall_timeout_ms = 1000};
    mst_worker *worker = NULL;
    json_t *json = NULL;
    assert_int_equal(mst_worker_new(&options, &worker, &json), MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "server 0 at nobody-0, server 1 at nobody-1"));
    assert_null(worker);
    options.n_servers = 0;
    assert_int_equal(mst_worker_new(&options, &worker, &json), MST_EUSAGE);
}

static void torn_data_are_told(void **state)
{
    (void)state;
    job *j = leased(0);
    mst_dataset_destroy(&j->data->base);
    j->data = fake_new(FAKE_COSTLY, N_ROWS, 16, make_row, &j->classes);
    j->job.dense_model = true; /* no sample, so that training meets it */
    j->data->fail_chunk = 2;
    assert_int_equal(job_run(j), MST_EINPUT);
    assert_string_equal(mst_error_text(), "fake.data: chunk 2 is broken");
    assert_string_equal(json_string_value(json_object_get(j->s.fail, "text")),
                        "fake.data: chunk 2 is broken");
    assert_int_equal(json_integer_value(json_object_get(j->s.fail, "code")), MST_EINPUT);
    job_free(j);
}

static job *stopping;
static void stop_at_five(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)s;
    (void)drop;
    (void)trailer;
    if (push->step == 5)
        atomic_store(&stopping->stop, true);
}

static void asked_to_stop(void **state)
{
    (void)state;
    job *j = stopping = leased(0);
    j->s.pushed = stop_at_five;
    j->s.end_code = MST_ESTOPPED;
    j->s.end_text = "asked to stop; resume with --resume";
    assert_int_equal(job_run(j), MST_ESTOPPED);
    assert_string_equal(mst_error_text(), "asked to stop; resume with --resume");
    assert_string_equal(json_string_value(json_object_get(j->s.fail, "text")), "asked to stop");
    assert_int_equal(json_integer_value(json_object_get(j->s.fail, "code")), MST_ESTOPPED);
    assert_true(j->s.n_pushes >= 5 && j->s.n_pushes < N_ROWS / 10);
    job_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_sparse_logreg),
        cmocka_unit_test(slices_of_sparse_softmax),
        cmocka_unit_test(slices_of_dense_softmax),
        cmocka_unit_test(slices_with_the_whole_vector),
        cmocka_unit_test(sample_tells_keys),
        cmocka_unit_test(shares_may_be_empty),
        cmocka_unit_test(slice_beyond_the_data),
        cmocka_unit_test(leases_without_pipeline_are_a_plain_loop),
        cmocka_unit_test(leases_with_pipeline),
        cmocka_unit_test(too_long_a_pipeline),
        cmocka_unit_test(clipped_gradients),
        cmocka_unit_test(drops_are_counted),
        cmocka_unit_test(grants_of_a_stream),
        cmocka_unit_test(exhausted_streams_in_sync),
        cmocka_unit_test(marks_follow_cuts),
        cmocka_unit_test(chief_evaluates),
        cmocka_unit_test(chief_sees_trained_weights),
        cmocka_unit_test(evaluation_failures_are_told),
        cmocka_unit_test(nothing_to_evaluate),
        cmocka_unit_test(end_does_not_wait_for_an_evaluation),
        cmocka_unit_test(end_with_a_failure),
        cmocka_unit_test(server_death_as_the_coordinator_tells_it),
        cmocka_unit_test(server_death_without_a_word),
        cmocka_unit_test(refused_at_join),
        cmocka_unit_test(no_welcome),
        cmocka_unit_test(no_answer_to_a_step),
        cmocka_unit_test(no_server_at_all),
        cmocka_unit_test(torn_data_are_told),
        cmocka_unit_test(asked_to_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
