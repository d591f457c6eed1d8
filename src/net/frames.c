/* Incoming frames; contract in frames.h.
 *
 * Invariants between calls
 * 1. staged < MST_WIRE_HEADER + MST_WIRE_OWN_MAX, and 0 while a body is under way: there is always room.
 * 2. got < m.size while a body is under way; no byte beyond m.size is ever written to body. */
#include "net/frames.h"

#include <openssl/crypto.h>
#include <string.h>

void mst_frames_init(mst_frames *f, uint64_t max_body, const mst_seal *seal)
{
    f->max_body = max_body;
    f->seal = *seal;
    f->staged = 0;
    f->open = f->more = false;
    f->body = NULL;
    f->got = 0;
}

void mst_frames_fini(mst_frames *f)
{
    mst_seal_fini(&f->seal);
}

int mst_frames_room(mst_frames *f, struct iovec out[2])
{
    int n = 0;
    uint64_t left = f->m.size - f->got;
    if (f->open && left > MST_FRAMES_CHUNK && f->seal.kind != MST_SEAL_NONE) {
        out[0] = (struct iovec){.iov_base = f->body + f->got, .iov_len = MST_FRAMES_CHUNK};
        return 1;
    }
    if (f->open)
        out[n++] = (struct iovec){.iov_base = f->body + f->got, .iov_len = (size_t)left};
    out[n++] = (struct iovec){.iov_base = f->stage + f->staged, .iov_len = sizeof f->stage - f->staged};
    return n;
}

/* Whether a whole message lies between `at` and `end` of the stage. */
static bool frames_whole_at(const mst_frames *f, size_t at, size_t end)
{
    mst_message m;
    return end - at >= MST_WIRE_HEADER &&
           mst_header_decode(f->stage + at, end - at, f->max_body, &m) == MST_OK &&
           m.size <= end - at - MST_WIRE_HEADER;
}

static mst_status frames_check_header(mst_frames *f, const uint8_t *header)
{
    TRY(mst_header_check(header, &f->seal));
    memcpy(f->body_seal, header + MST_WIRE_FIELDS, sizeof f->body_seal);
    if (f->m.size > 0)
        mst_seal_begin(&f->seal);
    return MST_OK;
}

/* The whole body was added. The next frame begins. */
static mst_status frames_check_body(mst_frames *f)
{
    uint8_t seal[MST_SEAL_BODY] = {0};
    if (f->m.size > 0)
        mst_seal_end(&f->seal, seal);
    if (f->seal.failed || CRYPTO_memcmp(seal, f->body_seal, sizeof seal) != 0)
        return mst_fail(MST_EINPUT, "a message of type %u was changed on the way: its %s does not match",
                        f->m.type, mst_seal_name(f->seal.kind));
    mst_seal_next(&f->seal);
    return MST_OK;
}

/* Handles the messages in the stage's first `end` bytes; what is left moves to the front. */
static mst_status frames_parse(mst_frames *f, size_t end, const mst_frames_events *events, void *arg)
{
    size_t at = 0;
    while (end - at >= MST_WIRE_HEADER) {
        TRY(mst_header_decode(f->stage + at, end - at, f->max_body, &f->m));
        const uint8_t *rest = f->stage + at + MST_WIRE_HEADER;
        size_t n_rest = end - at - MST_WIRE_HEADER;
        if (f->m.type < MST_NET_TYPES) {
            if (n_rest < f->m.size)
                break;
            TRY(frames_check_header(f, f->stage + at));
            mst_seal_add(&f->seal, rest, (size_t)f->m.size);
            TRY(frames_check_body(f));
            TRY(events->own(arg, &f->m, rest));
            at += MST_WIRE_HEADER + (size_t)f->m.size;
            continue;
        }
        TRY(frames_check_header(f, f->stage + at));
        void *body = NULL;
        if (f->m.size > 0)
            TRY(events->body(arg, &f->m, &body));
        size_t take = n_rest < f->m.size ? n_rest : (size_t)f->m.size;
        if (take > 0) {
            memcpy(body, rest, take);
            mst_seal_add(&f->seal, body, take);
        }
        at += MST_WIRE_HEADER + take;
        if (take < f->m.size) { /* the stage is used up */
            f->body = body;
            f->got = take;
            f->open = true;
            f->staged = 0;
            return MST_OK;
        }
        TRY(frames_check_body(f));
        f->more = frames_whole_at(f, at, end);
        TRY(events->message(arg, &f->m, body));
    }
    f->staged = end - at;
    if (at > 0 && f->staged > 0)
        memmove(f->stage, f->stage + at, f->staged);
    return MST_OK;
}

mst_status mst_frames_take(mst_frames *f, size_t n, const mst_frames_events *events, void *arg)
{
    if (f->open) {
        uint64_t rest = f->m.size - f->got;
        size_t take = n < rest ? n : (size_t)rest;
        mst_seal_add(&f->seal, f->body + f->got, take);
        f->got += take;
        n -= take;
        if (f->got < f->m.size)
            return MST_OK;
        f->open = false;
        TRY(frames_check_body(f));
        f->more = frames_whole_at(f, 0, n);
        TRY(events->message(arg, &f->m, f->body));
    }
    return frames_parse(f, f->staged + n, events, arg);
}
