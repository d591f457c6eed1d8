/* A worker outside of steps, with scripted servers: markers and evaluations follow cuts, and every end and
 * failure of a job has its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "worker_trial.h"

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
    mst_key_list want;
    uint32_t keys[4];
    mst_status open_status, run_status;
    float seen[16];
    unsigned runs;
    bool blocks; /* run returns when stopped only */
    atomic_bool stopped, running;
} fake_eval;

static mst_status fake_eval_open(void *arg, mst_key_list *list)
{
    fake_eval *e = arg;
    if (e->open_status != MST_OK)
        return mst_fail(e->open_status, "no test set here");
    list->n_ranges = e->want.n_ranges;
    memcpy(list->ranges, e->want.ranges, sizeof list->ranges);
    list->n_keys = e->want.n_keys;
    if (list->n_keys > 0) {
        SCRIPT_MUST(mst_key_list_room(list, list->n_keys));
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

/* Trains between two evaluations: the values of the second are the servers' at the end. The first comes
 * before any step, so that the servers have the list whenever they are asked for its values. */
static void cut_at_end(script *s, const script_push *push, bool *drop, mst_work *trailer)
{
    next_slice(s, push, drop, trailer);
    if (trailer->kind == MST_WORK_STOP)
        trailer->kind = MST_WORK_WAIT;
    if (push->step == N_ROWS / 10)
        script_plain(s, MST_PS_CUT, 2, MST_CUT_EVAL | MST_CUT_LAST, push->step);
}

static void train_then_stop(script *s, uint32_t cut, const json_t *result)
{
    mst_work first[] = {slice(1, 0, 1), slice(2, 0, 1)};
    (void)result;
    if (cut == 1)
        script_work(s, first, 2);
    if (cut == 2)
        script_plain(s, MST_PS_STOP, 0, 0, 0);
}

static void chief_sees_trained_weights(void **state)
{
    (void)state;
    fake_eval e = {0};
    job *j = chief_new(&e);
    j->s.pushed = cut_at_end;
    j->s.evaluated = train_then_stop;
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
    assert_non_null(strstr(mst_error_text(),
                           "the job cannot continue; resume the run if it has saved a checkpoint by "
                           "starting all processes again with --run scripted --resume"));
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
    j->worker.net.peer_timeout_ms = 2000;
    assert_int_equal(job_run(j), MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "waited 4 s for server 0 at script-"));
    assert_non_null(strstr(mst_error_text(), "to admit this worker"));
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

/* The servers do not answer while training waits for an evaluation, which takes longer than the limit. */
static void hold_for_long(script *s)
{
    static uint64_t since;
    static bool over;
    if (since == 0 && s->join != NULL) {
        since = mst_now_ns();
        script_plain(s, MST_PS_HOLD, 0, MST_HOLD_BEGIN, 0);
    }
    if (since != 0 && !over && mst_now_ns() - since > 900 * MST_MS) {
        over = true;
        script_plain(s, MST_PS_STOP, 0, MST_STOP_NOW, 0);
    }
}

static void evaluations_may_take_long(void **state)
{
    (void)state;
    job *j = leased(0);
    j->s.mute = true;
    j->s.tick = hold_for_long;
    j->worker.stall_timeout_ms = 300;
    assert_int_equal(job_run(j), MST_OK);
    assert_int_equal(j->s.n_last_reports, 1);
    assert_int_equal(j->counts.steps, 0);
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
    j->s.end_text = "stop requested; resume with --resume";
    assert_int_equal(job_run(j), MST_ESTOPPED);
    assert_string_equal(mst_error_text(), "stop requested; resume with --resume");
    assert_string_equal(json_string_value(json_object_get(j->s.fail, "text")), "stop requested");
    assert_int_equal(json_integer_value(json_object_get(j->s.fail, "code")), MST_ESTOPPED);
    assert_true(j->s.n_pushes >= 5 && j->s.n_pushes < N_ROWS / 10);
    job_free(j);
}

static void send_half_an_item(script *s, const mst_message *m)
{
    uint8_t body[MST_WORK_SIZE / 2] = {0};
    mst_message w = {.type = MST_PS_WORK};
    (void)m;
    SCRIPT_MUST(mst_net_send(s->nets[0], s->peers[0], &w, &(mst_piece){body, sizeof body}, 1, NULL));
}

static void messages_that_do_not_fit(void **state)
{
    (void)state;
    job *j = leased(0);
    j->s.wanted = send_half_an_item;
    assert_int_equal(job_run(j), MST_EPEER);
    assert_non_null(strstr(mst_error_text(), "a WORK of 24 bytes; items have 48 each"));
    job_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(evaluations_may_take_long),
        cmocka_unit_test(no_server_at_all),
        cmocka_unit_test(torn_data_are_told),
        cmocka_unit_test(asked_to_stop),
        cmocka_unit_test(messages_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
