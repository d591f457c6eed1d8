/* One request for predictions: from its body to rows, scores and the text of the answer, without HTTP.
 *
 *     mst_job_begin, mst_job_body...   the model in use, and the bytes of the body as they arrive
 *     mst_job_read                     the body becomes rows; MST_EINPUT: a bad request, with one sentence
 *     mst_job_score                    on this thread; or mst_batcher_submit, together with other requests
 *     mst_job_write                    job->answer
 *     mst_job_end
 *
 * A job is used again and keeps its memory, up to a megabyte. One thread at a time. */
#ifndef MST_SERVE_PREDICT_JOB_H
#define MST_SERVE_PREDICT_JOB_H

#include "base/strings.h"
#include "serve/json_pull.h"
#include "serve/serve_model.h"

/* The values of an answer, by "signature_name". */
typedef enum mst_job_output {
    MST_JOB_PROBABILITY, /* "serving_default" or "probability" */
    MST_JOB_CLASS,       /* "class": as in the labels of the training data */
    MST_JOB_SCORE,       /* "score": margin or logits */
} mst_job_output;

/* The form of all instances of a request. */
typedef enum mst_job_form {
    MST_FORM_NONE,  /* none was read yet */
    MST_FORM_LINES, /* texts of the training format */
    MST_FORM_NAMED, /* objects */
    MST_FORM_KEYED, /* arrays of numbers, and {"dense", "indices", "values", "fields"} */
} mst_job_form;

/* Numbers of a keyed row. */
typedef struct mst_job_numbers {
    float *items;
    size_t n, capacity;
} mst_job_numbers;
typedef struct mst_job_integers {
    uint32_t *items;
    size_t n, capacity;
} mst_job_integers;

typedef struct mst_job {
    struct mst_job *next;   /* in a list of jobs */
    void *owner;            /* free for the owner */
    mst_serve_model *model; /* held between begin and end */
    uint64_t max_rows, max_body;
    uint64_t due_ns; /* of mst_batcher_submit */
    bool strict;     /* features that the model does not have are refused, else ignored */
    char *body;
    size_t n_body, body_capacity;
    mst_job_output output;
    mst_job_form form;
    mst_string text; /* scratch of row_text.h */
    mst_named_value *values;
    size_t n_values, value_capacity;
    mst_job_numbers dense, weights; /* "dense" and "values" */
    mst_job_integers indices, fields;
    bool has_weights, has_fields; /* "values" and "fields" are there */
    mst_chunk_builder builder;
    mst_chunk *chunk; /* the rows; or NULL */
    uint32_t n_rows;
    float *scores; /* n_rows x n_scores */
    size_t score_capacity;
    mst_string answer;
} mst_job;

/* *out is the caller's to destroy. */
mst_status mst_job_new(mst_job **out);
void mst_job_destroy(mst_job *self); /* NULL-safe */

/* Takes over the reference to the model. */
void mst_job_begin(mst_job *self, mst_serve_model *model, uint64_t max_rows, uint64_t max_body, bool strict);
void mst_job_end(mst_job *self);

/* Adds bytes of the body. MST_EINPUT: it is longer than max_body. */
mst_status mst_job_body(mst_job *self, const char *bytes, size_t n);

/* The body as JSON, {"instances": [...], "signature_name": "..."}; or as lines, one row each. Rows are those
 * that `muster predict` would read. */
mst_status mst_job_read(mst_job *self, bool lines);

/* Fills scores. */
mst_status mst_job_score(mst_job *self);
/* Row i as the model reads it; it points into the job. */
void mst_job_row(const mst_job *self, uint32_t i, mst_row *row);

/* {"predictions": [...]}, numbers as `muster predict` prints them. */
mst_status mst_job_write(mst_job *self);

#endif
