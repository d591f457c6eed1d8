/* Faults: a truncated file reads as zeros and is named, a guard absorbs stray writes, and other faults are
 * passed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "temp_folder.h"

#define SIZE ((size_t)1 << 20)

static void write_file(const char *path, int byte, size_t size)
{
    char *bytes = malloc(size);
    FILE *file = fopen(path, "r+");
    file = file != NULL ? file : fopen(path, "w");
    assert_true(bytes != NULL && file != NULL);
    memset(bytes, byte, size);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

/* Sets the time of the last change back, as if the file were older than the test. */
static void age(const char *path)
{
    struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static uint64_t sum(const volatile uint8_t *bytes, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += bytes[i];
    return total;
}

static void *sum_thread(void *arg)
{
    return (void *)(uintptr_t)sum(arg, SIZE);
}

static void test_truncated(void **state)
{
    (void)state;
    mst_map map;
    pthread_t threads[4];
    void *total;
    write_file("a", 1, SIZE);
    assert_int_equal(mst_map_open("a", &map), MST_OK);
    assert_int_equal(mst_map_check(&map), MST_OK);
    uint64_t faults = mst_fault_count();
    assert_int_equal(truncate("a", 8192), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sum_thread, (void *)map.data), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], &total);
        assert_int_equal((uintptr_t)total, 8192);
    }
    assert_true(mst_fault_count() > faults);
    assert_int_equal(mst_map_check(&map), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a was cut from 1048576 to 8192 bytes while it was in use"));
    /* a new end further on does not bring the bytes back */
    assert_int_equal(truncate("a", SIZE), 0);
    assert_int_equal(mst_map_check(&map), MST_EINPUT);
    mst_map_close(&map);
}

static void test_overwritten(void **state)
{
    (void)state;
    mst_map map;
    write_file("b", 1, SIZE);
    age("b");
    assert_int_equal(mst_map_open("b", &map), MST_OK);
    write_file("b", 2, SIZE);
    assert_int_equal(mst_map_check(&map), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "b was overwritten while it was in use"));
    mst_map_close(&map);
}

/* Renaming another file over it, or removing it, leaves the mapped one alone. */
static void test_replaced(void **state)
{
    (void)state;
    mst_map map;
    write_file("c", 1, SIZE);
    write_file("other", 2, 10);
    assert_int_equal(mst_map_open("c", &map), MST_OK);
    assert_int_equal(rename("other", "c"), 0);
    assert_int_equal(mst_map_check(&map), MST_OK);
    assert_int_equal(unlink("c"), 0);
    assert_int_equal(mst_map_check(&map), MST_OK);
    assert_int_equal(sum(map.data, SIZE), SIZE);
    mst_map_close(&map);
}

static void test_guard(void **state)
{
    (void)state;
    size_t size = (size_t)1 << 30;
    volatile uint8_t *guard = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(guard != MAP_FAILED);
    mst_fault_range *range = mst_fault_guard((void *)guard, size, MST_FAULT_GUARD);
    assert_non_null(range);
    assert_false(mst_fault_hit(range));
    guard[size - 1] = 1;
    assert_true(mst_fault_hit(range));
    for (size_t at = 0; at < size; at += size / 1000)
        guard[at] = 1;
    mst_fault_unguard(range);
    munmap((void *)guard, size);
}

/* ---- other people's faults ---- */

static volatile sig_atomic_t others;

static void other_handler(int number)
{
    (void)number;
    others = others + 1;
    signal(SIGSEGV, SIG_DFL);
}

/* How a process ends that faults outside any range, with a handler of its own or without. */
static int end_of_stray(bool with_handler)
{
    pid_t child = fork();
    if (child == 0) {
        mst_map map;
        signal(SIGSEGV, with_handler ? other_handler : SIG_DFL);
        if (mst_map_open("d", &map) != MST_OK)
            _exit(3);
        void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (with_handler) { /* the first fault is its own, the second ends the process */
            struct sigaction now;
            raise(SIGSEGV);
            sigaction(SIGSEGV, NULL, &now);
            _exit(others == 1 && now.sa_handler == SIG_DFL ? 0 : 4);
        }
        *(volatile char *)page = 1;
        _exit(5);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* How a process ends that receives a signal from another process. */
static int end_of_sent(int number)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        mst_map map;
        signal(number, SIG_DFL);
        if (mst_map_open("d", &map) != MST_OK || write(ready[1], "", 1) != 1)
            _exit(3);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(child, number), 0);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ready[0]);
    close(ready[1]);
    return status;
}

static void test_sent(void **state)
{
    (void)state;
    alarm(60); /* the child would wait for ever */
    write_file("d", 1, 4096);
    static const int numbers[] = {SIGSEGV, SIGBUS};
    for (size_t i = 0; i < 2; i++) {
        int status = end_of_sent(numbers[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
    }
    alarm(0);
}

static void test_elsewhere(void **state)
{
    (void)state;
    write_file("d", 1, 4096);
    int status = end_of_stray(true);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which report it in their own way */
    status = end_of_stray(false);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
}

static void test_handlers_restored(void **state)
{
    (void)state;
    struct sigaction before, during, after;
    mst_map first, second;
    write_file("e", 1, 4096);
    sigaction(SIGBUS, NULL, &before);
    assert_int_equal(mst_map_open("e", &first), MST_OK);
    assert_int_equal(mst_map_open("e", &second), MST_OK);
    sigaction(SIGBUS, NULL, &during);
    assert_true(during.sa_sigaction != before.sa_sigaction);
    mst_map_close(&first);
    sigaction(SIGBUS, NULL, &after);
    assert_true(after.sa_sigaction == during.sa_sigaction);
    mst_map_close(&second);
    sigaction(SIGBUS, NULL, &after);
    assert_true(after.sa_sigaction == before.sa_sigaction);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_sent),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_handlers_restored),
    };
    return cmocka_run_group_tests(tests, enter_folder, remove_folder);
}
