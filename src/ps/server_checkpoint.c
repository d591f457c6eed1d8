/* A server's floats for a checkpoint; contract in server_checkpoint.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ps/server_impl.h"

#define PIECE_FLOATS  (1u << 18) /* 1 MB */
#define MAX_IN_FLIGHT 4          /* pieces in flight */

/* ---- a copy of the owned floats ---- */

static int checkpoint_open_unlinked(void)
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

static mst_status checkpoint_copy_owned(mst_server *s, mst_checkpoint_stream *p)
{
    const mst_params *params = s->model.params;
    p->copy_bytes = (size_t)(s->owned.floats * (1 + params->n_slots) * sizeof(float));
    if (p->copy_bytes == 0) /* the model has fewer partitions than there are servers */
        return MST_OK;
    int fd = checkpoint_open_unlinked();
    bool good = fd >= 0 && ftruncate(fd, (off_t)p->copy_bytes) == 0;
    void *map = good ? mmap(NULL, p->copy_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    int reason = errno;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return mst_fail(MST_EIO, "no space for a copy of %zu bytes in TMPDIR: %s", p->copy_bytes,
                        strerror(reason));
    p->copy = map;
    float *to = p->copy;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        for (uint32_t i = 0; i < s->owned.n; i++) {
            const mst_extent *extent = &s->owned.extents[i];
            memcpy(to, (slot == 0 ? params->w : params->slots[slot - 1]) + extent->first,
                   extent->count * sizeof *to);
            to += extent->count;
        }
    return MST_OK;
}

static void checkpoint_drop_copy(mst_checkpoint_stream *p)
{
    if (p->copy != NULL)
        munmap(p->copy, p->copy_bytes);
    *p = (mst_checkpoint_stream){0};
}

void mst_checkpoint_stream_fini(mst_server *s)
{
    checkpoint_drop_copy(&s->checkpoint);
}

/* ---- streaming it ---- */

static mst_status checkpoint_send_pieces(mst_server *s)
{
    mst_checkpoint_stream *p = &s->checkpoint;
    uint32_t n_slots = s->model.params->n_slots;
    while (p->in_flight < MAX_IN_FLIGHT && !mst_float_cursor_at_end(&p->next, &s->owned, n_slots)) {
        uint64_t count, first = mst_float_cursor_piece(&p->next, &s->owned, PIECE_FLOATS, &count);
        const float *from = p->copy + p->next.done;
        mst_message m = {.type = MST_PS_FLOATS, .count = p->next.slot, .step = first};
        mst_piece piece = {from, count * sizeof *from};
        bool zero = mst_is_zero(from, piece.size);
        if (zero) {
            m.flags = MST_FLOATS_ZERO;
            m.request = (uint32_t)count;
        }
        mst_status st = mst_net_send(s->net, s->servers[0], &m, &piece, !zero, zero ? NULL : p);
        if (st == MST_EPEER)
            return MST_OK; /* the loss of the coordinator is reported separately */
        TRY(st);
        p->in_flight += !zero;
        mst_float_cursor_advance(&p->next, &s->owned, count);
    }
    if (p->in_flight > 0 || !mst_float_cursor_at_end(&p->next, &s->owned, n_slots))
        return MST_OK;
    mst_message done = {.type = MST_PS_SAVED, .count = p->cut};
    checkpoint_drop_copy(p);
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &done));
}

void mst_checkpoint_stream_sent(mst_server *s)
{
    s->checkpoint.in_flight--;
    mst_status st = checkpoint_send_pieces(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* Writes the coordinator's own floats into its files. */
static mst_status checkpoint_write_owned(mst_server *s)
{
    const mst_params *params = s->model.params;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        for (uint32_t i = 0; i < s->owned.n; i++) {
            const mst_extent *extent = &s->owned.extents[i];
            const float *from = (slot == 0 ? params->w : params->slots[slot - 1]) + extent->first;
            TRY(s->hooks->checkpoint->write(s->hooks->arg, slot, extent->first, extent->count, from));
        }
    return MST_OK;
}
mst_status mst_checkpoint_stream_begin(mst_server *s, uint32_t cut)
{
    if (s->co != NULL) {
        TRY(checkpoint_write_owned(s));
        return mst_cuts_saved(s, cut);
    }
    s->checkpoint = (mst_checkpoint_stream){.cut = cut};
    TRY(checkpoint_copy_owned(s, &s->checkpoint));
    return checkpoint_send_pieces(s);
}
