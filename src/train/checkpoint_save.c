/* Saving checkpoints (checkpoint.h).
 *
 * Design: begin writes the part file (into the page cache) and composes the manifest; the background thread
 * reads the part back for its checksum, syncs it, commits the manifest, and prunes. The checksum is left to
 * the thread because the pause of training counts more than a second pass over cached pages.
 *
 * Invariants
 * 1. A folder is a checkpoint from the moment its manifest.json is there, and everything the manifest names
 * is durable by then.
 * 2. A save that fails leaves what was there before it: a new folder is removed; in a folder that was
 * complete already (the same step saved again) only the new part is removed, whose name no manifest mentions.
 * 3. Older checkpoints are removed only after the new one is complete; never the new one.
 * 4. `job` belongs to the background thread while state is BUSY and to the caller otherwise; state, quit and
 * outcome are guarded by lock. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "muster/muster.h"
#include "train/checkpoint_impl.h"
#include "train/safetensors.h"

typedef struct save_job {
    uint64_t step;
    bool fresh; /* the folder holds no complete checkpoint yet */
    char *path; /* the step's folder */
    char *part; /* the part file, and its name in the folder */
    const char *part_name;
    mst_safetensors_writer *writer;
    json_t *manifest; /* complete but for the part's size and checksum */
} save_job;

typedef enum save_state { SAVE_IDLE, SAVE_BUSY } save_state;

struct mst_checkpointer {
    char *folder;
    uint32_t keep;
    const char *const *slot_names;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    save_state state;
    bool quit;
    mst_error outcome; /* of the last save; MST_OK once it has been reported */
    char *finished;    /* folder of the last complete save, or NULL */
    save_job job;
};

/* ---- folders ---- */

bool mst_checkpoint_tensor_name(char *out, const char *slot, const char *view)
{
    int n = slot == NULL ? snprintf(out, CHECKPOINT_NAME_MAX, "%s", view)
                         : snprintf(out, CHECKPOINT_NAME_MAX, "optimizer.%s.%s", slot, view);
    return n >= 0 && n < CHECKPOINT_NAME_MAX;
}

static int by_step(const void *a, const void *b)
{
    const mst_checkpoint_entry *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

mst_status mst_checkpoint_list(const char *folder, mst_checkpoint_entry **out, size_t *n)
{
    mst_status st = MST_OK;
    mst_checkpoint_entry *entries = NULL;
    size_t count = 0, capacity = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL && errno != ENOENT)
        return mst_fail(MST_EIO, "%s: the folder cannot be read: %s", folder, strerror(errno));
    struct dirent *found;
    while (dir != NULL && (found = readdir(dir)) != NULL) {
        unsigned long long step;
        char name[64], path[4096];
        if (sscanf(found->d_name, "step-%20llu", &step) != 1)
            continue;
        snprintf(name, sizeof name, CHECKPOINT_STEP_NAME, step);
        int length = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (strcmp(name, found->d_name) != 0 || length >= (int)sizeof path || !mst_path_is_folder(path))
            continue;
        if (!mst_grow(&entries, &capacity, count + 1, sizeof *entries))
            TRY_OUT(st, mst_fail(MST_ENOMEM, "%s: no memory for the list of checkpoints", folder));
        length = snprintf(path, sizeof path, "%s/%s/manifest.json", folder, name);
        entries[count++] = (mst_checkpoint_entry){step, length < (int)sizeof path && mst_path_exists(path)};
    }
    if (count > 0)
        qsort(entries, count, sizeof *entries, by_step);
    *out = entries;
    *n = count;
    entries = NULL;
out:
    if (dir != NULL)
        closedir(dir);
    mst_free(entries);
    return st;
}

static mst_status remove_step(const char *folder, uint64_t step)
{
    char *path = mst_sprintf("%s/" CHECKPOINT_STEP_NAME, folder, (unsigned long long)step);
    if (path == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory for a path", folder);
    /* Without its manifest first, so that being killed here leaves nothing that looks complete. */
    char *manifest = mst_sprintf("%s/manifest.json", path);
    if (manifest != NULL)
        unlink(manifest);
    mst_free(manifest);
    mst_status st = mst_remove_tree(path);
    mst_free(path);
    return st;
}

/* Removes what killed processes left: step folders without a manifest. */
static mst_status sweep(const mst_checkpointer *self)
{
    mst_checkpoint_entry *entries = NULL;
    size_t n = 0;
    mst_status st = mst_checkpoint_list(self->folder, &entries, &n);
    for (size_t i = 0; i < n && st == MST_OK; i++)
        if (!entries[i].complete)
            st = remove_step(self->folder, entries[i].step);
    mst_free(entries);
    return st;
}

static mst_status prune(const mst_checkpointer *self, uint64_t new_step)
{
    mst_checkpoint_entry *entries = NULL;
    size_t n = 0, complete = 0;
    if (self->keep == 0)
        return MST_OK;
    mst_status st = mst_checkpoint_list(self->folder, &entries, &n);
    for (size_t i = 0; i < n; i++)
        complete += entries[i].complete;
    for (size_t i = 0; i < n && complete > self->keep && st == MST_OK; i++)
        if (entries[i].complete && entries[i].step != new_step) {
            st = remove_step(self->folder, entries[i].step);
            complete--;
        }
    mst_free(entries);
    return st;
}

/* Removes the parts of an earlier save of the same step, which the manifest no longer names. */
static void remove_other_parts(const save_job *job)
{
    DIR *dir = opendir(job->path);
    struct dirent *found;
    while (dir != NULL && (found = readdir(dir)) != NULL)
        if (strncmp(found->d_name, "part-", 5) == 0 && strcmp(found->d_name, job->part_name) != 0)
            unlinkat(dirfd(dir), found->d_name, 0);
    if (dir != NULL)
        closedir(dir);
}

static mst_status sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync a folder (EINVAL); their renames are as durable as they get. */
    bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    mst_status st =
        good ? MST_OK : mst_fail(MST_EIO, "%s: the folder cannot be synced: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return st;
}

/* ---- the job ---- */

static void job_fini(save_job *job)
{
    mst_safetensors_writer_close(job->writer);
    json_decref(job->manifest);
    mst_free(job->part);
    mst_free(job->path);
    memset(job, 0, sizeof *job);
}

/* Whether the folder's manifest names the new part: a commit may fail after its rename, in syncing the
 * folder. */
static bool job_took_place(const save_job *job)
{
    char *text = NULL, *path = mst_sprintf("%s/manifest.json", job->path);
    size_t size;
    bool named = path != NULL && mst_file_read_all(path, CHECKPOINT_MANIFEST_MAX, &text, &size) == MST_OK &&
                 strstr(text, job->part_name) != NULL;
    mst_free(text);
    mst_free(path);
    return named;
}

/* Undoes a failed save (invariant 2), keeping the calling thread's sentence. */
static mst_status job_fail(save_job *job, mst_status code)
{
    mst_error error;
    mst_error_save(&error, code);
    if (job->writer != NULL && (job->fresh || !job_took_place(job)))
        unlink(job->part);
    mst_safetensors_writer_close(job->writer);
    job->writer = NULL;
    if (job->fresh && job->path != NULL)
        mst_remove_tree(job->path);
    job_fini(job);
    return mst_error_restore(&error);
}

/* Makes the step's folder and chooses a name for the part. */
static mst_status job_open(const mst_checkpointer *self, save_job *job)
{
    job->path = mst_sprintf("%s/" CHECKPOINT_STEP_NAME, self->folder, (unsigned long long)job->step);
    char *manifest = job->path == NULL ? NULL : mst_sprintf("%s/manifest.json", job->path);
    if (manifest == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory for a path", self->folder);
    job->fresh = !mst_path_exists(manifest);
    mst_free(manifest);
    TRY(mst_make_folders(job->path));
    job->part = mst_sprintf("%s/part-00000.safetensors", job->path);
    for (unsigned again = 1; job->part != NULL && mst_path_exists(job->part); again++) {
        mst_free(job->part);
        job->part = mst_sprintf("%s/part-00000-%u.safetensors", job->path, again);
    }
    if (job->part == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory for a path", self->folder);
    job->part_name = job->part + strlen(job->path) + 1;
    return MST_OK;
}

static json_t *view_shape(const mst_view *view)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < view->n_dims; d++)
        if (json_array_append_new(shape, json_integer((json_int_t)view->dims[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return shape;
}

static json_t *finite_real(double value)
{
    return json_real(isfinite(value) ? value : 0);
}

static json_t *copy_or_empty(json_t *value)
{
    return value == NULL ? json_object() : json_deep_copy(value);
}

static mst_status job_manifest(const mst_checkpointer *self, save_job *job, const mst_params *params,
                               const mst_checkpoint_meta *meta, const mst_tensor *tensors, size_t n_tensors)
{
    json_t *views = json_array(), *slots = json_array(), *held = json_array();
    bool good = true;
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        good &=
            json_array_append_new(views, json_pack("{s:s, s:I, s:o}", "name", view->name, "size",
                                                   (json_int_t)view->size, "shape", view_shape(view))) == 0;
    }
    for (uint32_t s = 0; s < params->n_slots; s++)
        good &= json_array_append_new(slots, json_string(self->slot_names[s])) == 0;
    for (size_t i = 0; i < n_tensors; i++) {
        json_int_t count = 1;
        for (uint32_t d = 0; d < tensors[i].n_dims; d++)
            count *= (json_int_t)tensors[i].dims[d];
        good &= json_array_append_new(held, json_pack("{s:s, s:i, s:I}", "name", tensors[i].name, "first", 0,
                                                      "count", count)) == 0;
    }
    job->manifest =
        json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[{s:s, s:o}]}", //
                  "format", CHECKPOINT_FORMAT, "version", CHECKPOINT_VERSION, "muster", mst_version(), "step",
                  (json_int_t)meta->step, "rows", (json_int_t)meta->rows, "epoch", (json_int_t)meta->epoch,
                  "position", (json_int_t)meta->position, "train_seconds", finite_real(meta->train_seconds),
                  "eval_seconds", finite_real(meta->eval_seconds), "model", copy_or_empty(meta->model),
                  "optimizer", copy_or_empty(meta->optimizer), "extra", copy_or_empty(meta->extra), "views",
                  views, "slots", slots, "parts", "file", job->part_name, "tensors", held);
    if (!good || job->manifest == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory for the manifest", job->path);
    return MST_OK;
}

/* Copies weights and optimizer state into the part file, and composes the manifest. */
static mst_status job_copy(const mst_checkpointer *self, save_job *job, const mst_params *params,
                           const mst_checkpoint_meta *meta)
{
    mst_status st = MST_OK;
    size_t n = 0, n_max = (size_t)params->n_views * (1 + params->n_slots);
    mst_tensor *tensors = mst_calloc(n_max + 1, sizeof *tensors);
    const float **data = mst_calloc(n_max + 1, sizeof *data);
    char(*names)[CHECKPOINT_NAME_MAX] = mst_calloc(n_max + 1, CHECKPOINT_NAME_MAX);
    json_t *metadata = json_pack("{s:s+}", "producer", "muster ", mst_version());
    if (tensors == NULL || data == NULL || names == NULL || metadata == NULL)
        TRY_OUT(st, mst_fail(MST_ENOMEM, "%s: no memory for the list of tensors", job->path));
    for (uint32_t s = 0; s <= params->n_slots; s++)
        for (uint32_t v = 0; v < params->n_views; v++) {
            const mst_view *view = &params->views[v];
            if (s > 0 && view->kind != MST_VIEW_TRAINABLE)
                continue;
            if (!mst_checkpoint_tensor_name(names[n], s == 0 ? NULL : self->slot_names[s - 1], view->name))
                TRY_OUT(st,
                        mst_fail(MST_EUSAGE, "%s: the name of view %s is too long", job->path, view->name));
            tensors[n].name = names[n];
            tensors[n].n_dims = view->n_dims;
            memcpy(tensors[n].dims, view->dims, view->n_dims * sizeof *view->dims);
            data[n++] = (s == 0 ? params->w : params->slots[s - 1]) + view->offset;
        }
    TRY_OUT(st, mst_safetensors_create(job->part, tensors, n, metadata, &job->writer));
    for (size_t i = 0; i < n; i++)
        TRY_OUT(st, mst_safetensors_write(job->writer, i, data[i], true));
    TRY_OUT(st, job_manifest(self, job, params, meta, tensors, n));
out:
    json_decref(metadata);
    mst_free(names);
    mst_free(data);
    mst_free(tensors);
    return st;
}

static mst_status write_manifest(save_job *job, uint64_t bytes, uint32_t crc)
{
    mst_status st;
    mst_out *out = NULL;
    char *text = NULL, *path = mst_sprintf("%s/manifest.json", job->path);
    json_t *part = json_array_get(json_object_get(job->manifest, "parts"), 0);
    if (path == NULL || json_object_set_new(part, "bytes", json_integer((json_int_t)bytes)) != 0 ||
        json_object_set_new(part, "crc32c", json_integer((json_int_t)crc)) != 0 ||
        (text = json_dumps(job->manifest, JSON_INDENT(1))) == NULL)
        TRY_OUT(st, mst_fail(MST_ENOMEM, "%s: no memory for the manifest", job->path));
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, text, strlen(text)));
    TRY_OUT(st, mst_out_write(out, "\n", 1));
    TRY_OUT(st, mst_out_commit(out));
out:
    mst_out_close(out);
    free(text);
    mst_free(path);
    return st;
}

/* The second half of a save. */
static mst_status job_finish(const mst_checkpointer *self, save_job *job)
{
    uint64_t bytes;
    uint32_t crc;
    TRY(mst_safetensors_sync(job->writer, &bytes, &crc));
    TRY(sync_folder(self->folder));
    TRY(write_manifest(job, bytes, crc));
    /* The checkpoint is complete: what goes wrong from here on costs disk space only. */
    if (!job->fresh)
        remove_other_parts(job);
    if (prune(self, job->step) != MST_OK)
        mst_warn("%s: older checkpoints stay: %s", self->folder, mst_error_text());
    return MST_OK;
}

/* ---- the background thread ---- */

static void *run_thread(void *arg)
{
    mst_checkpointer *self = arg;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (self->state != SAVE_BUSY && !self->quit)
            pthread_cond_wait(&self->changed, &self->lock);
        if (self->state != SAVE_BUSY)
            break;
        pthread_mutex_unlock(&self->lock);

        mst_error outcome = {.code = MST_OK};
        char *finished = NULL;
        mst_status st = job_finish(self, &self->job);
        if (st == MST_OK) {
            finished = self->job.path;
            self->job.path = NULL;
            job_fini(&self->job);
        } else {
            mst_error_save(&outcome, job_fail(&self->job, st));
        }

        pthread_mutex_lock(&self->lock);
        if (finished != NULL) {
            mst_free(self->finished);
            self->finished = finished;
        }
        self->outcome = outcome;
        self->state = SAVE_IDLE;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

mst_status mst_checkpointer_new(const char *folder, uint32_t keep, const char *const *slot_names,
                                mst_checkpointer **out)
{
    mst_checkpointer *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory for a checkpointer", folder);
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->keep = keep;
    self->slot_names = slot_names;
    self->folder = mst_strdup(folder);
    if (self->folder == NULL) {
        mst_checkpointer_destroy(self);
        return mst_fail(MST_ENOMEM, "%s: no memory for a checkpointer", folder);
    }
    int error = pthread_create(&self->thread, NULL, run_thread, self);
    if (error != 0) {
        mst_checkpointer_destroy(self);
        return mst_fail(MST_EIO, "%s: no thread for saving checkpoints: %s", folder, strerror(error));
    }
    self->started = true;
    *out = self;
    return MST_OK;
}

/* Waits for our own thread, which waits for the disk only. */
static mst_status wait_idle(mst_checkpointer *self, char **path)
{
    pthread_mutex_lock(&self->lock);
    while (self->state == SAVE_BUSY)
        pthread_cond_wait(&self->changed, &self->lock);
    mst_error outcome = self->outcome;
    self->outcome.code = MST_OK;
    if (path != NULL && outcome.code == MST_OK && self->finished != NULL) {
        *path = mst_strdup(self->finished);
        if (*path == NULL)
            outcome.code = MST_ENOMEM;
    }
    pthread_mutex_unlock(&self->lock);
    if (outcome.code == MST_ENOMEM && outcome.text[0] == 0)
        return mst_fail(MST_ENOMEM, "%s: no memory for a path", self->folder);
    return outcome.code == MST_OK ? MST_OK : mst_error_restore(&outcome);
}

mst_status mst_checkpointer_wait(mst_checkpointer *self, char **path)
{
    if (path != NULL)
        *path = NULL;
    return wait_idle(self, path);
}

mst_status mst_checkpointer_begin(mst_checkpointer *self, const mst_params *params,
                                  const mst_checkpoint_meta *meta)
{
    TRY(wait_idle(self, NULL));
    if (params->n_slots > 0 && self->slot_names == NULL)
        return mst_fail(MST_EUSAGE, "%s: the optimizer's state has no names", self->folder);
    TRY(sweep(self));
    save_job *job = &self->job;
    job->step = meta->step;
    mst_status st = job_open(self, job);
    if (st == MST_OK)
        st = job_copy(self, job, params, meta);
    if (st != MST_OK)
        return job_fail(job, st);
    pthread_mutex_lock(&self->lock);
    self->state = SAVE_BUSY;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return MST_OK;
}

void mst_checkpointer_destroy(mst_checkpointer *self)
{
    if (self == NULL)
        return;
    if (self->started) {
        pthread_mutex_lock(&self->lock);
        self->quit = true;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
        pthread_join(self->thread, NULL);
    }
    job_fini(&self->job);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    mst_free(self->finished);
    mst_free(self->folder);
    mst_free(self);
}
