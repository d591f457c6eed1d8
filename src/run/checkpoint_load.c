/* Loading checkpoints; contract in checkpoint.h.
 *
 * Design: the manifest is compared with the caller's views before any part file is opened: names, sizes,
 * shapes, and that the listed slices cover every wanted tensor exactly once. Then each part file: size,
 * checksum, header, and only if all are correct its data. Nothing in a file is trusted: part names are plain
 * file names, and every count is checked against its tensor. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "run/checkpoint_impl.h"
#include "run/safetensors.h"
#include "run/sparse_file.h"

#define PIECE_FLOATS ((uint64_t)1 << 16) /* copied at a time between a file and rows */

/* ---- the manifest ---- */

static mst_status checkpoint_bad_manifest(const char *checkpoint, const char *what)
{
    return mst_fail(MST_EINPUT, "%s: not a valid checkpoint: in manifest.json %s", checkpoint, what);
}

/* Adds the newest older checkpoint, if there is one, to the error about a damaged checkpoint of a
 * run. */
static mst_status checkpoint_damaged(const char *checkpoint, mst_status st)
{
    mst_error error;
    unsigned long long step = 0;
    uint64_t older;
    const char *name = strrchr(checkpoint, '/');
    if (st != MST_EINPUT || name == NULL || sscanf(name + 1, "step-%20llu", &step) != 1)
        return st;
    mst_error_save(&error, st);
    char *folder = mst_strndup(checkpoint, (size_t)(name - checkpoint)), *path = NULL;
    if (folder != NULL && mst_checkpoint_newest(folder, step, &path, &older) == MST_OK && path != NULL)
        st = mst_fail(
            error.code,
            "%s; to resume from the older checkpoint %s, remove the damaged one; otherwise start again",
            error.text, path);
    else
        st = mst_error_restore(&error);
    mst_free(path);
    mst_free(folder);
    return st;
}

/* The entries of a manifest without a checksum. Another entry is the name of a checksum that is damaged. */
static const char *const old_entries[] = {"format",    "version",  "muster",        "step",         "rows",
                                          "epoch",     "position", "train_seconds", "eval_seconds", "model",
                                          "optimizer", "extra",    "views",         "slots",        "parts"};

static mst_status checkpoint_verify_manifest(const char *checkpoint, const char *path, json_t *root,
                                             const char *text, size_t size)
{
    const char *key;
    json_t *value;
    TRY(mst_json_verify(root, text, size, path));
    if (json_object_get(root, "crc32c") != NULL)
        return MST_OK;
    json_object_foreach(root, key, value)
    {
        size_t i = 0, n = sizeof old_entries / sizeof *old_entries;
        while (i < n && strcmp(old_entries[i], key) != 0)
            i++;
        if (i == n)
            return checkpoint_bad_manifest(checkpoint, "an entry has an unknown name");
    }
    return MST_OK;
}

/* Reads, parses and checks checksum, format and version; *out is a new reference. */
static mst_status checkpoint_parse_manifest(const char *checkpoint, json_t **out)
{
    mst_status st;
    char *text = NULL, *path = mst_sprintf("%s/manifest.json", checkpoint);
    size_t size;
    json_t *root = NULL;
    json_error_t error;
    if (path == NULL)
        return mst_fail_memory();
    if (!mst_path_exists(path))
        TRY_OUT(st,
                mst_fail(MST_EINPUT, "%s: %s", checkpoint,
                         mst_path_is_folder(checkpoint) ? "not a checkpoint: the folder has no manifest.json"
                         : mst_path_exists(checkpoint)  ? "not a checkpoint: a checkpoint is a folder"
                                                        : "no such run or checkpoint"));
    TRY_OUT(st, mst_file_read_all(path, CHECKPOINT_MANIFEST_MAX, &text, &size));
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory)
        TRY_OUT(st, mst_fail_memory());
    if (root == NULL)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: truncated or damaged: no valid JSON from line %d on", path,
                             error.line));
    const char *format = json_string_value(json_object_get(root, "format"));
    if (format == NULL || strcmp(format, CHECKPOINT_FORMAT) != 0)
        TRY_OUT(st,
                mst_fail(MST_EINPUT, "%s: not a checkpoint: manifest.json is of another kind", checkpoint));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (version != CHECKPOINT_VERSION)
        TRY_OUT(st,
                mst_fail(MST_EINPUT,
                         "%s: checkpoint format version %lld is not supported; this muster reads version %d",
                         checkpoint, (long long)version, CHECKPOINT_VERSION));
    TRY_OUT(st, checkpoint_verify_manifest(checkpoint, path, root, text, size));
    *out = root;
    root = NULL;
out:
    json_decref(root);
    mst_free(text);
    mst_free(path);
    return st;
}

static mst_status checkpoint_read_manifest(const char *checkpoint, json_t **out)
{
    mst_status st = checkpoint_parse_manifest(checkpoint, out);
    return st == MST_OK ? MST_OK : checkpoint_damaged(checkpoint, st);
}

static mst_status checkpoint_get_count(const char *checkpoint, const json_t *object, const char *key,
                                       uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return mst_fail(MST_EINPUT,
                        "%s: not a valid checkpoint: in manifest.json \"%s\" is not an integer of 0 or more",
                        checkpoint, key);
    *out = (uint64_t)json_integer_value(value);
    return MST_OK;
}

static mst_status checkpoint_get_seconds(const char *checkpoint, const json_t *object, const char *key,
                                         double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || json_number_value(value) < 0)
        return mst_fail(MST_EINPUT,
                        "%s: not a valid checkpoint: in manifest.json \"%s\" is not a number of seconds",
                        checkpoint, key);
    *out = json_number_value(value);
    return MST_OK;
}

static mst_status checkpoint_get_object(const char *checkpoint, const json_t *object, const char *key,
                                        json_t **out)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_object(value))
        return mst_fail(MST_EINPUT, "%s: not a valid checkpoint: in manifest.json \"%s\" is not an object",
                        checkpoint, key);
    *out = json_incref(value);
    return MST_OK;
}

void mst_checkpoint_meta_fini(mst_checkpoint_meta *meta)
{
    json_decref(meta->model);
    json_decref(meta->optimizer);
    json_decref(meta->extra);
    meta->model = meta->optimizer = meta->extra = NULL;
}

mst_status mst_checkpoint_read_meta(const char *checkpoint, mst_checkpoint_meta *meta)
{
    mst_status st;
    json_t *root = NULL;
    mst_checkpoint_meta found = {0};
    TRY_OUT(st, checkpoint_read_manifest(checkpoint, &root));
    TRY_OUT(st, checkpoint_get_count(checkpoint, root, "step", &found.step));
    TRY_OUT(st, checkpoint_get_count(checkpoint, root, "rows", &found.rows));
    TRY_OUT(st, checkpoint_get_count(checkpoint, root, "epoch", &found.epoch));
    TRY_OUT(st, checkpoint_get_count(checkpoint, root, "position", &found.position));
    TRY_OUT(st, checkpoint_get_seconds(checkpoint, root, "train_seconds", &found.train_seconds));
    TRY_OUT(st, checkpoint_get_seconds(checkpoint, root, "eval_seconds", &found.eval_seconds));
    TRY_OUT(st, checkpoint_get_object(checkpoint, root, "model", &found.model));
    TRY_OUT(st, checkpoint_get_object(checkpoint, root, "optimizer", &found.optimizer));
    TRY_OUT(st, checkpoint_get_object(checkpoint, root, "extra", &found.extra));
    *meta = found;
    found = (mst_checkpoint_meta){0};
out:
    mst_checkpoint_meta_fini(&found);
    json_decref(root);
    return st;
}

/* ---- loading ---- */

/* Tensor t is view t % n_views of the weights (t < n_views) or of state vector t / n_views - 1. */
struct mst_checkpoint {
    char *path;
    json_t *manifest;
    const mst_params *params;
    uint32_t n_slots;     /* wanted */
    struct slice *slices; /* by tensor and position, so by slot and position in the flat vector */
    size_t n_slices, capacity;
    mst_safetensors **files; /* of the parts */
    size_t n_parts;
};

/* A range of a wanted tensor, and its place in the files. */
typedef struct slice {
    uint32_t tensor;
    uint64_t first, count;
    size_t part;
    const char *held_as;    /* a text of the manifest */
    const mst_tensor *held; /* once the part is open */
} slice;

static bool tensor_name(const mst_checkpoint *self, uint32_t tensor, char *out)
{
    uint32_t slot = tensor / self->params->n_views;
    const mst_view *view = &self->params->views[tensor % self->params->n_views];
    return mst_checkpoint_tensor_name(out, slot, view);
}

/* Elements; 0: the view has no such slot. */
static uint64_t tensor_size(const mst_checkpoint *self, uint32_t tensor)
{
    return mst_view_floats(&self->params->views[tensor % self->params->n_views],
                           tensor / self->params->n_views);
}

/* "10 x 784"; truncated if long. */
static const char *shape_text(char *out, size_t size, uint32_t n_dims, const uint64_t *dims)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t d = 0; d < n_dims && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, "%s%llu", d ? " x " : "", (unsigned long long)dims[d]);
    return out;
}

static mst_status checkpoint_check_view(const mst_checkpoint *self, const json_t *entry, bool *seen)
{
    uint64_t size = 0, dims[MST_VIEW_NDIM];
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *shape = json_object_get(entry, "shape");
    if (name == NULL || !json_is_array(shape))
        return checkpoint_bad_manifest(self->path, "a view lacks its name or shape");
    TRY(checkpoint_get_count(self->path, entry, "size", &size));
    const mst_view *view = mst_params_find(self->params, name);
    if (view == NULL)
        return mst_fail(MST_EINPUT,
                        "%s: a checkpoint of another model: it has \"%.40s\", which the model here lacks",
                        self->path, name);
    if (size != view->size)
        return mst_fail(MST_EINPUT, "%s has %llu elements in %s but %llu here", view->name,
                        (unsigned long long)size, self->path, (unsigned long long)view->size);
    size_t n_dims = json_array_size(shape);
    bool same = n_dims == view->n_dims;
    for (size_t d = 0; d < n_dims && d < MST_VIEW_NDIM; d++) {
        const json_t *dim = json_array_get(shape, d);
        dims[d] =
            json_is_integer(dim) && json_integer_value(dim) >= 0 ? (uint64_t)json_integer_value(dim) : 0;
        same = same && dims[d] == view->dims[d];
    }
    if (!same) {
        char theirs[96], ours[96];
        uint32_t shown = n_dims < MST_VIEW_NDIM ? (uint32_t)n_dims : MST_VIEW_NDIM;
        return mst_fail(MST_EINPUT, "%s is %s in %s but %s here", view->name,
                        shape_text(theirs, sizeof theirs, shown, dims), self->path,
                        shape_text(ours, sizeof ours, view->n_dims, view->dims));
    }
    seen[view - self->params->views] = true;
    return MST_OK;
}

static mst_status checkpoint_check_views(const mst_checkpoint *self)
{
    bool seen[MST_VIEW_MAX] = {false};
    const json_t *views = json_object_get(self->manifest, "views");
    if (!json_is_array(views))
        return checkpoint_bad_manifest(self->path, "\"views\" is not a list");
    for (size_t i = 0; i < json_array_size(views); i++)
        TRY(checkpoint_check_view(self, json_array_get(views, i), seen));
    for (uint32_t v = 0; v < self->params->n_views; v++)
        if (!seen[v])
            return mst_fail(MST_EINPUT, "%s: a checkpoint of another model: it has no \"%s\"", self->path,
                            self->params->views[v].name);
    return MST_OK;
}

static void add_name(char *text, size_t size, const char *name)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", name);
}

/* Compares the names of a view's state with those of the checkpoint. */
static mst_status checkpoint_check_state(const mst_checkpoint *self, const mst_view *view,
                                         const json_t *slots)
{
    char theirs[128] = "", ours[128] = "";
    if (!json_is_array(slots))
        return checkpoint_bad_manifest(self->path, "\"slots\" is not a list");
    bool same = json_array_size(slots) == view->state.n_slots;
    for (size_t i = 0; i < json_array_size(slots); i++) {
        const char *name = json_string_value(json_array_get(slots, i));
        if (name == NULL)
            return checkpoint_bad_manifest(self->path, "a name in \"slots\" is not a text");
        same = same && strcmp(name, view->state.names[i]) == 0;
        add_name(theirs, sizeof theirs, name);
    }
    for (uint32_t i = 0; i < view->state.n_slots; i++)
        add_name(ours, sizeof ours, view->state.names[i]);
    if (same)
        return MST_OK;
    const json_t *optimizer = json_object_get(self->manifest, "optimizer"),
                 *sparse = json_object_get(optimizer, "sparse");
    const char *name =
        json_string_value(view->width != 0 && sparse != NULL ? sparse : json_object_get(optimizer, "name"));
    return mst_fail(
        MST_EINPUT,
        "%s holds state of %.40s (%s), not of the optimizer here (%s); --init-from takes the weights only",
        self->path, name == NULL ? "another optimizer" : name, theirs[0] ? theirs : "none",
        ours[0] ? ours : "none");
}

/* The list of a view, or that of all views, which checkpoints of earlier versions have. */
static mst_status checkpoint_check_slots(const mst_checkpoint *self)
{
    const json_t *all = json_object_get(self->manifest, "slots"), *entry;
    size_t i;
    json_array_foreach(json_object_get(self->manifest, "views"), i, entry)
    {
        const mst_view *view =
            mst_params_find(self->params, json_string_value(json_object_get(entry, "name")));
        const json_t *own = json_object_get(entry, "slots");
        if (view->kind == MST_VIEW_TRAINABLE)
            TRY(checkpoint_check_state(self, view, own != NULL ? own : all));
    }
    return MST_OK;
}

static mst_status checkpoint_add_slice(mst_checkpoint *self, const json_t *entry, size_t part)
{
    char wanted[CHECKPOINT_NAME_MAX];
    const char *name = json_string_value(json_object_get(entry, "name"));
    uint32_t n_tensors = self->params->n_views * (1 + self->n_slots);
    slice s = {.tensor = 0, .part = part};
    if (name == NULL)
        return checkpoint_bad_manifest(self->path, "a tensor lacks its name");
    TRY(checkpoint_get_count(self->path, entry, "first", &s.first));
    TRY(checkpoint_get_count(self->path, entry, "count", &s.count));
    const json_t *tensor = json_object_get(entry, "tensor");
    s.held_as = tensor == NULL ? name : json_string_value(tensor);
    if (s.held_as == NULL)
        return checkpoint_bad_manifest(self->path, "a name in \"tensor\" is not a text");
    while (s.tensor < n_tensors && !(tensor_size(self, s.tensor) > 0 && tensor_name(self, s.tensor, wanted) &&
                                     strcmp(wanted, name) == 0))
        s.tensor++;
    if (s.tensor == n_tensors)
        return MST_OK; /* optimizer state is not wanted */
    uint64_t size = tensor_size(self, s.tensor);
    if (s.first > size || s.count > size - s.first)
        return mst_fail(MST_EINPUT, "%s: not a valid checkpoint: a part of \"%s\" lies outside of it",
                        self->path, wanted);
    if (!mst_grow(&self->slices, &self->capacity, self->n_slices + 1, sizeof *self->slices))
        return mst_fail_memory();
    self->slices[self->n_slices++] = s;
    return MST_OK;
}

static int by_place(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->count > y->count) - (x->count < y->count);
}

static mst_status checkpoint_gather_slices(mst_checkpoint *self)
{
    const json_t *parts = json_object_get(self->manifest, "parts");
    if (!json_is_array(parts))
        return checkpoint_bad_manifest(self->path, "\"parts\" is not a list");
    for (size_t p = 0; p < json_array_size(parts); p++) {
        const json_t *tensors = json_object_get(json_array_get(parts, p), "tensors");
        if (!json_is_array(tensors))
            return checkpoint_bad_manifest(self->path, "a part lacks its tensors");
        for (size_t i = 0; i < json_array_size(tensors); i++)
            TRY(checkpoint_add_slice(self, json_array_get(tensors, i), p));
    }
    if (self->n_slices > 0)
        qsort(self->slices, self->n_slices, sizeof *self->slices, by_place);
    size_t i = 0;
    for (uint32_t t = 0; t < self->params->n_views * (1 + self->n_slots); t++) {
        uint64_t at = 0, size = tensor_size(self, t);
        char name[CHECKPOINT_NAME_MAX];
        if (size == 0)
            continue;
        if (!tensor_name(self, t, name))
            return mst_fail(MST_EUSAGE, "%s: the name %s is too long", self->path, name);
        for (; i < self->n_slices && self->slices[i].tensor == t; i++) {
            if (self->slices[i].first != at)
                return mst_fail(MST_EINPUT, "%s: not a valid checkpoint: element %llu of \"%s\" is %s",
                                self->path,
                                (unsigned long long)(self->slices[i].first < at ? self->slices[i].first : at),
                                name, self->slices[i].first < at ? "there twice" : "missing");
            at += self->slices[i].count;
        }
        if (at != size)
            return mst_fail(MST_EINPUT, "%s: not a valid checkpoint: element %llu of \"%s\" is missing",
                            self->path, (unsigned long long)at, name);
    }
    return MST_OK;
}

/* Opens a part file if its size is correct, and verifies its checksum. */
static mst_status checkpoint_open_file(const mst_checkpoint *self, const json_t *part, const char *path,
                                       mst_safetensors **out)
{
    uint64_t bytes = 0, expected = 0;
    uint32_t crc;
    struct stat info;
    TRY(checkpoint_get_count(self->path, part, "bytes", &bytes));
    TRY(checkpoint_get_count(self->path, part, "crc32c", &expected));
    if (stat(path, &info) != 0)
        return mst_fail(MST_EINPUT, "%s: a part of the checkpoint is missing: %s", path, strerror(errno));
    if ((uint64_t)info.st_size != bytes)
        return mst_fail(MST_EINPUT, "%s: %s: it has %llu bytes, but the manifest states %llu", path,
                        (uint64_t)info.st_size < bytes ? "truncated" : "not the file that was saved",
                        (unsigned long long)info.st_size, (unsigned long long)bytes);
    mst_safetensors *file = NULL;
    TRY(mst_safetensors_open(path, &file));
    mst_status st = mst_safetensors_crc32c(file, &crc);
    if (st == MST_OK && crc != expected)
        st = mst_fail(MST_EINPUT, "%s: damaged: its CRC-32C is %08x, but the manifest states %08llx", path,
                      crc, (unsigned long long)expected);
    if (st == MST_OK)
        *out = file;
    else
        mst_safetensors_close(file);
    return st;
}

/* Finds a slice in its part file. */
static mst_status checkpoint_find_slice(mst_safetensors *file, const char *path, slice *s)
{
    s->held = mst_safetensors_find(file, s->held_as);
    if (s->held == NULL)
        return mst_fail(MST_EINPUT, "%s: has no tensor \"%.200s\", which the manifest names", path,
                        s->held_as);
    if (s->held->n_elements != s->count)
        return mst_fail(MST_EINPUT, "%s: \"%.200s\" has %llu elements, but the manifest states %llu", path,
                        s->held_as, (unsigned long long)s->held->n_elements, (unsigned long long)s->count);
    if (strcmp(s->held->dtype, "F32") != 0)
        return mst_fail(MST_EINPUT, "%s: tensor \"%.200s\" is %s, and only F32 can be used", path, s->held_as,
                        s->held->dtype);
    return MST_OK;
}

static mst_status checkpoint_open_part(mst_checkpoint *self, size_t p)
{
    mst_status st;
    const json_t *part = json_array_get(json_object_get(self->manifest, "parts"), p);
    const char *name = json_string_value(json_object_get(part, "file"));
    if (name == NULL || name[0] == '.' || name[0] == 0 || strchr(name, '/') != NULL)
        return checkpoint_bad_manifest(self->path, "a part's \"file\" is not a plain file name");
    char *path = mst_sprintf("%s/%s", self->path, name);
    if (path == NULL)
        return mst_fail_memory();
    TRY_OUT(st, checkpoint_open_file(self, part, path, &self->files[p]));
    for (size_t i = 0; i < self->n_slices; i++)
        if (self->slices[i].part == p)
            TRY_OUT(st, checkpoint_find_slice(self->files[p], path, &self->slices[i]));
out:
    mst_free(path);
    return st;
}

static mst_status checkpoint_open_parts(mst_checkpoint *self)
{
    TRY(checkpoint_gather_slices(self));
    self->n_parts = json_array_size(json_object_get(self->manifest, "parts"));
    self->files = mst_calloc(self->n_parts + 1, sizeof(void *));
    if (self->files == NULL)
        return mst_fail_memory();
    for (size_t p = 0; p < self->n_parts; p++)
        TRY(checkpoint_open_part(self, p));
    return MST_OK;
}

void mst_checkpoint_close(mst_checkpoint *self)
{
    if (self == NULL)
        return;
    for (size_t p = 0; self->files != NULL && p < self->n_parts; p++)
        mst_safetensors_close(self->files[p]);
    mst_free(self->files);
    mst_free(self->slices);
    json_decref(self->manifest);
    mst_free(self->path);
    mst_free(self);
}

mst_status mst_checkpoint_open(const char *checkpoint, const mst_params *params, bool want_slots,
                               mst_checkpoint **out)
{
    mst_status st;
    mst_checkpoint *self = mst_zalloc(sizeof *self);
    if (self == NULL || (self->path = mst_strdup(checkpoint)) == NULL)
        TRY_OUT(st, mst_fail_memory());
    self->params = params;
    self->n_slots = want_slots ? params->n_slots : 0;
    if (want_slots)
        TRY_OUT(st, mst_checkpoint_check_names(checkpoint, params));
    TRY_OUT(st, checkpoint_read_manifest(checkpoint, &self->manifest));
    TRY_OUT(st, checkpoint_check_views(self));
    if (want_slots)
        TRY_OUT(st, checkpoint_check_slots(self));
    st = checkpoint_open_parts(self);
    if (st != MST_OK)
        TRY_OUT(st, checkpoint_damaged(checkpoint, st));
    *out = self;
    self = NULL;
out:
    mst_checkpoint_close(self);
    return st;
}

/* Position of a slice in the flat vector. */
static uint64_t slice_place(const mst_checkpoint *self, const slice *s)
{
    return self->params->views[s->tensor % self->params->n_views].offset + s->first;
}

mst_status mst_checkpoint_read(mst_checkpoint *self, uint32_t slot, uint64_t first, uint64_t count,
                               float *out)
{
    if (slot > self->n_slots || first > self->params->size || count > self->params->size - first)
        return mst_fail(MST_EUSAGE, "%s: no floats %llu to %llu of vector %u", self->path,
                        (unsigned long long)first, (unsigned long long)(first + count), slot);
    uint64_t at = first, end = first + count;
    for (size_t i = 0; i < self->n_slices && at < end; i++) {
        const slice *s = &self->slices[i];
        uint64_t place = slice_place(self, s), stop = place + s->count;
        if (s->tensor / self->params->n_views != slot || stop <= at || place >= end)
            continue;
        uint64_t from = place > at ? place : at, to = stop < end ? stop : end;
        memset(out + (at - first), 0, (from - at) * sizeof *out);
        TRY(mst_safetensors_read_at(self->files[s->part], s->held, from - place, to - from,
                                    out + (from - first), false));
        at = to;
    }
    memset(out + (at - first), 0, (end - at) * sizeof *out);
    return MST_OK;
}

/* A slice with floats that are in rows, piece by piece; pieces of zeros leave untouched rows untouched. */
static mst_status checkpoint_load_rows(const mst_checkpoint *self, const slice *s, mst_params *params,
                                       uint32_t slot)
{
    uint64_t place = slice_place(self, s);
    float *piece = mst_calloc(PIECE_FLOATS, sizeof *piece);
    mst_status st = piece != NULL ? MST_OK : mst_fail_memory();
    for (uint64_t at = 0; st == MST_OK && at < s->count; at += PIECE_FLOATS) {
        uint64_t n = s->count - at < PIECE_FLOATS ? s->count - at : PIECE_FLOATS, first = place + at;
        st = mst_safetensors_read_at(self->files[s->part], s->held, at, n, piece, false);
        bool zero = st == MST_OK && first >= params->rows.first &&
                    first + n <= mst_params_rows_end(params, slot) && mst_is_zero(piece, n * sizeof *piece);
        size_t bytes;
        const float *rows = zero ? mst_params_row_memory(params, slot, first, n, &bytes) : NULL;
        if (st == MST_OK && !(zero && mst_sparse_untouched(rows, bytes)))
            mst_params_write(params, slot, first, n, piece);
    }
    mst_free(piece);
    return st;
}

mst_status mst_checkpoint_load(const char *checkpoint, mst_params *params, bool want_slots)
{
    mst_checkpoint *self = NULL;
    TRY(mst_checkpoint_open(checkpoint, params, want_slots, &self));
    mst_status st = MST_OK;
    for (size_t i = 0; st == MST_OK && i < self->n_slices; i++) {
        const slice *s = &self->slices[i];
        uint32_t slot = s->tensor / params->n_views;
        float *base = slot == 0 ? params->w : params->slots[slot - 1];
        uint64_t place = slice_place(self, s);
        st = mst_params_in_rows(params, place, s->count)
                 ? checkpoint_load_rows(self, s, params, slot)
                 : mst_safetensors_read(self->files[s->part], s->held, base + place, true);
    }
    if (st != MST_OK)
        st = checkpoint_damaged(checkpoint, st);
    mst_checkpoint_close(self);
    return st;
}
