/* Set-up of a server that is not the coordinator; contract in server_setup.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/observe.h"
#include "ps/server_impl.h"

/* Initial values of the state that this server owns, of its keys and of the dense prefix, whose owner may be
 * any; of all keys if the table does not divide them (--dense-model). */
static void setup_start(mst_server *s, uint64_t first, uint64_t n)
{
    const mst_model *model = s->model.model;
    bool fresh = s->model.fresh;
    s->model.fresh = false;
    for (uint32_t i = 0; fresh && i < s->owned.n; i++)
        mst_optimizer_start(s->model.optimizer, s->model.params, s->owned.extents[i].first,
                            s->owned.extents[i].count);
    if (!fresh || model->ops->start_keys == NULL)
        return;
    if (s->table.width == 0)
        n = model->shape.n_features;
    model->ops->start_keys(model, s->model.params, s->model.seed, 0, model->shape.n_dense);
    model->ops->start_keys(model, s->model.params, s->model.seed, first, n);
}

mst_status mst_server_make_store(mst_server *s)
{
    const mst_params *params = s->model.params;
    TRY(mst_placement_owned(&s->table, s->index, &s->owned));
    double share = (double)s->owned.floats / (double)params->size;
    TRY(mst_model_check_memory(s->model.model, params, s->model.optimizer->options.adagrad_start > 0,
                               (uint64_t)(share * (double)mst_params_bytes(params))));
    for (uint32_t i = 0; i < s->owned.n; i++)
        mst_params_populate_part(s->model.params, s->owned.extents[i].first, s->owned.extents[i].count);
    uint64_t first = s->table.width == 0 ? 0 : s->table.key_starts[s->index],
             keys = s->table.width == 0 ? 0 : s->table.key_starts[s->index + 1] - first;
    setup_start(s, first, keys);
    s->max_step_body =
        MST_STEP_HEAD + MST_EXTENT_MAX * sizeof(mst_extent) + 4 * s->owned.floats + 5 * keys + 4096;
    mst_store_options options = {
        .optimizer = s->model.optimizer,
        .params = s->model.params,
        .table = &s->table,
        .server = s->index,
        .n_workers = s->options.n_workers,
        .n_threads = s->options.n_threads,
        .clip = mst_is_sync(s),
    };
    return mst_store_new(&options, &s->store);
}

mst_status mst_server_setup_job(mst_server *s, const json_t *json)
{
    const mst_server_kept *kept = s->options.kept;
    TRY(s->hooks->adopt(s->hooks->arg, json, &s->options));
    mst_replica_init(s);
    TRY(mst_replica_connect(s));
    json_t *join = json_copy(s->options.join);
    if (join != NULL && kept->key[0] != '\0')
        json_object_set_new(join, "kept", mst_replica_kept_json(s)); /* or not kept */
    return mst_unless_gone(
        mst_ps_send_json(s->net, s->servers[0], &(mst_message){.type = MST_PS_JOIN}, join));
}

static mst_status setup_send_ready(mst_server *s)
{
    TRY(mst_unless_gone(mst_ps_send(s->net, s->servers[0], &(mst_message){.type = MST_PS_READY})));
    return mst_replica_begin(s);
}

mst_status mst_server_setup_model(mst_server *s, const json_t *json)
{
    json_int_t steps = 0, restore = 0, roster = 0;
    int keep = 0;
    json_t *model, *table;
    const char *key;
    mst_server_start start = {0};
    if (s->store != NULL ||
        json_unpack((json_t *)json, "{s:o, s:o, s:I, s:I, s:I, s:b, s:s}", "model", &model, "table", &table,
                    "steps", &steps, "roster", &roster, "restore", &restore, "keep", &keep, "pass_key",
                    &key) != 0 ||
        strlen(key) >= sizeof s->pass_key || (keep && strcmp(key, s->options.kept->key) != 0))
        return mst_fail(MST_EPEER, "server 0 sent an invalid SETUP");
    memcpy(s->pass_key, key, strlen(key) + 1);
    TRY(s->hooks->open(s->hooks->arg, json, &start));
    s->model = start.model;
    if (keep && !mst_is_sync(s))
        steps = (json_int_t)s->options.kept->steps;
    if (keep)
        TRY(mst_replica_recall(s, s->options.kept->replica, s->options.kept->steps, (uint64_t)steps));
    mst_server_kept_fini(s->options.kept);
    TRY(mst_placement_from_json(&s->table, table));
    if (s->table.size != s->model.params->size)
        return mst_fail(MST_EPEER,
                        "server 0 has a model of %" PRIu64 " parameters, but it has %" PRIu64 " here",
                        s->table.size, s->model.params->size);
    TRY(mst_server_make_store(s));
    s->steps.applied = (uint64_t)steps;
    s->replica.roster = (uint32_t)roster;
    mst_observe_set_first_step(s->options.observe, s->steps.applied);
    s->setup.expected = restore ? mst_float_cursor_total(&s->owned, s->model.params) : 0;
    s->setup.ready = s->setup.expected == 0;
    return s->setup.ready ? setup_send_ready(s) : MST_OK;
}

mst_status mst_server_setup_restored(mst_server *s, const mst_message *m, const void *body)
{
    uint64_t count = m->size / sizeof(float);
    if (s->store == NULL || s->setup.ready || m->size % sizeof(float) != 0 ||
        !mst_placement_owns_state(&s->table, s->index, s->model.params, m->count, m->step, count) ||
        s->setup.restored + count > s->setup.expected)
        return mst_fail(MST_EPEER, "server 0 sent floats that this server does not own");
    float *to = (m->count == 0 ? s->model.params->w : s->model.params->slots[m->count - 1]) + m->step;
    memcpy(to, body, m->size);
    s->setup.restored += count;
    s->setup.ready = s->setup.restored == s->setup.expected;
    return s->setup.ready ? setup_send_ready(s) : MST_OK;
}

void mst_server_setup_tick(mst_server *s, uint64_t began)
{
    if (!s->setup.ready && mst_now_ns() - began > 2ull * s->options.start_timeout_ms * MST_MS)
        mst_server_fail(s, mst_fail(MST_ETIMEOUT,
                                    "server %" PRIu32
                                    ": server 0 at %s has not set the job up within %" PRIu32 " s",
                                    s->index, s->options.servers[0], 2 * s->options.start_timeout_ms / 1000));
    if (s->setup.leaving && mst_now_ns() - s->setup.leaving_ns > s->options.stop_grace_ms * MST_MS)
        mst_server_fail(s, mst_fail_lead(MST_ESTOPPED, "stopped",
                                         "; server 0 has not ended the job within %" PRIu32 " s",
                                         s->options.stop_grace_ms / 1000));
    if (s->setup.leaving || s->options.stop == NULL || !atomic_load(s->options.stop))
        return;
    s->setup.leaving = true;
    s->setup.leaving_ns = mst_now_ns();
    if (!s->setup.up)
        mst_server_fail(s, mst_fail_lead(MST_ESTOPPED, "stopped", " before this server joined the job"));
    else /* the coordinator ends the job, with a checkpoint */
        (void)mst_ps_send_error(s->net, s->servers[0], MST_PS_FAIL,
                                &(mst_error){.code = MST_ESTOPPED, .text = "stop requested"});
}
