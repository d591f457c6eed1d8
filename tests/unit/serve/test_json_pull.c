/* The strict JSON reader: values, every kind of error, and agreement with jansson on generated texts. */
#include "serve/json_pull.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Walks a text of exactly n bytes. NULL: it is valid. */
static const char *walk(const char *text, size_t n, char *error, size_t size)
{
    char *copy = malloc(n + 1); /* of the exact size: a read beyond it is seen by the address sanitizer */
    mst_json j;
    mst_json_token t;
    memcpy(copy, text, n);
    copy = realloc(copy, n > 0 ? n : 1);
    mst_json_init(&j, copy, n);
    mst_json_value(&j, &t);
    mst_json_skip(&j, &t);
    bool good = mst_json_end(&j);
    if (!good)
        mst_json_error(&j, error, size);
    free(copy);
    return good ? NULL : error;
}

static void test_valid(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        " [ ] ",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "12",
        "-1.5e+10",
        "1E5",
        "0.25",
        "\"\"",
        "[1,2,[3,{\"a\":[]}],\"x\"]",
        "{\"a\":{\"b\":{}},\"c\":[{}]}",
        "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
        "\"\xc3\xa9\xf0\x9f\x98\x80\"",
        "\t\r\n{\"k\" : 1 , \"l\":[ 2 ]}\n",
    };
    char error[200];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (walk(texts[i], strlen(texts[i]), error, sizeof error) != NULL)
            fail_msg("%s: %s", texts[i], error);
}

static void test_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "byte 1: the text ends early"},
        {"[", "byte 2: the text ends early"},
        {"[1", "byte 3: the text ends early"},
        {"{\"a\"", "byte 5: a colon is missing"},
        {"{\"a\":", "byte 6: the text ends early"},
        {"{a:1}", "byte 2: the name of a member is missing"},
        {"{\"a\":1,}", "byte 8: the name of a member is missing"},
        {"[1,]", "byte 4: a value is missing or is none of JSON"},
        {"[1 2]", "byte 4: a comma is missing"},
        {"[1}", "byte 3: a comma is missing"},
        {"nul", "byte 1: a value is missing or is none of JSON"},
        {"NaN", "byte 1: a value is missing or is none of JSON"},
        {"01", "byte 3: a number begins with 0"},
        {"-01", "byte 4: a number begins with 0"},
        {"-", "byte 2: a value is missing or is none of JSON"},
        {"1.", "byte 3: digits are missing after a point"},
        {".5", "byte 1: a value is missing or is none of JSON"},
        {"1e", "byte 3: digits of an exponent are missing"},
        {"1e+", "byte 4: digits of an exponent are missing"},
        {"+1", "byte 1: a value is missing or is none of JSON"},
        {"1 1", "byte 3: text follows the value"},
        {"{} x", "byte 4: text follows the value"},
        {"\"a", "byte 3: a string has no end"},
        {"\"\\x\"", "byte 3: an escape is not one of JSON"},
        {"\"\\", "byte 3: an escape is not one of JSON"},
        {"\"\\u12\"", "byte 4: \\u needs four hex digits"},
        {"\"\\u12g4\"", "byte 4: \\u needs four hex digits"},
        {"\"\\ud800\"", "byte 4: half of a surrogate pair is missing"},
        {"\"\\ud800\\u0041\"", "byte 4: half of a surrogate pair is missing"},
        {"\"\\udc00\"", "byte 4: half of a surrogate pair is missing"},
        {"\"a\nb\"", "byte 3: a control character in a string must be escaped"},
        {"\"\xff\"", "byte 2: a string is not UTF-8"},
        {"\"\xc3\"", "byte 2: a string is not UTF-8"},
        {"\"\xed\xa0\x80\"", "byte 2: a string is not UTF-8"},
        {"\"\xc0\xaf\"", "byte 2: a string is not UTF-8"},
        {"/**/1", "byte 1: a value is missing or is none of JSON"},
    };
    char error[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = walk(cases[i].text, strlen(cases[i].text), error, sizeof error);
        if (got == NULL || strcmp(got, cases[i].error) != 0)
            fail_msg("%s: \"%s\" instead of \"%s\"", cases[i].text, got != NULL ? got : "valid",
                     cases[i].error);
    }
    assert_string_equal(walk("[\0]", 3, error, sizeof error),
                        "byte 2: a value is missing or is none of JSON");
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * MST_JSON_DEPTH + 4], error[200];
    memset(text, '[', MST_JSON_DEPTH);
    memset(text + MST_JSON_DEPTH, ']', MST_JSON_DEPTH);
    assert_null(walk(text, 2 * MST_JSON_DEPTH, error, sizeof error));
    memset(text, '[', MST_JSON_DEPTH + 1);
    assert_string_equal(walk(text, MST_JSON_DEPTH + 1, error, sizeof error), "byte 33: more than 32 levels");
}

static void test_values(void **state)
{
    (void)state;
    char text[] = "{\"a\\u0041\": [1.50, \"x\\ty\\u00e9\", null], \"\": {\"b\": true}, \"c\": \"\\u0000\"}";
    mst_json j;
    mst_json_token name, t;
    mst_json_init(&j, text, strlen(text));
    assert_true(mst_json_value(&j, &t) && t.kind == MST_JSON_OBJECT);
    assert_true(mst_json_member(&j, &name, &t) && t.kind == MST_JSON_ARRAY);
    assert_int_equal(name.n, 2);
    assert_memory_equal(name.text, "aA", 2);
    assert_true(mst_json_item(&j, &t) && t.kind == MST_JSON_NUMBER && t.n == 4);
    assert_memory_equal(t.text, "1.50", 4);
    assert_true(mst_json_item(&j, &t) && t.kind == MST_JSON_STRING && t.n == 5);
    assert_memory_equal(t.text, "x\ty\xc3\xa9", 5);
    assert_true(mst_json_item(&j, &t) && t.kind == MST_JSON_NULL);
    assert_false(mst_json_item(&j, &t));
    assert_true(mst_json_member(&j, &name, &t) && name.n == 0 && t.kind == MST_JSON_OBJECT);
    assert_true(mst_json_skip(&j, &t));
    assert_true(mst_json_member(&j, &name, &t) && t.kind == MST_JSON_STRING && t.n == 1 && t.text[0] == '\0');
    assert_false(mst_json_member(&j, &name, &t));
    assert_true(mst_json_end(&j));
}

/* Texts made of pieces of JSON: whether a text is valid must be what jansson finds. */
static void test_random(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "{",  "}",    "[",    "]", ",",  ":",       "\"a\"", "\"\\n\"", "1",     "-2.5",      "0",
        "e3", "null", "true", " ", "\"", "\\u0041", ".",     "\"b\":",  "[1,2]", "{\"c\":3}", "\xc3\xa9"};
    uint64_t seed = 7;
    unsigned valid = 0;
    for (int round = 0; round < 200000; round++) {
        char text[256] = "", error[200];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = seed;
        unsigned n = 1 + (unsigned)(bits >> 60);
        for (unsigned i = 0; i < n; i++) {
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            strcat(text, pieces[(bits >> 33) % (sizeof pieces / sizeof *pieces)]);
        }
        json_t *json = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        const char *got = walk(text, strlen(text), error, sizeof error);
        if ((json != NULL) != (got == NULL))
            fail_msg("%s: jansson %s it, the reader: %s", text, json != NULL ? "takes" : "refuses",
                     got != NULL ? got : "valid");
        valid += json != NULL;
        json_decref(json);
    }
    assert_true(valid > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_valid), cmocka_unit_test(test_invalid),
                                       cmocka_unit_test(test_depth), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
