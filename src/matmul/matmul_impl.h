/* Shared by the files of matmul: the state of a job on one rank. */
#ifndef MST_MATMUL_MATMUL_IMPL_H
#define MST_MATMUL_MATMUL_IMPL_H

#include "base/alloc.h"
#include "matmul/matmul.h"
#include "matmul/matrix.h"
#include "matmul/sgemm.h"

#define WAIT_S                 3600 /* for one message of another rank: it may be multiplying meanwhile */
#define CHILDREN_MAX           16   /* of a rank in a tree: 2^16 ranks */
#define TILE_BYTES(rows, cols) ((uint64_t)(rows) * (uint64_t)(cols) * sizeof(float))

/* Pages that are given back as they were taken. */
typedef struct mst_mm_pages {
    float *data;
    uint64_t size;
} mst_mm_pages;

/* A piece of a panel on its way down the tree of those that need it. requests[0]: its arrival here. */
typedef struct mst_mm_piece {
    bool mine;   /* it is needed or owned here in this step */
    bool here;   /* data is complete */
    float *data; /* rows x cols */
    uint64_t rows, cols;
    uint32_t n_children;
    int children[CHILDREN_MAX];
    mst_mpi_request requests[CHILDREN_MAX + 1];
} mst_mm_piece;

/* The pieces of one step; there are two, so that the next step's travel while this one's are multiplied. */
typedef struct mst_mm_pieces {
    mst_mm_piece *a, *b; /* layout.n_rows, layout.n_cols */
    mst_mm_pages buffer;
    int tag;
} mst_mm_pieces;

struct mst_matmul {
    mst_matmul_options o;
    mst_matmul_plan plan;
    int rank, size;
    const mst_mm_kernels *kernels;
    mst_sgemm *sgemm;   /* of a product, or of a trace by one */
    mst_matrix a, b, c; /* c: to verify */
    mst_npy_out out;
    mst_mm_pages share_a, share_b, tile;
    mst_mm_pieces pieces[2];
    uint32_t *order;           /* scratch of size ranks: those that need a piece, owner first */
    double *x, *z, *d, *norms; /* the check: n, k and m rows of LANES; A's rows' squares and B's (m + 1) */
    double done, total;        /* operations of this rank, for progress */
    bool agreed;               /* on a failure, by all ranks */
    mst_matmul_rank mine;
    mst_matmul_rank *ranks;
    double norm2;                            /* squares of C here */
    uint64_t batch;                          /* pairs of blocks of a trace in memory at a time */
    double trace;                            /* summed here */
    double product_seconds, deliver_seconds; /* by the clock; of that, checking and writing C's parts */
};

/* memory_plan.c: the limit of this process, and the plan that fits in it on all ranks. */
mst_status mst_mm_plan_limit(mst_matmul *self); /* the smallest limit among the ranks into the plan */
mst_status mst_mm_plan(mst_matmul *self);

/* move.c */
mst_status mst_mm_start_step(mst_matmul *self, mst_mm_pieces *pieces, uint32_t step, uint32_t row_pass,
                             uint32_t col_pass, uint32_t panel);
mst_status mst_mm_poll(mst_matmul *self, mst_mm_pieces *pieces, bool *arrived, bool *done);
mst_status mst_mm_arrive(mst_matmul *self, mst_mm_pieces *pieces); /* waits for its data */
mst_status mst_mm_finish(mst_matmul *self,
                         mst_mm_pieces *pieces); /* waits until nothing of it is under way */
/* Waits for n requests; `what` names them in messages. */
mst_status mst_mm_wait(mst_matmul *self, uint32_t n, mst_mpi_request *requests, const char *what);
mst_status mst_mm_stopped(const mst_matmul *self);

/* A's piece (i, panel) of this rank's share, when it is kept in memory; likewise B's. */
float *mst_mm_kept_a(const mst_matmul *self, uint32_t i, uint32_t panel);
float *mst_mm_kept_b(const mst_matmul *self, uint32_t panel, uint32_t j);

/* product.c, check.c, trace.c */
mst_status mst_mm_fill(mst_matmul *self);    /* what is kept */
mst_status mst_mm_product(mst_matmul *self); /* also adds C's part of the check, and writes C */
mst_status mst_mm_check_begin(mst_matmul *self);
void mst_mm_check_c(mst_matmul *self, const float *c, uint64_t row, uint64_t col, uint64_t rows,
                    uint64_t cols);
mst_status mst_mm_check_end(mst_matmul *self, mst_matmul_result *out);
mst_status mst_mm_trace(mst_matmul *self, mst_matmul_result *out);
void mst_mm_trace_plan(mst_matmul *self, uint64_t block);

/* matmul.c */
void mst_mm_progress(mst_matmul *self, double flops);
mst_status mst_mm_pages_take(mst_mm_pages *out, uint64_t bytes, const char *what);
/* All ranks: MST_OK when all were given MST_OK. After a common failure there is no further agreement. */
mst_status mst_mm_agree(mst_matmul *self, mst_status st);

#endif
