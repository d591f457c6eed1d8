/* libFuzzer: any bytes as the body of a request to muster serve. The first byte selects the model and the
 * form of the body. Rows that are accepted have a finite prediction each, and an answer is valid JSON; so is
 * the text that the reader accepts, as jansson finds. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fuzz.h"
#include "serve/predict_job.h"

/* A model without a checkpoint. */
static mst_serve_model *fuzz_model(const char *format, uint32_t n_dense, uint32_t n_fields)
{
    mst_serve_model *m = mst_zalloc(sizeof *m);
    mst_model_options options = {.bias = true, .pos_weight = 1.0, .keep_negatives = 1.0, .factors = 2};
    mst_shape shape = {.n_features = 1000, .n_dense = n_dense, .n_classes = 2, .n_fields = n_fields};
    json_t *origin = json_pack("{s:s, s:i}", "keys", format, "index-base", 1);
    FUZZ_CHECK(m != NULL && origin != NULL);
    while (strcmp(mst_models[options.model]->name, n_fields > 0 ? "ffm" : "logreg") != 0)
        options.model++;
    m->references = 1;
    m->reading.data.features = 1000;
    m->reading.data.fields = n_fields;
    m->reading.data.csv_columns =
        (char *)"y:label(no;yes),age:standard(25;4),city:category,visits:bucket(1;2;5),w:weight,*:ignore";
    FUZZ_CHECK(mst_assembly_init(&m->assembly, &options, &shape, mst_kernels_get(mst_isa_best()),
                                 &(mst_store_spec){0}, 0) == MST_OK);
    mst_scorers_init(&m->scorers, &m->assembly, &m->augment);
    FUZZ_CHECK(mst_row_parser_new(&m->reading.data, origin, n_fields > 0, &m->parser) == MST_OK);
    json_decref(origin);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mst_serve_model *models[5];
    static mst_job *job;
    if (size == 0)
        return 0;
    if (job == NULL) {
        FUZZ_CHECK(mst_job_new(&job) == MST_OK);
        models[0] = fuzz_model("criteo", 0, 0);
        models[1] = fuzz_model("csv", 1, 0);
        models[2] = fuzz_model("vw", 0, 0);
        models[3] = fuzz_model("numbers", 0, 0);
        models[4] = fuzz_model("numbers", 0, 5);
    }
    mst_serve_model *model = models[data[0] % 5];
    bool lines = data[0] / 5 % 8 == 7, strict = data[0] & 128;
    mst_serve_model_hold(model);
    mst_job_begin(job, model, 50, 1 << 20, strict);
    FUZZ_CHECK(mst_job_body(job, (const char *)data + 1, size - 1) == MST_OK);
    mst_status st = mst_job_read(job, lines);
    FUZZ_CHECK(st == MST_OK || (st == MST_EINPUT && mst_error_text()[0] != '\0'));
    if (st == MST_OK) {
        json_error_t error = {0};
        json_t *body = lines ? NULL : json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL, &error);
        enum json_error_code code = json_error_code(&error); /* two limits of jansson alone */
        FUZZ_CHECK(lines || body != NULL || code == json_error_numeric_overflow ||
                   code == json_error_null_byte_in_key);
        json_decref(body);
        FUZZ_CHECK(mst_job_score(job) == MST_OK && mst_job_write(job) == MST_OK);
        json_t *answer = json_loadb(job->answer.text, job->answer.size, 0, NULL);
        FUZZ_CHECK(json_array_size(json_object_get(answer, "predictions")) == job->n_rows);
        json_decref(answer);
    }
    mst_job_end(job);
    return 0;
}
