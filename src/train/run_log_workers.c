/* Counters of the workers over all pieces of a run; contract in run_log.h. */
#include <string.h>

#include "train/run_log_impl.h"

/* Adds the numbers of one object to those of another, also those of objects in it. */
static void workers_add(json_t *to, const json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        json_t *old = json_object_get(to, key);
        bool latest = strcmp(key, "last_accuracy") == 0 || strcmp(key, "skipped_rows") == 0; /* no sum */
        if (strcmp(key, "worker") == 0 || (latest && old != NULL))
            continue;
        if (json_is_object(value) && json_is_object(old))
            workers_add(old, value);
        else if (old == NULL)
            json_object_set_new(to, key, json_deep_copy(value));
        else if (json_is_integer(value) && json_is_integer(old))
            json_object_set_new(to, key, json_integer(json_integer_value(old) + json_integer_value(value)));
        else if (json_is_number(value) && json_is_number(old))
            json_object_set_new(to, key, json_real(json_number_value(old) + json_number_value(value)));
    }
}

static json_t *workers_find(const json_t *list, const json_t *worker)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)list, i, one)
    {
        if (json_equal(json_object_get(one, "worker"), json_object_get(worker, "worker")))
            return one;
    }
    return NULL;
}

mst_status mst_run_log_count_workers(mst_run_log *self, json_t *here)
{
    size_t i;
    json_t *earlier;
    if (here == NULL)
        return mst_fail_memory();
    json_decref(self->workers);
    self->workers = here;
    json_array_foreach(self->workers_before, i, earlier)
    {
        json_t *now = workers_find(here, earlier);
        if (now != NULL) {
            workers_add(now, earlier);
            continue;
        }
        json_t *past = json_deep_copy(earlier);
        json_object_set_new(past, "state", json_string("earlier"));
        if (json_array_append_new(here, past) != 0)
            return mst_fail_memory();
    }
    return MST_OK;
}

json_t *mst_run_log_workers(const mst_run_log *self)
{
    return self->workers;
}

void mst_run_log_workers_save(const mst_run_log *self, json_t *extra)
{
    if (self->workers == NULL)
        return;
    json_object_set(extra, "workers", self->workers);
    json_object_set_new(extra, "workers_since", json_integer((json_int_t)self->workers_since));
}

void mst_run_log_workers_resume(mst_run_log *self, const json_t *extra, uint64_t step)
{
    json_t *before = json_object_get(extra, "workers");
    json_int_t since = json_integer_value(json_object_get(extra, "workers_since"));
    json_decref(self->workers_before);
    self->workers_before = json_is_array(before) ? json_deep_copy(before) : NULL;
    self->workers_since = self->workers_before == NULL || since < 0 ? step : (uint64_t)since;
}
