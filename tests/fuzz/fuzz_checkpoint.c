/* libFuzzer: any bytes as a checkpoint folder. Input: one byte of choices, the manifest up to a zero byte,
 * the part file. Choice 1 sets the size and checksum of the manifest to those of the part file, so mutated
 * part files pass them; choice 2 reads the optimizer's state. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../state_names.h"
#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "data/origin.h"
#include "run/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void)
{
    mst_remove_tree(folder);
}

static void write_file(const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd) != 0)
        abort();
}

/* The manifest with the right size and checksum, or NULL when it is none. */
static char *repair(const uint8_t *manifest, size_t n, const uint8_t *part, size_t n_part)
{
    json_t *root = json_loadb((const char *)manifest, n, 0, NULL);
    json_t *entry = json_array_get(json_object_get(root, "parts"), 0);
    json_object_set_new(entry, "bytes", json_integer((json_int_t)n_part));
    json_object_set_new(entry, "crc32c", json_integer(mst_crc32c(0, part, n_part)));
    char *text = root == NULL ? NULL : json_dumps(root, 0);
    json_decref(root);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (folder[0] == 0) {
        strcpy(folder,
               access("/dev/shm", W_OK) == 0 ? "/dev/shm/muster-fuzz-XXXXXX" : "/tmp/muster-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL)
            abort();
        atexit(remove_folder);
    }
    const uint8_t *manifest = data + 1, *end = memchr(manifest, 0, size - 1);
    size_t n = end == NULL ? size - 1 : (size_t)(end - manifest), n_part = end == NULL ? 0 : size - 2 - n;
    char *repaired = data[0] & 1 ? repair(manifest, n, manifest + n + 1, n_part) : NULL;
    if (repaired != NULL)
        write_file("manifest.json", repaired, strlen(repaired));
    else
        write_file("manifest.json", manifest, n);
    free(repaired);
    write_file("part-00000.safetensors", manifest + n + 1, n_part);

    mst_params params = {0};
    if (mst_params_add(&params, "weight", MST_VIEW_TRAINABLE, 0, 2, (uint64_t[]){2, 3}, NULL) != MST_OK ||
        mst_params_add(&params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){2}, NULL) != MST_OK ||
        reserve_named(&params, 1, 0) != MST_OK)
        abort();
    mst_checkpoint_meta meta;
    mst_status st;
    char *found = NULL;
    if (mst_checkpoint_find(folder, &found) != MST_OK)
        abort();
    mst_free(found);
    if (mst_checkpoint_read_meta(folder, &meta) == MST_OK) {
        json_t *rows = json_pack("{s:s, s:i, s:[s]}", "keys", "vw", "hash-seed", 1, "columns", "a float");
        st = mst_origin_check(mst_origin_in(json_object_get(meta.extra, "data")), folder, rows, "rows");
        if (st != MST_OK && mst_error_text()[0] == 0)
            abort();
        json_decref(rows);
        mst_checkpoint_meta_fini(&meta);
    }
    st = mst_checkpoint_load(folder, &params, data[0] & 2);
    if (st != MST_OK && mst_error_text()[0] == 0)
        abort();
    /* What loads reads the same in pieces. */
    mst_checkpoint *file = NULL;
    if (mst_checkpoint_open(folder, &params, data[0] & 2, &file) == MST_OK) {
        float piece[3];
        for (uint32_t slot = 0; slot <= (data[0] & 2 ? 1 : 0); slot++)
            for (uint64_t first = 0; first + 3 <= params.size && st == MST_OK; first += 3)
                if (mst_checkpoint_read(file, slot, first, 3, piece) != MST_OK ||
                    memcmp(piece, (slot ? params.slots[0] : params.w) + first, sizeof piece) != 0)
                    abort();
    } else if (st == MST_OK) {
        abort();
    }
    mst_checkpoint_close(file);
    mst_params_fini(&params);
    return 0;
}
