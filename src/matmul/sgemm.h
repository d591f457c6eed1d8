/* The product of two matrices in memory, by blocks and by all threads.
 *
 * An object holds the packed blocks; mst_sgemm_multiply takes no memory. It runs on the threads of
 * mst_dnnl_enter and is for one caller at a time. An element of C is a sum in an order that is a function of
 * the shape and the instruction set: the number of threads does not change it. */
#ifndef MST_MATMUL_SGEMM_H
#define MST_MATMUL_SGEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "matmul/mm_kernels.h"

typedef struct mst_sgemm mst_sgemm;

/* For products up to m x n x k. *out is the caller's to destroy; set only on MST_OK; MST_ENOMEM. */
mst_status mst_sgemm_new(const mst_mm_kernels *kernels, unsigned n_threads, uint64_t m, uint64_t n,
                         uint64_t k, mst_sgemm **out);
void mst_sgemm_destroy(mst_sgemm *self); /* NULL-safe */

/* Writes a zero to every page of zeroed memory, by all threads of mst_dnnl_enter, so that no product takes
 * the page faults. */
void mst_mm_touch(unsigned n_threads, float *data, uint64_t bytes);

/* Called by the calling thread of mst_sgemm_multiply after each of its jobs (half a millisecond with
 * AVX-512), with the share of the product that is computed. False: the product stops, and c is incomplete. */
typedef bool mst_sgemm_pump(void *arg, double share);

/* c (m x n) = a (m x k) * b (k x n), or, with add, c += that. All lie row by row, without gaps. pump may be
 * NULL. */
void mst_sgemm_multiply(mst_sgemm *self, uint64_t m, uint64_t n, uint64_t k, const float *a, const float *b,
                        bool add, float *c, mst_sgemm_pump *pump, void *arg);

#endif
