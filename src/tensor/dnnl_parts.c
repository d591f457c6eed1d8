/* oneDNN operations in parts of a batch; contract in dnnl_ops_impl.h.
 *
 * The batch is the outermost dimension of all arrays of images, so a part is an address. Inside of a thread
 * of OpenMP, primitives run on that thread. Each thread has memory objects and scratch memory of its own. */
#include <stdatomic.h>

#include "base/alloc.h"
#include "tensor/dnnl_ops_impl.h"

typedef struct parts_lane {
    dnnl_stream_t stream;
    dnnl_exec_arg_t args[DNNL_ARGS_MAX + 1];
    int n_args;
    void *scratch;
} parts_lane;

struct mst_dnnl_parts {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    int64_t n;
    unsigned n_lanes;
    size_t step[DNNL_ARGS_MAX]; /* bytes from a part to the next; 0: all parts have the same */
    parts_lane *lanes;
};

void mst_dnnl_parts_destroy(mst_dnnl_parts *self)
{
    if (self == NULL)
        return;
    for (unsigned l = 0; self->lanes != NULL && l < self->n_lanes; l++) {
        parts_lane *lane = &self->lanes[l];
        for (int i = 0; i < lane->n_args; i++)
            dnnl_memory_destroy(lane->args[i].memory);
        dnnl_stream_destroy(lane->stream);
        mst_free(lane->scratch);
    }
    mst_free(self->lanes);
    dnnl_primitive_destroy(self->primitive);
    dnnl_primitive_desc_destroy(self->pd);
    mst_free(self);
}

static bool parts_add(const mst_dnnl_op *op, parts_lane *lane, int arg, const dnnl_memory_desc_t *md,
                      void *data)
{
    if (dnnl_memory_create(&lane->args[lane->n_args].memory, md, op->owner->engine, data) != dnnl_success)
        return false;
    lane->args[lane->n_args++].arg = arg;
    return true;
}

static bool parts_init_lane(mst_dnnl_parts *self, const mst_dnnl_op *op, parts_lane *lane)
{
    if (dnnl_stream_create(&lane->stream, op->owner->engine, dnnl_stream_in_order) != dnnl_success)
        return false;
    for (int i = 0; i < op->n_args; i++) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(self->pd, dnnl_query_exec_arg_md, op->args[i].arg);
        if (!parts_add(op, lane, op->args[i].arg, md, DNNL_MEMORY_NONE))
            return false;
    }
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(self->pd, dnnl_query_scratchpad_md, 0);
    if (scratch == NULL || scratch->ndims == 0)
        return true;
    lane->scratch = mst_alloc_lines(dnnl_memory_desc_get_size(scratch));
    return lane->scratch != NULL && parts_add(op, lane, DNNL_ARG_SCRATCHPAD, scratch, lane->scratch);
}

/* Whether an argument of the part is that of the whole with fewer images, without padding; or the same. */
static bool parts_fit(mst_dnnl_parts *self, const mst_dnnl_op *op, int i, int64_t images)
{
    const dnnl_memory_desc_t *part =
        dnnl_primitive_desc_query_md(self->pd, dnnl_query_exec_arg_md, op->args[i].arg);
    const dnnl_memory_desc_t *whole = &op->layouts[i].md;
    mst_dnnl_arg name = op->names[i];
    if (part == NULL || part->ndims != whole->ndims)
        return false;
    for (int d = 0; d < whole->ndims; d++)
        if (whole->dims[d] != whole->padded_dims[d]) /* which oneDNN clears when an address is set */
            return false;
    if (name == MST_DNNL_W || name == MST_DNNL_B)
        return dnnl_memory_desc_equal(part, whole) != 0;
    dnnl_memory_desc_t fewer = *whole;
    fewer.dims[0] = fewer.padded_dims[0] = images;
    self->step[i] = dnnl_memory_desc_get_size(part);
    return dnnl_memory_desc_equal(part, &fewer) != 0 &&
           self->step[i] * (size_t)self->n == dnnl_memory_desc_get_size(whole);
}

mst_dnnl_parts *mst_dnnl_parts_new(mst_dnnl_op *op, dnnl_primitive_desc_t pd, int64_t images,
                                   unsigned n_threads)
{
    mst_dnnl_parts *self = mst_zalloc(sizeof *self);
    if (self == NULL) {
        dnnl_primitive_desc_destroy(pd);
        return NULL;
    }
    self->pd = pd;
    self->n_lanes = n_threads;
    self->n = op->layouts[0].md.dims[0] / images;
    self->lanes = mst_calloc(n_threads, sizeof *self->lanes);
    bool made = self->lanes != NULL && dnnl_primitive_create(&self->primitive, pd) == dnnl_success;
    for (int i = 0; made && i < op->n_args; i++)
        made = parts_fit(self, op, i, images);
    for (unsigned l = 0; made && l < n_threads; l++)
        made = parts_init_lane(self, op, &self->lanes[l]);
    if (made)
        return self;
    mst_dnnl_parts_destroy(self);
    return NULL;
}

/* A run. */
typedef struct parts_run {
    const mst_dnnl_parts *self;
    char *data[DNNL_ARGS_MAX];
    int n_args;
    atomic_int_fast64_t next;
    atomic_int status;
} parts_run;

static void parts_take(void *arg, unsigned l)
{
    parts_run *run = arg;
    const mst_dnnl_parts *self = run->self;
    parts_lane *lane = &self->lanes[l];
    bool first = true;
    for (int64_t p; (p = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) < self->n;
         first = false) {
        dnnl_status_t st = dnnl_success;
        for (int i = 0; i < run->n_args && st == dnnl_success; i++)
            if (first || self->step[i] != 0)
                st = dnnl_memory_set_data_handle(lane->args[i].memory,
                                                 run->data[i] + (size_t)p * self->step[i]);
        if (st == dnnl_success)
            st = dnnl_primitive_execute(self->primitive, lane->stream, lane->n_args, lane->args);
        if (st != dnnl_success)
            atomic_store(&run->status, (int)st);
    }
}

dnnl_status_t mst_dnnl_parts_run(mst_dnnl_parts *self, const mst_dnnl_op *op)
{
    parts_run run = {.self = self, .n_args = op->n_args};
    atomic_init(&run.next, 0);
    atomic_init(&run.status, (int)dnnl_success);
    for (int i = 0; i < op->n_args; i++) {
        void *data;
        dnnl_memory_get_data_handle(op->args[i].memory, &data);
        run.data[i] = data;
    }
    mst_dnnl_each(self->n_lanes, parts_take, &run);
    return (dnnl_status_t)atomic_load(&run.status);
}
