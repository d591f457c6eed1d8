/* Generators: data that is a function of a seed. Row i of a generator depends on (seed, i) and the shape
 * options alone, never on threads, on slices or on how many rows are made.
 *
 * Rows come as chunks in order of row number, made by n_threads threads; fn is called on the calling thread.
 * first_row is the absolute row number, options->first_row included. The first failure, of fn too, ends the
 * run. */
#ifndef MST_DATA_GEN_H
#define MST_DATA_GEN_H

#include "data/dataset.h"

/* Makes the chunk of rows [first_row, first_row + n); the builder is the calling thread's own, empty. */
typedef mst_status mst_gen_make(const void *self, uint64_t first_row, uint32_t n, mst_chunk_builder *builder,
                                mst_chunk **out);

/* Runs a generator: n_threads make chunks in parallel, and fn gets them in order. */
mst_status mst_gen_run(uint64_t first_row, uint64_t rows, uint32_t chunk_rows, unsigned n_threads,
                       mst_gen_make *make, const void *self, mst_chunk_fn *fn, void *arg);

/* ---- criteo: click logs ----
 * 13 numeric features (keys 0..12, always present, log-scaled to [0, 5], two decimals), then 26 categorical
 * fields with one key each and Zipf popularity. The fields' vocabularies follow those of Criteo's public
 * click log and sum to features - 13. Within a field the popular keys come first, as they do where keys are
 * numbered by first appearance, which is how that log gets its 33,762,578 features. Labels
 * 0/1 are drawn from a planted logistic model whose weight of a feature is a function of (seed, key); bias
 * and scale are set so that always answering 0 is right for 74% of the rows and the planted model for 79%.
 *
 * scatter: the keys of a field are renumbered, so that popular ones are spread over it, as hashing does; rows
 * are the same otherwise.
 *
 * interactions > 0: the planted model is a factorisation machine. Categories that this share of the rows or
 * more are expected to have own a weight and MST_GEN_CRITEO_RANK factors; others have neither. The factors of
 * a field average to zero over its rows, so that a linear model explains none of the second-order part, which
 * varies as much as the linear part. The scale is set for a loss of 0.45. */

#define MST_GEN_CRITEO_NUMERIC  13
#define MST_GEN_CRITEO_FIELDS   26
#define MST_GEN_CRITEO_FEATURES 33762578 /* the public data set's */
#define MST_GEN_CRITEO_RANK     8

typedef struct mst_gen_criteo_options {
    uint64_t rows, first_row;
    uint64_t features; /* 128 .. 2^32 - 1 */
    uint64_t seed;
    bool scatter;
    double interactions;  /* 0 .. 0.01 */
    unsigned n_threads;   /* 0 counts as 1 */
    double *planted_loss; /* mean log loss of the planted model on the rows; set on MST_OK; or NULL */
} mst_gen_criteo_options;

mst_status mst_gen_criteo(const mst_gen_criteo_options *options, mst_chunk_fn *fn, void *arg);

/* The model that the labels are drawn from, by features, seed, scatter and interactions; *out is the caller's
 * to destroy. */
typedef struct mst_gen_criteo_model mst_gen_criteo_model;
mst_status mst_gen_criteo_model_new(const mst_gen_criteo_options *options, mst_gen_criteo_model **out);
void mst_gen_criteo_model_destroy(mst_gen_criteo_model *model); /* NULL-safe */
/* Log-odds of label 1 for a row of that data. */
double mst_gen_criteo_planted_margin(const mst_gen_criteo_model *model, const mst_row *row);
/* First key and number of keys of a categorical field. */
void mst_gen_criteo_field(const mst_gen_criteo_model *model, unsigned field, uint32_t *first, uint32_t *size);

/* ---- digits: handwriting-like images ----
 * 28 x 28 bytes, classes 0..9 in equal parts on average, drawn with a pen of random width along strokes that
 * are shifted, scaled, slanted, turned and bent at random, with noise. */

#define MST_GEN_DIGIT_SIDE   28
#define MST_GEN_DIGIT_PIXELS (MST_GEN_DIGIT_SIDE * MST_GEN_DIGIT_SIDE)

typedef struct mst_gen_digits_options {
    uint64_t rows, first_row;
    uint64_t seed;
    unsigned n_threads;
} mst_gen_digits_options;

/* Rows with n_dense = 784 bytes. */
mst_status mst_gen_digits_rows(const mst_gen_digits_options *options, mst_chunk_fn *fn, void *arg);

/* The four MNIST-named IDX files in `folder` (made when absent): images [0, n_train) and [n_train, n_train +
 * n_test). Each file appears whole or not at all. observe, unless NULL, is called like fn above with every
 * chunk before it is written, to show progress or, by failing, to stop: then none of the files appears. */
mst_status mst_gen_digits(const char *folder, uint32_t n_train, uint32_t n_test, uint64_t seed,
                          mst_chunk_fn *observe, void *arg);

/* Draws image number `index`; returns its class. */
unsigned mst_gen_digit(uint64_t seed, uint64_t index, uint8_t pixels[MST_GEN_DIGIT_PIXELS]);

/* ---- images: fake ImageNet ----
 * Every class has a coarse random pattern of colours; an image is that pattern, blown up, moved a little,
 * with a contrast and a brightness of its own, coarse noise and fine noise. Whole runs of `classes` rows,
 * counted from row 0, have every class once. */

typedef struct mst_gen_images_options {
    uint64_t rows, first_row;
    uint32_t classes;                 /* 2 .. 10000 */
    uint32_t channels, height, width; /* channels 1 .. 16, sides 1 .. 8192, 2^26 numbers at most */
    uint64_t seed;
    unsigned n_threads;
} mst_gen_images_options;

/* Rows of bytes. */
mst_status mst_gen_images(const mst_gen_images_options *options, mst_chunk_fn *fn, void *arg);

/* The same rows without their bytes: a file of some 100 bytes with the options, which is opened like any
 * other data and generates rows as they are loaded. Names end in .gen by custom. */
mst_status mst_gen_images_save(const mst_gen_images_options *options, const char *path);
extern const mst_data_kind mst_data_gen;
/* *out is the caller's to destroy; set only on MST_OK. MST_EINPUT names path and line. Several files
 * must agree on classes and sides, and all but the last must end on a whole chunk. */
mst_status mst_gen_images_open(const mst_text_list *paths, mst_dataset **out);

/* ---- blobs: Gaussian classes ---- */

typedef struct mst_gen_blobs_options {
    uint64_t rows, first_row;
    uint32_t dims;    /* 1 .. 65536; every row has all of them */
    uint32_t classes; /* 2 .. 65536 */
    double spread;    /* standard deviation of the class centres, in units of the noise around them; > 0 */
    uint64_t seed;
    unsigned n_threads;
} mst_gen_blobs_options;

/* Labels are class numbers; values have three decimals. */
mst_status mst_gen_blobs(const mst_gen_blobs_options *options, mst_chunk_fn *fn, void *arg);

#endif
