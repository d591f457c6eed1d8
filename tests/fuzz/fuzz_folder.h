/* Shared by the fuzz targets of run directories: a folder whose files are sections of the input, separated
 * by the byte 1: manifest.json, metrics.csv, marks.csv and, of one process, process.json, resources.csv,
 * spans.csv and traffic.csv. */
#ifndef TESTS_FUZZ_FOLDER_H
#define TESTS_FUZZ_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "fuzz.h"

static char fuzz_folder_path[64];

static void fuzz_folder_remove(void)
{
    mst_remove_tree(fuzz_folder_path);
}

static void fuzz_folder_make(void)
{
    char path[128];
    strcpy(fuzz_folder_path,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-run-XXXXXX" : "/tmp/fuzz-run-XXXXXX");
    FUZZ_CHECK(mkdtemp(fuzz_folder_path) != NULL);
    atexit(fuzz_folder_remove);
    snprintf(path, sizeof path, "%s/processes/worker-0", fuzz_folder_path);
    FUZZ_CHECK(mst_make_folders(path) == MST_OK);
}

/* The folder, with the first seven sections in its files, which are taken off the front of the input. append:
 * behind what is there, but for the manifest, which is replaced. An empty section: no such file, or nothing
 * new. The folder goes when the program ends. */
static inline const char *fuzz_folder(const uint8_t **data, size_t *size, bool append)
{
    static const char *const names[] = {
        "manifest.json",
        "metrics.csv",
        "marks.csv",
        "processes/worker-0/process.json",
        "processes/worker-0/resources.csv",
        "processes/worker-0/spans.csv",
        "processes/worker-0/traffic.csv",
    };
    if (fuzz_folder_path[0] == '\0')
        fuzz_folder_make();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[160];
        const uint8_t *end = *size > 0 ? memchr(*data, 1, *size) : NULL;
        size_t n = end != NULL ? (size_t)(end - *data) : *size;
        snprintf(path, sizeof path, "%s/%s", fuzz_folder_path, names[i]);
        if (!append)
            unlink(path);
        if (n > 0) {
            FILE *f = fopen(path, append && i > 0 ? "a" : "w");
            FUZZ_CHECK(f != NULL && fwrite(*data, 1, n, f) == n && fclose(f) == 0);
        }
        n += end != NULL;
        *data += n;
        *size -= n;
    }
    return fuzz_folder_path;
}

#endif
