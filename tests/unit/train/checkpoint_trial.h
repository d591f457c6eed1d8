/* A temporary folder of checkpoints, for tests of them; without what makes saves fail once it is removed. */
#ifndef MST_TESTS_CHECKPOINT_TRIAL_H
#define MST_TESTS_CHECKPOINT_TRIAL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "run/sparse_file.h"

static char root[64], folder[96];

static inline int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/checkpoints", root);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    mst_sparse_fail_at(0);
    mst_out_fail_at(0);
    return mst_remove_tree(root) == MST_OK ? 0 : -1;
}

/* A file of a step's checkpoint, or its folder (""); good for four calls. */
static inline const char *at(uint64_t step, const char *file)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, 256, "%s/step-%012llu%s%s", folder, (unsigned long long)step, file[0] ? "/" : "", file);
    return p;
}

/* Replaces the first `from` in the manifest of a step and leaves out the checksum, as old versions did. */
static inline void edit_manifest(uint64_t step, const char *from, const char *to)
{
    char *text = NULL;
    size_t size;
    const char *path = at(step, "manifest.json");
    assert_int_equal(mst_file_read_all(path, 1 << 20, &text, &size), MST_OK);
    char *checksum = strstr(text, ",\n \"crc32c\": ");
    if (checksum != NULL)
        strcpy(checksum, "\n}\n");
    char *place = strstr(text, from);
    if (place == NULL)
        fail_msg("no %s in %s", from, text);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    assert_int_equal(fclose(f), 0);
    mst_free(text);
}

#endif
