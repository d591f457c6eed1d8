/* `muster model export --onnx`; contract in export_onnx.h. */
#include "cli/export_onnx.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/version.h"
#include "model/onnx.h"
#include "run/safetensors.h"

/* ---- weights in the checkpoint ---- */

typedef struct export_places {
    mst_onnx_place *items;
    size_t n, capacity;
} export_places;

static void export_places_fini(export_places *self)
{
    for (size_t i = 0; i < self->n; i++)
        mst_free(self->items[i].location);
    mst_free(self->items);
}

/* The views that are whole in one file of the checkpoint. */
static mst_status export_places_add_file(export_places *self, const char *path, const char *location,
                                         const mst_params *params)
{
    mst_safetensors *file = NULL;
    mst_status st = MST_OK;
    TRY(mst_safetensors_open(path, &file));
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        const mst_tensor *tensor = mst_safetensors_find(file, view->name);
        if (tensor == NULL || strcmp(tensor->dtype, "F32") != 0 || tensor->n_elements != view->size)
            continue;
        mst_onnx_place place = {.view = view->name,
                                .location = mst_strdup(location),
                                .offset = mst_safetensors_data_at(file) + tensor->begin,
                                .bytes = tensor->end - tensor->begin};
        if (place.location == NULL || !mst_grow(&self->items, &self->capacity, self->n + 1, sizeof place)) {
            mst_free(place.location);
            TRY_OUT(st, mst_fail_memory());
        }
        self->items[self->n++] = place;
    }
out:
    mst_safetensors_close(file);
    return st;
}

/* --link-checkpoint: ONNX names files by their path below the folder of the model's file. */
static mst_status export_places_init(export_places *self, const char *checkpoint, const char *onnx,
                                     const mst_params *params)
{
    const char *slash = strrchr(onnx, '/');
    char *folder = slash == NULL   ? mst_strdup(".")
                   : slash == onnx ? mst_strdup("/")
                                   : mst_sprintf("%.*s", (int)(slash - onnx), onnx);
    char *above = folder != NULL ? realpath(folder, NULL) : NULL, *below = realpath(checkpoint, NULL);
    size_t n = above != NULL && strcmp(above, "/") != 0 ? strlen(above) : 0;
    DIR *list = NULL;
    struct dirent *found;
    mst_status st = MST_OK;
    if (folder == NULL || above == NULL || below == NULL)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: %s", folder != NULL ? folder : onnx, strerror(errno)));
    if (strcmp(onnx, "-") == 0 || strncmp(below, above, n) != 0 || below[n] != '/')
        TRY_OUT(st,
                mst_fail(MST_EUSAGE,
                         "--link-checkpoint: %s is not in the folder of the run or above it, and ONNX names "
                         "only files below the folder of the model's file; write it to %s/model.onnx",
                         onnx, below));
    list = opendir(below);
    if (list == NULL)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: %s", below, strerror(errno)));
    while ((found = readdir(list)) != NULL) {
        size_t length = strlen(found->d_name);
        if (strncmp(found->d_name, "part-", 5) != 0 || length < 12 ||
            strcmp(found->d_name + length - 12, ".safetensors") != 0)
            continue;
        char *path = mst_sprintf("%s/%s", below, found->d_name);
        st = path != NULL ? export_places_add_file(self, path, path + n + 1, params) : mst_fail_memory();
        mst_free(path);
        if (st != MST_OK)
            break;
    }
out:
    if (list != NULL)
        closedir(list);
    mst_free(folder);
    free(above); /* of realpath */
    free(below);
    return st;
}

/* Rows that were normalised in training are normalised by the exported model. */
mst_status mst_export_onnx(const char *path, bool external, bool link, const mst_assembly *assembly,
                           const mst_checkpoint_meta *meta, const char *checkpoint)
{
    mst_augment augment;
    float scale[MST_AUGMENT_CHANNELS];
    mst_onnx_options options = {.version = mst_version(), .external = external};
    TRY(mst_augment_from_checkpoint(&augment, meta, checkpoint));
    for (uint32_t c = 0; augment.normalise && c < augment.channels; c++)
        scale[c] = 1.0f / augment.deviation[c];
    if (augment.normalise) {
        options.mean = augment.mean;
        options.scale = scale;
        options.n_channels = augment.channels;
    }
    export_places places = {0};
    mst_status st = link ? export_places_init(&places, checkpoint, path, &assembly->params) : MST_OK;
    options.places = places.items;
    options.n_places = places.n;
    if (st == MST_OK)
        st = mst_onnx_export(assembly->model, &assembly->params, &options, path);
    export_places_fini(&places);
    return st;
}
