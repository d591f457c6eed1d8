/* Strings that grow: formats, escapes, and lack of memory. */
#include "base/strings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"

static void test_escapes(void **state)
{
    (void)state;
    mst_string out = {0};
    mst_string_html(&out, "\xff\xc0\xaf\x01 \xe2\x82\xac \xed\xa0\x80");
    assert_string_equal(out.text, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xe2\x82\xac "
                                  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    mst_string_fini(&out);
    mst_string_shell(&out, "it's");
    assert_string_equal(out.text, "'it'\\''s'");
    mst_string_fini(&out);
    mst_string_csv(&out, "a,\"b\"");
    assert_string_equal(out.text, "\"a,\"\"b\"\"\"");
    mst_string_fini(&out);
}

static void test_growth(void **state)
{
    (void)state;
    mst_string out = {0};
    for (int i = 0; i < 1000; i++)
        mst_string_format(&out, "%d,", i % 10);
    assert_false(out.failed);
    assert_int_equal(out.size, 2000);
    assert_int_equal(out.text[2000], '\0');
    mst_string_fini(&out);
    mst_alloc_fail_at(1);
    mst_string_add(&out, "a");
    mst_alloc_fail_at(0);
    assert_true(out.failed);
    mst_string_add(&out, "b"); /* ignored from then on */
    assert_int_equal(out.size, 0);
    assert_int_equal(mst_string_save(&out, "-"), MST_ENOMEM);
    mst_string_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
