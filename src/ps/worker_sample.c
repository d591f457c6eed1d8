/* Keys that a worker's first batches touch, for the partition table; contract in worker_pipeline.h. */
#include "base/alloc.h"
#include "data/stream.h"
#include "ps/worker_pipeline.h"

#define SAMPLE_KEYS    4096 /* sent to the coordinator, at most */
#define SAMPLE_BATCHES 64
#define SAMPLE_SHARE   1024 /* of one batch */

/* Adds an even choice of the batch's distinct keys. */
static mst_status sample_add(json_t *sample, const mst_key_list *list)
{
    uint32_t n = list->n_keys < SAMPLE_SHARE ? list->n_keys : SAMPLE_SHARE;
    for (uint32_t i = 0; i < n && json_array_size(sample) < SAMPLE_KEYS; i++) {
        uint32_t key = list->keys[(uint64_t)i * list->n_keys / n];
        if (json_array_append_new(sample, json_integer((json_int_t)key)) != 0)
            return mst_fail_memory();
    }
    return MST_OK;
}

static mst_status sample_fill(mst_worker_pipeline *self, json_t *sample)
{
    mst_feed *feed = self->job->feed;
    uint32_t n_prefix = self->gradient->n_prefix;
    mst_key_list *list = mst_zalloc(sizeof *list);
    mst_status st = MST_OK;
    if (list == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_feed_start(feed, 0, 0));
    for (unsigned i = 0; i < SAMPLE_BATCHES && json_array_size(sample) < SAMPLE_KEYS; i++) {
        mst_batch batch;
        uint64_t position;
        TRY_OUT(st, mst_feed_take(feed, 0, self->job->batch, &batch, &position));
        if (batch.n_rows == 0)
            break;
        TRY_OUT(st, mst_row_localise(self->localiser, 0, &batch, n_prefix, n_prefix, list,
                                     self->requests[0].rows));
        TRY_OUT(st, sample_add(sample, list));
    }
out:
    mst_key_list_fini(list);
    mst_free(list);
    return st;
}

mst_status mst_worker_pipeline_sample(mst_worker_pipeline *self, json_t **out)
{
    *out = NULL;
    if (self->localiser == NULL)
        return MST_OK;
    json_t *sample = json_array();
    if (sample == NULL)
        return mst_fail_memory();
    /* Rows that can be read only once are left for training. */
    if (self->job->dataset->random || mst_stream_reads_once(self->job->dataset) == NULL) {
        mst_status st = sample_fill(self, sample);
        if (st != MST_OK) {
            json_decref(sample);
            return st;
        }
    }
    *out = sample;
    return MST_OK;
}
