/* Contract in record.h.
 *
 * Head on the wire, little-endian: kind u16, flags u16 (1: begins), length of the data u32, stamp u64, the
 * process's name padded with zeros to 32 bytes. */
#include "observe/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "observe/bytes.h"

#define FLAG_BEGINS 1u
#define HEADER_MAX  ((size_t)1 << 16) /* longest header that is compared */

bool mst_process_name_fits(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && n < MST_PROCESS_NAME && name[n] == 0;
}

/* ---- the wire ---- */

void mst_record_encode(const mst_record *record, uint8_t *out)
{
    mst_put_little(out, record->kind, 2);
    mst_put_little(out + 2, record->begins ? FLAG_BEGINS : 0, 2);
    mst_put_little(out + 4, record->n, 4);
    mst_put_little(out + 8, record->stamp, 8);
    memset(out + 16, 0, MST_PROCESS_NAME);
    memcpy(out + 16, record->process, strnlen(record->process, MST_PROCESS_NAME - 1));
}

mst_status mst_record_decode(const void *body, size_t size, mst_record *out)
{
    const uint8_t *in = body;
    mst_record r = {0};
    if (size < MST_RECORD_HEAD)
        return mst_fail(MST_EINPUT, "invalid record: %zu bytes are shorter than its head", size);
    r.kind = (mst_record_kind)mst_get_little(in, 2);
    r.begins = mst_get_little(in + 2, 2) & FLAG_BEGINS;
    r.n = mst_get_little(in + 4, 4);
    r.stamp = mst_get_little(in + 8, 8);
    memcpy(r.process, in + 16, MST_PROCESS_NAME);
    r.data = in + MST_RECORD_HEAD;
    if (r.kind >= MST_RECORDS)
        return mst_fail(MST_EINPUT, "invalid record: unknown kind %u", (unsigned)r.kind);
    if (r.process[MST_PROCESS_NAME - 1] != 0 || !mst_process_name_fits(r.process))
        return mst_fail(MST_EINPUT, "invalid record: invalid name of its process");
    if (r.n > MST_RECORD_MAX || r.n != size - MST_RECORD_HEAD)
        return mst_fail(MST_EINPUT, "invalid record: it has %zu bytes, its head states %zu",
                        size - MST_RECORD_HEAD, r.n);
    *out = r;
    return MST_OK;
}

/* ---- the directory ---- */

static char *record_path(const char *run, const mst_record *r)
{
    static const char *const files[] = {
#define X(name, file) file,
        MST_RECORD_MAP(X)
#undef X
    };
    const char *folder = r->kind == MST_RECORD_EVALUATIONS ? MST_EVALUATOR : r->process;
    if (r->kind != MST_RECORD_EVENTS && r->kind != MST_RECORD_EVALUATIONS)
        return mst_sprintf("%s/processes/%s/%s", run, folder, files[r->kind]);
    return mst_sprintf("%s/processes/%s/%s.%010llu.%06llu.%s", run, folder, files[r->kind],
                       (unsigned long long)(r->stamp / 1000000), (unsigned long long)(r->stamp % 1000000),
                       r->process);
}

static mst_status record_make_folder(const char *path)
{
    char *folder = mst_strdup(path);
    if (folder == NULL)
        return mst_fail_memory();
    *strrchr(folder, '/') = 0;
    mst_status st = mst_make_folders(folder);
    mst_free(folder);
    return st;
}

static mst_status record_write_all(int fd, const char *path, const void *data, size_t n)
{
    const uint8_t *at = data;
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return mst_fail(MST_EIO, "%s: cannot be written: %s", path, strerror(done < 0 ? errno : EIO));
        at += done;
        n -= (size_t)done;
    }
    return MST_OK;
}

/* Prepares the first record of a CSV file for an existing file: removes an equal header, and adds a newline
 * after an incomplete line. */
static mst_status record_continue_csv(int fd, const char *path, const uint8_t **data, size_t *n)
{
    struct stat info;
    char last = '\n';
    const uint8_t *end = memchr(*data, '\n', *n);
    size_t header = end != NULL ? (size_t)(end - *data) + 1 : 0;
    if (fstat(fd, &info) != 0 || info.st_size == 0)
        return MST_OK;
    if (pread(fd, &last, 1, info.st_size - 1) == 1 && last != '\n')
        TRY(record_write_all(fd, path, "\n", 1));
    if (header == 0 || header > HEADER_MAX)
        return MST_OK;
    char *there = mst_alloc(header);
    if (there != NULL && pread(fd, there, header, 0) == (ssize_t)header &&
        memcmp(there, *data, header) == 0) {
        *data += header;
        *n -= header;
    }
    mst_free(there);
    return MST_OK;
}

mst_status mst_record_file(const char *run, const mst_record *r)
{
    const uint8_t *data = r->data;
    size_t n = r->n;
    mst_status st = MST_OK;
    bool csv = r->kind == MST_RECORD_RESOURCES || r->kind == MST_RECORD_SPANS ||
               r->kind == MST_RECORD_TRAFFIC || r->kind == MST_RECORD_LEARNING;
    bool truncate = r->kind == MST_RECORD_PROCESS || (r->kind == MST_RECORD_TRACE && r->begins);
    char *path = record_path(run, r);
    if (path == NULL)
        return mst_fail_memory();
    if (r->begins)
        st = mst_path_is_folder(run) ? record_make_folder(path)
                                     : mst_fail(MST_EIO, "%s: the run directory is gone", run);
    int fd = st == MST_OK
                 ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (truncate ? O_TRUNC : 0), 0666)
                 : -1;
    if (st == MST_OK && fd < 0)
        st = mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (st == MST_OK && csv && r->begins)
        st = record_continue_csv(fd, path, &data, &n);
    if (st == MST_OK)
        st = record_write_all(fd, path, data, n);
    if (fd >= 0 && close(fd) != 0 && st == MST_OK)
        st = mst_fail(MST_EIO, "%s: cannot be written: %s", path, strerror(errno));
    mst_free(path);
    return st;
}
