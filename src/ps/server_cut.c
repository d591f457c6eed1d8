/* Cuts on a server: one version of the weights, the same on all servers (server.h).
 *
 * Taking a cut reads the values of the evaluation list and sends them to the chief, and copies the owned
 * floats for a checkpoint: the coordinator's straight into its files, another server's into an unlinked file,
 * from where they are streamed to the coordinator piece by piece while training goes on. Neither needs
 * anonymous memory of the size of the model.
 *
 * Invariants
 * 1. Cuts are taken in order, one at a time; the coordinator begins none before everybody is done with the
 * last.
 * 2. Synchronous: a cut about step t is taken when exactly t steps are applied. Workers mark before they push
 * for t + 1, and messages keep their order, so a server knows of the cut before it can close t + 1.
 * 3. Asynchronous: what a worker sends after its mark is held until the cut is taken. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ps/server_impl.h"

#define PIECE_FLOATS (1u << 18) /* 1 MB */
#define WINDOW       4          /* pieces on their way */

/* ---- a copy of the owned floats ---- */

static int open_unlinked(void)
{
    const char *folder = getenv("TMPDIR");
    if (folder == NULL || folder[0] == 0)
        folder = "/tmp";
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char *path = mst_sprintf("%s/muster-XXXXXX", folder); /* file systems without O_TMPFILE */
    if (path == NULL)
        return -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    mst_free(path);
    return fd;
}

static mst_status copy_owned(mst_server *s, mst_part_stream *p)
{
    const mst_params *params = s->model.params;
    p->copy_bytes = (size_t)(s->owned_floats * (1 + params->n_slots) * sizeof(float));
    if (p->copy_bytes == 0) /* a model of fewer partitions than servers */
        return MST_OK;
    int fd = open_unlinked();
    bool good = fd >= 0 && ftruncate(fd, (off_t)p->copy_bytes) == 0;
    void *map = good ? mmap(NULL, p->copy_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    int reason = errno;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return mst_fail(MST_EIO, "no room for a copy of %zu bytes in TMPDIR: %s", p->copy_bytes,
                        strerror(reason));
    p->copy = map;
    float *to = p->copy;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        for (uint32_t i = 0; i < s->n_owned; i++) {
            const float *from = (slot == 0 ? params->w : params->slots[slot - 1]) + s->owned[i].first;
            memcpy(to, from, s->owned[i].count * sizeof(float));
            to += s->owned[i].count;
        }
    return MST_OK;
}

static void drop_copy(mst_part_stream *p)
{
    if (p->copy != NULL)
        munmap(p->copy, p->copy_bytes);
    *p = (mst_part_stream){0};
}

void mst_server_cut_fini(mst_server *s)
{
    drop_copy(&s->parts);
}

/* ---- streaming it ---- */

static bool all_zero(const float *from, uint64_t count)
{
    const uint32_t *words = (const uint32_t *)from;
    uint32_t any = 0;
    for (uint64_t i = 0; i < count; i++)
        any |= words[i];
    return any == 0;
}

/* Where the next piece lies in the copy. */
static const float *piece_at(const mst_server *s, const mst_part_stream *p)
{
    uint64_t before = p->slot * s->owned_floats + p->at;
    for (uint32_t i = 0; i < p->extent; i++)
        before += s->owned[i].count;
    return p->copy + before;
}

static mst_status stream_pieces(mst_server *s)
{
    mst_part_stream *p = &s->parts;
    uint32_t n_slots = s->model.params->n_slots;
    while (p->in_flight < WINDOW && p->slot <= n_slots && s->n_owned > 0) {
        const mst_extent *extent = &s->owned[p->extent];
        uint64_t left = extent->count - p->at, count = left < PIECE_FLOATS ? left : PIECE_FLOATS;
        const float *from = piece_at(s, p);
        mst_message m = {.type = MST_PS_PART, .count = p->slot, .step = extent->first + p->at};
        mst_piece piece = {from, count * sizeof *from};
        bool zero = all_zero(from, count);
        if (zero) {
            m.flags = MST_PART_ZERO;
            m.request = (uint32_t)count;
        }
        mst_status st = mst_net_send(s->net, s->servers[0], &m, &piece, !zero, zero ? NULL : &s->parts);
        if (st == MST_EPEER)
            return MST_OK; /* the coordinator's end is reported by itself */
        TRY(st);
        p->in_flight += !zero;
        p->at += count;
        if (p->at == extent->count) {
            p->at = 0;
            p->extent++;
        }
        if (p->extent == s->n_owned) {
            p->extent = 0;
            p->slot++;
        }
    }
    if (p->in_flight > 0 || (p->slot <= n_slots && s->n_owned > 0))
        return MST_OK;
    mst_message done = {.type = MST_PS_SAVED, .count = p->cut};
    drop_copy(p);
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &done));
}

void mst_server_part_sent(mst_server *s)
{
    s->parts.in_flight--;
    mst_status st = stream_pieces(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* The coordinator's own floats go straight into its files. */
static mst_status write_owned(mst_server *s)
{
    const mst_params *params = s->model.params;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        for (uint32_t i = 0; i < s->n_owned; i++) {
            const float *from = (slot == 0 ? params->w : params->slots[slot - 1]) + s->owned[i].first;
            TRY(s->hooks->checkpoint->write(s->hooks->arg, slot, s->owned[i].first, s->owned[i].count, from));
        }
    return MST_OK;
}

/* ---- taking a cut ---- */

static mst_status send_watched(mst_server *s)
{
    uint32_t peer = s->chief == UINT32_MAX ? MST_PEER_NONE : s->workers[s->chief].peer;
    if (peer == MST_PEER_NONE)
        return MST_OK; /* the chief is lost; the coordinator knows */
    size_t size = mst_store_watched_size(s->store);
    mst_buffer *buffer = mst_server_buffer(s, size > 0 ? size : 1);
    if (buffer == NULL)
        return mst_fail_memory();
    mst_store_watched(s->store, buffer->data);
    mst_message m = {.type = MST_PS_EVAL_VALUES, .count = s->cut.number, .step = s->applied};
    return mst_unless_gone(mst_server_lend(s, peer, &m, buffer, size));
}

static mst_status release_held(mst_server *s)
{
    mst_held_step *held = s->held;
    mst_status st = MST_OK;
    s->held = NULL;
    s->held_tail = &s->held;
    while (held != NULL) {
        mst_held_step *next = held->next;
        mst_status one = MST_OK;
        if (st == MST_OK && s->workers[held->worker].peer != MST_PEER_NONE)
            one = mst_server_step(s, held->worker, &held->m, held->body, held->staged);
        else {
            mst_server_release(s, held->body);
            mst_server_release(s, held->staged.buffer);
        }
        if (one == MST_EPEER)
            mst_server_expel(s, held->worker, mst_error_text());
        else if (one != MST_OK)
            st = one;
        mst_free(held);
        held = next;
    }
    return st;
}

static mst_status take_cut(mst_server *s)
{
    mst_server_cut *cut = &s->cut;
    cut->taken = cut->number;
    if (s->co != NULL)
        TRY(mst_coordinator_cut_taken(s));
    if (cut->flags & MST_CUT_EVAL)
        TRY(send_watched(s));
    if (cut->flags & MST_CUT_SAVE && s->co != NULL) {
        TRY(write_owned(s));
        TRY(mst_coordinator_saved(s, cut->number));
    } else if (cut->flags & MST_CUT_SAVE) {
        s->parts = (mst_part_stream){.cut = cut->number};
        TRY(copy_owned(s, &s->parts));
        TRY(stream_pieces(s));
    }
    return release_held(s);
}

mst_status mst_server_try_cut(mst_server *s)
{
    const mst_server_cut *cut = &s->cut;
    if (cut->number == cut->taken || (mst_is_sync(s) && s->applied != cut->step))
        return MST_OK;
    for (uint32_t i = 0; !mst_is_sync(s) && i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (mst_bit(cut->markers, i) && w->mark < cut->number && w->peer != MST_PEER_NONE && !w->gone)
            return MST_OK;
    }
    return take_cut(s);
}

mst_status mst_server_hear_cut(mst_server *s, const mst_message *m, const uint64_t *markers)
{
    if (m->count > s->cut.number) {
        s->cut.number = m->count;
        s->cut.flags = m->flags;
        s->cut.step = m->step;
    }
    if (m->count == s->cut.number && markers != NULL)
        memcpy(s->cut.markers, markers, sizeof s->cut.markers);
    return mst_server_try_cut(s);
}

mst_status mst_server_hear_mark(mst_server *s, uint32_t worker, const mst_message *m)
{
    if (m->count > s->workers[worker].mark)
        s->workers[worker].mark = m->count;
    if (mst_is_sync(s))
        return mst_server_hear_cut(s, m, NULL);
    return mst_server_try_cut(s);
}
