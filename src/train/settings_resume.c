/* The settings that a resumed run keeps: its options, files, net and shape; contract in settings_impl.h. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "options/option_tables.h"
#include "run/run_dir.h"
#include "train/settings_impl.h"
#include "train/train_data.h"

/* An option that was given with another value than the run has, and would have no effect any more. */
static mst_status resume_refuse_change(const char *name, const json_t *was, const json_t *is)
{
    char *before = mst_option_text(was), *now = mst_option_text(is);
    mst_status st = mst_fail(MST_EUSAGE,
                             "--%s %s: a resumed run keeps the %s that it was started with; leave "
                             "--%s out, or start a new run",
                             name, now != NULL ? now : "", before != NULL ? before : "value", name);
    mst_free(before);
    mst_free(now);
    return st;
}

/* Adopts the options of a run that the command does not give. An option with its default keeps this state,
 * which --dry-run shows. */
static mst_status resume_adopt_values(mst_settings *s, json_t *values)
{
    json_t *now = mst_options_json(s->groups, s->n_groups), *group, *value;
    const char *title, *name;
    mst_status st = MST_OK;
    if (now == NULL)
        return mst_fail_memory();
    json_object_foreach(now, title, group)
    {
        json_object_foreach(group, name, value)
        {
            const json_t *was = json_object_get(values, name);
            bool equal = json_equal(value, was);
            if (st == MST_OK && was != NULL && !equal && mst_train_option_is(name, MST_OPTION_AT_START) &&
                mst_options_is_set(s->groups, s->n_groups, name))
                st = resume_refuse_change(name, was, value);
            if (equal && !mst_train_option_is(name, MST_OPTION_IF_GIVEN))
                json_object_del(values, name);
        }
    }
    json_decref(now);
    TRY(st);
    if (mst_options_is_set(s->groups, s->n_groups, "batch"))
        json_object_del(values, "global-batch"); /* it would take precedence */
    return mst_options_adopt(s->groups, s->n_groups, values);
}

/* Whether the net of a run was read from this text, with a line of --init before it or not. */
static bool resume_is_same_net(const char *file, const char *net)
{
    static const char front[] = "defaults init=";
    size_t n = strlen(net), m = strlen(file);
    if (m > n || strcmp(net + n - m, file) != 0)
        return false;
    return m == n || (strncmp(net, front, strlen(front)) == 0 && strcspn(net, "\n") + 1 == n - m);
}

/* A resumed run keeps its net unless the command gives --net: the net file may be missing or changed. */
static mst_status resume_adopt_net(mst_settings *s, const json_t *manifest, bool given)
{
    const json_t *model = json_object_get(manifest, "model");
    const char *name = json_string_value(json_object_get(model, "name")),
               *net = json_string_value(json_object_get(model, "net"));
    char *file;
    size_t size;
    const mst_model_ops *was = mst_model_find(name);
    if (given || net == NULL || was == NULL || !mst_model_has(was, MST_MODEL_NET_FILE) ||
        s->model.net_text != NULL || !mst_model_has(mst_models[s->model.model], MST_MODEL_NET_FILE))
        return MST_OK;
    mst_free(s->net);
    s->net = mst_strdup(net);
    if (s->net == NULL)
        return mst_fail_memory();
    s->model.net_text = s->net;
    if (s->model.net == NULL || !mst_path_exists(s->model.net) ||
        mst_file_read_all(s->model.net, 1 << 20, &file, &size) != MST_OK)
        return MST_OK;
    if (!resume_is_same_net(file, net))
        mst_warn("%s has changed since the run started; continuing with the saved net", s->model.net);
    mst_free(file);
    return MST_OK;
}

/* A resumed run keeps the number of features, classes and fields of its model, because the files of one day
 * may have fewer. Features only if rows may omit some. */
static void resume_adopt_shape(mst_settings *s, const json_t *manifest)
{
    const json_t *model = json_object_get(manifest, "model"), *sent = json_object_get(manifest, "resumed");
    const char *name = json_string_value(json_object_get(model, "name")),
               *format = json_string_value(json_object_get(json_object_get(manifest, "data"), "format"));
    json_int_t features = json_integer_value(json_object_get(model, "features")),
               dense = json_integer_value(json_object_get(model, "dense")),
               classes = json_integer_value(json_object_get(model, "classes")),
               fields = json_integer_value(json_object_get(model, "fields"));
    if (sent != NULL) { /* from the process that has the manifest */
        features = json_integer_value(json_array_get(sent, 0));
        classes = json_integer_value(json_array_get(sent, 1));
        fields = json_integer_value(json_array_get(sent, 2));
    } else {
        const mst_data_kind *kind = mst_data_kind_find(format);
        const mst_model_ops *ops = mst_model_find(name);
        if (dense == features && (kind == NULL || !mst_data_kind_has(kind, MST_DATA_INDEX_BASE)))
            features = 0;
        if (ops != NULL && mst_model_has(ops, MST_MODEL_BINARY))
            classes = 0;
    }
    s->resumed.features = features > 0 && features <= UINT32_MAX ? (uint64_t)features : 0;
    s->resumed.classes = classes > 0 && classes <= 1 << 24 ? (uint32_t)classes : 0;
    s->resumed.fields = fields > 0 && fields <= MST_FIELDS_MAX ? (uint32_t)fields : 0;
}

/* The rows that the run held out, by the options of its manifest. */
static void resume_adopt_held_out(mst_settings *s, const json_t *groups)
{
    const json_t *training = json_object_get(groups, "training"),
                 *valid_seed = json_object_get(training, "valid-seed");
    mst_train_options was = {
        .valid = (char *)json_string_value(json_object_get(training, "valid")),
        .seed = json_integer_value(json_object_get(training, "seed")),
        .valid_seed = json_is_integer(valid_seed) ? json_integer_value(valid_seed) : -1,
    };
    s->resumed.known = mst_held_out_parse(&was, &s->resumed.held_out) == MST_OK;
}

mst_status mst_resume_manifest(mst_settings *s, const json_t *manifest, const char *source)
{
    json_t *groups = json_object_get(manifest, "options"), *files = json_object_get(manifest, "files"),
           *values, *value;
    const char *title, *name;
    void *next;
    bool net_given = mst_options_is_set(s->groups, s->n_groups, "net");
    if (!json_is_object(groups) || !json_is_array(files))
        return mst_fail(MST_EINPUT, "%s: not the manifest of a muster run", source);
    resume_adopt_held_out(s, groups);
    json_object_foreach(groups, title, values)
    {
        json_object_foreach_safe(values, next, name, value)
        {
            if (mst_train_option_is(name, MST_OPTION_NOT_RESUMED))
                json_object_del(values, name);
        }
        if (json_is_false(json_object_get(manifest, "epochs_given")))
            json_object_del(values, "epochs"); /* a default, which does not apply with other limits */
        TRY(resume_adopt_values(s, values));
    }
    size_t n_files = s->files.n == 0 ? json_array_size(files) : 0;
    for (size_t i = 0; i < n_files; i++) {
        const char *file = json_string_value(json_array_get(files, i));
        TRY(mst_text_list_add(&s->files, file ? file : ""));
    }
    resume_adopt_shape(s, manifest);
    return resume_adopt_net(s, manifest, net_given);
}

mst_status mst_resume_run(mst_settings *s, mst_batch_before *before)
{
    json_t *manifest;
    TRY(mst_run_load_manifest(s->train.run, &manifest));
    if (manifest == NULL)
        return mst_fail(MST_EINPUT, "%s: no run to resume; leave out --resume to start one", s->train.run);
    *before = mst_batch_before_of(s, manifest);
    char *path = mst_sprintf("%s/manifest.json", s->train.run);
    mst_status st = path != NULL ? mst_resume_manifest(s, manifest, path) : mst_fail_memory();
    json_decref(manifest);
    mst_free(path);
    return st;
}
