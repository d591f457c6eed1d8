/* Small images for trainings in tests (trial.h). */
#ifndef MST_TESTS_TRIAL_IMAGES_H
#define MST_TESTS_TRIAL_IMAGES_H

#include "base/rng.h"
#include "trial.h"

static inline void trial_write_idx(const char *name, const uint8_t *head, size_t n_head, const uint8_t *data,
                                   size_t n)
{
    FILE *file = fopen(trial_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, n_head, file), n_head);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* train-images-idx3-ubyte and its labels: images of noise, side x side, in which bright columns, `columns` of
 * them, tell the class. */
static inline void trial_images(uint8_t n_rows, uint8_t side, uint8_t classes, uint8_t columns, uint64_t seed)
{
    const uint8_t images_head[] = {0, 0, 8, 3, 0, 0, 0, n_rows, 0, 0, 0, side, 0, 0, 0, side},
                  labels_head[] = {0, 0, 8, 1, 0, 0, 0, n_rows};
    size_t size = (size_t)side * side;
    uint8_t *images = mst_alloc(n_rows * size), labels[UINT8_MAX];
    assert_non_null(images);
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_TEST, 0);
    for (size_t i = 0; i < n_rows; i++) {
        labels[i] = (uint8_t)(i % classes);
        for (size_t p = 0; p < size; p++)
            images[i * size + p] =
                (uint8_t)(mst_rng_below(&rng, 120) + (p % side / columns == labels[i] ? 120 : 0));
    }
    trial_write_idx("train-images-idx3-ubyte", images_head, sizeof images_head, images, n_rows * size);
    trial_write_idx("train-labels-idx1-ubyte", labels_head, sizeof labels_head, labels, n_rows);
    mst_free(images);
}

#endif
