/* Images in memory: JPEG and PNG files to 8-bit pixels, and those to rows of a fixed size.
 *
 * Everything is safe on any bytes; sides are checked against the limits below before anything of their size
 * is allocated. All functions may be called from any thread. */
#ifndef MST_DATA_IMAGE_H
#define MST_DATA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_IMAGE_SIDE_MAX 20000u              /* pixels along a side of a file's image */
#define MST_IMAGE_AREA_MAX ((uint64_t)1 << 26) /* pixels of a file's image */

/* Rows of pixels from top to bottom, channels next to each other. */
typedef struct mst_image {
    uint32_t height, width, channels;
    uint8_t *pixels;   /* freed with mst_free */
    char warning[160]; /* the decoder's warning; "": none */
} mst_image;

/* Whether the bytes begin as a JPEG or PNG file does. */
bool mst_image_sniff(const uint8_t *data, size_t size);

/* Decodes a JPEG or PNG file, recognised by content, to 3 channels or 1. Alpha is dropped, 16 bits become 8.
 * A JPEG may come shrunk by 2, 4 or 8 as long as both sides stay at least `enough` (0: never): decoding then
 * costs a fraction. path is for messages. MST_EINPUT when the bytes are not a readable image; a damaged one
 * that can still be decoded is MST_OK with a warning. out->pixels is the caller's to free; set only on
 * MST_OK. */
mst_status mst_image_decode(const char *path, const uint8_t *data, size_t size, uint32_t channels,
                            uint32_t enough, mst_image *out);

/* Resizes the image so that its shorter side is `shorter`, or as large as it takes to cover height x width,
 * cuts that out of the centre, and writes it plane after plane: channels x height x width bytes. Uses a
 * triangle filter scaled by the reduction factor (bilinear when enlarging). height and width at
 * least 1. MST_ENOMEM. */
mst_status mst_image_fit(const mst_image *image, uint32_t shorter, uint32_t height, uint32_t width,
                         uint8_t *planes);

/* The decoders behind mst_image_decode. */
mst_status mst_image_jpeg(const char *path, const uint8_t *data, size_t size, uint32_t channels,
                          uint32_t enough, mst_image *out);
mst_status mst_image_png(const char *path, const uint8_t *data, size_t size, uint32_t channels,
                         mst_image *out);

/* Checks the sides in a file's header. */
mst_status mst_image_check_sides(const char *path, uint64_t height, uint64_t width);

#endif
