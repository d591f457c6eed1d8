/* Origins of rows: which match, and the errors of those that do not. */
#include "data/cache.h"
#include "data/origin.h"
#include "data/write.h"
#include "unit/data/text_helpers.h"

/* Checks two origins written as JSON; the sentence's part between "rows has " and "; --force", or NULL: they
 * fit. */
static void check(const char *model, const char *rows, const char *sentence)
{
    json_t *a = model != NULL ? json_loads(model, 0, NULL) : NULL,
           *b = rows != NULL ? json_loads(rows, 0, NULL) : NULL;
    char expected[600];
    mst_status st = mst_origin_check(a, "run", b, "rows");
    assert_int_equal(st, sentence == NULL ? MST_OK : MST_EINPUT);
    if (sentence != NULL) {
        snprintf(expected, sizeof expected,
                 "rows has %s: feature numbers mean different things in the two; --force uses them anyway",
                 sentence);
        assert_string_equal(mst_error_text(), expected);
    }
    json_decref(a);
    json_decref(b);
}

#define NUMBERS "{\"keys\": \"numbers\"}"
#define VW      "{\"keys\": \"vw\", \"features\": 9, \"hash-seed\": 1}"

static void what_fits(void **state)
{
    (void)state;
    check(NULL, VW, NULL);
    check(VW, NULL, NULL);
    check(VW, VW, NULL);
    check(NUMBERS, "{\"keys\": \"numbers\", \"index-base\": 0}", NULL);
    check("{\"keys\": \"numbers\", \"columns\": []}", "{\"keys\": \"numbers\", \"index-base\": 0}", NULL);
    check(NUMBERS, VW, "rows with features hashed by vw, but run is for rows with numbered features");
    check(VW, "{\"keys\": \"criteo\"}",
          "rows with features hashed by criteo, but run is for rows with features hashed by vw");
    check(VW, "{\"keys\": \"vw\", \"features\": 9, \"hash-seed\": 2}",
          "rows read with --hash-seed 2, but run is for rows read with --hash-seed 1");
    check(VW, "{\"keys\": \"vw\", \"features\": 8}",
          "rows hashed into 8 features, but run is for rows hashed into 9 features");
    check("{\"keys\": \"numbers\", \"columns\": [\"a float\", \"b int64\"]}",
          "{\"keys\": \"numbers\", \"columns\": [\"a float\", \"c int64\"]}",
          "rows whose column 2 is \"c int64\", but run is for rows whose column 2 is \"b int64\"");
    check("{\"keys\": \"numbers\", \"columns\": [\"a float\", \"b int64\"]}",
          "{\"keys\": \"numbers\", \"columns\": [\"a float\"]}",
          "rows of 1 columns, but run is for rows of 2 columns");
}

static void anything_may_stand_in_files(void **state)
{
    (void)state;
    static const char *const texts[] = {"[]",
                                        "{}",
                                        "{\"origin\": 3}",
                                        "{\"origin\": {}}",
                                        "{\"origin\": {\"keys\": 7}}",
                                        "{\"origin\": [\"keys\"]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *json = json_loads(texts[i], 0, NULL);
        assert_null(mst_origin_in(json));
        json_decref(json);
    }
    assert_null(mst_origin_in(NULL));
    check("{\"keys\": \"x\", \"columns\": 7, \"features\": {\"a\": []}}", "{\"keys\": \"x\", \"columns\": 7}",
          NULL);
    check("{\"keys\": \"x\", \"columns\": 7}", "{\"keys\": \"x\", \"columns\": [1]}",
          "rows of 1 columns, but run is for rows of 0 columns");
}

/* Writes a whole chunk of rows with this source key; returns the path. */
static const char *write_cache(const char *name, const char *key)
{
    mst_row_writer *writer = NULL;
    mst_chunk_builder b;
    mst_chunk *chunk = NULL;
    const char *path = in_folder(name);
    mst_chunk_builder_init(&b);
    for (int i = 0; i < MST_CACHE_ROWS; i++) {
        assert_int_equal(mst_chunk_builder_room(&b, 1), MST_OK);
        mst_chunk_builder_add(&b, 3, 1.0f);
        assert_int_equal(mst_chunk_builder_end_row(&b, 1.0f, 1.0f), MST_OK);
    }
    assert_int_equal(mst_chunk_builder_pack(&b, 0, MST_CACHE_ROWS, &chunk), MST_OK);
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, key, &writer), MST_OK);
    assert_int_equal(mst_row_writer_add(writer, chunk), MST_OK);
    assert_int_equal(mst_row_writer_commit(writer, NULL), MST_OK);
    mst_row_writer_destroy(writer);
    mst_chunk_release(chunk);
    mst_chunk_builder_fini(&b);
    return path;
}

static mst_dataset *cache_with(const char *name, const char *key)
{
    mst_dataset *cache = NULL;
    char *items[] = {(char *)write_cache(name, key)};
    assert_int_equal(mst_cache_open(&(mst_text_list){.items = items, .n = 1}, &cache), MST_OK);
    return cache;
}

/* A cache of any age opens; only one with an origin has it. */
static void caches_carry_origins(void **state)
{
    (void)state;
    static const char *const without[] = {"", "anything", "{\"data\":{\"hash-seed\":3}}\n", "/x 3 1.0\n{}\n",
                                          "{\"origin\":{}}\n"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        mst_dataset *cache = cache_with("old.cache", without[i]);
        assert_null(cache->origin);
        mst_dataset_destroy(cache);
    }
    json_t *origin = json_loads(VW, 0, NULL);
    mst_data_options options = {.hash_seed = 1};
    char *key = mst_cache_key_text(&options, origin);
    mst_dataset *cache = cache_with("new.cache", key);
    json_t *read = mst_cache_options(cache);
    assert_true(json_equal(cache->origin, origin));
    assert_int_equal(json_integer_value(json_object_get(read, "hash-seed")), 1);
    json_decref(read);
    mst_dataset_destroy(cache);
    mst_free(key);
    json_decref(origin);
}

static void caches_of_one_set_have_one_origin(void **state)
{
    (void)state;
    mst_dataset *cache = NULL;
    char *items[] = {(char *)write_cache("a.cache", "{\"origin\":{\"keys\":\"vw\",\"hash-seed\":1}}\n"),
                     (char *)write_cache("b.cache", "{\"origin\":{\"keys\":\"vw\",\"hash-seed\":2}}\n"),
                     (char *)write_cache("c.cache", "")};
    assert_int_equal(mst_cache_open(&(mst_text_list){.items = items, .n = 2}, &cache), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "b.cache has rows read with --hash-seed 2, but "));
    items[1] = items[2];
    assert_int_equal(mst_cache_open(&(mst_text_list){.items = items, .n = 2}, &cache), MST_OK);
    assert_null(cache->origin);
    mst_dataset_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits),
        cmocka_unit_test(anything_may_stand_in_files),
        cmocka_unit_test(caches_carry_origins),
        cmocka_unit_test(caches_of_one_set_have_one_origin),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
