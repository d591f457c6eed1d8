/* The file of a study, rows of results, and expressions: any bytes are read or refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "study/study.h"
#include "study/study_expr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *spec = NULL, *rows = NULL;
    mst_study_size how = {.full = size % 2};
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (mst_study_spec_parse("fuzz.yaml", text, size, &how, &spec) == MST_OK)
        json_decref(spec);
    if (mst_study_rows_parse("fuzz", text, size, size % 3 == 0 ? "rows" : NULL, NULL, &rows) == MST_OK) {
        json_t *all = json_pack("{s:o}", "s", rows), *steps = json_pack("[{s:s}]", "name", "s");
        mst_expr_scope scope = {.rows = all, .steps = steps};
        mst_string out = {0};
        double number;
        (void)mst_study_row_matches(json_array_get(rows, 0), text);
        (void)mst_expr_number(&scope, text, &number);
        (void)mst_expr_sentence(&scope, text, &out);
        mst_string_fini(&out);
        json_decref(all);
        json_decref(steps);
    }
    free(text);
    return 0;
}
