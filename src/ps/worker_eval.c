/* Evaluation by the chief; contract in worker_impl.h and worker.h.
 *
 * The evaluation thread opens the sets, and hands over the list of what they touch; the owner of the net
 * tells every server its part. At each cut the servers send the values of their parts, which come together in
 * a buffer of the cut; the whole buffer goes to the thread, and its figures come back. The owner never waits
 * for any of this, and the thread never touches the net but to wake it.
 *
 * Ownership: a cut is the owner's until it is pushed to `todo` and from when it is popped from `done`; the
 * list is the thread's until it says that it is opened. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "ps/worker_impl.h"

#define IDLE_MS 1000 /* how often a thread without work looks up; nothing depends on it */

static void cut_destroy(mst_eval_cut *cut)
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
    mst_worker *self = arg;
    const mst_worker_evaluation *evaluation = &self->job->evaluation;
    mst_eval_cut *cut = NULL;
    void *item;
    for (;;) {
        mst_status st = mst_queue_pop(self->eval.todo, &item, IDLE_MS);
        if (st == MST_ETIMEOUT)
            continue;
        if (st != MST_OK || item == NULL)
            return NULL;
        cut = item;
        uint64_t start = mst_now_ns();
        mst_spans_attach_beside(mst_observe_spans(self->job->observe), 1, MST_PHASE_EVALUATE);
        cut->status = cut->opening ? evaluation->open(evaluation->arg, &self->eval.list)
                                   : evaluation->run(evaluation->arg, cut->values, &cut->result);
        if (cut->status != MST_OK)
            mst_error_save(&cut->error, cut->status);
        else if (!cut->opening && evaluation->watch != NULL)
            evaluation->watch(evaluation->arg, cut->step, cut->values);
        mst_spans_leave();
        cut->seconds = mst_seconds_since(start);
        if (mst_queue_push(self->eval.done, cut, 0) != MST_OK) { /* closed: nobody asks any more */
            cut_destroy(cut);
            return NULL;
        }
        mst_net_wake(self->net);
    }
}

static mst_status start_thread(mst_worker *self)
{
    mst_worker_eval *e = &self->eval;
    TRY(mst_queue_new("evaluations", MST_WORKER_CUTS + 1, &e->todo));
    TRY(mst_queue_new("evaluated", MST_WORKER_CUTS + 1, &e->done));
    mst_eval_cut *opening = mst_zalloc(sizeof *opening);
    if (opening == NULL)
        return mst_fail_memory();
    opening->opening = true;
    mst_status st = mst_queue_push(e->todo, opening, 0);
    if (st != MST_OK) {
        cut_destroy(opening);
        return st;
    }
    if (pthread_create(&e->thread, NULL, eval_main, self) != 0)
        return mst_fail(MST_EIO, "cannot start the evaluation thread");
    e->started = true;
    return MST_OK;
}

static void drain(mst_queue *queue)
{
    void *item = NULL;
    if (queue == NULL)
        return;
    mst_queue_close(queue);
    while (mst_queue_pop(queue, &item, 0) == MST_OK && item != NULL)
        cut_destroy(item);
    mst_queue_destroy(queue);
}

void mst_worker_eval_fini(mst_worker *self)
{
    mst_worker_eval *e = &self->eval;
    if (e->started) {
        const mst_worker_evaluation *evaluation = &self->job->evaluation;
        mst_queue_close(e->todo);
        mst_queue_close(e->done);
        if (evaluation->stop != NULL)
            evaluation->stop(evaluation->arg);
        pthread_join(e->thread, NULL);
    }
    drain(e->todo);
    drain(e->done);
    for (uint32_t i = 0; i < MST_WORKER_CUTS; i++)
        cut_destroy(e->cuts[i]);
    for (uint32_t s = 0; e->staging != NULL && s < self->options.n_servers; s++)
        mst_free(e->staging[s]);
    mst_free(e->staging);
    mst_free(e->parts);
    mst_free(e->first_keys);
    mst_key_list_fini(&e->list);
    uint64_t bytes_out = e->bytes_out;
    memset(e, 0, sizeof *e);
    e->bytes_out = bytes_out;
}

/* ---- the list ---- */

static mst_status send_part(mst_worker *self, uint32_t s, const mst_key_list *part)
{
    mst_step_head head = {0};
    uint8_t start[MST_STEP_HEAD], *bytes = mst_alloc(mst_step_list_bound(part) + 1);
    if (bytes == NULL)
        return mst_fail_memory();
    size_t n = mst_step_list_encode(part, &head, bytes);
    mst_step_head_encode(&head, start);
    mst_message m = {.type = MST_PS_EVAL_LIST, .flags = MST_STEP_PULL};
    mst_piece pieces[] = {{start, sizeof start}, {bytes, n}};
    mst_status st = mst_net_send(self->net, self->peers[s], &m, pieces, 2, NULL);
    self->eval.bytes_out += sizeof start + n;
    mst_free(bytes);
    return st;
}

/* The sets are open: every server hears which of its floats they touch. */
static mst_status send_list(mst_worker *self)
{
    mst_worker_eval *e = &self->eval;
    uint32_t n = self->options.n_servers, width = self->table.width;
    uint64_t ranges = mst_key_list_range_floats(&e->list);
    e->empty = e->list.n_ranges == 0 && e->list.n_keys == 0;
    if (e->list.n_keys > 0 && width == 0)
        return mst_fail(MST_EUSAGE, "evaluation names keys of a model that has none");
    e->key_start = width > 0 ? (uint32_t)((ranges + width - 1) / width) : 0;
    e->floats = width > 0 ? ((uint64_t)e->key_start + e->list.n_keys) * width : ranges;
    e->parts = mst_calloc(n, sizeof *e->parts);
    e->first_keys = mst_calloc(n, sizeof *e->first_keys);
    e->staging = mst_calloc(n, sizeof *e->staging);
    if (e->parts == NULL || e->first_keys == NULL || e->staging == NULL)
        return mst_fail_memory();
    for (uint32_t s = 0; s < n; s++) {
        mst_placement_part(&self->table, &e->list, s, &e->parts[s], &e->first_keys[s]);
        TRY(send_part(self, s, &e->parts[s]));
    }
    e->opened = true;
    return MST_OK;
}

/* ---- values, inside events ---- */

static uint64_t part_floats(const mst_worker *self, uint32_t s)
{
    return mst_key_list_floats(&self->eval.parts[s], self->table.width);
}

mst_status mst_worker_eval_body(mst_worker *self, uint32_t server, const mst_message *m, void **out)
{
    mst_worker_eval *e = &self->eval;
    if (!e->opened)
        return mst_fail(MST_EINPUT, "values to evaluate came before anybody asked for them");
    uint64_t size = part_floats(self, server) * sizeof(float);
    if (m->size != size)
        return mst_fail(MST_EINPUT,
                        "values to evaluate have %" PRIu64 " bytes, but those of server %" PRIu32
                        " take %" PRIu64,
                        m->size, server, size);
    if (e->staging[server] == NULL)
        e->staging[server] = mst_alloc(size);
    if (e->staging[server] == NULL)
        return mst_fail_memory();
    *out = e->staging[server];
    return MST_OK;
}

/* Where float `first` of the vector, inside a range of the list, stands among the values. */
static uint64_t place_of(const mst_key_list *list, uint64_t first)
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

/* Puts a server's values where they belong. */
static void place_values(const mst_worker *self, uint32_t s, const uint8_t *in, float *out)
{
    const mst_worker_eval *e = &self->eval;
    const mst_key_list *part = &e->parts[s];
    uint32_t width = self->table.width;
    for (uint32_t i = 0; i < part->n_ranges; i++) {
        size_t size = part->ranges[i].count * sizeof *out;
        memcpy(out + place_of(&e->list, part->ranges[i].first), in, size);
        in += size;
    }
    if (part->n_keys > 0)
        memcpy(out + ((uint64_t)e->key_start + e->first_keys[s]) * width, in,
               (size_t)part->n_keys * width * sizeof *out);
}

/* The cut whose values are coming together; a new one when it is the first to hear of it. */
static mst_status find_cut(mst_worker *self, uint32_t number, uint32_t *out)
{
    mst_worker_eval *e = &self->eval;
    uint32_t at = MST_WORKER_CUTS;
    for (uint32_t i = 0; i < MST_WORKER_CUTS; i++) {
        if (e->cuts[i] != NULL && e->cuts[i]->cut == number) {
            *out = i;
            return MST_OK;
        }
        if (e->cuts[i] == NULL)
            at = i;
    }
    if (at == MST_WORKER_CUTS)
        return mst_fail(MST_EINPUT, "more than %d evaluations at once", MST_WORKER_CUTS);
    mst_eval_cut *cut = mst_zalloc(sizeof *cut);
    if (cut == NULL)
        return mst_fail_memory();
    cut->cut = number;
    cut->n_missing = self->options.n_servers;
    cut->here = mst_calloc(self->options.n_servers, sizeof *cut->here);
    cut->values = mst_alloc_lines((e->floats + 16) * sizeof *cut->values);
    if (cut->here == NULL || cut->values == NULL) {
        cut_destroy(cut);
        return mst_fail_memory();
    }
    memset(cut->values, 0, (e->floats + 16) * sizeof *cut->values); /* the gap before the keys, too */
    e->cuts[at] = cut;
    *out = at;
    return MST_OK;
}

mst_status mst_worker_eval_values(mst_worker *self, uint32_t server, const mst_message *m)
{
    mst_worker_eval *e = &self->eval;
    uint32_t at = 0;
    if (!e->opened)
        return mst_fail(MST_EINPUT, "values to evaluate came before anybody asked for them");
    if (m->size != part_floats(self, server) * sizeof(float))
        return mst_fail(MST_EINPUT, "values to evaluate of server %" PRIu32 " are missing", server);
    self->counts.eval_bytes_in += m->size;
    if (e->empty) {
        mst_worker_eval_asked(self, m->count);
        return MST_OK;
    }
    TRY(find_cut(self, m->count, &at));
    mst_eval_cut *cut = e->cuts[at];
    if (cut->here[server])
        return mst_fail(MST_EINPUT, "values of cut %" PRIu32 " came twice from server %" PRIu32, m->count,
                        server);
    cut->here[server] = true;
    if (server == 0)
        cut->step = m->step;
    if (m->size > 0)
        place_values(self, server, e->staging[server], cut->values);
    if (--cut->n_missing > 0)
        return MST_OK;
    e->cuts[at] = NULL;
    self->watch.due = true;
    mst_status st = mst_queue_push(e->todo, cut, 0);
    if (st != MST_OK) {
        cut_destroy(cut);
        mst_worker_note(self, st, true);
    }
    return MST_OK;
}

void mst_worker_eval_asked(mst_worker *self, uint32_t cut)
{
    if (cut > self->eval.asked)
        self->eval.asked = cut;
}

/* ---- results ---- */

static mst_status send_result(mst_worker *self, uint32_t cut, json_t *result)
{
    mst_message m = {.type = MST_PS_EVAL_RESULT, .count = cut};
    return mst_ps_send_json(self->net, self->peers[0], &m, result);
}

static json_t *failure_json(const mst_error *error)
{
    return json_pack("{s:o, s:i}", "error", mst_worker_text(error->text), "code", (int)error->code);
}

static mst_status take_done(mst_worker *self, mst_eval_cut *cut)
{
    mst_worker_eval *e = &self->eval;
    self->counts.eval_seconds += cut->seconds;
    if (cut->status != MST_OK) {
        e->failed = e->failed || cut->opening;
        mst_warn("evaluation failed: %s", cut->error.text);
        return send_result(self, cut->cut, failure_json(&cut->error));
    }
    if (cut->opening)
        return send_list(self);
    self->counts.n_evaluations++;
    TRY(mst_worker_report(self, 0)); /* it may be the last thing this worker does */
    return send_result(self, cut->cut, json_incref(cut->result));
}

mst_status mst_worker_eval_attend(mst_worker *self)
{
    mst_worker_eval *e = &self->eval;
    void *item = NULL;
    if (!e->chief)
        return MST_OK;
    if (!e->started)
        return start_thread(self);
    while (mst_queue_length(e->done) > 0 && mst_queue_pop(e->done, &item, 0) == MST_OK && item != NULL) {
        mst_eval_cut *cut = item;
        mst_status st = take_done(self, cut);
        cut_destroy(cut);
        TRY(st);
    }
    if (e->opened && e->empty && e->asked > e->answered) {
        e->answered = e->asked;
        return send_result(self, e->asked, json_object());
    }
    return MST_OK;
}
