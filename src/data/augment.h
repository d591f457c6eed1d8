/* Augmentation: changes to images between the dataset and the model.
 *
 *   --crop HxW      a part of each image: at random while training, the centre otherwise
 *   --crop-pad N    the part is cut out of the image with N black pixels added on every side
 *   --mirror        left and right exchanged in half of the rows; training only
 *   --normalise ... (x - mean) / deviation per channel, always
 *
 * The feed augments rows as it fills them for a lane, in the lane's memory: datasets and caches hold the
 * original images. The change to a row is a function of (seed, epoch, row number) alone. Rows stay bytes
 * unless they are normalised; an unchanged row is not copied. */
#ifndef MST_DATA_AUGMENT_H
#define MST_DATA_AUGMENT_H

#include "data/dataset.h"
#include "tensor/batch.h"

#define MST_AUGMENT_CHANNELS 16

typedef struct mst_augment_options {
    char *crop;       /* --crop HxW; NULL: whole images */
    int64_t crop_pad; /* --crop-pad */
    bool mirror;      /* --mirror */
    char *normalise;  /* --normalise none|auto|MEANS/DEVIATIONS */
} mst_augment_options;
extern const mst_option mst_augment_option_table[];

/* Read-only once made; any thread. */
typedef struct mst_augment {
    bool any; /* false: rows are unchanged, and nothing else here is set */
    uint32_t channels;
    uint32_t in_height, in_width; /* of the dataset's images */
    uint32_t height, width;       /* of the output, which is the model's input */
    uint32_t pad;
    bool mirror, normalise;
    float mean[MST_AUGMENT_CHANNELS], deviation[MST_AUGMENT_CHANNELS]; /* of numbers in [0, 1] where rows are
                                                                           bytes */
    uint64_t seed;
} mst_augment;

/* Checks the options against the dataset's images. "auto" reads a sample of the dataset (up to 65,536 rows
 * where loading is cheap, 512 elsewhere), the same one every time. MST_EUSAGE when the dataset's rows are not
 * images of known sides. */
mst_status mst_augment_init(mst_augment *self, const mst_augment_options *options, mst_dataset *dataset,
                            uint64_t seed);

/* The same for images of known sides without a dataset: name is for messages, and "auto" is MST_EUSAGE. */
mst_status mst_augment_init_for(mst_augment *self, const mst_augment_options *options, const char *name,
                                uint32_t channels, uint32_t height, uint32_t width);

/* The value of --normalise with the same effect: "none" or numbers. For manifests and checkpoints, so that
 * evaluation and prediction normalise like training. Freed with mst_free; NULL when memory is short. */
char *mst_augment_normalise_text(const mst_augment *self);

/* Numbers of a row before and after. */
static inline uint64_t mst_augment_in(const mst_augment *a)
{
    return (uint64_t)a->channels * a->in_height * a->in_width;
}
static inline uint64_t mst_augment_out(const mst_augment *a)
{
    return (uint64_t)a->channels * a->height * a->width;
}

/* A number of the output is scale * x + shift: x is a byte (unit MST_AUGMENT_BYTE) or a number (unit 1). */
#define MST_AUGMENT_BYTE (1.0f / 255.0f)
static inline float mst_augment_scale(const mst_augment *a, uint32_t channel, float unit)
{
    return a->normalise ? unit / a->deviation[channel] : 1.0f;
}
static inline float mst_augment_shift(const mst_augment *a, uint32_t channel)
{
    return a->normalise ? -a->mean[channel] / a->deviation[channel] : 0.0f;
}

/* The position of the output in the input, which may lie outside it by the padding; and whether it is
 * mirrored then. training: at random, by epoch and row number; otherwise the centre. */
typedef struct mst_crop {
    int64_t y, x;
    bool mirror;
} mst_crop;
mst_crop mst_augment_choose(const mst_augment *self, bool training, uint64_t epoch, uint64_t number);

/* Augments the row, which may then point into `memory` (mst_augment_out floats). training: at random, by
 * epoch and row number; otherwise the centre. The row has mst_augment_in dense numbers. */
void mst_augment_row(const mst_augment *self, bool training, uint64_t epoch, uint64_t number, void *memory,
                     mst_row *row);

#endif
