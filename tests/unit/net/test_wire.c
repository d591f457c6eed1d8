/* The header codec and the stream of frames: round trips, every refusal, and any split of the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "net/frames.h"

static void test_layout(void **state)
{
    (void)state;
    mst_message m = {
        .type = 0x1234, .flags = 1, .request = 2, .count = 3, .step = 0x0102030405060708, .size = 9};
    static const uint8_t expected[MST_WIRE_HEADER] = {'M', 'S', 'T', 'R', 4, 0, 0x34, 0x12, 1, 0, 0,
                                                      0,   2,   0,   0,   0, 3, 0,    0,    0, 8, 7,
                                                      6,   5,   4,   3,   2, 1, 9,    0,    0, 0};
    uint8_t bytes[MST_WIRE_HEADER];
    mst_message back;
    mst_header_encode(&m, bytes);
    assert_memory_equal(bytes, expected, sizeof bytes);
    assert_int_equal(mst_header_decode(bytes, sizeof bytes, 9, &back), MST_OK);
    assert_int_equal(back.type, m.type);
    assert_int_equal(back.flags, 1);
    assert_int_equal(back.request, 2);
    assert_int_equal(back.count, 3);
    assert_true(back.step == m.step && back.size == 9);
}

static void refused(const uint8_t *bytes, size_t n, const char *says)
{
    mst_message m;
    assert_int_equal(mst_header_decode(bytes, n, 1000, &m), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), says));
}

static void test_refusals(void **state)
{
    (void)state;
    uint8_t good[MST_WIRE_HEADER], bad[MST_WIRE_HEADER];
    mst_header_encode(&(mst_message){.type = 16, .size = 1000}, good);
    refused(good, sizeof good - 1, "only 47 arrived");
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } changes[] = {
        {0, 'X', "instead of \"MSTR\""},
        {4, 5, "wire version 5; this process has version 4"},
        {6, 15, "unknown type 15"},
        {6, 0, "unknown type 0"},
        {28, 0xe9, "a body of 1001 bytes, at most 1000"},
        {35, 0xff, "at most 1000"},
        {6, MST_WIRE_HEARTBEAT, "a heartbeat has a body of 1000 bytes"},
        {6, MST_WIRE_DISCONNECT, "at most 512"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bad, good, sizeof bad);
        bad[changes[i].at] = changes[i].value;
        refused(bad, sizeof bad, changes[i].says);
    }
}

/* ---- the stream ---- */

typedef struct sink {
    unsigned n_messages, n_own;
    uint64_t sum;
    uint8_t *body;
    unsigned stop_at; /* fails at this message; 0: never */
} sink;

static mst_status on_body(void *arg, const mst_message *m, void **out)
{
    sink *s = arg;
    free(s->body);
    *out = s->body = malloc((size_t)m->size); /* exactly: a byte too many is seen by the sanitizer */
    return MST_OK;
}

static mst_status on_message(void *arg, const mst_message *m, void *body)
{
    sink *s = arg;
    s->n_messages++;
    s->sum = s->sum * 31 + m->type + m->request * 7 + m->size;
    for (uint64_t i = 0; i < m->size; i++)
        s->sum = s->sum * 131 + ((uint8_t *)body)[i];
    return s->stop_at == s->n_messages ? mst_fail(MST_EINPUT, "stop") : MST_OK;
}

static mst_status on_own(void *arg, const mst_message *m, const uint8_t *body)
{
    sink *s = arg;
    s->n_own++;
    s->sum = s->sum * 31 + m->type;
    for (uint64_t i = 0; i < m->size; i++)
        s->sum = s->sum * 131 + body[i];
    return MST_OK;
}

static const mst_frames_events events = {.body = on_body, .message = on_message, .own = on_own};

static size_t put(uint8_t *at, uint16_t type, uint32_t request, size_t size)
{
    mst_header_encode(&(mst_message){.type = type, .request = request, .size = size}, at);
    for (size_t i = 0; i < size; i++)
        at[MST_WIRE_HEADER + i] = (uint8_t)(i * 7 + request);
    memset(at + MST_WIRE_HEADER + size, 0, MST_SEAL_BODY); /* of no kind */
    return (size_t)mst_frame_size(size);
}

/* Feeds n bytes in parts of at most `part` bytes (0: random parts). */
static mst_status feed(mst_frames *f, const uint8_t *bytes, size_t n, size_t part, mst_rng *rng, sink *s)
{
    mst_frames_init(f, 1 << 20, &(mst_seal){0});
    for (size_t at = 0; at < n;) {
        struct iovec room[2];
        int n_room = mst_frames_room(f, room);
        size_t most = part != 0 ? part : 1 + mst_rng_below(rng, 90000), given = 0;
        for (int i = 0; i < n_room && most > 0; i++) {
            size_t take = room[i].iov_len < most ? room[i].iov_len : most;
            take = take < n - at - given ? take : n - at - given;
            memcpy(room[i].iov_base, bytes + at + given, take);
            given += take;
            most -= take;
        }
        assert_true(given > 0);
        at += given;
        TRY(mst_frames_take(f, given, &events, s));
    }
    return MST_OK;
}

static void test_any_split(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 39, 40, 41, 512, 65471, 65472, 65473, 65488, 200000, 3, 0, 0};
    enum { N = sizeof sizes / sizeof *sizes };
    uint8_t *bytes = malloc(1 << 20);
    mst_frames *f = malloc(sizeof *f);
    size_t n = 0;
    for (uint32_t i = 0; i < N; i++) {
        n += put(bytes + n, (uint16_t)(16 + i), i, sizes[i]);
        n += put(bytes + n, MST_WIRE_HEARTBEAT, 0, 0);
        if (i % 4 == 0)
            n += put(bytes + n, MST_WIRE_DISCONNECT, i, 512 - i);
    }
    sink whole = {0};
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    assert_int_equal(feed(f, bytes, n, n, &rng, &whole), MST_OK);
    assert_int_equal(whole.n_messages, N);
    assert_int_equal(whole.n_own, N + 4);
    free(whole.body);
    static const size_t parts[] = {1, 2, 13, 47, 48, 49, 63, 64, 65, 4096, 65536, 0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sink s = {0};
        assert_int_equal(feed(f, bytes, n, parts[i], &rng, &s), MST_OK);
        assert_int_equal(s.n_messages, N);
        assert_true(s.sum == whole.sum);
        free(s.body);
    }
    sink s = {.stop_at = 3};
    assert_int_equal(feed(f, bytes, n, n, &rng, &s), MST_EINPUT);
    assert_int_equal(s.n_messages, 3);
    free(s.body);
    free(f);
    free(bytes);
}

static void test_bad_stream(void **state)
{
    (void)state;
    uint8_t bytes[200] = {0};
    mst_frames *f = malloc(sizeof *f);
    sink s = {0};
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    size_t n = put(bytes, 16, 1, 5); /* a good one, then zeros */
    assert_int_equal(feed(f, bytes, n + MST_WIRE_HEADER, 7, &rng, &s), MST_EINPUT);
    assert_int_equal(s.n_messages, 1);
    put(bytes, 16, 1, 0);
    mst_put_u64(bytes + 28, (1 << 20) + 1);
    assert_int_equal(feed(f, bytes, MST_WIRE_HEADER, 40, &rng, &s), MST_EINPUT);
    assert_int_equal(s.n_messages, 1);
    free(s.body);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_any_split),
        cmocka_unit_test(test_bad_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
