/* Block matrix multiplication: C = A x B and trace(A x B) over the ranks of an MPI job, or in one process.
 *
 * mst_matmul_new opens the matrices and makes the memory plan, together with all other ranks; the caller may
 * show the plan; mst_matmul_run does the work and checks it; both are called by all ranks. Numbers are
 * float32, sums of traces and of the check are double.
 *
 * Thread: one thread, the one that uses MPI. Multiplying uses n_threads OpenMP threads.
 * Waiting: for other ranks, while none is lost (ranks/rank_monitor.h) and WAIT_S at most for a single
 * message; *stop ends it with MST_ESTOPPED.
 * Errors: MST_EUSAGE, MST_EINPUT, MST_EIO, MST_ENOMEM (the plan does not fit), MST_ESTOPPED. mst_matmul_new,
 * and mst_matmul_run where it waits for all ranks anyway, agree on failures: a rank that had none itself
 * fails with MST_EPEER and the message of the one that had. The output file appears whole or not at all. */
#ifndef MST_MATMUL_MATMUL_H
#define MST_MATMUL_MATMUL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory_limit.h"
#include "matmul/layout.h"
#include "mpi/mpi.h"

typedef enum mst_matmul_what {
    MST_MATMUL_PRODUCT,
    MST_MATMUL_TRACE,            /* the sum of A[i][j] * B[j][i]; no product is formed */
    MST_MATMUL_TRACE_BY_PRODUCT, /* the diagonal blocks of the product */
    MST_MATMUL_VERIFY,           /* is a given C the product? */
} mst_matmul_what;

typedef struct mst_matmul_options {
    mst_mpi *mpi;       /* NULL: this process alone */
    unsigned n_threads; /* of this rank */
    mst_matmul_what what;
    const char *a, *b, *c;  /* .npy files; a and b NULL: generated; c: to verify */
    uint64_t m, n, k, seed; /* generated */
    const char *out;        /* C as .npy; NULL: not kept */
    uint64_t block;         /* 0: chosen */
    uint32_t grid[2];       /* 0: chosen */
    mst_matmul_placement placement;
    uint64_t memory; /* bytes per rank; 0: as much as the system allows */
    bool check;
    const atomic_bool *stop; /* never NULL */
    /* Called by the working thread from time to time; done and total are floating-point operations of this
     * rank. NULL: not called. */
    void (*progress)(void *arg, double done, double total);
    void *arg;
    /* Test hook: element spoil - 1 of C, in C order, is made wrong after the product; 0: none. */
    uint64_t spoil;
} mst_matmul_options;

/* The memory of a rank (the largest), in bytes. */
typedef struct mst_matmul_plan {
    mst_layout layout;
    bool keeps_a, keeps_b;           /* its share is in memory; else made or read again whenever needed */
    uint32_t row_passes, col_passes; /* C is made in that many parts, one after the other */
    uint64_t a, b, c, buffers, vectors, total;
    mst_memory_limit limit;            /* the least of all ranks */
    uint64_t moved, moved_round_robin; /* bytes between ranks, foreseen */
    double flops;                      /* of all ranks */
} mst_matmul_plan;

typedef struct mst_matmul_rank {
    char host[64];
    uint64_t blocks; /* of C, or pairs of blocks of a trace */
    double flops;
    double seconds, fill_seconds, wait_seconds; /* multiplying; making or reading blocks; for other ranks */
    uint64_t sent, received;
} mst_matmul_rank;

typedef struct mst_matmul_result {
    double trace;                  /* traces */
    double norm;                   /* Frobenius norm of C */
    double fill_seconds;           /* making or reading the matrices in memory, before the clock starts */
    double seconds, check_seconds; /* of the product or the trace, by the slowest rank; of the check */
    bool checked;
    double check_share;   /* largest difference found, relative to the largest rounding error: at most 1 */
    double check_error;   /* an element of C that is wrong by more than that ... */
    double check_escapes; /* ... passes with at most this probability */
    uint64_t moved;       /* bytes between ranks, counted */
    uint32_t n_ranks;
    mst_matmul_rank *ranks; /* on every rank; freed by mst_matmul_destroy */
} mst_matmul_result;

typedef struct mst_matmul mst_matmul;

/* *out is the caller's to destroy; set only on MST_OK. The texts of options must outlive it. */
mst_status mst_matmul_new(const mst_matmul_options *options, mst_matmul **out);
const mst_matmul_plan *mst_matmul_plan_of(const mst_matmul *self);
/* Sets the progress function, as in the options. Between new and run. */
void mst_matmul_on_progress(mst_matmul *self, void (*progress)(void *arg, double done, double total),
                            void *arg);
mst_status mst_matmul_run(mst_matmul *self, mst_matmul_result *out);
/* Whether run failed on this rank alone: the others may wait for it without a deadline. */
bool mst_matmul_alone(const mst_matmul *self);
/* NULL-safe. An output file that was not finished is removed. */
void mst_matmul_destroy(mst_matmul *self);

/* The message of MST_ESTOPPED. */
extern const char mst_matmul_unfinished[];

/* Removes an output file that this process is writing to, unfinished. Any thread, for ending the process
 * while the working thread hangs. */
void mst_matmul_abandon(void);

#endif
