/* Images: decoding of every kind of file, resizing, folders as datasets, and the sentences of bad ones. */
#include "image_helpers.h"

#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "data/cache.h"
#include "data/feed.h"
#include "data/image.h"
#include "data/images.h"

/* ---- decoding ---- */

static mst_status decode(const char *name, uint32_t channels, uint32_t enough, mst_image *out)
{
    char *data;
    size_t size;
    assert_int_equal(mst_file_read_all(path_of(name), 1 << 24, &data, &size), MST_OK);
    mst_status st = mst_image_decode(path_of(name), (const uint8_t *)data, size, channels, enough, out);
    mst_free(data);
    return st;
}

/* Red grows along x, green along y, blue is 128. */
static uint8_t *gradient(uint32_t height, uint32_t width)
{
    uint8_t *pixels = malloc((size_t)height * width * 3);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            uint8_t *p = pixels + ((size_t)y * width + x) * 3;
            p[0] = (uint8_t)(x * 255 / (width - 1));
            p[1] = (uint8_t)(y * 255 / (height - 1));
            p[2] = 128;
        }
    return pixels;
}

static void assert_near(int a, int b, int most)
{
    if (abs(a - b) > most)
        fail_msg("%d is not within %d of %d", a, most, b);
}

static void test_jpeg(void **state)
{
    (void)state;
    mst_image image;
    uint8_t *pixels = gradient(48, 64);
    for (int progressive = 0; progressive < 2; progressive++) {
        write_jpeg("a.jpg", 48, 64, 3, pixels, progressive);
        assert_int_equal(decode("a.jpg", 3, 0, &image), MST_OK);
        assert_int_equal(image.height, 48);
        assert_int_equal(image.width, 64);
        assert_string_equal(image.warning, "");
        for (uint32_t i = 0; i < 48 * 64 * 3; i++)
            assert_near(image.pixels[i], pixels[i], 12);
        mst_free(image.pixels);
    }
    /* shrunk by 2 for 20 pixels, by 4 for 12, never below what is enough */
    static const uint32_t enough[] = {48, 24, 20, 12, 6, 1}, height[] = {48, 24, 24, 12, 6, 6};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(decode("a.jpg", 3, enough[i], &image), MST_OK);
        assert_int_equal(image.height, height[i]);
        mst_free(image.pixels);
    }
    assert_int_equal(decode("a.jpg", 1, 0, &image), MST_OK);
    assert_int_equal(image.channels, 1);
    const uint8_t *p = pixels + (20 * 64 + 30) * 3;
    assert_near(image.pixels[20 * 64 + 30], (299 * p[0] + 587 * p[1] + 114 * p[2]) / 1000, 6);
    mst_free(image.pixels);
    free(pixels);
    uint8_t gray[16 * 16], cmyk[16 * 16 * 4];
    memset(gray, 200, sizeof gray);
    write_jpeg("gray.jpg", 16, 16, 1, gray, false);
    assert_int_equal(decode("gray.jpg", 3, 0, &image), MST_OK);
    assert_near(image.pixels[100], 200, 3);
    mst_free(image.pixels);
    for (int i = 0; i < 256; i++)
        memcpy(cmyk + 4 * i, (uint8_t[]){255, 128, 0, 200}, 4);
    write_jpeg("cmyk.jpg", 16, 16, 4, cmyk, false);
    assert_int_equal(decode("cmyk.jpg", 3, 0, &image), MST_OK);
    assert_near(image.pixels[0], 200, 4);
    assert_near(image.pixels[1], 100, 4);
    assert_near(image.pixels[2], 0, 4);
    mst_free(image.pixels);
    assert_int_equal(decode("cmyk.jpg", 1, 0, &image), MST_OK);
    assert_near(image.pixels[0], (299 * 200 + 587 * 100) / 1000, 4);
    mst_free(image.pixels);
}

static void test_png(void **state)
{
    (void)state;
    mst_image image;
    enum { H = 5, W = 7 };
    uint8_t rgb[H * W * 3], rgba[H * W * 4], gray[H * W], mapped[H * W];
    uint16_t deep[H * W * 3];
    for (uint32_t i = 0; i < H * W; i++) {
        for (uint32_t c = 0; c < 3; c++)
            rgb[3 * i + c] = rgba[4 * i + c] = (uint8_t)(i * 7 + c * 50);
        rgba[4 * i + 3] = (uint8_t)(255 - i);
        gray[i] = (uint8_t)(i * 5);
        mapped[i] = i % 2;
        for (uint32_t c = 0; c < 3; c++)
            deep[3 * i + c] = i % 2 ? 65535 : 0;
    }
    write_png("rgb.png", H, W, PNG_FORMAT_RGB, rgb, NULL, 0);
    write_png("rgba.png", H, W, PNG_FORMAT_RGBA, rgba, NULL, 0);
    write_png("gray.png", H, W, PNG_FORMAT_GRAY, gray, NULL, 0);
    write_png("map.png", H, W, PNG_FORMAT_RGB_COLORMAP, mapped, (uint8_t[]){10, 20, 30, 40, 50, 60}, 2);
    write_png("deep.png", H, W, PNG_FORMAT_LINEAR_RGB, deep, NULL, 0);
    for (int alpha = 0; alpha < 2; alpha++) {
        assert_int_equal(decode(alpha ? "rgba.png" : "rgb.png", 3, 1, &image), MST_OK);
        assert_int_equal(image.height, H);
        assert_int_equal(image.width, W);
        assert_memory_equal(image.pixels, rgb, sizeof rgb);
        mst_free(image.pixels);
    }
    assert_int_equal(decode("gray.png", 1, 0, &image), MST_OK);
    assert_memory_equal(image.pixels, gray, sizeof gray);
    mst_free(image.pixels);
    assert_int_equal(decode("gray.png", 3, 0, &image), MST_OK);
    assert_int_equal(image.pixels[3 * 4 + 1], gray[4]);
    mst_free(image.pixels);
    assert_int_equal(decode("map.png", 3, 0, &image), MST_OK);
    assert_memory_equal(image.pixels, ((uint8_t[]){10, 20, 30, 40, 50, 60}), 6);
    mst_free(image.pixels);
    assert_int_equal(decode("deep.png", 3, 0, &image), MST_OK);
    assert_memory_equal(image.pixels, ((uint8_t[]){0, 0, 0, 255, 255, 255}), 6);
    mst_free(image.pixels);
    assert_int_equal(decode("rgb.png", 1, 0, &image), MST_OK);
    assert_int_equal(image.channels, 1);
    mst_free(image.pixels);
}

static void cut_file(const char *from, const char *to, size_t n)
{
    char *data;
    size_t size;
    assert_int_equal(mst_file_read_all(path_of(from), 1 << 24, &data, &size), MST_OK);
    assert_true(n < size);
    write_file(to, data, n);
    mst_free(data);
}

static void test_damaged(void **state)
{
    (void)state;
    mst_image image = {0};
    uint8_t *pixels = gradient(64, 64);
    write_jpeg("a.jpg", 64, 64, 3, pixels, false);
    write_png("a.png", 64, 64, PNG_FORMAT_RGB, pixels, NULL, 0);
    free(pixels);
    cut_file("a.jpg", "half.jpg", 1000); /* what is there can be shown */
    assert_int_equal(decode("half.jpg", 3, 0, &image), MST_OK);
    assert_string_not_equal(image.warning, "");
    mst_free(image.pixels);
    image.pixels = NULL;
    cut_file("a.jpg", "head.jpg", 20);
    assert_int_equal(decode("head.jpg", 3, 0, &image), MST_EINPUT);
    expect_text("head.jpg: not a JPEG image that can be read: ");
    cut_file("a.png", "half.png", 60);
    assert_int_equal(decode("half.png", 3, 0, &image), MST_EINPUT);
    expect_text("half.png: not a PNG image that can be read: the file ends early");
    assert_null(image.pixels);
    write_file("text.jpg", "hello", 5);
    assert_int_equal(decode("text.jpg", 3, 0, &image), MST_EINPUT);
    expect_text("text.jpg: neither a JPEG nor a PNG image");
    uint8_t *huge = calloc(1, 20001);
    write_png("huge.png", 1, 20001, PNG_FORMAT_GRAY, huge, NULL, 0);
    free(huge);
    assert_int_equal(decode("huge.png", 3, 0, &image), MST_EINPUT);
    expect_text("huge.png");
}

/* ---- resizing ---- */

static void test_fit(void **state)
{
    (void)state;
    uint8_t planes[3 * 64 * 64];
    uint8_t *pixels = gradient(40, 80);
    mst_image image = {.height = 40, .width = 80, .channels = 3, .pixels = pixels};
    assert_int_equal(mst_image_fit(&image, 0, 40, 80, planes), MST_OK); /* as it is */
    for (uint32_t i = 0; i < 40 * 80; i++)
        for (uint32_t c = 0; c < 3; c++)
            assert_int_equal(planes[c * 40 * 80 + i], pixels[3 * i + c]);
    assert_int_equal(mst_image_fit(&image, 0, 20, 20, planes), MST_OK); /* the middle 40 x 40, halved */
    for (uint32_t y = 0; y < 20; y++)
        for (uint32_t x = 0; x < 20; x++) {
            if (x > 0 && x < 19)
                assert_near(planes[y * 20 + x], (int)((20 + 2 * x + 0.5) * 255 / 79), 2);
            if (y > 0 && y < 19)
                assert_near(planes[400 + y * 20 + x], (int)((2 * y + 0.5) * 255 / 39), 4);
            assert_int_equal(planes[800 + y * 20 + x], 128);
        }
    assert_int_equal(mst_image_fit(&image, 20, 10, 10, planes), MST_OK); /* 20 x 40, then its centre */
    assert_near(planes[55], (int)((15 + 5 + 0.5) * 255 / 39), 4);
    assert_int_equal(mst_image_fit(&image, 0, 64, 64, planes), MST_OK); /* enlarged */
    assert_int_equal(planes[2 * 4096 + 100], 128);
    assert_int_equal(mst_image_fit(&image, 0, 1, 2, planes), MST_OK);
    assert_near(planes[0] + planes[1], 255, 4);
    assert_near(planes[2], 127, 3);
    free(pixels);
    /* a checkerboard shrinks to gray: every pixel counts */
    uint8_t board[64 * 64];
    for (uint32_t i = 0; i < 64 * 64; i++)
        board[i] = (i / 64 + i) % 2 ? 255 : 0;
    mst_image checks = {.height = 64, .width = 64, .channels = 1, .pixels = board};
    assert_int_equal(mst_image_fit(&checks, 0, 8, 8, planes), MST_OK);
    for (uint32_t i = 0; i < 64; i++)
        assert_near(planes[i], 127, 3);
    uint8_t one = 77; /* a single pixel fills everything */
    mst_image dot = {.height = 1, .width = 1, .channels = 1, .pixels = &one};
    assert_int_equal(mst_image_fit(&dot, 0, 3, 5, planes), MST_OK);
    for (uint32_t i = 0; i < 15; i++)
        assert_int_equal(planes[i], 77);
}

static void test_sides(void **state)
{
    (void)state;
    uint32_t c, h, w;
    assert_int_equal(mst_parse_sides("crop", "24x32", NULL, &h, &w), MST_OK);
    assert_true(h == 24 && w == 32);
    assert_int_equal(mst_parse_sides("size", "3x224x220", &c, &h, &w), MST_OK);
    assert_true(c == 3 && h == 224 && w == 220);
    assert_int_equal(mst_parse_sides("size", "28x28", &c, &h, &w), MST_OK);
    assert_int_equal(c, 1);
    static const char *const bad[] = {"",        "x",      "24",   "24x",  "x24",  "0x3",
                                      "3x3x3x3", "8193x2", "3x-4", "3x4y", "3 x 4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mst_parse_sides("size", bad[i], &c, &h, &w), MST_EUSAGE);
    assert_int_equal(mst_parse_sides("crop", "3x4x5", NULL, &h, &w), MST_EUSAGE);
    expect_text("--crop 3x4x5: give HxW, such as 224x224, with sides from 1 to 8192");
}

/* ---- folders ---- */

static void write_plain(const char *name, uint8_t r, uint8_t g, uint8_t b, bool png)
{
    uint8_t pixels[20 * 24 * 3];
    for (uint32_t i = 0; i < 20 * 24; i++)
        memcpy(pixels + 3 * i, (uint8_t[]){r, g, b}, 3);
    if (png)
        write_png(name, 20, 24, PNG_FORMAT_RGB, pixels, NULL, 0);
    else
        write_jpeg(name, 20, 24, 3, pixels, false);
}

/* Classes ant, bee and cat with 3, 2 and 4 images; the red of an image tells which it is. */
static void make_tree(void)
{
    make_folder("set/bee");
    make_folder("set/ant");
    make_folder("set/cat");
    static const char *const names[] = {"set/ant/1.png",  "set/ant/2.PNG",  "set/ant/3.jpg",
                                        "set/bee/1.jpeg", "set/bee/2.JPEG", "set/cat/a.png",
                                        "set/cat/b.png",  "set/cat/c.png",  "set/cat/d.png"};
    for (int i = 0; i < 9; i++)
        write_plain(names[i], (uint8_t)(20 * i), 100, 200, strcasestr(names[i], "png") != NULL);
    write_file("set/cat/readme.txt", "no image", 8);
    write_file("set/cat/.hidden.png", "no image", 8);
}

static mst_status open_folder(const char *name, mst_data_options *options, mst_dataset **out)
{
    char *items[] = {(char *)path_of(name)};
    mst_text_list list = {.items = items, .n = 1};
    return mst_dataset_open(&list, options, out);
}

static void check_tree(mst_dataset *d)
{
    static const float labels[] = {0, 0, 0, 1, 1, 2, 2, 2, 2};
    assert_true(d->random);
    assert_int_equal(d->info.n_rows, 9);
    assert_true(d->info.channels == 3 && d->info.height == 8 && d->info.width == 6);
    assert_int_equal(d->info.n_dense, 3 * 8 * 6);
    assert_true(d->info.scanned && d->info.max_label == 2 && d->info.n_positive == 6);
    assert_int_equal(d->n_class_names, 3);
    assert_string_equal(d->class_names[0], "ant");
    assert_string_equal(d->class_names[2], "cat");
    uint32_t number = 0;
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        mst_chunk *chunk;
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        for (uint32_t i = 0; i < chunk->n_rows; i++, number++) {
            mst_row row;
            mst_chunk_row(chunk, i, &row);
            assert_true(row.label == labels[number]);
            assert_int_equal(row.n_dense, 3 * 8 * 6);
            assert_near(row.bytes[10], (int)(20 * number), 3);
            assert_near(row.bytes[48 + 47], 100, 3);
            assert_near(row.bytes[96], 200, 3);
        }
        mst_chunk_release(chunk);
    }
    assert_int_equal(number, 9);
}

static void test_folder(void **state)
{
    (void)state;
    mst_dataset *d, *cached;
    make_tree();
    mst_data_options options = {.format = "auto", .image_size = "8x6"};
    assert_int_equal(open_folder("set", &options, &d), MST_OK);
    assert_string_equal(d->kind->name, "images");
    check_tree(d);
    char *items[] = {(char *)path_of("set")};
    mst_text_list list = {.items = items, .n = 1};
    assert_int_equal(mst_cache_for(d, &list, &options, path_of("caches"), 2, &cached), MST_OK);
    mst_dataset_destroy(d);
    check_tree(cached);
    mst_dataset_destroy(cached);
    options.image_gray = true;
    assert_int_equal(open_folder("set", &options, &d), MST_OK);
    assert_int_equal(d->info.channels, 1);
    assert_int_equal(d->info.n_dense, 48);
    mst_dataset_destroy(d);
}

/* The feed shuffles single images, whatever threads decode them, and holds few at a time. */
static void test_feed(void **state)
{
    (void)state;
    mst_dataset *d;
    make_tree();
    mst_data_options options = {.format = "images", .image_size = "8x6"};
    assert_int_equal(open_folder("set", &options, &d), MST_OK);
    float first[9] = {0};
    for (unsigned threads = 1; threads <= 3; threads++) {
        mst_feed *feed;
        mst_feed_options o = {
            .seed = 5, .shuffle_rows = 65536, .prefetch_threads = threads, .n_lanes = 1, .max_take = 4};
        assert_int_equal(mst_feed_new(d, &o, &feed), MST_OK);
        assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
        float reds[9];
        uint32_t n = 0;
        for (;;) {
            mst_batch batch;
            uint64_t position;
            assert_int_equal(mst_feed_take(feed, 0, 4, &batch, &position), MST_OK);
            if (batch.n_rows == 0)
                break;
            for (uint32_t i = 0; i < batch.n_rows; i++)
                reds[n++] = batch.rows[i].bytes[0];
        }
        assert_int_equal(n, 9);
        if (threads == 1)
            memcpy(first, reds, sizeof first);
        assert_memory_equal(first, reds, sizeof first);
        mst_feed_destroy(feed);
    }
    mst_dataset_destroy(d);
}

static void test_classes(void **state)
{
    (void)state;
    mst_dataset *d;
    make_tree();
    char *names[] = {"cat", "dog", "ant", "bee"};
    mst_data_options options = {.format = "auto", .image_size = "8x6", .image_classes = {names, 4}};
    assert_int_equal(open_folder("set", &options, &d), MST_OK);
    mst_chunk *chunk;
    mst_row row;
    assert_int_equal(d->ops->load(d, 0, &chunk), MST_OK);
    mst_chunk_row(chunk, 0, &row);
    assert_true(row.label == 0);
    assert_near(row.bytes[0], 100, 3); /* the first cat */
    mst_chunk_release(chunk);
    assert_int_equal(d->info.max_label, 3);
    mst_dataset_destroy(d);
    options.image_classes.n = 3;
    assert_int_equal(open_folder("set", &options, &d), MST_EINPUT);
    expect_text("set/bee: this folder of images is not one of the 3 classes (--image-classes)");
}

static char warnings[2048];
static void keep_warning(void *arg, mst_log_level level, const char *line)
{
    (void)arg;
    if (level == MST_LOG_WARN)
        snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", line);
}

static void test_bad_files(void **state)
{
    (void)state;
    mst_dataset *d;
    mst_chunk *chunk;
    make_folder("bad/x");
    mst_data_options options = {.format = "images", .image_size = "8x8"};
    assert_int_equal(open_folder("bad", &options, &d), MST_EINPUT);
    expect_text("bad: no images in it");
    write_file("bad/x/1.jpg", "\xff\xd8\xff nonsense", 12);
    uint8_t *pixels = gradient(64, 64);
    write_jpeg("bad/whole.jpg", 64, 64, 3, pixels, false);
    free(pixels);
    cut_file("bad/whole.jpg", "bad/x/2.jpg", 1000);
    cut_file("bad/whole.jpg", "bad/x/3.jpg", 1000);
    assert_int_equal(open_folder("bad", &options, &d), MST_OK);
    assert_int_equal(d->ops->load(d, 0, &chunk), MST_EINPUT);
    expect_text("bad/x/1.jpg: not a JPEG image that can be read");
    mst_log_set(keep_warning, NULL, MST_LOG_WARN);
    for (uint32_t c = 1; c < 3; c++) {
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        mst_chunk_release(chunk);
    }
    mst_log_set(NULL, NULL, MST_LOG_ERROR);
    assert_non_null(strstr(warnings, "bad/x/2.jpg"));
    assert_null(strstr(warnings, "bad/x/3.jpg")); /* one is enough */
    mst_dataset_destroy(d);
    options.image_size = "8";
    assert_int_equal(open_folder("bad", &options, &d), MST_EUSAGE);
    expect_text("--image-size 8: give HxW");
    options.image_size = "8x8";
    assert_int_equal(open_folder("bad/whole.jpg", &options, &d), MST_EINPUT);
    expect_text("is not a folder");
}

/* Whichever allocation fails, opening and loading end with MST_ENOMEM and leave nothing behind. */
static void test_no_memory(void **state)
{
    (void)state;
    make_tree();
    mst_data_options options = {.format = "images", .image_size = "8x6"};
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_dataset *d = NULL;
        mst_alloc_stats before, after;
        mst_alloc_stats_get(&before);
        mst_alloc_fail_at(k);
        mst_status st = open_folder("set", &options, &d);
        for (uint32_t c = 0; c < 9 && st == MST_OK; c += 2) { /* PNG and JPEG */
            mst_chunk *chunk = NULL;
            st = d->ops->load(d, c, &chunk);
            mst_chunk_release(chunk);
        }
        mst_alloc_fail_at(0);
        mst_dataset_destroy(d);
        mst_alloc_stats_get(&after);
        assert_int_equal(after.blocks, before.blocks);
        done = st == MST_OK;
        if (!done && st != MST_ENOMEM)
            fail_msg("allocation %llu: %s", (unsigned long long)k, mst_error_text());
        assert_true(k < 2000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jpeg),      cmocka_unit_test(test_png),     cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_fit),       cmocka_unit_test(test_sides),   cmocka_unit_test(test_folder),
        cmocka_unit_test(test_feed),      cmocka_unit_test(test_classes), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
