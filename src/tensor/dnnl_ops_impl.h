/* Shared by the files that call oneDNN: dnnl_ops.c, dnnl_parts.c and dnnl_gemm.c. */
#ifndef MST_TENSOR_DNNL_OPS_IMPL_H
#define MST_TENSOR_DNNL_OPS_IMPL_H

#include <oneapi/dnnl/dnnl.h>
#ifdef _OPENMP
#include <omp.h>
#else /* a compiler whose OpenMP runtime differs from oneDNN's */
int omp_get_max_threads(void);
void omp_set_num_threads(int n);
#endif

#include "tensor/dnnl_ops.h"

#define DNNL_ARGS_MAX      12
#define DNNL_PARTS_THREADS 4 /* from which work is divided into parts that threads take in turn */

/* MST_OK, or an error that names the operation. */
mst_status mst_dnnl_check(dnnl_status_t status, const char *what);

struct mst_dnnl_layout {
    mst_dnnl_layout *next;
    dnnl_memory_desc_t md;
};

struct mst_dnnl_op {
    mst_dnnl_op *next;
    mst_dnnl *owner;
    dnnl_primitive_desc_t pd; /* kept: the backward descriptor takes it as a hint */
    dnnl_primitive_t primitive;
    int n_args;                             /* bound by the caller */
    int n_exec;                             /* with scratch memory */
    mst_dnnl_arg names[DNNL_ARGS_MAX];      /* n_args */
    mst_dnnl_layout layouts[DNNL_ARGS_MAX]; /* n_args; not in a list */
    dnnl_exec_arg_t args[DNNL_ARGS_MAX + 1];
    size_t scratch_size;
    struct mst_dnnl_parts *parts; /* the same in parts, which run instead; NULL: it has none */
};

struct mst_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch memory by the user */
    mst_dnnl_layout *layouts;
    mst_dnnl_op *ops;
    void *scratch;
};

/* An operation on few images at a time: the threads take one part of the batch after the other. Threads
 * inside of a primitive have fixed shares of its work, and all wait for the slowest. pd: the operation on
 * `images` images, which divides those of op; it is taken over. NULL: it cannot be divided. */
typedef struct mst_dnnl_parts mst_dnnl_parts;
mst_dnnl_parts *mst_dnnl_parts_new(mst_dnnl_op *op, dnnl_primitive_desc_t pd, int64_t images,
                                   unsigned n_threads);
void mst_dnnl_parts_destroy(mst_dnnl_parts *self); /* NULL-safe */
/* On the buffers that op is bound to. */
dnnl_status_t mst_dnnl_parts_run(mst_dnnl_parts *self, const mst_dnnl_op *op);

#endif
