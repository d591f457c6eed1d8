/* Incoming frames; contract in frames.h.
 *
 * Invariants between calls
 * 1. staged < MST_WIRE_HEADER + MST_WIRE_OWN_MAX + MST_SEAL_BODY, and 0 while got < m.size of a body under
 *    way: there is always room.
 * 2. No byte beyond m.size is ever written to body. With got == m.size only its seal, in the stage, is
 *    awaited. */
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
    if (f->open && left > 0)
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
           mst_frame_size(m.size) <= end - at;
}

static mst_status frames_check_header(mst_frames *f, const uint8_t *header)
{
    TRY(mst_header_check(header, &f->seal));
    if (f->m.size > 0)
        mst_seal_begin(&f->seal);
    return MST_OK;
}

/* The whole body was added; its seal has arrived, if it has one. The next frame begins. */
static mst_status frames_check_body(mst_frames *f, const uint8_t *arrived)
{
    uint8_t seal[MST_SEAL_BODY];
    if (f->m.size > 0) {
        mst_seal_end(&f->seal, seal);
        if (f->seal.failed || CRYPTO_memcmp(seal, arrived, sizeof seal) != 0)
            return mst_fail(MST_EINPUT, "a message of type %u was changed on the way: its %s does not match",
                            f->m.type, mst_seal_name(f->seal.kind));
    }
    mst_seal_next(&f->seal);
    return MST_OK;
}

/* Handles the messages in bytes [at, end) of the stage; what is left moves to the front. */
static mst_status frames_parse(mst_frames *f, size_t at, size_t end, const mst_frames_events *events,
                               void *arg)
{
    while (end - at >= MST_WIRE_HEADER && !f->open) {
        TRY(mst_header_decode(f->stage + at, end - at, f->max_body, &f->m));
        const uint8_t *rest = f->stage + at + MST_WIRE_HEADER;
        size_t n_rest = end - at - MST_WIRE_HEADER;
        if (f->m.type < MST_NET_TYPES) {
            if (end - at < mst_frame_size(f->m.size))
                break;
            TRY(frames_check_header(f, f->stage + at));
            mst_seal_add(&f->seal, rest, (size_t)f->m.size);
            TRY(frames_check_body(f, rest + f->m.size));
            TRY(events->own(arg, &f->m, rest));
            at += (size_t)mst_frame_size(f->m.size);
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
        f->open = end - at < mst_frame_size(f->m.size);
        if (f->open) {
            f->body = body;
            f->got = take;
            at += MST_WIRE_HEADER + take;
            break;
        }
        TRY(frames_check_body(f, rest + take));
        at += (size_t)mst_frame_size(f->m.size);
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
    size_t at = 0;
    if (f->open) {
        uint64_t left = f->m.size - f->got;
        size_t take = n < left ? n : (size_t)left;
        mst_seal_add(&f->seal, f->body + f->got, take);
        f->got += take;
        f->staged += n - take;
        if (f->got < f->m.size || f->staged < MST_SEAL_BODY)
            return MST_OK;
        f->open = false;
        at = MST_SEAL_BODY;
        TRY(frames_check_body(f, f->stage));
        f->more = frames_whole_at(f, at, f->staged);
        TRY(events->message(arg, &f->m, f->body));
    } else {
        f->staged += n;
    }
    return frames_parse(f, at, f->staged, events, arg);
}
