/* The folders of plug-ins, and loading; contract in plugin_path.h. */
#include "base/plugin_path.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MUSTER_PLUGINS_FROM_BIN
#define MUSTER_PLUGINS_FROM_BIN "../lib/muster"
#endif
#ifndef MUSTER_PLUGINS_INSTALLED
#define MUSTER_PLUGINS_INSTALLED "/usr/local/lib/muster"
#endif

/* The folder of this program; "" when the system does not report it. */
static void plugin_own_folder(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash != NULL)
        *slash = '\0';
}

bool mst_plugin_find(const char *file, char *out, size_t size)
{
    char own[512], folders[3][1024];
    const char *given = getenv("MUSTER_PLUGINS");
    size_t n = 0;
    if (given != NULL && *given != '\0') {
        snprintf(folders[n++], sizeof folders[0], "%s", given);
    } else {
        plugin_own_folder(own, sizeof own);
        snprintf(folders[n++], sizeof folders[0], "%s", own);
        snprintf(folders[n++], sizeof folders[0], "%s/%s", own, MUSTER_PLUGINS_FROM_BIN);
        snprintf(folders[n++], sizeof folders[0], "%s", MUSTER_PLUGINS_INSTALLED);
    }
    for (size_t i = 0; i < n; i++) {
        int length = snprintf(out, size, "%s/%s", folders[i], file);
        struct stat found;
        if (length > 0 && (size_t)length < size && access(out, R_OK) == 0 && stat(out, &found) == 0 &&
            !S_ISFIFO(found.st_mode)) /* its opening would wait for a writer */
            return true;
    }
    return false;
}

mst_status mst_plugin_load(const mst_plugin_kind *kind, const char *path, int flags, void **handle,
                           const void **table)
{
    void *h = dlopen(path, flags);
    if (h == NULL)
        return mst_fail(MST_EUNSUPPORTED, "%s cannot be loaded: %s", path, dlerror());
    const uint32_t *version = dlsym(h, kind->symbol);
    const void **place = dlsym(h, kind->host_symbol);
    if (version == NULL || place == NULL || *version != kind->abi) {
        mst_status st =
            mst_fail(MST_EUNSUPPORTED,
                     "%s belongs to another version of muster (its table has version %u, not %u); %s", path,
                     version != NULL ? *version : 0, kind->abi, kind->renewal);
        dlclose(h);
        return st;
    }
    *place = kind->host;
    *handle = h;
    *table = version;
    return MST_OK;
}
