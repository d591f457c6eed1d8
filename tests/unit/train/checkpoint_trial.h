/* A temporary folder of checkpoints, for tests of them; without what makes saves fail once it is removed. */
#ifndef MST_TESTS_CHECKPOINT_TRIAL_H
#define MST_TESTS_CHECKPOINT_TRIAL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#endif
