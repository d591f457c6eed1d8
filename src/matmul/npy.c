/* Reading .npy files; contract in npy.h. */
#include "matmul/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/npy_header.h"

#define BUFFER ((size_t)1 << 16) /* bytes read at a time where elements are converted or turned */

mst_status mst_npy_parse(const char *path, const uint8_t *data, size_t n, uint64_t file_size,
                         mst_npy_header *out)
{
    mst_npy_shape shape;
    TRY(mst_npy_shape_parse(path, data, n, MST_NPY_HEADER_MAX, &shape));
    if (shape.type[0] != 'f' || !shape.little)
        return mst_fail(MST_EINPUT,
                        "%s: has dtype %s; must be little-endian float32 (<f4) or float64 (<f8): "
                        "numpy.save(file, array.astype('<f4'))",
                        path, shape.descr);
    if (shape.n_dims != 2)
        return mst_fail(MST_EINPUT, "%s: has %u dimension%s, a matrix has 2; reshape it and save it again",
                        path, shape.n_dims, shape.n_dims == 1 ? "" : "s");
    mst_npy_header header = {.rows = shape.dims[0],
                             .cols = shape.dims[1],
                             .item = shape.item,
                             .fortran = shape.fortran,
                             .at = shape.at};
    if (header.rows == 0 || header.cols == 0)
        return mst_fail(MST_EINPUT, "%s: is an empty matrix of %llu x %llu", path,
                        (unsigned long long)header.rows, (unsigned long long)header.cols);
    uint64_t room = (file_size > header.at ? file_size - header.at : 0) / header.item;
    if (header.rows > room / header.cols)
        return mst_fail(MST_EINPUT,
                        "%s: is cut off: %llu x %llu elements of %u bytes do not fit in its %llu bytes", path,
                        (unsigned long long)header.rows, (unsigned long long)header.cols, header.item,
                        (unsigned long long)file_size);
    *out = header;
    return MST_OK;
}

/* ---- rectangles ---- */

static mst_status read_at(const mst_npy_in *self, void *out, size_t n, uint64_t at)
{
    uint8_t *to = out;
    while (n > 0) {
        ssize_t got = pread(self->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mst_fail(MST_EIO, "%s: cannot be read at byte %llu: %s", self->path,
                            (unsigned long long)at, strerror(errno));
        if (got == 0)
            return mst_fail(MST_EINPUT, "%s: ends at byte %llu; it was longer when it was opened", self->path,
                            (unsigned long long)at);
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return MST_OK;
}

mst_status mst_npy_open(const char *path, mst_npy_in *out)
{
    mst_npy_in self = {.fd = -1};
    struct stat info;
    uint8_t *head = mst_alloc(MST_NPY_HEADER_MAX);
    mst_status st = MST_OK;
    self.path = mst_strdup(path);
    if (head == NULL || self.path == NULL)
        TRY_OUT(st, mst_fail_memory());
    self.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (self.fd < 0 || fstat(self.fd, &info) != 0)
        TRY_OUT(st, mst_fail(errno == ENOENT ? MST_EINPUT : MST_EIO, "%s: cannot be opened: %s", path,
                             strerror(errno)));
    if (!S_ISREG(info.st_mode))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: is not a plain file, and matrices need random access", path));
    uint64_t size = (uint64_t)info.st_size;
    size_t n = size < MST_NPY_HEADER_MAX ? (size_t)size : MST_NPY_HEADER_MAX;
    TRY_OUT(st, read_at(&self, head, n, 0));
    TRY_OUT(st, mst_npy_parse(path, head, n, size, &self.header));
    *out = self;
    self = (mst_npy_in){.fd = -1};
out:
    mst_free(head);
    mst_npy_close(&self);
    return st;
}

void mst_npy_close(mst_npy_in *self)
{
    if (self->fd >= 0)
        close(self->fd);
    mst_free(self->path);
    *self = (mst_npy_in){.fd = -1};
}

/* Converts elements of the file to float32 at out[0], out[step], ... */
static mst_status npy_convert(const mst_npy_in *self, const void *from, size_t n, float *out, size_t step)
{
    if (self->header.item == 4) {
        const float *x = from;
        for (size_t i = 0; i < n; i++)
            out[i * step] = x[i];
        return MST_OK;
    }
    const double *x = from;
    bool fits = true;
    for (size_t i = 0; i < n; i++) {
        out[i * step] = (float)x[i];
        fits = fits && (isfinite(out[i * step]) || !isfinite(x[i]));
    }
    return fits ? MST_OK
                : mst_fail(MST_EINPUT, "%s: has a float64 that is too large for a float32; scale the matrix",
                           self->path);
}

/* n adjacent elements of the file. */
static mst_status npy_read_run(const mst_npy_in *self, uint64_t first, uint64_t n, void *buffer, float *out,
                               size_t step)
{
    uint64_t at = self->header.at + first * self->header.item;
    if (self->header.item == 4 && step == 1)
        return read_at(self, out, n * 4, at);
    size_t most = BUFFER / self->header.item;
    while (n > 0) {
        size_t part = n < most ? (size_t)n : most;
        TRY(read_at(self, buffer, part * self->header.item, at));
        TRY(npy_convert(self, buffer, part, out, step));
        at += part * self->header.item;
        out += part * step;
        n -= part;
    }
    return MST_OK;
}

mst_status mst_npy_read(const mst_npy_in *self, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols,
                        float *out)
{
    const mst_npy_header *h = &self->header;
    mst_status st = MST_OK;
    void *buffer = NULL;
    if (rows == 0 || cols == 0)
        return MST_OK;
    if (h->item != 4 || h->fortran) {
        buffer = mst_alloc(BUFFER);
        if (buffer == NULL)
            return mst_fail_memory();
    }
    if (h->fortran) {
        for (uint64_t c = 0; c < cols && st == MST_OK; c++)
            st = npy_read_run(self, (col + c) * h->rows + row, rows, buffer, out + c, cols);
    } else if (cols == h->cols) {
        st = npy_read_run(self, row * h->cols, rows * cols, buffer, out, 1);
    } else {
        for (uint64_t r = 0; r < rows && st == MST_OK; r++)
            st = npy_read_run(self, (row + r) * h->cols + col, cols, buffer, out + r * cols, 1);
    }
    mst_free(buffer);
    return st;
}
