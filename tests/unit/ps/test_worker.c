/* A worker's steps with scripted servers: slices, leases and grants become the right pushes, the weights
 * equal those of one plain loop, and drops are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "worker_trial.h"

/* One plain loop over the same rows: steps of `batch` rows from the start of the epoch, n of them. */
static void expect_weights(job *j, uint32_t batch_rows, uint32_t n_steps, double tolerance)
{
    const mst_model *model = j->s.assembly.model;
    mst_assembly plain;
    mst_grad layout = {0}, grad;
    mst_weights w;
    uint64_t position, d = j->params.size;
    assert_int_equal(mst_assembly_init(&plain, &j->model, &j->shape, model->kernels, &(mst_store_spec){0}, 1),
                     MST_OK);
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
    j->job.mode = MST_MODE_SYNC; /* with backup workers */
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
    j->job.mode = MST_MODE_ASYNC;
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

/* A stop while it waits for the others to end the epoch. */
static void stop_exhausted(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    (void)drop;
    *trailer = (mst_work){.kind = MST_WORK_GRANT, .step = push->step + 2, .to = 100};
    if (push->flags & MST_STEP_EXHAUSTED) {
        s->mute = true; /* no answer */
        script_plain(s, MST_PS_STOP, 0, 0, 0);
    }
}

static void exhausted_worker_is_stopped(void **state)
{
    (void)state;
    job *j = job_new(FAKE_STREAM, "logreg", 2, FEATURES);
    mst_work first[] = {{.kind = MST_WORK_GRANT, .step = 1, .to = 100},
                        {.kind = MST_WORK_GRANT, .step = 2, .to = 100}};
    j->job.batch = j->job.global_batch = 100;
    j->s.first = first;
    j->s.n_first = 2;
    j->s.pushed = stop_exhausted;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_pushes, 3);
    assert_int_equal(j->counts.rows, N_ROWS);
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
        cmocka_unit_test(exhausted_worker_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
