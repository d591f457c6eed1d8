/* A temporary folder of a test program; for cmocka's set-up and tear-down of a group. */
#ifndef MST_TESTS_TEMP_FOLDER_H
#define MST_TESTS_TEMP_FOLDER_H

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

static char folder[] = "/tmp/muster-test-XXXXXX";

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

/* Makes it and makes it the working directory. */
static inline int enter_folder(void **state)
{
    return make_folder(state) != 0 || chdir(folder) != 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

#endif
