/* Reading run directories: complete, growing, incomplete, replaced, half deleted, invalid; the CSV reader
 * alone. */
#include "report/run_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "report/figures.h"
#include "unit/report/run_fixture.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-read-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

static void put(const char *name, const char *how, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, how);
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool warned(const mst_run_data *run, const char *of)
{
    for (size_t i = 0; i < run->warnings.n; i++)
        if (strstr(run->warnings.items[i], of) != NULL)
            return true;
    return false;
}

static void test_whole(void **state)
{
    (void)state;
    fixture_run r = fixture_job("sync");
    mst_run_data *run = NULL;
    mst_run_figures f;
    r.eval_seconds = 12;
    r.processes[1].link_bits = 0;
    fixture_write(folder, &r);
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    assert_int_equal(run->warnings.n, 0);
    assert_int_equal(run->n_processes, 4);
    assert_string_equal(run->processes[0]->name, "server-0");
    assert_int_equal(run->processes[0]->role, MST_PROCESS_SERVER);
    assert_string_equal(run->processes[3]->name, "worker-2");
    assert_int_equal(run->processes[3]->index, 2);
    assert_float_equal(run->processes[0]->links[0].bits_per_s, 1e9, 1);
    assert_true(isnan(run->processes[1]->links[0].bits_per_s));
    assert_int_equal(run->processes[1]->spans.n_rows, 60);
    assert_int_equal(run->metrics.n_rows, 20);
    assert_float_equal(mst_run_data_begin(run), FIXTURE_T0, 1e-6);
    assert_float_equal(mst_run_data_end(run), FIXTURE_T0 + 60, 1e-6);
    char *mode = mst_run_data_option(run, "mode");
    assert_string_equal(mode, "sync");
    mst_free(mode);
    assert_null(mst_run_data_option(run, "no-such-option"));
    assert_float_equal(mst_run_data_option_real(run, "servers"), 1, 0);
    assert_int_equal(mst_run_figures_of(run, &f), MST_OK);
    assert_string_equal(f.set, "test");
    assert_float_equal(f.train_s, 48, 1e-3);
    assert_float_equal(f.n_workers, 3, 0);
    assert_true(f.best_accuracy >= f.test_accuracy && f.best_accuracy < 1);
    mst_run_data_destroy(run);
}

/* A mean over a few steps, at the end of a training or where an evaluation cut it short, is no point of its
 * curve. */
static void test_a_sliver_of_training(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    mst_points points = {0};
    put("manifest.json", "w", "{\"state\": \"done\"}");
    put("metrics.csv", "w",
        "step,rows,train_seconds,train_loss,set,loss\n10,1000,1,0.5,,\n20,2000,2,0.4,,\n21,2003,2.01,0.8,"
        "test,0.5\n"
        "30,3000,3,0.3,test,0.4\n31,3003,3.01,0.9,test,0.4\n");
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    assert_int_equal(mst_curve(run, "train_loss", "", MST_AXIS_STEPS, &points), MST_OK);
    assert_int_equal(points.n, 3);
    assert_float_equal(points.y[2], 0.3, 1e-9);
    mst_points_fini(&points);
    assert_int_equal(mst_curve(run, "loss", "test", MST_AXIS_STEPS, &points), MST_OK);
    assert_int_equal(points.n, 3);
    mst_points_fini(&points);
    mst_run_data_destroy(run);
}

static void test_foreign_folders(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    char path[200];
    put("manifest.json", "w", "{\"a\": 1}");
    assert_int_equal(mst_run_data_new(folder, &run), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "muster did not write"));
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/one", folder);
    mkdir(path, 0777);
    put("one/manifest.json", "w", "{\"state\": \"done\"}");
    assert_int_equal(mst_run_data_new(folder, &run), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "it holds runs"));
}

/* Means, peaks and totals; training leaves the evaluations out, by the part of an interval. */
static void test_loads(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    mst_loads use;
    put("manifest.json", "w", "{}");
    char path[200];
    snprintf(path, sizeof path, "%s/processes", folder);
    mkdir(path, 0777);
    strcat(path, "/local");
    mkdir(path, 0777);
    put("processes/local/resources.csv", "w",
        "time,interval_s,proc_cpu_user_s,proc_cpu_system_s,proc_rss,net_out,proc_read\n"
        "101,1,1,0.5,100,10,\n103,2,1,0,300,40,\n104,1,4,0,200,0,\n");
    put("marks.csv", "w", "time,process,kind,text\n103,,evaluate_begin,\n103.5,,evaluate_end,\n");
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    assert_int_equal(mst_loads_of(run, run->processes[0], NAN, NAN, &use), MST_OK);
    assert_float_equal(use.all[MST_LOAD_CPU].total, 6.5, 1e-9);
    assert_float_equal(use.all[MST_LOAD_CPU].mean, 6.5 / 4, 1e-9);
    assert_float_equal(use.all[MST_LOAD_CPU].peak, 4, 1e-9);
    assert_float_equal(use.training[MST_LOAD_CPU].total, 4.5, 1e-9);
    assert_float_equal(use.training[MST_LOAD_CPU].mean, 4.5 / 3.5, 1e-9);
    assert_float_equal(use.all[MST_LOAD_MEMORY].mean, (100 + 600 + 200) / 4.0, 1e-9);
    assert_float_equal(use.all[MST_LOAD_MEMORY].peak, 300, 0);
    assert_true(isnan(use.all[MST_LOAD_MEMORY].total));
    assert_float_equal(use.all[MST_LOAD_HOST_NET_OUT].total, 50, 0);
    assert_float_equal(use.all[MST_LOAD_HOST_NET_OUT].peak, 20, 0);
    assert_true(isnan(use.all[MST_LOAD_DISK_READ].mean)); /* empty fields */
    assert_true(isnan(use.all[MST_LOAD_HOST_CPU].mean));  /* no such columns */
    mst_run_data_destroy(run);
}

/* Time without samples, as between the end of a process and its successor, is a gap in a plot. */
static void test_gaps(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    mst_points points;
    mst_loads use;
    char path[200];
    put("manifest.json", "w", "{}");
    snprintf(path, sizeof path, "%s/processes", folder);
    mkdir(path, 0777);
    strcat(path, "/local");
    mkdir(path, 0777);
    put("processes/local/resources.csv", "w",
        "time,interval_s,cpu_idle_s,mem_free,proc_rss\n"
        "101,1,1,5,7\n102.2,1,1,5,7\n102.25,0.05,0,5,8\n110,1,1,5,9\n111.3,1,1,7,9\n");
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    assert_int_equal(mst_load_points(run, run->processes[0], MST_LOAD_MEMORY, &points), MST_OK);
    assert_int_equal(points.n, 6);
    for (size_t i = 0; i < points.n; i++) {
        assert_true(isnan(points.y[i]) == (i == 3));
        assert_true(i == 0 || points.x[i] > points.x[i - 1]);
    }
    mst_points_fini(&points);
    assert_int_equal(mst_load_points(run, run->processes[0], MST_LOAD_HOST_IDLE, &points), MST_OK);
    assert_int_equal(points.n, 5); /* without the short line, which covers its time nevertheless */
    assert_true(isnan(points.y[2]));
    mst_points_fini(&points);
    assert_int_equal(mst_loads_of(run, run->processes[0], NAN, NAN, &use), MST_OK);
    assert_float_equal(use.all[MST_LOAD_HOST_IDLE].mean, 4 / 4.05, 1e-9);
    assert_float_equal(use.all[MST_LOAD_HOST_FREE].mean, (5 * 3.05 + 7) / 4.05, 1e-9);
    mst_run_data_destroy(run);
}

static void test_follow(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    bool changed;
    put("manifest.json", "w", "{\"state\": \"running\"}");
    put("metrics.csv", "w", "step,rows,set,loss\n1,10,,\n2,20,test,0.5\n3,3");
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    assert_int_equal(run->metrics.n_rows, 2); /* the torn line waits */
    assert_int_equal(run->warnings.n, 0);
    assert_int_equal(mst_run_data_update(run, &changed), MST_OK);
    assert_false(changed);
    put("metrics.csv", "a", "0,test,0.25\n");
    assert_int_equal(mst_run_data_update(run, &changed), MST_OK);
    assert_true(changed);
    assert_int_equal(run->metrics.n_rows, 3);
    size_t set = mst_csv_column(&run->metrics, "set"), loss = mst_csv_column(&run->metrics, "loss");
    assert_string_equal(mst_csv_text(&run->metrics, 2, set), "test");
    assert_float_equal(mst_csv_value(&run->metrics, 2, loss), 0.25, 0);
    assert_true(isnan(mst_csv_value(&run->metrics, 0, loss)));
    assert_true(isnan(mst_csv_value(&run->metrics, 0, MST_CSV_NONE)));
    put("metrics.csv", "w", "step,rows,set,loss\n1,10,,\n"); /* resumed from step 1: cut back */
    assert_int_equal(mst_run_data_update(run, &changed), MST_OK);
    assert_true(changed);
    assert_int_equal(run->metrics.n_rows, 1);
    put("manifest.json", "w", "{\"state\": \"done\", \"more\": 1}");
    assert_int_equal(mst_run_data_update(run, &changed), MST_OK);
    assert_true(changed);
    assert_string_equal(mst_run_data_text(run, "state", NULL), "done");
    put("manifest.json", "w", "{\"state\": \"do"); /* torn: what was known stays */
    assert_int_equal(mst_run_data_update(run, &changed), MST_OK);
    assert_string_equal(mst_run_data_text(run, "state", NULL), "done");
    assert_true(warned(run, "manifest.json:1: not a JSON object"));
    mst_run_data_destroy(run);
}

static void test_damaged(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    fixture_run r = fixture_local();
    fixture_write(folder, &r);
    put("processes/local/spans.csv", "a", "1,2,3\nrubbish\n");
    put("processes/local/process.json", "w", "[1, 2]");
    put("manifest.json", "w", "");
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    assert_true(warned(run, "spans.csv: 2 torn lines are left out"));
    assert_true(warned(run, "process.json:1: not a JSON object"));
    assert_true(warned(run, "no manifest can be read"));
    assert_int_equal(run->processes[0]->role, MST_PROCESS_LOCAL); /* by its name */
    assert_int_equal(mst_remove_tree(folder), MST_OK);            /* deleted under the reader */
    assert_int_equal(mst_run_data_update(run, NULL), MST_OK);
    assert_int_equal(run->processes[0]->resources.n_rows, 60);
    mst_run_data_destroy(run);
    assert_int_equal(mkdir(folder, 0777), 0);
}

static void test_refused(void **state)
{
    (void)state;
    mst_run_data *run = NULL;
    char path[200];
    assert_int_equal(mst_run_data_new("/nowhere/at-all", &run), MST_EINPUT);
    assert_string_equal(mst_error_text(), "/nowhere/at-all: there is no such run");
    assert_int_equal(mst_run_data_new(folder, &run), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "not a run: it has neither a manifest.json nor a metrics.csv"));
    put("manifest.json", "w", "{");
    assert_int_equal(mst_run_data_new(folder, &run), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "nothing of the run can be read"));
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    assert_int_equal(mst_run_data_new(path, &run), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a run is a folder"));
    remove(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not be waited for */
    assert_int_equal(mst_run_data_new(folder, &run), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "is not a plain file"));
    assert_null(run);
}

static void test_csv(void **state)
{
    (void)state;
    static const char *const texts[] = {"text", NULL};
    mst_csv csv;
    size_t used;
    const char data[] =
        "a,text,b\r\n1,\"x, \"\"y\"\"\",2\n,plain,nan\n1e999,\"open,3\n7,8\n1,2,3,4\n\n5,,0x\n9,tor";
    assert_int_equal(mst_csv_init(&csv, "memory", texts), MST_OK);
    assert_int_equal(mst_csv_take(&csv, data, sizeof data - 1, &used), MST_OK);
    assert_int_equal(used, sizeof data - 1 - strlen("9,tor"));
    assert_int_equal(csv.n_columns, 3);
    assert_int_equal(csv.n_bad, 3);
    assert_int_equal(csv.n_rows, 3);
    assert_string_equal(mst_csv_text(&csv, 0, 1), "x, \"y\"");
    assert_float_equal(mst_csv_value(&csv, 0, 2), 2, 0);
    assert_true(isnan(mst_csv_value(&csv, 1, 0)) && isnan(mst_csv_value(&csv, 1, 2)));
    assert_true(isnan(mst_csv_value(&csv, 2, 2)));
    assert_string_equal(mst_csv_text(&csv, 2, 1), "");
    assert_int_equal(mst_csv_column(&csv, "b"), 2);
    assert_true(mst_csv_column(&csv, "c") == MST_CSV_NONE);
    mst_csv_fini(&csv);
}

/* Every allocation fails in turn: MST_ENOMEM, or a run without what there was no memory for; never a crash.
 */
static void test_memory(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    r.seconds = 5;
    fixture_write(folder, &r);
    for (uint64_t k = 1; k < 400; k++) {
        mst_run_data *run = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_run_data_new(folder, &run);
        mst_alloc_fail_at(0);
        assert_true(st == MST_OK || st == MST_ENOMEM || st == MST_EINPUT);
        assert_true((st == MST_OK) == (run != NULL));
        mst_run_data_destroy(run);
    }
}

/* Files that are there but say nothing get a word each; a line of megabytes is one line. */
static void test_unusable(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    mst_run_data *run = NULL;
    char path[200];
    fixture_write(folder, &r);
    snprintf(path, sizeof path, "%s/metrics.csv", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    static const char utf16[] = "\xff\xfes\0t\0e\0p\0,\0r\0o\0w\0s\0\n\0001\0,\0002\0\n";
    fwrite(utf16, 1, sizeof utf16, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/processes/rank-7", folder);
    assert_int_equal(symlink("..", path), 0);
    snprintf(path, sizeof path, "%s/marks.csv", folder);
    f = fopen(path, "a");
    assert_non_null(f);
    for (int i = 0; i < 5 << 20; i++)
        fputc('x', f);
    fprintf(f, "\n%f,,end,behind it\n", FIXTURE_T0 + 61);
    fclose(f);
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    for (int pass = 0; pass < 2; pass++) { /* an update says the same */
        assert_true(warned(run, "metrics.csv: its first line names no column step: none of it is shown"));
        assert_true(warned(run, "processes/rank-7: there is nothing of a process in it"));
        assert_true(warned(run, "marks.csv: 1 torn line is left out"));
        assert_int_equal(run->warnings.n, 3);
        size_t last = run->marks.n_rows - 1;
        assert_string_equal(mst_csv_text(&run->marks, last, mst_csv_column(&run->marks, "text")),
                            "behind it");
        assert_int_equal(mst_run_data_update(run, NULL), MST_OK);
    }
    mst_run_data_destroy(run);
}

/* A long line that comes bit by bit is one line, too. */
static void test_long_line(void **state)
{
    (void)state;
    char path[200];
    mst_csv csv;
    snprintf(path, sizeof path, "%s/t.csv", folder);
    put("t.csv", "w", "a,b\n");
    assert_int_equal(mst_csv_init(&csv, path, NULL), MST_OK);
    for (int part = 0; part < 4; part++) {
        FILE *f = fopen(path, "a");
        assert_non_null(f);
        for (int i = 0; i < (1 << 20) + 7; i++)
            fputc('1', f);
        fclose(f);
        assert_int_equal(mst_csv_update(&csv, NULL), MST_OK);
        assert_int_equal(csv.n_bad, 1);
    }
    put("t.csv", "a", "\n1,inf\n2,nan\n");
    assert_int_equal(mst_csv_update(&csv, NULL), MST_OK);
    assert_int_equal(csv.n_bad, 1);
    assert_int_equal(csv.n_rows, 2);
    assert_true(isnan(mst_csv_value(&csv, 0, 1)) && isinf(mst_csv_any_value(&csv, 0, 1)));
    assert_true(isnan(mst_csv_any_value(&csv, 1, 1)));
    mst_csv_fini(&csv);
}

/* A sparse file of 40 GB: an update reads a part of it, and all of them together a gigabyte. */
static void test_huge(void **state)
{
    (void)state;
    char path[200];
    mst_csv csv;
    int updates = 1;
    snprintf(path, sizeof path, "%s/t.csv", folder);
    put("t.csv", "w", "a,b\n1,2\n");
    assert_int_equal(truncate(path, (off_t)40 << 30), 0);
    assert_int_equal(mst_csv_init(&csv, path, NULL), MST_OK);
    assert_int_equal(mst_csv_update(&csv, NULL), MST_OK);
    assert_true(csv.behind && !csv.full && csv.offset < (uint64_t)64 << 20);
    for (; csv.behind; updates++)
        assert_int_equal(mst_csv_update(&csv, NULL), MST_OK);
    assert_true(csv.full && csv.offset <= ((uint64_t)1 << 30) + (1 << 20) && updates > 16);
    assert_int_equal(csv.n_rows, 1);
    mst_csv_fini(&csv);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_huge),
        TEST(test_whole),
        TEST(test_a_sliver_of_training),
        TEST(test_foreign_folders),
        TEST(test_loads),
        TEST(test_gaps),
        TEST(test_follow),
        TEST(test_damaged),
        TEST(test_refused),
        TEST(test_csv),
        TEST(test_unusable),
        TEST(test_long_line),
        TEST(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
