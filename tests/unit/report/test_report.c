/* The report in all its forms: one run and several, text of a run that cannot become markup, plots, and lack
 * of memory. The browser's tests render the page. */
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "report/assets.h"
#include "report/report_impl.h"
#include "unit/report/run_fixture.h"
#include "unit/report/test_folder.h"

static mst_run_data *make_run(const char *name, const fixture_run *run)
{
    char path[300];
    mst_run_data *data = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fixture_write(path, run);
    assert_int_equal(mst_run_data_new(path, &data), MST_OK);
    return data;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word))
        n++;
    return n;
}

/* Occurrences in the files of the page. */
static size_t count_in_assets(const char *word)
{
    size_t n = 0;
    for (const mst_asset *a = mst_assets; a->path != NULL; a++)
        if (strcmp(a->path, "/") != 0)
            n += count((const char *)a->data, word);
    return n;
}

/* Every tag that is opened is closed, in order; enough of a parser for markup of our own. */
static void check_nesting(const char *html)
{
    static const char *const alone[] = {"!DOCTYPE", "meta", "input", "rect", "line", "path", "circle"};
    const char *open[64];
    size_t lengths[64], n = 0;
    for (const char *p = html; (p = strchr(p, '<')) != NULL; p++) {
        const char *end = strchr(p, '>');
        size_t length = strcspn(p + 1, " >/\n");
        assert_non_null(end);
        if (p[1] == '/') {
            length = strcspn(p + 2, " >");
            assert_true(n > 0);
            n--;
            assert_true(lengths[n] == length && strncmp(open[n], p + 2, length) == 0);
            continue;
        }
        bool empty = end[-1] == '/';
        for (size_t i = 0; i < 3; i++)
            empty = empty || (strlen(alone[i]) == length && strncmp(alone[i], p + 1, length) == 0);
        if (!empty) {
            assert_true(n < 64);
            open[n] = p + 1;
            lengths[n++] = length;
        }
        if (strncmp(p, "<style", 6) == 0 || strncmp(p, "<script", 7) == 0) /* no markup within */
            p = strstr(p, strncmp(p, "<style", 6) == 0 ? "</style" : "</script") - 1;
    }
    assert_int_equal(n, 0);
}

/* The document of a page; the caller's to release. Checks that the page has one data block and one script,
 * and asks for nothing from outside. */
static json_t *read_document(const char *html)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *from = strstr(html, begin);
    assert_non_null(from);
    from += strlen(begin);
    const char *end = strchr(from, '<');
    assert_int_equal(strncmp(end, "</script>\n<script>", 18), 0);
    assert_int_equal(count(html, "<script"), 2 + (mst_assets_uplot ? count_in_assets("<script") : 0));
    assert_null(strstr(html, "src=\""));
    assert_null(strstr(html, "<link"));
    json_error_t error;
    json_t *document = json_loadb(from, (size_t)(end - from), 0, &error);
    assert_non_null(document);
    return document;
}

static json_t *find_section(const json_t *document, const char *id)
{
    size_t i;
    json_t *section;
    json_array_foreach(json_object_get(document, "sections"), i, section)
    {
        if (strcmp(json_string_value(json_object_get(section, "id")), id) == 0)
            return section;
    }
    fail_msg("no section %s", id);
    return NULL;
}

/* Blocks of a kind in a section; *first: the first of them. */
static size_t find_blocks(const json_t *section, const char *kind, json_t **first)
{
    size_t i, n = 0;
    json_t *block;
    json_array_foreach(json_object_get(section, "blocks"), i, block)
    {
        if (strcmp(json_string_value(json_object_get(block, "kind")), kind) == 0 && n++ == 0)
            *first = block;
    }
    return n;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static bool has_mark(const json_t *plot, const char *kind)
{
    size_t i;
    json_t *mark;
    json_array_foreach(json_object_get(plot, "marks"), i, mark)
    {
        if (strcmp(text_of(mark, "kind"), kind) == 0)
            return true;
    }
    return false;
}

/* Plots of the curves on an axis. */
static size_t count_axis(const json_t *document, const char *axis)
{
    json_t *block = NULL, *plot;
    size_t i, n = 0;
    assert_int_equal(find_blocks(find_section(document, "curves"), "plots", &block), 1);
    json_array_foreach(json_object_get(block, "plots"), i, plot)
    {
        n += strcmp(text_of(plot, "axis"), axis) == 0;
    }
    return n;
}

static void test_one(void **state)
{
    (void)state;
    fixture_run r = fixture_job("sync");
    mst_report *report = NULL;
    mst_string out = {0};
    r.eval_seconds = 6;
    mst_run_data *run = make_run("one", &r);
    assert_int_equal(mst_report_new(&run, 1, NULL, &report), MST_OK);
    assert_int_equal(mst_report_html(report, &out), MST_OK);
    assert_non_null(strstr(out.text, "<title>one \xe2\x80\x93 muster report</title>"));
    assert_non_null(strstr(out.text, "Content-Security-Policy"));
    json_t *document = read_document(out.text), *block = NULL;
    assert_string_equal(text_of(document, "title"), "one");
    assert_int_equal(find_blocks(find_section(document, "verdict"), "verdict", &block), 1);
    json_t *verdict = json_object_get(block, "verdict");
    assert_non_null(strstr(text_of(verdict, "sentence"), "Computing is the bottleneck"));
    assert_int_equal(json_array_size(json_object_get(block, "causes")), MST_BOTTLENECKS);
    /* error, loss, AUC and training loss on three axes */
    assert_int_equal(count_axis(document, "time"), 4);
    assert_int_equal(count_axis(document, "steps"), 4);
    assert_int_equal(count_axis(document, "rows"), 4);
    find_blocks(find_section(document, "curves"), "plots", &block);
    json_t *plot = json_array_get(json_object_get(block, "plots"), 0);
    assert_string_equal(text_of(plot, "title"), "Test error");
    assert_string_equal(text_of(plot, "unit"), "share");
    /* a plot for each process, with marks; a table with a bar's shares; the command */
    size_t processes = find_blocks(find_section(document, "processes"), "plots", &block);
    assert_int_equal(processes, run->n_processes);
    assert_string_equal(text_of(block, "title"), run->processes[0]->name);
    plot = json_array_get(json_object_get(block, "plots"), 0);
    assert_true(has_mark(plot, "evaluation"));
    assert_true(find_blocks(find_section(document, "time"), "table", &block) == 3);
    assert_string_equal(
        json_string_value(json_array_get(json_array_get(json_object_get(block, "rows"), 0), 0)), "one");
    find_blocks(find_section(document, "configuration"), "command", &block);
    assert_int_equal(strncmp(text_of(block, "text"), "muster train clicks.tsv --epochs=3", 34), 0);
    json_decref(document);
    mst_string_fini(&out);
    assert_int_equal(mst_report_markdown(report, &out), MST_OK);
    assert_non_null(strstr(out.text, "# one\n"));
    assert_non_null(strstr(out.text, "| worker-1 |"));
    mst_string_fini(&out);
    assert_int_equal(mst_report_csv(report, &out), MST_OK);
    assert_int_equal(strncmp(out.text, "table,row,column,value\n", 23), 0);
    assert_non_null(strstr(out.text, "\noverview,one,bottleneck,compute\n"));
    assert_non_null(strstr(out.text, "\ncost,one,eval_s,6\n"));
    mst_string_fini(&out);
    json_t *json = mst_report_json(report);
    assert_int_equal(json_array_size(json_object_get(json, "workers")), 3);
    json_decref(json);
    mst_report_destroy(report);
    mst_run_data_destroy(run);
}

/* A worker that was lost is named, with when. */
static void test_lost(void **state)
{
    (void)state;
    fixture_run r = fixture_job("sync");
    mst_report *report = NULL;
    mst_string out = {0};
    char path[320];
    mst_run_data_destroy(make_run("lost", &r));
    snprintf(path, sizeof path, "%s/lost/marks.csv", folder);
    FILE *marks = fopen(path, "a");
    fprintf(marks, "%f,worker-1,death,killed\n", FIXTURE_T0 + 20);
    fclose(marks);
    mst_run_data *run = NULL;
    snprintf(path, sizeof path, "%s/lost", folder);
    assert_int_equal(mst_run_data_new(path, &run), MST_OK);
    assert_int_equal(mst_report_new(&run, 1, NULL, &report), MST_OK);
    assert_int_equal(mst_report_markdown(report, &out), MST_OK);
    assert_non_null(strstr(out.text, "worker-1 was lost after 20 s."));
    assert_int_equal(count(out.text, "lost after 20 s |"), 1);
    assert_int_equal(count(out.text, "Computing is the bottleneck"), 1);
    mst_string_fini(&out);
    assert_int_equal(mst_report_html(report, &out), MST_OK);
    assert_int_equal(count(out.text, "Computing is the bottleneck"), 1);
    json_decref(read_document(out.text));
    mst_string_fini(&out);
    mst_report_destroy(report);
    mst_run_data_destroy(run);
}

static void test_several(void **state)
{
    (void)state;
    fixture_run a = fixture_job("sync"), b = fixture_job("async"), c = fixture_local();
    mst_report *report = NULL;
    mst_string out = {0};
    size_t n = 0;
    mst_run_data *runs[] = {make_run("a", &a), make_run("b", &b), make_run("c", &c)};
    char *marked = mst_sprintf("%s/b", folder);
    FILE *f = fixture_open(marked, "marks.csv");
    fprintf(f, "time,process,kind,text\n%f,,evaluate_begin,\n%f,,evaluate_end,\n", FIXTURE_T0 + 3,
            FIXTURE_T0 + 4);
    fclose(f);
    mst_run_data_destroy(runs[1]);
    assert_int_equal(mst_run_data_new(marked, &runs[1]), MST_OK);
    mst_free(marked);
    assert_int_equal(mst_report_new(runs, 3, NULL, &report), MST_OK);
    assert_int_equal(mst_report_html(report, &out), MST_OK);
    json_t *document = read_document(out.text), *block = NULL, *plot;
    assert_string_equal(text_of(document, "title"), "3 runs compared");
    json_t *head = find_section(document, "head");
    /* the comparison comes first, then the table of runs, then the sentences */
    json_t *blocks = json_object_get(head, "blocks");
    const char *first = text_of(json_array_get(blocks, 1), "text");
    assert_non_null(strstr(first, " was the fastest, with "));
    assert_non_null(strstr(first, " reached the lowest test error, "));
    assert_non_null(strstr(first, " The bottleneck is the cores in all of them."));
    assert_string_equal(text_of(json_array_get(blocks, 1), "class"), "verdict fine");
    assert_string_equal(text_of(json_array_get(blocks, 2), "kind"), "table");
    assert_int_equal(json_array_size(json_object_get(json_array_get(blocks, 2), "rows")), 3);
    assert_string_equal(text_of(json_array_get(blocks, 3), "label"), "a");
    /* a box for each run */
    find_blocks(find_section(document, "curves"), "legend", &block);
    assert_int_equal(json_array_size(json_object_get(block, "runs")), 3);
    assert_true(json_is_true(json_object_get(block, "boxes")));
    assert_non_null(strstr(out.text, "b \xc2\xb7 --mode"));
    /* marks are in lanes, and named by their run */
    find_blocks(find_section(document, "hosts"), "plots", &block);
    plot = json_array_get(json_object_get(block, "plots"), 0);
    assert_true(json_integer_value(json_object_get(plot, "lanes")) >= 2);
    assert_true(has_mark(plot, "evaluation"));
    assert_non_null(strstr(out.text, "\"text\":\"b: evaluation\""));
    json_decref(document);
    mst_string_fini(&out);
    char *svg = mst_sprintf("%s/plots", folder);
    assert_int_equal(mst_report_svg(report, svg, &n), MST_OK);
    assert_true(n > 20);
    mst_free(svg);
    char *path = mst_sprintf("%s/plots/curves-Test-error-time.svg", folder);
    assert_int_equal(mst_file_read_all(path, 1 << 20, &svg, &n), MST_OK);
    assert_int_equal(count(svg, "class=\"line\" stroke=\"var(--c0)\""), 2); /* the curve and its legend */
    assert_non_null(strstr(svg, "prefers-color-scheme"));
    check_nesting(svg);
    mst_free(svg);
    mst_free(path);
    mst_report_destroy(report);
    for (int i = 0; i < 3; i++)
        mst_run_data_destroy(runs[i]);
}

static void test_escapes(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    mst_report *report = NULL;
    mst_string out = {0};
    char path[400];
    mst_run_data *run = make_run("r&<b>", &r);
    mst_run_data_destroy(run);
    snprintf(path, sizeof path, "%s/r&<b>", folder);
    FILE *f = fixture_open(path, "manifest.json");
    fprintf(
        f,
        "{\"model\": {\"name\": \"<script>alert(1)</script>\"}, \"state\": \"failed\", \"error\": "
        "\"</style>\", "
        "\"files\": [\"a b'$(x).tsv\"], \"options\": {\"training\": {\"<i>\": \"<u>\", \"test\": [\"&\"]}}}");
    fclose(f);
    f = fixture_open(path, "marks.csv");
    fprintf(f, "time,process,kind,text\n%f,local,join,</title><script>\n", FIXTURE_T0 + 3);
    fclose(f);
    assert_int_equal(mst_run_data_new(path, &run), MST_OK);
    assert_int_equal(mst_report_new(&run, 1, NULL, &report), MST_OK);
    assert_int_equal(mst_report_html(report, &out), MST_OK);
    json_t *document = read_document(out.text);
    assert_string_equal(text_of(document, "title"), "r&<b>");
    assert_int_equal(count(out.text, "</style>"), 1 + count_in_assets("</style>"));
    assert_non_null(strstr(out.text, "<title>r&amp;&lt;b&gt; \xe2"));
    assert_non_null(strstr(out.text, "\\u003cscript>alert(1)\\u003c/script> was trained"));
    assert_non_null(strstr(out.text, "\\u003c/title>\\u003cscript>"));
    assert_null(strstr(out.text, "<i>"));
    json_decref(document);
    mst_string_fini(&out);
    assert_int_equal(mst_report_markdown(report, &out), MST_OK);
    assert_null(strstr(out.text, "<script"));
    mst_string_fini(&out);
    mst_report_destroy(report);
    mst_run_data_destroy(run);
}

static void test_command(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    mst_report *report = NULL;
    mst_run_data *run = make_run("r", &r);
    json_t *defaults = json_pack("{s:{s:i, s:s, s:i}, s:{s:s, s:s, s:i, s:i, s:i, s:s, s:i, s:i, s:b}}",
                                 "training", "epochs", 1, "eval-every", "1 epoch", "seed", 1, "strategy",
                                 "strategy", "local", "mode", "sync", "servers", 0, "workers", 0, "batch", 64,
                                 "wire", "fp32", "pipeline", 0, "busy-poll", 0, "dense-model", 0);
    assert_non_null(defaults);
    assert_int_equal(mst_report_new(&run, 1, defaults, &report), MST_OK);
    assert_string_equal(report->commands[0], "muster train clicks.tsv --epochs=3 --batch=100");
    mst_report_destroy(report);
    mst_run_data_destroy(run);
    r = fixture_ranks();
    run = make_run("ranks", &r);
    assert_int_equal(mst_report_new(&run, 1, defaults, &report), MST_OK);
    assert_string_equal(report->commands[0], "mpirun -n 3 muster train clicks.tsv "
                                             "--strategy=allreduce --epochs=3 --batch=100");
    mst_report_destroy(report);
    mst_run_data_destroy(run);
    r = fixture_job("sync"); /* workers that host the model, as ranks and as they are */
    r.servers = 3;
    for (int ranks = 0; ranks < 2; ranks++) {
        r.entries = ranks ? "\"cluster\": {\"servers\": [\"a:1\", \"b:1\", \"c:1\"], \"workers\": "
                            "[\"a:1\", \"b:1\", \"c:1\"], \"given_strategy\": \"allreduce\"}, "
                          : "\"cluster\": {\"servers\": [\"a:1\", \"b:1\", \"c:1\"], \"workers\": "
                            "[\"a:1\", \"b:1\", \"c:1\"]}, ";
        run = make_run("hosted", &r);
        assert_int_equal(mst_report_new(&run, 1, defaults, &report), MST_OK);
        assert_string_equal(report->commands[0],
                            ranks ? "muster launch --servers 0 --workers 3 -- train clicks.tsv "
                                    "--strategy=allreduce --epochs=3 --batch=100"
                                  : "muster launch --servers 0 --workers 3 -- train clicks.tsv --epochs=3 "
                                    "--batch=100");
        mst_report_destroy(report);
        mst_run_data_destroy(run);
    }
    json_decref(defaults);
}

static void test_steps(void **state)
{
    (void)state;
    assert_float_equal(mst_nice_step(0, 10, 5), 2, 1e-12);
    assert_float_equal(mst_nice_step(0, 0.13, 5), 0.05, 1e-12);
    assert_float_equal(mst_nice_step(3, 3, 5), 1, 0);
}

/* The figures of a column are as long as each other; what is counted in whole units is not changed. */
static void test_columns(void **state)
{
    (void)state;
    mst_sheet sheet = {.title = "t", .key = "t"};
    mst_sheet_column_add(&sheet, "x", "x", true);
    mst_sheet_real(&sheet, 0.768);
    mst_sheet_real(&sheet, 2);
    mst_sheet_real(&sheet, 1e-5);
    mst_sheet_seconds(&sheet, 8);
    mst_sheet_seconds(&sheet, 1.7);
    mst_sheet_seconds(&sheet, 180);
    mst_sheet_bytes(&sheet, 17e6);
    mst_sheet_bytes(&sheet, 12);
    mst_sheet_rate(&sheet, 1e6);
    mst_sheet_precise(&sheet, 0.77);
    mst_sheet_bytes(&sheet, 0);
    static const char *const texts[] = {"0.7680",  "2.000", "1e-05",     "8.00 s", "1.70 s",      "3 min",
                                        "17.0 MB", "12 B",  "1.00 MB/s", "77.00%", "\xe2\x80\x93"};
    assert_false(sheet.failed);
    assert_int_equal(sheet.n_cells, sizeof texts / sizeof *texts);
    for (size_t i = 0; i < sheet.n_cells; i++)
        assert_string_equal(sheet.cells[i].text, texts[i]);
    mst_sheet_fini(&sheet);
}

/* Ticks go from end to end of a y axis in steps of one size; time begins at 0, and a sole point is seen. */
/* Long texts of ticks leave room for the axis's label, which stands at the left edge; short ones cost none.
 */
static void test_margin(void **state)
{
    (void)state;
    static const struct {
        double low, high;
        size_t digits;
    } tries[] = {{0.1, 0.5, 3}, {0.69, 0.71, 5}, {0.9998, 0.99992, 8}};
    double before = 0;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        mst_series series = {.label = "a", .points = {.x = (double[]){0, 1}, .n = 2}};
        series.points.y = (double[]){tries[i].low, tries[i].high};
        mst_plot plot = {.title = "t", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1};
        mst_string out = {0};
        mst_plot_svg(&plot, &out);
        const char *text = strstr(out.text, "text-anchor=\"end\">");
        assert_non_null(text);
        assert_int_equal(strcspn(text + strlen("text-anchor=\"end\">"), "<"), tries[i].digits);
        while (strncmp(text, "x=\"", 3) != 0) /* of the same <text> */
            text--;
        double end = strtod(text + 3, NULL);
        assert_true(end - 7.5 * (double)tries[i].digits > 16); /* a digit is 7.2 wide, the label ends at 14 */
        assert_true(i == 1 ? end - before < 8 : end >= before);
        before = end;
        mst_string_fini(&out);
    }
}

static void test_ticks(void **state)
{
    (void)state;
    double x[] = {3.2, 10}, y[] = {22.31, 23.3};
    mst_series series = {.label = "s", .points = {x, y, 2}, .dots = true};
    mst_plot plot = {.title = "t", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1};
    mst_string out = {0};
    mst_plot_svg(&plot, &out);
    assert_non_null(strstr(out.text, ">22.2</text>"));
    assert_non_null(strstr(out.text, ">22.4</text>"));
    assert_non_null(strstr(out.text, ">23.4</text>"));
    assert_non_null(strstr(out.text, ">0</text>"));
    mst_string_fini(&out);
    series.points.n = 1;
    mst_plot_svg(&plot, &out);
    assert_int_equal(count(out.text, "<circle"), 1);
    mst_string_fini(&out);
}

/* Tens of thousands of points become a line of means in a band, of a bounded size; peaks stay in the band. */
static void test_dense(void **state)
{
    (void)state;
    enum { N = 100000 };
    mst_points points;
    mst_string out = {0};
    assert_int_equal(mst_points_new(N, &points), MST_OK);
    for (size_t i = 0; i < N; i++) {
        points.x[i] = (double)i;
        points.y[i] = i == N / 2 ? 5000 : i == 7 ? NAN : (double)(i * 7919 % 1000);
    }
    points.n = N;
    mst_series series = {.label = "s", .points = points};
    mst_plot plot = {.title = "t", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1};
    assert_int_equal(mst_series_reduce(&series), MST_OK);
    assert_int_equal(series.points.n, MST_PLOT_BUCKETS);
    double high = 0;
    for (size_t i = 0; i < series.points.n; i++) {
        assert_true(i == 0 || series.points.x[i] > series.points.x[i - 1]);
        if (i == 0) { /* it has a gap */
            assert_true(isnan(series.points.y[i]));
            continue;
        }
        assert_true(series.low[i] <= series.points.y[i] && series.points.y[i] <= series.high[i]);
        assert_true(series.points.y[i] > 400 && series.points.y[i] < 600);
        high = fmax(high, series.high[i]);
    }
    assert_float_equal(high, 5000, 0);
    mst_plot_svg(&plot, &out);
    check_nesting(out.text);
    assert_int_equal(count(out.text, "class=\"band\""), 1);
    assert_true(strlen(out.text) < 30000);
    mst_string_fini(&out);
    json_t *json = mst_plot_json(&plot, "time");
    json_t *drawn = json_array_get(json_object_get(json, "series"), 0);
    assert_true(json_is_true(json_object_get(drawn, "band")));
    assert_int_equal(json_array_size(json_object_get(drawn, "high")), MST_PLOT_BUCKETS);
    json_decref(json);
    mst_series_fini(&series);
}

/* Values that no axis can hold, and none at all. */
static void test_plots(void **state)
{
    (void)state;
    double x[] = {0, 1, NAN, 2, 1e300, 3}, y[] = {-1, INFINITY, 2, NAN, 5, 0};
    mst_series series = {.label = "<s>", .points = {x, y, 6}, .dots = true};
    mst_plot plot = {.title = "t", .x_label = "x", .y_label = "y", .series = &series, .n_series = 1};
    for (int unit = MST_FIGURE_PLAIN; unit <= MST_FIGURE_SHARE; unit++)
        for (size_t n = 0; n <= 6; n += 3) {
            mst_string out = {0};
            series.points.n = n;
            plot.x_unit = plot.y_unit = (mst_figure_unit)unit;
            assert_int_equal(mst_plot_has_points(&plot), n > 0);
            mst_plot_svg(&plot, &out);
            check_nesting(out.text);
            assert_null(strstr(out.text, "nan"));
            assert_null(strstr(out.text, "inf"));
            assert_null(strstr(out.text, "<s>"));
            mst_string_fini(&out);
            json_t *json = mst_plot_json(&plot, NULL);
            assert_int_equal(
                json_array_size(json_object_get(json_array_get(json_object_get(json, "series"), 0), "y")), n);
            json_decref(json);
        }
}

static void test_memory(void **state)
{
    (void)state;
    fixture_run r = fixture_job("sync");
    r.seconds = 4;
    mst_run_data *run = make_run("m", &r);
    for (uint64_t k = 1; k < 3000; k += 1 + k / 40) {
        mst_report *report = NULL;
        mst_string out = {0};
        mst_alloc_fail_at(k);
        mst_status st = mst_report_new(&run, 1, NULL, &report);
        if (st == MST_OK)
            st = mst_report_html(report, &out);
        mst_alloc_fail_at(0);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        mst_string_fini(&out);
        mst_report_destroy(report);
    }
    mst_run_data_destroy(run);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_one),
        TEST(test_lost),
        TEST(test_several),
        TEST(test_escapes),
        TEST(test_command),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_margin),
        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_plots),
        TEST(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
