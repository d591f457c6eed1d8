/* Reading .npy files; contract in npy.h.
 *
 * A file is the magic "\x93NUMPY", two bytes of version, the header's length (2 bytes in version 1, else 4),
 * the header, which is a Python dictionary in text with the keys descr, fortran_order and shape, and the
 * elements. The parser accepts only those three keys. The cursor never passes its end: every access goes
 * through peek. */
#include "matmul/npy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define MAGIC      "\x93NUMPY"
#define MAGIC_SIZE 6
#define WORD_MAX   40
#define SIDE_MAX   ((uint64_t)1 << 40)
#define BUFFER     ((size_t)1 << 16) /* bytes read at a time where elements are converted or turned */

typedef struct cursor {
    const char *path;
    const char *at, *end;
} cursor;

static mst_status npy_broken(const cursor *c, const char *what)
{
    return mst_fail(MST_EINPUT, "%s: the header of the .npy file %s; write it again with numpy.save", c->path,
                    what);
}

/* The next character that is not a blank, without taking it; '\0' at the end. */
static char npy_peek(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
    return c->at < c->end ? *c->at : '\0';
}

static bool npy_take(cursor *c, char wanted)
{
    if (wanted == '\0' || npy_peek(c) != wanted)
        return false;
    c->at++;
    return true;
}

/* 'text' or "text". */
static bool npy_take_text(cursor *c, char out[WORD_MAX])
{
    char quote = npy_peek(c);
    size_t n = 0;
    if (quote != '\'' && quote != '"')
        return false;
    for (c->at++; c->at < c->end && *c->at != quote; c->at++) {
        if (n + 1 >= WORD_MAX || !isprint((unsigned char)*c->at))
            return false;
        out[n++] = *c->at;
    }
    out[n] = '\0';
    return npy_take(c, quote);
}

/* True, False. */
static bool take_word(cursor *c, char out[WORD_MAX])
{
    size_t n = 0;
    npy_peek(c);
    for (; c->at < c->end && isalpha((unsigned char)*c->at); c->at++) {
        if (n + 1 >= WORD_MAX)
            return false;
        out[n++] = *c->at;
    }
    out[n] = '\0';
    return n > 0;
}

static bool take_number(cursor *c, uint64_t *out)
{
    uint64_t value = 0;
    if (!isdigit((unsigned char)npy_peek(c)))
        return false;
    for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++) {
        value = value * 10 + (uint64_t)(*c->at - '0');
        if (value > SIDE_MAX)
            return false;
    }
    *out = value;
    return true;
}

/* (3, 4), (3,), () */
static mst_status read_shape(cursor *c, mst_npy_header *out)
{
    uint64_t sides[2] = {0};
    unsigned n = 0;
    if (!npy_take(c, '('))
        return npy_broken(c, "has no shape in parentheses");
    while (!npy_take(c, ')')) {
        uint64_t side;
        if (!take_number(c, &side))
            return npy_broken(c, "has a shape that is not a list of numbers below 2^40");
        if (n < 2)
            sides[n] = side;
        n++;
        if (!npy_take(c, ',') && npy_peek(c) != ')')
            return npy_broken(c, "has a shape that does not end");
    }
    if (n != 2)
        return mst_fail(MST_EINPUT, "%s: has %u dimension%s, a matrix has 2; reshape it and save it again",
                        c->path, n, n == 1 ? "" : "s");
    out->rows = sides[0];
    out->cols = sides[1];
    return MST_OK;
}

static mst_status read_dtype(cursor *c, mst_npy_header *out)
{
    char descr[WORD_MAX];
    if (npy_peek(c) == '[')
        return mst_fail(MST_EINPUT, "%s: holds records, not numbers; save one field as float32", c->path);
    if (!npy_take_text(c, descr))
        return npy_broken(c, "has no dtype in quotes");
    if (strcmp(descr, "<f4") == 0)
        out->item = 4;
    else if (strcmp(descr, "<f8") == 0)
        out->item = 8;
    else
        return mst_fail(MST_EINPUT,
                        "%s: has dtype %s; must be little-endian float32 (<f4) or float64 (<f8): "
                        "numpy.save(file, array.astype('<f4'))",
                        c->path, descr);
    return MST_OK;
}

static mst_status read_order(cursor *c, mst_npy_header *out)
{
    char word[WORD_MAX];
    if (!take_word(c, word) || (strcmp(word, "True") != 0 && strcmp(word, "False") != 0))
        return npy_broken(c, "has neither True nor False for fortran_order");
    out->fortran = word[0] == 'T';
    return MST_OK;
}

static mst_status read_dictionary(cursor *c, mst_npy_header *out)
{
    unsigned seen = 0;
    if (!npy_take(c, '{'))
        return npy_broken(c, "does not begin with {");
    while (!npy_take(c, '}')) {
        char key[WORD_MAX];
        unsigned bit;
        if (!npy_take_text(c, key) || !npy_take(c, ':'))
            return npy_broken(c, "is not a dictionary of descr, fortran_order and shape");
        if (strcmp(key, "descr") == 0)
            bit = 1;
        else if (strcmp(key, "fortran_order") == 0)
            bit = 2;
        else if (strcmp(key, "shape") == 0)
            bit = 4;
        else
            return npy_broken(c, "has a key beside descr, fortran_order and shape");
        if ((seen & bit) != 0)
            return npy_broken(c, "has a key twice");
        seen |= bit;
        TRY(bit == 1 ? read_dtype(c, out) : bit == 2 ? read_order(c, out) : read_shape(c, out));
        if (!npy_take(c, ',') && npy_peek(c) != '}')
            return npy_broken(c, "is cut off");
    }
    if (seen != 7)
        return npy_broken(c, "lacks descr, fortran_order or shape");
    return npy_peek(c) == '\0' && c->at == c->end ? MST_OK : npy_broken(c, "continues after its dictionary");
}

mst_status mst_npy_parse(const char *path, const uint8_t *data, size_t n, uint64_t file_size,
                         mst_npy_header *out)
{
    mst_npy_header header = {0};
    cursor c = {.path = path};
    if (n < MAGIC_SIZE + 4 || memcmp(data, MAGIC, MAGIC_SIZE) != 0)
        return mst_fail(MST_EINPUT, "%s: is not a .npy file: it does not begin with the magic of numpy.save",
                        path);
    unsigned version = data[MAGIC_SIZE];
    if (version < 1 || version > 3)
        return mst_fail(MST_EINPUT, "%s: is a .npy file of version %u; versions 1 to 3 are supported", path,
                        version);
    size_t begin = version == 1 ? MAGIC_SIZE + 4 : MAGIC_SIZE + 6;
    if (n < begin)
        return npy_broken(&c, "is cut off");
    uint64_t length = (uint64_t)data[8] | (uint64_t)data[9] << 8;
    if (version > 1)
        length |= (uint64_t)data[10] << 16 | (uint64_t)data[11] << 24;
    if (length > n - begin)
        return npy_broken(&c, n >= MST_NPY_HEADER_MAX ? "is too long" : "is cut off");
    c.at = (const char *)data + begin;
    c.end = c.at + length;
    TRY(read_dictionary(&c, &header));
    header.at = begin + length;
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
