/* PNG files to pixels, by libpng (contract: image.h).
 *
 * libpng reports errors by calling on_error, which jumps back into decode. Its memory comes from
 * base/alloc.h, its limits are set before the header is read. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "base/alloc.h"
#include "data/image.h"

#define CHUNK_MAX (8u << 20) /* bytes of a chunk besides the pixels */

typedef struct png_reader {
    png_structp png;
    png_infop info;
    const uint8_t *data;
    size_t size, at;
    char message[128], warning[128];
    uint8_t *pixels; /* being filled */
    bool no_memory;
} png_reader;

static void png_image_on_error(png_structp png, png_const_charp message)
{
    png_reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    png_reader *r = png_get_error_ptr(png);
    if (r->warning[0] == '\0')
        snprintf(r->warning, sizeof r->warning, "%s", message);
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t size)
{
    png_reader *r = png_get_mem_ptr(png);
    void *block = mst_alloc(size);
    r->no_memory |= block == NULL;
    return block;
}

static void on_free(png_structp png, png_voidp block)
{
    (void)png;
    mst_free(block);
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    png_reader *r = png_get_io_ptr(png);
    if (n > r->size - r->at)
        png_error(png, "the file ends early");
    memcpy(to, r->data + r->at, n);
    r->at += n;
}

/* 8 bits, `channels` channels, no alpha. */
static void set_transformations(png_structp png, png_infop info, uint32_t channels)
{
    png_byte type = png_get_color_type(png, info);
    png_set_expand(png); /* palettes, fewer bits than 8, transparent colours */
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    if (channels == 3 && (type & PNG_COLOR_MASK_COLOR) == 0)
        png_set_gray_to_rgb(png);
    if (channels == 1 && (type & PNG_COLOR_MASK_COLOR) != 0)
        png_set_rgb_to_gray_fixed(png, 1, -1, -1);
}

static mst_status png_image_read_pixels(png_reader *r, const char *path, uint32_t channels, mst_image *out)
{
    png_structp png = r->png;
    png_read_info(png, r->info);
    out->height = png_get_image_height(png, r->info);
    out->width = png_get_image_width(png, r->info);
    out->channels = channels;
    TRY(mst_image_check_sides(path, out->height, out->width));
    set_transformations(png, r->info, channels);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    size_t line = (size_t)out->width * channels;
    if (png_get_rowbytes(png, r->info) != line)
        return mst_fail(MST_EINPUT, "%s: a PNG image of an unknown kind", path);
    r->pixels = mst_zalloc(out->height * line);
    if (r->pixels == NULL)
        return mst_fail_memory();
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < out->height; y++)
            png_read_row(png, r->pixels + y * line, NULL);
    png_read_end(png, NULL);
    return MST_OK;
}

static mst_status png_image_decode(png_reader *r, const char *path, uint32_t channels, mst_image *out)
{
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, png_image_on_error, on_warning, r, on_malloc,
                                      on_free);
    if (r->png == NULL)
        return mst_fail_memory();
    if (setjmp(png_jmpbuf(r->png)) != 0)
        return r->no_memory
                   ? mst_fail_memory()
                   : mst_fail(MST_EINPUT, "%s: not a PNG image that can be read: %s", path, r->message);
    r->info = png_create_info_struct(r->png);
    if (r->info == NULL)
        return mst_fail_memory();
    png_set_user_limits(r->png, MST_IMAGE_SIDE_MAX, MST_IMAGE_SIDE_MAX);
    png_set_chunk_malloc_max(r->png, CHUNK_MAX);
    png_set_chunk_cache_max(r->png, 64);
    png_set_read_fn(r->png, r, on_read);
    return png_image_read_pixels(r, path, channels, out);
}

mst_status mst_image_png(const char *path, const uint8_t *data, size_t size, uint32_t channels,
                         mst_image *out)
{
    mst_image image = {0};
    png_reader *r = mst_zalloc(sizeof *r);
    if (r == NULL)
        return mst_fail_memory();
    r->data = data;
    r->size = size;
    mst_status st = png_image_decode(r, path, channels, &image);
    if (r->png != NULL)
        png_destroy_read_struct(&r->png, r->info != NULL ? &r->info : NULL, NULL);
    if (st == MST_OK) {
        image.pixels = r->pixels;
        snprintf(image.warning, sizeof image.warning, "%s", r->warning);
        *out = image;
    } else {
        mst_free(r->pixels);
    }
    mst_free(r);
    return st;
}
