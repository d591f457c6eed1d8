/* What is shown of a run: rates over one time base, losses that are not finite, runs without a manifest, and
 * folders that cannot be read. */
#include "dash/run_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "dash/prometheus.h"
#include "dash/top_frame.h"
#include "unit/report/run_fixture.h"
#include "unit/report/test_folder.h"

static mst_status try_board(const char *path, mst_board **out)
{
    mst_text_list paths = {0};
    assert_int_equal(mst_text_list_add(&paths, path), MST_OK);
    mst_status st = mst_board_new(&paths, false, out);
    mst_text_list_fini(&paths);
    return st;
}

static mst_board *open_board(const char *path)
{
    mst_board *board = NULL;
    assert_int_equal(try_board(path, &board), MST_OK);
    return board;
}

static char *frame_of(const mst_board *board)
{
    mst_string out = {0};
    mst_frame_options o = {.width = 120};
    mst_top_frame(board, &o, &out);
    assert_false(out.failed);
    return out.text;
}

/* A run of 60 seconds, 45 of which were evaluations. */
static void test_rates(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    r.eval_seconds = 45;
    fixture_write(in_folder("run"), &r);
    mst_board *board = open_board(in_folder("run"));
    const mst_run_view *v = &board->runs[0]->view;
    assert_int_equal(v->life, MST_LIFE_FINISHED);
    assert_float_equal(v->rows_per_s, v->figures.rows / 15, 1e-6 * v->rows_per_s);
    assert_float_equal(v->rows_per_s / v->steps_per_s, 100, 1e-6); /* rows in a batch */
    assert_float_equal(v->processes[0].rows_per_s, v->rows_per_s, 1e-6);
    assert_float_equal(v->processes[0].steps_per_s, v->steps_per_s, 1e-6);
    mst_board_destroy(board);
}

/* Of workers, too; rates of each add up to those of the run, but for what is not yet written. */
static void test_rates_of_workers(void **state)
{
    (void)state;
    fixture_run r = fixture_job("async");
    double sum = 0;
    r.eval_seconds = 30;
    fixture_write(in_folder("run"), &r);
    mst_board *board = open_board(in_folder("run"));
    const mst_run_view *v = &board->runs[0]->view;
    for (size_t i = 0; i < v->n_processes; i++)
        sum += v->processes[i].process->role == MST_PROCESS_WORKER ? v->processes[i].rows_per_s : 0;
    assert_float_equal(sum / v->rows_per_s, 1, 0.05);
    mst_board_destroy(board);
}

#define HEAD "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5\n"

static void check_loss(const char *metrics, const char *top, const char *json_text, const char *prometheus)
{
    fixture_run r = fixture_local();
    mst_string out = {0};
    fixture_write(in_folder("run"), &r);
    put("run/metrics.csv", metrics);
    mst_board *board = open_board(in_folder("run"));
    char *frame = frame_of(board);
    assert_non_null(strstr(frame, top));
    mst_free(frame);
    json_t *json = mst_run_view_json(&board->runs[0]->view, "run");
    assert_string_equal(json_string_value(json_object_get(json, "loss_text")), json_text);
    assert_string_equal(json_string_value(json_object_get(json, "train_loss_text")), json_text);
    assert_null(json_object_get(json, "loss"));
    assert_null(json_object_get(json, "train_loss"));
    json_decref(json);
    mst_prometheus_text(board, &out);
    assert_non_null(strstr(out.text, prometheus));
    mst_string_fini(&out);
    mst_board_destroy(board);
}

static void test_losses(void **state)
{
    (void)state;
    check_loss(HEAD "1,10,0,1,0,0.1,0.7,test,0.5,0.75,,\n2,20,0,2,0,0.1,inf,test,inf,0.3,,\n",
               "train loss inf   test loss inf   test error 70.00%   best 25.00%", "inf",
               "muster_run_loss{run=\"run\",set=\"test\"} +Inf\n");
    check_loss(HEAD "1,10,0,1,0,0.1,0.7,test,0.5,0.75,,\n2,20,0,2,0,0.1,,test,,0.3,,\n",
               "train loss nan   test loss nan   test error 70.00%   best 25.00%", "nan",
               "muster_run_loss{run=\"run\",set=\"test\"} NaN\n");
}

static void test_without_manifest(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    fixture_write(in_folder("run"), &r);
    unlink(in_folder("run/manifest.json"));
    mst_board *board = open_board(in_folder("run"));
    char *frame = frame_of(board);
    assert_int_equal(strncmp(strchr(frame, '\n') + 1, "rows/s ", 7), 0);
    mst_free(frame);
    mst_board_destroy(board);
}

static void test_unreadable(void **state)
{
    (void)state;
    mst_board *board = NULL;
    assert_int_equal(mst_make_folders(in_folder("run")), MST_OK);
    assert_int_equal(symlink("manifest.json", in_folder("run/manifest.json")), 0); /* a loop, for any user */
    board = open_board(in_folder("run"));
    assert_int_equal(board->n, 0);
    assert_int_equal(board->notes.n, 1);
    assert_non_null(strstr(board->notes.items[0], "/run/manifest.json cannot be read: "));
    mst_board_destroy(board);
    board = NULL;
    unlink(in_folder("run/manifest.json"));
    assert_int_equal(chmod(in_folder("run"), 0), 0);
    if (geteuid() != 0) { /* whom no permission holds up */
        assert_int_equal(try_board(in_folder("run"), &board), MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), "/run: cannot be read: Permission denied"));
    }
    assert_int_equal(chmod(in_folder("run"), 0700), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_rates),  TEST(test_rates_of_workers), TEST(test_without_manifest),
        TEST(test_losses), TEST(test_unreadable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
