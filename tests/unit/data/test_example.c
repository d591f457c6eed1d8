/* The tf.Example walker on hand-made messages, varints, and the encoder read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "data/example.h"

static size_t put(uint8_t *at, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        at[n++] = (uint8_t)(v | 0x80);
    at[n++] = (uint8_t)v;
    return n;
}

static void varints(void **state)
{
    (void)state;
    uint8_t bytes[32];
    uint64_t value;
    for (unsigned shift = 0; shift < 64; shift++)
        for (int delta = -1; delta <= 1; delta++)
            for (size_t room = 10; room <= 20; room += 10) {
                uint64_t v = (1ull << shift) + (uint64_t)(int64_t)delta;
                memset(bytes, 0xff, sizeof bytes);
                size_t n = put(bytes, v);
                assert_ptr_equal(mst_varint(bytes, bytes + room, &value), bytes + n);
                assert_true(value == v);
                assert_ptr_equal(mst_varint(bytes, bytes + n, &value), bytes + n);
                assert_true(value == v);
                assert_null(mst_varint(bytes, bytes + n - 1, &value));
            }
    memset(bytes, 0x80, sizeof bytes); /* never ends */
    assert_null(mst_varint(bytes, bytes + sizeof bytes, &value));
}

static void expect_problem(const char *message, size_t n, const char *part)
{
    uint8_t *copy = mst_alloc(n); /* exactly as long, so that a sanitizer sees a step beyond */
    mst_example_walk walk;
    mst_example_feature feature;
    assert_non_null(copy);
    memcpy(copy, message, n);
    mst_example_walk_init(&walk, copy, n);
    const char *problem = NULL;
    while (problem == NULL && mst_example_next(&walk, &feature)) {
        mst_example_list list;
        const uint8_t *run;
        size_t size;
        mst_example_list_init(&list, &feature);
        while (mst_example_run(&list, &run, &size)) {
        }
        problem = list.problem;
    }
    problem = problem != NULL ? problem : walk.problem;
    if (part == NULL)
        assert_null(problem);
    else
        assert_true(problem != NULL && strstr(problem, part) != NULL);
    mst_free(copy);
}
#define EXPECT(message, part) expect_problem(message, sizeof message - 1, part)

static void shapes(void **state)
{
    (void)state;
    EXPECT("", NULL);
    EXPECT("\x0a\x00", NULL);
    EXPECT("\x0a\x0b\x0a\x09\x0a\x01x\x12\x04\x12\x02\x0a\x00", NULL);     /* empty float list */
    EXPECT("\x0a\x0c\x0a\x0a\x12\x05\x1a\x03\x0a\x01\x07\x0a\x01x", NULL); /* value before key */
    EXPECT("\x10\x05\x0a\x00\x1d....\x21........", NULL);                  /* unknown fields */
    EXPECT("\x0a\x05", "cut short");
    EXPECT("\x0a\x02\x0a\x05", "cut short");
    EXPECT("\x08\x05", "wrong wire type");
    EXPECT("\x02\x00", "field tag"); /* field 0 */
    EXPECT("\x13", "field tag");     /* a group */
    EXPECT("\x0a\xff\xff\xff\xff\x7f", "cut short");
    EXPECT("\x0a\x08\x0a\x06\x0a\x01x\x0a\x01y", NULL);                                /* two names */
    EXPECT("\x0a\x0f\x0a\x0d\x0a\x01x\x12\x08\x12\x02\x0a\x00\x1a\x02\x0a\x00", NULL); /* two lists */
    EXPECT("\x0a\x0e\x0a\x0c\x0a\x01x\x12\x07\x12\x05\x0a\x03"
           "abc",
           "multiple of 4");
    EXPECT("\x0a\x0b\x0a\x09\x0a\x01x\x12\x04\x12\x02\x08\x05",
           "wrong wire type"); /* varint in a float list */
    EXPECT("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more than 10 bytes");
}

/* The int64 numbers of the only feature, which has another kind when n is 0. */
static void expect_numbers(const char *message, size_t size, const char *name, size_t n,
                           const uint64_t *expected)
{
    mst_example_walk walk;
    mst_example_feature feature;
    mst_example_list list;
    const uint8_t *run;
    size_t run_size, count = 0;
    mst_example_walk_init(&walk, (const uint8_t *)message, size);
    assert_true(mst_example_next(&walk, &feature));
    assert_int_equal(feature.name_size, strlen(name));
    assert_memory_equal(feature.name, name, strlen(name));
    assert_true((feature.kind == MST_EXAMPLE_INTS) == (n > 0));
    mst_example_list_init(&list, &feature);
    while (n > 0 && mst_example_run(&list, &run, &run_size))
        for (const uint8_t *at = run; at < run + run_size; count++) {
            uint64_t value;
            at = mst_varint(at, run + run_size, &value);
            assert_true(at != NULL && count < n && value == expected[count]);
        }
    assert_null(list.problem);
    assert_int_equal(count, n);
    assert_false(mst_example_next(&walk, &feature));
    assert_null(walk.problem);
}

/* Fields that occur twice, as `protoc --decode` shows them. */
static void fields_twice(void **state)
{
    (void)state;
#define NUMBERS(message, name, ...)                                                                          \
    expect_numbers(message, sizeof message - 1, name,                                                        \
                   sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                               \
                   (const uint64_t[]){__VA_ARGS__})
    /* two names: the last */
    NUMBERS("\x0a\x0f\x0a\x0d\x0a\x01x\x12\x05\x1a\x03\x0a\x01\x01\x0a\x01y", "y", 1);
    /* two lists of one kind in a feature: merged, with an empty one between them */
    NUMBERS("\x0a\x14\x0a\x12\x0a\x01x\x12\x0d\x1a\x03\x0a\x01\x01\x1a\x00\x1a\x04\x0a\x02\x02\x03", "x", 1,
            2, 3);
    /* two values with a name between them: merged */
    NUMBERS("\x0a\x16\x0a\x14\x0a\x01x\x12\x05\x1a\x03\x0a\x01\x01\x0a\x01x\x12\x05\x1a\x03\x0a\x01\x02", "x",
            1, 2);
    /* int64, float, int64: the last kind alone, and what a second value adds to it */
    NUMBERS("\x0a\x25\x0a\x23\x0a\x01x\x12\x17\x1a\x03\x0a\x01\x01\x12\x06\x0a\x04\x00\x00\x00?"
            "\x1a\x08\x0a\x01\x02\x0a"
            "\x00\x0a\x01\x04\x12\x05\x1a\x03\x0a\x01\x07",
            "x", 2, 4, 7);
    expect_numbers("\x0a\x15\x0a\x13\x0a\x01x\x12\x05\x1a\x03\x0a\x01\x01\x12\x07\x12\x05\x0d\x00\x00\x00@",
                   23, "x", 0, NULL);
}

/* Unpacked and packed parts in one list come out in order. */
static void mixed_lists(void **state)
{
    (void)state;
    const uint8_t list_bytes[] = {0x08, 0x05, 0x0a, 0x03, 0x06, 0x80, 0x01, 0x50, 0x00, 0x08, 0x07};
    const uint64_t expected[] = {5, 6, 128, 7};
    mst_example_feature feature = {
        .list = list_bytes, .list_size = sizeof list_bytes, .kind = MST_EXAMPLE_INTS};
    mst_example_list list;
    const uint8_t *run;
    size_t n, count = 0;
    mst_example_list_init(&list, &feature);
    while (mst_example_run(&list, &run, &n))
        for (const uint8_t *at = run; at < run + n; count++) {
            uint64_t value;
            at = mst_varint(at, run + n, &value);
            assert_non_null(at);
            assert_true(value == expected[count]);
        }
    assert_null(list.problem);
    assert_int_equal(count, 4);
}

static void encoder(void **state)
{
    (void)state;
    float dense[2] = {0.5f, -1.0f};
    uint32_t keys[3] = {2, 300, 4000000000u};
    mst_row row = {.dense = dense, .n_dense = 2, .keys = keys, .n_keys = 3, .label = 1.0f, .weight = 2.0f};
    mst_example_buffer buffer = {0};
    assert_int_equal(mst_example_append(&buffer, MST_EXAMPLE_COLUMNS, &row), MST_OK);
    uint64_t length;
    memcpy(&length, buffer.data, 8);
    assert_int_equal(length + 16, buffer.n);
    uint32_t crc;
    memcpy(&crc, buffer.data + 8, 4);
    assert_int_equal(crc, mst_crc_mask(mst_crc32c(0, buffer.data, 8)));
    memcpy(&crc, buffer.data + 12 + length, 4);
    assert_int_equal(crc, mst_crc_mask(mst_crc32c(0, buffer.data + 12, length)));

    static const char *const names[] = {"label", "weight", "I1", "I2", "C1", "C2", "C3"};
    mst_example_walk walk;
    mst_example_feature feature;
    size_t n = 0;
    mst_example_walk_init(&walk, buffer.data + 12, length);
    while (mst_example_next(&walk, &feature)) {
        assert_true(n < 7 && feature.name_size == strlen(names[n]));
        assert_memory_equal(feature.name, names[n], feature.name_size);
        assert_int_equal(feature.kind, n < 4 ? MST_EXAMPLE_FLOATS : MST_EXAMPLE_INTS);
        n++;
    }
    assert_null(walk.problem);
    assert_int_equal(n, 7);

    row.values = dense;
    size_t before = buffer.n;
    assert_int_equal(mst_example_append(&buffer, MST_EXAMPLE_COLUMNS, &row), MST_EINPUT);
    assert_int_equal(buffer.n, before);
    mst_alloc_fail_at(1);
    mst_example_buffer fresh = {0};
    assert_int_equal(mst_example_append(&fresh, MST_EXAMPLE_PAIRS, &row), MST_ENOMEM);
    mst_alloc_fail_at(0);
    mst_free(buffer.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(varints),     cmocka_unit_test(shapes),  cmocka_unit_test(fields_twice),
        cmocka_unit_test(mixed_lists), cmocka_unit_test(encoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
