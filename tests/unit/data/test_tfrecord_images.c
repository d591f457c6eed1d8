/* TFRecord rows that are images, raw or encoded: read as a dataset, against the pixels that were written. */
#include "data/dataset.h"
#include "data/images.h"
#include "data/tfrecord.h"
#include "example_writer.h"
#include "image_helpers.h"

static text file, features;

/* A pixel of channel c. */
static uint8_t pixel(uint32_t row, uint32_t y, uint32_t x, uint32_t c)
{
    return (uint8_t)(row * 31 + y * 7 + x * 3 + c * 80);
}

static void fill_pixels(uint8_t *to, uint32_t row, uint32_t h, uint32_t w, uint32_t channels)
{
    for (uint32_t y = 0; y < h; y++)
        for (uint32_t x = 0; x < w; x++)
            for (uint32_t c = 0; c < channels; c++)
                *to++ = pixel(row, y, x, c);
}

static void put_raw(uint32_t row, const char *prefix, const char *name, uint32_t h, uint32_t w,
                    uint32_t channels)
{
    uint8_t pixels[256];
    char side[32];
    fill_pixels(pixels, row, h, w, channels);
    snprintf(side, sizeof side, "%sheight", prefix);
    put_int(&features, side, h);
    snprintf(side, sizeof side, "%swidth", prefix);
    put_int(&features, side, w);
    snprintf(side, sizeof side, "%sdepth", prefix);
    put_int(&features, side, channels);
    put_value(&features, name, pixels, (size_t)h * w * channels);
}

static mst_status open_file(mst_data_options *options, mst_dataset **out)
{
    write_file("x.tfrecord", file.data, file.n);
    char *path = (char *)path_of("x.tfrecord");
    return mst_dataset_open(&(mst_text_list){.items = &path, .n = 1}, options, out);
}

typedef struct rows {
    uint32_t n, h, w, channels;
    bool smooth; /* JPEG: colours are near what was written */
} rows;

static mst_status check_rows(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    rows *r = arg;
    for (uint32_t i = 0; i < chunk->n_rows; i++, r->n++) {
        mst_row row;
        uint32_t number = (uint32_t)first_row + i;
        mst_chunk_row(chunk, i, &row);
        assert_int_equal(row.label, number % 3);
        assert_int_equal(row.n_keys, 0);
        assert_int_equal(row.n_dense, r->channels * r->h * r->w);
        assert_non_null(row.bytes);
        for (uint32_t c = 0; c < r->channels; c++)
            for (uint32_t y = 0; y < r->h; y++)
                for (uint32_t x = 0; x < r->w; x++)
                    assert_in_range(row.bytes[(c * r->h + y) * r->w + x] + 1 - pixel(number, y, x, c), 1, 1);
    }
    return MST_OK;
}

static void expect_images(mst_data_options *options, uint32_t n, rows expected, bool encoded)
{
    mst_dataset *d;
    assert_int_equal(open_file(options, &d), MST_OK);
    assert_int_equal(d->info.channels, expected.channels);
    assert_int_equal(d->info.height, expected.h);
    assert_int_equal(d->info.width, expected.w);
    assert_int_equal(d->info.n_features, expected.channels * expected.h * expected.w);
    assert_int_equal(d->encoded, encoded);
    assert_int_equal(mst_dataset_each(d, 2, check_rows, &expected), MST_OK);
    assert_int_equal(expected.n, n);
    assert_int_equal(mst_dataset_scan(d, 1), MST_OK); /* keeps the sides */
    assert_int_equal(d->info.height, expected.h);
    mst_dataset_destroy(d);
}

static void raw_pixels(void **state)
{
    (void)state;
    mst_data_options options = {0};
    file.n = 0;
    for (uint32_t row = 0; row < 40; row++) {
        put_int(&features, "label", row % 3);
        put_raw(row, "", "image_raw", 4, 5, 3);
        put_string(&features, "filename", "a.png");
        end_record(&file, &features);
    }
    expect_images(&options, 40, (rows){.h = 4, .w = 5, .channels = 3}, false);
    mst_dataset *d;
    assert_int_equal(open_file(&options, &d), MST_OK);
    assert_int_equal(d->left_out.n, 1);
    assert_string_equal(d->left_out.items[0], "filename");
    mst_dataset_destroy(d);
    /* other names, and no depth */
    file.n = 0;
    for (uint32_t row = 0; row < 3; row++) {
        uint8_t pixels[20];
        fill_pixels(pixels, row, 4, 5, 1);
        put_int(&features, "image/class/label", row % 3);
        put_int(&features, "image/height", 4);
        put_int(&features, "image/width", 5);
        put_value(&features, "picture", pixels, 20);
        end_record(&file, &features);
    }
    expect_images(&options, 3, (rows){.h = 4, .w = 5, .channels = 1}, false);
}

/* PNG keeps every pixel. */
static void encoded(void **state)
{
    (void)state;
    static uint8_t pixels[6 * 7 * 3];
    mst_data_options options = {.image_size = "6x7"};
    file.n = 0;
    for (uint32_t row = 0; row < 30; row++) {
        char *data;
        size_t n;
        fill_pixels(pixels, row, 6, 7, 3);
        write_png("one.png", 6, 7, PNG_FORMAT_RGB, pixels, NULL, 0);
        assert_int_equal(mst_file_read_all(path_of("one.png"), 1 << 20, &data, &n), MST_OK);
        put_value(&features, "image/encoded", data, n);
        put_int(&features, "image/height", 6);
        put_int(&features, "image/width", 7);
        put_int(&features, "image/class/label", row % 3);
        put_string(&features, "image/class/text", "thing");
        end_record(&file, &features);
        mst_free(data);
    }
    expect_images(&options, 30, (rows){.h = 6, .w = 7, .channels = 3}, true);
    options.tf_columns = "image/encoded"; /* chosen: nothing is left out */
    expect_images(&options, 30, (rows){.h = 6, .w = 7, .channels = 3}, true);
    options.tf_columns = NULL;
    options.image_gray = true;
    options.image_size = "3x2";
    mst_dataset *d;
    assert_int_equal(open_file(&options, &d), MST_OK);
    assert_int_equal(d->info.channels, 1);
    assert_int_equal(d->info.n_features, 6);
    mst_dataset_destroy(d);
}

static void jpeg_beside_columns(void **state)
{
    (void)state;
    static uint8_t pixels[16 * 16 * 3];
    char *data;
    size_t n;
    mst_dataset *d;
    mst_data_options options = {.image_size = "8x8"};
    memset(pixels, 200, sizeof pixels);
    write_jpeg("one.jpg", 16, 16, 3, pixels, false);
    assert_int_equal(mst_file_read_all(path_of("one.jpg"), 1 << 20, &data, &n), MST_OK);
    file.n = 0;
    put_value(&features, "photo", data, n);
    put_float(&features, "price", 3);
    put_string(&features, "colour", "red");
    put_int(&features, "label", 0);
    end_record(&file, &features);
    mst_free(data);
    assert_int_equal(open_file(&options, &d), MST_OK);
    assert_int_equal(d->info.n_features, 3 * 8 * 8);
    assert_int_equal(d->left_out.n, 2);
    mst_dataset_destroy(d);
    options.tf_columns = "price,colour";
    assert_int_equal(open_file(&options, &d), MST_OK);
    assert_int_equal(d->info.channels, 0);
    assert_int_equal(d->info.n_dense, 1);
    mst_dataset_destroy(d);
}

/* Reads all rows and expects a failure. */
static void expect_bad(const char *part)
{
    mst_data_options options = {0};
    mst_dataset *d;
    rows none = {0};
    assert_int_equal(open_file(&options, &d), MST_OK);
    none.h = d->info.height;
    none.w = d->info.width;
    none.channels = d->info.channels;
    assert_int_equal(mst_dataset_each(d, 1, check_rows, &none), MST_EINPUT);
    expect_text(part);
    assert_null(strstr(mst_error_text(), "folder,"));
    mst_dataset_destroy(d);
}

static void bad_images(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        static const char *const sentences[] = {
            "feature \"height\" is 2, and 4 in the first record: raw images must have one size",
            "the record has no image in feature \"image_raw\"",
            "feature \"image_raw\" does not hold bytes",
            "feature \"image_raw\" holds 20 bytes, and images of 4 x 5 x 3 are 60",
            "feature \"image_raw\" holds 2 images instead of one",
        };
        file.n = 0;
        put_int(&features, "label", 0);
        put_raw(0, "", "image_raw", 4, 5, 3);
        end_record(&file, &features);
        uint8_t pixels[60] = {0};
        put_int(&features, "label", 0);
        put_int(&features, "height", what == 0 ? 2 : 4);
        put_int(&features, "width", what == 0 ? 10 : 5);
        if (what == 2)
            put_int(&features, "image_raw", 1);
        else if (what != 1)
            put_value(&features, "image_raw", pixels, what == 3 ? 20 : 60);
        if (what == 4) {
            static text value;
            value.n = features.n = 0;
            put_int(&features, "label", 0);
            put_bytes(&value, pixels, 60);
            list_part.n = 0;
            put_part(&list_part, 1, &value);
            put_part(&list_part, 1, &value);
            put_feature(&features, "image_raw", 1);
        }
        end_record(&file, &features);
        expect_bad(sentences[what]);
    }
}

/* Pixels whose sides cannot be right are refused: without them the sides would be categories. */
static void impossible_sides(void **state)
{
    (void)state;
    static const struct {
        int64_t height, depth;
        const char *sentence;
    } cases[] = {
        {-4, 3, "the height of the image in record 1 is -4, which is impossible"},
        {(int64_t)1 << 40, 3, "the height of the image in record 1 is 1099511627776, which is impossible"},
        {4, 300, "the depth of the image in record 1 is 300, which is impossible"},
        {5, 3, "it holds 60 bytes, but its sides are 5 x 5 x 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const uint8_t pixels[60];
        mst_data_options options = {0};
        mst_dataset *d;
        file.n = 0;
        put_int(&features, "label", 0);
        put_int(&features, "height", cases[i].height);
        put_int(&features, "width", 5);
        put_int(&features, "depth", cases[i].depth);
        put_value(&features, "image_raw", pixels, sizeof pixels);
        end_record(&file, &features);
        assert_int_equal(open_file(&options, &d), MST_EINPUT);
        expect_text(cases[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_pixels),          cmocka_unit_test(encoded),
        cmocka_unit_test(jpeg_beside_columns), cmocka_unit_test(bad_images),
        cmocka_unit_test(impossible_sides),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
