/* Names of features of the public interface; contract in muster/muster.h.
 *
 * The feature of a value is found by reading a row with that value alone, as `muster serve` reads it: so it
 * is the one that a file would give, hashed, of a vocabulary or of a list of names. */
#include <string.h>

#include "api/api_model_impl.h"
#include "base/alloc.h"
#include "data/feature_names.h"
#include "data/origin.h"
#include "data/row_text.h"

struct mst_api_names {
    mst_feature_names *names; /* NULL: features have none */
    mst_data_options data;
    mst_option_group group;
    mst_row_parser *parser;
};

void mst_api_names_destroy(mst_api_names *self)
{
    if (self == NULL)
        return;
    mst_feature_names_destroy(self->names);
    mst_row_parser_destroy(self->parser);
    if (self->group.table != NULL)
        mst_options_fini(&self->group, 1);
    mst_free(self);
}

static const json_t *names_reading(const muster_model *model)
{
    return json_object_get(json_object_get(model->start.state, "extra"), "data");
}

static mst_status names_new(const muster_model *model, mst_api_names **out)
{
    const json_t *reading = names_reading(model);
    const mst_shape *shape = &model->start.assembly.model->shape;
    mst_status st;
    mst_api_names *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_feature_names_new(reading, "the model", shape->n_dense, NULL, NULL, &self->names));
    self->group = (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &self->data};
    TRY_OUT(st, mst_options_init(&self->group, 1));
    TRY_OUT(st, mst_options_adopt_known(&self->group, reading));
    self->data.features = (int64_t)shape->n_features;
    TRY_OUT(st, mst_row_parser_new(&self->data, mst_origin_in(reading), shape->n_fields > 0, &self->parser));
    *out = self;
    self = NULL;
out:
    mst_api_names_destroy(self);
    return st;
}

/* Made once, under the mutex; they live as long as the model. */
static mst_status names_of(const muster_model *model, const mst_api_names **out)
{
    muster_model *self = (muster_model *)model; /* a cache */
    mst_status st = MST_OK;
    pthread_mutex_lock(&self->mutex);
    if (self->features == NULL)
        st = names_new(model, &self->features);
    *out = self->features;
    pthread_mutex_unlock(&self->mutex);
    return st;
}

static mst_status names_get(const muster_model *model, uint64_t feature, char *out, size_t size,
                            size_t *length)
{
    const mst_api_names *self;
    mst_string text = {0};
    uint32_t field;
    bool known = false;
    if (feature >= muster_model_features(model))
        return mst_fail(MST_EUSAGE, "there is no feature %llu: the model has %llu",
                        (unsigned long long)feature, (unsigned long long)muster_model_features(model));
    TRY(names_of(model, &self));
    mst_status st =
        self->names != NULL ? mst_feature_names_get(self->names, feature, &field, &text, &known) : MST_OK;
    size_t n = st == MST_OK && known ? text.size : 0;
    if (size > 0 && st == MST_OK) {
        size_t copied = n < size ? n : size - 1;
        if (copied > 0)
            memcpy(out, text.text, copied);
        out[copied] = '\0';
    }
    if (st == MST_OK && length != NULL)
        *length = n;
    mst_string_fini(&text);
    return st;
}

muster_status muster_model_feature_name(const muster_model *model, uint64_t feature, char *out, size_t size,
                                        size_t *length)
{
    return (muster_status)names_get(model, feature, out, size, length);
}

/* The field with that name; UINT32_MAX: none. */
static uint32_t names_field(const json_t *origin, const char *name, size_t n)
{
    uint32_t n_fields = mst_origin_named_fields(origin);
    char other[256];
    for (uint32_t i = 0; i < n_fields; i++) {
        mst_origin_field_name(origin, i, other, sizeof other);
        if (strlen(other) == n && memcmp(other, name, n) == 0)
            return i;
    }
    return UINT32_MAX;
}

/* The key of the row that the parser has made: of that field, or the only one. */
static mst_status names_key(const mst_chunk_builder *b, uint32_t field, uint32_t *out)
{
    size_t at = 0;
    if (b->order == MST_ORDER_POSITION && field != UINT32_MAX)
        at = field;
    else if (b->order == MST_ORDER_FIELDS && field != UINT32_MAX)
        while (at < b->n_entries && b->fields[at] != field)
            at++;
    else if (b->n_entries != 1)
        at = b->n_entries;
    if (at >= b->n_entries)
        return mst_fail(MST_EINPUT, "the value has no feature");
    *out = b->keys[at];
    return MST_OK;
}

static mst_status names_find(const muster_model *model, const char *field, size_t n_field, const char *value,
                             size_t n_value, uint32_t *out)
{
    const mst_api_names *self;
    const json_t *origin = mst_origin_in(names_reading(model));
    mst_chunk_builder builder;
    mst_string scratch = {0};
    TRY(names_of(model, &self));
    const char *format = mst_row_parser_format(self->parser);
    if (*format == '\0')
        return mst_fail(MST_EINPUT,
                        "the model was trained on rows whose features have numbers alone, such as "
                        "arrays: feature N is column N, from 0");
    bool column = strcmp(format, "criteo") == 0 || strcmp(format, "csv") == 0;
    uint32_t number = column ? names_field(origin, field, n_field) : UINT32_MAX;
    /* a column's value; a name in a namespace or a field; a name alone */
    mst_named_value v = {.name = field,
                         .n_name = n_field,
                         .text = value,
                         .n_text = n_value,
                         .kind = column && n_value == 0 ? MST_NAMED_MISSING : MST_NAMED_TEXT};
    if (!column)
        v = (mst_named_value){.group = n_field > 0 ? field : NULL,
                              .n_group = n_field,
                              .name = value,
                              .n_name = n_value,
                              .text = "1",
                              .n_text = 1,
                              .kind = MST_NAMED_NUMBER};
    if (number < model->start.assembly.model->shape.n_dense) {
        *out = number;
        return MST_OK;
    }
    mst_chunk_builder_init(&builder);
    mst_status st = mst_row_parser_named(self->parser, "the value", 1, &v, 1, &scratch, &builder);
    if (st == MST_OK)
        st = names_key(&builder, number, out);
    if (st == MST_OK && *out >= muster_model_features(model))
        st = mst_fail(MST_EINPUT, "the model has no feature %u", *out);
    mst_chunk_builder_fini(&builder);
    mst_string_fini(&scratch);
    return st;
}

muster_status muster_model_feature(const muster_model *model, const char *field, size_t n_field,
                                   const char *value, size_t n_value, uint32_t *feature)
{
    uint32_t found;
    mst_status st = names_find(model, field, n_field, value, n_value, &found);
    if (st == MST_OK)
        *feature = found;
    return (muster_status)st;
}
