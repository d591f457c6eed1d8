/* The files of one save (checkpoint_impl.h): the tensors of each part file, their floats, the manifest.
 *
 * Design: the ranges of the servers are intersected with the views; each piece is a tensor in the file of its
 * server, and floats are written to their position whenever they arrive. Counting them per tensor shows that
 * all are there: each write is checked to lie in the store, and a tensor that gets more floats than it has is
 * refused. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/version.h"
#include "run/checkpoint_impl.h"

#define TENSOR_NAME_MAX (CHECKPOINT_NAME_MAX + 48) /* with "[FIRST:END]" */

typedef struct tensor_name {
    char text[TENSOR_NAME_MAX];
} tensor_name;

void mst_save_fini(mst_save *save)
{
    for (size_t i = 0; i < save->n_files; i++) {
        mst_safetensors_close(save->files[i].writer);
        mst_free(save->files[i].path);
    }
    json_decref(save->manifest);
    mst_free(save->files);
    mst_free(save->slices);
    mst_free(save->parts);
    mst_free(save->path);
    memset(save, 0, sizeof *save);
}

/* ---- dividing the store ---- */

static int by_first(const void *a, const void *b)
{
    const mst_part_spec *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->count > y->count) - (x->count < y->count);
}

static mst_status save_take_parts(mst_save *save, const mst_part_spec *parts, uint32_t n)
{
    uint64_t at = 0;
    save->parts = mst_calloc((size_t)n + 1, sizeof *save->parts);
    save->files = mst_calloc((size_t)n + 1, sizeof *save->files);
    if (save->parts == NULL || save->files == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < n; i++)
        save->parts[i] = parts[i];
    save->n_parts = n;
    qsort(save->parts, n, sizeof *save->parts, by_first);
    for (uint32_t i = 0; i < n; i++) {
        const mst_part_spec *p = &save->parts[i];
        if (p->server >= MST_PART_SERVERS)
            return mst_fail(MST_EUSAGE, "%s: a part of server %u, but there are at most %u", save->path,
                            p->server, MST_PART_SERVERS);
        if (p->first != at)
            return mst_fail(MST_EUSAGE, "%s: the parts do not cover the store: float %llu is in %s",
                            save->path, (unsigned long long)(p->first < at ? p->first : at),
                            p->first < at ? "two" : "none");
        if (p->count > save->size - at)
            return mst_fail(MST_EUSAGE, "%s: a part of %llu floats at float %llu exceeds the store of %llu",
                            save->path, (unsigned long long)p->count, (unsigned long long)at,
                            (unsigned long long)save->size);
        at += p->count;
    }
    if (at != save->size)
        return mst_fail(MST_EUSAGE, "%s: the parts do not cover the store: float %llu is in none", save->path,
                        (unsigned long long)at);
    return MST_OK;
}

static int by_server(const void *a, const void *b)
{
    const mst_save_file *x = a, *y = b;
    return (x->server > y->server) - (x->server < y->server);
}

static void save_list_files(mst_save *save)
{
    size_t n = 0;
    for (uint32_t i = 0; i < save->n_parts; i++)
        save->files[i].server = save->parts[i].server;
    qsort(save->files, save->n_parts, sizeof *save->files, by_server);
    for (uint32_t i = 0; i < save->n_parts; i++)
        if (n == 0 || save->files[n - 1].server != save->files[i].server)
            save->files[n++].server = save->files[i].server;
    save->n_files = n;
}

static size_t save_file_of(const mst_save *save, uint32_t server)
{
    mst_save_file key = {.server = server};
    const mst_save_file *found = bsearch(&key, save->files, save->n_files, sizeof key, by_server);
    return (size_t)(found - save->files);
}

/* The intersection of [a, a + n) and [b, b + m); false: it is empty. */
static bool ranges_overlap(uint64_t a, uint64_t n, uint64_t b, uint64_t m, uint64_t *first, uint64_t *count)
{
    uint64_t from = a > b ? a : b, to = a + n < b + m ? a + n : b + m;
    *first = from;
    *count = from < to ? to - from : 0;
    return from < to;
}

static mst_status save_make_slices(mst_save *save, const mst_params *params)
{
    size_t capacity = 0;
    for (uint32_t s = 0; s <= save->n_slots; s++)
        for (uint32_t v = 0; v < params->n_views; v++) {
            const mst_view *view = &params->views[v];
            if (s > view->state.n_slots)
                continue;
            for (uint32_t p = 0; p < save->n_parts; p++) {
                const mst_part_spec *part = &save->parts[p];
                mst_save_slice slice = {.slot = s, .view = v, .file = save_file_of(save, part->server)};
                uint64_t first, count;
                if (!ranges_overlap(view->offset, view->size, part->first, part->count, &first, &count))
                    continue;
                slice.first = mst_view_state_at(view, s, first);
                slice.count = mst_view_state_at(view, s, first + count) - slice.first;
                if (slice.count == 0)
                    continue;
                if (!mst_grow(&save->slices, &capacity, save->n_slices + 1, sizeof slice))
                    return mst_fail_memory();
                slice.tensor = save->files[slice.file].n_tensors++;
                save->slices[save->n_slices++] = slice;
            }
        }
    return MST_OK;
}

/* ---- files and manifest ---- */

/* Chooses unused names for the files: an earlier save of the same step may have some. */
static mst_status save_name_files(mst_save *save)
{
    bool taken = true;
    for (unsigned again = 0; taken; again++) {
        char suffix[16] = "";
        if (again > 0)
            snprintf(suffix, sizeof suffix, "-%u", again);
        taken = false;
        for (size_t i = 0; i < save->n_files && !taken; i++) {
            mst_save_file *file = &save->files[i];
            mst_free(file->path);
            file->path = mst_sprintf("%s/part-%05u%s.safetensors", save->path, file->server, suffix);
            if (file->path == NULL)
                return mst_fail_memory();
            file->name = file->path + strlen(save->path) + 1;
            taken = mst_path_exists(file->path);
        }
    }
    return MST_OK;
}

/* Whether another slice of the same tensor is in the same file. */
static bool save_slice_shares_tensor(const mst_save *save, size_t i)
{
    const mst_save_slice *x = &save->slices[i];
    for (size_t j = 0; j < save->n_slices; j++) {
        const mst_save_slice *y = &save->slices[j];
        if (j != i && y->slot == x->slot && y->view == x->view && y->file == x->file)
            return true;
    }
    return false;
}

/* Describes slice i as a tensor, and adds it to the list of its part file in the manifest. */
static mst_status save_describe_slice(const mst_save *save, const mst_params *params, size_t i,
                                      mst_tensor *tensor, tensor_name *name, json_t *held)
{
    const mst_save_slice *slice = &save->slices[i];
    const mst_view *view = &params->views[slice->view];
    uint64_t first = slice->first - view->offset;
    if (!mst_checkpoint_tensor_name(name->text, slice->slot, view))
        return mst_fail(MST_EUSAGE, "%s: the name of view %s is too long", save->path, view->name);
    json_t *entry = json_pack("{s:s, s:I, s:I}", "name", name->text, "first", (json_int_t)first, "count",
                              (json_int_t)slice->count);
    bool good = entry != NULL;
    if (save_slice_shares_tensor(save, i)) {
        size_t n = strlen(name->text);
        snprintf(name->text + n, sizeof name->text - n, "[%llu:%llu]", (unsigned long long)first,
                 (unsigned long long)(first + slice->count));
        good = good && json_object_set_new(entry, "tensor", json_string(name->text)) == 0;
    }
    good = json_array_append_new(held, entry) == 0 && good;
    if (!good)
        return mst_fail_memory();
    tensor->name = name->text;
    if (slice->count == view->size) {
        tensor->n_dims = view->n_dims;
        memcpy(tensor->dims, view->dims, view->n_dims * sizeof *view->dims);
    } else {
        tensor->n_dims = 1;
        tensor->dims[0] = slice->count;
    }
    return MST_OK;
}

static mst_status save_create_file(mst_save *save, const mst_params *params, size_t f, json_t *parts)
{
    mst_status st = MST_OK;
    mst_save_file *file = &save->files[f];
    mst_tensor *tensors = mst_calloc(file->n_tensors + 1, sizeof *tensors);
    tensor_name *names = mst_calloc(file->n_tensors + 1, sizeof *names);
    json_t *metadata = json_pack("{s:s+}", "producer", "muster ", mst_version()), *held = json_array();
    if (tensors == NULL || names == NULL || metadata == NULL || held == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < save->n_slices; i++) {
        size_t t = save->slices[i].tensor;
        if (save->slices[i].file == f)
            TRY_OUT(st, save_describe_slice(save, params, i, &tensors[t], &names[t], held));
    }
    if (json_array_append_new(parts, json_pack("{s:s, s:O}", "file", file->name, "tensors", held)) != 0)
        TRY_OUT(st, mst_fail_memory());
    st = mst_safetensors_create(file->path, tensors, file->n_tensors, metadata, &file->writer);
out:
    json_decref(held);
    json_decref(metadata);
    mst_free(names);
    mst_free(tensors);
    return st;
}

static json_t *save_view_shape(const mst_view *view)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < view->n_dims; d++)
        if (json_array_append_new(shape, json_integer((json_int_t)view->dims[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return shape;
}

static json_t *save_finite_real(double value)
{
    return json_real(isfinite(value) ? value : 0);
}

static json_t *save_copy_or_empty(json_t *value)
{
    return value == NULL ? json_object() : json_deep_copy(value);
}

static mst_status save_compose(mst_save *save, const mst_params *params, const mst_checkpoint_meta *meta)
{
    json_t *views = json_array(), *slots = json_array();
    bool good = true;
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        json_t *own = json_array();
        for (uint32_t s = 0; s < view->state.n_slots; s++) {
            good &= json_array_append_new(own, json_string(view->state.names[s])) == 0;
            if (json_array_size(slots) == s) /* those of all views, where views do not differ */
                good &= json_array_append_new(slots, json_string(view->state.names[s])) == 0;
        }
        good &= json_array_append_new(views, json_pack("{s:s, s:I, s:o, s:o}", "name", view->name, "size",
                                                       (json_int_t)view->size, "shape", save_view_shape(view),
                                                       "slots", own)) == 0;
    }
    save->manifest =
        json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[]}", //
                  "format", CHECKPOINT_FORMAT, "version", CHECKPOINT_VERSION, "muster", mst_version(), "step",
                  (json_int_t)meta->step, "rows", (json_int_t)meta->rows, "epoch", (json_int_t)meta->epoch,
                  "position", (json_int_t)meta->position, "train_seconds",
                  save_finite_real(meta->train_seconds), "eval_seconds", save_finite_real(meta->eval_seconds),
                  "model", save_copy_or_empty(meta->model), "optimizer", save_copy_or_empty(meta->optimizer),
                  "extra", save_copy_or_empty(meta->extra), "views", views, "slots", slots, "parts");
    if (!good || save->manifest == NULL)
        return mst_fail_memory();
    return MST_OK;
}

mst_status mst_save_open(mst_save *save, const char *folder, const mst_params *params,
                         const mst_checkpoint_meta *meta, const mst_part_spec *parts, uint32_t n)
{
    save->step = meta->step;
    save->n_slots = params->n_slots;
    save->size = params->size;
    save->path = mst_sprintf("%s/" CHECKPOINT_STEP_NAME, folder, (unsigned long long)save->step);
    char *manifest = save->path == NULL ? NULL : mst_sprintf("%s/manifest.json", save->path);
    if (manifest == NULL)
        return mst_fail_memory();
    save->fresh = !mst_path_exists(manifest);
    mst_free(manifest);
    TRY(save_take_parts(save, parts, n));
    save_list_files(save);
    TRY(save_make_slices(save, params));
    TRY(save_compose(save, params, meta));
    TRY(mst_make_folders(folder));
    if (mkdir(save->path, 0777) != 0 && errno != EEXIST) /* `finish` makes it durable, in the background */
        return mst_fail(MST_EIO, "the folder %s cannot be created: %s", save->path, strerror(errno));
    TRY(save_name_files(save));
    for (size_t f = 0; f < save->n_files; f++)
        TRY(save_create_file(save, params, f, json_object_get(save->manifest, "parts")));
    return MST_OK;
}

/* ---- floats ---- */

static const char *save_slot_text(uint32_t slot)
{
    return slot == 0 ? "the weights" : "the optimizer's state";
}

mst_status mst_save_write(mst_save *save, uint32_t slot, uint64_t first, uint64_t count, const float *data,
                          bool lazy)
{
    uint64_t from, n;
    if (slot > save->n_slots)
        return mst_fail(MST_EINPUT, "%s: floats of state vector %u, but the optimizer has %u", save->path,
                        slot, save->n_slots);
    if (first > save->size || count > save->size - first)
        return mst_fail(MST_EINPUT, "%s: %llu floats of %s from float %llu on, in a store of %llu",
                        save->path, (unsigned long long)count, save_slot_text(slot),
                        (unsigned long long)first, (unsigned long long)save->size);
    for (size_t i = 0; i < save->n_slices; i++) {
        mst_save_slice *slice = &save->slices[i];
        if (slice->slot != slot || !ranges_overlap(first, count, slice->first, slice->count, &from, &n))
            continue;
        if (n > slice->count - slice->given)
            return mst_fail(MST_EINPUT,
                            "%s: server %u has sent more floats of %s than it holds from float %llu on",
                            save->path, save->files[slice->file].server, save_slot_text(slot),
                            (unsigned long long)slice->first);
        slice->given += n;
        TRY(mst_safetensors_write_at(save->files[slice->file].writer, slice->tensor, from - slice->first, n,
                                     data + (from - first), lazy));
    }
    return MST_OK;
}

mst_status mst_save_check(const mst_save *save)
{
    for (size_t i = 0; i < save->n_slices; i++) {
        const mst_save_slice *slice = &save->slices[i];
        if (slice->given != slice->count)
            return mst_fail(MST_EINPUT,
                            "%s: server %u has given %llu of its %llu floats of %s from float %llu on",
                            save->path, save->files[slice->file].server, (unsigned long long)slice->given,
                            (unsigned long long)slice->count, save_slot_text(slice->slot),
                            (unsigned long long)slice->first);
    }
    return MST_OK;
}

/* ---- the end of a save ---- */

/* Removes the part files of an earlier save of the same step, which the manifest does not name. */
static void save_remove_other_parts(const mst_save *save)
{
    DIR *dir = opendir(save->path);
    struct dirent *found;
    while (dir != NULL && (found = readdir(dir)) != NULL) {
        bool other = strncmp(found->d_name, "part-", 5) == 0;
        for (size_t i = 0; i < save->n_files && other; i++)
            other = strcmp(found->d_name, save->files[i].name) != 0;
        if (other)
            unlinkat(dirfd(dir), found->d_name, 0);
    }
    if (dir != NULL)
        closedir(dir);
}

mst_status mst_save_finish(mst_save *save, const char *folder)
{
    for (size_t i = 0; i < save->n_files; i++) {
        uint64_t bytes;
        uint32_t crc;
        json_t *part = json_array_get(json_object_get(save->manifest, "parts"), i);
        TRY(mst_safetensors_sync(save->files[i].writer, &bytes, &crc));
        if (json_object_set_new(part, "bytes", json_integer((json_int_t)bytes)) != 0 ||
            json_object_set_new(part, "crc32c", json_integer((json_int_t)crc)) != 0)
            return mst_fail_memory();
    }
    TRY(mst_sync_folder(save->path));
    TRY(mst_sync_folder(folder));
    char *path = mst_sprintf("%s/manifest.json", save->path);
    mst_status st = path != NULL ? mst_json_save_checked(save->manifest, path) : mst_fail_memory();
    mst_free(path);
    TRY(st);
    /* the checkpoint is complete: a later failure costs disk space only */
    if (!save->fresh)
        save_remove_other_parts(save);
    return MST_OK;
}

/* Whether the manifest in the folder names the new parts: a commit may fail after its rename, while syncing
 * the folder. */
static bool save_took_place(const mst_save *save)
{
    char *text = NULL, *path = mst_sprintf("%s/manifest.json", save->path);
    size_t size;
    bool named = path != NULL && mst_file_read_all(path, CHECKPOINT_MANIFEST_MAX, &text, &size) == MST_OK &&
                 strstr(text, save->files[0].name) != NULL;
    mst_free(text);
    mst_free(path);
    return named;
}

mst_status mst_save_undo(mst_save *save, mst_status code)
{
    mst_error error;
    mst_error_save(&error, code);
    bool written = save->n_files > 0 && save->files[0].writer != NULL;
    bool keep = written && !save->fresh && save_took_place(save);
    for (size_t i = 0; i < save->n_files && !keep; i++)
        if (save->files[i].writer != NULL)
            unlink(save->files[i].path);
    if (save->fresh && save->path != NULL)
        mst_remove_tree(save->path);
    mst_save_fini(save);
    return mst_error_restore(&error);
}
