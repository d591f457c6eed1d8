/* Evaluation by the chief; contract in worker_eval.h. */
#include "ps/worker_eval.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"

#define IDLE_MS 1000 /* the longest wait of a thread without work, which is woken for work */

static void eval_cut_destroy(mst_eval_cut *cut)
{
    if (cut == NULL)
        return;
    mst_free(cut->here);
    mst_free(cut->values);
    json_decref(cut->result);
    mst_free(cut);
}

/* ---- the thread ---- */

static void *eval_main(void *arg)
{
    mst_worker_eval *self = arg;
    const mst_worker_evaluation *evaluation = &self->job->evaluation;
    mst_eval_cut *cut = NULL;
    void *item;
    for (;;) {
        mst_status st = mst_queue_pop(self->todo, &item, IDLE_MS);
        if (st == MST_ETIMEOUT)
            continue;
        if (st != MST_OK || item == NULL)
            return NULL;
        cut = item;
        uint64_t start = mst_now_ns();
        mst_spans_attach_beside(mst_observe_spans(self->job->observe), 1, MST_PHASE_EVALUATE);
        cut->status = cut->opening ? evaluation->open(evaluation->arg, &self->list)
                                   : evaluation->run(evaluation->arg, cut->values, &cut->result);
        if (cut->status != MST_OK)
            mst_error_save(&cut->error, cut->status);
        else if (!cut->opening && evaluation->histograms != NULL)
            evaluation->histograms(evaluation->arg, cut->step, cut->values);
        mst_spans_leave();
        cut->seconds = mst_seconds_since(start);
        if (mst_queue_push(self->done, cut, 0) != MST_OK) { /* closed: no result is expected */
            eval_cut_destroy(cut);
            return NULL;
        }
        mst_net_wake(self->link->net);
    }
}

static mst_status eval_start_thread(mst_worker_eval *self)
{
    TRY(mst_queue_new("evaluations", MST_WORKER_CUTS + 1, &self->todo));
    TRY(mst_queue_new("evaluated", MST_WORKER_CUTS + 1, &self->done));
    mst_eval_cut *opening = mst_zalloc(sizeof *opening);
    if (opening == NULL)
        return mst_fail_memory();
    opening->opening = true;
    mst_status st = mst_queue_push(self->todo, opening, 0);
    if (st != MST_OK) {
        eval_cut_destroy(opening);
        return st;
    }
    if (pthread_create(&self->thread, NULL, eval_main, self) != 0)
        return mst_fail(MST_EIO, "cannot start the evaluation thread");
    self->started = true;
    return MST_OK;
}

static void eval_drain(mst_queue *queue)
{
    void *item = NULL;
    if (queue == NULL)
        return;
    mst_queue_close(queue);
    while (mst_queue_pop(queue, &item, 0) == MST_OK && item != NULL)
        eval_cut_destroy(item);
    mst_queue_destroy(queue);
}

void mst_worker_eval_fini(mst_worker_eval *self)
{
    if (self->started) {
        const mst_worker_evaluation *evaluation = &self->job->evaluation;
        mst_queue_close(self->todo);
        mst_queue_close(self->done);
        if (evaluation->stop != NULL)
            evaluation->stop(evaluation->arg);
        pthread_join(self->thread, NULL);
    }
    eval_drain(self->todo);
    eval_drain(self->done);
    for (uint32_t i = 0; i < MST_WORKER_CUTS; i++)
        eval_cut_destroy(self->cuts[i]);
    for (uint32_t s = 0; self->staging != NULL && s < self->link->n_servers; s++)
        mst_free(self->staging[s]);
    mst_free(self->staging);
    mst_free(self->shares);
    mst_free(self->first_keys);
    mst_key_list_fini(&self->list);
    *self =
        (mst_worker_eval){.job = self->job, .link = self->link, .report = self->report, .table = self->table};
}

/* ---- the list ---- */

static mst_status eval_send_share(mst_worker_eval *self, uint32_t s, const mst_key_list *share)
{
    mst_step_head head = {0};
    uint8_t start[MST_STEP_HEAD], *bytes = mst_alloc(mst_step_list_bound(share) + 1);
    if (bytes == NULL)
        return mst_fail_memory();
    size_t n = mst_step_list_encode(share, &head, bytes);
    mst_step_head_encode(&head, start);
    mst_message m = {.type = MST_PS_EVAL_LIST, .flags = MST_STEP_PULL, .step = self->pass};
    mst_piece pieces[] = {{start, sizeof start}, {bytes, n}};
    mst_status st = mst_net_send(self->link->net, self->link->peers[s], &m, pieces, 2, NULL);
    self->report->eval_bytes_out += sizeof start + n;
    mst_free(bytes);
    return st;
}

/* The sets are open: sends every server its share of the list. */
static mst_status eval_send_list(mst_worker_eval *self)
{
    uint32_t n = self->link->n_servers, width = self->table->width;
    uint64_t ranges = mst_key_list_range_floats(&self->list);
    self->empty = self->list.n_ranges == 0 && self->list.n_keys == 0;
    if (self->list.n_keys > 0 && width == 0)
        return mst_fail(MST_EUSAGE, "evaluation lists keys of a model that has none");
    self->key_start = width > 0 ? (uint32_t)((ranges + width - 1) / width) : 0;
    self->floats = width > 0 ? ((uint64_t)self->key_start + self->list.n_keys) * width : ranges;
    self->shares = mst_calloc(n, sizeof *self->shares);
    self->first_keys = mst_calloc(n, sizeof *self->first_keys);
    self->staging = mst_calloc(n, sizeof *self->staging);
    if (self->shares == NULL || self->first_keys == NULL || self->staging == NULL)
        return mst_fail_memory();
    for (uint32_t s = 0; s < n; s++) {
        mst_placement_share(self->table, &self->list, s, &self->shares[s], &self->first_keys[s]);
        if (!self->link->absent[s])
            TRY(eval_send_share(self, s, &self->shares[s]));
    }
    self->opened = true;
    return MST_OK;
}

/* ---- values, inside events ---- */

static uint64_t eval_share_floats(const mst_worker_eval *self, uint32_t s)
{
    return mst_key_list_floats(&self->shares[s], self->table->width);
}

mst_status mst_worker_eval_body(mst_worker_eval *self, uint32_t server, const mst_message *m, void **out)
{
    if (!self->opened)
        return mst_fail(MST_EINPUT, "values to evaluate arrived before they were requested");
    uint64_t size = eval_share_floats(self, server) * sizeof(float);
    if (m->size != size)
        return mst_fail(MST_EINPUT,
                        "values to evaluate have %" PRIu64 " bytes, but server %" PRIu32 " has %" PRIu64,
                        m->size, server, size);
    if (self->staging[server] == NULL)
        self->staging[server] = mst_alloc(size);
    if (self->staging[server] == NULL)
        return mst_fail_memory();
    *out = self->staging[server];
    return MST_OK;
}

/* The position among the values of float `first` of the vector, which lies inside a range of the list. */
static uint64_t eval_place_of(const mst_key_list *list, uint64_t first)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < list->n_ranges; i++) {
        const mst_extent *r = &list->ranges[i];
        if (first >= r->first && first < r->first + r->count)
            return at + (first - r->first);
        at += r->count;
    }
    return 0;
}

/* Copies a server's values to their positions. */
static void eval_place_values(const mst_worker_eval *self, uint32_t s, const uint8_t *in, float *out)
{
    const mst_key_list *share = &self->shares[s];
    uint32_t width = self->table->width;
    for (uint32_t i = 0; i < share->n_ranges; i++) {
        size_t size = share->ranges[i].count * sizeof *out;
        memcpy(out + eval_place_of(&self->list, share->ranges[i].first), in, size);
        in += size;
    }
    if (share->n_keys > 0)
        memcpy(out + ((uint64_t)self->key_start + self->first_keys[s]) * width, in,
               (size_t)share->n_keys * width * sizeof *out);
}

/* Finds the cut that the values belong to, or makes it for the first values. */
static mst_status eval_find_cut(mst_worker_eval *self, uint32_t number, uint32_t *out)
{
    uint32_t at = MST_WORKER_CUTS;
    for (uint32_t i = 0; i < MST_WORKER_CUTS; i++) {
        if (self->cuts[i] != NULL && self->cuts[i]->cut == number) {
            *out = i;
            return MST_OK;
        }
        if (self->cuts[i] == NULL)
            at = i;
    }
    if (at == MST_WORKER_CUTS)
        return mst_fail(MST_EINPUT, "more than %d evaluations at once", MST_WORKER_CUTS);
    mst_eval_cut *cut = mst_zalloc(sizeof *cut);
    if (cut == NULL)
        return mst_fail_memory();
    cut->cut = number;
    cut->n_missing = 0;
    for (uint32_t s = 0; s < self->link->n_servers; s++)
        cut->n_missing += !self->link->absent[s];
    cut->here = mst_calloc(self->link->n_servers, sizeof *cut->here);
    cut->values = mst_alloc_lines((self->floats + 16) * sizeof *cut->values);
    if (cut->here == NULL || cut->values == NULL) {
        eval_cut_destroy(cut);
        return mst_fail_memory();
    }
    memset(cut->values, 0, (self->floats + 16) * sizeof *cut->values); /* including the gap before the keys */
    self->cuts[at] = cut;
    *out = at;
    return MST_OK;
}

mst_status mst_worker_eval_values(mst_worker_eval *self, uint32_t server, const mst_message *m, bool *whole)
{
    uint32_t at = 0;
    if (!self->opened)
        return mst_fail(MST_EINPUT, "values to evaluate arrived before they were requested");
    if (m->size != eval_share_floats(self, server) * sizeof(float))
        return mst_fail(MST_EINPUT, "values to evaluate from server %" PRIu32 " are missing", server);
    self->report->counts.eval_bytes_in += m->size;
    if (self->empty) {
        mst_worker_eval_announce(self, m->count);
        return MST_OK;
    }
    TRY(eval_find_cut(self, m->count, &at));
    mst_eval_cut *cut = self->cuts[at];
    if (cut->here[server])
        return mst_fail(MST_EINPUT, "values of cut %" PRIu32 " arrived twice from server %" PRIu32, m->count,
                        server);
    cut->here[server] = true;
    if (server == 0)
        cut->step = m->step;
    if (m->size > 0)
        eval_place_values(self, server, self->staging[server], cut->values);
    if (--cut->n_missing > 0)
        return MST_OK;
    self->cuts[at] = NULL;
    *whole = true;
    mst_status st = mst_queue_push(self->todo, cut, 0);
    if (st != MST_OK) {
        eval_cut_destroy(cut);
        mst_worker_link_note(self->link, st, true);
    }
    return MST_OK;
}

void mst_worker_eval_announce(mst_worker_eval *self, uint32_t cut)
{
    if (cut > self->announced)
        self->announced = cut;
}

/* ---- results ---- */

static mst_status eval_send_result(mst_worker_eval *self, uint32_t cut, json_t *result)
{
    mst_message m = {.type = MST_PS_EVAL_RESULT, .count = cut};
    return mst_ps_send_json(self->link->net, self->link->peers[0], &m, result);
}

static mst_status eval_take_done(mst_worker_eval *self, mst_eval_cut *cut)
{
    self->report->counts.eval_seconds += cut->seconds;
    if (cut->status != MST_OK) {
        self->failed = self->failed || cut->opening;
        mst_warn("evaluation failed: %s", cut->error.text);
        return eval_send_result(
            self, cut->cut,
            json_pack("{s:o, s:i}", "error", mst_ps_text(cut->error.text), "code", (int)cut->error.code));
    }
    if (cut->opening)
        return eval_send_list(self);
    self->report->counts.n_evaluations++;
    TRY(mst_worker_report_send(self->report, 0)); /* this may be the last message of this worker */
    return eval_send_result(self, cut->cut, json_incref(cut->result));
}

mst_status mst_worker_eval_attend(mst_worker_eval *self)
{
    void *item = NULL;
    if (!self->chief)
        return MST_OK;
    if (!self->started)
        return eval_start_thread(self);
    while (mst_queue_length(self->done) > 0 && mst_queue_pop(self->done, &item, 0) == MST_OK &&
           item != NULL) {
        mst_eval_cut *cut = item;
        mst_status st = eval_take_done(self, cut);
        eval_cut_destroy(cut);
        TRY(st);
    }
    if (self->opened && self->empty && self->announced > self->answered) {
        self->answered = self->announced;
        return eval_send_result(self, self->announced, json_object());
    }
    return MST_OK;
}
