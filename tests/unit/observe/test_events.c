/* Event files, read back by protobuf-c's code for event.proto and by muster's own TFRecord checks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "event.pb-c.h"
#include "observe/events.h"

typedef MusterTest__Event event_message;
typedef MusterTest__Summary__Value value_message;

static uint64_t little(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The next event of `bytes` from *at on; NULL at the end. CRCs are checked. */
static event_message *next_event(const mst_bytes *bytes, size_t *at)
{
    if (*at == bytes->n)
        return NULL;
    const uint8_t *p = bytes->data + *at;
    assert_true(bytes->n - *at > 16);
    size_t n = little(p, 8);
    assert_true(n <= bytes->n - *at - 16);
    assert_int_equal(little(p + 8, 4), mst_crc_mask(mst_crc32c(0, p, 8)));
    assert_int_equal(little(p + 12 + n, 4), mst_crc_mask(mst_crc32c(0, p + 12, n)));
    *at += n + 16;
    event_message *e = muster_test__event__unpack(NULL, n, p + 12);
    assert_non_null(e);
    return e;
}

static event_message *only_event(const mst_bytes *bytes)
{
    size_t at = 0;
    event_message *e = next_event(bytes, &at);
    assert_non_null(e);
    assert_int_equal(at, bytes->n);
    return e;
}

static void test_version_and_restart(void **state)
{
    mst_bytes out = {0};
    size_t at = 0;
    (void)state;
    mst_event_version(&out, 1234.5);
    mst_event_restart(&out, 1235.5, 77);
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
    mst_histogram_fill(&h, values, N);
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
    mst_histogram_fill(&h, values, N);
    assert_true(fabs(h.count - N) < 1e-6);
    assert_true(fabs(h.sum_squares - N) < 1e-6);
    assert_true(h.scale > 4.0);
    mst_histogram_fill(&h, values, 0);
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
    const char *const metrics[] = {"loss", "accuracy"};
    json_t *values = json_pack("{s:f, s:b, s:s, s:s, s:n, s:i}", "lr", 0.25, "save", 1, "mode", "sync", "run",
                               "", "none", "batch", 100);
    (void)state;
    mst_event_experiment(&out, 9.0, values, metrics, 2);
    MusterTest__HParams *h = hparams_of(&out, "_hparams_/experiment");
    assert_int_equal(h->experiment->n_hparam_infos, 4); /* neither the empty one nor null */
    assert_int_equal(h->experiment->n_metric_infos, 2);
    assert_string_equal(h->experiment->metric_infos[1]->name->tag, "accuracy");
    muster_test__hparams__free_unpacked(h, NULL);

    out.n = 0;
    mst_event_run_begins(&out, 10.0, "group", values);
    h = hparams_of(&out, "_hparams_/session_start_info");
    const MusterTest__Start *s = h->session_start_info;
    assert_true(s->start_time_secs == 10.0);
    assert_string_equal(s->group_name, "group");
    assert_int_equal(s->n_hparams, 4);
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
        cmocka_unit_test(test_version_and_restart),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_long_vectors_are_sampled),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_hparams),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
