/* Run directories that this process does not have open: saved checkpoints, the command that resumes a run,
 * free names. Contract in run_dir.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "run/run_dir.h"

typedef enum saved {
    SAVED_NOTHING,
    SAVED_UNKNOWN, /* an incomplete checkpoint, or an unreadable folder */
    SAVED_SOMETHING,
} saved;

static saved run_saved_state(const char *run)
{
    char path[4096];
    saved found = SAVED_NOTHING;
    if (snprintf(path, sizeof path, "%s/checkpoints", run) >= (int)sizeof path)
        return SAVED_UNKNOWN;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return errno == ENOENT ? SAVED_NOTHING : SAVED_UNKNOWN;
    for (struct dirent *e; found != SAVED_SOMETHING && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "step-", 5) != 0)
            continue;
        int n = snprintf(path, sizeof path, "%s/checkpoints/%s/manifest.json", run, e->d_name);
        found = n < (int)sizeof path && mst_path_exists(path) ? SAVED_SOMETHING : SAVED_UNKNOWN;
    }
    closedir(dir);
    return found;
}

/* Reads state and host of the manifest; "": unknown. */
static void run_read_manifest(const char *run, char state[16], char host[256])
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/manifest.json", run);
    json_t *manifest = n < (int)sizeof path ? json_load_file(path, 0, NULL) : NULL;
    const char *is = json_string_value(json_object_get(manifest, "state")),
               *at = json_string_value(json_object_get(manifest, "host"));
    snprintf(state, 16, "%s", is != NULL ? is : "");
    snprintf(host, 256, "%s", at != NULL ? at : "");
    json_decref(manifest);
}

/* Returns whether muster writes an entry of that name, or a temporary file for it. */
static bool run_is_own_entry(const char *name)
{
    static const char *const names[] = {".",           "..",           ".lock",       "manifest.json",
                                        "metrics.csv", "marks.csv",    "processes",   "checkpoints",
                                        "best",        "verdict.json", "report.html", "trace.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && (name[n] == '\0' || strncmp(name + n, ".tmp.", 5) == 0))
            return true;
    }
    return false;
}

bool mst_run_find_stray(const char *folder, char *name, size_t size)
{
    DIR *dir = opendir(folder);
    bool found = false;
    for (struct dirent *e; dir != NULL && !found && (e = readdir(dir)) != NULL;) {
        found = !run_is_own_entry(e->d_name);
        snprintf(name, size, "%s", e->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

bool mst_run_is_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    bool empty = dir != NULL;
    for (struct dirent *e; empty && (e = readdir(dir)) != NULL;)
        empty =
            strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, ".lock") == 0;
    if (dir != NULL)
        closedir(dir);
    return empty;
}

bool mst_run_has_result(const char *folder)
{
    char state[16], host[256];
    run_read_manifest(folder, state, host);
    return strcmp(state, "done") == 0 || strcmp(state, "stopped") == 0 ||
           run_saved_state(folder) != SAVED_NOTHING;
}

void mst_run_way_on(const char *run, char *out, size_t size)
{
    char state[16], host[256], here[256] = "";
    gethostname(here, sizeof here - 1);
    run_read_manifest(run, state, host);
    bool known = strcmp(host, here) == 0 && (strcmp(state, "running") == 0 || strcmp(state, "failed") == 0);
    saved found = known ? run_saved_state(run) : SAVED_UNKNOWN;
    const char *unless_sure = found == SAVED_UNKNOWN ? " if it has saved a checkpoint" : "";
    char command[MST_ERROR_MAX / 2];
    if (found == SAVED_NOTHING) {
        snprintf(out, size, "no checkpoint was saved; start again with --checkpoint-every");
    } else if (getenv(MST_RUN_LAUNCH_ENV) != NULL) {
        mst_run_resume_command(run, command, sizeof command);
        snprintf(out, size, "resume the run%s with: %s", unless_sure, command);
    } else {
        mst_run_flag(run, command, sizeof command);
        snprintf(out, size, "resume the run%s by starting all processes again with %s --resume", unless_sure,
                 command);
    }
}

const char *mst_run_flag(const char *run, char *out, size_t size)
{
    char word[1024];
    snprintf(out, size, "--run%c%s", *run == '-' ? '=' : ' ', mst_shell_word(run, word, sizeof word));
    return out;
}

void mst_run_resume_command(const char *run, char *out, size_t size)
{
    const char *launch = getenv(MST_RUN_LAUNCH_ENV);
    char flag[1040];
    snprintf(out, size, "%s train %s --resume", launch != NULL ? launch : "muster",
             mst_run_flag(run, flag, sizeof flag));
}

char *mst_run_free_name(const char *folder, const char *stem)
{
    struct stat info;
    for (unsigned i = 1;; i++) {
        char *name = mst_sprintf("%s/%s-%u", folder, stem, i);
        if (name == NULL || lstat(name, &info) != 0)
            return name;
        mst_free(name);
    }
}
