/* One request for predictions; contract in predict_job.h. */
#include "serve/predict_job.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "data/feed.h"
#include "data/numbers.h"
#include "data/write.h"

#define KEEP_BYTES ((size_t)1 << 20) /* of the memory of a job */
#define WHERE      "instances"       /* in messages */

/* ---- life ---- */

mst_status mst_job_new(mst_job **out)
{
    mst_job *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    mst_chunk_builder_init(&self->builder);
    *out = self;
    return MST_OK;
}

static void job_free_memory(mst_job *self)
{
    mst_free(self->body);
    mst_free(self->values);
    mst_free(self->dense.items);
    mst_free(self->weights.items);
    mst_free(self->indices.items);
    mst_free(self->fields.items);
    mst_free(self->scores);
    mst_string_fini(&self->text);
    mst_string_fini(&self->answer);
    mst_chunk_builder_fini(&self->builder);
}

void mst_job_destroy(mst_job *self)
{
    if (self == NULL)
        return;
    mst_job_end(self);
    job_free_memory(self);
    mst_free(self);
}

void mst_job_begin(mst_job *self, mst_serve_model *model, uint64_t max_rows, uint64_t max_body, bool strict)
{
    self->model = model;
    self->max_rows = max_rows;
    self->max_body = max_body;
    self->strict = strict;
    self->n_body = 0;
    self->n_rows = 0;
    self->form = MST_FORM_NONE;
    self->output = MST_JOB_PROBABILITY;
}

void mst_job_end(mst_job *self)
{
    mst_chunk_release(self->chunk);
    self->chunk = NULL;
    mst_serve_model_release(self->model);
    self->model = NULL;
    if (self->body_capacity + self->builder.entry_capacity * 8 + self->text.capacity + self->answer.capacity +
            self->score_capacity * 4 + self->value_capacity * sizeof *self->values >
        KEEP_BYTES) {
        job_free_memory(self);
        *self = (mst_job){0};
        mst_chunk_builder_init(&self->builder);
    }
    self->text.failed = self->answer.failed = false;
}

mst_status mst_job_body(mst_job *self, const char *bytes, size_t n)
{
    if (n > self->max_body || self->n_body > self->max_body - n)
        return mst_fail(MST_EINPUT,
                        "the body has more than %" PRIu64 " bytes; send fewer rows per request, or raise "
                        "--max-body",
                        self->max_body);
    if (!mst_grow(&self->body, &self->body_capacity, self->n_body + n + 1, 1))
        return mst_fail_memory();
    memcpy(self->body + self->n_body, bytes, n);
    self->n_body += n;
    return MST_OK;
}

/* ---- instances ---- */

static mst_status job_fail(const mst_job *self, const char *message, ...)
    __attribute__((format(printf, 2, 3)));
static mst_status job_fail(const mst_job *self, const char *message, ...)
{
    char text[MST_ERROR_MAX];
    va_list args;
    va_start(args, message);
    vsnprintf(text, sizeof text, message, args);
    va_end(args);
    return mst_fail(MST_EINPUT, WHERE ":%u: %s", self->n_rows + 1, text);
}

/* A failure of the JSON reader is reported at the end of the body, so the loops stop without one. */
#define JSON_ENDED MST_OK

static mst_status job_set_form(mst_job *self, mst_job_form form)
{
    if (self->form != MST_FORM_NONE && self->form != form)
        return job_fail(self, "all instances of a request must have the same form");
    self->form = form;
    return MST_OK;
}

/* Ends a row, which the builder has. */
static mst_status job_count_row(mst_job *self)
{
    if (++self->n_rows > self->max_rows)
        return mst_fail(MST_EINPUT,
                        "the request has more than %" PRIu64 " rows; send them in several requests, or raise "
                        "--max-rows",
                        self->max_rows);
    return MST_OK;
}

static mst_status job_number(const mst_job *self, const mst_json_token *t, float *out)
{
    const uint8_t *p = (const uint8_t *)t->text, *end = p + t->n;
    double value = 0.0;
    if (t->kind != MST_JSON_NUMBER)
        return job_fail(self, "an array of numbers has an item that is not a number");
    if (mst_number_real(p, end, &value) != end || !isfinite((float)value))
        return job_fail(self, "%.*s is not a finite float", (int)(t->n < 40 ? t->n : 40), t->text);
    *out = (float)value;
    return MST_OK;
}

/* All numbers of an array, also in arrays within it, whose first item is read already. */
static mst_status job_numbers(mst_job *self, mst_json *json, mst_json_token item, bool more,
                              mst_job_numbers *out)
{
    if (!more)
        return JSON_ENDED;
    unsigned level = json->depth - (item.kind == MST_JSON_ARRAY);
    do {
        if (more && item.kind != MST_JSON_ARRAY) {
            if (!mst_grow(&out->items, &out->capacity, out->n + 1, sizeof *out->items))
                return mst_fail_memory();
            TRY(job_number(self, &item, &out->items[out->n]));
            out->n++;
        }
        more = mst_json_item(json, &item);
    } while (more || (json->error == NULL && json->depth >= level));
    return JSON_ENDED;
}

static mst_status job_integers(mst_job *self, mst_json *json, mst_json_token item, bool more, uint32_t most,
                               mst_job_integers *out)
{
    for (; more; more = mst_json_item(json, &item)) {
        const uint8_t *p = (const uint8_t *)item.text, *end = p + item.n;
        uint64_t value = 0;
        if (item.kind != MST_JSON_NUMBER || mst_number_unsigned(p, end, &value) != end || value > most)
            return job_fail(self, "indices and fields are whole numbers from 0 to %u", most);
        if (!mst_grow(&out->items, &out->capacity, out->n + 1, sizeof *out->items))
            return mst_fail_memory();
        out->items[out->n++] = (uint32_t)value;
    }
    return JSON_ENDED;
}

/* Whether rows have one number per feature. */
static bool job_is_dense(const mst_serve_model *m)
{
    const mst_shape *shape = &m->assembly.model->shape;
    return m->augment.any || shape->n_dense == shape->n_features ||
           (mst_model_has(m->assembly.model->ops, MST_MODEL_NET) && shape->n_fields == 0);
}

/* The row of dense, indices, weights and fields. whole: an array alone, which must not be short. */
static mst_status job_add_keyed(mst_job *self, bool whole)
{
    const mst_serve_model *m = self->model;
    const mst_shape *shape = &m->assembly.model->shape;
    uint64_t features = mst_serve_model_features(m);
    size_t n_dense = self->dense.n, n = n_dense + self->indices.n;
    mst_chunk_builder *b = &self->builder;
    if (n_dense > features || (whole && job_is_dense(m) && n_dense != features))
        return job_fail(self, "the array has %zu numbers; the model has %" PRIu64 " features", n_dense,
                        features);
    if (self->has_weights && self->weights.n != self->indices.n)
        return job_fail(self, "there are %zu indices and %zu values", self->indices.n, self->weights.n);
    if (self->has_fields && self->fields.n != self->indices.n)
        return job_fail(self, "there are %zu indices and %zu fields", self->indices.n, self->fields.n);
    if (self->has_fields && shape->n_fields == 0)
        return job_fail(self, "the model has no fields");
    if (shape->n_fields > 0 && n_dense > shape->n_dense)
        return job_fail(self, "there are %zu dense numbers; the model takes %u, and indices after them",
                        n_dense, shape->n_dense);
    if (shape->n_fields > 0 && n > shape->n_fields && !self->has_fields)
        return job_fail(self, "there are %zu values; the model has %u fields", n, shape->n_fields);
    if (shape->n_fields > 0)
        mst_chunk_builder_set_order(b, self->has_fields ? MST_ORDER_FIELDS : MST_ORDER_POSITION,
                                    shape->n_dense);
    TRY(mst_chunk_builder_room(b, n));
    for (size_t i = 0; i < n_dense; i++) {
        if (self->has_fields)
            mst_chunk_builder_add_field(b, (uint16_t)i, (uint32_t)i, self->dense.items[i]);
        else
            mst_chunk_builder_add(b, (uint32_t)i, self->dense.items[i]);
    }
    for (size_t i = 0; i < self->indices.n; i++) {
        uint32_t key = self->indices.items[i];
        float value = self->has_weights ? self->weights.items[i] : 1.0f;
        if (key < n_dense)
            return job_fail(self, "index %u is that of a dense number", key);
        if (self->has_fields)
            mst_chunk_builder_add_field(b, (uint16_t)self->fields.items[i], key, value);
        else
            mst_chunk_builder_add(b, key, value);
    }
    return mst_chunk_builder_end_row(b, 0.0f, 1.0f);
}

static void job_clear_keyed(mst_job *self)
{
    self->dense.n = self->weights.n = self->indices.n = self->fields.n = 0;
    self->has_weights = self->has_fields = false;
}

static mst_status job_add_array(mst_job *self, mst_json *json)
{
    mst_json_token item;
    TRY(job_set_form(self, MST_FORM_KEYED));
    job_clear_keyed(self);
    bool more = mst_json_item(json, &item);
    TRY(job_numbers(self, json, item, more, &self->dense));
    return json->error == NULL ? job_add_keyed(self, true) : JSON_ENDED;
}

static mst_status job_add_value(mst_job *self, mst_named_value value)
{
    if (!mst_grow(&self->values, &self->value_capacity, self->n_values + 1, sizeof *self->values))
        return mst_fail_memory();
    self->values[self->n_values++] = value;
    return MST_OK;
}

static mst_named_kind job_kind(const mst_json_token *t)
{
    return t->kind == MST_JSON_NUMBER ? MST_NAMED_NUMBER
           : t->kind == MST_JSON_NULL ? MST_NAMED_MISSING
                                      : MST_NAMED_TEXT;
}

static mst_status job_bad_value(const mst_job *self, const mst_json_token *name, const mst_json_token *t)
{
    return job_fail(self, "\"%.*s\" has %s as value; values are numbers, texts or null",
                    (int)(name->n < 40 ? name->n : 40), name->text,
                    t->kind == MST_JSON_ARRAY || t->kind == MST_JSON_OBJECT ? "an array or object"
                    : t->kind == MST_JSON_TRUE                              ? "true"
                                                                            : "false");
}

static bool job_is_scalar(const mst_json_token *t)
{
    return t->kind == MST_JSON_NUMBER || t->kind == MST_JSON_STRING || t->kind == MST_JSON_NULL;
}

/* "name": {"feature": value, ...} */
static mst_status job_add_group(mst_job *self, mst_json *json, const mst_json_token *name)
{
    mst_json_token inner, value;
    while (mst_json_member(json, &inner, &value)) {
        if (!job_is_scalar(&value))
            return job_bad_value(self, &inner, &value);
        TRY(job_add_value(self, (mst_named_value){.group = name->text,
                                                  .n_group = name->n,
                                                  .name = inner.text,
                                                  .n_name = inner.n,
                                                  .text = value.text,
                                                  .n_text = value.n,
                                                  .kind = job_kind(&value)}));
    }
    return JSON_ENDED;
}

/* The arrays of a keyed row: numbers under one of four names. */
typedef enum job_list { LIST_NONE, LIST_DENSE, LIST_INDICES, LIST_VALUES, LIST_FIELDS } job_list;
static job_list job_list_of(const mst_json_token *name)
{
    static const char *const names[] = {"", "dense", "indices", "values", "fields"};
    for (int i = LIST_DENSE; i <= LIST_FIELDS; i++)
        if (strlen(names[i]) == name->n && memcmp(names[i], name->text, name->n) == 0)
            return (job_list)i;
    return LIST_NONE;
}

/* "name": [...]: a list of names, or numbers of a keyed row (*keyed). */
static mst_status job_add_list(mst_job *self, mst_json *json, const mst_json_token *name, bool *keyed)
{
    mst_json_token item;
    bool more = mst_json_item(json, &item);
    job_list list = more && item.kind == MST_JSON_STRING ? LIST_NONE : job_list_of(name);
    *keyed = list != LIST_NONE;
    self->has_weights |= list == LIST_VALUES;
    self->has_fields |= list == LIST_FIELDS;
    switch (list) {
    case LIST_DENSE:
        return job_numbers(self, json, item, more, &self->dense);
    case LIST_VALUES:
        return job_numbers(self, json, item, more, &self->weights);
    case LIST_INDICES:
        return job_integers(self, json, item, more, UINT32_MAX - 1, &self->indices);
    case LIST_FIELDS:
        return job_integers(self, json, item, more, MST_FIELDS_MAX - 1, &self->fields);
    default:
        break;
    }
    for (; more; more = mst_json_item(json, &item)) {
        if (!job_is_scalar(&item) || item.kind == MST_JSON_NULL)
            return job_bad_value(self, name, &item);
        TRY(job_add_value(self, (mst_named_value){.group = name->text,
                                                  .n_group = name->n,
                                                  .name = item.text,
                                                  .n_name = item.n,
                                                  .kind = MST_NAMED_PRESENT}));
    }
    return JSON_ENDED;
}

static mst_status job_add_object(mst_job *self, mst_json *json)
{
    mst_json_token name, value;
    bool any_keyed = false, keyed;
    self->n_values = 0;
    job_clear_keyed(self);
    while (mst_json_member(json, &name, &value)) {
        keyed = false;
        if (value.kind == MST_JSON_OBJECT)
            TRY(job_add_group(self, json, &name));
        else if (value.kind == MST_JSON_ARRAY)
            TRY(job_add_list(self, json, &name, &keyed));
        else if (job_is_scalar(&value))
            TRY(job_add_value(self, (mst_named_value){.name = name.text,
                                                      .n_name = name.n,
                                                      .text = value.text,
                                                      .n_text = value.n,
                                                      .kind = job_kind(&value)}));
        else
            return job_bad_value(self, &name, &value);
        any_keyed |= keyed;
    }
    if (json->error != NULL)
        return JSON_ENDED;
    TRY(job_set_form(self, any_keyed ? MST_FORM_KEYED : MST_FORM_NAMED));
    if (any_keyed && self->n_values > 0)
        return job_fail(self, "a row has either names or \"dense\", \"indices\", \"values\" and \"fields\"");
    if (any_keyed)
        return job_add_keyed(self, false);
    return mst_row_parser_named(self->model->parser, WHERE, self->n_rows + 1, self->values, self->n_values,
                                &self->text, &self->builder);
}

static mst_status job_add_instance(mst_job *self, mst_json *json, const mst_json_token *t)
{
    switch (t->kind) {
    case MST_JSON_STRING:
        TRY(job_set_form(self, MST_FORM_LINES));
        TRY(mst_row_parser_line(self->model->parser, WHERE, self->n_rows + 1, t->text, t->n, &self->text,
                                &self->builder));
        break;
    case MST_JSON_OBJECT:
        TRY(job_add_object(self, json));
        break;
    case MST_JSON_ARRAY:
        TRY(job_add_array(self, json));
        break;
    default:
        return job_fail(self, "a row is an object, an array of numbers, or a line of text");
    }
    return json->error == NULL ? job_count_row(self) : JSON_ENDED;
}

/* ---- the body ---- */

static mst_status job_set_output(mst_job *self, const mst_json_token *t)
{
    static const struct {
        const char *name;
        mst_job_output output;
    } names[] = {{"serving_default", MST_JOB_PROBABILITY},
                 {"probability", MST_JOB_PROBABILITY},
                 {"class", MST_JOB_CLASS},
                 {"score", MST_JOB_SCORE}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (t->kind == MST_JSON_STRING && strlen(names[i].name) == t->n &&
            memcmp(names[i].name, t->text, t->n) == 0) {
            self->output = names[i].output;
            return MST_OK;
        }
    return mst_fail(MST_EINPUT, "signature_name must be serving_default, probability, class or score");
}

static mst_status job_read_json(mst_job *self)
{
    mst_json json;
    mst_json_token t, name;
    char place[120];
    bool instances = false;
    mst_json_init(&json, self->body, self->n_body);
    if (mst_json_value(&json, &t) && t.kind != MST_JSON_OBJECT)
        return mst_fail(MST_EINPUT, "the body must be {\"instances\": [...]}");
    while (mst_json_member(&json, &name, &t)) {
        if (name.n == 9 && memcmp(name.text, "instances", 9) == 0) {
            if (t.kind != MST_JSON_ARRAY || instances)
                return mst_fail(MST_EINPUT, "\"instances\" must be one array of rows");
            instances = true;
            while (mst_json_item(&json, &t))
                TRY(job_add_instance(self, &json, &t));
        } else if (name.n == 14 && memcmp(name.text, "signature_name", 14) == 0) {
            TRY(job_set_output(self, &t));
        } else if (name.n == 6 && memcmp(name.text, "inputs", 6) == 0) {
            return mst_fail(MST_EINPUT, "\"inputs\", the form by columns, is not supported; send rows as "
                                        "\"instances\"");
        } else {
            mst_json_skip(&json, &t);
        }
    }
    if (!mst_json_end(&json))
        return mst_fail(MST_EINPUT, "the body is not valid JSON: %s",
                        mst_json_error(&json, place, sizeof place));
    return instances ? MST_OK : mst_fail(MST_EINPUT, "the body has no \"instances\"");
}

/* One row per line; the last line feed is optional. */
static mst_status job_read_lines(mst_job *self)
{
    const char *p = self->body, *end = p + self->n_body;
    self->form = MST_FORM_LINES;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        TRY(mst_row_parser_line(self->model->parser, "line", self->n_rows + 1, p, (size_t)(stop - p),
                                &self->text, &self->builder));
        TRY(job_count_row(self));
        p = stop + (stop < end);
    }
    return MST_OK;
}

/* As the feed checks the rows of a file. */
static mst_status job_check(const mst_job *self)
{
    const mst_chunk *c = self->chunk;
    const mst_shape *shape = &self->model->assembly.model->shape;
    uint64_t features = mst_serve_model_features(self->model);
    if (self->model->augment.any &&
        (c->n_dense != features || c->n_entries != (uint64_t)c->n_rows * c->n_dense))
        return mst_fail(MST_EINPUT, "the rows are not images of %u x %u x %u", self->model->augment.channels,
                        self->model->augment.in_height, self->model->augment.in_width);
    if (self->strict && c->n_entries > 0 && c->max_key >= features)
        return mst_fail(MST_EINPUT, "a row has feature %u; the model has features 0 to %" PRIu64, c->max_key,
                        features - 1);
    if (shape->n_fields == 0 || c->n_entries == 0)
        return MST_OK;
    if (!c->fielded && c->n_entries > (uint64_t)c->n_rows * c->n_dense)
        return mst_fail(MST_EINPUT, "the rows have no fields, but the model has %u", shape->n_fields);
    uint32_t last = c->fielded ? c->max_field : c->n_dense - 1;
    return last < shape->n_fields || (c->fielded && !self->strict)
               ? MST_OK
               : mst_fail(MST_EINPUT, "a row has field %u; the model has fields 0 to %u", last,
                          shape->n_fields - 1);
}

/* Of rows with fields. */
static mst_status job_drop_unseen(mst_job *self)
{
    mst_chunk *all = self->chunk;
    uint64_t features = mst_serve_model_features(self->model);
    uint32_t fields = self->model->assembly.model->shape.n_fields;
    if (all->n_entries == 0 || (all->max_key < features && (fields == 0 || all->max_field < fields)))
        return MST_OK;
    TRY(mst_chunk_drop_unseen(all, features, fields, &self->chunk));
    mst_chunk_release(all);
    return MST_OK;
}

mst_status mst_job_read(mst_job *self, bool lines)
{
    const mst_model *model = self->model->assembly.model;
    mst_chunk_builder_clear(&self->builder);
    self->builder.max_dense = mst_model_has(model->ops, MST_MODEL_NET) ? UINT32_MAX : model->shape.n_dense;
    TRY(mst_job_body(self, "", 0)); /* a body without bytes has memory, too */
    TRY(lines ? job_read_lines(self) : job_read_json(self));
    if (self->n_rows == 0)
        return MST_OK;
    TRY(mst_chunk_builder_pack(&self->builder, 0, self->n_rows, &self->chunk));
    TRY(job_check(self));
    return self->chunk->fielded ? job_drop_unseen(self) : MST_OK;
}

/* ---- scores ---- */

void mst_job_row(const mst_job *self, uint32_t i, mst_row *row)
{
    mst_chunk_row(self->chunk, i, row);
    mst_feed_drop_unseen(row, 1, mst_serve_model_features(self->model));
}

static mst_status job_score_rows(mst_job *self, mst_scorer *s)
{
    uint32_t n_scores = self->model->assembly.model->n_scores;
    for (uint32_t from = 0; from < self->n_rows; from += MST_SCORER_ROWS) {
        uint32_t n = self->n_rows - from < MST_SCORER_ROWS ? self->n_rows - from : MST_SCORER_ROWS;
        for (uint32_t i = 0; i < n; i++)
            mst_job_row(self, from + i, &s->rows[i]);
        TRY(mst_scorers_run(&self->model->scorers, s, n));
        memcpy(self->scores + (size_t)from * n_scores, s->scores, (size_t)n * n_scores * sizeof(float));
    }
    return MST_OK;
}

mst_status mst_job_score(mst_job *self)
{
    mst_scorers *scorers = &self->model->scorers;
    mst_scorer *s = NULL;
    if (!mst_grow(&self->scores, &self->score_capacity, (size_t)self->n_rows * scorers->model->n_scores,
                  sizeof *self->scores))
        return mst_fail_memory();
    TRY(mst_scorers_take(scorers, 1, &s));
    mst_status st = job_score_rows(self, s);
    mst_scorers_give_back(scorers, s);
    return st;
}

/* ---- the answer ---- */

static void job_add_number(mst_string *out, double value)
{
    char text[MST_FLOAT_TEXT + 1];
    if (isfinite(value))
        mst_string_addn(out, text, mst_number_text9(value, text));
    else
        mst_string_addn(out, "null", 4); /* JSON has no other text for it */
}

static void job_write_row(mst_job *self, float *y, uint32_t n)
{
    mst_string *out = &self->answer;
    if (self->output == MST_JOB_CLASS) {
        job_add_number(out, (double)(mst_scores_class(y, n) + self->model->reading.data.labels_from));
        return;
    }
    if (n == 1) {
        job_add_number(out,
                       self->output == MST_JOB_PROBABILITY ? mst_probability((double)y[0]) : (double)y[0]);
        return;
    }
    if (self->output == MST_JOB_PROBABILITY)
        mst_probabilities(y, n, y);
    for (uint32_t c = 0; c < n; c++) {
        mst_string_addn(out, c == 0 ? "[" : ",", 1);
        job_add_number(out, (double)y[c]);
    }
    mst_string_addn(out, "]", 1);
}

mst_status mst_job_write(mst_job *self)
{
    uint32_t n_scores = self->model->assembly.model->n_scores;
    self->answer.size = 0;
    mst_string_add(&self->answer, "{\"predictions\":[");
    for (uint32_t i = 0; i < self->n_rows; i++) {
        if (i > 0)
            mst_string_addn(&self->answer, ",", 1);
        job_write_row(self, self->scores + (size_t)i * n_scores, n_scores);
    }
    mst_string_add(&self->answer, "]}\n");
    return self->answer.failed ? mst_fail_memory() : MST_OK;
}
