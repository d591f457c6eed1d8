/* Run directories that this process does not have open: saved checkpoints, the command that resumes a run,
 * free names. Contract in run_dir.h. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "run/checkpoint_impl.h"
#include "run/run_dir.h"

#define MANIFEST_MAX ((size_t)256 << 20)
#define TAIL_BYTES   8192 /* of metrics.csv: room for many lines */

typedef enum saved {
    SAVED_NOTHING,
    SAVED_UNKNOWN, /* an incomplete checkpoint, or an unreadable folder */
    SAVED_SOMETHING,
} saved;

static saved run_saved_state(const char *run)
{
    mst_checkpoint_entry *entries = NULL;
    size_t n = 0;
    char *folder = mst_sprintf("%s/checkpoints", run);
    bool known = folder != NULL && mst_checkpoint_list(folder, &entries, &n) == MST_OK;
    saved found = known && n == 0 ? SAVED_NOTHING : SAVED_UNKNOWN;
    for (size_t i = 0; i < n; i++)
        if (entries[i].complete)
            found = SAVED_SOMETHING;
    mst_free(entries);
    mst_free(folder);
    return found;
}

/* checked: a wrong checksum is MST_EINPUT. */
static mst_status run_parse_manifest(const char *run, bool checked, json_t **out)
{
    mst_status st = MST_OK;
    char *path = mst_sprintf("%s/manifest.json", run), *text = NULL;
    size_t size;
    json_t *manifest = NULL;
    json_error_t error;
    *out = NULL;
    if (path == NULL)
        return mst_fail_memory();
    if (!mst_path_exists(path))
        goto out;
    TRY_OUT(st, mst_file_read_all(path, MANIFEST_MAX, &text, &size));
    manifest = json_loadb(text, size, 0, &error);
    if (manifest == NULL)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: truncated or damaged: no valid JSON from line %d on", path,
                             error.line));
    if (checked)
        TRY_OUT(st, mst_json_verify(manifest, text, size, path));
    *out = manifest;
    manifest = NULL;
out:
    json_decref(manifest);
    mst_free(text);
    mst_free(path);
    return st;
}

json_t *mst_run_read_manifest(const char *run)
{
    json_t *manifest;
    (void)run_parse_manifest(run, false, &manifest);
    return manifest;
}

mst_status mst_run_load_manifest(const char *run, json_t **out)
{
    return run_parse_manifest(run, true, out);
}

/* Returns whether a text of the manifest is one of two. */
static bool run_entry_is(const json_t *manifest, const char *key, const char *one, const char *other)
{
    const char *text = json_string_value(json_object_get(manifest, key));
    return text != NULL && (strcmp(text, one) == 0 || strcmp(text, other) == 0);
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

mst_reached mst_run_reached(const char *run)
{
    mst_reached out = {0};
    char *path = mst_sprintf("%s/metrics.csv", run), tail[TAIL_BYTES + 1];
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    ssize_t n = fd >= 0 ? pread(fd, tail, TAIL_BYTES, from) : 0;
    tail[n > 0 ? n : 0] = '\0';
    for (char *line = strchr(tail, '\n'), *end; line != NULL && (end = strchr(line + 1, '\n')) != NULL;
         line = end) {
        unsigned long long step, rows;
        double seconds;
        if (sscanf(line + 1, "%llu,%llu,%*u,%lf", &step, &rows, &seconds) == 3 && step >= out.step)
            out = (mst_reached){.step = step, .rows = rows, .train_seconds = seconds};
    }
    struct stat about;
    if (fd >= 0 && fstat(fd, &about) == 0)
        out.seconds_ago =
            fmax(0, mst_wall_s() - (double)about.st_mtim.tv_sec - 1e-9 * (double)about.st_mtim.tv_nsec);
    if (fd >= 0)
        close(fd);
    mst_free(path);
    return out;
}

/* Returns whether the process that has the run open writes a temporary file of that name. */
static bool run_is_temporary(const char *name)
{
    return mst_path_is_temporary(name) &&
           (strncmp(name, "manifest.json.", 14) == 0 || strncmp(name, "metrics.csv.", 12) == 0);
}

bool mst_run_is_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    bool empty = dir != NULL;
    for (struct dirent *e; empty && (e = readdir(dir)) != NULL;)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                strcmp(e->d_name, ".lock") == 0 || run_is_temporary(e->d_name);
    if (dir != NULL)
        closedir(dir);
    return empty;
}

void mst_run_remove_temporary(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        if (run_is_temporary(e->d_name))
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir != NULL)
        closedir(dir);
}

bool mst_run_has_result(const char *folder)
{
    json_t *manifest = mst_run_read_manifest(folder);
    bool ended = run_entry_is(manifest, "state", "done", "stopped");
    json_decref(manifest);
    return ended || run_saved_state(folder) != SAVED_NOTHING;
}

/* "resume the run with: ..."; condition: "" or the words after "the run". */
static void run_resume_text(const char *run, const char *condition, char *out, size_t size)
{
    char command[MST_ERROR_MAX / 2 - 80];
    if (getenv(MST_RUN_LAUNCH_ENV) != NULL) {
        mst_run_resume_command(run, command, sizeof command);
        snprintf(out, size, "resume the run%s with: %s", condition, command);
    } else {
        mst_run_flag(run, command, sizeof command);
        snprintf(out, size, "resume the run%s by starting all processes again with %s --resume", condition,
                 command);
    }
}

void mst_run_resume_hint(const char *run, char *out, size_t size)
{
    char here[256] = "";
    json_t *manifest = mst_run_read_manifest(run);
    gethostname(here, sizeof here - 1);
    bool known =
        run_entry_is(manifest, "host", here, here) && run_entry_is(manifest, "state", "running", "failed");
    json_decref(manifest);
    saved found = known ? run_saved_state(run) : SAVED_UNKNOWN;
    if (found == SAVED_NOTHING)
        snprintf(out, size, "no checkpoint was saved; start again with --checkpoint-every");
    else
        run_resume_text(run, found == SAVED_UNKNOWN ? " if it has saved a checkpoint" : "", out, size);
}

void mst_run_saved_hint(const char *run, char *out, size_t size)
{
    char *checkpoint = NULL, hint[MST_ERROR_MAX / 2];
    if (mst_checkpoint_find(run, &checkpoint) == MST_OK) {
        run_resume_text(run, "", hint, sizeof hint);
        snprintf(out, size, "nothing newer than %s was saved; %s", checkpoint, hint);
    } else if (mst_path_exists(run)) {
        snprintf(out, size, "no checkpoint was saved");
    } else {
        mst_run_resume_hint(run, out, size);
    }
    mst_free(checkpoint);
}

/* The step that a killed process has reached: that of its last line of metrics.csv, or of a later checkpoint.
 */
static void run_set_reached(const char *run, json_t *manifest)
{
    mst_reached at = mst_run_reached(run);
    mst_checkpoint_meta meta = {0};
    char *path = NULL;
    json_t *progress = json_object_get(manifest, "progress");
    if (mst_checkpoint_find(run, &path) == MST_OK && mst_checkpoint_read_meta(path, &meta) == MST_OK &&
        meta.step > at.step)
        at = (mst_reached){.step = meta.step, .rows = meta.rows, .train_seconds = meta.train_seconds};
    mst_checkpoint_meta_fini(&meta);
    mst_free(path);
    if (json_integer_value(json_object_get(progress, "step")) >= (json_int_t)at.step)
        return;
    json_object_set_new(progress, "step", json_integer((json_int_t)at.step));
    json_object_set_new(progress, "rows", json_integer((json_int_t)at.rows));
    json_object_set_new(progress, "train_seconds", json_real(at.train_seconds));
}

void mst_run_end_killed(const char *run, const char *state, const char *key, const char *why)
{
    char here[256] = "";
    json_t *manifest = mst_run_read_manifest(run);
    char *path = mst_sprintf("%s/manifest.json", run), *lock = mst_sprintf("%s/.lock", run);
    int fd = lock != NULL ? open(lock, O_RDWR | O_CLOEXEC) : -1;
    bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    gethostname(here, sizeof here - 1);
    if (path != NULL && run_entry_is(manifest, "host", here, here) &&
        run_entry_is(manifest, "state", "running", "running") && !held) {
        run_set_reached(run, manifest);
        json_object_del(manifest, MST_JSON_CHECKSUM);
        json_object_set_new(manifest, "state", json_string(state));
        json_object_set_new(manifest, key, mst_json_text(why));
        if (mst_json_save_checked(manifest, path) != MST_OK)
            mst_warn("the manifest of the run is not up to date: %s", mst_error_text());
        if (fd >= 0)
            unlink(lock); /* the process that held it was killed */
    }
    if (fd >= 0)
        close(fd);
    json_decref(manifest);
    mst_free(lock);
    mst_free(path);
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

void mst_run_continue_advice(const char *run, bool by_hand, char *out, size_t size)
{
    char command[MST_ERROR_MAX / 2 - 80];
    if (by_hand) {
        snprintf(out, size, "start all processes of the job again, each with %s --resume",
                 mst_run_flag(run, command, sizeof command));
    } else {
        mst_run_resume_command(run, command, sizeof command);
        snprintf(out, size, "continue with: %s", command);
    }
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

mst_status mst_run_remove_aside(const char *folder)
{
    mst_status st = MST_OK;
    DIR *d = opendir(folder);
    for (const struct dirent *e; st == MST_OK && d != NULL && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, ".lock") == 0)
            continue;
        char *path = mst_sprintf("%s/%s", folder, e->d_name);
        st = path != NULL ? mst_remove_tree(path) : mst_fail_memory();
        mst_free(path);
    }
    if (d != NULL)
        closedir(d);
    return st == MST_OK ? mst_remove_tree(folder) : st;
}

void mst_run_remove_left(const char *folder)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    char *run = mst_sprintf("%.*s", (int)n, folder), *slash = run != NULL ? strrchr(run, '/') : NULL;
    char *parent = run == NULL     ? NULL
                   : slash == NULL ? mst_strdup(".")
                                   : mst_sprintf("%.*s", (int)(slash - run) + (slash == run), run);
    const char *name = slash != NULL ? slash + 1 : run;
    DIR *d = parent != NULL ? opendir(parent) : NULL;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char *end;
        size_t prefix = strlen(name);
        if (strncmp(e->d_name, name, prefix) != 0 || strncmp(e->d_name + prefix, ".old-", 5) != 0 ||
            !isdigit((unsigned char)e->d_name[prefix + 5]))
            continue;
        long process = strtol(e->d_name + prefix + 5, &end, 10);
        char *left = *end == '\0' ? mst_sprintf("%s/%s", parent, e->d_name) : NULL;
        if (left != NULL && mst_run_is_left(left, process) && mst_run_remove_aside(left) != MST_OK)
            mst_warn("%s, which a killed process has left, could not be removed: %s", left, mst_error_text());
        mst_free(left);
    }
    if (d != NULL)
        closedir(d);
    mst_free(parent);
    mst_free(run);
}
