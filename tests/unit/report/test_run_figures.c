/* Figures of a run and how the report words them: passes over the data, workers that were killed, losses that
 * are not finite, parts that have nothing to say, and runs of different data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "report/report_impl.h"
#include "unit/report/run_fixture.h"
#include "unit/report/test_folder.h"

/* Puts text before the last brace of a manifest. */
static void extend_manifest(const char *run, const char *more)
{
    char name[200], *text = NULL;
    size_t n;
    snprintf(name, sizeof name, "%s/manifest.json", run);
    assert_int_equal(mst_file_read_all(in_folder(name), 1 << 20, &text, &n), MST_OK);
    *strrchr(text, '}') = '\0';
    char *made = mst_sprintf("%s, %s}\n", text, more);
    assert_non_null(made);
    put(name, made);
    mst_free(made);
    mst_free(text);
}

static char *markdown_of(const char *const *names, size_t n)
{
    mst_run_data *runs[64];
    mst_report *report = NULL;
    mst_string out = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mst_run_data_new(in_folder(names[i]), &runs[i]), MST_OK);
    assert_int_equal(mst_report_new(runs, n, NULL, &report), MST_OK);
    assert_int_equal(mst_report_markdown(report, &out), MST_OK);
    mst_report_destroy(report);
    for (size_t i = 0; i < n; i++)
        mst_run_data_destroy(runs[i]);
    return out.text;
}

static char *markdown(const char *name)
{
    return markdown_of(&name, 1);
}

/* ---- passes ---- */

static void check_passes(const char *manifest, double passes, const char *epoch)
{
    mst_run_data *run = NULL;
    mst_run_figures f;
    mkdir(in_folder("run"), 0777);
    put("run/manifest.json", manifest);
    assert_int_equal(mst_run_data_new(in_folder("run"), &run), MST_OK);
    assert_int_equal(mst_run_figures_of(run, &f), MST_OK);
    assert_float_equal(f.passes, passes, 1e-3);
    char *text = markdown("run");
    assert_non_null(strstr(text, epoch));
    mst_free(text);
    mst_run_data_destroy(run);
}

static void test_passes(void **state)
{
    (void)state;
    /* the second epoch was cut short */
    check_passes(
        "{\"format\": \"muster-run\", \"state\": \"done\", \"data\": {\"rows\": 300000}, \"progress\": "
        "{\"step\": 5900, \"rows\": 590000, \"epoch\": 1, \"train_seconds\": 0.1418}}",
        5.9 / 3, "| 72.1 ms |");
    /* rows that the data do not account for: whole epochs */
    check_passes(
        "{\"format\": \"muster-run\", \"state\": \"done\", \"data\": {\"rows\": 300000}, \"progress\": "
        "{\"step\": 5900, \"rows\": 480000, \"epoch\": 2, \"train_seconds\": 0.2}}",
        2, "| 100 ms |");
    /* epochs of so many steps */
    check_passes(
        "{\"format\": \"muster-run\", \"state\": \"done\", \"data\": {\"rows\": 7}, \"options\": "
        "{\"training\": {\"steps-per-epoch\": 1000}}, \"progress\": {\"step\": 2500, \"rows\": 2500, "
        "\"epoch\": 2, \"train_seconds\": 0.5}}",
        2.5, "| 200 ms |");
}

/* ---- workers ---- */

static void test_killed_worker(void **state)
{
    (void)state;
    fixture_run r = fixture_job("async");
    fixture_write(in_folder("run"), &r);
    /* the last half of its lines was lost with it */
    FILE *f = fopen(in_folder("run/marks.csv"), "a");
    assert_non_null(f);
    fprintf(f, "%f,worker-2,death,killed\n", FIXTURE_T0 + 40);
    fclose(f);
    char *text = NULL;
    size_t n;
    assert_int_equal(mst_file_read_all(in_folder("run/processes/worker-2/spans.csv"), 1 << 20, &text, &n),
                     MST_OK);
    char *end = text;
    for (int lines = 0; lines < 21; lines++)
        end = strchr(end, '\n') + 1;
    *end = '\0';
    put("run/processes/worker-2/spans.csv", text);
    mst_free(text);
    extend_manifest("run", "\"workers\": [{\"worker\": 0, \"steps\": 5800, \"rows\": 580000}, "
                           "{\"worker\": 1, \"steps\": 5800, \"rows\": 580000}, "
                           "{\"worker\": 2, \"state\": \"lost\", \"steps\": 3900, \"rows\": 390000}]");
    text = markdown("run");
    assert_non_null(strstr(text, "| worker-0 | 5,800 | 580,000 | 37% |"));
    /* over the 40 seconds that it was there */
    assert_non_null(strstr(text, "| worker-2 | 3,900 | 390,000 | 25% | 9,750 |"));
    mst_free(text);
    /* counted since a resume only: spans.csv knows more */
    extend_manifest("run", "\"workers\": [{\"worker\": 0, \"steps\": 58, \"rows\": 5800}]");
    text = markdown("run");
    assert_null(strstr(text, "| worker-0 | 58 |"));
    mst_free(text);
}

/* ---- losses ---- */

#define HEAD "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5\n"

static void check_loss(const char *metrics, const char *sentence, const char *cells)
{
    fixture_run r = fixture_local();
    fixture_write(in_folder("run"), &r);
    put("run/metrics.csv", metrics);
    char *text = markdown("run");
    assert_non_null(strstr(text, sentence));
    assert_non_null(strstr(text, cells));
    mst_free(text);
}

static void test_losses(void **state)
{
    (void)state;
    check_loss(HEAD "1,10,0,1,0,0.1,0.7,test,0.5,0.75,,\n2,20,0,2,0,0.1,inf,test,inf,0.3,,\n",
               "The test error is 70% (best 25% after 1 s), the loss is inf (not finite).",
               "| run | test | inf | 30.00% | 70.00% | 0.5000 | 75.00% |");
    check_loss(HEAD "1,10,0,1,0,0.1,0.7,test,0.5,0.75,,\n2,20,0,2,0,0.1,,test,,0.3,,\n",
               "The test error is 70% (best 25% after 1 s), the loss is nan (not finite).",
               "| run | test | nan | 30.00% |");
    check_loss(HEAD "1,10,0,1,0,0.1,inf,test,inf,,,\n", " The last evaluation's loss is inf (not finite).",
               "| run | test | inf |");
    check_loss(HEAD "1,10,0,1,0,0.1,0.7,test,inf,0.75,,\n2,20,0,2,0,0.1,0.6,test,0.4,0.8,,\n",
               "The test error is 20%, the loss 0.4.", "| run | test | 0.4000 | 80.00% |");
}

/* ---- nothing to say ---- */

static void test_shells(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    fixture_write(in_folder("run"), &r);
    unlink(in_folder("run/manifest.json"));
    put("run/processes/local/resources.csv", "gibberish\nmore of it\n");
    put("run/processes/local/spans.csv", "gibberish\nmore of it\n");
    char *text = markdown("run");
    assert_null(strstr(text, "## How to reproduce"));
    assert_null(strstr(text, "```"));
    assert_null(strstr(text, "## Use "));
    mst_free(text);
}

/* ---- several ---- */

static void test_other_data(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b"};
    fixture_run r = fixture_local();
    fixture_write(in_folder("a"), &r);
    fixture_write(in_folder("b"), &r);
    char *text = markdown_of(names, 2);
    assert_non_null(strstr(text, "reached the lowest test error"));
    mst_free(text);
    extend_manifest("b", "\"data\": {\"source\": \"elsewhere/clicks.tsv\"}");
    text = markdown_of(names, 2); /* seen from another folder */
    assert_non_null(strstr(text, "reached the lowest test error"));
    mst_free(text);
    extend_manifest("b", "\"data\": {\"source\": \"digits.tsv\"}");
    text = markdown_of(names, 2);
    assert_null(strstr(text, "reached the lowest"));
    assert_non_null(
        strstr(text, "The runs trained on different data: their errors and losses cannot be compared."));
    mst_free(text);
}

/* Bytes from host to host. Both ends of a connection count; the one that has more is right, since a process
 * that was killed lacks its last lines. */
static void test_traffic(void **state)
{
    (void)state;
    static const char *const names[] = {"run", "other"};
    fixture_run r = {.strategy = "ps",
                     .mode = "sync",
                     .workers = 3,
                     .servers = 1,
                     .seconds = 2,
                     .n = 4,
                     .processes = {{.name = "server-0", .role = "server", .host = "a"},
                                   {.name = "worker-0", .role = "worker", .host = "a"},
                                   {.name = "worker-1", .role = "worker", .host = "b"},
                                   {.name = "worker-2", .role = "worker", .host = "b"}}};
    fixture_write(in_folder("run"), &r);
    char *text = markdown("run");
    assert_null(strstr(text, "Bytes between hosts")); /* nothing was counted */
    mst_free(text);
    put("run/processes/server-0/traffic.csv", "time,process,bytes_in,bytes_out\n"
                                              "1,worker-0,50,60\n1,worker-1,1000,2000\n1,worker-2,500,600\n"
                                              "2,worker-1,1000,2000\n2,server-9,7,7\n");
    put("run/processes/worker-0/traffic.csv", "time,process,bytes_in,bytes_out\n1,server-0,60,50\n");
    put("run/processes/worker-1/traffic.csv", "time,process,bytes_in,bytes_out\n1,server-0,2000,1000\n");
    put("run/processes/worker-2/traffic.csv", "time,process,bytes_in,bytes_out\n1,server-0,600,505\n");
    text = markdown("run");
    assert_non_null(strstr(text, "| host | a | b | all other hosts | same host |"));
    assert_non_null(strstr(text, "| a |  | 4.60 kB | 4.60 kB | 110 B |"));
    assert_non_null(strstr(text, "| b | 2.50 kB |  | 2.50 kB | \xe2\x80\x93 |"));
    mst_free(text);
    for (int i = 0; i < 4; i++)
        r.processes[i].host = i == 3 ? "c" : "a";
    fixture_write(in_folder("other"), &r);
    put("other/processes/worker-2/traffic.csv", "time,process,bytes_in,bytes_out\n1,server-0,8,9\n");
    text = markdown_of(names, 2);
    assert_non_null(strstr(text, "| run and host | a | b | c | all other hosts | same host |"));
    assert_non_null(strstr(text, "c | 9 B | \xe2\x80\x93 |  | 9 B | \xe2\x80\x93 |"));
    mst_free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_passes), TEST(test_killed_worker), TEST(test_losses),
        TEST(test_shells), TEST(test_other_data),    TEST(test_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
