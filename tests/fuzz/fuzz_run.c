/* libFuzzer: any bytes as the files of a run directory (fuzz_folder.h). Reading, verdict and report must end,
 * shares must be shares, and no text may become markup. */
#include "fuzz_folder.h"
#include "report/report.h"
#include "report/verdict.h"

static void check_verdict(const mst_verdict *v)
{
    double sum = 0;
    for (int k = 0; k < MST_BOTTLENECKS; k++) {
        FUZZ_CHECK(v->shares[k] >= 0 && v->shares[k] <= 1);
        sum += v->shares[k];
    }
    FUZZ_CHECK(sum <= 1.001 && v->sentence[0] != '\0');
    for (size_t i = 0; i < v->n_advice; i++)
        FUZZ_CHECK(v->advice[i].gain >= 1);
}

/* Nothing of the run ends the page's document, which is JSON. */
static void check_html(const char *text)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *from = strstr(text, begin);
    FUZZ_CHECK(from != NULL);
    from += strlen(begin);
    const char *end = strchr(from, '<');
    FUZZ_CHECK(end != NULL && strncmp(end, "</script>\n<script>", 18) == 0);
    json_t *document = json_loadb(from, (size_t)(end - from), 0, NULL);
    FUZZ_CHECK(document != NULL);
    json_decref(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mst_run_data *run = NULL;
    mst_report *report = NULL;
    mst_verdict verdict;
    if (mst_run_data_new(fuzz_folder(&data, &size, false), &run) != MST_OK) {
        FUZZ_CHECK(mst_error_text()[0] != '\0');
        return 0;
    }
    FUZZ_CHECK(mst_run_data_update(run, NULL) == MST_OK && mst_verdict_of(run, &verdict) == MST_OK);
    check_verdict(&verdict);
    if (mst_report_new(&run, 1, NULL, &report) == MST_OK) {
        mst_string html = {0}, markdown = {0};
        FUZZ_CHECK(mst_report_html(report, &html) == MST_OK &&
                   mst_report_markdown(report, &markdown) == MST_OK);
        check_html(html.text);
        mst_string_fini(&html);
        mst_string_fini(&markdown);
        json_decref(mst_report_json(report));
        mst_report_destroy(report);
    }
    mst_run_data_destroy(run);
    return 0;
}
