/* Sealed frames between a sender and a receiver: what arrives is what was sent, in order and once, or the
 * stream ends; under CHECKSUM any changed byte is found, under MAC also moved, repeated and lost frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/frame_out.h"
#include "net/frames.h"

enum { FRAMES = 4, ROOM = 4096, SMALL = 100 };

typedef struct stream {
    uint8_t bytes[ROOM];
    size_t at[FRAMES + 1]; /* where frame i begins */
} stream;

typedef struct receiver {
    mst_frames frames;
    unsigned n_messages, n_bodies;
    uint8_t body[ROOM];
    bool wrong; /* a message other than the one that was sent was handled */
} receiver;

static const uint8_t key[MST_SEAL_KEY] = {1, 2, 3}, other_key[MST_SEAL_KEY] = {1, 2, 4};

static size_t size_of(unsigned i)
{
    return i == 2 ? 0 : SMALL + i;
}

static mst_status on_body(void *arg, const mst_message *m, void **out)
{
    receiver *r = arg;
    assert_true(m->size <= sizeof r->body);
    r->n_bodies++;
    *out = r->body;
    return MST_OK;
}

static mst_status on_message(void *arg, const mst_message *m, void *body)
{
    receiver *r = arg;
    r->wrong = r->wrong || m->request != r->n_messages || m->size != size_of(r->n_messages);
    for (uint64_t i = 0; i < m->size; i++)
        r->wrong = r->wrong || ((uint8_t *)body)[i] != (uint8_t)(i + m->request);
    r->n_messages++;
    return MST_OK;
}

static mst_status on_own(void *arg, const mst_message *m, const uint8_t *body)
{
    (void)arg, (void)m, (void)body;
    return MST_OK;
}

static const mst_frames_events events = {.body = on_body, .message = on_message, .own = on_own};

/* FRAMES messages, each in two pieces, sealed and written in parts of that size. */
static void seal_in_parts(stream *s, mst_seal_kind kind, size_t part)
{
    mst_seal out;
    size_t at = 0;
    assert_int_equal(mst_seal_init(&out, kind, key), MST_OK);
    for (unsigned i = 0; i < FRAMES; i++) {
        uint8_t body[ROOM];
        size_t n = size_of(i);
        for (size_t j = 0; j < n; j++)
            body[j] = (uint8_t)(j + i);
        mst_piece pieces[2] = {{.data = body, .size = n / 3}, {.data = body + n / 3, .size = n - n / 3}};
        mst_frame_out f;
        s->at[i] = at;
        mst_frame_out_init(&f, &(mst_message){.type = 20, .request = i, .size = n}, pieces, 2);
        while (f.done < f.size) {
            struct iovec iov[4];
            assert_true(mst_frame_out_seal(&f, &out, f.done + part));
            size_t n_iov = mst_frame_out_gather(&f, iov, 4);
            assert_true(n_iov > 0);
            for (size_t k = 0; k < n_iov; k++) {
                memcpy(s->bytes + at, iov[k].iov_base, iov[k].iov_len);
                at += iov[k].iov_len;
                f.done += iov[k].iov_len;
            }
            assert_true(f.done == f.sealed);
        }
        assert_int_equal(at - s->at[i], mst_frame_size(n));
    }
    s->at[FRAMES] = at;
    mst_seal_fini(&out);
}

static void seal(stream *s, mst_seal_kind kind)
{
    seal_in_parts(s, kind, ROOM);
}

static mst_status receive(receiver *r, mst_seal_kind kind, const uint8_t *with, const uint8_t *bytes,
                          size_t n, size_t part)
{
    mst_seal in;
    mst_status st = MST_OK;
    assert_int_equal(mst_seal_init(&in, kind, with), MST_OK);
    r->n_messages = r->n_bodies = 0;
    r->wrong = false;
    mst_frames_init(&r->frames, sizeof r->body, &in);
    for (size_t at = 0; at < n && st == MST_OK;) {
        struct iovec room[2];
        int n_room = mst_frames_room(&r->frames, room);
        size_t given = 0, most = part < n - at ? part : n - at;
        for (int i = 0; i < n_room && given < most; i++) {
            size_t take = room[i].iov_len < most - given ? room[i].iov_len : most - given;
            memcpy(room[i].iov_base, bytes + at + given, take);
            given += take;
        }
        at += given;
        st = mst_frames_take(&r->frames, given, &events, r);
    }
    mst_frames_fini(&r->frames);
    return st;
}

static void test_round_trip(void **state)
{
    (void)state;
    static stream s;
    static receiver r;
    for (int kind = MST_SEAL_NONE; kind <= MST_SEAL_MAC; kind++) {
        seal(&s, (mst_seal_kind)kind);
        for (size_t part = 1; part < 1000; part += part < 20 ? 1 : 111) {
            assert_int_equal(receive(&r, (mst_seal_kind)kind, key, s.bytes, s.at[FRAMES], part), MST_OK);
            assert_int_equal(r.n_messages, FRAMES);
            assert_false(r.wrong);
        }
        static stream parts;
        for (size_t part = 1; part < 150; part += 7) {
            seal_in_parts(&parts, (mst_seal_kind)kind, part);
            assert_int_equal(parts.at[FRAMES], s.at[FRAMES]);
            assert_memory_equal(parts.bytes, s.bytes, s.at[FRAMES]);
        }
    }
}

/* Any single bit: the stream ends at the frame that has it, before its message is handled; a bit of a header
 * before any memory is requested for its body. */
static void test_every_bit(void **state)
{
    (void)state;
    static stream s;
    static receiver r;
    for (int kind = MST_SEAL_CHECKSUM; kind <= MST_SEAL_MAC; kind++) {
        seal(&s, (mst_seal_kind)kind);
        for (size_t bit = 0; bit < 8 * s.at[FRAMES]; bit++) {
            unsigned frame = FRAMES - 1;
            while (s.at[frame] > bit / 8)
                frame--;
            s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(receive(&r, (mst_seal_kind)kind, key, s.bytes, s.at[FRAMES], 70), MST_EINPUT);
            s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(r.n_messages, frame);
            assert_false(r.wrong);
            if (bit / 8 - s.at[frame] < MST_WIRE_HEADER)
                assert_int_equal(r.n_bodies, frame < 3 ? frame : frame - 1);
        }
    }
}

static void test_moved_frames(void **state)
{
    (void)state;
    static stream s, moved;
    static receiver r;
    seal(&s, MST_SEAL_MAC);
    /* Repeated: the first frame twice. */
    size_t first = s.at[1];
    memcpy(moved.bytes, s.bytes, first);
    memcpy(moved.bytes + first, s.bytes, s.at[FRAMES]);
    assert_int_equal(receive(&r, MST_SEAL_MAC, key, moved.bytes, first + s.at[FRAMES], ROOM), MST_EINPUT);
    assert_int_equal(r.n_messages, 1);
    /* Lost: the second is missing. */
    memcpy(moved.bytes + first, s.bytes + s.at[2], s.at[FRAMES] - s.at[2]);
    size_t n = first + s.at[FRAMES] - s.at[2];
    assert_int_equal(receive(&r, MST_SEAL_MAC, key, moved.bytes, n, ROOM), MST_EINPUT);
    assert_int_equal(r.n_messages, 1);
    /* Of another connection. */
    assert_int_equal(receive(&r, MST_SEAL_MAC, other_key, s.bytes, s.at[FRAMES], ROOM), MST_EINPUT);
    assert_int_equal(r.n_messages, 0);
}

/* A weaker seal than the agreed one does not pass. */
static void test_other_kind(void **state)
{
    (void)state;
    static stream s;
    static receiver r;
    for (int sent = MST_SEAL_NONE; sent <= MST_SEAL_MAC; sent++)
        for (int expected = MST_SEAL_NONE; expected <= MST_SEAL_MAC; expected++) {
            seal(&s, (mst_seal_kind)sent);
            mst_status st = receive(&r, (mst_seal_kind)expected, key, s.bytes, s.at[FRAMES], ROOM);
            assert_int_equal(st, sent == expected ? MST_OK : MST_EINPUT);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_every_bit),
                                       cmocka_unit_test(test_moved_frames),
                                       cmocka_unit_test(test_other_kind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
