/* oneDNN 2.x behind dnnl_ops.h.
 *
 * Every operation is made the same way: a descriptor, a primitive descriptor with scratch memory supplied by
 * us, the primitive, and one memory object per argument with the layout that the descriptor reports. Memory
 * objects have no buffer; binding sets their pointer. */
#include "tensor/dnnl_ops.h"

#include <string.h>

#include "base/alloc.h"
#include "base/float_mode.h"
#include "tensor/dnnl_ops_impl.h"

#if DNNL_VERSION_MAJOR != 2
#error "dnnl_ops.c is written for oneDNN 2.x"
#endif

#define PARTS_EACH 8 /* parts of a convolution for each thread, at least */

#define WINOGRAD_CHANNELS 64 /* at least; with fewer, the changes of basis cost more than they save */

static const int exec_args[] = {
    [MST_DNNL_X] = DNNL_ARG_SRC,
    [MST_DNNL_W] = DNNL_ARG_WEIGHTS,
    [MST_DNNL_B] = DNNL_ARG_BIAS,
    [MST_DNNL_Y] = DNNL_ARG_DST,
    [MST_DNNL_DX] = DNNL_ARG_DIFF_SRC,
    [MST_DNNL_DW] = DNNL_ARG_DIFF_WEIGHTS,
    [MST_DNNL_DB] = DNNL_ARG_DIFF_BIAS,
    [MST_DNNL_DY] = DNNL_ARG_DIFF_DST,
    [MST_DNNL_KEPT] = DNNL_ARG_WORKSPACE,
    [MST_DNNL_MEAN] = DNNL_ARG_MEAN,
    [MST_DNNL_VARIANCE] = DNNL_ARG_VARIANCE,
    [MST_DNNL_SCALE] = DNNL_ARG_SCALE,
    [MST_DNNL_SHIFT] = DNNL_ARG_SHIFT,
    [MST_DNNL_DSCALE] = DNNL_ARG_DIFF_SCALE,
    [MST_DNNL_DSHIFT] = DNNL_ARG_DIFF_SHIFT,
};

mst_status mst_dnnl_check(dnnl_status_t status, const char *what)
{
    static const char *const names[] = {"success",       "out of memory",  "invalid arguments",
                                        "unimplemented", "iterator ended", "runtime error",
                                        "not required"};
    if (status == dnnl_success)
        return MST_OK;
    if (status == dnnl_out_of_memory)
        return mst_fail_memory();
    return mst_fail(MST_EUNSUPPORTED, "oneDNN cannot do %s (%s); try another executor", what,
                    (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status");
}

/* ---- life ---- */

mst_status mst_dnnl_open(mst_dnnl **out)
{
    mst_status st;
    mst_dnnl *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_dnnl_check(dnnl_engine_create(&self->engine, dnnl_cpu, 0), "an engine on the CPU"));
    TRY_OUT(st, mst_dnnl_check(dnnl_stream_create(&self->stream, self->engine, dnnl_stream_in_order),
                               "a stream"));
    TRY_OUT(st, mst_dnnl_check(dnnl_primitive_attr_create(&self->attr), "attributes"));
    TRY_OUT(st, mst_dnnl_check(dnnl_primitive_attr_set_scratchpad_mode(self->attr, dnnl_scratchpad_mode_user),
                               "scratch memory of the caller's"));
    *out = self;
    self = NULL;
out:
    mst_dnnl_close(self);
    return st;
}

static void op_destroy(mst_dnnl_op *op)
{
    mst_dnnl_parts_destroy(op->parts);
    for (int i = 0; i < op->n_exec; i++)
        dnnl_memory_destroy(op->args[i].memory);
    dnnl_primitive_destroy(op->primitive);
    dnnl_primitive_desc_destroy(op->pd);
    mst_free(op);
}

void mst_dnnl_close(mst_dnnl *self)
{
    if (self == NULL)
        return;
    for (mst_dnnl_op *op = self->ops, *next; op != NULL; op = next) {
        next = op->next;
        op_destroy(op);
    }
    for (mst_dnnl_layout *layout = self->layouts, *next; layout != NULL; layout = next) {
        next = layout->next;
        mst_free(layout);
    }
    mst_free(self->scratch);
    dnnl_primitive_attr_destroy(self->attr);
    dnnl_stream_destroy(self->stream);
    dnnl_engine_destroy(self->engine);
    mst_free(self);
}

/* Forgets the operations made since `last` was the newest. */
static void drop_until(mst_dnnl *self, const mst_dnnl_op *last)
{
    while (self->ops != last) {
        mst_dnnl_op *op = self->ops;
        self->ops = op->next;
        op_destroy(op);
    }
}

/* OpenMP threads of the calling thread, itself included, that flush subnormal numbers because of
 * dnnl_set_mode. Threads that OpenMP makes later inherit the mode of the calling thread. */
static _Thread_local unsigned dnnl_flushing = 1;

static void dnnl_set_mode(unsigned n_threads, mst_float_mode mode)
{
#ifdef _OPENMP
#pragma omp parallel num_threads(n_threads)
#endif
    mst_float_mode_set(mode);
    (void)n_threads;
}

void mst_dnnl_restore_mode(void)
{
    if (dnnl_flushing > 1)
        dnnl_set_mode(dnnl_flushing, mst_float_mode_get());
    dnnl_flushing = 1;
}

int mst_dnnl_enter(unsigned n_threads)
{
    int before = omp_get_max_threads();
#ifdef __SANITIZE_THREAD__ /* which does not see how GNU's OpenMP makes its threads wait for each other */
    n_threads = 1;
#endif
    omp_set_num_threads((int)n_threads);
    if (n_threads > dnnl_flushing && mst_float_flushes()) {
        dnnl_set_mode(n_threads, mst_float_mode_get());
        dnnl_flushing = n_threads;
    }
    return before;
}

void mst_dnnl_leave(int n_threads)
{
    omp_set_num_threads(n_threads);
}

void mst_dnnl_each(unsigned n, void (*fn)(void *arg, unsigned i), void *arg)
{
#ifdef _OPENMP
#pragma omp parallel for schedule(static)
#endif
    for (unsigned i = 0; i < n; i++)
        fn(arg, i);
}

/* ---- layouts ---- */

static dnnl_memory_desc_t desc_of(int n_dims, const int64_t *dims, bool any)
{
    static const dnnl_format_tag_t plain[] = {
        dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
    dnnl_memory_desc_t md;
    dnnl_dims_t all = {0};
    for (int i = 0; i < n_dims; i++)
        all[i] = dims[i];
    dnnl_memory_desc_init_by_tag(&md, n_dims, all, dnnl_f32, any ? dnnl_format_tag_any : plain[n_dims]);
    return md;
}

mst_status mst_dnnl_plain(mst_dnnl *self, int n_dims, const int64_t *dims, const mst_dnnl_layout **out)
{
    mst_dnnl_layout *layout = mst_zalloc(sizeof *layout);
    if (layout == NULL)
        return mst_fail_memory();
    layout->md = desc_of(n_dims, dims, false);
    layout->next = self->layouts;
    self->layouts = layout;
    *out = layout;
    return MST_OK;
}

size_t mst_dnnl_layout_size(const mst_dnnl_layout *layout)
{
    return dnnl_memory_desc_get_size(&layout->md);
}

bool mst_dnnl_layout_same(const mst_dnnl_layout *a, const mst_dnnl_layout *b)
{
    return dnnl_memory_desc_equal(&a->md, &b->md) != 0;
}

/* ---- making operations ---- */

static mst_status dnnl_add_memory(mst_dnnl_op *op, int exec_arg, const dnnl_memory_desc_t *md)
{
    dnnl_memory_t memory;
    TRY(mst_dnnl_check(dnnl_memory_create(&memory, md, op->owner->engine, DNNL_MEMORY_NONE),
                       "a memory object"));
    op->args[op->n_exec].arg = exec_arg;
    op->args[op->n_exec++].memory = memory;
    return MST_OK;
}

/* Makes the operation from its descriptor pd and takes ownership of it. args: bits of mst_dnnl_arg; arguments
 * that the primitive lacks are ignored. */
static mst_status op_new(mst_dnnl *self, dnnl_primitive_desc_t pd, unsigned args, const char *what,
                         mst_dnnl_op **out)
{
    mst_status st;
    mst_dnnl_op *op = mst_zalloc(sizeof *op);
    if (op == NULL) {
        dnnl_primitive_desc_destroy(pd);
        return mst_fail_memory();
    }
    op->owner = self;
    op->pd = pd;
    TRY_OUT(st, mst_dnnl_check(dnnl_primitive_create(&op->primitive, pd), what));
    for (unsigned arg = 0; arg < sizeof exec_args / sizeof *exec_args; arg++) {
        if ((args >> arg & 1) == 0)
            continue;
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, exec_args[arg]);
        if (md == NULL || md->ndims == 0)
            continue;
        TRY_OUT(st, dnnl_add_memory(op, exec_args[arg], md));
        op->names[op->n_args] = (mst_dnnl_arg)arg;
        op->layouts[op->n_args++].md = *md;
    }
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (scratch != NULL && scratch->ndims != 0) {
        TRY_OUT(st, dnnl_add_memory(op, DNNL_ARG_SCRATCHPAD, scratch));
        op->scratch_size = dnnl_memory_desc_get_size(scratch);
    }
    op->next = self->ops;
    self->ops = op;
    *out = op;
    op = NULL;
out:
    if (op != NULL)
        op_destroy(op);
    return st;
}

/* The same, from an operation descriptor; made: whether it could be made. */
static mst_status op_from(mst_dnnl *self, dnnl_status_t made, const void *desc,
                          const_dnnl_primitive_attr_t attr, const mst_dnnl_op *hint, unsigned args,
                          const char *what, mst_dnnl_op **out)
{
    dnnl_primitive_desc_t pd;
    TRY(mst_dnnl_check(made, what));
    TRY(mst_dnnl_check(
        dnnl_primitive_desc_create(&pd, desc, attr, self->engine, hint != NULL ? hint->pd : NULL), what));
    return op_new(self, pd, args, what, out);
}

/* Attributes with the post-operation: relu or none. */
static mst_status fused_attr(const mst_dnnl *self, bool relu, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_attr_t attr = NULL;
    mst_status st;
    TRY_OUT(st, mst_dnnl_check(dnnl_primitive_attr_clone(&attr, self->attr), "attributes"));
    TRY_OUT(st, mst_dnnl_check(dnnl_post_ops_create(&ops), "a fused operation"));
    if (relu)
        TRY_OUT(st, mst_dnnl_check(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f),
                                   "a fused relu"));
    TRY_OUT(st, mst_dnnl_check(dnnl_primitive_attr_set_post_ops(attr, ops), "a fused operation"));
    *out = attr;
    attr = NULL;
out:
    dnnl_primitive_attr_destroy(attr);
    dnnl_post_ops_destroy(ops);
    return st;
}

#define BIT(arg) (1u << MST_DNNL_##arg)

static dnnl_prop_kind_t pass_of(bool training)
{
    return training ? dnnl_forward_training : dnnl_forward_inference;
}

/* A window's numbers, in arrays as long as oneDNN declares them. */
typedef struct window_dims {
    dnnl_dims_t kernel, stride, pad, pad_end;
} window_dims;

static window_dims dims_of(const mst_dnnl_window *w)
{
    window_dims d = {0};
    for (int i = 0; i < 2; i++) {
        d.kernel[i] = w->kernel[i];
        d.stride[i] = w->stride[i];
        d.pad[i] = w->pad[i];
        d.pad_end[i] = w->pad_end[i];
    }
    return d;
}

/* ---- convolution ---- */

typedef struct conv_descs {
    dnnl_memory_desc_t x, w, b, y;
    dnnl_alg_kind_t algorithm;
} conv_descs;

static dnnl_memory_desc_t dnnl_tagged(const int64_t *dims, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t all = {dims[0], dims[1], dims[2], dims[3]};
    dnnl_memory_desc_init_by_tag(&md, 4, all, dnnl_f32, tag);
    return md;
}

static conv_descs conv_with(const mst_dnnl_window *c, dnnl_format_tag_t tag, dnnl_alg_kind_t algorithm)
{
    int64_t w[] = {c->groups, c->out[0] / c->groups, c->in[0] / c->groups, c->kernel[0], c->kernel[1]};
    bool grouped = c->groups > 1;
    return (conv_descs){
        .x = dnnl_tagged((int64_t[]){c->n, c->in[0], c->in[1], c->in[2]}, tag),
        .w = desc_of(grouped ? 5 : 4, grouped ? w : w + 1, true),
        .b = desc_of(1, &c->out[0], false),
        .y = dnnl_tagged((int64_t[]){c->n, c->out[0], c->out[1], c->out[2]}, tag),
        .algorithm = algorithm,
    };
}

static mst_status dnnl_conv_forward(mst_dnnl *self, const mst_dnnl_window *c, const conv_descs *d,
                                    bool training, mst_dnnl_op **out)
{
    window_dims s = dims_of(c);
    dnnl_primitive_attr_t fused = NULL;
    dnnl_convolution_desc_t desc;
    TRY(fused_attr(self, c->relu, &fused));
    dnnl_status_t made =
        dnnl_convolution_forward_desc_init(&desc, pass_of(training), d->algorithm, &d->x, &d->w,
                                           c->bias ? &d->b : NULL, &d->y, s.stride, s.pad, s.pad_end);
    mst_status st =
        op_from(self, made, &desc, fused, NULL, BIT(X) | BIT(W) | BIT(B) | BIT(Y), "a convolution", out);
    dnnl_primitive_attr_destroy(fused);
    return st;
}

static mst_status conv_dx(mst_dnnl *self, const mst_dnnl_window *c, const conv_descs *d,
                          const mst_dnnl_op *forward, mst_dnnl_op **out)
{
    window_dims s = dims_of(c);
    dnnl_convolution_desc_t desc;
    dnnl_status_t made = dnnl_convolution_backward_data_desc_init(&desc, d->algorithm, &d->x, &d->w, &d->y,
                                                                  s.stride, s.pad, s.pad_end);
    return op_from(self, made, &desc, self->attr, forward, BIT(DX) | BIT(W) | BIT(DY),
                   "a convolution's backward pass", out);
}

static mst_status conv_dw(mst_dnnl *self, const mst_dnnl_window *c, const conv_descs *d,
                          const mst_dnnl_op *forward, mst_dnnl_op **out)
{
    window_dims s = dims_of(c);
    dnnl_convolution_desc_t desc;
    dnnl_status_t made = dnnl_convolution_backward_weights_desc_init(
        &desc, d->algorithm, &d->x, &d->w, c->bias ? &d->b : NULL, &d->y, s.stride, s.pad, s.pad_end);
    return op_from(self, made, &desc, self->attr, forward, BIT(X) | BIT(DW) | BIT(DB) | BIT(DY),
                   "a convolution's weight gradient", out);
}

/* Decided by the name of oneDNN's implementation. */
static bool dnnl_slow(const mst_dnnl_op *op)
{
    const char *name = "";
    if (op != NULL)
        dnnl_primitive_desc_query(op->pd, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) == 0;
}

static mst_status conv_try(mst_dnnl *self, const mst_dnnl_window *c, conv_descs *d, bool training,
                           bool wants_dx, mst_dnnl_conv_ops *out)
{
    *out = (mst_dnnl_conv_ops){0};
    TRY(dnnl_conv_forward(self, c, d, training, &out->forward));
    d->x = mst_dnnl_op_layout(out->forward, MST_DNNL_X)->md;
    d->y = mst_dnnl_op_layout(out->forward, MST_DNNL_Y)->md;
    if (wants_dx)
        TRY(conv_dx(self, c, d, out->forward, &out->dx));
    return training ? conv_dw(self, c, d, out->forward, &out->dw) : MST_OK;
}

static dnnl_memory_desc_t conv_images(const mst_dnnl_op *op, mst_dnnl_arg arg, int64_t n)
{
    dnnl_memory_desc_t md = mst_dnnl_op_layout(op, arg)->md;
    md.dims[0] = md.padded_dims[0] = n;
    return md;
}

/* Lets threads take images instead of shares of the work, forward and backward; the gradient of the weights
 * is a sum over images. An operation that cannot be divided stays as it is. */
static mst_status conv_divide(mst_dnnl *self, const mst_dnnl_window *c, bool training, mst_dnnl_conv_ops *ops)
{
    int threads = omp_get_max_threads();
    if (threads < DNNL_PARTS_THREADS || c->n < PARTS_EACH * threads)
        return MST_OK;
    int64_t n = c->n / (PARTS_EACH * threads);
    while (c->n % n != 0)
        n--;
    window_dims s = dims_of(c);
    dnnl_primitive_attr_t fused = NULL;
    dnnl_primitive_desc_t pd = NULL, back = NULL;
    dnnl_convolution_desc_t desc;
    conv_descs d = {.x = conv_images(ops->forward, MST_DNNL_X, n),
                    .w = mst_dnnl_op_layout(ops->forward, MST_DNNL_W)->md,
                    .b = desc_of(1, &c->out[0], false),
                    .y = conv_images(ops->forward, MST_DNNL_Y, n)};
    TRY(fused_attr(self, c->relu, &fused));
    int before = mst_dnnl_enter(1);
    if (dnnl_convolution_forward_desc_init(&desc, pass_of(training), dnnl_convolution_direct, &d.x, &d.w,
                                           c->bias ? &d.b : NULL, &d.y, s.stride, s.pad,
                                           s.pad_end) != dnnl_success ||
        dnnl_primitive_desc_create(&pd, &desc, fused, self->engine, NULL) != dnnl_success)
        pd = NULL;
    if (pd != NULL && ops->dx != NULL) {
        d.w = mst_dnnl_op_layout(ops->dx, MST_DNNL_W)->md;
        if (dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &d.x, &d.w, &d.y,
                                                     s.stride, s.pad, s.pad_end) != dnnl_success ||
            dnnl_primitive_desc_create(&back, &desc, self->attr, self->engine, pd) != dnnl_success)
            back = NULL;
    }
    if (back != NULL)
        ops->dx->parts = mst_dnnl_parts_new(ops->dx, back, n, (unsigned)threads);
    if (pd != NULL)
        ops->forward->parts = mst_dnnl_parts_new(ops->forward, pd, n, (unsigned)threads);
    mst_dnnl_leave(before);
    dnnl_primitive_attr_destroy(fused);
    return MST_OK;
}

/* Winograd's algorithm computes 4 x 4 outputs of a window of 3 x 3 with 36 multiplications instead of 144. It
 * needs whole batches to gain from that. Its sums have larger terms than those of the direct one, so that the
 * results have about one digit less. */
static bool conv_winograd(const mst_dnnl_window *c)
{
    return c->kernel[0] == 3 && c->kernel[1] == 3 && c->stride[0] == 1 && c->stride[1] == 1 &&
           c->groups == 1 && c->in[0] >= WINOGRAD_CHANNELS && c->out[0] >= WINOGRAD_CHANNELS;
}

/* If the format that the forward pass prefers makes the other passes use the reference implementation (few
 * channels, odd groups), padded channels or plain images (computed as matrix products) avoid it. */
mst_status mst_dnnl_conv(mst_dnnl *self, const mst_dnnl_window *c, bool training, bool wants_dx,
                         mst_dnnl_conv_ops *out)
{
    static const dnnl_format_tag_t tags[] = {dnnl_format_tag_any, dnnl_nChw16c, dnnl_nChw8c, dnnl_nchw};
    const int n = sizeof tags / sizeof *tags;
    for (int i = conv_winograd(c) ? -1 : 0; i < n; i++) {
        mst_dnnl_op *before = self->ops;
        conv_descs d =
            conv_with(c, tags[i < 0 ? 0 : i], i < 0 ? dnnl_convolution_winograd : dnnl_convolution_direct);
        mst_status st = conv_try(self, c, &d, training, wants_dx, out);
        if ((i < 0 && st == MST_OK) || i + 1 == n || st == MST_ENOMEM)
            return st;
        if (st == MST_OK && !dnnl_slow(out->forward) && !dnnl_slow(out->dx) && !dnnl_slow(out->dw))
            return conv_divide(self, c, training, out);
        drop_until(self, before);
    }
    return MST_OK;
}

/* ---- pooling ---- */

static dnnl_alg_kind_t pooling_of(mst_dnnl_pooling how)
{
    return how == MST_DNNL_MAX       ? dnnl_pooling_max
           : how == MST_DNNL_AVERAGE ? dnnl_pooling_avg_exclude_padding
                                     : dnnl_pooling_avg_include_padding;
}

mst_status mst_dnnl_pool(mst_dnnl *self, const mst_dnnl_window *p, mst_dnnl_pooling how, bool training,
                         const mst_dnnl_layout *x, mst_dnnl_op **out)
{
    dnnl_memory_desc_t y = desc_of(4, (int64_t[]){p->n, p->out[0], p->out[1], p->out[2]}, true);
    dnnl_pooling_desc_t desc;
    window_dims s = dims_of(p);
    dnnl_status_t made = dnnl_pooling_forward_desc_init(&desc, pass_of(training), pooling_of(how), &x->md, &y,
                                                        s.stride, s.kernel, s.pad, s.pad_end);
    return op_from(self, made, &desc, self->attr, NULL, BIT(X) | BIT(Y) | BIT(KEPT), "pooling", out);
}

mst_status mst_dnnl_pool_dx(mst_dnnl *self, const mst_dnnl_window *p, mst_dnnl_pooling how,
                            const mst_dnnl_op *forward, mst_dnnl_op **out)
{
    const mst_dnnl_layout *x = mst_dnnl_op_layout(forward, MST_DNNL_X),
                          *y = mst_dnnl_op_layout(forward, MST_DNNL_Y);
    dnnl_pooling_desc_t desc;
    window_dims s = dims_of(p);
    dnnl_status_t made = dnnl_pooling_backward_desc_init(&desc, pooling_of(how), &x->md, &y->md, s.stride,
                                                         s.kernel, s.pad, s.pad_end);
    return op_from(self, made, &desc, self->attr, forward, BIT(DX) | BIT(DY) | BIT(KEPT),
                   "pooling's backward pass", out);
}

/* ---- elementwise ---- */

static dnnl_alg_kind_t function_of(mst_dnnl_function function)
{
    return function == MST_DNNL_RELU   ? dnnl_eltwise_relu_use_dst_for_bwd
           : function == MST_DNNL_TANH ? dnnl_eltwise_tanh_use_dst_for_bwd
                                       : dnnl_eltwise_logistic_use_dst_for_bwd;
}

mst_status mst_dnnl_map(mst_dnnl *self, mst_dnnl_function function, bool training, const mst_dnnl_layout *x,
                        mst_dnnl_op **out)
{
    dnnl_eltwise_desc_t desc;
    dnnl_status_t made =
        dnnl_eltwise_forward_desc_init(&desc, pass_of(training), function_of(function), &x->md, 0.0f, 0.0f);
    return op_from(self, made, &desc, self->attr, NULL, BIT(X) | BIT(Y), "an elementwise function", out);
}

mst_status mst_dnnl_map_dx(mst_dnnl *self, mst_dnnl_function function, const mst_dnnl_op *forward,
                           mst_dnnl_op **out)
{
    const mst_dnnl_layout *y = mst_dnnl_op_layout(forward, MST_DNNL_Y);
    dnnl_eltwise_desc_t desc;
    dnnl_status_t made =
        dnnl_eltwise_backward_desc_init(&desc, function_of(function), &y->md, &y->md, 0.0f, 0.0f);
    return op_from(self, made, &desc, self->attr, forward, BIT(Y) | BIT(DX) | BIT(DY),
                   "an elementwise function's derivative", out);
}

/* ---- batch norm ---- */

mst_status mst_dnnl_norm(mst_dnnl *self, float epsilon, bool training, const mst_dnnl_layout *x,
                         mst_dnnl_op **out)
{
    dnnl_batch_normalization_desc_t desc;
    unsigned flags = dnnl_use_scale | dnnl_use_shift | (training ? 0 : dnnl_use_global_stats);
    dnnl_status_t made =
        dnnl_batch_normalization_forward_desc_init(&desc, pass_of(training), &x->md, epsilon, flags);
    return op_from(self, made, &desc, self->attr, NULL,
                   BIT(X) | BIT(Y) | BIT(MEAN) | BIT(VARIANCE) | BIT(SCALE) | BIT(SHIFT), "batch norm", out);
}

mst_status mst_dnnl_norm_dx(mst_dnnl *self, float epsilon, const mst_dnnl_op *forward, mst_dnnl_op **out)
{
    const mst_dnnl_layout *x = mst_dnnl_op_layout(forward, MST_DNNL_X);
    dnnl_batch_normalization_desc_t desc;
    dnnl_status_t made = dnnl_batch_normalization_backward_desc_init(
        &desc, dnnl_backward, &x->md, &x->md, epsilon, dnnl_use_scale | dnnl_use_shift);
    return op_from(self, made, &desc, self->attr, forward,
                   BIT(X) | BIT(DX) | BIT(DY) | BIT(MEAN) | BIT(VARIANCE) | BIT(SCALE) | BIT(SHIFT) |
                       BIT(DSCALE) | BIT(DSHIFT),
                   "batch norm's backward pass", out);
}

/* ---- local response normalisation ---- */

mst_status mst_dnnl_lrn(mst_dnnl *self, const mst_dnnl_lrn_options *o, bool training,
                        const mst_dnnl_layout *x, mst_dnnl_op **out)
{
    dnnl_lrn_desc_t desc;
    dnnl_status_t made = dnnl_lrn_forward_desc_init(&desc, pass_of(training), dnnl_lrn_across_channels,
                                                    &x->md, o->size, o->alpha, o->beta, o->k);
    return op_from(self, made, &desc, self->attr, NULL, BIT(X) | BIT(Y) | BIT(KEPT),
                   "local response normalisation", out);
}

mst_status mst_dnnl_lrn_dx(mst_dnnl *self, const mst_dnnl_lrn_options *o, const mst_dnnl_op *forward,
                           mst_dnnl_op **out)
{
    const mst_dnnl_layout *x = mst_dnnl_op_layout(forward, MST_DNNL_X);
    dnnl_lrn_desc_t desc;
    dnnl_status_t made = dnnl_lrn_backward_desc_init(&desc, dnnl_lrn_across_channels, &x->md, &x->md, o->size,
                                                     o->alpha, o->beta, o->k);
    return op_from(self, made, &desc, self->attr, forward, BIT(X) | BIT(DX) | BIT(DY) | BIT(KEPT),
                   "local response normalisation's backward pass", out);
}

/* ---- matrix products ---- */

mst_status mst_dnnl_inner(mst_dnnl *self, const mst_dnnl_product *p, mst_dnnl_op **out)
{
    dnnl_memory_desc_t x = desc_of(2, (int64_t[]){p->m, p->k}, false),
                       b = desc_of(2, (int64_t[]){1, p->n}, false),
                       y = desc_of(2, (int64_t[]){p->m, p->n}, false), w;
    dnnl_dims_t dims = {p->k, p->n};
    dnnl_primitive_attr_t fused = NULL;
    dnnl_matmul_desc_t desc;
    TRY(mst_dnnl_check(dnnl_memory_desc_init_by_tag(&w, 2, dims, dnnl_f32, dnnl_ba), "a matrix"));
    TRY(fused_attr(self, p->relu, &fused));
    dnnl_status_t made = dnnl_matmul_desc_init(&desc, &x, &w, p->bias ? &b : NULL, &y);
    mst_status st =
        op_from(self, made, &desc, fused, NULL, BIT(X) | BIT(W) | BIT(B) | BIT(Y), "a matrix product", out);
    dnnl_primitive_attr_destroy(fused);
    return st;
}

/* ---- reorder ---- */

mst_status mst_dnnl_reorder(mst_dnnl *self, const mst_dnnl_layout *x, const mst_dnnl_layout *y,
                            mst_dnnl_op **out)
{
    dnnl_primitive_desc_t pd;
    TRY(mst_dnnl_check(
        dnnl_reorder_primitive_desc_create(&pd, &x->md, self->engine, &y->md, self->engine, self->attr),
        "a change of layout"));
    return op_new(self, pd, BIT(X) | BIT(Y), "a change of layout", out);
}

/* ---- using operations ---- */

static int dnnl_find(const mst_dnnl_op *op, mst_dnnl_arg arg)
{
    for (int i = 0; i < op->n_args; i++)
        if (op->names[i] == arg)
            return i;
    return -1;
}

const mst_dnnl_layout *mst_dnnl_op_layout(const mst_dnnl_op *op, mst_dnnl_arg arg)
{
    int i = dnnl_find(op, arg);
    return i >= 0 ? &op->layouts[i] : NULL;
}

void mst_dnnl_bind(mst_dnnl_op *op, mst_dnnl_arg arg, const void *data)
{
    int i = dnnl_find(op, arg);
    void *now;
    if (i < 0)
        return;
    dnnl_memory_get_data_handle(op->args[i].memory, &now);
    if (now != data) /* setting it also clears the layout's padding */
        dnnl_memory_set_data_handle(op->args[i].memory, (void *)data);
}

mst_status mst_dnnl_scratch(mst_dnnl *self, size_t *size)
{
    size_t most = 0;
    for (const mst_dnnl_op *op = self->ops; op != NULL; op = op->next)
        most = op->scratch_size > most ? op->scratch_size : most;
    if (size != NULL)
        *size = most;
    if (most == 0)
        return MST_OK;
    self->scratch = mst_alloc_lines(most);
    if (self->scratch == NULL)
        return mst_fail(MST_ENOMEM, "no memory for %zu MB of oneDNN's scratch", most >> 20);
    for (mst_dnnl_op *op = self->ops; op != NULL; op = op->next)
        if (op->n_exec > op->n_args)
            dnnl_memory_set_data_handle(op->args[op->n_args].memory, self->scratch);
    return MST_OK;
}

mst_status mst_dnnl_run(mst_dnnl_op *op)
{
    return mst_dnnl_check(
        op->parts != NULL ? mst_dnnl_parts_run(op->parts, op)
                          : dnnl_primitive_execute(op->primitive, op->owner->stream, op->n_exec, op->args),
        "a step of a pass");
}
