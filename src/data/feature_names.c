/* Names of a model's features; contract in feature_names.h. */
#include "data/feature_names.h"

#include "base/alloc.h"
#include "data/origin.h"
#include "data/vocabulary.h"

struct mst_feature_names {
    mst_name_list *list;        /* of numbered features; or NULL */
    mst_vocabulary *vocabulary; /* of categories; or NULL */
    const json_t *origin;       /* of columns; or NULL */
    uint32_t n_dense;
};

/* The vocabulary at path, which must be the one of the model. */
static mst_status names_load_vocabulary(mst_feature_names *self, const char *path, const char *model)
{
    TRY(mst_vocabulary_load(path, &self->vocabulary));
    json_t *origin = json_deep_copy(mst_vocabulary_origin(self->vocabulary));
    mst_status st = mst_vocabulary_adopt(self->vocabulary, path, &origin);
    if (st == MST_OK)
        st = mst_origin_check(self->origin, model, origin, path);
    json_decref(origin);
    return st;
}

mst_status mst_feature_names_new(const json_t *data, const char *model, uint32_t n_dense,
                                 const char *vocabulary, const char *list, mst_feature_names **out)
{
    mst_status st = MST_OK;
    char column[64] = "";
    mst_feature_names *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->origin = mst_origin_in(data);
    self->n_dense = n_dense;
    vocabulary = vocabulary != NULL ? vocabulary : json_string_value(json_object_get(data, "vocabulary"));
    list = list != NULL ? list : json_string_value(json_object_get(data, "feature-names"));
    if (list != NULL)
        TRY_OUT(st, mst_name_list_load(list, &self->list));
    if (vocabulary != NULL)
        TRY_OUT(st, names_load_vocabulary(self, vocabulary, model));
    if (self->origin != NULL && n_dense > 0)
        mst_origin_field_name(self->origin, 0, column, sizeof column);
    *out = NULL;
    if (self->list == NULL && self->vocabulary == NULL && column[0] == '\0')
        goto out;
    *out = self;
    self = NULL;
out:
    mst_feature_names_destroy(self);
    return st;
}

void mst_feature_names_destroy(mst_feature_names *self)
{
    if (self == NULL)
        return;
    mst_name_list_destroy(self->list);
    mst_vocabulary_destroy(self->vocabulary);
    mst_free(self);
}

mst_status mst_feature_names_get(const mst_feature_names *self, uint64_t feature, uint32_t *field,
                                 mst_string *out, bool *known)
{
    const char *line = self->list != NULL ? mst_name_list_get(self->list, feature) : NULL;
    char *name = NULL, column[256] = "";
    *field = (uint32_t)feature;
    *known = line != NULL;
    if (self->list != NULL) {
        mst_string_add(out, line != NULL ? line : "");
        return out->failed ? mst_fail_memory() : MST_OK;
    }
    if (self->vocabulary != NULL)
        TRY(mst_vocabulary_name(self->vocabulary, feature, field, &name));
    *known = name != NULL || feature < self->n_dense;
    if (*known && self->origin != NULL)
        mst_origin_field_name(self->origin, *field, column, sizeof column);
    mst_string_add(out, column);
    if (name != NULL && feature >= self->n_dense)
        mst_string_format(out, "%s%s", column[0] != '\0' ? "=" : "", name);
    mst_free(name);
    return out->failed ? mst_fail_memory() : MST_OK;
}
