/* Status codes: names, texts, exit codes, and the sentence that belongs to a thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/status.h"

static void test_sentence(void **state)
{
    (void)state;
    assert_int_equal(mst_fail(MST_EINPUT, "%s:%d: label %g", "a.txt", 3, 2.5), MST_EINPUT);
    assert_string_equal(mst_error_text(), "a.txt:3: label 2.5");
    /* a sentence may be built from the one before */
    assert_int_equal(mst_fail(MST_EIO, "again: %s", mst_error_text()), MST_EIO);
    assert_string_equal(mst_error_text(), "again: a.txt:3: label 2.5");
    char longer[3 * MST_ERROR_MAX];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    mst_fail(MST_EIO, "%s", longer);
    assert_int_equal(strlen(mst_error_text()), MST_ERROR_MAX - 1);
}

/* Text of other processes that an error quotes cannot control a terminal or begin a new line of a log. */
static void test_masked(void **state)
{
    (void)state;
    mst_fail(MST_EPEER, "worker 1: %s",
             "a\x1b[2J\nb\xc2\x9b"
             "c\xff \xc3\xa4");
    assert_string_equal(mst_error_text(), "worker 1: a?[2J?b??c? \xc3\xa4");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(mst_status_text(MST_ENOMEM), "out of memory");
    assert_string_equal(mst_status_text((mst_status)-1), "unknown status");
    assert_int_equal(mst_status_exit_code(MST_OK), 0);
    assert_int_equal(mst_status_exit_code(MST_EUSAGE), 2);
    assert_int_equal(mst_status_exit_code(MST_EPEER), 3);
    assert_int_equal(mst_status_exit_code(MST_EINPUT), 1);
    assert_int_equal(mst_status_exit_code(MST_ENOMEM), 1);
}

static void *fail_elsewhere(void *arg)
{
    if (mst_error_text()[0] != '\0')
        return NULL; /* a new thread has no sentence */
    mst_error_save(arg, mst_fail(MST_EPEER, "rank 3 is gone"));
    return arg;
}

static void test_threads(void **state)
{
    (void)state;
    mst_error error;
    pthread_t thread;
    void *result;
    mst_fail(MST_EIO, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &error), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &error);
    assert_string_equal(mst_error_text(), "mine");
    assert_int_equal(mst_error_restore(&error), MST_EPEER);
    assert_string_equal(mst_error_text(), "rank 3 is gone");
}

static int g_calls;

static mst_status outcome(mst_status st)
{
    g_calls++;
    return st;
}

static mst_status tries(mst_status first, mst_status second)
{
    mst_status st;
    TRY(outcome(first));
    TRY_OUT(st, outcome(second));
    g_calls += 10;
out:
    g_calls += 100;
    return st;
}

static void test_try(void **state)
{
    (void)state;
    assert_int_equal(tries(MST_OK, MST_OK), MST_OK);
    assert_int_equal(g_calls, 112);
    g_calls = 0;
    assert_int_equal(tries(MST_EIO, MST_OK), MST_EIO);
    assert_int_equal(g_calls, 1);
    g_calls = 0;
    assert_int_equal(tries(MST_OK, MST_ENOMEM), MST_ENOMEM);
    assert_int_equal(g_calls, 102);
}

/* The lead survives saving and restoring, and ends with the next sentence. */
static unsigned lead_of_error(void)
{
    mst_error error;
    mst_error_save(&error, MST_EIO);
    return error.lead;
}

static void test_lead(void **state)
{
    mst_error error;
    (void)state;
    assert_int_equal(mst_fail_lead(MST_ESTOPPED, "stopped", " while reading %s", "x"), MST_ESTOPPED);
    assert_string_equal(mst_error_text(), "stopped while reading x");
    assert_int_equal(lead_of_error(), 7);
    mst_error_save(&error, MST_ESTOPPED);
    mst_fail(MST_EIO, "%s", mst_error_text());
    assert_int_equal(lead_of_error(), 0);
    assert_int_equal(mst_error_restore(&error), MST_ESTOPPED);
    assert_int_equal(lead_of_error(), 7);
    mst_fail_lead(MST_EINPUT, "worker 1", ": %s", mst_error_text());
    assert_string_equal(mst_error_text(), "worker 1: stopped while reading x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lead),    cmocka_unit_test(test_sentence), cmocka_unit_test(test_names),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_try),      cmocka_unit_test(test_masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
