/* The parsers of /proc on fixture texts, and the sampler on a folder of fixtures and on this host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "observe/resources.h"

static const char stat_text[] = "cpu  100 5 50 800 20 1 2 3 0 0\n"
                                "cpu0 60 5 30 400 5 1 1 1 0 0\n"
                                "cpu2 40 0 20 400 15 0 1 2 0 0\n"
                                "intr 53038311 0 0 0\n"
                                "ctxt 12345\nbtime 1\n";

static void test_stat(void **state)
{
    mst_host_cpu cpu;
    mst_core_ticks cores[3];
    (void)state;
    assert_int_equal(mst_proc_stat_cores(stat_text), 3);
    assert_true(mst_proc_stat(stat_text, &cpu, cores, 3));
    assert_int_equal(cpu.user, 105);
    assert_int_equal(cpu.system, 53);
    assert_int_equal(cpu.iowait, 20);
    assert_int_equal(cpu.idle, 800);
    assert_int_equal(cpu.steal, 3);
    assert_int_equal(cpu.context_switches, 12345);
    assert_int_equal(cores[0].total, 503);
    assert_int_equal(cores[0].busy, 98);
    assert_int_equal(cores[1].total, 0); /* off */
    assert_int_equal(cores[2].busy, 63);
    assert_false(mst_proc_stat("", &cpu, cores, 3));
    assert_false(mst_proc_stat("cpu\ncpu x\nctxt", &cpu, cores, 3));
    assert_int_equal(mst_proc_stat_cores("cpu 1 2\n"), 0);
}

static void test_memory(void **state)
{
    mst_host_memory m;
    uint64_t page_ins;
    (void)state;
    assert_true(mst_proc_meminfo("MemTotal:  1000 kB\nMemFree: 300 kB\nMemAvailable: 5 kB\nBuffers: 10 kB\n"
                                 "Cached: 200 kB\nSReclaimable: 40 kB\n",
                                 &m));
    assert_int_equal(m.total, 1000 * 1024);
    assert_int_equal(m.free, 300 * 1024);
    assert_int_equal(m.cached, 250 * 1024);
    assert_int_equal(m.used, 450 * 1024);
    assert_false(mst_proc_meminfo("MemTotal: 3 kB\n", &m));
    assert_true(mst_proc_vmstat("nr_free 1\npgpgin 7\npgpgout 9\n", &page_ins));
    assert_int_equal(page_ins, 7 * 1024);
    assert_false(mst_proc_vmstat("pgpgin", &page_ins));
}

static void test_disks_are_counted_once(void **state)
{
    uint64_t read, written;
    (void)state;
    assert_true(mst_proc_diskstats("   7       0 loop0 9 9 900 9 9 9 900 9 0 0 0\n"
                                   " 259       0 nvme0n1 1 0 10 0 1 0 20 0 0 0 0\n"
                                   " 259       1 nvme0n1p1 1 0 10 0 1 0 20 0 0 0 0\n"
                                   "   8       0 sda 1 0 100 0 1 0 200 0 0 0 0\n"
                                   "   8       1 sda1 1 0 100 0 1 0 200 0 0 0 0\n"
                                   "   8      16 sdb 1 0 1 0 1 0 2 0 0 0 0\n"
                                   " 253       0 dm-0 1 0 100 0 1 0 200 0 0 0 0\n"
                                   "   8 broken\n",
                                   &read, &written));
    assert_int_equal(read, 111 * 512);
    assert_int_equal(written, 222 * 512);
    assert_false(mst_proc_diskstats("nothing here\n", &read, &written));
}

static void test_net(void **state)
{
    mst_host_net net;
    char many[4096] = "";
    (void)state;
    assert_true(mst_proc_net_dev("Inter-|   Receive  |  Transmit\n face |bytes    packets|bytes\n"
                                 "    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n"
                                 "  eth0:5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
                                 "veth@1: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n"
                                 "short: 1 2 3\nnameless\n",
                                 &net));
    assert_int_equal(net.n, 3);
    assert_int_equal(net.in, 15);
    assert_int_equal(net.out, 27);
    assert_string_equal(net.links[0].name, "lo");
    assert_int_equal(net.links[1].out, 7);
    for (int i = 0; i < 40; i++)
        sprintf(many + strlen(many), "v%d: 1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n", i);
    assert_true(mst_proc_net_dev(many, &net));
    assert_int_equal(net.n, MST_NET_MAX);
    assert_int_equal(net.in, 40); /* those without columns of their own count too */
    assert_false(mst_proc_net_dev("", &net));
}

static void test_process(void **state)
{
    uint64_t a, b;
    (void)state;
    assert_true(
        mst_proc_io("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n", &a, &b));
    assert_int_equal(a, 4096);
    assert_int_equal(b, 8192);
    assert_false(mst_proc_io("rchar: 1\n", &a, &b));
    assert_true(mst_proc_statm("500 30 2 1 0 9 0\n", 4096, &a));
    assert_int_equal(a, 30 * 4096);
    assert_false(mst_proc_statm("", 4096, &a));
}

/* ---- the sampler ---- */

static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The value of a column of the second line. */
static const char *column(const char *text, const char *name, char *out)
{
    const char *head = text, *line = strchr(text, '\n') + 1;
    for (;;) {
        size_t n = strcspn(head, ",\n"), m = strcspn(line, ",\n");
        if (n == strlen(name) && strncmp(head, name, n) == 0) {
            sprintf(out, "%.*s", (int)m, line);
            return out;
        }
        assert_int_equal(head[n], ',');
        head += n + 1;
        line += m + 1;
    }
}

static unsigned commas(const char *line)
{
    unsigned n = 0;
    for (; *line != '\n' && *line != 0; line++)
        n += *line == ',';
    return n;
}

static void test_lines_are_differences(void **state)
{
    char folder[] = "/tmp/muster-test-XXXXXX", path[64], value[64];
    mst_resources *r = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/self/net", folder);
    assert_int_equal(mst_make_folders(path), MST_OK);
    put(folder, "stat", stat_text);
    put(folder, "self/net/dev",
        "lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\neth0: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n");
    assert_int_equal(mst_resources_new(folder, &r), MST_OK);
    put(folder, "stat",
        "cpu  200 5 50 900 10 1 2 3 0 0\ncpu0 160 5 30 400 5 1 1 1 0 0\ncpu2 40 0 20 500 15 0 1 2 0 0\n"
        "ctxt 12445\n");
    put(folder, "self/net/dev", "eth0: 505 1 0 0 0 0 0 0 707 1 0 0 0 0 0 0\n");
    mst_resources_read(r);
    mst_string text = {0};
    mst_resources_header(r, &text);
    mst_resources_line(r, 17.5, &text);
    assert_false(text.failed);
    const char *buffer = text.text;
    assert_int_equal(commas(buffer), commas(strchr(buffer, '\n') + 1));
    assert_string_equal(column(buffer, "time", value), "17.500000");
    assert_true(atof(column(buffer, "cpu_user_s", value)) > 0.0);
    assert_string_equal(column(buffer, "cpu_iowait_s", value), "0"); /* it went backwards */
    assert_string_equal(column(buffer, "cpu_busiest", value), "1");
    assert_string_equal(column(buffer, "cpu_cores", value), "1 0 0");
    assert_string_equal(column(buffer, "context_switches", value), "100");
    assert_string_equal(column(buffer, "net_in", value), "500");
    assert_string_equal(column(buffer, "net_eth0_out", value), "700");
    assert_string_equal(column(buffer, "net_lo_in", value), ""); /* it has gone */
    assert_string_equal(column(buffer, "mem_used", value), "");  /* there is no such file here */
    assert_string_equal(column(buffer, "disk_read", value), "");
    assert_string_equal(column(buffer, "proc_rss", value), "");
    assert_true(atof(column(buffer, "proc_cpu_user_s", value)) >= 0.0);
    mst_string_fini(&text);
    mst_resources_destroy(r);
    assert_int_equal(mst_remove_tree(folder), MST_OK);
}

static void test_without_proc(void **state)
{
    mst_resources *r = NULL;
    (void)state;
    assert_int_equal(mst_resources_new("/nonexistent", &r), MST_OK);
    mst_string text = {0};
    mst_resources_header(r, &text);
    mst_resources_line(r, 1.0, &text);
    assert_int_equal(commas(text.text), commas(strchr(text.text, '\n') + 1));
    mst_string_fini(&text);
    mst_resources_destroy(r);
}

static void test_this_host(void **state)
{
    char value[4096];
    mst_resources *r = NULL;
    mst_alloc_stats before, after;
    (void)state;
    assert_int_equal(mst_resources_new("/proc", &r), MST_OK);
    mst_alloc_stats_get(&before);
    for (int i = 0; i < 3; i++)
        mst_resources_read(r);
    mst_alloc_stats_get(&after);
    assert_int_equal(before.calls, after.calls);
    const mst_usage *u = mst_resources_now(r);
    assert_true(u->has_cpu && u->has_memory && u->has_rss);
    assert_true(u->rss > 100000);
    mst_string text = {0};
    mst_resources_header(r, &text);
    mst_resources_line(r, 1.0, &text);
    assert_string_not_equal(column(text.text, "cpu_cores", value), "");
    mst_string_fini(&text);
    mst_resources_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_disks_are_counted_once),
        cmocka_unit_test(test_net),
        cmocka_unit_test(test_process),
        cmocka_unit_test(test_lines_are_differences),
        cmocka_unit_test(test_without_proc),
        cmocka_unit_test(test_this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
