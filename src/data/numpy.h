/* NumPy's arrays as a random-access dataset: a .npy file of rows with its labels in another, or a .npz file
 * with both. Numbers of 8 bits without a sign are pixels (value / 255), others are taken as they are. Arrays
 * of three and four dimensions are images, [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels. */
#ifndef MST_DATA_NUMPY_H
#define MST_DATA_NUMPY_H

#include "data/dataset.h"

extern const mst_data_kind mst_data_numpy;

#endif
