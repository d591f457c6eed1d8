/* Any bytes as the stream of an authenticated connection, split anywhere: no message larger than the limit is
 * accepted, and every body gets exactly its bytes (its buffer has no room for more). Bit 1 of the first byte
 * makes the bytes the bodies of sealed frames, one byte of which is changed: no frame passes from there on.
 */
#include <stdlib.h>
#include <string.h>

#include "net/frames.h"

#define MAX_BODY 5000

typedef struct sink {
    uint8_t *body;
    uint64_t size; /* of body */
    unsigned sum;
} sink;

static mst_status on_body(void *arg, const mst_message *m, void **out)
{
    sink *s = arg;
    if (m->size == 0 || m->size > MAX_BODY || m->type < MST_NET_TYPES)
        abort();
    if (m->flags == 77)
        return mst_fail(MST_EINPUT, "not wanted");
    free(s->body);
    *out = s->body = malloc((size_t)m->size);
    s->size = m->size;
    return s->body != NULL ? MST_OK : mst_fail(MST_ENOMEM, "no memory");
}

static mst_status on_message(void *arg, const mst_message *m, void *body)
{
    sink *s = arg;
    if (m->size != 0 && (body != s->body || m->size != s->size))
        abort();
    for (uint64_t i = 0; i < m->size; i++) /* the sanitizer sees whether all are there */
        s->sum = s->sum * 31 + ((uint8_t *)body)[i];
    return m->flags == 78 ? mst_fail(MST_EINPUT, "not wanted") : MST_OK;
}

static mst_status on_own(void *arg, const mst_message *m, const uint8_t *body)
{
    sink *s = arg;
    if (m->size > MST_WIRE_OWN_MAX)
        abort();
    for (uint64_t i = 0; i < m->size; i++)
        s->sum = s->sum * 31 + body[i];
    return MST_OK;
}

static const mst_frames_events events = {.body = on_body, .message = on_message, .own = on_own};

static unsigned n_counted;

static mst_status on_counted(void *arg, const mst_message *m, void *body)
{
    n_counted++;
    return on_message(arg, m, body);
}

/* Frames with bodies of data, sealed; byte `at` is changed. */
static void check_sealed(const uint8_t *data, size_t size, mst_seal_kind kind, size_t at, uint8_t change)
{
    static const mst_frames_events counting = {.body = on_body, .message = on_counted, .own = on_own};
    static const uint8_t key[MST_SEAL_KEY] = {7};
    static uint8_t bytes[MST_FRAMES_STAGE];
    static mst_frames f;
    size_t end = 0, n = size < 400 ? size : 400, changed = 0;
    sink s = {0};
    mst_seal out, in;
    if (mst_seal_init(&out, kind, key) != MST_OK || mst_seal_init(&in, kind, key) != MST_OK)
        return;
    n_counted = 0;
    for (unsigned i = 0; i < 3; i++) {
        mst_header_encode(&(mst_message){.type = 20 + i, .size = n}, bytes + end);
        mst_header_seal(bytes + end, &out);
        memcpy(bytes + end + MST_WIRE_HEADER, data, n);
        mst_seal_begin(&out);
        mst_seal_add(&out, data, n);
        mst_seal_end(&out, bytes + end + MST_WIRE_HEADER + n);
        mst_seal_next(&out);
        end += mst_frame_size(n);
    }
    at %= end;
    changed = at / mst_frame_size(n);
    bytes[at] ^= change;
    mst_frames_init(&f, MAX_BODY, &in);
    memcpy(f.stage, bytes, end);
    mst_status st = mst_frames_take(&f, end, &counting, &s);
    if (change == 0 ? st != MST_OK || n_counted != 3 : st == MST_OK || n_counted != changed)
        abort();
    mst_frames_fini(&f);
    mst_seal_fini(&out);
    free(s.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mst_frames f;
    if (size < 2)
        return 0;
    if (data[0] & 2 && size > 6) {
        check_sealed(data + 4, size - 4, data[0] & 1 ? MST_SEAL_CHECKSUM : MST_SEAL_MAC,
                     (size_t)(data[1] << 8 | data[2]), data[3]);
        return 0;
    }
    size_t part = 1 + data[0] * 16, at = 1; /* bytes per read */
    sink s = {0};
    mst_frames_init(&f, MAX_BODY, &(mst_seal){.kind = data[0] & 1 ? MST_SEAL_CHECKSUM : MST_SEAL_NONE});
    while (at < size) {
        struct iovec room[2];
        int n_room = mst_frames_room(&f, room);
        size_t want = part < size - at ? part : size - at, given = 0;
        for (int i = 0; i < n_room && given < want; i++) {
            size_t take = room[i].iov_len < want - given ? room[i].iov_len : want - given;
            memcpy(room[i].iov_base, data + at + given, take);
            given += take;
        }
        if (given == 0)
            abort(); /* there must always be room */
        at += given;
        if (mst_frames_take(&f, given, &events, &s) != MST_OK)
            break;
    }
    free(s.body);
    return 0;
}
