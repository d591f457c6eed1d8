/* Shared by the tests of images: a temporary folder with JPEG and PNG files. */
#ifndef TESTS_IMAGE_HELPERS_H
#define TESTS_IMAGE_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

#include "base/alloc.h"
#include "base/file.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-images-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

static inline const char *path_of(const char *name)
{
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void make_folder(const char *name)
{
    assert_int_equal(mst_make_folders(path_of(name)), MST_OK);
}

static inline void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* pixels: height x width x channels. */
static inline void write_jpeg(const char *name, uint32_t height, uint32_t width, uint32_t channels,
                              const uint8_t *pixels, bool progressive)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, f);
    info.image_width = width;
    info.image_height = height;
    info.input_components = (int)channels;
    info.in_color_space = channels == 3 ? JCS_RGB : channels == 4 ? JCS_CMYK : JCS_GRAYSCALE;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    if (progressive)
        jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    for (uint32_t y = 0; y < height; y++) {
        JSAMPROW row = (JSAMPROW)(pixels + (size_t)y * width * channels);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    assert_int_equal(fclose(f), 0);
}

/* format: PNG_FORMAT_... of the pixels; 16 bits with the LINEAR ones. */
static inline void write_png(const char *name, uint32_t height, uint32_t width, uint32_t format,
                             const void *pixels, const void *colours, uint32_t n_colours)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = width,
                       .height = height,
                       .format = format,
                       .colormap_entries = n_colours};
    assert_int_not_equal(png_image_write_to_file(&image, path_of(name), 0, pixels, 0, colours), 0);
}

static inline void expect_text(const char *part)
{
    if (strstr(mst_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, mst_error_text());
}

#endif
