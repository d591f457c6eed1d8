/* Saving checkpoints; contract in checkpoint.h.
 *
 * Design: the caller's floats go into the part files (into the page cache), and the manifest is composed. The
 * background thread reads the part files back for their checksums, syncs them, commits the manifest, and
 * removes old checkpoints. The thread computes the checksums because a short pause of training matters more
 * than a second pass over cached pages. A whole store is one part file that is written at once.
 *
 * Invariants
 * 1. A folder is a checkpoint from the moment it has manifest.json, and everything that the manifest names is
 * durable by then.
 * 2. A save that fails or is abandoned restores the earlier state: a new folder is removed; in a folder that
 * was complete already (the same step saved again) only the new part files are removed, which no manifest
 * names.
 * 3. Older checkpoints are removed only after the new one is complete; never the new one.
 * 4. `save` belongs to the background thread while state is BUSY and to the caller otherwise; lock guards
 * state, quit and outcome. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "run/checkpoint_impl.h"
#include "run/sparse_file.h"

#define PIECE_KEYS ((uint64_t)1 << 16) /* copied at a time from rows to a file */

typedef enum save_state {
    SAVE_IDLE,
    SAVE_OPEN, /* floats arrive */
    SAVE_BUSY, /* in the background */
} save_state;

struct mst_checkpointer {
    char *folder;
    uint32_t keep;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    save_state state;
    bool quit;
    mst_error outcome; /* of the last save; MST_OK once it has been reported */
    char *finished;    /* folder of the last complete save, or NULL */
    mst_save save;
};

/* ---- folders ---- */

bool mst_checkpoint_tensor_name(char *out, uint32_t slot, const mst_view *view)
{
    int n = slot == 0 ? snprintf(out, CHECKPOINT_NAME_MAX, "%s", view->name)
                      : snprintf(out, CHECKPOINT_NAME_MAX, "optimizer.%s.%s", view->state.names[slot - 1],
                                 view->name);
    return n >= 0 && n < CHECKPOINT_NAME_MAX;
}

mst_status mst_checkpoint_check_names(const char *path, const mst_params *params)
{
    for (uint32_t v = 0; v < params->n_views; v++)
        for (uint32_t s = 0; s < params->views[v].state.n_slots; s++)
            if (params->views[v].state.names[s] == NULL)
                return mst_fail(MST_EUSAGE, "%s: the optimizer's state has no names", path);
    return MST_OK;
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
            TRY_OUT(st, mst_fail_memory());
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

static mst_status checkpointer_remove_step(const char *folder, uint64_t step)
{
    char *path = mst_sprintf("%s/" CHECKPOINT_STEP_NAME, folder, (unsigned long long)step);
    if (path == NULL)
        return mst_fail_memory();
    /* the manifest first, so that a kill leaves nothing that looks complete */
    char *manifest = mst_sprintf("%s/manifest.json", path);
    if (manifest != NULL)
        unlink(manifest);
    mst_free(manifest);
    mst_status st = mst_remove_tree(path);
    mst_free(path);
    return st;
}

/* Removes step folders without a manifest, which killed processes have left. */
static mst_status checkpointer_remove_incomplete(const mst_checkpointer *self)
{
    mst_checkpoint_entry *entries = NULL;
    size_t n = 0;
    mst_status st = mst_checkpoint_list(self->folder, &entries, &n);
    for (size_t i = 0; i < n && st == MST_OK; i++)
        if (!entries[i].complete)
            st = checkpointer_remove_step(self->folder, entries[i].step);
    mst_free(entries);
    return st;
}

static mst_status checkpointer_remove_old(const mst_checkpointer *self, uint64_t new_step)
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
            st = checkpointer_remove_step(self->folder, entries[i].step);
            complete--;
        }
    mst_free(entries);
    return st;
}

/* ---- the background thread ---- */

static void *checkpointer_thread(void *arg)
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
        mst_status st = mst_save_finish(&self->save, self->folder);
        if (st == MST_OK) {
            if (checkpointer_remove_old(self, self->save.step) != MST_OK)
                mst_warn("%s: cannot remove older checkpoints: %s", self->folder, mst_error_text());
            finished = self->save.path;
            self->save.path = NULL;
            mst_save_fini(&self->save);
        } else {
            mst_error_save(&outcome, mst_save_undo(&self->save, st));
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

mst_status mst_checkpointer_new(const char *folder, uint32_t keep, mst_checkpointer **out)
{
    mst_checkpointer *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->keep = keep;
    self->folder = mst_strdup(folder);
    if (self->folder == NULL) {
        mst_checkpointer_destroy(self);
        return mst_fail_memory();
    }
    int error = pthread_create(&self->thread, NULL, checkpointer_thread, self);
    if (error != 0) {
        mst_checkpointer_destroy(self);
        return mst_fail(MST_EIO, "%s: cannot start the thread that saves checkpoints: %s", folder,
                        strerror(error));
    }
    self->started = true;
    *out = self;
    return MST_OK;
}

mst_status mst_checkpointer_wait(mst_checkpointer *self, char **path)
{
    if (path != NULL)
        *path = NULL;
    pthread_mutex_lock(&self->lock);
    while (self->state == SAVE_BUSY) /* the background thread waits only for the disk */
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
        return mst_fail_memory();
    return outcome.code == MST_OK ? MST_OK : mst_error_restore(&outcome);
}

static void checkpointer_set_state(mst_checkpointer *self, save_state state)
{
    pthread_mutex_lock(&self->lock);
    self->state = state;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static save_state checkpointer_get_state(mst_checkpointer *self)
{
    pthread_mutex_lock(&self->lock);
    save_state state = self->state;
    pthread_mutex_unlock(&self->lock);
    return state;
}

bool mst_checkpointer_idle(mst_checkpointer *self)
{
    return checkpointer_get_state(self) == SAVE_IDLE;
}

static mst_status checkpointer_abandon(mst_checkpointer *self, mst_status st)
{
    st = mst_save_undo(&self->save, st);
    checkpointer_set_state(self, SAVE_IDLE);
    return st;
}

mst_status mst_checkpointer_begin_parts(mst_checkpointer *self, const mst_params *params,
                                        const mst_checkpoint_meta *meta, const mst_part_spec *parts,
                                        uint32_t n)
{
    TRY(mst_checkpointer_wait(self, NULL));
    if (checkpointer_get_state(self) == SAVE_OPEN)
        return mst_fail(MST_EUSAGE, "%s: another checkpoint is being written", self->folder);
    TRY(mst_checkpoint_check_names(self->folder, params));
    TRY(checkpointer_remove_incomplete(self));
    mst_status st = mst_save_open(&self->save, self->folder, params, meta, parts, n);
    if (st != MST_OK)
        return mst_save_undo(&self->save, st);
    checkpointer_set_state(self, SAVE_OPEN);
    return MST_OK;
}

mst_status mst_checkpointer_write(mst_checkpointer *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy)
{
    if (checkpointer_get_state(self) != SAVE_OPEN)
        return mst_fail(MST_EUSAGE, "%s: no checkpoint is being written", self->folder);
    mst_status st = mst_save_write(&self->save, slot, first, count, data, lazy);
    return st == MST_OK ? MST_OK : checkpointer_abandon(self, st);
}

mst_status mst_checkpointer_complete(mst_checkpointer *self)
{
    if (checkpointer_get_state(self) != SAVE_OPEN)
        return mst_fail(MST_EUSAGE, "%s: no checkpoint is being written", self->folder);
    mst_status st = mst_save_check(&self->save);
    if (st != MST_OK)
        return checkpointer_abandon(self, st);
    checkpointer_set_state(self, SAVE_BUSY);
    return MST_OK;
}

void mst_checkpointer_abandon(mst_checkpointer *self)
{
    if (checkpointer_get_state(self) == SAVE_OPEN)
        checkpointer_abandon(self, MST_OK);
}

/* The weights or a slot of a whole store. Floats in rows are copied piece by piece; pages of rows
 * that were never touched are not read. */
static mst_status checkpointer_write_vector(mst_checkpointer *self, const mst_params *params, uint32_t slot)
{
    const float *vector = slot == 0 ? params->w : params->slots[slot - 1];
    const mst_key_rows *rows = &params->rows;
    uint64_t first = rows->first, end, n_piece = PIECE_KEYS * rows->width;
    if (rows->stride == 0 || slot > params->keyed.n_slots)
        return mst_checkpointer_write(self, slot, 0, params->size, vector, true);
    float *piece = mst_calloc(n_piece, sizeof *piece);
    if (piece == NULL)
        return checkpointer_abandon(self, mst_fail_memory());
    end = mst_params_rows_end(params, slot);
    mst_status st = mst_checkpointer_write(self, slot, 0, first, vector, true);
    for (uint64_t at = first; st == MST_OK && at < end; at += n_piece) {
        uint64_t n = end - at < n_piece ? end - at : n_piece;
        size_t bytes;
        const float *memory = mst_params_row_memory(params, slot, at, n, &bytes);
        if (mst_sparse_untouched(memory, bytes))
            memset(piece, 0, n * sizeof *piece);
        else
            mst_params_read(params, slot, at, n, piece);
        st = mst_checkpointer_write(self, slot, at, n, piece, false);
    }
    if (st == MST_OK)
        st = mst_checkpointer_write(self, slot, end, params->size - end, vector + end, true);
    mst_free(piece);
    return st;
}

mst_status mst_checkpointer_begin(mst_checkpointer *self, const mst_params *params,
                                  const mst_checkpoint_meta *meta)
{
    mst_part_spec whole = {.first = 0, .count = params->size};
    TRY(mst_checkpointer_begin_parts(self, params, meta, &whole, 1));
    for (uint32_t s = 0; s <= params->n_slots; s++)
        TRY(checkpointer_write_vector(self, params, s));
    return mst_checkpointer_complete(self);
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
    if (self->state == SAVE_OPEN)
        mst_save_undo(&self->save, MST_OK);
    mst_save_fini(&self->save);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    mst_free(self->finished);
    mst_free(self->folder);
    mst_free(self);
}
