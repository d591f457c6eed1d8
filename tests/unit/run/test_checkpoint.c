/* Checkpoints: saved values come back bit for bit, a failed or killed save keeps the previous checkpoint, and
 * every kind of damage or mismatch has its error. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "run/checkpoint.h"
#include "run/sparse_file.h"
#include "state_names.h"
#include "unit/train/checkpoint_trial.h"

/* Views weight (rows x 100), bias (3), and a running mean. */
static void make_params(mst_params *params, uint64_t rows, uint32_t n_slots)
{
    memset(params, 0, sizeof *params);
    assert_int_equal(
        mst_params_add(params, "weight", MST_VIEW_TRAINABLE, 0, 2, (uint64_t[]){rows, 100}, NULL), MST_OK);
    assert_int_equal(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){3}, NULL), MST_OK);
    assert_int_equal(mst_params_add(params, "mean", MST_VIEW_STATE, 0, 1, (uint64_t[]){5}, NULL), MST_OK);
    assert_int_equal(reserve_named(params, n_slots, 32), MST_OK);
}

/* Every third block of weights has values; all of the rest is zero. */
static void fill(mst_params *params, float salt)
{
    for (uint32_t v = 0; v < params->n_views; v++)
        for (uint64_t i = 0; i < params->views[v].size; i++) {
            if (params->views[v].size > 10 && i / 50000 % 3 != 0)
                continue;
            uint64_t j = params->views[v].offset + i;
            params->w[j] = salt + (float)i;
            for (uint32_t s = 0; s < params->n_slots; s++)
                if (params->views[v].kind == MST_VIEW_TRAINABLE)
                    params->slots[s][j] = salt * (float)(s + 2) - (float)i;
        }
}

static void assert_same(const mst_params *a, const mst_params *b, bool slots)
{
    for (uint32_t v = 0; v < a->n_views; v++) {
        uint64_t o = a->views[v].offset, n = a->views[v].size * sizeof(float);
        assert_memory_equal(a->w + o, b->w + o, n);
        for (uint32_t s = 0; slots && s < a->n_slots; s++)
            assert_memory_equal(a->slots[s] + o, b->slots[s] + o, n);
    }
}

static mst_checkpoint_meta make_meta(uint64_t step)
{
    mst_checkpoint_meta meta = {
        .step = step,
        .rows = step * 100,
        .epoch = 2,
        .position = 77,
        .train_seconds = 1.25,
        .eval_seconds = 0.5,
        .model = json_pack("{s:s, s:i}", "name", "logreg", "features", 100),
        .optimizer = json_pack("{s:s}", "name", "adagrad"),
        .extra = json_pack("{s:f}", "best", 0.125),
    };
    return meta;
}

static mst_status begin(mst_checkpointer *c, const mst_params *params, uint64_t step)
{
    mst_checkpoint_meta meta = make_meta(step);
    mst_status st = mst_checkpointer_begin(c, params, &meta);
    mst_checkpoint_meta_fini(&meta);
    return st;
}

static void save(const mst_params *params, uint64_t step)
{
    mst_checkpointer *c = NULL;
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    assert_int_equal(begin(c, params, step), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_OK);
    mst_checkpointer_destroy(c);
}

static void expect_says(const char *sentence)
{
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", mst_error_text(), sentence);
}

static void expect_load_fails(uint64_t step, const char *sentence)
{
    mst_params params;
    make_params(&params, 4, 1);
    assert_int_equal(mst_checkpoint_load(at(step, ""), &params, true), MST_EINPUT);
    expect_says(sentence);
    mst_params_fini(&params);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_round_trip(void **state)
{
    (void)state;
    mst_params saved, loaded;
    mst_checkpointer *c = NULL;
    char *path = NULL;
    make_params(&saved, 4000, 2);
    fill(&saved, 0.5f);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, &path), MST_OK);
    assert_null(path);
    assert_int_equal(begin(c, &saved, 1000), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, &path), MST_OK);
    assert_string_equal(path, at(1000, ""));
    mst_checkpointer_destroy(c);

    make_params(&loaded, 4000, 2);
    loaded.w[60000] = 3; /* zero in the file: must become zero again */
    assert_int_equal(mst_checkpoint_load(path, &loaded, true), MST_OK);
    assert_same(&saved, &loaded, true);
    mst_params_fini(&loaded);
    /* Weights only, into a store with other optimizer state. */
    make_params(&loaded, 4000, 1);
    assert_int_equal(mst_checkpoint_load(path, &loaded, false), MST_OK);
    assert_same(&saved, &loaded, false);
    assert_true(loaded.slots[0][0] == 0);

    mst_checkpoint_meta meta, expected = make_meta(1000);
    assert_int_equal(mst_checkpoint_read_meta(path, &meta), MST_OK);
    assert_int_equal(meta.step, 1000);
    assert_int_equal(meta.rows, 100000);
    assert_int_equal(meta.epoch, 2);
    assert_int_equal(meta.position, 77);
    assert_true(meta.train_seconds == 1.25 && meta.eval_seconds == 0.5);
    assert_true(json_equal(meta.model, expected.model));
    assert_true(json_equal(meta.optimizer, expected.optimizer));
    assert_true(json_equal(meta.extra, expected.extra));
    mst_checkpoint_meta_fini(&meta);
    mst_checkpoint_meta_fini(&expected);
    mst_free(path);
    mst_params_fini(&saved);
    mst_params_fini(&loaded);
}

/* A store by rows saves the files of a store of vectors, and either loads them. Keys of the first view have
 * three floats, and the first 100 keys are a dense range. per_key: its other keys have one float of one slot.
 */
static void check_rows(bool per_key)
{
    enum { KEYS = 150000, WIDTH = 3 };
    float *x = malloc(KEYS * WIDTH * sizeof *x), *y = malloc(KEYS * WIDTH * sizeof *y);
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++) {
            mst_params stores[2] = {{.by_rows = from == 1}, {.by_rows = to == 1}};
            mst_checkpointer *c = NULL;
            char *path = NULL;
            for (int i = 0; i < 2; i++) {
                assert_int_equal(mst_params_add(&stores[i], "keys", MST_VIEW_TRAINABLE, WIDTH, 2,
                                                (uint64_t[]){KEYS, WIDTH}, NULL),
                                 MST_OK);
                stores[i].views[0].head = 100;
                assert_int_equal(
                    mst_params_add(&stores[i], "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){3}, NULL),
                    MST_OK);
                if (per_key) {
                    stores[i].views[0].state = (mst_view_state){.n_slots = 1, .per_key = true};
                    stores[i].views[1].state.n_slots = 2;
                }
                assert_int_equal(reserve_named(&stores[i], 2, 0), MST_OK);
            }
            assert_true((stores[0].rows.stride != 0) == (from == 1));
            for (uint32_t s = 0; s <= 2; s++) {
                for (uint64_t i = 0; i < KEYS * WIDTH; i++)
                    x[i] = i / 50000 % 3 == 1 ? 0 : (float)(i + s);
                mst_params_write(&stores[0], s, 0, mst_view_floats(&stores[0].views[0], s), x);
                mst_params_write(&stores[0], s, stores[0].views[1].offset, 3, (float[]){1, 2, (float)s});
                mst_params_write(&stores[1], s, 60000, 1, &(float){9}); /* becomes zero again */
            }
            assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
            assert_int_equal(begin(c, &stores[0], (uint64_t)(10 + 2 * from + to)), MST_OK);
            assert_int_equal(mst_checkpointer_wait(c, &path), MST_OK);
            assert_int_equal(mst_checkpoint_load(path, &stores[1], true), MST_OK);
            for (uint32_t s = 0; s <= 2; s++)
                for (uint32_t v = 0; v < 2; v++) {
                    const mst_view *view = &stores[0].views[v];
                    uint64_t n = mst_view_floats(view, s);
                    mst_params_read(&stores[0], s, view->offset, n, x);
                    mst_params_read(&stores[1], s, view->offset, n, y);
                    assert_memory_equal(x, y, n * sizeof *x);
                }
            if (per_key) {
                stores[1].views[0].state.names[0] = "accumulator";
                assert_int_equal(mst_checkpoint_load(path, &stores[1], true), MST_EINPUT);
                expect_says("holds state of adagrad (m), not of the optimizer here (accumulator)");
            }
            mst_checkpointer_destroy(c);
            mst_free(path);
            for (int i = 0; i < 2; i++)
                mst_params_fini(&stores[i]);
        }
    free(x);
    free(y);
}

static void test_rows(void **state)
{
    (void)state;
    check_rows(false);
    check_rows(true);
}

/* begin copies: what happens to the weights afterwards is not in the file. */
static void test_copy_is_a_snapshot(void **state)
{
    (void)state;
    mst_params params, loaded;
    mst_checkpointer *c = NULL;
    make_params(&params, 4, 0);
    fill(&params, 1);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    assert_int_equal(begin(c, &params, 1), MST_OK);
    params.w[0] = 99;
    assert_int_equal(begin(c, &params, 2), MST_OK); /* waits for the first */
    params.w[0] = 100;
    mst_checkpointer_destroy(c); /* waits for the second */
    make_params(&loaded, 4, 0);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &loaded, true), MST_OK);
    assert_true(loaded.w[0] == 1);
    assert_int_equal(mst_checkpoint_load(at(2, ""), &loaded, true), MST_OK);
    assert_true(loaded.w[0] == 99);
    mst_params_fini(&params);
    mst_params_fini(&loaded);
}

static void test_keep(void **state)
{
    (void)state;
    mst_params params;
    mst_checkpointer *c = NULL;
    make_params(&params, 4, 0);
    assert_int_equal(mst_checkpointer_new(folder, 2, &c), MST_OK);
    for (uint64_t step = 8; step <= 11; step++)
        assert_int_equal(begin(c, &params, step), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_OK);
    assert_false(mst_path_exists(at(8, "")));
    assert_false(mst_path_exists(at(9, "")));
    assert_true(mst_path_exists(at(10, "manifest.json")));
    assert_true(mst_path_exists(at(11, "manifest.json")));
    /* A run that went back keeps what it writes. */
    assert_int_equal(begin(c, &params, 3), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_OK);
    assert_true(mst_path_exists(at(3, "manifest.json")));
    assert_false(mst_path_exists(at(10, "")));
    mst_checkpointer_destroy(c);
    mst_params_fini(&params);
}

/* The same step again replaces the checkpoint; a failure in doing so leaves the old one whole. */
static void test_same_step_again(void **state)
{
    (void)state;
    mst_params params, loaded;
    mst_checkpointer *c = NULL;
    make_params(&params, 4, 0);
    make_params(&loaded, 4, 0);
    fill(&params, 1);
    save(&params, 5);
    fill(&params, 2);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    mst_sparse_fail_at(2);
    assert_int_equal(begin(c, &params, 5), MST_EIO);
    assert_int_equal(mst_checkpoint_load(at(5, ""), &loaded, true), MST_OK);
    assert_true(loaded.w[0] == 1);
    mst_out_fail_at(1);
    assert_int_equal(begin(c, &params, 5), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_EIO);
    assert_int_equal(mst_checkpoint_load(at(5, ""), &loaded, true), MST_OK);
    assert_true(loaded.w[0] == 1);
    assert_false(mst_path_exists(at(5, "part-00000-1.safetensors")));
    assert_int_equal(begin(c, &params, 5), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_OK);
    assert_int_equal(mst_checkpoint_load(at(5, ""), &loaded, true), MST_OK);
    assert_true(loaded.w[0] == 2);
    assert_false(mst_path_exists(at(5, "part-00000.safetensors")));
    mst_checkpointer_destroy(c);
    mst_params_fini(&params);
    mst_params_fini(&loaded);
}

static void test_disk_full(void **state)
{
    (void)state;
    mst_params params;
    mst_checkpointer *c = NULL;
    char *path = NULL;
    make_params(&params, 4, 1);
    fill(&params, 1);
    assert_int_equal(mst_checkpointer_new(folder, 1, &c), MST_OK);
    assert_int_equal(begin(c, &params, 1), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_OK);
    bool done = false;
    for (uint64_t k = 1; !done; k++) { /* every write of the part in turn */
        mst_sparse_fail_at(k);
        mst_status st = begin(c, &params, 2);
        done = st == MST_OK;
        if (done)
            break;
        assert_int_equal(st, MST_EIO);
        expect_says(at(2, "part-00000.safetensors: cannot be written: No space left on device"));
        assert_false(mst_path_exists(at(2, "")));
        assert_true(mst_path_exists(at(1, "manifest.json")));
        assert_true(k < 50);
    }
    mst_sparse_fail_at(0);
    assert_int_equal(mst_checkpointer_wait(c, &path), MST_OK);
    mst_free(path);
    /* In the background: the manifest. */
    mst_out_fail_at(1);
    assert_int_equal(begin(c, &params, 3), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, &path), MST_EIO);
    assert_null(path);
    expect_says(at(3, "manifest.json"));
    expect_says("No space left on device");
    assert_false(mst_path_exists(at(3, "")));
    assert_true(mst_path_exists(at(2, "manifest.json")));
    /* The next begin reports the failure of a save that was not awaited, once. */
    mst_out_fail_at(1);
    assert_int_equal(begin(c, &params, 4), MST_OK);
    assert_int_equal(begin(c, &params, 5), MST_EIO);
    expect_says(at(4, "manifest.json"));
    assert_int_equal(begin(c, &params, 5), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, &path), MST_OK);
    assert_string_equal(path, at(5, ""));
    mst_free(path);
    mst_checkpointer_destroy(c);
    mst_params_fini(&params);
}

static void test_no_memory(void **state)
{
    (void)state;
    mst_params params, loaded;
    make_params(&params, 4, 1);
    make_params(&loaded, 4, 1);
    fill(&params, 1);
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_checkpointer *c = NULL;
        char *path = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_checkpointer_new(folder, 1, &c);
        if (st == MST_OK)
            st = begin(c, &params, k);
        if (st == MST_OK)
            st = mst_checkpointer_wait(c, &path);
        mst_alloc_fail_at(0);
        mst_checkpointer_destroy(c);
        if (st == MST_OK) {
            assert_int_equal(mst_checkpoint_load(path, &loaded, true), MST_OK);
            assert_same(&params, &loaded, true);
        } else {
            if (st != MST_ENOMEM && strstr(mst_error_text(), "Cannot allocate memory") == NULL)
                fail_msg("allocation %llu: %s", (unsigned long long)k, mst_error_text());
        }
        mst_free(path);
        done = st == MST_OK && k > 100;
        assert_true(k < 1000);
    }
    char *newest = NULL;
    assert_int_equal(mst_checkpoint_find(folder, &newest), MST_OK);
    done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_alloc_fail_at(k);
        mst_status st = mst_checkpoint_load(newest, &loaded, true);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        done = st == MST_OK;
    }
    mst_alloc_fail_at(0);
    mst_free(newest);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
    mst_params_fini(&params);
    mst_params_fini(&loaded);
}

static void test_find_and_killed_save(void **state)
{
    (void)state;
    mst_params params;
    char *found = NULL;
    make_params(&params, 4, 0);
    assert_int_equal(mst_checkpoint_find(folder, &found), MST_EINPUT);
    expect_says("no such run or checkpoint");
    assert_int_equal(mst_make_folders(folder), MST_OK);
    assert_int_equal(mst_checkpoint_find(folder, &found), MST_EINPUT);
    expect_says("no complete checkpoint here");
    save(&params, 9);
    save(&params, 10);
    /* What a process killed in mid-save leaves, and names that are none of ours. */
    assert_int_equal(mst_make_folders(at(11, "")), MST_OK);
    write_text(at(11, "part-00000.safetensors"), "half");
    char other[160];
    snprintf(other, sizeof other, "%s/step-99", folder);
    assert_int_equal(mst_make_folders(other), MST_OK);
    const char *ways[] = {root, folder, at(10, "")};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mst_checkpoint_find(ways[i], &found), MST_OK);
        assert_string_equal(found, at(10, ""));
        mst_free(found);
        found = NULL;
    }
    assert_int_equal(mst_checkpoint_find(at(11, ""), &found), MST_EINPUT);
    expect_says("no complete checkpoint here");
    assert_int_equal(mst_checkpoint_find(at(10, "manifest.json"), &found), MST_EINPUT);
    expect_says("a checkpoint is a folder");
    save(&params, 12);
    assert_false(mst_path_exists(at(11, "")));
    assert_true(mst_path_exists(other));
    assert_true(mst_path_exists(at(9, "")));
    mst_params_fini(&params);
}

static void test_misfits(void **state)
{
    (void)state;
    mst_params params, other;
    make_params(&params, 4, 1);
    fill(&params, 1);
    save(&params, 1);
    mst_params_fini(&params);

    make_params(&params, 5, 1);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &params, true), MST_EINPUT);
    char sentence[512];
    snprintf(sentence, sizeof sentence, "weight has 400 elements in %s but 500 here", at(1, ""));
    assert_string_equal(mst_error_text(), sentence);
    mst_params_fini(&params);

    make_params(&params, 4, 2);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &params, true), MST_EINPUT);
    expect_says("holds state of adagrad (accumulator), not of the optimizer here (m, v); --init-from takes "
                "the weights "
                "only");
    assert_int_equal(mst_checkpoint_load(at(1, ""), &params, false), MST_OK);
    mst_params_fini(&params);

    make_params(&params, 4, 0);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &params, true), MST_EINPUT);
    expect_says("not of the optimizer here (none)");
    mst_params_fini(&params);

    memset(&other, 0, sizeof other);
    assert_int_equal(mst_params_add(&other, "weight", MST_VIEW_TRAINABLE, 0, 2, (uint64_t[]){100, 4}, NULL),
                     MST_OK);
    assert_int_equal(reserve_named(&other, 0, 0), MST_OK);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &other, false), MST_EINPUT);
    expect_says("weight is 4 x 100 in ");
    expect_says(" but 100 x 4 here");
    mst_params_fini(&other);

    assert_int_equal(mst_params_add(&other, "weight", MST_VIEW_TRAINABLE, 0, 2, (uint64_t[]){4, 100}, NULL),
                     MST_OK);
    assert_int_equal(reserve_named(&other, 0, 0), MST_OK);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &other, false), MST_EINPUT);
    expect_says("a checkpoint of another model: it has \"bias\", which the model here lacks");
    mst_params_fini(&other);

    edit_manifest(1, "\"name\": \"bias\"", "\"name\": \"weight\"");
    edit_manifest(1, "\"size\": 3", "\"size\": 400");
    edit_manifest(1, "3\n", "4, 100\n");
    expect_load_fails(1, "a checkpoint of another model: it has no \"bias\"");
}

static void test_damage(void **state)
{
    (void)state;
    mst_params params;
    mst_checkpoint_meta meta;
    make_params(&params, 4, 1);
    fill(&params, 1);
    save(&params, 1);
    const char *part = at(1, "part-00000.safetensors");
    char part_path[256];
    strcpy(part_path, part);
    struct stat info;
    assert_int_equal(stat(part_path, &info), 0);

    int fd = open(part_path, O_RDWR);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, info.st_size - 3), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, info.st_size - 3), 1);
    expect_load_fails(1, "part-00000.safetensors: damaged: its CRC-32C is ");
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, info.st_size - 3), 1);
    close(fd);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &params, true), MST_OK);

    assert_int_equal(truncate(part_path, info.st_size - 1), 0);
    expect_load_fails(1, "part-00000.safetensors: truncated: it has ");
    assert_int_equal(truncate(part_path, info.st_size + 1), 0);
    expect_load_fails(1, "not the file that was saved");
    assert_int_equal(unlink(part_path), 0);
    expect_load_fails(1, "a part of the checkpoint is missing: No such file or directory");

    save(&params, 2);
    assert_int_equal(stat(at(2, "manifest.json"), &info), 0);
    assert_int_equal(truncate(at(2, "manifest.json"), info.st_size / 2), 0);
    expect_load_fails(2, "manifest.json: truncated or damaged: no valid JSON from line ");
    assert_int_equal(mst_checkpoint_read_meta(at(2, ""), &meta), MST_EINPUT);
    assert_int_equal(truncate(at(2, "manifest.json"), 0), 0);
    expect_load_fails(2, "truncated or damaged");
    write_text(at(2, "manifest.json"), "{\"format\": \"muster-run\"}");
    expect_load_fails(2, "not a checkpoint: manifest.json is of another kind");
    write_text(at(2, "manifest.json"), "{\"format\": \"muster-checkpoint\", \"version\": 2}");
    expect_load_fails(2, "checkpoint format version 2 is not supported; this muster reads version 1");
    assert_int_equal(unlink(at(2, "manifest.json")), 0);
    expect_load_fails(2, "not a checkpoint: the folder has no manifest.json");
    expect_load_fails(3, "no such run or checkpoint");

    static const struct {
        const char *from, *to, *sentence;
    } edits[] = {
        {"\"part-00000.safetensors\"", "\"../x\"", "is not a plain file name"},
        {"\"first\": 0", "\"first\": 1", "lies outside of it"},
        {"\"count\": 400", "\"count\": 399", "element 399 of \"weight\" is missing"},
        {"\"count\": 400", "\"count\": -1", "\"count\" is not an integer"},
        {"\"name\": \"optimizer.accumulator.bias\"", "\"name\": \"bias\"",
         "element 0 of \"bias\" is there twice"},
        {"\"name\": \"optimizer.accumulator.bias\"", "\"name\": \"x\"",
         "element 0 of \"optimizer.accumulator.bias\" is missing"},
        {"\"crc32c\": ", "\"crc32c\": 1", "damaged"},
        {"\"crc32c\": ", "\"crc\": ", "\"crc32c\" is not an integer"},
        {"\"tensors\": ", "\"t\": ", "a part lacks its tensors"},
        {"\"muster\": ", "\"crc33c\": ", "in manifest.json an entry has an unknown name"},
        {"\"slots\": [\n    \"accumulator\"\n   ]", "\"slots\": 1", "\"slots\" is not a list"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        save(&params, 10 + i);
        edit_manifest(10 + i, edits[i].from, edits[i].to);
        expect_load_fails(10 + i, edits[i].sentence);
    }
    save(&params, 50);
    edit_manifest(50, "\"position\": 77", "\"position\": 7.5");
    assert_int_equal(mst_checkpoint_read_meta(at(50, ""), &meta), MST_EINPUT);
    expect_says("\"position\" is not an integer of 0 or more");
    mst_params_fini(&params);
}

/* Everything that a checkpoint gives besides the floats; the caller frees. */
static char *describe(const mst_checkpoint_meta *meta)
{
    json_t *all = json_pack("[I, I, I, I, f, f, O, O, O]", (json_int_t)meta->step, (json_int_t)meta->rows,
                            (json_int_t)meta->epoch, (json_int_t)meta->position, meta->train_seconds,
                            meta->eval_seconds, meta->model, meta->optimizer, meta->extra);
    char *text = json_dumps(all, JSON_SORT_KEYS);
    assert_non_null(text);
    json_decref(all);
    return text;
}

/* Loads a checkpoint that may be damaged; false if that is detected, otherwise it is the same as ever. */
static bool loads_unchanged(uint64_t step, const mst_params *params, const char *described)
{
    mst_params loaded;
    mst_checkpoint_meta meta = {0};
    make_params(&loaded, 4, 1);
    bool loads = mst_checkpoint_read_meta(at(step, ""), &meta) == MST_OK &&
                 mst_checkpoint_load(at(step, ""), &loaded, true) == MST_OK;
    if (loads) {
        char *text = describe(&meta);
        assert_string_equal(text, described);
        free(text);
        assert_same(params, &loaded, true);
    }
    mst_checkpoint_meta_fini(&meta);
    mst_params_fini(&loaded);
    return loads;
}

/* Every bit of the manifest and one bit of every byte of the part file: damage is detected, or changes
 * nothing. */
static void test_flipped_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"manifest.json", "part-00000.safetensors"};
    mst_params params;
    mst_checkpoint_meta meta;
    make_params(&params, 4, 1);
    fill(&params, 1);
    save(&params, 1);
    assert_int_equal(mst_checkpoint_read_meta(at(1, ""), &meta), MST_OK);
    char *described = describe(&meta);
    for (int f = 0; f < 2; f++) {
        size_t undetected = 0;
        struct stat info;
        int fd = open(at(1, names[f]), O_RDWR);
        assert_true(fd >= 0 && fstat(fd, &info) == 0);
        for (off_t i = 0; i < info.st_size; i++)
            for (int bit = 0; bit < 8; bit++) {
                uint8_t byte, damaged;
                if (f == 1 && bit != (int)(i * 5 % 8))
                    continue;
                assert_int_equal(pread(fd, &byte, 1, i), 1);
                damaged = byte ^ (uint8_t)(1u << bit);
                assert_int_equal(pwrite(fd, &damaged, 1, i), 1);
                undetected += loads_unchanged(1, &params, described);
                assert_int_equal(pwrite(fd, &byte, 1, i), 1);
            }
        close(fd);
        assert_int_equal(undetected, 0);
    }
    assert_true(loads_unchanged(1, &params, described));
    edit_manifest(1, "\n}\n", "\n}\n"); /* without a checksum */
    assert_true(loads_unchanged(1, &params, described));
    free(described);
    mst_checkpoint_meta_fini(&meta);
    mst_params_fini(&params);
}

/* Slices of one view from several parts, as several writers leave them. */
static void test_slices(void **state)
{
    (void)state;
    mst_params a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    assert_int_equal(mst_params_add(&a, "w", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){10}, NULL), MST_OK);
    assert_int_equal(mst_params_add(&b, "w", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){20}, NULL), MST_OK);
    assert_int_equal(reserve_named(&a, 0, 0), MST_OK);
    assert_int_equal(reserve_named(&b, 0, 0), MST_OK);
    for (int i = 0; i < 10; i++)
        a.w[i] = (float)i;
    save(&a, 1);
    for (int i = 0; i < 10; i++)
        a.w[i] = (float)(10 + i);
    save(&a, 2);
    assert_int_equal(rename(at(2, "part-00000.safetensors"), at(1, "part-00001.safetensors")), 0);
    json_t *one = json_load_file(at(1, "manifest.json"), 0, NULL);
    json_t *two = json_load_file(at(2, "manifest.json"), 0, NULL);
    json_t *view = json_array_get(json_object_get(one, "views"), 0);
    json_t *part = json_array_get(json_object_get(two, "parts"), 0);
    json_object_set_new(view, "size", json_integer(20));
    json_object_set_new(view, "shape", json_pack("[i]", 20));
    json_object_set_new(part, "file", json_string("part-00001.safetensors"));
    json_object_set_new(json_array_get(json_object_get(part, "tensors"), 0), "first", json_integer(10));
    json_array_insert(json_object_get(one, "parts"), 0, part);
    json_object_del(one, "crc32c");
    assert_int_equal(json_dump_file(one, at(1, "manifest.json"), 0), 0);
    assert_int_equal(mst_checkpoint_load(at(1, ""), &b, true), MST_OK);
    for (int i = 0; i < 20; i++)
        assert_true(b.w[i] == (float)i);
    json_decref(one);
    json_decref(two);
    mst_params_fini(&a);
    mst_params_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copy_is_a_snapshot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keep, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_step_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_find_and_killed_save, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misfits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flipped_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_slices, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
