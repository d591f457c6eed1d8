/* Cores of processes: one each, servers spread; the cores of the starting thread come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/core_pin.h"

#define CORES_MAX 40

static void every_process_has_its_own(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= CORES_MAX; n++)
        for (uint32_t servers = 0; servers <= n; servers++) {
            bool taken[CORES_MAX] = {false};
            for (uint32_t i = 0; i < n; i++) {
                bool server = i < servers;
                uint32_t core = mst_core_pin_of(n, servers, server, server ? i : i - servers);
                assert_true(core < n && !taken[core]);
                taken[core] = true;
            }
            assert_int_equal(mst_core_pin_of(n, servers, true, servers), n); /* none is left */
            assert_int_equal(mst_core_pin_of(n, servers, false, n - servers), n);
        }
}

static void servers_are_spread(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(mst_core_pin_of(16, 4, true, i), 4 * i);
    assert_int_equal(mst_core_pin_of(16, 4, false, 0), 1);
    assert_int_equal(mst_core_pin_of(16, 4, false, 3), 5);
    assert_int_equal(mst_core_pin_of(16, 4, false, 11), 15);
}

static void cores_are_inherited(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    mst_core_pin pin = mst_core_pin_begin(1, true, 0);
    assert_true(pin.set);
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t own;
        _exit(sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : 0);
    }
    mst_core_pin_end(&pin);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_false(mst_core_pin_begin(1, false, CPU_SETSIZE).set); /* none is left: nothing changes */
    assert_int_equal(mst_core_pin_check(1, (uint32_t)CPU_COUNT(&before) - 1), MST_OK);
    assert_int_equal(mst_core_pin_check(1, (uint32_t)CPU_COUNT(&before)), MST_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_process_has_its_own),
        cmocka_unit_test(servers_are_spread),
        cmocka_unit_test(cores_are_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
