/* libFuzzer: any bytes as the files of a run directory. Sections of the input, separated by the byte 1, are
 * manifest.json, metrics.csv, marks.csv and, of one process, process.json, resources.csv and spans.csv.
 * Whatever they hold, reading, the verdict and the report must come to an end, shares must be shares, and no
 * text of theirs may become markup. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "report/report.h"
#include "report/verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "manifest.json",
    "metrics.csv",
    "marks.csv",
    "processes/worker-0/process.json",
    "processes/worker-0/resources.csv",
    "processes/worker-0/spans.csv",
};
#define N_FILES (sizeof names / sizeof *names)

static char folder[64];

static void remove_folder(void)
{
    mst_remove_tree(folder);
}

static void make_folder(void)
{
    char path[128];
    if (folder[0] != '\0')
        return;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-run-XXXXXX" : "/tmp/fuzz-run-XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    atexit(remove_folder);
    snprintf(path, sizeof path, "%s/processes", folder);
    mkdir(path, 0777);
    strcat(path, "/worker-0");
    mkdir(path, 0777);
}

static void write_files(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < N_FILES; i++) {
        char path[160];
        const uint8_t *end = size > 0 ? memchr(data, 1, size) : NULL;
        size_t n = end != NULL ? (size_t)(end - data) : size;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
        if (n > 0) {
            FILE *f = fopen(path, "w");
            if (f == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0)
                abort();
        }
        n += end != NULL;
        data += n;
        size -= n;
    }
}

static void check_verdict(const mst_verdict *v)
{
    double sum = 0;
    for (int k = 0; k < MST_BOTTLENECKS; k++) {
        if (!(v->shares[k] >= 0 && v->shares[k] <= 1))
            abort();
        sum += v->shares[k];
    }
    if (sum > 1.001 || v->sentence[0] == '\0')
        abort();
    for (size_t i = 0; i < v->n_advice; i++)
        if (!(v->advice[i].gain >= 1))
            abort();
}

static void check_html(const char *text)
{
    const char *first = strstr(text, "<script");
    if (first == NULL || strstr(first + 1, "<script") != NULL || strstr(text, "\"nan") != NULL)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mst_run_data *run = NULL;
    mst_report *report = NULL;
    mst_verdict verdict;
    make_folder();
    write_files(data, size);
    if (mst_run_data_new(folder, &run) != MST_OK) {
        if (mst_error_text()[0] == '\0')
            abort();
        return 0;
    }
    if (mst_run_data_update(run, NULL) != MST_OK || mst_verdict_of(run, &verdict) != MST_OK)
        abort();
    check_verdict(&verdict);
    if (mst_report_new(&run, 1, NULL, &report) == MST_OK) {
        mst_buffer html = {0}, markdown = {0};
        if (mst_report_html(report, &html) != MST_OK || mst_report_markdown(report, &markdown) != MST_OK)
            abort();
        check_html(html.text);
        mst_buffer_fini(&html);
        mst_buffer_fini(&markdown);
        json_decref(mst_report_json(report));
        mst_report_destroy(report);
    }
    mst_run_data_destroy(run);
    return 0;
}
