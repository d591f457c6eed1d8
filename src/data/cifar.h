/* CIFAR's binary files as a random-access dataset: images of 3 x 32 x 32 bytes, planes red, green, blue.
 *
 * CIFAR-10: records of 3073 bytes, a label below 10 and the image. CIFAR-100: records of 3074 bytes, a coarse
 * label below 20, a fine one below 100, and the image; --cifar-label selects the row's label. */
#ifndef MST_DATA_CIFAR_H
#define MST_DATA_CIFAR_H

#include "data/dataset.h"

#define MST_CIFAR_SIDE   32
#define MST_CIFAR_PIXELS 3072 /* of all three planes */

typedef enum mst_cifar_kind {
    MST_CIFAR_10 = 10,
    MST_CIFAR_100 = 100,
} mst_cifar_kind;

/* By content: the length is that of whole records and the labels of the records in sight are in range. */
extern const mst_data_kind mst_data_cifar10, mst_data_cifar100;

/* *out is the caller's to destroy; set only on MST_OK. A cut-off record or a label out of range is
 * MST_EINPUT. All files are of the kind given. Chunks may outlive the dataset. */
mst_status mst_cifar_open(const mst_text_list *paths, mst_cifar_kind kind, const mst_data_options *options,
                          mst_dataset **out);

#endif
