/* Plug-ins: shared libraries that muster loads on demand (MPI, GPUs). */
#ifndef MST_BASE_PLUGIN_PATH_H
#define MST_BASE_PLUGIN_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* The path of the plug-in with this file name: in the folder of this program, then where plug-ins are
 * installed; the environment variable MUSTER_PLUGINS names another folder in place of these. False: not
 * found.
 */
bool mst_plugin_find(const char *file, char *out, size_t size);

#endif
