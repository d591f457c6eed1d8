/* Frames from bytes: predictions about the following messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/frames.h"

enum { TYPE = MST_NET_TYPES };

typedef struct seen {
    mst_frames frames;
    uint8_t body[256];
    unsigned n;
    bool more[8];
    uint64_t size[8];
} seen;

static mst_status on_body(void *arg, const mst_message *m, void **out)
{
    seen *s = arg;
    assert_true(m->size <= sizeof s->body);
    *out = s->body;
    return MST_OK;
}

static mst_status on_message(void *arg, const mst_message *m, void *body)
{
    seen *s = arg;
    (void)body;
    assert_true(s->n < 8);
    s->size[s->n] = m->size;
    s->more[s->n++] = s->frames.more;
    return MST_OK;
}

static mst_status on_own(void *arg, const mst_message *m, const uint8_t *body)
{
    (void)arg;
    (void)m;
    (void)body;
    return MST_OK;
}

static const mst_frames_events events = {.body = on_body, .message = on_message, .own = on_own};

static size_t put(uint8_t *at, uint64_t size)
{
    mst_header_encode(&(mst_message){.type = TYPE, .size = size}, at);
    memset(at + MST_WIRE_HEADER, 7, (size_t)size);
    memset(at + MST_WIRE_HEADER + size, 0, MST_SEAL_BODY); /* of no kind */
    return (size_t)mst_frame_size(size);
}

static void give(seen *s, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        struct iovec room[2];
        int n_room = mst_frames_room(&s->frames, room);
        size_t given = 0;
        for (int i = 0; i < n_room && given < n; i++) {
            size_t part = n - given < room[i].iov_len ? n - given : room[i].iov_len;
            memcpy(room[i].iov_base, bytes + given, part);
            given += part;
        }
        assert_int_equal(mst_frames_take(&s->frames, given, &events, s), MST_OK);
        bytes += given;
        n -= given;
    }
}

static void test_more_is_a_whole_message_behind(void **state)
{
    (void)state;
    seen s = {.n = 0};
    uint8_t bytes[1024];
    size_t end = put(bytes, 100);
    end += put(bytes + end, 0);
    size_t third = end;
    end += put(bytes + end, 50);
    mst_frames_init(&s.frames, 1000, &(mst_seal){0});

    give(&s, bytes, end - 1); /* the third lacks a byte */
    assert_int_equal(s.n, 2);
    assert_true(s.more[0]);
    assert_false(s.more[1]);
    give(&s, bytes + end - 1, 1);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.size[2], 50);
    assert_false(s.more[2]);

    /* A body's end and a whole message come together. */
    give(&s, bytes, 60);
    give(&s, bytes + 60, third - 60 + 10);
    assert_int_equal(s.n, 5);
    assert_true(s.more[3]);
    assert_false(s.more[4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_more_is_a_whole_message_behind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
