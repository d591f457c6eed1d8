/* Checkpoints of a store that servers share: written in pieces, in any number of part files, and read back
 * whole or by slices; incomplete, missing, short or extra data is refused with an error, and an abandoned
 * save keeps the previous checkpoint. */
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

/* weight 33 x 100 in [0, 3300) of 3312, bias 3 in [3312, 3315) of 3328, mean 5 in [3328, 3333) of 3344. */
#define SIZE 3344

static void make_params(mst_params *params, bool filled)
{
    memset(params, 0, sizeof *params);
    assert_int_equal(
        mst_params_add(params, "weight", MST_VIEW_TRAINABLE, 100, 2, (uint64_t[]){33, 100}, NULL), MST_OK);
    assert_int_equal(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){3}, NULL), MST_OK);
    assert_int_equal(mst_params_add(params, "mean", MST_VIEW_STATE, 0, 1, (uint64_t[]){5}, NULL), MST_OK);
    assert_int_equal(reserve_named(params, 2, 0), MST_OK);
    assert_int_equal(params->size, SIZE);
    for (uint32_t v = 0; filled && v < params->n_views; v++)
        for (uint64_t i = 0; i < params->views[v].size; i++) {
            uint64_t j = params->views[v].offset + i;
            params->w[j] = 1000.0f * (float)v + (float)i + 0.5f;
            if (params->views[v].kind == MST_VIEW_TRAINABLE) {
                params->slots[0][j] = -(float)i;
                params->slots[1][j] = i % 7 == 0 ? 0.0f : (float)(i * i);
            }
        }
}

static const float *vector(const mst_params *params, uint32_t slot)
{
    return slot == 0 ? params->w : params->slots[slot - 1];
}

static mst_status begin(mst_checkpointer *c, const mst_params *params, uint64_t step,
                        const mst_part_spec *parts, uint32_t n)
{
    mst_checkpoint_meta meta = {.step = step,
                                .rows = step * 10,
                                .model = json_pack("{s:s}", "name", "logreg"),
                                .optimizer = json_pack("{s:s}", "name", "adam"),
                                .extra = json_object()};
    mst_status st = mst_checkpointer_begin_parts(c, params, &meta, parts, n);
    mst_checkpoint_meta_fini(&meta);
    return st;
}

/* All floats of [0, SIZE) in pieces of `piece`, the last first; from memory of their own, where the gaps
 * between views hold rubbish. */
static mst_status give(mst_checkpointer *c, const mst_params *params, uint64_t piece)
{
    mst_status st = MST_OK;
    float *copy = mst_alloc(SIZE * sizeof *copy);
    for (uint32_t slot = 0; slot <= params->n_slots && st == MST_OK; slot++) {
        memcpy(copy, vector(params, slot), SIZE * sizeof *copy);
        for (uint64_t i = 0; i < SIZE; i++)
            if ((i >= 3300 && i < 3312) || (i >= 3315 && i < 3328) || i >= 3333 || (slot > 0 && i >= 3328))
                copy[i] = 77.0f;
        for (uint64_t k = (SIZE + piece - 1) / piece; k-- > 0 && st == MST_OK;) {
            uint64_t n = SIZE - k * piece < piece ? SIZE - k * piece : piece;
            st = mst_checkpointer_write(c, slot, k * piece, n, copy + k * piece, false);
        }
    }
    mst_free(copy);
    return st;
}

static void save(const mst_params *params, uint64_t step, const mst_part_spec *parts, uint32_t n)
{
    mst_checkpointer *c = NULL;
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    assert_int_equal(begin(c, params, step, parts, n), MST_OK);
    assert_false(mst_checkpointer_idle(c));
    assert_int_equal(give(c, params, 777), MST_OK);
    assert_int_equal(mst_checkpointer_complete(c), MST_OK);
    assert_int_equal(mst_checkpointer_wait(c, NULL), MST_OK);
    assert_true(mst_checkpointer_idle(c));
    mst_checkpointer_destroy(c);
}

static void expect_says(const char *sentence)
{
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", mst_error_text(), sentence);
}

/* Whole, and in slices of many sizes that start anywhere: gaps are zero. */
static void expect_holds(uint64_t step, const mst_params *params)
{
    mst_params loaded;
    mst_checkpoint *file = NULL;
    make_params(&loaded, false);
    assert_int_equal(mst_checkpoint_load(at(step, ""), &loaded, true), MST_OK);
    for (uint32_t slot = 0; slot <= 2; slot++)
        assert_memory_equal(vector(&loaded, slot), vector(params, slot), SIZE * sizeof(float));
    mst_params_fini(&loaded);

    float *out = mst_alloc(SIZE * sizeof *out);
    assert_int_equal(mst_checkpoint_open(at(step, ""), params, true, &file), MST_OK);
    static const uint64_t sizes[] = {1, 3, 16, 1000, 3310, SIZE};
    for (uint32_t slot = 0; slot <= 2; slot++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (uint64_t first = 0; first + sizes[k] <= SIZE; first += 1 + sizes[k] * 3 / 4) {
                memset(out, 0x55, sizes[k] * sizeof *out);
                assert_int_equal(mst_checkpoint_read(file, slot, first, sizes[k], out), MST_OK);
                assert_memory_equal(out, vector(params, slot) + first, sizes[k] * sizeof *out);
            }
    assert_int_equal(mst_checkpoint_read(file, 0, SIZE, 0, out), MST_OK);
    assert_int_equal(mst_checkpoint_read(file, 0, SIZE - 1, 2, out), MST_EUSAGE);
    assert_int_equal(mst_checkpoint_read(file, 3, 0, 1, out), MST_EUSAGE);
    expect_says("no floats 0 to 1 of vector 3");
    mst_checkpoint_close(file);
    /* The weights alone. */
    assert_int_equal(mst_checkpoint_open(at(step, ""), params, false, &file), MST_OK);
    assert_int_equal(mst_checkpoint_read(file, 0, 0, SIZE, out), MST_OK);
    assert_memory_equal(out, params->w, SIZE * sizeof *out);
    assert_int_equal(mst_checkpoint_read(file, 1, 0, 1, out), MST_EUSAGE);
    mst_checkpoint_close(file);
    mst_free(out);
}

static const mst_part_spec one[] = {{0, SIZE, 0}};
static const mst_part_spec two[] = {{1001, SIZE - 1001, 1}, {0, 1001, 0}};
/* Server 0 has nothing; 2 has stretches of weight that are not neighbours, and half of the bias. */
static const mst_part_spec three[] = {{0, 17, 2},    {17, 483, 1}, {500, 1500, 2}, {2000, 1301, 3},
                                      {3301, 12, 1}, {3313, 1, 2}, {3314, 16, 3},  {3330, 14, 1}};

static void test_parts(void **state)
{
    (void)state;
    mst_params params;
    make_params(&params, true);
    save(&params, 1, one, 1);
    save(&params, 2, two, 2);
    save(&params, 3, three, 8);
    for (uint64_t step = 1; step <= 3; step++)
        expect_holds(step, &params);
    assert_false(mst_path_exists(at(1, "part-00001.safetensors")));
    assert_true(mst_path_exists(at(2, "part-00001.safetensors")));
    assert_false(mst_path_exists(at(3, "part-00000.safetensors")));
    assert_true(mst_path_exists(at(3, "part-00003.safetensors")));
    mst_params_fini(&params);
}

/* One part in pieces is, byte for byte, the file of a store that is saved at once. */
static void test_one_part_is_the_same_file(void **state)
{
    (void)state;
    mst_params params;
    mst_checkpointer *c = NULL;
    mst_checkpoint_meta meta = {.step = 2};
    char *texts[2] = {NULL, NULL};
    size_t sizes[2];
    make_params(&params, true);
    save(&params, 1, one, 1);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    assert_int_equal(mst_checkpointer_begin(c, &params, &meta), MST_OK);
    mst_checkpointer_destroy(c);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            mst_file_read_all(at((uint64_t)i + 1, "part-00000.safetensors"), 1 << 20, &texts[i], &sizes[i]),
            MST_OK);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(texts[0], texts[1], sizes[0]);
    mst_free(texts[0]);
    mst_free(texts[1]);
    mst_params_fini(&params);
}

/* Zeros that arrive in pieces are holes. */
static void test_holes(void **state)
{
    (void)state;
    enum { N = 8 << 20, PIECE = 1 << 16 };
    mst_params params = {0};
    mst_checkpointer *c = NULL;
    mst_checkpoint_meta meta = {.step = 1};
    mst_part_spec parts[] = {{0, N / 2 + 8, 0}, {N / 2 + 8, N / 2 - 8, 1}};
    struct stat info;
    assert_int_equal(mst_params_add(&params, "w", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){N}, NULL), MST_OK);
    assert_int_equal(reserve_named(&params, 0, 0), MST_OK);
    float *piece = mst_zalloc(PIECE * sizeof *piece);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    assert_int_equal(mst_checkpointer_begin_parts(c, &params, &meta, parts, 2), MST_OK);
    for (uint64_t first = 0; first < N; first += PIECE) {
        piece[5] = first == 40 * PIECE ? 3.0f : 0.0f;
        assert_int_equal(mst_checkpointer_write(c, 0, first, PIECE, piece, false), MST_OK);
    }
    assert_int_equal(mst_checkpointer_complete(c), MST_OK);
    mst_checkpointer_destroy(c);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(at(1, i == 0 ? "part-00000.safetensors" : "part-00001.safetensors"), &info), 0);
        assert_true(info.st_size > N / 2 * 4 - 64);
        assert_true(info.st_blocks * 512 < 1 << 20);
    }
    assert_int_equal(mst_checkpoint_load(at(1, ""), &params, false), MST_OK);
    assert_true(params.w[40 * PIECE + 5] == 3.0f && params.w[0] == 0.0f && params.w[N - 1] == 0.0f);
    mst_free(piece);
    mst_params_fini(&params);
}

/* The same step again, by another number of servers, replaces all parts; giving up replaces none. */
static void test_abandon(void **state)
{
    (void)state;
    mst_params params, other;
    mst_checkpointer *c = NULL;
    make_params(&params, true);
    make_params(&other, true);
    other.w[0] = 99.0f;
    save(&params, 5, two, 2);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    mst_checkpointer_abandon(c); /* nothing is open */
    for (int way = 0; way < 3; way++) {
        assert_int_equal(begin(c, &other, 5, three, 8), MST_OK);
        assert_int_equal(begin(c, &other, 6, three, 8), MST_EUSAGE);
        expect_says("another checkpoint is being written");
        if (way == 0) {
            assert_int_equal(mst_checkpointer_write(c, 0, 0, 17, other.w, false), MST_OK);
            mst_checkpointer_abandon(c);
            assert_int_equal(mst_checkpointer_write(c, 0, 17, 1, other.w, false), MST_EUSAGE);
            expect_says("no checkpoint is being written");
        } else if (way == 1) {
            mst_sparse_fail_at(1);
            assert_int_equal(give(c, &other, 100), MST_EIO);
        } else {
            assert_int_equal(give(c, &other, 1000), MST_OK);
            mst_out_fail_at(1);
            assert_int_equal(mst_checkpointer_complete(c), MST_OK);
            assert_int_equal(mst_checkpointer_wait(c, NULL), MST_EIO);
        }
        assert_true(mst_checkpointer_idle(c));
        assert_false(mst_path_exists(at(5, "part-00002.safetensors")));
        assert_false(mst_path_exists(at(5, "part-00001-1.safetensors")));
        expect_holds(5, &params);
    }
    /* A new step that is given up leaves no folder. */
    assert_int_equal(begin(c, &other, 7, two, 2), MST_OK);
    mst_checkpointer_abandon(c);
    assert_false(mst_path_exists(at(7, "")));
    assert_int_equal(begin(c, &other, 7, two, 2), MST_OK);
    mst_checkpointer_destroy(c);
    assert_false(mst_path_exists(at(7, "")));

    save(&other, 5, three, 8);
    expect_holds(5, &other);
    assert_false(mst_path_exists(at(5, "part-00000.safetensors")));
    assert_false(mst_path_exists(at(5, "part-00001.safetensors")));
    assert_true(mst_path_exists(at(5, "part-00001-1.safetensors")));
    assert_true(mst_path_exists(at(5, "part-00002-1.safetensors")));
    mst_params_fini(&params);
    mst_params_fini(&other);
}

static void test_refused_parts(void **state)
{
    (void)state;
    static const struct {
        mst_part_spec parts[2];
        const char *sentence;
    } wrong[] = {
        {{{0, 100, 0}, {100, SIZE - 101, 1}}, "float 3343 is in none"},
        {{{0, 100, 0}, {101, SIZE - 101, 1}}, "float 100 is in none"},
        {{{0, 100, 0}, {99, SIZE - 99, 1}}, "float 99 is in two"},
        {{{0, 100, 0}, {100, SIZE, 1}}, "a part of 3344 floats at float 100 exceeds the store of 3344"},
        {{{0, 100, 0}, {100, UINT64_MAX, 1}}, "exceeds the store of 3344"},
        {{{0, 100, 0}, {100, SIZE - 100, MST_PART_SERVERS}}, "a part of server 100000"},
    };
    mst_params params;
    mst_checkpointer *c = NULL;
    make_params(&params, true);
    assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(begin(c, &params, 1, wrong[i].parts, 2), MST_EUSAGE);
        expect_says(wrong[i].sentence);
        assert_false(mst_path_exists(at(1, "")));
    }
    static const struct {
        uint32_t slot;
        uint64_t first, count;
        const char *sentence;
    } ranges[] = {
        {3, 0, 1, "floats of state vector 3, but the optimizer has 2"},
        {0, SIZE, 1, "1 floats of the weights from float 3344 on, in a store of 3344"},
        {1, 1, UINT64_MAX, "floats of the optimizer's state from float 1 on, in a store of 3344"},
        {2, 990, 30,
         "server 1 has sent more floats of the optimizer's state than it holds from float 1001 on"},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        assert_int_equal(begin(c, &params, 1, two, 2), MST_OK);
        assert_int_equal(mst_checkpointer_write(c, 2, 1001, SIZE - 1001, params.slots[1] + 1001, false),
                         MST_OK);
        assert_int_equal(
            mst_checkpointer_write(c, ranges[i].slot, ranges[i].first, ranges[i].count, params.w, false),
            MST_EINPUT);
        expect_says(ranges[i].sentence);
        assert_true(mst_checkpointer_idle(c));
        assert_false(mst_path_exists(at(1, "")));
    }
    assert_int_equal(begin(c, &params, 1, two, 2), MST_OK);
    for (uint32_t slot = 0; slot <= 2; slot++)
        assert_int_equal(
            mst_checkpointer_write(c, slot, 0, slot == 1 ? 3314 : SIZE, vector(&params, slot), false),
            MST_OK);
    assert_int_equal(mst_checkpointer_complete(c), MST_EINPUT);
    expect_says("server 1 has given 2 of its 3 floats of the optimizer's state from float 3312 on");
    assert_false(mst_path_exists(at(1, "")));
    assert_int_equal(mst_checkpointer_complete(c), MST_EUSAGE);
    mst_checkpointer_destroy(c);
    mst_params_fini(&params);
}

static void expect_refused(uint64_t step, const mst_params *params, const char *sentence)
{
    mst_checkpoint *file = NULL;
    mst_params loaded;
    make_params(&loaded, false);
    assert_int_equal(mst_checkpoint_open(at(step, ""), params, true, &file), MST_EINPUT);
    expect_says(sentence);
    assert_null(file);
    assert_int_equal(mst_checkpoint_load(at(step, ""), &loaded, true), MST_EINPUT);
    expect_says(sentence);
    mst_params_fini(&loaded);
}

static void test_damage(void **state)
{
    (void)state;
    mst_params params;
    char path[256];
    struct stat info;
    make_params(&params, true);
    save(&params, 1, two, 2);
    save(&params, 4, three, 8);
    strcpy(path, at(4, "part-00002.safetensors"));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 4), 0);
    expect_refused(4, &params, "part-00002.safetensors: truncated: it has ");
    expect_refused(4, &params, "; to resume from the older checkpoint ");
    assert_int_equal(truncate(path, info.st_size), 0);
    expect_refused(4, &params, "part-00002.safetensors: damaged: its CRC-32C is ");
    assert_int_equal(unlink(path), 0);
    expect_refused(4, &params, "part-00002.safetensors: a part of the checkpoint is missing");

    static const struct {
        const char *from, *to, *sentence;
    } edits[] = {
        {"\"tensor\": \"weight[0:17]\"", "\"tensor\": \"weight[0:18]\"",
         "has no tensor \"weight[0:18]\", which the manifest names"},
        {"\"tensor\": \"weight[0:17]\"", "\"tensor\": \"weight[500:2000]\"",
         "\"weight[500:2000]\" has 1500 elements, but the manifest states 17"},
        {"\"tensor\": \"weight[0:17]\"", "\"tensor\": 7", "a name in \"tensor\" is not a text"},
        {"\"first\": 17,", "\"first\": 16,", "element 16 of \"weight\" is there twice"},
        {"\"count\": 1500", "\"count\": 1499", "element 1999 of \"weight\" is missing"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        save(&params, 10 + i, three, 8);
        edit_manifest(10 + i, edits[i].from, edits[i].to);
        expect_refused(10 + i, &params, edits[i].sentence);
    }
    mst_params_fini(&params);
}

static void test_no_memory(void **state)
{
    (void)state;
    mst_params params;
    mst_alloc_stats before, after;
    float out[100];
    make_params(&params, true);
    save(&params, 1, two, 2);
    mst_alloc_stats_get(&before);
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_checkpointer *c = NULL;
        assert_int_equal(mst_checkpointer_new(folder, 0, &c), MST_OK);
        mst_alloc_fail_at(k);
        mst_status st = begin(c, &params, 1, three, 8);
        for (uint32_t slot = 0; slot <= 2 && st == MST_OK; slot++)
            st = mst_checkpointer_write(c, slot, 0, SIZE, vector(&params, slot), false);
        if (st == MST_OK)
            st = mst_checkpointer_complete(c);
        if (st == MST_OK)
            st = mst_checkpointer_wait(c, NULL);
        done = st == MST_OK && k > 100;
        mst_alloc_fail_at(0);
        mst_checkpointer_destroy(c);
        expect_holds(1, &params);
        assert_true(k < 1000);
    }
    done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_checkpoint *file = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_checkpoint_open(at(1, ""), &params, true, &file);
        if (st == MST_OK)
            st = mst_checkpoint_read(file, 2, 3250, 90, out);
        mst_alloc_fail_at(0);
        mst_checkpoint_close(file);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        done = st == MST_OK;
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
    mst_params_fini(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_part_is_the_same_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_holes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abandon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
