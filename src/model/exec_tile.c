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
 * 4. Other threads may assist: an operation has units (rows of planes, blocks of outputs), each of which is
 * computed by one thread, in the order of one thread alone, so the bits are the same. The thread of the
 * replica takes units from the front and others from the back: the next operation finds most of its numbers
 * in the cache of the same thread. Only the sums over large planes are of two halves that are added, with one
 * thread, too.
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
#define BLOCK         16 /* rows of a matrix that are packed, and outputs that are computed together, at most */
#define UNIT_BITS     21
#define UNIT_MOST     ((1u << UNIT_BITS) - 1)

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
    mst_free(self->work);
    mst_pages_release(self->pages, self->size);
    mst_free(self);
}

static mst_status tile_open_work(tile_replica *self)
{
    self->work = mst_alloc_lines(sizeof *self->work);
    if (self->work == NULL)
        return mst_fail_memory();
    memset(self->work, 0, sizeof *self->work);
    return MST_OK;
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
        st = tile_open_work(self);
    if (st != MST_OK) {
        tile_close(&self->base);
        return st;
    }
    *out = &self->base;
    return MST_OK;
}

/* ---- work that threads divide ---- */

/* Blocks of `size`, in numbers. */
static mst_tile_part tile_numbers(mst_tile_part blocks, uint32_t size, size_t n)
{
    return (mst_tile_part){blocks.from * size, blocks.to * size < n ? blocks.to * size : (uint32_t)n};
}

static uint32_t tile_blocks(size_t n)
{
    return (uint32_t)((n + BLOCK - 1) / BLOCK);
}

static void tile_spin(unsigned i)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
    if (i % SPINS == SPINS - 1)
        sched_yield(); /* the thread that it waits for may have no core */
}

static uint64_t tile_units(uint64_t all, uint64_t front, uint64_t back)
{
    return all << 2 * UNIT_BITS | front << UNIT_BITS | back;
}

/* Takes a quarter of the units that are left, from the front or the back. */
static bool tile_take(tile_work *work, bool back, mst_tile_part *out)
{
    uint64_t now = atomic_load_explicit(&work->units, memory_order_relaxed), next;
    do {
        const uint32_t all = (uint32_t)(now >> 2 * UNIT_BITS), from = now >> UNIT_BITS & UNIT_MOST,
                       to = all - (now & UNIT_MOST), some = (to - from + 3) / 4;
        if (some == 0)
            return false;
        *out = back ? (mst_tile_part){to - some, to} : (mst_tile_part){from, from + some};
        next = now + (back ? some : (uint64_t)some << UNIT_BITS);
    } while (!atomic_compare_exchange_weak_explicit(&work->units, &now, next, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

/* Runs fn on n units. */
static void tile_divide(tile_fn *fn, const tile_task *task, uint32_t n)
{
    tile_work *work = task->self->work;
    mst_tile_part part;
    uint32_t own = 0;
    if (work == NULL || n < 2 || n > UNIT_MOST) {
        fn(task, (mst_tile_part){0, n});
        return;
    }
    work->fn = fn;
    work->task = *task;
    atomic_store_explicit(&work->done, 0, memory_order_relaxed);
    atomic_store_explicit(&work->units, tile_units(n, 0, 0), memory_order_release);
    while (tile_take(work, false, &part)) {
        fn(task, part);
        own += part.to - part.from;
    }
    for (unsigned i = 0; atomic_load_explicit(&work->done, memory_order_acquire) != n - own; i++)
        tile_spin(i);
}

static bool tile_assist(mst_replica *base)
{
    tile_work *work = ((tile_replica *)base)->work;
    mst_tile_part part;
    if (work == NULL || !tile_take(work, true, &part))
        return false;
    work->fn(&work->task, part);
    atomic_fetch_add_explicit(&work->done, part.to - part.from, memory_order_release);
    return true;
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

/* Blocks of the matrix of a fully connected layer. */
static void tile_pack_linear(const tile_task *task, mst_tile_part blocks)
{
    const tile_op *op = task->op;
    const mst_tile_part part = tile_numbers(blocks, BLOCK, op->layer->out.c);
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
        tile_divide(tile_pack_linear, task, tile_blocks(op->layer->out.c));
    if (op->kind != TILE_CONV)
        return;
    const mst_tile_window *g = &op->window;
    const uint32_t n_out = g->c_out / g->groups, n_in = g->c_in / g->groups, taps = g->kernel_h * g->kernel_w;
    const size_t size = (size_t)n_out * n_in * taps;
    for (uint32_t i = 0; i < g->groups; i++) {
        const float *group = tile_weight_of(op, task->w) + i * size;
        tile->pack_filters(group, n_out, (size_t)n_in * taps, op->packed + i * size);
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

static void forward_conv(const tile_task *task, mst_tile_part rows)
{
    const tile_op *op = task->op;
    task->self->tile->conv_forward(&op->window, rows, op->x, op->packed, bias_of(op, task->w),
                                   op->act == MST_TILE_RELU, op->y);
    tile_activate_rows(task, rows);
}

static void forward_linear(const tile_task *task, mst_tile_part blocks)
{
    const tile_op *op = task->op;
    const uint32_t n_in = (uint32_t)op->in_size;
    const mst_tile_part part = tile_numbers(blocks, BLOCK, op->out_size);
    const float *bias = bias_of(op, task->w);
    task->self->tile->linear_forward(n_in, part.to - part.from, op->x, op->packed + (size_t)part.from * n_in,
                                     bias != NULL ? bias + part.from : NULL, op->act == MST_TILE_RELU,
                                     op->y + (size_t)part.from * task->self->tile->lanes);
    tile_activate(task, part.from, part.to);
}

static void forward_pool(const tile_task *task, mst_tile_part rows)
{
    const tile_op *op = task->op;
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
        tile_divide(forward_conv, task, op->window.h_out);
        break;
    case TILE_LINEAR:
        tile_divide(forward_linear, task, tile_blocks(op->out_size));
        break;
    case TILE_MAXPOOL:
    case TILE_AVGPOOL:
        tile_divide(forward_pool, task, op->window.h_out);
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

static void tile_load(const tile_task *task, mst_tile_part images)
{
    if (images.from < images.to)
        mst_replica_load(&task->self->base, task->rows->rows + images.from, images.to - images.from,
                         task->self->rows + images.from * mst_dims_size(&task->self->base.chain->in));
}

static void tile_input(const tile_task *task, mst_tile_part blocks)
{
    const tile_replica *self = task->self;
    const size_t in = mst_dims_size(&self->base.chain->in);
    const mst_tile_part part = tile_numbers(blocks, BLOCK, in);
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
    tile_divide(tile_load, &task, rows->n_rows);
    uint64_t start = mst_trace_now();
    tile_divide(tile_input, &task, tile_blocks(mst_dims_size(&self->base.chain->in)));
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

/* Large planes in halves, whose sums are apart; others by filters. */
static void tile_conv_weights(const tile_task *task, mst_tile_part units)
{
    const tile_op *op = task->op;
    const mst_tile_window *g = &op->window;
    const mst_tile_kernels *tile = task->self->tile;
    const bool bias = op->layer->n_params > 1;
    if (op->gw_more == NULL) {
        tile->conv_weights(g, units, (mst_tile_part){0, g->h_out}, op->x, op->y, op->gw,
                           bias ? op->gb : NULL);
        return;
    }
    const mst_tile_part all = {0, tile->conv_weights_units(g)};
    for (uint32_t half = units.from; half < units.to; half++)
        tile->conv_weights(g, all, (mst_tile_part){g->h_out * half / 2, g->h_out * (half + 1) / 2}, op->x,
                           op->y, half == 0 ? op->gw : op->gw_more,
                           !bias       ? NULL
                           : half == 0 ? op->gb
                                       : op->gb_more);
}

/* Sums the lanes of the gradient of a convolution's weights. */
static void tile_add_lanes(const tile_task *task, mst_tile_part blocks)
{
    const tile_op *op = task->op;
    const mst_tile_kernels *tile = task->self->tile;
    const mst_tile_part part = tile_numbers(blocks, BLOCK, mst_layer_param_size(&op->layer->params[0]));
    const size_t at = (size_t)part.from * tile->lanes, n = part.to - part.from;
    tile->add_lanes(op->gw + at, n, task->place.fresh, task->g[0] + part.from);
    if (op->gw_more != NULL)
        tile->add_lanes(op->gw_more + at, n, false, task->g[0] + part.from);
    if (blocks.from > 0 || op->layer->n_params == 1)
        return;
    tile->add_lanes(op->gb, op->window.c_out, task->place.fresh, task->g[1]);
    if (op->gb_more != NULL)
        tile->add_lanes(op->gb_more, op->window.c_out, false, task->g[1]);
}

static void tile_conv_back(const tile_task *task, mst_tile_part rows)
{
    const tile_op *op = task->op;
    task->self->tile->conv_backward(&op->window, rows, op->y, op->packed_back, op->act_in, op->x);
}

static void backward_conv(const tile_task *task)
{
    const tile_op *op = task->op;
    tile_divide(tile_conv_weights, task,
                op->gw_more != NULL ? 2 : task->self->tile->conv_weights_units(&op->window));
    if (task->place.last)
        tile_divide(tile_add_lanes, task, tile_blocks(mst_layer_param_size(&op->layer->params[0])));
    if (op->back)
        tile_divide(tile_conv_back, task, op->window.h_in);
}

/* Numbers of x, as rows. */
static void tile_x_rows(const tile_task *task, mst_tile_part blocks)
{
    const tile_replica *self = task->self;
    const mst_tile_part part = tile_numbers(blocks, BLOCK, task->op->in_size);
    self->tile->to_rows(task->op->x + (size_t)part.from * self->tile->lanes, part.to - part.from,
                        task->place.n, self->rows + part.from,
                        tile_round_up(task->op->in_size, self->tile->lanes));
}

/* Of the gradient of the weights, by blocks of outputs. */
static void tile_linear_weights(const tile_task *task, mst_tile_part blocks)
{
    const tile_replica *self = task->self;
    const tile_op *op = task->op;
    const uint32_t n_in = (uint32_t)op->in_size;
    const mst_tile_part out = tile_numbers(blocks, BLOCK, op->out_size);
    self->tile->linear_weights(
        n_in, out.to - out.from, task->place.n, self->rows, tile_round_up(n_in, self->tile->lanes),
        op->y + (size_t)out.from * self->tile->lanes, task->place.fresh && task->place.first,
        task->g[0] + (size_t)out.from * n_in, op->layer->n_params > 1 ? task->g[1] + out.from : NULL);
}

/* Of the gradient of x, by blocks of inputs. */
static void tile_linear_back(const tile_task *task, mst_tile_part blocks)
{
    const tile_op *op = task->op;
    task->self->tile->linear_backward((uint32_t)op->in_size, (uint32_t)op->out_size,
                                      tile_numbers(blocks, BLOCK, op->in_size), op->y,
                                      tile_weight_of(op, task->w), op->act_in, op->x);
}

/* Blocks of outputs, then those of inputs. */
static void tile_linear_both(const tile_task *task, mst_tile_part units)
{
    const uint32_t n_out = tile_blocks(task->op->out_size);
    if (units.from < n_out)
        tile_linear_weights(task, (mst_tile_part){units.from, units.to < n_out ? units.to : n_out});
    if (units.to > n_out)
        tile_linear_back(task,
                         (mst_tile_part){units.from > n_out ? units.from - n_out : 0, units.to - n_out});
}

static void backward_linear(const tile_task *task)
{
    const tile_op *op = task->op;
    tile_divide(tile_x_rows, task, tile_blocks(op->in_size));
    tile_divide(tile_linear_both, task,
                tile_blocks(op->out_size) + (op->back ? tile_blocks(op->in_size) : 0));
}

/* Rows; windows that overlap are one unit. */
static void backward_pool(const tile_task *task, mst_tile_part units)
{
    const tile_op *op = task->op;
    const mst_tile_part rows =
        mst_tile_window_exact(&op->window) ? units : (mst_tile_part){0, op->window.h_out};
    (op->kind == TILE_MAXPOOL ? task->self->tile->max_backward : task->self->tile->average_backward)(
        &op->window, rows, op->y, op->act_in, op->x, task->self->scratch);
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
        tile_divide(backward_pool, task, mst_tile_window_exact(&op->window) ? op->window.h_out : 1);
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

static mst_status tile_train(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                             const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                             mst_loss_sum *sum)
{
    const tile_replica *self = (const tile_replica *)base;
    const uint32_t lanes = self->tile->lanes;
    uint64_t start = mst_trace_now();
    clear_sums(self);
    mst_trace_op("clear", start, (mst_trace_output){0});
    for (uint32_t from = 0; from < batch->n_rows; from += lanes) {
        mst_batch rows = mst_batch_range(batch, from, lanes);
        mst_pass part = *pass;
        part.first_row += from;
        TRY(forward_tile(self, &rows, &part, w, from == 0, step));
        mst_replica_loss(&self->base, &rows, self->rows, scale, self->rows, sum);
        const tile_place tile_at = {.n = rows.n_rows,
                                    .first = from == 0,
                                    .last = from + rows.n_rows == batch->n_rows,
                                    .fresh = grad->fresh};
        TRY(backward_tile(self, &part, &tile_at, w, grad, step));
    }
    grad->fresh = false;
    return MST_OK;
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
    .train = tile_train,
    .assist = tile_assist,
    .forward = tile_forward,
};
