/* JPEG files to pixels, by libjpeg-turbo (contract: image.h).
 *
 * The library reports errors by calling error_exit, which must not return: it jumps back into decode.
 * Warnings (a file that ends early, a damaged block) are kept as one message. libjpeg uses its own
 * allocator; its memory is bounded by the sides, which are checked first, and by the number of scans of a
 * progressive file. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/alloc.h"
#include "data/image.h"

#define SCANS_MAX 200 /* of a progressive file: each costs a pass over the image */

typedef struct jpeg_reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char message[JMSG_LENGTH_MAX], warning[JMSG_LENGTH_MAX];
    uint8_t *pixels; /* being filled */
    uint8_t *line;   /* of a CMYK image */
} jpeg_reader;

static void jpeg_image_on_error(j_common_ptr info)
{
    jpeg_reader *r = info->client_data;
    r->errors.format_message(info, r->message);
    longjmp(r->back, 1);
}

static void jpeg_image_on_message(j_common_ptr info, int level)
{
    jpeg_reader *r = info->client_data;
    if (level < 0 && r->warning[0] == '\0')
        r->errors.format_message(info, r->warning);
}

static void on_output(j_common_ptr info)
{
    (void)info; /* nothing is printed */
}

static void jpeg_image_on_progress(j_common_ptr info)
{
    jpeg_reader *r = info->client_data;
    if (r->info.input_scan_number > SCANS_MAX) {
        snprintf(r->message, sizeof r->message, "more than %d scans", SCANS_MAX);
        longjmp(r->back, 1);
    }
}

/* The largest shrinking (8, 4, 2 or 1) that leaves both sides at least `enough`. */
static unsigned shrink_by(const struct jpeg_decompress_struct *info, uint32_t enough)
{
    unsigned by = 8;
    uint32_t least = info->image_width < info->image_height ? info->image_width : info->image_height;
    if (enough == 0)
        return 1;
    while (by > 1 && (least + by - 1) / by < enough)
        by /= 2;
    return by;
}

/* A line of CMYK, inverted as such files usually are, as 3 or 1 channels. */
static void from_cmyk(const uint8_t *line, uint32_t width, uint32_t channels, uint8_t *out)
{
    for (uint32_t x = 0; x < width; x++, line += 4) {
        unsigned k = line[3], r = line[0] * k / 255, g = line[1] * k / 255, b = line[2] * k / 255;
        if (channels == 1) {
            out[x] = (uint8_t)((299 * r + 587 * g + 114 * b) / 1000);
            continue;
        }
        out[3 * x] = (uint8_t)r;
        out[3 * x + 1] = (uint8_t)g;
        out[3 * x + 2] = (uint8_t)b;
    }
}

/* Sets the output up and decodes; jumps to r->back when libjpeg cannot continue. */
static mst_status jpeg_image_read_pixels(jpeg_reader *r, const char *path, uint32_t channels, uint32_t enough,
                                         mst_image *out)
{
    struct jpeg_decompress_struct *info = &r->info;
    TRY(mst_image_check_sides(path, info->image_height, info->image_width));
    bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    info->out_color_space = cmyk ? JCS_CMYK : channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    info->scale_num = 1;
    info->scale_denom = shrink_by(info, enough);
    jpeg_start_decompress(info);
    out->height = info->output_height;
    out->width = info->output_width;
    out->channels = channels;
    TRY(mst_image_check_sides(path, out->height, out->width));
    size_t line = (size_t)out->width * channels;
    r->pixels = mst_alloc(out->height * line);
    if (cmyk)
        r->line = mst_alloc((size_t)out->width * 4);
    if (r->pixels == NULL || (cmyk && r->line == NULL))
        return mst_fail_memory();
    while (info->output_scanline < info->output_height) {
        uint8_t *at = r->pixels + info->output_scanline * line;
        JSAMPROW rows[1] = {cmyk ? r->line : at};
        if (jpeg_read_scanlines(info, rows, 1) != 1)
            return mst_fail(MST_EINPUT, "%s: the JPEG image ends early", path);
        if (cmyk)
            from_cmyk(r->line, out->width, channels, at);
    }
    return MST_OK;
}

static mst_status jpeg_image_decode(jpeg_reader *r, const char *path, const uint8_t *data, size_t size,
                                    uint32_t channels, uint32_t enough, mst_image *out)
{
    if (setjmp(r->back) != 0)
        return r->errors.msg_code == JERR_OUT_OF_MEMORY
                   ? mst_fail_memory()
                   : mst_fail(MST_EINPUT, "%s: not a JPEG image that can be read: %s", path, r->message);
    jpeg_create_decompress(&r->info);
    r->info.client_data = r;
    r->info.progress = &r->progress;
    jpeg_mem_src(&r->info, data, (unsigned long)size);
    jpeg_read_header(&r->info, TRUE);
    return jpeg_image_read_pixels(r, path, channels, enough, out);
}

mst_status mst_image_jpeg(const char *path, const uint8_t *data, size_t size, uint32_t channels,
                          uint32_t enough, mst_image *out)
{
    mst_image image = {0};
    jpeg_reader *r = mst_zalloc(sizeof *r);
    if (r == NULL)
        return mst_fail_memory();
    r->info.err = jpeg_std_error(&r->errors);
    r->info.client_data = r;
    r->errors.error_exit = jpeg_image_on_error;
    r->errors.emit_message = jpeg_image_on_message;
    r->errors.output_message = on_output;
    r->progress.progress_monitor = jpeg_image_on_progress;
    mst_status st = jpeg_image_decode(r, path, data, size, channels, enough, &image);
    jpeg_destroy_decompress(&r->info);
    if (st == MST_OK) {
        image.pixels = r->pixels;
        snprintf(image.warning, sizeof image.warning, "%.*s", (int)sizeof image.warning - 1, r->warning);
        *out = image;
    } else {
        mst_free(r->pixels);
    }
    mst_free(r->line);
    mst_free(r);
    return st;
}
