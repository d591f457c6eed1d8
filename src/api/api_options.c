/* Options of the public interface: the settings of a training (train/settings.h), and the readers and the net
 * of the program; contract in muster/muster.h. */
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"

static mst_status options_new(muster_options **out)
{
    muster_options *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    mst_settings_begin(&self->settings, NULL);
    mst_status st = mst_options_init(self->settings.groups, self->settings.n_groups);
    if (st != MST_OK) {
        muster_options_free(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

muster_status muster_options_new(muster_options **out)
{
    return (muster_status)options_new(out);
}

void muster_options_free(muster_options *self)
{
    if (self == NULL)
        return;
    mst_settings_fini(&self->settings);
    for (size_t i = 0; i < self->n_readers; i++) {
        mst_array_rows_release(self->readers[i].rows);
        mst_free(self->readers[i].name);
    }
    mst_free(self->readers);
    muster_net_free(self->net);
    mst_free(self->text);
    mst_free(self);
}

/* ---- values ---- */

muster_status muster_options_set(muster_options *self, const char *name, const char *value)
{
    return (muster_status)mst_options_set(self->settings.groups, self->settings.n_groups, name, value);
}

muster_status muster_options_parse(muster_options *self, int argc, char *const *argv)
{
    return (muster_status)mst_options_parse(self->settings.groups, self->settings.n_groups, argc,
                                            (char **)argv, &self->settings.files);
}

muster_status muster_options_load(muster_options *self, const char *path)
{
    return (muster_status)mst_options_load_yaml(self->settings.groups, self->settings.n_groups, path);
}

static const char *options_keep_text(muster_options *self, char *text)
{
    mst_free(self->text);
    self->text = text;
    return text;
}

const char *muster_options_get(muster_options *self, const char *name)
{
    mst_settings *s = &self->settings;
    const char *title;
    json_t *all = mst_options_json(s->groups, s->n_groups), *group, *value = NULL;
    json_object_foreach(all, title, group)
    {
        if (value == NULL)
            value = json_object_get(group, name);
    }
    char *text = value != NULL ? mst_option_text(value) : NULL;
    json_decref(all);
    return options_keep_text(self, text);
}

const char *muster_options_help(muster_options *self)
{
    return options_keep_text(self, mst_options_help(self->settings.groups, self->settings.n_groups));
}

/* ---- data ---- */

muster_status muster_options_add_file(muster_options *self, const char *path)
{
    return (muster_status)mst_text_list_add(&self->settings.files, path);
}

/* Adds a copy of the name and of the reader, or a reference to the rows. */
static mst_status options_add_named(muster_options *self, const char *name, const muster_reader *reader,
                                    mst_array_rows *rows)
{
    for (size_t i = 0; i < self->n_readers; i++)
        if (strcmp(self->readers[i].name, name) == 0)
            return mst_fail(MST_EUSAGE, "there is a reader %s already", name);
    char *copy = mst_strdup(name);
    if (copy == NULL ||
        !mst_grow(&self->readers, &self->reader_capacity, self->n_readers + 1, sizeof *self->readers)) {
        mst_free(copy);
        return mst_fail_memory();
    }
    mst_api_named_reader *named = &self->readers[self->n_readers++];
    *named = (mst_api_named_reader){.name = copy};
    if (rows != NULL)
        named->rows = mst_array_rows_hold(rows);
    else
        named->reader = *reader;
    return MST_OK;
}

static mst_status options_add_reader(muster_options *self, const char *name, const muster_reader *reader)
{
    TRY(mst_api_reader_check(name, reader));
    return options_add_named(self, name, reader, NULL);
}

muster_status muster_options_add_reader(muster_options *self, const char *name, const muster_reader *reader)
{
    return (muster_status)options_add_reader(self, name, reader);
}

muster_status muster_options_add_data(muster_options *self, const char *name, muster_data *data)
{
    if (name == NULL || name[0] == '\0')
        return muster_fail(MUSTER_EUSAGE, "rows in arrays need a name");
    return (muster_status)options_add_named(self, name, NULL, data->rows);
}

muster_status muster_options_set_memory(muster_options *self)
{
    self->in_memory = true;
    return MUSTER_OK;
}

muster_status muster_options_set_model(muster_options *self, const muster_model *model)
{
    self->model = model;
    return MUSTER_OK;
}

muster_status muster_options_set_net(muster_options *self, muster_net *net)
{
    muster_net_free(self->net);
    self->net = mst_api_net_hold(net);
    return MUSTER_OK;
}

/* ---- copies ---- */

/* Copies the values, and which of them the user has set. */
static mst_status options_copy_values(const mst_settings *from, mst_settings *to)
{
    const char *title;
    json_t *all = mst_options_json(from->groups, from->n_groups), *values;
    mst_status st = all != NULL ? MST_OK : mst_fail_memory();
    json_object_foreach(all, title, values)
    {
        if (st == MST_OK)
            st = mst_options_adopt(to->groups, to->n_groups, values);
    }
    json_decref(all);
    for (size_t i = 0; i < from->n_groups; i++)
        to->groups[i].set = from->groups[i].set;
    for (size_t i = 0; st == MST_OK && i < from->files.n; i++)
        st = mst_text_list_add(&to->files, from->files.items[i]);
    return st;
}

mst_status mst_api_options_copy(const muster_options *from, muster_options **out)
{
    muster_options *copy = NULL;
    TRY(options_new(&copy));
    mst_status st = options_copy_values(&from->settings, &copy->settings);
    for (size_t i = 0; st == MST_OK && i < from->n_readers; i++)
        st = options_add_named(copy, from->readers[i].name, &from->readers[i].reader, from->readers[i].rows);
    if (st != MST_OK) {
        muster_options_free(copy);
        return st;
    }
    copy->net = mst_api_net_hold(from->net);
    copy->in_memory = from->in_memory;
    copy->model = from->model;
    *out = copy;
    return MST_OK;
}
