/* Contract in run_dir.h.
 *
 * Design: manifest.json is created together with the directory, so a run that is killed at once is still
 * recognised; it is replaced as a whole. metrics.csv is opened for appending and gets one write per line, so
 * readers see whole lines even of a killed run.
 *
 * Invariants
 * 1. Only an empty folder, or one whose manifest.json has format "muster-run", is ever removed; and what a
 * killed process has left of such a folder in RUN.old-PID, which is known by its .lock.
 * 2. A new run is created by one mkdir: of two processes with the same name, one is refused.
 * 3. The process with the run open holds the flock of RUN/.lock, which the kernel releases when a process
 * dies. The holder removes the file before it unlocks: a process that gets a lock checks that it exists. */
#include "run/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/strings.h"
#include "run/checkpoint_impl.h"

#define RUN_FORMAT  "muster-run"
#define RUN_VERSION 1
#define OLD_COLUMNS "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc"
#define NEW_COLUMNS ",progressive_loss,grouped_auc,calibration,normalised_entropy"
#define HEADER      OLD_COLUMNS ",top5,train_accuracy" NEW_COLUMNS "\n"
#define N_COLUMNS   17
#define METRICS_MAX ((size_t)4 << 30)

struct mst_run {
    char *path;
    char *manifest; /* path of manifest.json */
    char *metrics;  /* path of metrics.csv */
    json_t *last;   /* the manifest that was written last */
    int fd;         /* metrics.csv, appending */
    int lock;       /* .lock; -1: not held */
    dev_t device;   /* identifies the folder, with its number */
    ino_t number;
    uint64_t step;           /* of the last line of metrics.csv */
    bool dropped;            /* a line of metrics.csv could not be written */
    bool foreign;            /* another run has replaced the folder */
    bool deleted, unwritten; /* metrics.csv lacks lines up to lost_step; all lines */
    uint64_t lost_step;
    bool replaces; /* overwritten runs of killed processes are to be removed */
    char *aside;   /* path of the overwritten run; NULL: none */
    int aside_lock;
};

/* ---- the lock ---- */

static char *run_lock_path(const char *folder)
{
    return mst_sprintf("%s/.lock", folder);
}

/* Returns whether the open file is still the one at path. */
static bool run_is_same_file(int fd, const char *path)
{
    struct stat mine, now;
    return fstat(fd, &mine) == 0 && stat(path, &now) == 0 && mine.st_dev == now.st_dev &&
           mine.st_ino == now.st_ino;
}

/* Returns the holder of the lock of that file. */
static const char *run_lock_holder(int fd, char *out, size_t size)
{
    char text[320] = {0}, host[256] = "";
    long process = 0;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0 || sscanf(text, "%ld %255s", &process, host) != 2)
        snprintf(out, size, "another process");
    else
        snprintf(out, size, "process %ld on %s", process, host);
    return out;
}

static mst_status run_refuse_locked(const char *folder, int fd)
{
    char by[320];
    return mst_fail(MST_EEXIST, "%s is being trained by %s", folder, run_lock_holder(fd, by, sizeof by));
}

bool mst_run_held(const char *folder, char *by, size_t size)
{
    char *path = run_lock_path(folder);
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (held)
        run_lock_holder(fd, by, size);
    if (fd >= 0)
        close(fd);
    mst_free(path);
    return held;
}

/* The text of a lock file of a process on this host. */
static int run_holder_text(long process, char *out, size_t size)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return snprintf(out, size, "%ld %s\n", process, host[0] ? host : "?");
}

static mst_status run_write_holder(int fd, const char *path)
{
    char text[320];
    int n = run_holder_text((long)getpid(), text, sizeof text);
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) == n)
        return MST_OK;
    return mst_fail(MST_EIO, "%s: cannot be written: %s", path, strerror(errno));
}

/* *out is -1 on MST_OK if the file system does not support locks. */
static mst_status run_lock_folder(const char *folder, int *out)
{
    mst_status st = MST_OK;
    int fd = -1;
    char *path = run_lock_path(folder);
    if (path == NULL)
        return mst_fail_memory();
    for (;;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno)));
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK)
                TRY_OUT(st, run_refuse_locked(folder, fd));
            mst_warn("%s: cannot be locked, so two processes could train into the run at once: %s", path,
                     strerror(errno));
            goto out;
        }
        if (run_is_same_file(fd, path))
            break;
        close(fd);
    }
    st = run_write_holder(fd, path);
    if (st != MST_OK) {
        unlink(path);
        goto out;
    }
    *out = fd;
    fd = -1;
out:
    if (fd >= 0)
        close(fd);
    mst_free(path);
    return st;
}

/* Removes the lock file and releases the lock. */
static void run_unlock_folder(const char *folder, int *fd)
{
    char *path = *fd >= 0 ? run_lock_path(folder) : NULL;
    if (path != NULL && run_is_same_file(*fd, path))
        unlink(path);
    mst_free(path);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- folders ---- */

json_t *mst_run_last_manifest(const mst_run *self)
{
    json_t *root = mst_run_read_manifest(self->path);
    const char *format = json_string_value(json_object_get(root, "format"));
    if (format != NULL && strcmp(format, RUN_FORMAT) == 0)
        return root;
    json_decref(root);
    return NULL;
}

static bool run_has_manifest(const mst_run *self)
{
    json_t *manifest = mst_run_last_manifest(self);
    json_decref(manifest);
    return manifest != NULL;
}

/* Renames an existing run and holds its lock. */
static mst_status run_put_aside(mst_run *self)
{
    char stray[256];
    struct stat info;
    if (lstat(self->path, &info) != 0)
        return errno == ENOENT ? MST_OK : mst_fail(MST_EIO, "%s: %s", self->path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return mst_fail(MST_EEXIST, "%s: not removed, because it is not a folder; choose another name",
                        self->path);
    if (!mst_run_is_empty(self->path) && !run_has_manifest(self))
        return mst_fail(
            MST_EEXIST,
            "%s: not removed, because it has no manifest.json of a muster run; choose another name",
            self->path);
    if (mst_run_find_stray(self->path, stray, sizeof stray))
        return mst_fail(
            MST_EEXIST,
            "%s/%s does not belong to the run, and --overwrite would remove it; move it, or choose "
            "another name",
            self->path, stray);
    size_t n = strlen(self->path);
    while (n > 1 && self->path[n - 1] == '/')
        n--;
    char *aside = mst_sprintf("%.*s.old-%ld", (int)n, self->path, (long)getpid());
    if (aside == NULL)
        return mst_fail_memory();
    mst_status st = run_lock_folder(self->path, &self->aside_lock);
    if (st == MST_OK && rename(self->path, aside) != 0)
        st = mst_fail(MST_EIO, "%s: cannot be renamed to %s: %s", self->path, aside, strerror(errno));
    if (st == MST_OK) {
        self->aside = aside;
        return MST_OK;
    }
    run_unlock_folder(self->path, &self->aside_lock);
    mst_free(aside);
    return st;
}

bool mst_run_replaces(const mst_run *self)
{
    return self->aside != NULL;
}

bool mst_run_replaces_result(const mst_run *self)
{
    return self->aside != NULL && mst_run_has_result(self->aside);
}

bool mst_run_is_left(const char *folder, long process)
{
    char text[320] = "", holder[320];
    char *path = run_lock_path(folder);
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool left = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && pread(fd, text, sizeof text - 1, 0) > 0;
    run_holder_text(process, holder, sizeof holder);
    if (fd >= 0)
        close(fd);
    mst_free(path);
    return left && strcmp(text, holder) == 0;
}

void mst_run_settle(mst_run *self)
{
    if (self->replaces)
        mst_run_remove_left(self->path);
    self->replaces = false;
    if (self->aside == NULL)
        return;
    if (mst_run_remove_aside(self->aside) != MST_OK)
        mst_warn("the run that %s replaces could not be removed: %s", self->path, mst_error_text());
    run_unlock_folder(self->aside, &self->aside_lock);
    mst_free(self->aside);
    self->aside = NULL;
}

/* Restores the overwritten run once its path is free. */
static void run_put_back(mst_run *self)
{
    if (self->aside == NULL)
        return;
    bool back = rename(self->aside, self->path) == 0;
    if (!back)
        mst_warn("%s: the overwritten run could not be restored and is in %s: %s", self->path, self->aside,
                 strerror(errno));
    run_unlock_folder(back ? self->path : self->aside, &self->aside_lock);
    mst_free(self->aside);
    self->aside = NULL;
}

void mst_run_abandon(mst_run *self)
{
    if (!self->foreign && *self->path != '\0')
        mst_remove_tree(self->path);
    run_unlock_folder(self->path, &self->lock);
    run_put_back(self);
}

mst_status mst_run_refuse_existing(const char *run)
{
    return mst_fail(MST_EEXIST,
                    "%s already exists; choose another name, continue it with --resume, or replace it with "
                    "--overwrite",
                    run);
}

/* Creates the folder; an existing one must be empty. *made: it did not exist. */
static mst_status run_make_folder(const mst_run *self, bool *made)
{
    char *parent = mst_strdup(self->path);
    if (parent == NULL)
        return mst_fail_memory();
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = 0;
    char *slash = strrchr(parent, '/');
    mst_status st = MST_OK;
    if (slash != NULL && slash != parent) {
        *slash = 0;
        st = mst_make_folders(parent);
    }
    mst_free(parent);
    TRY(st);
    bool empty =
        mst_run_is_empty(self->path); /* before mkdir: not a folder that another process creates now */
    *made = mkdir(self->path, 0777) == 0;
    if (*made || (errno == EEXIST && empty))
        return mst_sync_parent(self->path);
    if (errno == EEXIST && !mst_path_is_folder(self->path))
        return mst_fail(MST_EEXIST, "%s already exists and is not a folder; choose another name", self->path);
    if (errno == EEXIST)
        return mst_run_refuse_existing(self->path);
    return mst_fail(MST_EIO, "%s: the folder cannot be created: %s", self->path, strerror(errno));
}

static mst_status run_save_manifest(const mst_run *self)
{
    json_t *whole = json_pack("{s:s, s:i}", "format", RUN_FORMAT, "version", RUN_VERSION);
    mst_status st = MST_OK;
    if (whole == NULL || json_object_update_missing(whole, self->last) != 0)
        st = mst_fail_memory();
    else
        st = mst_json_save_checked(whole, self->manifest);
    json_decref(whole);
    return st;
}

mst_status mst_run_manifest(mst_run *self, const json_t *manifest)
{
    json_t *before = self->last;
    self->last = json_incref((json_t *)manifest);
    json_decref(before);
    TRY(mst_run_keep(self, NULL));
    return *self->path != '\0' ? run_save_manifest(self) : MST_OK;
}

static mst_status run_write_first_manifest(mst_run *self)
{
    char now[21];
    mst_wall_time(now);
    json_t *manifest = json_pack("{s:s}", "created", now);
    mst_status st = manifest == NULL ? mst_fail_memory() : mst_run_manifest(self, manifest);
    json_decref(manifest);
    return st;
}

/* ---- metrics.csv ---- */

/* Appends the text whole or not at all. */
static mst_status run_append_metrics(const mst_run *self, const char *text, size_t n)
{
    struct stat before;
    if (fstat(self->fd, &before) != 0)
        return mst_fail(MST_EIO, "%s: cannot be written: %s", self->metrics, strerror(errno));
    while (n > 0) {
        ssize_t done = write(self->fd, text, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            mst_status st = mst_fail(MST_EIO, "%s: cannot be written: %s", self->metrics,
                                     strerror(done < 0 ? errno : EIO));
            (void)!ftruncate(self->fd, before.st_size); /* a part of a line would spoil the next one */
            return st;
        }
        text += done;
        n -= (size_t)done;
    }
    return MST_OK;
}

/* Parses a whole line: the right number of columns, starting with a step. */
static bool run_parse_metrics(const char *line, const char *end, unsigned n_columns, uint64_t *step)
{
    unsigned columns = 1;
    const char *p = line;
    *step = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        *step = *step * 10 + (uint64_t)(*p - '0');
    if (p == line || p == end || *p != ',')
        return false;
    for (; p < end; p++) {
        columns += *p == ',';
        if (*p == 0)
            return false;
    }
    return columns == n_columns;
}

/* Copies the lines before keep_before; those of an old run get empty last columns. An incomplete line, as
 * after a crash of the machine, ends the file. */
static mst_status run_copy_metrics(const mst_run *self, const char *text, size_t size, uint64_t keep_before,
                                   mst_out *out)
{
    static const struct {
        const char *text;
        size_t missing;
    } headers[] = {{HEADER, 0},
                   {OLD_COLUMNS ",top5,train_accuracy\n", 4},
                   {OLD_COLUMNS ",top5\n", 5},
                   {OLD_COLUMNS "\n", 6}};
    static const char commas[] = ",,,,,,";
    size_t h = 0, n_headers = sizeof headers / sizeof *headers;
    if (size == 0)
        return MST_OK;
    while (h < n_headers && strncmp(text, headers[h].text, strlen(headers[h].text)) != 0)
        h++;
    if (h == n_headers)
        return mst_fail(MST_EINPUT, "%s:1: not the metrics of a muster run: the first line is not \"%.*s\"",
                        self->metrics, (int)sizeof HEADER - 2, HEADER);
    TRY(mst_out_write(out, HEADER, sizeof HEADER - 1));
    size_t number = 2;
    for (const char *line = text + strlen(headers[h].text), *end; line < text + size;
         line = end + 1, number++) {
        uint64_t step;
        end = memchr(line, '\n', (size_t)(text + size - line));
        if (end == NULL || !run_parse_metrics(line, end, (unsigned)(N_COLUMNS - headers[h].missing), &step)) {
            mst_warn("%s:%zu: an incomplete line and all lines after it are dropped", self->metrics, number);
            break;
        }
        if (step >= keep_before)
            continue;
        TRY(mst_out_write(out, line, (size_t)(end - line)));
        TRY(mst_out_write(out, commas, headers[h].missing));
        TRY(mst_out_write(out, "\n", 1));
    }
    return MST_OK;
}

static mst_status run_truncate_metrics(const mst_run *self, uint64_t keep_before)
{
    mst_status st;
    mst_out *out = NULL;
    char *text = NULL;
    size_t size = 0;
    if (!mst_path_exists(self->metrics))
        return MST_OK;
    TRY(mst_file_read_all(self->metrics, METRICS_MAX, &text, &size));
    TRY_OUT(st, mst_out_open(self->metrics, &out));
    TRY_OUT(st, run_copy_metrics(self, text, size, keep_before, out));
    TRY_OUT(st, mst_out_commit(out));
out:
    mst_out_close(out);
    mst_free(text);
    return st;
}

static mst_status run_open_metrics(mst_run *self)
{
    struct stat info;
    self->fd = open(self->metrics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (self->fd < 0 || fstat(self->fd, &info) != 0)
        return mst_fail(MST_EIO, "%s: cannot be opened: %s", self->metrics, strerror(errno));
    if (info.st_size > 0)
        return MST_OK;
    TRY(run_append_metrics(self, HEADER, sizeof HEADER - 1));
    return fsync(self->fd) == 0 || errno == EINVAL
               ? MST_OK
               : mst_fail(MST_EIO, "%s: cannot be synced: %s", self->metrics, strerror(errno));
}

/* ---- a folder that is deleted ---- */

static void run_remember_folder(mst_run *self)
{
    struct stat info;
    if (stat(self->path, &info) == 0) {
        self->device = info.st_dev;
        self->number = info.st_ino;
    }
}

/* Creates the folder again, unless a checkpoint has done so, and locks it. */
static mst_status run_retake_folder(mst_run *self)
{
    if (self->lock >= 0)
        close(self->lock);
    self->lock = -1;
    mst_status st = mst_make_folders(self->path);
    if (st == MST_OK && run_has_manifest(self))
        st = MST_EEXIST;
    if (st == MST_OK)
        st = run_lock_folder(self->path, &self->lock);
    self->foreign = st == MST_EEXIST;
    if (st == MST_OK)
        run_remember_folder(self);
    return st == MST_OK || st == MST_EEXIST ? st : MST_EIO;
}

mst_status mst_run_keep(mst_run *self, bool *lost)
{
    struct stat folder, file;
    if (self->number == 0) /* it is being created */
        return MST_OK;
    bool same = !self->foreign && stat(self->path, &folder) == 0 && folder.st_dev == self->device &&
                folder.st_ino == self->number;
    if (same && self->fd >= 0 && fstat(self->fd, &file) == 0 && file.st_nlink > 0)
        return MST_OK;
    mst_status st = self->foreign ? MST_EEXIST : same ? MST_OK : run_retake_folder(self);
    if (st == MST_EEXIST)
        return mst_fail(MST_EEXIST,
                        "%s: was deleted during training and replaced by another run; train "
                        "into another folder",
                        self->path);
    if (self->fd >= 0)
        close(self->fd);
    self->fd = -1;
    if (st == MST_OK && self->last != NULL) /* first, so that a successor recognises its run */
        st = run_save_manifest(self);
    if (st == MST_OK)
        st = run_open_metrics(self);
    if (!self->deleted)
        mst_warn("%s: %s was deleted during training; its contents are lost, and training continues",
                 self->path, same ? "metrics.csv" : "the folder");
    self->deleted = true;
    self->lost_step = self->step;
    if (lost != NULL)
        *lost = true;
    return st;
}

bool mst_run_is_lost(const mst_run *self)
{
    return self->foreign;
}

const char *mst_run_missing(const mst_run *self, char *out, size_t size)
{
    char step[32];
    if (self->unwritten)
        snprintf(out, size, "metrics.csv");
    else if (self->deleted)
        snprintf(out, size, "metrics.csv up to step %s", mst_figure_grouped(self->lost_step, step));
    else
        *out = '\0';
    return out;
}

/* ---- lines ---- */

/* Adds a column with the digits of a float, empty for NAN. */
static void metrics_add_real(mst_string *line, double value)
{
    mst_string_add(line, ",");
    if (!isnan(value))
        mst_string_format(line, "%.9g", value);
}

mst_status mst_run_metrics(mst_run *self, const mst_metrics *metrics)
{
    mst_string line = {0};
    if (*self->path == '\0')
        return MST_OK;
    mst_status st = mst_run_keep(self, NULL);
    if (st == MST_EIO && !self->unwritten)
        mst_warn("%s: cannot be created again: %s; metrics.csv ends here", self->path, mst_error_text());
    self->unwritten |= st == MST_EIO;
    if (st != MST_OK)
        return st == MST_EIO ? MST_OK : st;
    self->step = metrics->step;
    mst_string_format(&line, "%llu,%llu,%llu,%.6f,%.6f", (unsigned long long)metrics->step,
                      (unsigned long long)metrics->rows, (unsigned long long)metrics->epoch,
                      metrics->train_seconds, metrics->eval_seconds);
    metrics_add_real(&line, metrics->lr);
    metrics_add_real(&line, metrics->train_loss);
    mst_string_format(&line, ",%s", metrics->set);
    const double figures[] = {metrics->loss,        metrics->accuracy,       metrics->auc,
                              metrics->top5,        metrics->train_accuracy, metrics->progressive_loss,
                              metrics->grouped_auc, metrics->calibration,    metrics->normalised_entropy};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        metrics_add_real(&line, figures[i]);
    mst_string_add(&line, "\n");
    st = line.failed ? mst_fail_memory() : run_append_metrics(self, line.text, line.size);
    mst_string_fini(&line);
    if (st != MST_EIO)
        return st;
    if (!self->dropped)
        mst_warn("a line of metrics is lost: %s; training continues", mst_error_text());
    self->dropped = true;
    return MST_OK;
}

/* ---- the run ---- */

/* Another process may have continued the run between loading its checkpoint and locking. */
static mst_status run_check_newest(const mst_run *self, uint64_t resume_step)
{
    uint64_t step = 0;
    char grouped[32];
    char *newest = NULL, *folder = mst_sprintf("%s/checkpoints", self->path);
    mst_status st =
        folder != NULL ? mst_checkpoint_newest(folder, UINT64_MAX, &newest, &step) : mst_fail_memory();
    if (newest != NULL && step > resume_step)
        st = mst_fail(MST_EEXIST, "%s: another process has continued the run to step %s; start again",
                      self->path, mst_figure_grouped(step, grouped));
    mst_free(newest);
    mst_free(folder);
    return st;
}

static mst_status run_open_existing(mst_run *self, uint64_t resume_step, uint64_t keep_before)
{
    if (!mst_path_is_folder(self->path))
        return mst_fail(MST_EINPUT, "%s: no run to resume; leave out --resume to start one", self->path);
    if (!run_has_manifest(self))
        return mst_fail(MST_EINPUT, "%s: no run to resume: the folder has no manifest.json of a muster run",
                        self->path);
    TRY(run_lock_folder(self->path, &self->lock));
    mst_run_remove_temporary(self->path);
    TRY(run_check_newest(self, resume_step));
    return run_truncate_metrics(self, keep_before);
}

static mst_status run_make_new(mst_run *self)
{
    bool made = false;
    TRY(run_make_folder(self, &made));
    mst_status st = run_lock_folder(self->path, &self->lock); /* another process may use it by now */
    if (st != MST_OK && made)
        (void)rmdir(self->path);
    TRY(st);
    if (!mst_run_is_empty(self->path))
        return mst_run_refuse_existing(self->path);
    mst_run_remove_temporary(self->path);
    st = run_write_first_manifest(self);
    if (st == MST_OK)
        st = run_open_metrics(self);
    if (st == MST_OK)
        return MST_OK;
    mst_error error;
    mst_error_save(&error, st);
    mst_remove_tree(self->path);
    return mst_error_restore(&error);
}

mst_status mst_run_new(const char *path, mst_run_open how, uint64_t resume_step, uint64_t keep_before,
                       mst_run **out)
{
    mst_status st;
    mst_run *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->fd = self->lock = self->aside_lock = -1;
    self->path = mst_strdup(path);
    self->manifest = mst_sprintf("%s/manifest.json", path);
    self->metrics = mst_sprintf("%s/metrics.csv", path);
    if (self->path == NULL || self->manifest == NULL || self->metrics == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (how == MST_RUN_OVERWRITE)
        TRY_OUT(st, run_put_aside(self));
    if (how == MST_RUN_MEMORY) {
        *out = self;
        return MST_OK;
    }
    if (how == MST_RUN_RESUME) {
        TRY_OUT(st, run_open_existing(self, resume_step, keep_before));
        TRY_OUT(st, run_open_metrics(self));
    } else {
        TRY_OUT(st, run_make_new(self));
    }
    run_remember_folder(self);
    self->replaces = how != MST_RUN_NEW;
    self->step = resume_step;
    *out = self;
    return MST_OK;
out:
    run_put_back(self);
    mst_run_destroy(self);
    return st;
}

void mst_run_destroy(mst_run *self)
{
    if (self == NULL)
        return;
    mst_run_settle(self);
    run_unlock_folder(self->path, &self->lock);
    if (self->fd >= 0)
        close(self->fd);
    json_decref(self->last);
    mst_free(self->metrics);
    mst_free(self->manifest);
    mst_free(self->path);
    mst_free(self);
}

const char *mst_run_path(const mst_run *self)
{
    return self->path;
}
