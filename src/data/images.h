/* A folder of images as a random-access dataset: FOLDER/CLASS/NAME.jpg, .jpeg or .png. The class folders
 * sorted by name are the labels 0, 1, ..., unless --image-classes names them in order. A row is an image
 * resized and cut to --image-size around its centre, as bytes, plane after plane: red, green, blue, or
 * brightness alone.
 *
 * Loading a row reads and decodes its file, so the feed's threads do it ahead. A file that is not a readable
 * image is MST_EINPUT naming it; a partly readable one is used, and a warning names the first. Orientation
 * tags are ignored. */
#ifndef MST_DATA_IMAGES_H
#define MST_DATA_IMAGES_H

#include "data/dataset.h"

/* The conversion of encoded images to rows of one size. */
typedef struct mst_image_rows {
    uint32_t channels, height, width;
    uint32_t shorter, enough; /* the shorter side wanted (0: any); the least that decoding must give */
    atomic_flag warned;
} mst_image_rows;

/* From --image-size, --image-resize and --image-gray; MST_EUSAGE for an impossible size. */
mst_status mst_image_rows_init(mst_image_rows *self, const mst_data_options *options);

/* Decodes a JPEG or PNG image to channels x height x width bytes. path is for messages. The first image that
 * can be read only in part is named in a warning. Any thread. */
mst_status mst_image_rows_decode(mst_image_rows *self, const char *path, const uint8_t *data, size_t size,
                                 uint8_t *planes);

/* Claims patterns that are all folders without files of their own that have a folder with images in it;
 * unlabelled: or folders with images, or names of images.
 *
 * Opens several folders as one dataset; classes of the same name are one class. With options->unlabelled the
 * images may also lie in the folders themselves, patterns may be files, and there are no classes. The files
 * are listed and not opened. MST_EINPUT when there are none, or when a folder that --image-classes does not
 * name has images; MST_EUSAGE for an impossible --image-size. */
extern const mst_data_kind mst_data_images;

/* The files of such a dataset, in order of rows; borrowed. NULL when it is another kind of dataset. */
const mst_text_list *mst_images_files(const mst_dataset *dataset);

/* Reads "HxW" or "CxHxW" (c not NULL; 1 without a C): each side from 1 to 8192. MST_EUSAGE names the option.
 */
mst_status mst_parse_sides(const char *option, const char *text, uint32_t *c, uint32_t *h, uint32_t *w);

#endif
