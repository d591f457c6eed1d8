/* Nets on a GPU: passes and the table; contract in cuda_net.h, memory in net_open.cu.
 *
 * Rows go through NET_SLOTS slots: the host fills the pinned part of one, the stream `copy` brings it to the
 * GPU, and the step on `stream` waits for that. A step is a CUDA graph: captured when its number of rows is
 * first seen in its slot, then launched as one unit. */
#include <ctime>

#include "cuda/net.cuh"
#include "cuda/net_lenet.cuh"
#include "cuda/net_open.cuh"

#define WAIT_S 120 /* for the work of a step */

/* ---- passes ---- */

static const float *net_bias_of(const mst_cuda_net *net, const net_layer *l)
{
    return l->bias >= 0 ? net_floats(net, &net->layers[(size_t)l->bias], 1) : NULL;
}

mst_status net_fork(mst_cuda_net *net)
{
    CUDA_TRY(cudaEventRecord(net->fork, net->stream));
    CUDA_TRY(cudaStreamWaitEvent(net->aside, net->fork, 0));
    return MST_OK;
}

mst_status net_join(mst_cuda_net *net)
{
    CUDA_TRY(cudaEventRecord(net->join, net->aside));
    CUDA_TRY(cudaStreamWaitEvent(net->stream, net->join, 0));
    return MST_OK;
}

/* Runs the layers; *out is the last output. rows: as they came. */
static mst_status net_forward(mst_cuda_net *net, uint32_t n, bool floats, bool training, const char *slot,
                              const void **out)
{
    const net_plans &plans = net->plans[n];
    const void *x = net->input;
    if (net->row_size > 0 && net->table == NULL)
        NET_TRY(net_input(net, n, floats, slot + net_rows_at(net)));
    for (size_t i = 0; i < net->layers.size(); i++) {
        net_layer *l = &net->layers[i];
        const mst_cuda_layer &s = l->spec;
        if (net->spec.graph)
            NET_TRY(net_graph_input(net, l, n, &x));
        l->out = x;
        if (l->merged || (s.kind == MST_CUDA_DROPOUT && !training))
            continue;
        l->x = x;
        if (training && i + 1 == net->layers.size() && net_graph_sums_scores(net))
            break;
        if (s.kind >= MST_CUDA_CONCAT) {
            NET_TRY(net_graph_layer(net, i, n, x));
            x = l->out;
            continue;
        }
        switch (s.kind) {
        case MST_CUDA_CONV:
            if (l->folded)
                NET_TRY(net_fold_weights(net, l));
            NET_TRY(net_conv_run(net, l, n, plans.convs[3 * i].get(), x,
                                 l->folded ? l->kernels : net_weights(net, l, 0), l->y));
            break;
        case MST_CUDA_LINEAR:
            if (l->unfold) {
                NET_TRY(net_unfold(net, &s.in, n, false, x, l->flat));
                l->x = x = l->flat;
            }
            NET_TRY(net_gemm_run(net, plans.gemms[3 * i].get(), net_weights(net, l, 0), x, l->y));
            break;
        case MST_CUDA_MAXPOOL:
        case MST_CUDA_AVGPOOL: NET_TRY(net_pool(net, l, n, net_bias_of(net, l), x)); break;
        case MST_CUDA_LRN: NET_TRY(net_lrn(net, l, n, x)); break;
        case MST_CUDA_BATCHNORM: NET_TRY(net_norm(net, l, n, training, x)); break;
        case MST_CUDA_DROPOUT:
            NET_TRY(net_dropout(net, l, n, (const net_numbers *)slot, x, l->y));
            break;
        default: /* an activation after a layer that cannot compute it */
            CUDA_TRY(cudaMemcpyAsync(l->y, x, n * net_size(&s.out) * (net->half ? 2 : 4), cudaMemcpyDeviceToDevice,
                                     net->stream));
            NET_TRY(net_bias_act(net, &s.out, n, s.kind, NULL, l->y));
        }
        bool fused = net_gemm_adds_bias(plans.gemms[3 * i].get());
        if (s.kind != MST_CUDA_MAXPOOL && s.kind != MST_CUDA_AVGPOOL)
            NET_TRY(net_bias_act(net, &s.out, n, fused && l->act == MST_CUDA_RELU ? -1 : l->act,
                                 fused ? NULL : net_bias_of(net, l), l->y));
        l->out = x = l->y;
    }
    *out = x;
    return MST_OK;
}

mst_status net_layer_back(mst_cuda_net *net, size_t i, uint32_t n, bool first, const char *slot, void **d, void **to)
{
    const net_plans &plans = net->plans[n];
    net_layer *l = &net->layers[i];
    const mst_cuda_layer &s = l->spec;
    int act = s.kind == MST_CUDA_RELU || s.kind == MST_CUDA_TANH || s.kind == MST_CUDA_SIGMOID ? (int)s.kind
                                                                                               : l->act;
    NET_TRY(net_act_back(net, &s.out, n, act, l->y, *d,
                         l->bias >= 0 ? net_gradient(net, &net->layers[(size_t)l->bias], 1) : NULL));
    bool moves = !first;
    if (s.kind == MST_CUDA_CONV) {
        NET_TRY(net_conv_run(net, l, n, plans.convs[3 * i + NET_FILTER].get(), *d, l->x,
                             l->folded ? l->kernels_back : net_gradient(net, l, 0)));
        if (l->folded)
            NET_TRY(net_fold_back(net, l));
        if (!first)
            NET_TRY(net_conv_run(net, l, n, plans.convs[3 * i + NET_DATA].get(), *d, net_weights(net, l, 0), *to));
    } else if (s.kind == MST_CUDA_LINEAR) {
        const net_gemm *filter = plans.gemms[3 * i + NET_FILTER].get();
        NET_TRY(net->spec.graph ? net_gemm_aside(net, filter, l->x, *d, net_gradient(net, l, 0))
                                : net_gemm_run(net, filter, l->x, *d, net_gradient(net, l, 0)));
        if (!first)
            NET_TRY(net_gemm_run(net, plans.gemms[3 * i + NET_DATA].get(), net_weights(net, l, 0), *d, *to));
        if (!first && l->unfold) {
            NET_TRY(net_unfold(net, &s.in, n, true, *to, *d));
            moves = false;
        }
    } else if (s.kind == MST_CUDA_MAXPOOL || s.kind == MST_CUDA_AVGPOOL) {
        if (!first)
            NET_TRY(net_pool_back(net, l, n, *d, *to));
    } else if (s.kind == MST_CUDA_LRN) {
        if (!first)
            NET_TRY(net_lrn_back(net, l, n, *d, *to));
    } else if (s.kind == MST_CUDA_BATCHNORM) {
        NET_TRY(net_norm_back(net, l, n, *d, first ? NULL : *to));
    } else if (s.kind == MST_CUDA_DROPOUT) {
        if (!first)
            NET_TRY(net_dropout(net, l, n, (const net_numbers *)slot, *d, *to));
    } else {
        moves = false; /* an activation, in place */
    }
    if (moves) {
        void *t = *d;
        *d = *to;
        *to = t;
    }
    return MST_OK;
}

/* Whether no layer below i has parameters: their gradients are not needed. */
static bool net_is_first(const mst_cuda_net *net, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (net->layers[k].spec.n_params > 0)
            return false;
    return true;
}

/* The same for a net over embeddings: the table before, between and after. */
static mst_status net_train_table(mst_cuda_net *net, uint32_t n, uint32_t entries, bool clip, const net_slot *slot)
{
    const net_numbers *numbers = (const net_numbers *)slot->device;
    net->input = slot->device + net_rows_at(net); /* the layers read floats where they are */
    float *parts[2] = {NULL, NULL}, *diffs[2] = {NULL, NULL};
    const void *scores;
    for (const net_layer &l : net->layers)
        if (l.spec.kind == MST_CUDA_EMBEDDING || l.spec.kind == MST_CUDA_WIDE) {
            parts[l.spec.kind == MST_CUDA_WIDE] = (float *)l.y;
            diffs[l.spec.kind == MST_CUDA_WIDE] = l.dy;
        }
    NET_TRY(net_fork(net));
    NET_TRY(net_table_sort(net, slot, entries));
    NET_TRY(net_table_load(net, n, slot, entries, parts[0], parts[1]));
    NET_TRY(net_forward(net, n, true, true, slot->device, &scores));
    NET_TRY(net_graph_back(net, n, slot->device, scores));
    if (clip) { /* the norm of both gradients comes first */
        NET_TRY(net_table_sum(net, slot, entries, true, diffs[0], diffs[1]));
        NET_TRY(net_join(net));
        NET_TRY(net_update(net, numbers, true));
        return net_table_update(net, entries, numbers, net->clip);
    }
    NET_TRY(net_fork(net)); /* gradients of biases */
    std::swap(net->stream, net->aside);
    mst_status st = net_update(net, numbers, false);
    std::swap(net->stream, net->aside);
    NET_TRY(st);
    NET_TRY(net_table_sum(net, slot, entries, false, diffs[0], diffs[1]));
    NET_TRY(net_table_update(net, entries, numbers, NULL));
    return net_join(net);
}

static mst_status net_train(mst_cuda_net *net, uint32_t n, bool floats, bool update, bool clip,
                            const char *slot)
{
    const void *scores;
    void *d = net->diffs[0], *to = net->diffs[1];
    if (net->lenet != NULL) {
        NET_TRY(net_lenet_train(net, net->lenet, n, floats, slot));
        return update ? net_update(net, (const net_numbers *)slot, clip) : MST_OK;
    }
    if (net->spec.graph)
        NET_TRY(net_fork(net));
    NET_TRY(net_forward(net, n, floats, true, slot, &scores));
    if (net->spec.graph) {
        NET_TRY(net_graph_back(net, n, slot, scores));
        NET_TRY(net_join(net));
        return update ? net_update(net, (const net_numbers *)slot, clip) : MST_OK;
    }
    NET_TRY(net_loss(net, n, slot, scores, d));
    for (size_t i = net->layers.size(); i-- > 0;) {
        if (net->layers[i].merged)
            continue;
        bool first = net_is_first(net, i);
        NET_TRY(net_layer_back(net, i, n, first, slot, &d, &to));
        if (first)
            break;
    }
    return update ? net_update(net, (const net_numbers *)slot, clip) : MST_OK;
}

/* ---- graphs ---- */

static mst_status net_capture(mst_cuda_net *net, const net_graph_key &key, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    std::lock_guard<std::mutex> alone(net_alone());
    CUDA_TRY(cudaStreamBeginCapture(net->stream, cudaStreamCaptureModeThreadLocal));
    net_slot *slot = &net->slots[key.slot];
    mst_status st = key.source == MST_CUDA_ROWS ? MST_OK
                    : net->table != NULL        ? net_keep(net, key.n, key.entries, key.source, slot)
                                                : net_augment(net, key.n, key.source, slot);
    if (st == MST_OK && net->table != NULL)
        st = net_train_table(net, key.n, key.entries, key.clip, slot);
    else if (st == MST_OK)
        st = net_train(net, key.n, key.floats, key.update, key.clip, slot->device);
    cudaError_t code = cudaStreamEndCapture(net->stream, &graph);
    if (st != MST_OK)
        return st;
    if (code != cudaSuccess)
        return mst_cuda_failed(code, "cudaStreamEndCapture");
    code = cudaGraphInstantiate(out, graph, 0);
    cudaGraphDestroy(graph);
    if (code != cudaSuccess)
        return mst_cuda_failed(code, "cudaGraphInstantiate");
    return MST_OK;
}

/* Until the event; MST_ETIMEOUT when the GPU does not get there. */
static mst_status net_wait(cudaEvent_t event)
{
    struct timespec from, now, nap = {0, 20000};
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint64_t turns = 0;; turns++) {
        cudaError_t code = cudaEventQuery(event);
        if (code == cudaSuccess)
            return MST_OK;
        if (code != cudaErrorNotReady)
            return mst_cuda_failed(code, "a step");
        if (turns < 2000)
            continue;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - from.tv_sec > WAIT_S)
            return mst_cuda_plugin_host->fail(MST_ETIMEOUT, "the GPU did not finish a step within %d s", WAIT_S);
        nanosleep(&nap, NULL);
    }
}

/* Until everything that was enqueued is done. */
static mst_status net_drain(mst_cuda_net *net)
{
    cudaEvent_t end = net->slots[0].used; /* recorded again: it only becomes later */
    CUDA_TRY(cudaEventRecord(end, net->stream));
    return net_wait(end);
}

/* ---- the table ---- */

static mst_status nets_use(mst_cuda_net *net)
{
    CUDA_TRY(cudaSetDevice((int)net->spec.device));
    return MST_OK;
}

static mst_status nets_stage(mst_cuda_net *net, mst_cuda_rows *out)
{
    net_slot *slot = &net->slots[net->slot];
    NET_TRY(nets_use(net));
    NET_TRY(net_wait(slot->used)); /* the step that read it; rows were copied before that */
    out->labels = (float *)(slot->host + net_labels_at());
    out->weights = out->labels + net->spec.max_rows;
    out->bytes = (uint8_t *)slot->host + net_rows_at(net);
    out->numbers = (float *)out->bytes;
    out->picks = (mst_cuda_pick *)slot->images;
    out->images = slot->images != NULL ? (uint8_t *)slot->images + net_images_at(net) : NULL;
    out->pitch = net->pitch;
    net->staged = true;
    return MST_OK;
}

/* Sends the staged rows to the GPU; the stream waits for them. */
static mst_status net_send(mst_cuda_net *net, uint32_t n, mst_cuda_source source, bool floats, net_slot *slot)
{
    bool keys = net->table != NULL, rows = source == MST_CUDA_ROWS || (keys && source == MST_CUDA_IMAGES);
    size_t row = rows ? net->row_size * (floats ? sizeof(float) : 1) : 0;
    size_t bytes = net_rows_at(net) + n * row;
    bool there = source == MST_CUDA_ROWS ||
                 (source == MST_CUDA_KEPT && !keys ? net->kept != NULL : slot->images != NULL);
    if (!there)
        return mst_cuda_plugin_host->fail(MST_EUSAGE, "a step of images on a GPU was not announced");
    if (!net->staged || n == 0 || n > net->spec.max_rows)
        return mst_cuda_plugin_host->fail(MST_EUSAGE, "a step of %u rows was not staged; at most %u fit", n,
                                          net->spec.max_rows);
    net->staged = false;
    net->slot = (net->slot + 1) % NET_SLOTS;
    CUDA_TRY(cudaMemcpyAsync(slot->device, slot->host, bytes, cudaMemcpyHostToDevice, net->copy));
    if (keys)
        NET_TRY(net_table_send(net, slot, source != MST_CUDA_KEPT));
    if (source != MST_CUDA_ROWS)
        CUDA_TRY(cudaMemcpyAsync(slot->images_device, slot->images,
                                 net_images_at(net) + (source == MST_CUDA_IMAGES ? n * net->pitch : 0),
                                 cudaMemcpyHostToDevice, net->copy));
    CUDA_TRY(cudaEventRecord(slot->copied, net->copy));
    CUDA_TRY(cudaStreamWaitEvent(net->stream, slot->copied, 0));
    return MST_OK;
}

static mst_status nets_train(mst_cuda_net *net, const mst_cuda_step *step, bool update)
{
    uint32_t index = net->slot;
    net_slot *slot = &net->slots[index];
    net_numbers *numbers = (net_numbers *)slot->host;
    if (net->table != NULL && step->source == MST_CUDA_KEPT)
        NET_TRY(net_table_unsent(net, (uint64_t)step->n_rows * net->kept_rows.row_entries));
    bool floats = step->source == MST_CUDA_ROWS ? step->floats : net->images.normalise;
    net_graph_key key = {step->n_rows, index,  net->table != NULL ? net_table_staged(net) : 0,
                         step->source, floats, update, update && step->clip_norm > 0.0};
    NET_TRY(nets_use(net));
    if (net->table != NULL && !update)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "a GPU gives no gradients of nets over embeddings");
    if (!net->spec.training || (update && !net->spec.updates))
        return mst_cuda_plugin_host->fail(MST_EUSAGE, "a net on a GPU was not opened for training");
    numbers->rule = step->rule;
    numbers->rule_keys = step->rule_keys;
    numbers->scale = step->scale;
    numbers->clip_norm = (float)step->clip_norm;
    numbers->first_row = step->first_row;
    for (uint64_t i = 0; i < net->n_dropouts; i++)
        numbers->dropout[i] = step->dropout[i];
    NET_TRY(net_send(net, step->n_rows, step->source, step->floats, slot));
    NET_TRY(net_plan(net, step->n_rows));
    auto known = net->graphs.find(key);
    if (known == net->graphs.end()) {
        cudaGraphExec_t graph;
        NET_TRY(net_capture(net, key, &graph));
        known = net->graphs.emplace(key, graph).first;
    }
    CUDA_TRY(cudaGraphLaunch(known->second, net->stream));
    CUDA_TRY(cudaEventRecord(slot->used, net->stream));
    return MST_OK;
}

static mst_status nets_step(mst_cuda_net *net, const mst_cuda_step *step)
{
    return nets_train(net, step, true);
}

static mst_status nets_gradient(mst_cuda_net *net, const mst_cuda_step *step)
{
    return nets_train(net, step, false);
}

static mst_status nets_forward(mst_cuda_net *net, uint32_t n, bool floats, float *scores)
{
    if (net->table != NULL)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "a GPU gives no scores of nets over embeddings");
    net_slot *slot = &net->slots[net->slot];
    const void *out;
    uint64_t count = (uint64_t)n * net->spec.n_scores;
    NET_TRY(nets_use(net));
    NET_TRY(net_send(net, n, MST_CUDA_ROWS, floats, slot));
    NET_TRY(net_plan(net, n));
    NET_TRY(net_forward(net, n, floats, false, slot->device, &out));
    NET_TRY(net_scores(net, count, out, (float *)net->diffs[0]));
    CUDA_TRY(cudaMemcpyAsync(scores, net->diffs[0], count * sizeof *scores, cudaMemcpyDeviceToHost, net->stream));
    CUDA_TRY(cudaEventRecord(slot->used, net->stream));
    return net_drain(net);
}

/* The convolution that a parameter is the weights of; NULL: none. */
static const mst_cuda_layer *net_conv_of(const mst_cuda_net *net, uint32_t param)
{
    for (const net_layer &l : net->layers)
        if (l.spec.kind == MST_CUDA_CONV && l.spec.first_param == param)
            return &l.spec;
    return NULL;
}

/* The floats of a parameter; NULL: there are none. */
static float *net_place(mst_cuda_net *net, uint32_t slot, uint32_t param)
{
    float *base = slot == 0                   ? net->w
                  : slot == MST_CUDA_GRADIENT ? net->g
                  : slot <= 2                 ? net->state[slot - 1]
                                              : NULL;
    return base != NULL && param < net->params.size() ? base + net->at[param] : NULL;
}

static mst_status net_copy_check(mst_cuda_net *net, uint32_t slot, uint32_t param, float **at)
{
    NET_TRY(nets_use(net));
    *at = net_place(net, slot, param);
    if (*at == NULL)
        return mst_cuda_plugin_host->fail(MST_EUSAGE, "a net on a GPU has no parameter %u with state %u", param,
                                          slot);
    return MST_OK;
}

/* The rows of a parameter, with their pitches in floats. */
static mst_status net_copy_rows(mst_cuda_net *net, const net_shape &shape, float *to, uint64_t to_pitch, const float *from,
                                uint64_t from_pitch, cudaMemcpyKind kind)
{
    size_t bytes = shape.columns * sizeof *to;
    CUDA_TRY(shape.rows == 1 ? cudaMemcpyAsync(to, from, bytes, kind, net->stream)
                             : cudaMemcpy2DAsync(to, to_pitch * sizeof *to, from, from_pitch * sizeof *from, bytes,
                                                 shape.rows, kind, net->stream));
    return MST_OK;
}

static mst_status nets_write(mst_cuda_net *net, uint32_t slot, uint32_t param, const float *from)
{
    float *at;
    NET_TRY(net_copy_check(net, slot, param, &at));
    const mst_cuda_layer *conv = net->last ? net_conv_of(net, param) : NULL;
    const net_shape &shape = net->shapes[param];
    NET_TRY(net_copy_rows(net, shape, conv != NULL ? net->room : at, shape.pitch, from, shape.columns,
                          cudaMemcpyHostToDevice));
    if (conv != NULL)
        NET_TRY(net_turn(net, conv, false, net->room, at));
    if (slot == 0 && net->half)
        NET_TRY(net_shadow(net, net->at[param], shape.floats));
    return MST_OK; /* a copy from memory that is not pinned has read it by now; other memory is not changed yet */
}

static mst_status nets_read(mst_cuda_net *net, uint32_t slot, uint32_t param, float *to)
{
    float *at;
    NET_TRY(net_copy_check(net, slot, param, &at));
    const mst_cuda_layer *conv = net->last ? net_conv_of(net, param) : NULL;
    if (conv != NULL)
        NET_TRY(net_turn(net, conv, true, at, net->room));
    const net_shape &shape = net->shapes[param];
    NET_TRY(net_copy_rows(net, shape, to, shape.columns, conv != NULL ? net->room : at, shape.pitch,
                          cudaMemcpyDeviceToHost));
    return net_drain(net);
}

static mst_status nets_entries(mst_cuda_net *net, uint64_t n, mst_cuda_entries *out)
{
    NET_TRY(nets_use(net));
    return net_table_entries(net, n, out);
}

static mst_status nets_write_table(mst_cuda_net *net, uint32_t slot, uint64_t first, uint64_t n, const float *from)
{
    NET_TRY(nets_use(net));
    NET_TRY(net_table_copy(net, slot, first, n, from, NULL));
    return net_drain(net);
}

static mst_status nets_read_table(mst_cuda_net *net, uint32_t slot, uint64_t first, uint64_t n, float *to)
{
    NET_TRY(nets_use(net));
    NET_TRY(net_table_copy(net, slot, first, n, NULL, to));
    return net_drain(net);
}

static mst_status nets_losses(mst_cuda_net *net, mst_cuda_loss *out)
{
    size_t n = net->spec.max_rows;
    std::vector<double> rows(3 * n);
    double sums[3] = {0.0, 0.0, 0.0};
    NET_TRY(nets_use(net));
    NET_TRY(net_drain(net));
    CUDA_TRY(cudaMemcpyAsync(rows.data(), net->losses, 3 * n * sizeof(double), cudaMemcpyDeviceToHost, net->stream));
    CUDA_TRY(cudaMemsetAsync(net->losses, 0, 3 * n * sizeof(double), net->stream));
    NET_TRY(net_drain(net));
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < n; i++)
            sums[k] += rows[(size_t)k * n + i];
    out->loss = sums[0];
    out->weight = sums[1];
    out->correct = sums[2];
    return MST_OK;
}

extern "C" const mst_cuda_net_ops mst_cuda_nets;
const mst_cuda_net_ops mst_cuda_nets = {
    net_open,   net_close,    nets_write,       nets_read,       nets_images,
    nets_keep_rows, nets_stage, nets_entries, nets_write_table, nets_read_table, nets_step,
    nets_gradient, nets_forward, nets_losses,
};
