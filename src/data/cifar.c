/* CIFAR's binary files (contract: cifar.h): read once, front to back, into the records of a resident dataset.
 *
 * Invariants
 * 1. The number of rows is known before anything is reserved: from the size of a plain file, by reading a
 * compressed one through. */
#include "data/cifar.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/resident.h"
#include "data/stream.h"

enum { COARSE = 20 };
#define MAX_ROWS ((uint64_t)1 << 32)

static size_t record_bytes(mst_cifar_kind kind)
{
    return (kind == MST_CIFAR_100 ? 2 : 1) + MST_CIFAR_PIXELS;
}

static bool labels_fit(mst_cifar_kind kind, const uint8_t *record)
{
    return kind == MST_CIFAR_100 ? record[0] < COARSE && record[1] < 100 : record[0] < 10;
}

static bool could_be(mst_cifar_kind kind, const uint8_t *head, size_t n, uint64_t file_size)
{
    size_t size = record_bytes(kind);
    if (n < size || file_size % size != 0)
        return false;
    for (size_t at = 0; at + 2 <= n; at += size)
        if (!labels_fit(kind, head + at))
            return false;
    return true;
}

static int cifar10_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    return could_be(MST_CIFAR_10, head, n, file_size) ? MST_SNIFF_BINARY : 0;
}

static int cifar100_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    return could_be(MST_CIFAR_100, head, n, file_size) ? MST_SNIFF_BINARY : 0;
}

static mst_status cut_off(const char *path, uint64_t offset, mst_cifar_kind kind)
{
    return mst_fail(MST_EINPUT,
                    "%s at byte %" PRIu64
                    ": cut off within a record; CIFAR-%d's files are records of %zu bytes",
                    path, offset, (int)kind, record_bytes(kind));
}

/* The rows of a file; *bytes are those on disk. */
static mst_status cifar_count_rows(const char *path, mst_cifar_kind kind, uint64_t *rows, uint64_t *bytes)
{
    mst_status st;
    mst_in *in = NULL;
    uint8_t buffer[8192];
    size_t got;
    TRY_OUT(st, mst_in_open(path, &in));
    uint64_t size = mst_in_file_size(in);
    *bytes = size;
    if (mst_in_compressed(in) || size == 0) {
        do
            TRY_OUT(st, mst_in_read(in, buffer, sizeof buffer, &got));
        while (got == sizeof buffer);
        size = mst_in_offset(in);
    }
    *rows = size / record_bytes(kind);
    if (size % record_bytes(kind) != 0)
        st = cut_off(path, *rows * record_bytes(kind), kind);
    else if (*rows == 0)
        st = mst_fail(MST_EINPUT, "%s is empty", path);
    else if (*rows > MAX_ROWS)
        st = mst_fail(MST_EINPUT, "%s: more than 2^32 rows", path);
out:
    mst_in_close(in);
    return st;
}

static mst_status read_rows(const char *path, mst_cifar_kind kind, bool coarse, mst_dataset *d,
                            uint64_t first, uint64_t n)
{
    mst_status st;
    mst_in *in = NULL;
    size_t got, n_labels = kind == MST_CIFAR_100 ? 2 : 1;
    uint8_t labels[2];
    TRY_OUT(st, mst_in_open(path, &in));
    for (uint64_t i = 0; i < n; i++) {
        uint32_t *record = mst_resident_record(d, first + i);
        uint64_t at = mst_in_offset(in);
        TRY_OUT(st, mst_in_read(in, labels, n_labels, &got));
        if (got == n_labels)
            TRY_OUT(st, mst_in_read(in, record + 1, MST_CIFAR_PIXELS, &got));
        if (got != MST_CIFAR_PIXELS) {
            st = cut_off(path, at, kind);
            goto out;
        }
        if (!labels_fit(kind, labels)) {
            st = mst_fail(MST_EINPUT, "%s at byte %" PRIu64 ": %s is not a label of CIFAR-%d", path, at,
                          kind == MST_CIFAR_100 ? "this pair" : "this", (int)kind);
            goto out;
        }
        float label = labels[kind == MST_CIFAR_100 && !coarse];
        memcpy(record, &label, sizeof label);
    }
out:
    mst_in_close(in);
    return st;
}

mst_status mst_cifar_open(const mst_text_list *paths, mst_cifar_kind kind, const mst_data_options *options,
                          mst_dataset **out)
{
    mst_status st = MST_OK;
    mst_dataset *d = NULL;
    char *name = NULL;
    uint64_t bytes = 0, total = 0, *rows = mst_calloc(paths->n, sizeof *rows);
    if (rows == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < paths->n; i++) {
        uint64_t size = 0;
        TRY_OUT(st, cifar_count_rows(paths->items[i], kind, &rows[i], &size));
        bytes += size;
        total += rows[i];
    }
    name = mst_paths_name(paths);
    if (name == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_resident_new(kind == MST_CIFAR_100 ? &mst_data_cifar100 : &mst_data_cifar10, name, total,
                                 MST_CIFAR_PIXELS, true, &d));
    for (size_t i = 0, first = 0; i < paths->n; first += rows[i++])
        TRY_OUT(st, read_rows(paths->items[i], kind, options->cifar_label == 1, d, first, rows[i]));
    TRY_OUT(st, mst_resident_finish(d, 0));
    d->info.bytes = bytes;
    d->info.channels = 3;
    d->info.height = d->info.width = MST_CIFAR_SIDE;
    *out = d;
    d = NULL;
out:
    mst_dataset_destroy(d);
    mst_free(name);
    mst_free(rows);
    return st;
}

static mst_status cifar_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    mst_cifar_kind kind = self == &mst_data_cifar100 ? MST_CIFAR_100 : MST_CIFAR_10;
    return mst_cifar_open(source->paths, kind, source->options, out);
}

const mst_data_kind mst_data_cifar10 = {
    .name = "cifar10",
    .help = "CIFAR-10's binary files: a label and three planes of 32 x 32 bytes",
    .capabilities = MST_DATA_FIXED_ROWS | MST_DATA_OWN_CLASSES,
    .sniff = cifar10_sniff,
    .open = cifar_open,
};

const mst_data_kind mst_data_cifar100 = {
    .name = "cifar100",
    .help = "CIFAR-100's binary files, with --cifar-label fine or coarse",
    .capabilities = MST_DATA_FIXED_ROWS | MST_DATA_OWN_CLASSES,
    .reads = "cifar-label",
    .sniff = cifar100_sniff,
    .open = cifar_open,
};
