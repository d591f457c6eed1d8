/* Folders of images (contract: images.h).
 *
 * A chunk is one row: the feed permutes chunks, so that rows are shuffled over the whole dataset although a
 * class's files follow one another, and a window holds no more of them than WINDOW_BYTES. */
#include "data/images.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "data/image.h"
#include "data/stream.h"

#define FILE_MAX     ((size_t)256 << 20) /* bytes of a file */
#define WINDOW_BYTES (16u << 20)
#define SIDE_MAX     8192

typedef struct images_dataset {
    mst_dataset base;
    mst_text_list files; /* in order of rows */
    size_t file_capacity;
    uint32_t *labels; /* of the files */
    size_t label_capacity;
    mst_image_rows rows;
} images_dataset;

/* ---- options ---- */

mst_status mst_parse_sides(const char *option, const char *text, uint32_t *c, uint32_t *h, uint32_t *w)
{
    unsigned long sides[3] = {0};
    unsigned n = 0, most = c != NULL ? 3 : 2;
    const char *at = text != NULL ? text : "";
    bool good = *at != '\0';
    while (good && n < most) {
        char *end;
        good = *at >= '0' && *at <= '9';
        sides[n] = good ? strtoul(at, &end, 10) : 0;
        good = good && sides[n] >= 1 && sides[n] <= SIDE_MAX && (*end == 'x' || *end == '\0');
        n++;
        if (!good || *end == '\0')
            break;
        at = end + 1;
        good = n < most;
    }
    if (!good || n < 2)
        return mst_fail(MST_EUSAGE, "--%s %s: give %sHxW, such as %s224x224, with sides from 1 to %d", option,
                        text != NULL ? text : "", c != NULL ? "Cx" : "", c != NULL ? "3x" : "", SIDE_MAX);
    if (c != NULL)
        *c = n == 3 ? (uint32_t)sides[0] : 1;
    *h = (uint32_t)sides[n - 2];
    *w = (uint32_t)sides[n - 1];
    return MST_OK;
}

/* ---- listing ---- */

static bool image_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return name[0] != '.' && dot != NULL &&
           (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

/* The names in a folder that are folders, or images; sorted. */
static mst_status list_folder(const char *path, bool folders, mst_text_list *out)
{
    mst_status st = MST_OK;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return mst_fail(MST_EINPUT, "%s: the folder cannot be read: %s", path, strerror(errno));
    struct dirent *entry;
    while (st == MST_OK && (errno = 0, entry = readdir(folder)) != NULL) {
        struct stat info;
        if (entry->d_name[0] == '.' || (!folders && !image_name(entry->d_name)))
            continue;
        char *file = mst_sprintf("%s/%s", path, entry->d_name);
        if (file == NULL)
            st = mst_fail_memory();
        else if (stat(file, &info) != 0)
            st = folders ? MST_OK : mst_fail(MST_EINPUT, "%s: cannot be read: %s", file, strerror(errno));
        else if (folders ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode))
            st = mst_text_list_add(out, entry->d_name);
        else if (!folders && !S_ISDIR(info.st_mode))
            st = mst_fail(MST_EINPUT, "%s: is named like an image but is not a file", file);
        mst_free(file);
    }
    closedir(folder);
    if (st == MST_OK && out->n > 0)
        mst_text_list_sort(out, 0);
    return st;
}

/* Whether a folder has images, or, with `deep`, a folder with images and no files of its own. */
static bool has_images(const char *path, bool deep)
{
    bool found = false, plain = false;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return false;
    struct dirent *entry;
    while (!plain && (entry = readdir(folder)) != NULL) {
        struct stat info;
        if (entry->d_name[0] == '.' || (found && !deep))
            continue;
        char *child = mst_sprintf("%s/%s", path, entry->d_name);
        if (child != NULL && stat(child, &info) == 0) {
            plain = deep && S_ISREG(info.st_mode);
            found |= deep ? !found && S_ISDIR(info.st_mode) && has_images(child, false)
                          : S_ISREG(info.st_mode) && image_name(entry->d_name);
        }
        mst_free(child);
    }
    closedir(folder);
    return found && !plain;
}

static bool images_claims(const mst_text_list *patterns, bool unlabelled)
{
    for (size_t i = 0; i < patterns->n; i++) {
        const char *path = patterns->items[i];
        bool folder = mst_path_is_folder(path);
        if (!(folder && has_images(path, true)) &&
            !(unlabelled && (folder ? has_images(path, false) : image_name(mst_path_name(path)))))
            return false;
    }
    return patterns->n > 0;
}

/* Adds every class folder's name that is not there yet. */
static mst_status add_class_names(const char *path, mst_text_list *names)
{
    mst_text_list found = {0};
    mst_status st = list_folder(path, true, &found);
    for (size_t i = 0; i < found.n && st == MST_OK; i++) {
        bool known = false;
        for (size_t j = 0; j < names->n && !known; j++)
            known = strcmp(names->items[j], found.items[i]) == 0;
        if (!known)
            st = mst_text_list_add(names, found.items[i]);
    }
    mst_text_list_fini(&found);
    return st;
}

static mst_status add_file(images_dataset *d, char *path, uint32_t label)
{
    struct stat info;
    if (!mst_grow(&d->files.items, &d->file_capacity, d->files.n + 1, sizeof *d->files.items) ||
        !mst_grow(&d->labels, &d->label_capacity, d->files.n + 1, sizeof *d->labels)) {
        mst_free(path);
        return mst_fail_memory();
    }
    d->base.info.bytes += stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    d->labels[d->files.n] = label;
    d->files.items[d->files.n++] = path;
    return MST_OK;
}

/* The images in a folder. */
static mst_status images_add_folder(images_dataset *d, const char *path, uint32_t label)
{
    mst_text_list found = {0};
    mst_status st = list_folder(path, false, &found);
    for (size_t i = 0; i < found.n && st == MST_OK; i++) {
        char *file = mst_sprintf("%s/%s", path, found.items[i]);
        st = file != NULL ? add_file(d, file, label) : mst_fail_memory();
    }
    mst_text_list_fini(&found);
    return st;
}

/* The images of class `label` in folder/name, if there is such a folder. */
static mst_status add_class(images_dataset *d, const char *folder, const char *name, uint32_t label)
{
    mst_status st = MST_OK;
    char *path = mst_sprintf("%s/%s", folder, name);
    if (path == NULL)
        return mst_fail_memory();
    if (mst_path_is_folder(path))
        st = images_add_folder(d, path, label);
    mst_free(path);
    return st;
}

/* Images without classes: files, images in folders, and images in subfolders. */
static mst_status list_unlabelled(images_dataset *d, const mst_text_list *patterns)
{
    mst_status st = MST_OK;
    mst_text_list folders = {0}, files = {0};
    for (size_t i = 0; i < patterns->n; i++) {
        char *path = patterns->items[i];
        mst_text_list one = {.items = &path, .n = 1};
        if (mst_path_is_folder(path)) {
            TRY_OUT(st, images_add_folder(d, path, 0));
            TRY_OUT(st, list_folder(path, true, &folders));
            for (size_t j = 0; j < folders.n; j++)
                TRY_OUT(st, add_class(d, path, folders.items[j], 0));
        } else {
            TRY_OUT(st, mst_glob(&one, &files));
            for (size_t j = 0; j < files.n; j++) {
                char *file = mst_strdup(files.items[j]);
                TRY_OUT(st, file != NULL ? add_file(d, file, 0) : mst_fail_memory());
            }
        }
        mst_text_list_fini(&folders);
        mst_text_list_fini(&files);
        folders = files = (mst_text_list){0};
    }
    if (d->files.n == 0)
        st = mst_fail(MST_EINPUT, "%s: no images in it: their names end in .jpg, .jpeg or .png",
                      patterns->items[0]);
out:
    mst_text_list_fini(&folders);
    mst_text_list_fini(&files);
    return st;
}

/* With --image-classes, a folder of another name that has images would be left out in silence. */
static mst_status check_strangers(const char *folder, const mst_text_list *classes)
{
    mst_text_list found = {0};
    mst_status st = list_folder(folder, true, &found);
    for (size_t i = 0; i < found.n && st == MST_OK; i++) {
        bool known = false;
        for (size_t j = 0; j < classes->n && !known; j++)
            known = strcmp(classes->items[j], found.items[i]) == 0;
        char *path = mst_sprintf("%s/%s", folder, found.items[i]);
        if (path == NULL)
            st = mst_fail_memory();
        else if (!known && has_images(path, false))
            st = mst_fail(MST_EINPUT,
                          "%s: this folder of images is not one of the %zu classes (--image-classes)", path,
                          classes->n);
        mst_free(path);
    }
    mst_text_list_fini(&found);
    return st;
}

/* A folder without images is a class all the same, perhaps by mistake. */
static void warn_of_empty(const images_dataset *d, const mst_text_list *names)
{
    for (size_t j = 0; j < names->n && d->files.n > 0; j++) {
        size_t i = 0;
        while (i < d->files.n && d->labels[i] != j)
            i++;
        if (i == d->files.n)
            mst_warn("%s: its folder %s has no images but is still class %zu", d->base.name, names->items[j],
                     j);
    }
}

static mst_status list_images(images_dataset *d, const mst_text_list *folders, const mst_text_list *classes)
{
    mst_status st = MST_OK;
    mst_text_list names = {0};
    for (size_t i = 0; i < folders->n; i++)
        TRY_OUT(st, classes->n > 0 ? check_strangers(folders->items[i], classes)
                                   : add_class_names(folders->items[i], &names));
    for (size_t i = 0; i < classes->n; i++)
        TRY_OUT(st, mst_text_list_add(&names, classes->items[i]));
    if (classes->n == 0 && names.n > 0)
        mst_text_list_sort(&names, 0);
    for (size_t i = 0; i < folders->n; i++)
        for (size_t j = 0; j < names.n; j++)
            TRY_OUT(st, add_class(d, folders->items[i], names.items[j], (uint32_t)j));
    if (classes->n == 0)
        warn_of_empty(d, &names);
    if (d->files.n == 0)
        st = mst_fail(MST_EINPUT, "%s: no images in it; they are expected as %s/CLASS/NAME.jpg or .png",
                      folders->items[0], folders->items[0]);
    d->base.class_names = names.items;
    d->base.n_class_names = (uint32_t)names.n;
    names = (mst_text_list){0};
out:
    mst_text_list_fini(&names);
    return st;
}

/* ---- rows ---- */

mst_status mst_image_rows_init(mst_image_rows *self, const mst_data_options *options)
{
    *self = (mst_image_rows){.channels = options->image_gray ? 1 : 3,
                             .shorter = options->image_resize > 0 ? (uint32_t)options->image_resize : 0,
                             .warned = ATOMIC_FLAG_INIT};
    TRY(mst_parse_sides("image-size", options->image_size != NULL ? options->image_size : "224x224", NULL,
                        &self->height, &self->width));
    self->enough = self->height > self->width ? self->height : self->width;
    self->enough = self->shorter > self->enough ? self->shorter : self->enough;
    return MST_OK;
}

mst_status mst_image_rows_decode(mst_image_rows *self, const char *path, const uint8_t *data, size_t size,
                                 uint8_t *planes)
{
    mst_image image = {0};
    mst_status st;
    TRY_OUT(st, mst_image_decode(path, data, size, self->channels, self->enough, &image));
    if (image.warning[0] != '\0' && !atomic_flag_test_and_set(&self->warned))
        mst_warn("%s: %s; the readable part of the image is used; further images like it are not reported",
                 path, image.warning);
    st = mst_image_fit(&image, self->shorter, self->height, self->width, planes);
out:
    mst_free(image.pixels);
    return st;
}

static mst_status decode_file(images_dataset *d, const char *path, uint8_t *planes, size_t *bytes)
{
    char *data = NULL;
    mst_status st;
    TRY_OUT(st, mst_file_read_all(path, FILE_MAX, &data, bytes));
    st = mst_image_rows_decode(&d->rows, path, (const uint8_t *)data, *bytes, planes);
out:
    mst_free(data);
    return st;
}

static mst_status images_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    images_dataset *d = (images_dataset *)self;
    mst_chunk *chunk;
    size_t bytes = 0;
    TRY(mst_chunk_images_new(1, self->info.n_dense, false, &chunk));
    mst_chunk_image_label(chunk, 0, (float)d->labels[c]);
    mst_status st = decode_file(d, d->files.items[c], mst_chunk_image(chunk, 0), &bytes);
    if (st != MST_OK) {
        mst_chunk_release(chunk);
        return st;
    }
    chunk->bytes_read = bytes;
    *out = chunk;
    return MST_OK;
}

/* ---- life ---- */

static void images_destroy(mst_dataset *self)
{
    images_dataset *d = (images_dataset *)self;
    mst_text_list names = {.items = self->class_names, .n = self->n_class_names};
    mst_text_list_fini(&names);
    for (size_t i = 0; i < d->files.n; i++)
        mst_free(d->files.items[i]);
    mst_free(d->files.items);
    mst_free(d->labels);
    mst_free(self->name);
    mst_free(d);
}

static const mst_dataset_ops images_ops = {.load = images_load, .destroy = images_destroy};

const mst_text_list *mst_images_files(const mst_dataset *dataset)
{
    return dataset->ops == &images_ops ? &((const images_dataset *)dataset)->files : NULL;
}

static void fill_info(images_dataset *d)
{
    mst_data_info *info = &d->base.info;
    info->n_rows = d->files.n;
    info->channels = d->rows.channels;
    info->height = d->rows.height;
    info->width = d->rows.width;
    info->n_dense = d->rows.channels * d->rows.height * d->rows.width;
    info->n_features = info->n_dense;
    info->n_entries = info->n_rows * info->n_dense;
    info->min_label = info->max_label = (float)d->labels[0];
    for (size_t i = 0; i < d->files.n; i++) {
        float label = (float)d->labels[i];
        info->min_label = label < info->min_label ? label : info->min_label;
        info->max_label = label > info->max_label ? label : info->max_label;
        info->n_positive += label > 0.0f;
    }
    info->labels_integral = true;
    info->scanned = true;
    d->base.random = true;
    d->base.n_chunks = (uint32_t)d->files.n;
    d->base.chunk_rows = 1;
    d->base.window_rows = WINDOW_BYTES / info->n_dense + 1;
}

static mst_status open_folders(const mst_text_list *folders, const mst_data_options *options,
                               mst_dataset **out)
{
    mst_status st;
    images_dataset *d = mst_zalloc(sizeof *d);
    if (d == NULL)
        return mst_fail_memory();
    d->base.kind = &mst_data_images;
    d->base.ops = &images_ops;
    d->base.encoded = true;
    TRY_OUT(st, mst_image_rows_init(&d->rows, options));
    for (size_t i = 0; i < folders->n; i++)
        if (!options->unlabelled && !mst_path_is_folder(folders->items[i])) {
            st = mst_fail(MST_EINPUT, "%s: is not a folder, and images are read from FOLDER/CLASS/NAME.jpg",
                          folders->items[i]);
            goto out;
        }
    d->base.name = mst_paths_name(folders);
    if (d->base.name == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, options->unlabelled ? list_unlabelled(d, folders)
                                    : list_images(d, folders, &options->image_classes));
    if (d->files.n > UINT32_MAX) {
        st = mst_fail(MST_EINPUT, "%s: more than 2^32 images", d->base.name);
        goto out;
    }
    fill_info(d);
    *out = &d->base;
    d = NULL;
out:
    if (d != NULL)
        images_destroy(&d->base);
    return st;
}

static mst_status images_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    (void)self;
    return open_folders(source->patterns, source->options, out);
}

const mst_data_kind mst_data_images = {
    .name = "images",
    .help = "folders of JPEG and PNG files: FOLDER/CLASS/NAME.jpg",
    .capabilities = MST_DATA_PARSED | MST_DATA_FOLDERS | MST_DATA_FIXED_ROWS | MST_DATA_OWN_CLASSES,
    .reads = "image-size image-resize image-gray",
    .claims = images_claims,
    .open = images_open,
};
