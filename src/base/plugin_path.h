/* Plug-ins: shared libraries that muster loads on demand (MPI, GPUs). */
#ifndef MST_BASE_PLUGIN_PATH_H
#define MST_BASE_PLUGIN_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The path of the plug-in with this file name: in the folder of this program, then where plug-ins are
 * installed; the environment variable MUSTER_PLUGINS names another folder in place of these. False: not
 * found.
 */
bool mst_plugin_find(const char *file, char *out, size_t size);

/* How a kind of plug-in is loaded. */
typedef struct mst_plugin_kind {
    const char *symbol;      /* of its table, which begins with its version, a uint32_t */
    const char *host_symbol; /* of a pointer in it that is set to `host` */
    const void *host;
    uint32_t abi;        /* version of the table */
    const char *renewal; /* advice for another version, such as "install both together" */
} mst_plugin_kind;

/* Loads the plug-in at that path with flags of dlopen. *handle is the caller's to dlclose, *table belongs to
 * it. MST_EUNSUPPORTED: it cannot be loaded, or is of another version. */
mst_status mst_plugin_load(const mst_plugin_kind *kind, const char *path, int flags, void **handle,
                           const void **table);

#endif
