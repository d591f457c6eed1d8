/* Fingerprints of files; contract in fingerprint.h. */
#include "data/fingerprint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "data/cache.h"
#include "data/stream.h"

#define SAMPLES      4 /* of a file: at its beginning, at its end, evenly between */
#define SAMPLE_BYTES 16384
#define SAMPLED_MAX  (64u << 20) /* bytes over all files; of those beyond only the size counts */

typedef struct sampler {
    mst_fingerprint *out;
    uint64_t sampled;
    uint8_t buffer[SAMPLE_BYTES];
} sampler;

static mst_status sample_file(sampler *s, const char *path)
{
    mst_status st = MST_OK;
    struct stat info;
    uint32_t *sum = &s->out->checksum;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be read: %s", path, strerror(errno)));
    uint64_t size = (uint64_t)info.st_size, last = size > SAMPLE_BYTES ? size - SAMPLE_BYTES : 0;
    for (uint64_t i = 0; i < SAMPLES && (i == 0 || s->sampled < SAMPLED_MAX); i++) {
        ssize_t n = pread(fd, s->buffer, sizeof s->buffer, (off_t)(last / (SAMPLES - 1) * i));
        if (n < 0)
            TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be read: %s", path, strerror(errno)));
        if (i == 0 && mst_cache_sniff(s->buffer, (size_t)n)) {
            st = mst_cache_checksum(path, sum, &s->out->rows);
            goto out;
        }
        *sum = mst_crc32c(*sum, s->buffer, (size_t)n);
        s->sampled += (uint64_t)n;
    }
    *sum = mst_crc32c(*sum, &size, sizeof size);
    s->out->bytes += size;
out:
    if (fd >= 0)
        close(fd);
    return st;
}

/* Adds the names and sizes of all files below a folder, whatever order they are listed in. */
static mst_status sample_folder(sampler *s, const char *path, uint32_t below)
{
    mst_status st = MST_OK;
    struct dirent *entry;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return mst_fail(MST_EIO, "%s: the folder cannot be read: %s", path, strerror(errno));
    while (st == MST_OK && (entry = readdir(folder)) != NULL) {
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        char *child = mst_sprintf("%s/%s", path, entry->d_name);
        uint32_t name = mst_crc32c(below, entry->d_name, strlen(entry->d_name) + 1);
        if (child == NULL) {
            st = mst_fail_memory();
        } else if (stat(child, &info) == 0 && S_ISDIR(info.st_mode)) {
            st = sample_folder(s, child, name);
        } else if (stat(child, &info) == 0) {
            s->out->bytes += (uint64_t)info.st_size;
            s->out->checksum += mst_crc32c(name, &info.st_size, sizeof info.st_size);
        }
        mst_free(child);
    }
    closedir(folder);
    return st;
}

static mst_status sample_pattern(sampler *s, char *pattern)
{
    mst_text_list one = {.items = &pattern, .n = 1}, paths = {0};
    mst_status st = mst_glob(&one, &paths);
    if (st == MST_EINPUT && mst_path_is_folder(pattern))
        return sample_folder(s, pattern, 0);
    if (st == MST_EINPUT) {
        s->out->known = false;
        return MST_OK;
    }
    for (size_t i = 0; st == MST_OK && s->out->known && i < paths.n; i++) {
        s->out->known = !mst_path_reads_once(paths.items[i]);
        if (s->out->known)
            st = sample_file(s, paths.items[i]);
    }
    mst_text_list_fini(&paths);
    return st;
}

mst_status mst_fingerprint_files(const mst_text_list *patterns, mst_fingerprint *out)
{
    mst_status st = MST_OK;
    *out = (mst_fingerprint){.known = patterns->n > 0};
    sampler *s = mst_zalloc(sizeof *s);
    if (s == NULL)
        return mst_fail_memory();
    s->out = out;
    for (size_t i = 0; st == MST_OK && out->known && i < patterns->n; i++)
        st = sample_pattern(s, patterns->items[i]);
    if (!out->known)
        *out = (mst_fingerprint){0};
    mst_free(s);
    return st;
}
