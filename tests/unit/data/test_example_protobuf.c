/* The tf.Example walker against protobuf-c, on random messages of every shape and on damaged ones.
 *
 * What the walker accepts, protobuf-c accepts and sees alike, except for lists of one kind that follow each
 * other in a feature, which protobuf merges (test_example.c) and protobuf-c does not. What only the walker
 * refuses, it refuses for one of the reasons that example.h states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/example.h"
#include "example.pb-c.h"

enum { MESSAGES = 3000, DAMAGES = 12 };

typedef struct text {
    uint8_t data[1 << 14];
    size_t n;
} text;

static mst_rng rng;

static uint32_t below(uint32_t n)
{
    return mst_rng_below(&rng, n);
}

static void put_bytes(text *t, const void *data, size_t n)
{
    assert_true(t->n + n <= sizeof t->data);
    if (n > 0)
        memcpy(t->data + t->n, data, n);
    t->n += n;
}

static void put_varint(text *t, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put_bytes(t, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
    put_bytes(t, &(uint8_t){(uint8_t)v}, 1);
}

static void put_part(text *t, unsigned number, const text *part)
{
    put_varint(t, number << 3 | 2);
    put_varint(t, part->n);
    put_bytes(t, part->data, part->n);
}

/* ---- random messages ---- */

static void put_unknown(text *t)
{
    static const uint8_t filler[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    if (below(12) != 0)
        return;
    unsigned number = 4 + below(3000);
    switch (below(4)) {
    case 0:
        put_varint(t, number << 3);
        put_varint(t, mst_rng_u64(&rng) >> below(64));
        break;
    case 1:
        put_varint(t, number << 3 | 1);
        put_bytes(t, filler, 8);
        break;
    case 2:
        put_varint(t, number << 3 | 2);
        put_varint(t, 5);
        put_bytes(t, filler, 5);
        break;
    default:
        put_varint(t, number << 3 | 5);
        put_bytes(t, filler, 4);
    }
}

static void random_list(text *t, mst_example_kind kind)
{
    static text packed;
    t->n = 0;
    for (uint32_t parts = below(4); parts > 0; parts--) {
        uint32_t n = below(kind == MST_EXAMPLE_BYTES ? 2 : 6);
        bool pack = kind != MST_EXAMPLE_BYTES && below(3) != 0;
        packed.n = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = mst_rng_u32(&rng);
            text *to = pack ? &packed : t;
            if (kind == MST_EXAMPLE_BYTES) {
                put_varint(t, 0x0a);
                put_varint(t, bits % 4);
                put_bytes(t, &bits, bits % 4);
                continue;
            }
            if (!pack)
                put_varint(t, kind == MST_EXAMPLE_FLOATS ? 0x0d : 0x08);
            if (kind == MST_EXAMPLE_FLOATS)
                put_bytes(to, &bits, 4);
            else
                put_varint(to, mst_rng_u64(&rng) >> below(64));
        }
        if (pack)
            put_part(t, 1, &packed);
        put_unknown(t);
    }
}

static void random_entry(text *t)
{
    static text list, feature, name;
    static const char *const names[] = {"", "I1", "C26", "label", "global_indices", "value"};
    const char *chosen = names[below(6)];
    bool key_first = below(4) != 0;
    mst_example_kind kind = (mst_example_kind)below(4);
    t->n = feature.n = name.n = 0;
    put_bytes(&name, chosen, strlen(chosen));
    if (key_first && below(10) != 0)
        put_part(t, 1, &name);
    put_unknown(t);
    put_unknown(&feature);
    if (kind != MST_EXAMPLE_NONE) {
        random_list(&list, kind);
        put_part(&feature, kind, &list);
    }
    put_unknown(&feature);
    if (below(20) != 0)
        put_part(t, 2, &feature);
    if (!key_first)
        put_part(t, 1, &name);
    put_unknown(t);
}

static void random_example(text *t)
{
    static text features, entry;
    t->n = 0;
    for (uint32_t parts = below(6) == 0 ? below(3) : 1; parts > 0; parts--) {
        features.n = 0;
        for (uint32_t n = below(6); n > 0; n--) {
            random_entry(&entry);
            put_part(&features, 1, &entry);
            put_unknown(&features);
        }
        put_unknown(t);
        put_part(t, 1, &features);
    }
    put_unknown(t);
}

/* ---- what each of the two sees ---- */

static text walker_view, protobuf_view;
static bool merged; /* the walker has seen several lists of a feature */

static void put_u64(text *t, uint64_t v)
{
    put_bytes(t, &v, 8);
}

/* Name, kind, count, numbers of every feature; NULL or the problem. */
static const char *view_by_walker(const uint8_t *message, size_t n)
{
    static text numbers;
    text *t = &walker_view;
    mst_example_walk walk;
    mst_example_feature feature;
    t->n = 0;
    merged = false;
    mst_example_walk_init(&walk, message, n);
    while (mst_example_next(&walk, &feature)) {
        merged |= feature.more != NULL;
        mst_example_list list;
        const uint8_t *run;
        size_t size;
        uint64_t count = 0;
        numbers.n = 0;
        mst_example_list_init(&list, &feature);
        while (mst_example_run(&list, &run, &size)) {
            if (feature.kind == MST_EXAMPLE_BYTES) {
                put_u64(&numbers, size);
                put_bytes(&numbers, run, size);
                count++;
            } else if (feature.kind == MST_EXAMPLE_FLOATS) {
                put_bytes(&numbers, run, size);
                count += size / 4;
            } else {
                for (const uint8_t *at = run; at < run + size; count++) {
                    uint64_t value;
                    at = mst_varint(at, run + size, &value);
                    if (at == NULL)
                        return "broken int64";
                    put_u64(&numbers, value);
                }
            }
        }
        if (list.problem != NULL)
            return list.problem;
        put_u64(t, feature.name_size);
        put_bytes(t, feature.name, feature.name_size);
        put_u64(t, feature.kind);
        put_u64(t, count);
        put_bytes(t, numbers.data, numbers.n);
    }
    return walk.problem;
}

static bool view_by_protobuf(const uint8_t *message, size_t n)
{
    text *t = &protobuf_view;
    t->n = 0;
    Tf__Example *example = tf__example__unpack(NULL, n, message);
    if (example == NULL)
        return false;
    for (size_t i = 0; example->features != NULL && i < example->features->n_feature; i++) {
        const Tf__Entry *entry = example->features->feature[i];
        const Tf__Feature *feature = entry->value;
        put_u64(t, entry->key.len);
        put_bytes(t, entry->key.data, entry->key.len);
        switch (feature != NULL ? feature->kind_case : TF__FEATURE__KIND__NOT_SET) {
        case TF__FEATURE__KIND_BYTES_LIST:
            put_u64(t, MST_EXAMPLE_BYTES);
            put_u64(t, feature->bytes_list->n_value);
            for (size_t j = 0; j < feature->bytes_list->n_value; j++) {
                put_u64(t, feature->bytes_list->value[j].len);
                put_bytes(t, feature->bytes_list->value[j].data, feature->bytes_list->value[j].len);
            }
            break;
        case TF__FEATURE__KIND_FLOAT_LIST:
            put_u64(t, MST_EXAMPLE_FLOATS);
            put_u64(t, feature->float_list->n_value);
            put_bytes(t, feature->float_list->value, 4 * feature->float_list->n_value);
            break;
        case TF__FEATURE__KIND_INT64_LIST:
            put_u64(t, MST_EXAMPLE_INTS);
            put_u64(t, feature->int64_list->n_value);
            put_bytes(t, feature->int64_list->value, 8 * feature->int64_list->n_value);
            break;
        default:
            put_u64(t, MST_EXAMPLE_NONE);
            put_u64(t, 0);
        }
    }
    tf__example__free_unpacked(example, NULL);
    return true;
}

static void expect_same_view(void)
{
    assert_int_equal(walker_view.n, protobuf_view.n);
    assert_memory_equal(walker_view.data, protobuf_view.data, walker_view.n);
}

/* A reason of the walker's own for refusing what protobuf-c takes. */
static bool is_own_reason(const char *problem)
{
    return strstr(problem, "wrong wire type") != NULL || strstr(problem, "field tag") != NULL;
}

static void random_messages(void **state)
{
    (void)state;
    static text message;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    for (int i = 0; i < MESSAGES; i++) {
        random_example(&message);
        const char *problem = view_by_walker(message.data, message.n);
        assert_true(view_by_protobuf(message.data, message.n));
        if (problem != NULL)
            fail_msg("message %d: %s", i, problem);
        expect_same_view();
    }
}

static void damage(text *t)
{
    for (uint32_t times = 1 + below(2); times > 0 && t->n > 0; times--) {
        uint32_t at = below((uint32_t)t->n);
        switch (below(5)) {
        case 0:
            t->data[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            t->data[at] = (uint8_t)mst_rng_u32(&rng);
            break;
        case 2: /* cut off */
            t->n = at;
            break;
        case 3: /* a byte less */
            memmove(t->data + at, t->data + at + 1, t->n - at - 1);
            t->n--;
            break;
        default: /* a piece twice */
            if (t->n + 8 < sizeof t->data && at + 8 < t->n) {
                memmove(t->data + at + 8, t->data + at, t->n - at);
                t->n += 8;
            }
        }
    }
}

/* An entry whose value occurs twice and has no kind at first: protobuf merges the two, protobuf-c refuses. */
static bool merges_unset(const text *t)
{
    return memmem(t->data, t->n, "\x12\0\x12", 3) != NULL;
}

static void damaged_messages(void **state)
{
    (void)state;
    static text message, damaged;
    unsigned agreed = 0, refused = 0;
    mst_rng_init(&rng, 2, MST_RNG_TEST, 0);
    for (int i = 0; i < MESSAGES; i++) {
        random_example(&message);
        for (int j = 0; j < DAMAGES; j++) {
            damaged = message;
            damage(&damaged);
            uint8_t *exact = malloc(damaged.n + 1); /* so that a sanitizer sees a step beyond */
            assert_non_null(exact);
            memcpy(exact, damaged.data, damaged.n);
            const char *problem = view_by_walker(exact, damaged.n);
            bool accepted = view_by_protobuf(exact, damaged.n);
            free(exact);
            if (problem == NULL) {
                assert_true(accepted || merges_unset(&damaged));
                if (accepted && !merged)
                    expect_same_view();
                agreed++;
            } else if (accepted && !is_own_reason(problem)) {
                fail_msg("message %d.%d: protobuf-c takes it; the walker says: %s", i, j, problem);
            } else {
                refused++;
            }
        }
    }
    assert_true(agreed > 1000 && refused > 1000); /* the damage is neither too mild nor too harsh to tell */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_messages),
        cmocka_unit_test(damaged_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
