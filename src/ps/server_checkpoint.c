/* A server's floats for a checkpoint; contract in server_checkpoint.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "ps/server_impl.h"
#include "run/sparse_file.h"

#define PIECE_FLOATS  (1u << 18) /* 1 MB */
#define MAX_IN_FLIGHT 4          /* pieces in flight */

/* ---- a copy of the owned floats ---- */

static const char *checkpoint_copy_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && folder[0] != 0 ? folder : "/tmp";
}

static int checkpoint_open_unlinked(const char *folder)
{
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

/* Floats of the weights (slot 0) or of optimizer slot - 1 from `first` on, as they are now. */
static const float *checkpoint_floats(const mst_server *s, uint32_t slot, uint64_t first)
{
    const mst_params *params = s->model.params;
    return (slot == 0 ? params->w : params->slots[slot - 1]) + first;
}

/* Writes the owned floats into the file. A write to a full disk fails; a store into a mapping of the file
 * would end the process. */
static mst_status checkpoint_write_copy(const mst_server *s, int fd, const char *folder)
{
    mst_float_cursor cursor = {0};
    mst_float_piece p;
    while (mst_float_cursor_next(&cursor, &s->owned, s->model.params, UINT64_MAX, &p))
        TRY(mst_sparse_write(fd, folder, p.before * sizeof(float), checkpoint_floats(s, p.slot, p.first),
                             (size_t)p.count * sizeof(float), false));
    return MST_OK;
}

static mst_status checkpoint_copy_owned(const mst_server *s, mst_checkpoint_stream *p)
{
    const char *folder = checkpoint_copy_folder();
    p->copy_bytes = (size_t)mst_float_cursor_total(&s->owned, s->model.params) * sizeof(float);
    if (p->copy_bytes == 0) /* the model has fewer partitions than there are servers */
        return MST_OK;
    int fd = checkpoint_open_unlinked(folder);
    mst_status st = MST_OK;
    void *map = MAP_FAILED;
    if (fd < 0 || ftruncate(fd, (off_t)p->copy_bytes) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: no file for a copy of %zu bytes: %s", folder, p->copy_bytes,
                             strerror(errno)));
    TRY_OUT(st, checkpoint_write_copy(s, fd, folder));
    map = mmap(NULL, p->copy_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: a copy of %zu bytes cannot be mapped: %s", folder, p->copy_bytes,
                             strerror(errno)));
    p->copy = map;
out:
    if (fd >= 0)
        close(fd);
    return st;
}

static void checkpoint_drop_copy(mst_checkpoint_stream *p)
{
    if (p->copy != NULL)
        munmap((void *)(uintptr_t)p->copy, p->copy_bytes);
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
    mst_float_piece next;
    while (p->in_flight < MAX_IN_FLIGHT &&
           mst_float_cursor_next(&p->next, &s->owned, s->model.params, PIECE_FLOATS, &next)) {
        const float *from =
            p->copy != NULL ? p->copy + next.before : checkpoint_floats(s, next.slot, next.first);
        mst_message m = {.type = MST_PS_FLOATS, .count = next.slot, .step = next.first};
        mst_piece piece = {from, next.count * sizeof *from};
        bool zero = mst_is_zero(from, piece.size);
        if (zero) {
            m.flags = MST_FLOATS_ZERO;
            m.request = (uint32_t)next.count;
        }
        mst_status st = mst_net_send(s->net, s->servers[0], &m, &piece, !zero, zero ? NULL : p);
        if (st == MST_EPEER)
            return MST_OK; /* the loss of the coordinator is reported separately */
        TRY(st);
        p->in_flight += !zero;
    }
    if (p->in_flight > 0 || !p->next.ended)
        return MST_OK;
    mst_message done = {.type = MST_PS_SAVED, .count = p->cut};
    checkpoint_drop_copy(p);
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &done));
}

void mst_checkpoint_stream_sent(mst_server *s)
{
    s->checkpoint.in_flight--;
    mst_status st = checkpoint_send_pieces(s);
    if (st == MST_OK)
        st = mst_replica_roster_ready(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

void mst_checkpoint_stream_abandon(mst_server *s)
{
    s->checkpoint.next = (mst_float_cursor){.ended = true};
}

/* Writes the coordinator's own floats into its files. */
static mst_status checkpoint_write_owned(mst_server *s)
{
    mst_float_cursor cursor = {0};
    mst_float_piece p;
    while (mst_float_cursor_next(&cursor, &s->owned, s->model.params, UINT64_MAX, &p))
        TRY(s->hooks->checkpoint->write(s->hooks->arg, p.slot, p.first, p.count,
                                        checkpoint_floats(s, p.slot, p.first)));
    return MST_OK;
}

mst_status mst_checkpoint_stream_begin(mst_server *s, uint32_t cut)
{
    if (s->co != NULL) {
        TRY(checkpoint_write_owned(s));
        return mst_cuts_saved(s, cut, false);
    }
    s->checkpoint = (mst_checkpoint_stream){.cut = cut};
    mst_status st = s->cut.flags & MST_CUT_LAST ? MST_OK : checkpoint_copy_owned(s, &s->checkpoint);
    if (st != MST_EIO)
        return st == MST_OK ? checkpoint_send_pieces(s) : st;
    mst_warn("a checkpoint is not saved: %s; free space there, or set TMPDIR", mst_error_text());
    checkpoint_drop_copy(&s->checkpoint);
    mst_message failed = {.type = MST_PS_SAVED, .flags = MST_SAVED_FAILED, .count = cut};
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &failed));
}
