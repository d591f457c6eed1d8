/* Evaluation on pulled weights; contract in pulled_eval.h.
 *
 * Values have the layout of client.h: the dense ranges in ascending order, a gap up to whole keys, then the
 * keys. Rows keep the keys of the dense prefix, which is the first range; other keys become their rank in the
 * list. */
#include "job/pulled_eval.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/observe.h"
#include "tensor/key_index.h"

struct mst_pulled_eval {
    mst_pulled_eval_options options;
    mst_grad layout;
    uint64_t range_at[MST_RANGE_MAX]; /* position of a range among the values */
    uint64_t sparse_at;               /* and of key 0 */
    uint32_t n_prefix, key_start;
    uint32_t n_keys; /* of the list */
    bool translates; /* keys of rows become ranks in the list */
    mst_key_index *rank;
    mst_evaluator *test, *valid;
    atomic_bool stop;
    uint64_t begun_ns, spent_ns; /* since when, and the time spent on histograms */
};

mst_status mst_pulled_eval_new(const mst_pulled_eval_options *options, mst_pulled_eval **out)
{
    mst_pulled_eval *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->begun_ns = mst_now_ns();
    *out = self;
    return MST_OK;
}

void mst_pulled_eval_destroy(mst_pulled_eval *self)
{
    if (self == NULL)
        return;
    mst_key_index_destroy(self->rank);
    mst_free(self);
}

/* The longest dense prefix of the sets' rows. */
static uint32_t pulled_widest(const mst_pulled_eval *self)
{
    uint32_t test = self->test != NULL ? mst_evaluator_dense(self->test) : 0,
             valid = self->valid != NULL ? mst_evaluator_dense(self->valid) : 0;
    return test > valid ? test : valid;
}

/* The model's ranges, ascending, with their positions. The dense prefix is that of the rows, if they have a
 * longer one than the rows that the model was made for. */
static mst_status pulled_place_ranges(mst_pulled_eval *self, mst_key_list *list)
{
    mst_grad *l = &self->layout;
    const mst_model *model = self->options.model;
    bool whole = self->options.dense_model;
    uint32_t dense = pulled_widest(self);
    memset(l, 0, sizeof *l);
    model->ops->layout(model, self->options.params, l);
    list->n_ranges = 0;
    for (uint32_t i = 0; i < l->n_ranges; i++) {
        uint32_t at = list->n_ranges;
        mst_range *range = &l->ranges[i];
        if (l->width != 0 && range->offset == l->sparse_offset && range->size < (uint64_t)dense * l->width)
            range->size = (uint64_t)dense * l->width;
        for (uint32_t j = 0; j < l->n_ranges; j++)
            self->range_at[i] += l->ranges[j].offset < range->offset ? l->ranges[j].size : 0;
        if (whole)
            self->range_at[i] = range->offset;
        if (range->size == 0)
            continue;
        if (l->width != 0 && range->offset == l->sparse_offset)
            self->n_prefix = (uint32_t)(range->size / l->width);
        if (self->n_prefix > 0 && range->offset == l->sparse_offset && !whole && self->range_at[i] != 0)
            return mst_fail(MST_EUNSUPPORTED,
                            "the dense prefix of %s is not the first of its parameters: train it with "
                            "--dense-model",
                            model->ops->name);
        for (; at > 0 && list->ranges[at - 1].first > range->offset; at--)
            list->ranges[at] = list->ranges[at - 1];
        list->ranges[at] = (mst_extent){range->offset, range->size};
        list->n_ranges++;
    }
    self->sparse_at = whole ? l->sparse_offset : 0;
    self->translates = l->width != 0 && !whole;
    if (whole) {
        list->ranges[0] = (mst_extent){0, self->options.params->size};
        list->n_ranges = 1;
    }
    return MST_OK;
}

static void pulled_add_keys(void *arg, const mst_batch *batch)
{
    mst_pulled_eval *self = arg;
    if (self->translates)
        mst_key_index_add(self->rank, batch, self->n_prefix);
}

static void pulled_rank_rows(const void *arg, const mst_batch *batch, mst_row *rows, uint32_t *keys)
{
    const mst_pulled_eval *self = arg;
    mst_key_index_rows(self->rank, batch, self->n_prefix, self->key_start, rows, keys);
}

static mst_status pulled_visit_set(mst_pulled_eval *self, mst_evaluator *evaluator, const char *name)
{
    uint64_t n = 0;
    if (evaluator == NULL)
        return MST_OK;
    TRY(mst_evaluator_visit(evaluator, pulled_add_keys, self, &n));
    return n > 0 ? MST_OK
                 : mst_fail(MST_EINPUT, "%s: the %s set has no rows", mst_evaluator_name(evaluator), name);
}

static uint64_t pulled_n_sparse_keys(const mst_pulled_eval *self)
{
    const mst_params *p = self->options.params;
    for (uint32_t i = 0; i < p->n_views; i++)
        if (p->views[i].width != 0 && p->views[i].offset == self->layout.sparse_offset)
            return p->views[i].size / p->views[i].width;
    return 0;
}

static mst_status pulled_open(void *arg, mst_key_list *list)
{
    mst_pulled_eval *self = arg;
    list->n_ranges = list->n_keys = 0;
    if (self->options.open != NULL)
        TRY(self->options.open(self->options.arg, &self->stop, &self->test, &self->valid));
    if (self->test == NULL && self->valid == NULL)
        return MST_OK;
    TRY(pulled_place_ranges(self, list));
    if (self->translates) {
        uint32_t width = self->layout.width;
        self->key_start = (uint32_t)((mst_key_list_range_floats(list) + width - 1) / width);
        TRY(mst_key_index_new(pulled_n_sparse_keys(self), &self->rank));
    }
    TRY(pulled_visit_set(self, self->valid, "valid"));
    TRY(pulled_visit_set(self, self->test, "test"));
    if (self->translates)
        TRY(mst_key_index_list(self->rank, list));
    self->n_keys = list->n_keys;
    return MST_OK;
}

static mst_status pulled_score_set(mst_pulled_eval *self, mst_evaluator *evaluator, const char *name,
                                   const mst_weights *weights, json_t *out)
{
    mst_result result;
    if (evaluator == NULL)
        return MST_OK;
    TRY(mst_evaluator_run_on(evaluator, weights, self->translates ? pulled_rank_rows : NULL, self, &result));
    if (json_object_set_new(out, name, mst_result_json(&result)) != 0)
        return mst_fail_memory();
    return MST_OK;
}

static mst_status pulled_run(void *arg, const float *values, json_t **out)
{
    mst_pulled_eval *self = arg;
    mst_weights weights = {0};
    float *w = (float *)values; /* scoring does not write weights */
    for (uint32_t i = 0; i < self->layout.n_ranges; i++)
        weights.ranges[i] = w + self->range_at[i];
    weights.sparse = self->layout.width != 0 ? w + self->sparse_at : NULL;
    weights.stride = self->layout.width;
    json_t *json = json_object();
    if (json == NULL)
        return mst_fail_memory();
    mst_status st = pulled_score_set(self, self->valid, "valid", &weights, json);
    if (st == MST_OK)
        st = pulled_score_set(self, self->test, "test", &weights, json);
    if (st != MST_OK) {
        json_decref(json);
        return st;
    }
    *out = json;
    return MST_OK;
}

/* ---- histograms ---- */

/* The stretches of values that belong to a view: its dense ranges, then the keys of rows of the sets. */
static size_t pulled_stretches(const mst_pulled_eval *self, const mst_view *view, const float *values,
                               mst_stretch out[MST_RANGE_MAX + 1])
{
    const mst_grad *l = &self->layout;
    size_t n_out = 0;
    if (self->options.dense_model) {
        out[0] = (mst_stretch){.values = values + view->offset, .n = view->size};
        return 1;
    }
    for (uint32_t i = 0; i < l->n_ranges; i++) {
        const mst_range *r = &l->ranges[i];
        uint64_t from = view->offset > r->offset ? view->offset : r->offset;
        uint64_t end = view->offset + view->size, r_end = r->offset + r->size;
        uint64_t to = end < r_end ? end : r_end;
        if (from < to)
            out[n_out++] =
                (mst_stretch){.values = values + self->range_at[i] + (from - r->offset), .n = to - from};
    }
    if (self->translates && view->offset == l->sparse_offset)
        out[n_out++] = (mst_stretch){.values = values + (uint64_t)self->key_start * l->width,
                                     .n = (uint64_t)self->n_keys * l->width};
    return n_out;
}

static void pulled_histograms(void *arg, uint64_t step, const float *values)
{
    mst_pulled_eval *self = arg;
    const mst_params *params = self->options.params;
    uint64_t start = mst_now_ns();
    char tag[64];
    mst_stretch stretches[MST_RANGE_MAX + 1];
    if (self->options.observe == NULL || self->spent_ns > (start - self->begun_ns) / MST_HISTOGRAM_SHARE)
        return;
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        snprintf(tag, sizeof tag, "weights/%s", view->name);
        mst_observe_stretches(self->options.observe, step, tag, stretches,
                              pulled_stretches(self, view, values, stretches));
    }
    self->spent_ns += mst_now_ns() - start;
}

static void pulled_stop(void *arg)
{
    mst_pulled_eval *self = arg;
    atomic_store(&self->stop, true);
}

mst_worker_evaluation mst_pulled_eval_for_worker(mst_pulled_eval *self)
{
    return (mst_worker_evaluation){.arg = self,
                                   .open = pulled_open,
                                   .run = pulled_run,
                                   .histograms = pulled_histograms,
                                   .stop = pulled_stop};
}
