/* CPU quotas of control groups, of both versions, from files of the test; and the affinity mask. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "observe/cpu_quota.h"

static char root[] = "/tmp/muster-test-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/muster-test-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return mst_remove_tree(root) != MST_OK;
}

static void put(const char *path, const char *text)
{
    char whole[512], *slash;
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    slash = strrchr(whole, '/');
    *slash = '\0';
    assert_int_equal(mst_make_folders(whole), MST_OK);
    *slash = '/';
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void is(double want)
{
    double got = mst_cpu_quota(root);
    assert_true(got > want - 1e-9 && got < want + 1e-9);
}

static void test_version_2(void **state)
{
    (void)state;
    is(0.0); /* no files at all */
    put("proc/self/cgroup", "0::/a/b\n");
    is(0.0);
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    is(0.0);
    put("sys/fs/cgroup/a/cpu.max", "150000 100000\n"); /* holds for what is below it */
    is(1.5);
    put("sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
    is(0.2);
    put("sys/fs/cgroup/a/b/cpu.max", "nonsense");
    is(1.5);
}

static void test_version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "4:memory:/x\n3:cpuacct,cpu:/jobs\n2:cpuset:/jobs\nnonsense\n0::/\n");
    put("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
    is(0.0);
    put("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "50000\n");
    is(0.5);
    put("proc/self/cgroup", "2:cpuset:/jobs\n"); /* another controller */
    is(0.0);
}

/* A process that is kept on one of several cores. */
static void test_affinity(void **state)
{
    (void)state;
    cpu_set_t all, one;
    int core = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    double limit = mst_cpu_allowed(), group = mst_cpu_quota("");
    unsigned cores = mst_cpu_cores();
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        assert_true(limit > 0 && limit <= 1 && (limit == 1 || limit == group));
    else
        assert_true(limit == group);
    assert_int_equal(cores, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_version_2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_version_1, set_up, tear_down),
        cmocka_unit_test(test_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
