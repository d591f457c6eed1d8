/* Executor tile: small nets, a vector's worth of images at a time, side by side in its lanes.
 *
 * Overhead dominates small nets: calls that take longer than their work, changes of layout, vectors that a
 * plane of 10 x 10 does not fill. With one image per lane every layer is whole vectors whatever its shape,
 * only the input rows change their layout, and a tile of LeNet (16 images) stays in the second-level cache
 * from the first convolution to the last gradient. tile_kernels_impl.h describes the kernels.
 *
 * A batch is computed tile after tile, forward and backward. Invariants:
 * 1. In the backward pass, the gradient of an array replaces the array: the operation that reads x writes
 * d(loss)/d(x) there, already multiplied by the derivative of the activation that produced x. So an operation
 * adds to the gradient of its weights first, and needs nothing of its y but the gradient.
 * 2. Gradients are functions of batch and weights: tiles add to them in their order. Those of fully connected
 *    layers go straight to the ranges, which the first tile overwrites where they are fresh; those of
 *    convolutions are kept by lane and added up after the last tile.
 * 3. Weights are packed once per batch, after need, or once for several batches of a step; ranges are ready
 * in the last tile.
 *
 * 4. With a crew, each number is computed by one of its threads, in the order of one thread alone, so the
 * bits are the same. Threads have fixed shares (rows of planes, blocks of outputs): what a thread has written
 * is in its cache when it reads it in the next operation. Only the sums over large planes are of two halves
 * that are added, with one thread, too.
 *
 * Layers of other kinds are computed by their plain functions, on rows; layers that have state (batch norm)
 * are not, as they must see the whole batch at once. */
#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "model/exec_tile_impl.h"

#define SUITS_WEIGHTS (1u << 19) /* 2 MB */
#define SUITS_NUMBERS (1u << 14) /* between two layers: 1 MB in 16 lanes */
#define SPINS         10000

extern const mst_executor mst_executor_tile;

static mst_status tile_can(const mst_chain *chain)
{
    TRY(mst_executor_chain_only(&mst_executor_tile, chain));
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++)
            if (layer->params[j].kind == MST_VIEW_STATE)
                return mst_fail(MST_EUNSUPPORTED,
                                "--executor tile takes a few images at a time, and %s (%s) needs the whole "
                                "batch at once: choose another",
                                layer->name, layer->ops->name);
    }
    return MST_OK;
}

/* Every tile reads all weights three times and writes their gradients, and walks over the arrays between
 * layers several times: all should stay in the caches. oneDNN is faster beyond. */
static bool tile_suits(const mst_chain *chain)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        if (mst_dims_size(&chain->layers[i]->out) > SUITS_NUMBERS)
            return false;
        for (uint32_t j = 0; j < chain->layers[i]->n_params; j++)
            n += mst_layer_param_size(&chain->layers[i]->params[j]);
    }
    return n <= SUITS_WEIGHTS;
}

static uint32_t tile_part_rows(const mst_kernels *kernels)
{
    return mst_tile_kernels_get(kernels->isa)->lanes;
}

static void tile_close(mst_replica *base)
{
    tile_replica *self = (tile_replica *)base;
    if (self == NULL)
        return;
    if (self->crew != NULL)
        mst_team_destroy(self->crew->team);
    mst_free(self->crew);
    mst_pages_release(self->pages, self->size);
    mst_free(self);
}

static mst_status tile_open_crew(tile_replica *self, unsigned n_threads)
{
    self->crew = mst_alloc_lines(sizeof *self->crew);
    if (self->crew == NULL)
        return mst_fail_memory();
    memset(self->crew, 0, sizeof *self->crew);
    self->crew->n = n_threads < TILE_CREW ? n_threads : TILE_CREW;
    return mst_team_new(self->crew->n, &self->crew->team);
}

static mst_status tile_open(const mst_chain *chain, const mst_kernels *kernels, uint32_t max_rows,
                            unsigned n_threads, bool training, mst_replica **out)
{
    tile_replica *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->base = (mst_replica){.executor = &mst_executor_tile,
                               .chain = chain,
                               .kernels = kernels,
                               .max_rows = max_rows,
                               .n_threads = n_threads};
    self->tile = mst_tile_kernels_get(kernels->isa);
    self->training = training;
    mst_status st = mst_tile_plan(self);
    if (st == MST_OK && training && n_threads > 1)
        st = tile_open_crew(self, n_threads);
    if (st != MST_OK) {
        tile_close(&self->base);
        return st;
    }
    *out = &self->base;
    return MST_OK;
}

/* ---- work that threads divide ---- */

/* The share of member i of k. */
static mst_tile_part tile_share(uint32_t n, unsigned i, unsigned k)
{
    return (mst_tile_part){(uint32_t)((uint64_t)n * i / k), (uint32_t)((uint64_t)n * (i + 1) / k)};
}

/* A share of blocks of `size`, in numbers. */
static mst_tile_part tile_share_blocks(size_t n, uint32_t size, unsigned i, unsigned k)
{
    mst_tile_part part = tile_share((uint32_t)((n + size - 1) / size), i, k);
    part.from *= size;
    part.to = part.to * size < n ? part.to * size : (uint32_t)n;
    return part;
}

static void tile_spin(unsigned i)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
    if (i % SPINS == SPINS - 1)
        sched_yield(); /* the thread that it waits for may have no core */
}

/* Runs fn by the members of the crew; each computes its share. */
static void tile_divide(tile_fn *fn, const tile_task *task)
{
    tile_crew *crew = task->self->crew;
    if (crew == NULL || crew->train == NULL) {
        fn(task, 0, 1);
        return;
    }
    unsigned turn = atomic_load_explicit(&crew->turn, memory_order_relaxed) + 2;
    crew->fn = fn;
    crew->task = *task;
    atomic_store_explicit(&crew->turn, turn, memory_order_release);
    fn(task, 0, crew->n);
    for (unsigned m = 1; m < crew->n; m++)
        for (unsigned i = 0; atomic_load_explicit(&crew->done[m].turn, memory_order_acquire) != turn; i++)
            tile_spin(i);
}

/* Member m > 0: takes part in operations until the batch is done. */
static void tile_serve(tile_crew *crew, unsigned m, unsigned seen)
{
    for (unsigned i = 0, turn;; i++, tile_spin(i)) {
        turn = atomic_load_explicit(&crew->turn, memory_order_acquire);
        if (turn % 2 == 1)
            return;
        if (turn == seen)
            continue;
        crew->fn(&crew->task, m, crew->n);
        atomic_store_explicit(&crew->done[m].turn, turn, memory_order_release);
        seen = turn;
        i = 0;
    }
}

/* ---- forward ---- */

static const float *tile_weight_of(const tile_op *op, const mst_weights *w)
{
    return w->ranges[op->layer->first_range];
}

static const float *bias_of(const tile_op *op, const mst_weights *w)
{
    return op->layer->n_params > 1 ? w->ranges[op->layer->first_range + 1] : NULL;
}

#define BLOCK 16 /* rows of a matrix that are packed, and outputs that are computed together, at most */

/* Blocks of the matrix of a fully connected layer. */
static void tile_pack_linear(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const mst_tile_part part = tile_share_blocks(op->layer->out.c, BLOCK, i, k);
    const size_t at = (size_t)part.from * op->in_size;
    task->self->tile->pack(tile_weight_of(op, task->w) + at, part.to - part.from, op->in_size,
                           op->packed + at);
}

/* The weights in the order of the kernels. */
static void pack_weights(const tile_task *task)
{
    const tile_replica *self = task->self;
    const tile_op *op = task->op;
    const mst_tile_kernels *tile = self->tile;
    if (op->kind == TILE_LINEAR)
        tile_divide(tile_pack_linear, task);
    if (op->kind != TILE_CONV)
        return;
    const mst_tile_window *g = &op->window;
    const uint32_t n_out = g->c_out / g->groups, n_in = g->c_in / g->groups, taps = g->kernel_h * g->kernel_w;
    const size_t size = (size_t)n_out * n_in * taps;
    for (uint32_t i = 0; i < g->groups; i++) {
        const float *group = tile_weight_of(op, task->w) + i * size;
        tile->pack(group, n_out, (size_t)n_in * taps, op->packed + i * size);
        if (op->back && self->training)
            tile->pack_back(group, n_out, n_in, taps, op->packed_back + i * size);
    }
}

static void tile_drop(const tile_replica *self, const tile_op *op, const mst_pass *pass, uint32_t n)
{
    if (!pass->training) {
        self->tile->act_forward(MST_TILE_SAME, op->out_size, op->x, op->y);
        return;
    }
    for (uint32_t r = 0; r < n; r++)
        mst_dropout_row(op->layer, pass, r, op->out_size, self->rows + r * op->out_size);
    self->tile->to_lanes(self->rows, op->out_size, n, op->out_size, op->factors);
    self->tile->act_backward(MST_TILE_SAME, op->out_size, op->x, op->factors, op->y);
}

static void forward_plain(const tile_replica *self, const tile_op *op, const mst_pass *pass, uint32_t n,
                          const mst_weights *w)
{
    self->tile->to_rows(op->x, op->in_size, n, op->x_rows, op->in_size);
    op->layer->ops->forward(op->layer, pass->training ? op->state : NULL, pass, n, op->x_rows,
                            (float *const *)w->ranges + op->layer->first_range, op->y_rows);
    self->tile->to_lanes(op->y_rows, op->out_size, n, op->out_size, op->y);
}

/* The activation of numbers [from, to) of y, where the kernel has not applied it. */
static void tile_activate(const tile_task *task, size_t from, size_t to)
{
    const tile_op *op = task->op;
    float *y = op->y + from * task->self->tile->lanes;
    if (op->act != MST_TILE_SAME &&
        !(op->act == MST_TILE_RELU && (op->kind == TILE_CONV || op->kind == TILE_LINEAR)))
        task->self->tile->act_forward(op->act, to - from, y, y);
}

static void tile_activate_rows(const tile_task *task, mst_tile_part rows)
{
    const mst_tile_window *g = &task->op->window;
    const size_t plane = (size_t)g->h_out * g->w_out;
    for (uint32_t c = 0; c < g->c_out; c++)
        tile_activate(task, c * plane + (size_t)rows.from * g->w_out, c * plane + (size_t)rows.to * g->w_out);
}

static void forward_conv(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const mst_tile_part rows = tile_share(op->window.h_out, i, k);
    task->self->tile->conv_forward(&op->window, rows, op->x, op->packed, bias_of(op, task->w),
                                   op->act == MST_TILE_RELU, op->y);
    tile_activate_rows(task, rows);
}

static void forward_linear(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const uint32_t n_in = (uint32_t)op->in_size;
    const mst_tile_part part = tile_share_blocks(op->out_size, BLOCK, i, k);
    const float *bias = bias_of(op, task->w);
    task->self->tile->linear_forward(n_in, part.to - part.from, op->x, op->packed + (size_t)part.from * n_in,
                                     bias != NULL ? bias + part.from : NULL, op->act == MST_TILE_RELU,
                                     op->y + (size_t)part.from * task->self->tile->lanes);
    tile_activate(task, part.from, part.to);
}

static void forward_pool(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const mst_tile_part rows = tile_share(op->window.h_out, i, k);
    (op->kind == TILE_MAXPOOL ? task->self->tile->max_forward
                              : task->self->tile->average_forward)(&op->window, rows, op->x, op->y);
    tile_activate_rows(task, rows);
}

static void forward_op(const tile_task *task, const mst_pass *pass)
{
    const tile_replica *self = task->self;
    const tile_op *op = task->op;
    const uint32_t n = task->rows->n_rows;
    switch (op->kind) {
    case TILE_CONV:
        tile_divide(forward_conv, task);
        break;
    case TILE_LINEAR:
        tile_divide(forward_linear, task);
        break;
    case TILE_MAXPOOL:
    case TILE_AVGPOOL:
        tile_divide(forward_pool, task);
        break;
    case TILE_DROPOUT:
        tile_drop(self, op, pass, n);
        tile_activate(task, 0, op->out_size);
        break;
    case TILE_SAME:
        self->tile->act_forward(op->act, op->out_size, op->x, op->y);
        break;
    case TILE_PLAIN:
        forward_plain(self, op, pass, n, task->w);
        tile_activate(task, 0, op->out_size);
        break;
    }
}

static void tile_load(const tile_task *task, unsigned i, unsigned k)
{
    const mst_tile_part images = tile_share(task->rows->n_rows, i, k);
    if (images.from < images.to)
        mst_replica_load(&task->self->base, task->rows->rows + images.from, images.to - images.from,
                         task->self->rows + images.from * mst_dims_size(&task->self->base.chain->in));
}

static void tile_input(const tile_task *task, unsigned i, unsigned k)
{
    const tile_replica *self = task->self;
    const size_t in = mst_dims_size(&self->base.chain->in);
    const mst_tile_part part = tile_share_blocks(in, BLOCK, i, k);
    self->tile->to_lanes(self->rows + part.from, in, task->rows->n_rows, part.to - part.from,
                         self->input + (size_t)part.from * self->tile->lanes);
}

/* A tile's rows up to the scores, which are left in rows (n_rows, classes). The first tile of a batch waits
 * for weights. */
static mst_status forward_tile(const tile_replica *self, const mst_batch *rows, const mst_pass *pass,
                               const mst_weights *w, bool first, mst_step *step)
{
    const mst_tile_kernels *tile = self->tile;
    const tile_op *last = &self->ops[self->n_ops - 1];
    tile_task task = {.self = self, .rows = rows, .w = w};
    tile_divide(tile_load, &task);
    uint64_t start = mst_trace_now();
    tile_divide(tile_input, &task);
    mst_trace_op("to lanes", start, mst_dims_output(&self->base.chain->in, rows->n_rows));
    for (uint32_t i = 0; i < self->n_ops; i++) {
        const tile_op *op = task.op = &self->ops[i];
        for (uint32_t j = 0; first && j < op->layer->n_params; j++)
            TRY(mst_step_need(step, op->layer->first_range + j));
        start = mst_trace_now();
        if (first && (step == NULL || !step->again))
            pack_weights(&task);
        forward_op(&task, pass);
        start = mst_trace_layer(op->layer->name, "forward", start,
                                mst_dims_output(&op->layer->out, rows->n_rows));
    }
    tile->to_rows(last->y, last->out_size, rows->n_rows, self->rows, last->out_size);
    mst_trace_op("scores to rows", start, mst_trace_floats(rows->n_rows, last->out_size));
    return MST_OK;
}

static mst_status tile_forward(mst_replica *base, const mst_batch *batch, const mst_weights *w, float *scores)
{
    const tile_replica *self = (const tile_replica *)base;
    const uint32_t lanes = self->tile->lanes;
    const size_t classes = self->ops[self->n_ops - 1].out_size;
    const mst_pass pass = {0};
    for (uint32_t from = 0; from < batch->n_rows; from += lanes) {
        mst_batch rows = mst_batch_range(batch, from, lanes);
        TRY(forward_tile(self, &rows, &pass, w, from == 0, NULL));
        memcpy(scores + from * classes, self->rows, rows.n_rows * classes * sizeof *scores);
    }
    return MST_OK;
}

/* ---- backward ---- */

static size_t tile_round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static mst_tile_part tile_whole(uint32_t n)
{
    return (mst_tile_part){0, n};
}

/* Large planes in halves, whose sums are apart; others by filters. */
static void tile_conv_weights(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const mst_tile_window *g = &op->window;
    const mst_tile_kernels *tile = task->self->tile;
    const bool bias = op->layer->n_params > 1;
    const mst_tile_part units = tile_whole(tile->conv_weights_units(g));
    if (op->gw_more == NULL) {
        tile->conv_weights(g, tile_share(units.to, i, k), tile_whole(g->h_out), op->x, op->y, op->gw,
                           bias ? op->gb : NULL);
        return;
    }
    if (i == 0)
        tile->conv_weights(g, units, (mst_tile_part){0, g->h_out / 2}, op->x, op->y, op->gw,
                           bias ? op->gb : NULL);
    if (i == k - 1)
        tile->conv_weights(g, units, (mst_tile_part){g->h_out / 2, g->h_out}, op->x, op->y, op->gw_more,
                           bias ? op->gb_more : NULL);
}

/* Sums the lanes of the gradient of a convolution's weights. */
static void tile_add_lanes(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const mst_tile_kernels *tile = task->self->tile;
    const mst_tile_part part = tile_share_blocks(mst_layer_param_size(&op->layer->params[0]), BLOCK, i, k);
    const size_t at = (size_t)part.from * tile->lanes, n = part.to - part.from;
    tile->add_lanes(op->gw + at, n, task->place.fresh, task->g[0] + part.from);
    if (op->gw_more != NULL)
        tile->add_lanes(op->gw_more + at, n, false, task->g[0] + part.from);
    if (i > 0 || op->layer->n_params == 1)
        return;
    tile->add_lanes(op->gb, op->window.c_out, task->place.fresh, task->g[1]);
    if (op->gb_more != NULL)
        tile->add_lanes(op->gb_more, op->window.c_out, false, task->g[1]);
}

static void tile_conv_back(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    task->self->tile->conv_backward(&op->window, tile_share(op->window.h_in, i, k), op->y, op->packed_back,
                                    op->act_in, op->x);
}

static void backward_conv(const tile_task *task)
{
    tile_divide(tile_conv_weights, task);
    if (task->place.last)
        tile_divide(tile_add_lanes, task);
    if (task->op->back)
        tile_divide(tile_conv_back, task);
}

/* Numbers of x, as rows. */
static void tile_x_rows(const tile_task *task, unsigned i, unsigned k)
{
    const tile_replica *self = task->self;
    const mst_tile_part part = tile_share_blocks(task->op->in_size, BLOCK, i, k);
    self->tile->to_rows(task->op->x + (size_t)part.from * self->tile->lanes, part.to - part.from,
                        task->place.n, self->rows + part.from,
                        tile_round_up(task->op->in_size, self->tile->lanes));
}

/* Of the gradient of the weights, and of that of x. */
static void tile_linear_back(const tile_task *task, unsigned i, unsigned k)
{
    const tile_replica *self = task->self;
    const tile_op *op = task->op;
    const uint32_t n_in = (uint32_t)op->in_size, n_out = (uint32_t)op->out_size;
    const mst_tile_part out = tile_share_blocks(n_out, BLOCK, i, k);
    self->tile->linear_weights(
        n_in, out.to - out.from, task->place.n, self->rows, tile_round_up(n_in, self->tile->lanes),
        op->y + (size_t)out.from * self->tile->lanes, task->place.fresh && task->place.first,
        task->g[0] + (size_t)out.from * n_in, op->layer->n_params > 1 ? task->g[1] + out.from : NULL);
    if (op->back)
        self->tile->linear_backward(n_in, n_out, tile_share_blocks(n_in, BLOCK, i, k), op->y,
                                    tile_weight_of(op, task->w), op->act_in, op->x);
}

static void backward_linear(const tile_task *task)
{
    tile_divide(tile_x_rows, task);
    tile_divide(tile_linear_back, task);
}

/* Windows that overlap are one thread's. */
static void backward_pool(const tile_task *task, unsigned i, unsigned k)
{
    const tile_op *op = task->op;
    const bool exact = mst_tile_window_exact(&op->window);
    if (exact || i == 0)
        (op->kind == TILE_MAXPOOL ? task->self->tile->max_backward : task->self->tile->average_backward)(
            &op->window, tile_share(op->window.h_out, i, exact ? k : 1), op->y, op->act_in, op->x,
            task->self->scratch);
}

static void backward_plain(const tile_replica *self, const tile_op *op, const mst_pass *pass,
                           const tile_place *tile_at, const mst_weights *w, float *const *g)
{
    const mst_tile_kernels *tile = self->tile;
    const uint32_t n = tile_at->n;
    for (uint32_t j = 0; tile_at->fresh && tile_at->first && j < op->layer->n_params; j++)
        memset(g[j], 0, mst_layer_param_size(&op->layer->params[j]) * sizeof *g[j]);
    tile->to_rows(op->y, op->out_size, n, self->rows, op->out_size);
    op->layer->ops->backward(op->layer, op->state, pass, n, op->x_rows, op->y_rows, self->rows,
                             (float *const *)w->ranges + op->layer->first_range,
                             op->back ? self->more_rows : NULL, g);
    if (!op->back)
        return;
    tile->to_lanes(self->more_rows, op->in_size, n, op->in_size, self->scratch);
    tile->act_backward(op->act_in, op->in_size, self->scratch, NULL, op->x);
}

static void backward_op(const tile_task *task, const mst_pass *pass)
{
    const tile_op *op = task->op;
    if (op->kind == TILE_CONV)
        backward_conv(task);
    else if (op->kind == TILE_LINEAR)
        backward_linear(task);
    else if (op->kind == TILE_PLAIN)
        backward_plain(task->self, op, pass, &task->place, task->w, task->g);
    else if (!op->back)
        return;
    else if (op->kind == TILE_MAXPOOL || op->kind == TILE_AVGPOOL)
        tile_divide(backward_pool, task);
    else
        task->self->tile->act_backward(op->act_in, op->in_size, op->y,
                                       op->kind == TILE_DROPOUT && pass->training ? op->factors : NULL,
                                       op->x);
}

/* From d(loss)/d(scores) in rows to the gradients. */
static mst_status backward_tile(const tile_replica *self, const mst_pass *pass, const tile_place *tile_at,
                                const mst_weights *w, mst_grad *grad, mst_step *step)
{
    const uint32_t n = tile_at->n;
    const mst_tile_kernels *tile = self->tile;
    const tile_op *end = &self->ops[self->n_ops - 1];
    uint64_t start = mst_trace_now();
    tile->to_lanes(self->rows, end->out_size, n, end->out_size, self->scratch);
    tile->act_backward(end->act, end->out_size, self->scratch, NULL, end->y);
    mst_trace_op("loss to lanes", start, mst_trace_floats(n, end->out_size));
    for (uint32_t i = self->n_ops; i-- > 0;) {
        const tile_op *op = &self->ops[i];
        const mst_layer *layer = op->layer;
        tile_task task = {.self = self, .op = op, .w = w, .place = *tile_at};
        for (uint32_t j = 0; j < layer->n_params; j++)
            task.g[j] = grad->ranges[layer->first_range + j].g;
        start = mst_trace_now();
        backward_op(&task, pass);
        mst_trace_layer(layer->name, "backward", start, mst_dims_output(&layer->in, n));
        for (uint32_t j = layer->n_params; tile_at->last && j-- > 0;)
            TRY(mst_step_ready(step, layer->first_range + j));
    }
    return MST_OK;
}

static void clear_sums(const tile_replica *self)
{
    const size_t vector = self->tile->lanes * sizeof(float);
    for (uint32_t i = 0; i < self->n_ops; i++) {
        const tile_op *op = &self->ops[i];
        if (op->kind != TILE_CONV)
            continue;
        memset(op->gw, 0, mst_layer_param_size(&op->layer->params[0]) * vector);
        memset(op->gb, 0, op->layer->out.c * vector);
        if (op->gw_more == NULL)
            continue;
        memset(op->gw_more, 0, mst_layer_param_size(&op->layer->params[0]) * vector);
        memset(op->gb_more, 0, op->layer->out.c * vector);
    }
}

/* A call of train. */
typedef struct tile_train {
    const tile_replica *self;
    const mst_batch *batch;
    const mst_weights *w;
    const mst_pass *pass;
    float scale;
    mst_grad *grad;
    mst_step *step;
    mst_loss_sum *sum;
    mst_status status;
    unsigned turn; /* of the crew before it */
} tile_train;

static mst_status tile_train_batch(const tile_train *c)
{
    const tile_replica *self = c->self;
    const uint32_t lanes = self->tile->lanes;
    uint64_t start = mst_trace_now();
    clear_sums(self);
    mst_trace_op("clear", start, (mst_trace_output){0});
    for (uint32_t from = 0; from < c->batch->n_rows; from += lanes) {
        mst_batch rows = mst_batch_range(c->batch, from, lanes);
        mst_pass part = *c->pass;
        part.first_row += from;
        TRY(forward_tile(self, &rows, &part, c->w, from == 0, c->step));
        mst_replica_loss(&self->base, &rows, self->rows, c->scale, self->rows, c->sum);
        const tile_place tile_at = {.n = rows.n_rows,
                                    .first = from == 0,
                                    .last = from + rows.n_rows == c->batch->n_rows,
                                    .fresh = c->grad->fresh};
        TRY(backward_tile(self, &part, &tile_at, c->w, c->grad, c->step));
    }
    c->grad->fresh = false;
    return MST_OK;
}

static void tile_train_member(void *arg, unsigned m)
{
    tile_train *c = arg;
    tile_crew *crew = c->self->crew;
    if (m > 0) {
        tile_serve(crew, m, c->turn);
        return;
    }
    c->status = tile_train_batch(c);
    atomic_fetch_add_explicit(&crew->turn, 1, memory_order_release);
}

static mst_status tile_train_call(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                                  const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                                  mst_loss_sum *sum)
{
    tile_replica *self = (tile_replica *)base;
    tile_train c = {.self = self,
                    .batch = batch,
                    .w = w,
                    .pass = pass,
                    .scale = scale,
                    .grad = grad,
                    .step = step,
                    .sum = sum};
    tile_crew *crew = self->crew;
    if (crew == NULL)
        return tile_train_batch(&c);
    c.turn = atomic_load_explicit(&crew->turn, memory_order_relaxed) / 2 * 2 + 2;
    atomic_store_explicit(&crew->turn, c.turn, memory_order_relaxed);
    crew->train = &c;
    mst_team_run(crew->team, tile_train_member, &c);
    crew->train = NULL;
    return c.status;
}

const mst_executor mst_executor_tile = {
    .name = "tile",
    .help = "a few images at a time, side by side in vector lanes: the fastest for small nets",
    .crew = TILE_CREW,
    .overwrites = true,
    .part_rows = tile_part_rows,
    .can = tile_can,
    .suits = tile_suits,
    .open = tile_open,
    .close = tile_close,
    .train = tile_train_call,
    .forward = tile_forward,
};
