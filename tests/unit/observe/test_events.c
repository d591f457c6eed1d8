/* Event files, read back by protobuf-c's code for event.proto and by muster's own TFRecord checks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "event_reader.h"
#include "observe/observe.h"
#include "options/option_tables.h"
#include "train/run_log_impl.h"

static event_message *only_event(const mst_bytes *bytes)
{
    size_t at = 0;
    event_message *e = next_event(bytes, &at);
    assert_non_null(e);
    assert_int_equal(at, bytes->n);
    return e;
}

static void test_version_and_start(void **state)
{
    mst_bytes out = {0};
    size_t at = 0;
    (void)state;
    mst_event_version(&out, 1234.5);
    mst_event_start(&out, 1235.5, 77);
    event_message *e = next_event(&out, &at);
    assert_true(e->wall_time == 1234.5);
    assert_string_equal(e->file_version, "brain.Event:2");
    muster_test__event__free_unpacked(e, NULL);
    e = next_event(&out, &at);
    assert_int_equal(e->step, 77);
    assert_int_equal(e->session_log->status, 1);
    muster_test__event__free_unpacked(e, NULL);
    assert_null(next_event(&out, &at));
    mst_bytes_fini(&out);
}

static const MusterTest__AttrValue *attribute(const MusterTest__NodeDef *node, const char *name)
{
    for (size_t i = 0; i < node->n_attr; i++)
        if (strcmp(node->attr[i]->key, name) == 0)
            return node->attr[i]->value;
    fail_msg("%s has no attribute %s", node->name, name);
    return NULL;
}

static void test_graph(void **state)
{
    mst_bytes out = {0};
    json_t *nodes = json_pack(
        "[{s:s, s:s, s:[], s:[i, i], s:s}, {s:s, s:s, s:[s, s], s:[], s:{s:i, s:f, s:b, s:s, s:n}}, {s:s}]",
        "name", "a/w", "op", "VariableV2", "inputs", "shape", -1, 300, "device", "/job:server/task:1", "name",
        "loss", "op", "logistic", "inputs", "a/w", "b", "shape", "attr", "n", -7, "x", 0.25, "t", 1, "text",
        "tanh", "none", "name", "without an op");
    (void)state;
    mst_event_graph(&out, 2.0, nodes);
    event_message *e = only_event(&out);
    assert_non_null(e->graph_def);
    assert_int_equal(e->graph_def->n_node, 2);
    const MusterTest__NodeDef *w = e->graph_def->node[0], *loss = e->graph_def->node[1];
    assert_string_equal(w->name, "a/w");
    assert_string_equal(w->op, "VariableV2");
    assert_string_equal(w->device, "/job:server/task:1");
    assert_int_equal(w->n_input, 0);
    const MusterTest__AttrValue__ListValue *shapes = attribute(w, "_output_shapes")->list;
    assert_int_equal(shapes->n_shape, 1);
    assert_int_equal(shapes->shape[0]->n_dim, 2);
    assert_int_equal(shapes->shape[0]->dim[0]->size, -1);
    assert_int_equal(attribute(w, "shape")->shape->dim[1]->size, 300);
    assert_int_equal(attribute(w, "dtype")->type, 1);
    assert_int_equal(loss->n_input, 2);
    assert_string_equal(loss->input[1], "b");
    assert_string_equal(loss->device, "");
    assert_int_equal(attribute(loss, "_output_shapes")->list->shape[0]->n_dim, 0);
    assert_int_equal(attribute(loss, "n")->i, -7);
    assert_true(attribute(loss, "x")->f == 0.25f);
    assert_true(attribute(loss, "t")->b);
    assert_memory_equal(attribute(loss, "text")->s.data, "tanh", 4);
    assert_int_equal(loss->n_attr, 6);
    muster_test__event__free_unpacked(e, NULL);
    json_decref(nodes);
    mst_bytes_fini(&out);
}

static void test_scalars(void **state)
{
    mst_bytes out = {0};
    const mst_scalar scalars[] = {{"loss", 0.5}, {"auc", NAN}, {"lr", 1e-3}};
    (void)state;
    mst_event_scalars(&out, 1.0, 5000000000, scalars, 3);
    event_message *e = only_event(&out);
    assert_int_equal(e->step, 5000000000);
    assert_int_equal(e->summary == NULL ? 0 : e->summary->n_value, 2);
    assert_string_equal(e->summary->value[0]->tag, "loss");
    assert_true(e->summary->value[0]->simple_value == 0.5f);
    assert_string_equal(e->summary->value[1]->tag, "lr");
    muster_test__event__free_unpacked(e, NULL);
    out.n = 0;
    mst_event_scalars(&out, 1.0, 5, &scalars[1], 1);
    assert_int_equal(out.n, 0); /* nothing to say */
    mst_bytes_fini(&out);
}

static void test_histogram(void **state)
{
    enum { N = 1000 };
    float values[N];
    mst_histogram h;
    mst_bytes out = {0};
    double all = 0.0, sum = 0.0;
    (void)state;
    for (int i = 0; i < N; i++) {
        values[i] = (float)(i - 300) * 0.01f;
        sum += (double)values[i];
    }
    values[7] = NAN;
    values[8] = -INFINITY;
    mst_histogram_gather(&h, &(mst_stretch){.values = values, .n = N}, 1);
    assert_int_equal(h.not_finite, 2);
    mst_event_histogram(&out, 1.0, 3, "weights/w", &h);
    event_message *e = only_event(&out);
    const MusterTest__HistogramProto *p = e->summary->value[0]->histo;
    assert_string_equal(e->summary->value[0]->tag, "weights/w");
    assert_true(p->num == N - 2);
    assert_true(p->min == (double)-3.0f && p->max == (double)((float)699 * 0.01f));
    assert_true(fabs(p->sum - (sum - (-2.93 - 2.92))) < 1e-2);
    assert_int_equal(p->n_bucket, p->n_bucket_limit);
    assert_true(p->n_bucket > 20);
    for (size_t i = 0; i < p->n_bucket; i++) {
        double low = i > 0 ? p->bucket_limit[i - 1] : -INFINITY, count = 0.0;
        assert_true(p->bucket_limit[i] > low);
        all += p->bucket[i];
        for (int j = 0; j < N; j++) /* edges belong to the bucket that is further from zero */
            count += (double)values[j] > low && (double)values[j] < p->bucket_limit[i];
        assert_true(count <= p->bucket[i]);
    }
    assert_true(all == N - 2);
    muster_test__event__free_unpacked(e, NULL);
    mst_bytes_fini(&out);
}

static void test_long_vectors_are_sampled(void **state)
{
    enum { N = 300000 };
    static float values[N];
    mst_histogram h;
    (void)state;
    for (int i = 0; i < N; i++)
        values[i] = i % 2 ? 1.0f : -1.0f;
    mst_histogram_gather(&h, &(mst_stretch){.values = values, .n = N}, 1);
    assert_true(fabs(h.count - N) < 1e-6);
    assert_true(fabs(h.sum_squares - N) < 1e-6);
    assert_true(h.scale > 4.0);
    mst_histogram_gather(&h, &(mst_stretch){.values = values}, 1);
    assert_true(h.count == 0.0 && h.min == 0.0);
    assert_int_equal(mst_histogram_each(&h, NULL, NULL), 0);
}

static void test_text(void **state)
{
    char text[20001];
    mst_bytes out = {0};
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    mst_event_text(&out, 1.0, 0, "configuration", text);
    event_message *e = only_event(&out);
    const value_message *v = e->summary->value[0];
    assert_string_equal(v->metadata->plugin_data->plugin_name, "text");
    assert_int_equal(v->metadata->data_class, 2); /* tensors: without it TensorBoard guesses by the plugin */
    assert_int_equal(v->tensor->dtype, 7);
    assert_int_equal(v->tensor->tensor_shape->n_dim, 0);
    assert_int_equal(v->tensor->n_string_val, 1);
    assert_int_equal(v->tensor->string_val[0].len, sizeof text - 1);
    muster_test__event__free_unpacked(e, NULL);
    mst_bytes_fini(&out);
}

/* Unpacks the plug-in's message of the only event. */
static MusterTest__HParams *hparams_of(const mst_bytes *bytes, const char *tag)
{
    event_message *e = only_event(bytes);
    const value_message *v = e->summary->value[0];
    assert_string_equal(v->tag, tag);
    assert_string_equal(v->metadata->plugin_data->plugin_name, "hparams");
    assert_int_equal(v->metadata->data_class, 2);
    assert_int_equal(v->tensor->dtype, 1);
    assert_int_equal(v->tensor->tensor_shape->n_dim, 1);
    const ProtobufCBinaryData *content = &v->metadata->plugin_data->content;
    MusterTest__HParams *h = muster_test__hparams__unpack(NULL, content->len, content->data);
    assert_non_null(h);
    muster_test__event__free_unpacked(e, NULL);
    return h;
}

static void test_hparams(void **state)
{
    mst_bytes out = {0};
    json_t *values = json_pack("{s:f, s:b, s:s, s:s, s:n, s:i}", "lr", 0.25, "save", 1, "mode", "sync", "run",
                               "", "none", "batch", 100);
    (void)state;
    mst_event_run_begins(&out, 10.0, "group", values);
    MusterTest__HParams *h = hparams_of(&out, "_hparams_/session_start_info");
    const MusterTest__Start *s = h->session_start_info;
    assert_true(s->start_time_secs == 10.0);
    assert_string_equal(s->group_name, "group");
    assert_int_equal(s->n_hparams, 4); /* neither the empty one nor null */
    for (size_t i = 0; i < s->n_hparams; i++) {
        const char *key = s->hparams[i]->key;
        if (strcmp(key, "lr") == 0)
            assert_true(s->hparams[i]->value->number_value == 0.25);
        else if (strcmp(key, "mode") == 0)
            assert_string_equal(s->hparams[i]->value->string_value, "sync");
        else if (strcmp(key, "save") == 0)
            assert_true(s->hparams[i]->value->bool_value);
    }
    muster_test__hparams__free_unpacked(h, NULL);

    out.n = 0;
    mst_event_run_ends(&out, 11.0, true);
    h = hparams_of(&out, "_hparams_/session_end_info");
    assert_int_equal(h->session_end_info->status, 2);
    muster_test__hparams__free_unpacked(h, NULL);
    json_decref(values);
    mst_bytes_fini(&out);
}

/* What the object has to say, file by file. */
static void take_all(mst_observe *o, mst_bytes files[MST_RECORDS])
{
    mst_record record;
    memset(files, 0, MST_RECORDS * sizeof *files);
    while (mst_observe_take(o, &record)) {
        mst_bytes_add(&files[record.kind], record.data, record.n);
        assert_false(files[record.kind].failed);
        mst_free((void *)record.data);
    }
}

static void free_all(mst_bytes files[MST_RECORDS])
{
    for (unsigned k = 0; k < MST_RECORDS; k++)
        mst_bytes_fini(&files[k]);
}

/* Files begin with a version and a start, whether or not the run was resumed: TensorBoard drops what a folder
 * said of later steps only at its second start. */
static void expect_head(const mst_bytes *file, size_t *at, uint64_t step)
{
    event_message *e = next_event(file, at);
    assert_string_equal(e->file_version, "brain.Event:2");
    muster_test__event__free_unpacked(e, NULL);
    e = next_event(file, at);
    assert_int_equal(e->session_log->status, 1);
    assert_int_equal(e->step, step);
    muster_test__event__free_unpacked(e, NULL);
}

static bool has_hparam(const MusterTest__Start *s, const char *name, const char *text)
{
    for (size_t i = 0; i < s->n_hparams; i++)
        if (strcmp(s->hparams[i]->key, name) == 0)
            return text == NULL || strcmp(s->hparams[i]->value->string_value, text) == 0;
    return false;
}

/* The evaluator's file: its first records, no record for all runs, and the compared options. */
static void test_evaluator(void **state)
{
    const mst_observe_options options = {.process = "local", .role = "local", .events = true};
    mst_bytes files[MST_RECORDS];
    json_t *config = json_pack("{s:{s:s, s:s, s:i, s:i, s:[s, s]}, s:{s:s}, s:{s:b}}", "training", "run",
                               "runs/a", "group", "g", "seed", 3, "steps", 7, "test", "a", "b", "model",
                               "model", "logreg", "output", "quiet", 1);
    (void)state;
    for (int grouped = 0; grouped < 2; grouped++) {
        size_t at = 0;
        mst_observe *o = mst_observe_new(&options);
        assert_non_null(o);
        mst_observe_set_first_step(o, grouped ? 41 : 0);
        json_t *compared = mst_train_compared(config, grouped);
        mst_observe_config(o, grouped ? "g" : NULL, config, compared);
        json_decref(compared);
        mst_observe_run_ends(o, false);
        take_all(o, files);
        const mst_bytes *file = &files[MST_RECORD_EVALUATIONS];
        expect_head(file, &at, grouped ? 42 : 1);
        event_message *e = next_event(file, &at);
        assert_string_equal(e->summary->value[0]->tag, "configuration");
        muster_test__event__free_unpacked(e, NULL);
        e = next_event(file, &at);
        assert_string_equal(e->summary->value[0]->tag, "_hparams_/session_start_info");
        const ProtobufCBinaryData *content = &e->summary->value[0]->metadata->plugin_data->content;
        MusterTest__HParams *h = muster_test__hparams__unpack(NULL, content->len, content->data);
        const MusterTest__Start *s = h->session_start_info;
        assert_string_equal(s->group_name, grouped ? "g" : "");
        assert_int_equal(has_hparam(s, "seed", NULL), !grouped);
        assert_true(has_hparam(s, "steps", NULL) && has_hparam(s, "model", "logreg"));
        assert_true(has_hparam(s, "test", "a,b"));
        assert_false(has_hparam(s, "run", NULL) || has_hparam(s, "group", NULL) ||
                     has_hparam(s, "quiet", NULL));
        muster_test__hparams__free_unpacked(h, NULL);
        muster_test__event__free_unpacked(e, NULL);
        e = next_event(file, &at);
        assert_string_equal(e->summary->value[0]->tag, "_hparams_/session_end_info");
        muster_test__event__free_unpacked(e, NULL);
        assert_null(next_event(file, &at));
        free_all(files);
        mst_observe_destroy(o);
    }
    json_decref(config);
}

/* A file with losses of two steps. */
static void expect_curve(const mst_bytes *file, uint64_t first, uint64_t second)
{
    size_t at = 0;
    expect_head(file, &at, 1);
    for (int i = 0; i < 2; i++) {
        event_message *e = next_event(file, &at);
        assert_int_equal(e->step, i == 0 ? first : second);
        assert_string_equal(e->summary->value[0]->tag, "loss");
        assert_true(e->wall_time > 1e9);
        muster_test__event__free_unpacked(e, NULL);
    }
    assert_null(next_event(file, &at));
}

/* Steps of a curve grow, although figures of an evaluation come later than a line of training after it; and
 * an evaluation tells of training, too. */
static void test_curves_of_a_run_log(void **state)
{
    char root[] = "/tmp/muster-test-XXXXXX", run[64];
    static char *sets[] = {"test.svm"};
    mst_optimizer optimizer;
    mst_run_log *run_log;
    mst_eval_outcome verdict;
    mst_bytes files[MST_RECORDS];
    const mst_train_callbacks nobody = {0};
    const mst_result result = {.rows = 5, .loss = 0.25, .accuracy = 0.5, .auc = NAN, .top5 = NAN};
    const mst_observe_options observing = {.process = "local", .role = "local", .events = true};
    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(run, sizeof run, "%s/run", root);
    const mst_train_options o = {.epochs = 1,
                                 .eval_every = "never",
                                 .checkpoint_every = "never",
                                 .run = run,
                                 .test = {.items = sets, .n = 1}};
    assert_int_equal(mst_optimizer_init(&optimizer, &(mst_optim_options){.lr = 0.25, .decay_steps = 1}),
                     MST_OK);
    mst_run_log_options options = {.train = &o,
                                   .global_batch = 10,
                                   .optimizer = &optimizer,
                                   .model_name = "logreg",
                                   .model = json_object()};
    assert_int_equal(mst_run_schedule_parse(&o, false, &options.schedule), MST_OK);
    assert_int_equal(mst_run_log_new(&options, &run_log), MST_OK);
    assert_int_equal(mst_run_log_open(run_log, NULL), MST_OK);
    mst_observe *observe = mst_observe_new(&observing);
    run_log->observe = observe; /* nothing is filed: the test takes it */
    for (uint64_t step = 10; step <= 30; step += 10) {
        const mst_progress p = {.steps = step,
                                .rows = step * 10,
                                .epoch_rows = 1000,
                                .seconds = 0.01 * (double)step,
                                .loss = {.loss = 100.0, .weight = 100.0, .rows = 100}};
        assert_int_equal(mst_run_log_progress(run_log, &p), MST_OK);
        if (step == 20) { /* of step 10, after a line of step 20 */
            run_log->line_ns = 0;
            assert_int_equal(mst_run_log_line(run_log), MST_OK);
            assert_int_equal(mst_run_log_evaluated(run_log, &nobody, NULL, &result, &verdict), MST_OK);
        }
        if (step != 20)
            mst_run_log_evaluation_begins(run_log);
    }
    assert_int_equal(mst_run_log_evaluated(run_log, &nobody, NULL, &result, &verdict), MST_OK);
    run_log->observe = NULL;
    take_all(observe, files);
    expect_curve(&files[MST_RECORD_EVENTS], 20, 30);
    expect_curve(&files[MST_RECORD_EVALUATIONS], 10, 30);
    free_all(files);
    mst_observe_destroy(observe);
    mst_run_log_destroy(run_log);
    json_decref(options.model);
    assert_int_equal(mst_remove_tree(root), MST_OK);
}

static void test_no_memory(void **state)
{
    mst_bytes out = {0};
    (void)state;
    mst_alloc_fail_at(1);
    mst_event_text(&out, 1.0, 0, "a", "b");
    mst_alloc_fail_at(0);
    assert_true(out.failed);
    assert_int_equal(out.n, 0);
    mst_bytes_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_and_start),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_long_vectors_are_sampled),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_hparams),
        cmocka_unit_test(test_evaluator),
        cmocka_unit_test(test_curves_of_a_run_log),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
