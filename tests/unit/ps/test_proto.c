/* Messages of the parameter server: encoded messages decode to the same, and all others are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "ps/proto.h"

static void test_type_names(void **state)
{
    (void)state;
    for (uint16_t t = MST_PS_JOB; t <= MST_PS_PROBE; t++)
        assert_string_not_equal(mst_ps_type_name(t), "unknown");
    assert_string_equal(mst_ps_type_name(MST_PS_STEP), "STEP");
    assert_string_equal(mst_ps_type_name(MST_PS_EVAL_LIST), "EVAL_LIST");
    assert_string_equal(mst_ps_type_name(3), "unknown");
    assert_string_equal(mst_ps_type_name(MST_PS_PROBE + 1), "unknown");
}

/* ---- work ---- */

static void test_work_round_trip(void **state)
{
    (void)state;
    const mst_work items[] = {
        {.kind = MST_WORK_SLICE,
         .share = 2,
         .n_shares = 5,
         .step = 1ull << 40,
         .epoch = 3,
         .from = 7,
         .to = 1000},
        {.kind = MST_WORK_LEASE, .epoch = 1, .from = 1ull << 33, .to = (1ull << 33) + 5},
        {.kind = MST_WORK_GRANT, .to = 12},
        {.kind = MST_WORK_WAIT},
        {.kind = MST_WORK_STOP},
    };
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        uint8_t bytes[2 * MST_WORK_SIZE];
        mst_work back;
        mst_work_encode(&items[i], bytes);
        assert_int_equal(mst_work_decode(bytes, sizeof bytes, &back), MST_OK);
        assert_int_equal(back.kind, items[i].kind);
        assert_int_equal(back.share, items[i].share);
        assert_int_equal(back.n_shares, items[i].n_shares);
        assert_int_equal(back.step, items[i].step);
        assert_int_equal(back.epoch, items[i].epoch);
        assert_int_equal(back.from, items[i].from);
        assert_int_equal(back.to, items[i].to);
    }
}

static void test_work_layout(void **state)
{
    (void)state;
    const mst_work w = {.kind = MST_WORK_SLICE,
                        .share = 1,
                        .n_shares = 2,
                        .step = 3,
                        .epoch = 4,
                        .from = 5,
                        .to = 0x0102030405060708};
    uint8_t bytes[MST_WORK_SIZE];
    mst_work_encode(&w, bytes);
    const uint8_t expected[MST_WORK_SIZE] = {1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
                                             3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
                                             5, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
    assert_memory_equal(bytes, expected, sizeof bytes);
}

static void refuse_work(const mst_work *w, size_t size, const char *sentence)
{
    uint8_t bytes[MST_WORK_SIZE];
    mst_work out;
    mst_work_encode(w, bytes);
    assert_int_equal(mst_work_decode(bytes, size, &out), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), sentence));
}

static void test_work_refused(void **state)
{
    (void)state;
    refuse_work(&(mst_work){.kind = MST_WORK_STOP}, MST_WORK_SIZE - 1, "a work item of 47 bytes; it has 48");
    refuse_work(&(mst_work){.kind = 0}, MST_WORK_SIZE, "unknown kind 0");
    refuse_work(&(mst_work){.kind = MST_WORK_STOP + 1}, MST_WORK_SIZE, "unknown kind 6");
    refuse_work(&(mst_work){.kind = MST_WORK_LEASE, .from = 2, .to = 1}, MST_WORK_SIZE,
                "start at 2 and end at 1");
    refuse_work(&(mst_work){.kind = MST_WORK_GRANT, .from = 2, .to = 3}, MST_WORK_SIZE,
                "grants rows from 2 on");
    refuse_work(&(mst_work){.kind = MST_WORK_SLICE, .to = 3}, MST_WORK_SIZE, "share 0 of 0 of 3 rows");
    refuse_work(&(mst_work){.kind = MST_WORK_SLICE, .share = 2, .n_shares = 2, .to = 3}, MST_WORK_SIZE,
                "share 2 of 2 of 3 rows");
    refuse_work(&(mst_work){.kind = MST_WORK_SLICE, .share = 1, .n_shares = 2, .to = UINT64_MAX},
                MST_WORK_SIZE, "share 1 of 2");
}

/* Shares cover the slice without gaps. */
static void test_work_shares(void **state)
{
    (void)state;
    mst_work w = {.kind = MST_WORK_SLICE, .n_shares = 7, .from = 100, .to = 123};
    uint64_t at = w.from;
    for (w.share = 0; w.share < w.n_shares; w.share++) {
        uint64_t from, to;
        mst_work_share(&w, &from, &to);
        assert_int_equal(from, at);
        at = to;
    }
    assert_int_equal(at, w.to);
}

/* ---- steps ---- */

#define BOTH (MST_STEP_PUSH | MST_STEP_PULL)

static mst_status decode(const mst_step_head *head, uint32_t flags, uint64_t size, mst_step_head *out)
{
    uint8_t body[MST_STEP_HEAD];
    mst_step_head_encode(head, body);
    mst_message m = {.type = MST_PS_STEP, .flags = flags, .size = size};
    return mst_step_head_decode(&m, body, out);
}

static void test_head_round_trip(void **state)
{
    (void)state;
    mst_step_head head = {.loss = 1.5,
                          .weight = -0.25,
                          .rows = 100,
                          .push_floats = 7,
                          .pull_ranges = 2,
                          .pull_keys = 9,
                          .packed_bytes = 13,
                          .correct = 61};
    for (uint32_t wire = MST_FLOAT_FP32; wire <= MST_FLOAT_FP16; wire++) {
        mst_step_head back;
        uint64_t size = 48 + 7 * mst_float_size((mst_float_format)wire) + 32 + 13;
        assert_int_equal(decode(&head, BOTH | MST_STEP_EXHAUSTED | wire << MST_STEP_WIRE_SHIFT, size, &back),
                         MST_OK);
        assert_true(back.loss == 1.5 && back.weight == -0.25);
        assert_int_equal(back.rows, 100);
        assert_int_equal(back.push_floats, 7);
        assert_int_equal(back.pull_ranges, 2);
        assert_int_equal(back.pull_keys, 9);
        assert_int_equal(back.packed_bytes, 13);
        assert_int_equal(back.correct, 61);
        assert_int_equal(decode(&head, BOTH | wire << MST_STEP_WIRE_SHIFT, size + 1, &back), MST_EINPUT);
        assert_int_equal(decode(&head, BOTH | wire << MST_STEP_WIRE_SHIFT, size - 1, &back), MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), "whose sections add up to"));
    }
}

static void refuse_head(const mst_step_head *head, uint32_t flags, uint64_t size, const char *sentence)
{
    mst_step_head out;
    assert_int_equal(decode(head, flags, size, &out), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), sentence));
}

static void test_head_refused(void **state)
{
    (void)state;
    mst_step_head empty = {0}, out;
    assert_int_equal(decode(&empty, 0, 48, &out), MST_OK);
    refuse_head(&empty, 0, 47, "a STEP of 47 bytes; its head alone has 48");
    refuse_head(&empty, 0, 0, "a STEP of 0 bytes");
    refuse_head(&empty, 8, 48, "flags 0x8, some of which are undefined");
    refuse_head(&empty, 3u << MST_STEP_WIRE_SHIFT, 48, "flags 0x300");
    refuse_head(&empty, 1u << 31, 48, "some of which are undefined");
    refuse_head(&(mst_step_head){.push_floats = 1}, MST_STEP_PULL, 52, "1 floats that pushes nothing");
    refuse_head(&(mst_step_head){.pull_keys = 1}, MST_STEP_PUSH, 48, "1 keys that pulls nothing");
    refuse_head(&(mst_step_head){.packed_bytes = 1}, 0, 49, "that pulls nothing");
    refuse_head(&(mst_step_head){.pull_ranges = 321}, MST_STEP_PULL, 48 + 321 * 16,
                "321 ranges; there are at most 320");
    /* sums that would wrap in 32 bits */
    refuse_head(&(mst_step_head){.push_floats = 1u << 30}, MST_STEP_PUSH, 48, "add up to 4294967344");

    refuse_head(&(mst_step_head){.rows = 3, .correct = 4}, MST_STEP_PUSH, 48, "4 of 3 rows correct");
    refuse_head(&(mst_step_head){.part_floats = 1000}, 0, 48, "requests its answer in parts of 1000 floats");
    refuse_head(&(mst_step_head){.part_floats = 255}, MST_STEP_PULL, 48, "in parts of 255 floats");
    assert_int_equal(decode(&(mst_step_head){.part_floats = 256}, MST_STEP_PULL, 48, &out), MST_OK);
    assert_int_equal(out.part_floats, 256);
}

static void test_list_encoded(void **state)
{
    (void)state;
    uint32_t keys[] = {5, 6, 7};
    mst_key_list list = {.n_ranges = 1, .n_keys = 3, .ranges = {{.first = 0x0102, .count = 3}}, .keys = keys};
    mst_step_head head = {0};
    uint8_t bytes[256];
    assert_true(mst_step_list_bound(&list) <= sizeof bytes);
    size_t n = mst_step_list_encode(&list, &head, bytes);
    assert_int_equal(head.pull_ranges, 1);
    assert_int_equal(head.pull_keys, 3);
    assert_int_equal(n, MST_RANGE_SIZE + head.packed_bytes);
    const uint8_t range[16] = {2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};
    assert_memory_equal(bytes, range, sizeof range);
    assert_int_equal(bytes[16], 5); /* the first key */

    list.n_ranges = list.n_keys = 0;
    assert_int_equal(mst_step_list_encode(&list, &head, bytes), 0);
    assert_int_equal(head.packed_bytes, 0);
}

/* ---- JSON ---- */

typedef struct wire_tap {
    mst_net net;
    mst_message m;
    char body[256];
    bool refuse;
} wire_tap;

static mst_status tap_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                           uint32_t n_pieces, void *token)
{
    wire_tap *tap = (wire_tap *)net;
    size_t used = 0;
    (void)peer;
    assert_null(token);
    if (tap->refuse)
        return mst_fail(MST_EPEER, "nobody there");
    for (uint32_t i = 0; i < n_pieces; i++) {
        assert_true(used + pieces[i].size <= sizeof tap->body);
        memcpy(tap->body + used, pieces[i].data, pieces[i].size);
        used += pieces[i].size;
    }
    tap->m = *m;
    tap->m.size = used;
    return MST_OK;
}

static const mst_net_engine tap_engine = {.name = "tap", .send = tap_send};

static void test_json(void **state)
{
    (void)state;
    wire_tap tap = {.net = {.engine = &tap_engine}};
    mst_message m = {.type = MST_PS_JOIN, .count = 3};
    json_t *back;
    assert_int_equal(mst_ps_send_json(&tap.net, 0, &m, json_pack("{s:i}", "a", 5)), MST_OK);
    assert_int_equal(tap.m.type, MST_PS_JOIN);
    assert_int_equal(tap.m.count, 3);
    assert_int_equal(mst_ps_json(&tap.m, tap.body, &back), MST_OK);
    assert_int_equal(json_integer_value(json_object_get(back, "a")), 5);
    json_decref(back);

    assert_int_equal(mst_ps_send_json(&tap.net, 0, &m, NULL), MST_ENOMEM);
    assert_non_null(strstr(mst_error_text(), "out of memory"));
    tap.refuse = true;
    assert_int_equal(mst_ps_send_json(&tap.net, 0, &m, json_object()), MST_EPEER);
    tap.refuse = false;
    assert_int_equal(mst_ps_send(&tap.net, 0, &(mst_message){.type = MST_PS_STOP}), MST_OK);
    assert_int_equal(tap.m.type, MST_PS_STOP);
    assert_int_equal(tap.m.size, 0);
}

static void test_json_refused(void **state)
{
    (void)state;
    json_t *out;
    const char *text = "{\"a\": 1, \"a\": 2}";
    mst_message m = {.type = MST_PS_SETUP, .size = strlen(text)};
    assert_int_equal(mst_ps_json(&m, text, &out), MST_EPEER);
    assert_non_null(strstr(mst_error_text(), "a SETUP that is not JSON: duplicate"));
    m.size = 4; /* the text is not read beyond its size */
    assert_int_equal(mst_ps_json(&m, text, &out), MST_EPEER);
    m.size = 0;
    assert_int_equal(mst_ps_json(&m, NULL, &out), MST_EPEER);
    assert_non_null(strstr(mst_error_text(), "a SETUP without a body"));
    m.size = (uint64_t)MST_PS_JSON_MAX + 1;
    assert_int_equal(mst_ps_json(&m, NULL, &out), MST_EPEER);
    assert_non_null(strstr(mst_error_text(), "at most 67108864 are read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type_names),   cmocka_unit_test(test_work_round_trip),
        cmocka_unit_test(test_work_layout),  cmocka_unit_test(test_work_refused),
        cmocka_unit_test(test_work_shares),  cmocka_unit_test(test_head_round_trip),
        cmocka_unit_test(test_head_refused), cmocka_unit_test(test_list_encoded),
        cmocka_unit_test(test_json),         cmocka_unit_test(test_json_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
