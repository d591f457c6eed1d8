/* --dry-run: estimates the cost of a run from the shape and one batch of rows; contract in training.h. Does
 * not allocate or read model-sized arrays. */
#include "strategy/key_sums.h"
#include "train/training.h"

typedef struct batch_cost {
    uint64_t rows, entries, keys, bytes;
    uint64_t sparse_keys; /* those beyond the model's dense prefix */
} batch_cost;

/* Distinct keys of the first batch, and the bytes its rows take in memory. */
static mst_status plan_measure_batch(mst_training *self, batch_cost *out)
{
    mst_batch batch;
    uint64_t position;
    mst_key_sums key_sums = {0};
    mst_grad grad = {0};
    mst_status st;
    *out = (batch_cost){0};
    uint32_t want = (uint32_t)self->strategy_options.batch;
    TRY(mst_feed_start(self->data.feed, 0, 0));
    TRY(mst_feed_take(self->data.feed, 0, want, &batch, &position));
    out->rows = batch.n_rows;
    for (uint32_t i = 0; i < batch.n_rows; i++) {
        const mst_row *row = &batch.rows[i];
        out->entries += row->n_dense + row->n_keys;
        out->bytes +=
            8 + (row->bytes ? row->n_dense : 4ull * row->n_dense) + (row->values ? 8ull : 4ull) * row->n_keys;
    }
    TRY_OUT(st, mst_grad_init(&grad, NULL, 0, 0, 1, 1));
    TRY_OUT(st, mst_grad_room(&grad, out->entries));
    for (uint32_t i = 0; i < batch.n_rows; i++) {
        const mst_row *row = &batch.rows[i];
        for (uint32_t k = 0; k < row->n_dense + row->n_keys; k++) {
            grad.owners[0].keys[grad.owners[0].n] = k < row->n_dense ? k : row->keys[k - row->n_dense];
            grad.owners[0].values[grad.owners[0].n++] = 1.0f;
        }
    }
    TRY_OUT(st, mst_key_sums_begin(&key_sums, out->entries, 1));
    mst_key_sums_add(&key_sums, &grad.owners[0], 1);
    out->keys = key_sums.n;
    for (uint32_t i = 0; i < key_sums.n; i++)
        out->sparse_keys += key_sums.keys[i] >= self->assembly.model->shape.n_dense;
out:
    mst_key_sums_fini(&key_sums);
    mst_grad_fini(&grad);
    return st;
}

/* Memory of one process, if all keys are touched. Servers divide the store: of a table the shares have equal
 * numbers of touched keys. A worker has the weights of its requests, and a gradient. */
static void plan_add_processes(const mst_training *self, json_t *plan, uint64_t touched)
{
    const mst_strategy_options *o = &self->strategy_options;
    uint64_t store = mst_params_bytes(&self->assembly.params);
    uint64_t holders = (uint64_t)(o->servers > 0 ? o->servers : o->workers > 0 ? o->workers : 1);
    if (o->strategy != MST_STRATEGY_PS) {
        json_object_set_new(plan, "process_bytes", json_integer((json_int_t)store));
        return;
    }
    json_object_set_new(plan, "server_bytes",
                        json_integer((json_int_t)(store / holders * (uint64_t)(1 + o->replicas))));
    json_object_set_new(plan, "worker_bytes",
                        json_integer((json_int_t)(touched * (uint64_t)(2 + o->pipeline))));
}

mst_status mst_training_plan(mst_training *self, json_t **out)
{
    const mst_params *params = &self->assembly.params;
    const mst_model *model = self->assembly.model;
    uint64_t weights = params->size * sizeof(float), parameters = mst_params_count(params);
    batch_cost batch;
    mst_grad layout = {0};
    TRY(plan_measure_batch(self, &batch));
    model->ops->layout(model, params, &layout);
    uint64_t per_key = sizeof(float) * (uint64_t)(layout.width != 0 ? layout.width : model->n_scores);
    bool net = mst_model_has(model->ops, MST_MODEL_NET);
    uint64_t touched = self->strategy_options.dense_model ? weights
                       : !net                             ? batch.keys * per_key
                       : layout.width == 0
                           ? parameters * sizeof(float) /* a net over embeddings otherwise */
                           : (parameters - model->shape.n_features * layout.width) * sizeof(float) +
                                 batch.sparse_keys * per_key;
    *out = json_pack("{s:o, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model",
                     mst_model_json(model), "parameters", (json_int_t)parameters, "weights_bytes",
                     (json_int_t)weights, "optimizer_bytes", (json_int_t)(mst_params_bytes(params) - weights),
                     "isa", mst_isa_name(self->kernels->isa), "batch_rows", (json_int_t)batch.rows,
                     "batch_entries", (json_int_t)batch.entries, "batch_row_bytes", (json_int_t)batch.bytes,
                     "batch_keys", (json_int_t)batch.keys, "batch_weight_bytes", (json_int_t)touched,
                     "epoch_rows", (json_int_t)mst_feed_epoch_rows(self->data.feed));
    if (*out == NULL)
        return mst_fail_memory();
    plan_add_processes(self, *out, touched);
    return MST_OK;
}
