/* Writing a .npy file by several processes; contract in npy.h.
 *
 * Invariants
 * 1. Until commit's rename the target is untouched; the owner's end unlinks a file that was not renamed.
 * 2. The temporary file has its full size from the start, so that a full disk shows early where the file
 *    system can reserve, and every rectangle has a fixed place. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "matmul/npy.h"

#define HEADER_SIZE 128

static mst_status npy_out_failed(const mst_npy_out *self, const char *what)
{
    int reason = errno;
    return mst_fail(reason == ENOMEM ? MST_ENOMEM : MST_EIO, "%s: cannot be %s: %s", self->path, what,
                    strerror(reason));
}

static atomic_uint_fast64_t g_writes, g_fail_at; /* the write number that fails; 0: none */

void mst_npy_fail_at(uint64_t k)
{
    atomic_store(&g_fail_at, k == 0 ? 0 : atomic_load(&g_writes) + k);
}

static ssize_t npy_out_write_some(int fd, const void *data, size_t n, uint64_t at)
{
    if (atomic_fetch_add(&g_writes, 1) + 1 == atomic_load(&g_fail_at)) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, data, n, (off_t)at);
}

static mst_status write_at(mst_npy_out *self, const void *data, size_t n, uint64_t at)
{
    const uint8_t *from = data;
    while (n > 0) {
        ssize_t done = npy_out_write_some(self->fd, from, n, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return npy_out_failed(self, "written");
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return MST_OK;
}

/* Version 1: magic, 1, 0, length of the rest, the dictionary padded with blanks, a newline. */
static mst_status write_header(mst_npy_out *self)
{
    char header[HEADER_SIZE + 1];
    memset(header, ' ', HEADER_SIZE);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(HEADER_SIZE - 10);
    header[9] = 0;
    int n = snprintf(header + 10, HEADER_SIZE - 10,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %llu), }",
                     (unsigned long long)self->rows, (unsigned long long)self->cols);
    header[10 + n] = ' ';
    header[HEADER_SIZE - 1] = '\n';
    return write_at(self, header, HEADER_SIZE, 0);
}

/* Takes temporary over. */
static mst_status npy_out_begin(mst_npy_out *self, const char *path, char *temporary, uint64_t rows,
                                uint64_t cols)
{
    *self = (mst_npy_out){.rows = rows, .cols = cols, .at = HEADER_SIZE, .fd = -1};
    self->path = mst_strdup(path);
    self->temporary = temporary;
    return self->path != NULL && temporary != NULL ? MST_OK : mst_fail_memory();
}

mst_status mst_npy_create(const char *path, uint64_t rows, uint64_t cols, mst_npy_out *out)
{
    static atomic_uint count;
    mst_npy_out self;
    mst_status st;
    char *temporary = mst_sprintf("%s.tmp.%ld.%u", path, (long)getpid(), atomic_fetch_add(&count, 1));
    TRY_OUT(st, npy_out_begin(&self, path, temporary, rows, cols));
    self.fd = open(self.temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (self.fd < 0)
        TRY_OUT(st, npy_out_failed(&self, "created"));
    self.owner = true;
    if (ftruncate(self.fd, (off_t)(HEADER_SIZE + rows * cols * sizeof(float))) != 0)
        TRY_OUT(st, npy_out_failed(&self, "made large enough"));
    TRY_OUT(st, write_header(&self));
    *out = self;
    self = (mst_npy_out){.fd = -1};
out:
    mst_npy_end(&self);
    return st;
}

mst_status mst_npy_join(const char *path, const char *temporary, uint64_t rows, uint64_t cols,
                        mst_npy_out *out)
{
    mst_npy_out self;
    mst_status st;
    TRY_OUT(st, npy_out_begin(&self, path, mst_strdup(temporary), rows, cols));
    self.fd = open(temporary, O_RDWR | O_CLOEXEC);
    if (self.fd < 0)
        TRY_OUT(st,
                mst_fail(MST_EIO,
                         "%s: cannot be written by every rank (%s: %s); choose a folder that all hosts share",
                         path, temporary, strerror(errno)));
    *out = self;
    self = (mst_npy_out){.fd = -1};
out:
    mst_npy_end(&self);
    return st;
}

mst_status mst_npy_write(mst_npy_out *self, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols,
                         const float *data)
{
    if (cols == self->cols)
        return write_at(self, data, rows * cols * sizeof *data, self->at + row * cols * sizeof *data);
    for (uint64_t r = 0; r < rows; r++)
        TRY(write_at(self, data + r * cols, cols * sizeof *data,
                     self->at + ((row + r) * self->cols + col) * sizeof *data));
    return MST_OK;
}

mst_status mst_npy_sync(mst_npy_out *self)
{
    return fsync(self->fd) == 0 ? MST_OK : npy_out_failed(self, "synced");
}

mst_status mst_npy_commit(mst_npy_out *self)
{
    char *copy = mst_strdup(self->path);
    if (copy == NULL)
        return mst_fail_memory();
    mst_status st = MST_OK;
    if (rename(self->temporary, self->path) != 0) {
        st = npy_out_failed(self, "put into place");
    } else {
        self->owner = false;
        int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder >= 0) { /* sync of the name: best effort, because some file systems lack the call */
            fsync(folder);
            close(folder);
        }
    }
    mst_free(copy);
    return st;
}

void mst_npy_end(mst_npy_out *self)
{
    if (self->fd >= 0)
        close(self->fd);
    if (self->owner)
        unlink(self->temporary);
    mst_free(self->path);
    mst_free(self->temporary);
    *self = (mst_npy_out){.fd = -1};
}
