/* A folder of its own for each test of a file, and paths in it. */
#ifndef TESTS_TEST_FOLDER_H
#define TESTS_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-test-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

/* Valid for four calls. */
static inline const char *in_folder(const char *name)
{
    static char path[4][600];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

static inline void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    if (f == NULL)
        abort();
    fputs(text, f);
    fclose(f);
}

#endif
