/* Shared by fetch.c and the data sets that need conversion; private to them. */
#ifndef MST_DATA_FETCH_IMPL_H
#define MST_DATA_FETCH_IMPL_H

#include <stdint.h>

#include "data/fetch.h"

#define MST_FETCH_MEMBERS 16

/* A file that is to be in the folder in the end. */
typedef struct mst_fetch_file {
    const char *name;
    int64_t size;
    const char *sha256;
} mst_fetch_file;

typedef struct mst_fetch_set {
    const char *name; /* for messages */
    const char *package, *archive;
    const char *inside;          /* the archive's folder, with a slash at its end */
    const char *const *members;  /* the members to unpack; fewer than MST_FETCH_MEMBERS, NULL-terminated */
    const mst_fetch_file *files; /* the files of the folder; ends with a name of NULL */
    /* Makes the files out of the members, in their folder; NULL: they are the members. */
    mst_status (*convert)(const char *inside, const atomic_bool *stop);
} mst_fetch_set;

mst_status mst_fetch(const mst_fetch_set *set, const char *folder, const atomic_bool *stop);

#endif
