/* A job of matmul from its options to its result; contract in matmul.h. */
#include "matmul/matmul.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/figure.h"
#include "matmul/matmul_impl.h"
#include "tensor/dnnl_ops.h"

/* The temporary file that this process writes to, for mst_matmul_abandon. */
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
static char *g_temporary; /* guarded by g_mutex; the job's */

static void matmul_set_temporary(char *temporary)
{
    pthread_mutex_lock(&g_mutex);
    g_temporary = temporary;
    pthread_mutex_unlock(&g_mutex);
}

void mst_matmul_abandon(void)
{
    pthread_mutex_lock(&g_mutex);
    if (g_temporary != NULL)
        unlink(g_temporary);
    pthread_mutex_unlock(&g_mutex);
}

static bool matmul_is_trace(const mst_matmul *self)
{
    return self->o.what == MST_MATMUL_TRACE || self->o.what == MST_MATMUL_TRACE_BY_PRODUCT;
}

/* ---- small things the other files use ---- */

void mst_mm_progress(mst_matmul *self, double flops)
{
    self->done += flops;
    if (self->o.progress != NULL)
        self->o.progress(self->o.arg, self->done, self->total);
}

mst_status mst_mm_pages_take(mst_mm_pages *out, uint64_t bytes, const char *what)
{
    if (bytes == 0)
        return MST_OK;
    float *data = mst_pages_reserve(bytes, true);
    if (data == NULL)
        return mst_fail(MST_ENOMEM, "no memory for %s: %.1f MB; reduce it with --memory, or use more ranks",
                        what, (double)bytes * 1e-6);
    *out = (mst_mm_pages){data, bytes};
    return MST_OK;
}

static void pages_give(mst_mm_pages *pages)
{
    if (pages->data != NULL)
        mst_pages_release(pages->data, pages->size);
    *pages = (mst_mm_pages){0};
}

mst_status mst_mm_agree(mst_matmul *self, mst_status st)
{
    if (self->size == 1 || self->agreed)
        return st;
    mst_error mine = {.code = MST_OK}, *all = mst_calloc((size_t)self->size, sizeof *all);
    if (all == NULL)
        return mst_fail_memory();
    if (st != MST_OK)
        mst_error_save(&mine, st);
    mst_status gathered = self->o.mpi->ops->allgather(0, &mine, sizeof mine, all);
    for (int r = 0; r < self->size && gathered == MST_OK && st == MST_OK; r++) {
        if (all[r].code == MST_OK)
            continue;
        all[r].text[MST_ERROR_MAX - 1] = '\0';
        st = mst_fail(MST_EPEER, "rank %d: %s", r, all[r].text);
    }
    mst_free(all);
    self->agreed = gathered == MST_OK && st != MST_OK;
    return st != MST_OK ? st : gathered;
}

/* ---- set-up ---- */

/* The product may not take the place of a factor. */
static mst_status check_output(const mst_matmul_options *o, const char *factor)
{
    struct stat a, b;
    if (o->out == NULL || stat(o->out, &a) != 0 || stat(factor, &b) != 0 || a.st_dev != b.st_dev ||
        a.st_ino != b.st_ino)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "--out %s is the factor %s: name another file", o->out, factor);
}

static mst_status open_matrices(mst_matmul *self)
{
    const mst_matmul_options *o = &self->o;
    if (o->a != NULL) {
        TRY(check_output(o, o->a));
        TRY(check_output(o, o->b));
        TRY(mst_matrix_open(&self->a, o->a));
        TRY(mst_matrix_open(&self->b, o->b));
    } else {
        mst_matrix_generated(&self->a, o->m, o->k, o->seed, 0);
        mst_matrix_generated(&self->b, o->k, o->n, o->seed, 1);
    }
    if (self->a.cols != self->b.rows)
        return mst_fail(MST_EINPUT,
                        "%s is %" PRIu64 " x %" PRIu64 " and %s %" PRIu64 " x %" PRIu64
                        ": the first must have as many columns as the second has rows",
                        o->a, self->a.rows, self->a.cols, o->b, self->b.rows, self->b.cols);
    if (matmul_is_trace(self) && self->a.rows != self->b.cols)
        return mst_fail(MST_EINPUT, "the product is %" PRIu64 " x %" PRIu64 "; only a square one has a trace",
                        self->a.rows, self->b.cols);
    if (o->what != MST_MATMUL_VERIFY)
        return MST_OK;
    TRY(mst_matrix_open(&self->c, o->c));
    if (self->c.rows != self->a.rows || self->c.cols != self->b.cols)
        return mst_fail(MST_EINPUT,
                        "%s is %" PRIu64 " x %" PRIu64 ", but the product is %" PRIu64 " x %" PRIu64, o->c,
                        self->c.rows, self->c.cols, self->a.rows, self->b.cols);
    return MST_OK;
}

static mst_status matmul_check_options(const mst_matmul *self)
{
    const mst_matmul_options *o = &self->o;
    if (o->grid[0] != 0 && (uint64_t)o->grid[0] * o->grid[1] != (uint64_t)self->size)
        return mst_fail(MST_EUSAGE, "--grid %ux%u needs %" PRIu64 " ranks, but there %s %d", o->grid[0],
                        o->grid[1], (uint64_t)o->grid[0] * o->grid[1], self->size == 1 ? "is" : "are",
                        self->size);
    if (o->what == MST_MATMUL_TRACE_BY_PRODUCT && o->placement == MST_PLACEMENT_ROUND_ROBIN)
        return mst_fail(MST_EUSAGE,
                        "--placement round-robin is for products and for the direct trace; leave out "
                        "--by-product");
    return MST_OK;
}

static mst_status make_plan(mst_matmul *self)
{
    char need[MST_FIGURE_SIZE], limit[MST_FIGURE_SIZE];
    mst_matmul_plan *plan = &self->plan;
    if (!matmul_is_trace(self))
        return mst_mm_plan(self);
    TRY(mst_mm_plan_limit(self));
    mst_mm_trace_plan(self, self->o.block);
    if (plan->total > plan->limit.bytes)
        return mst_fail(MST_ENOMEM,
                        "the trace needs %s per rank for blocks of %" PRIu64
                        ", but %s leaves %s; use a smaller --block",
                        mst_figure_size(plan->total, need), plan->layout.block, plan->limit.name,
                        mst_figure_size(plan->limit.bytes, limit));
    return MST_OK;
}

mst_status mst_matmul_new(const mst_matmul_options *options, mst_matmul **out)
{
    mst_status st;
    mst_matmul *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->o = *options;
    self->a.file.fd = self->b.file.fd = self->c.file.fd = self->out.fd = -1;
    self->size = options->mpi != NULL ? options->mpi->size : 1;
    self->rank = options->mpi != NULL ? options->mpi->rank : 0;
    self->kernels = mst_mm_kernels_get(mst_isa_best());
    st = matmul_check_options(self);
    if (st == MST_OK)
        st = open_matrices(self);
    TRY_OUT(st, mst_mm_agree(self, st));
    TRY_OUT(st, make_plan(self)); /* the same on all ranks, as is its failure */
    *out = self;
    self = NULL;
out:
    mst_matmul_destroy(self);
    return st;
}

const mst_matmul_plan *mst_matmul_plan_of(const mst_matmul *self)
{
    return &self->plan;
}

void mst_matmul_destroy(mst_matmul *self)
{
    if (self == NULL)
        return;
    matmul_set_temporary(NULL);
    mst_npy_end(&self->out);
    mst_matrix_close(&self->a);
    mst_matrix_close(&self->b);
    mst_matrix_close(&self->c);
    pages_give(&self->share_a);
    pages_give(&self->share_b);
    pages_give(&self->tile);
    for (int i = 0; i < 2; i++) {
        pages_give(&self->pieces[i].buffer);
        mst_free(self->pieces[i].a);
        mst_free(self->pieces[i].b);
    }
    mst_sgemm_destroy(self->sgemm);
    mst_free(self->order);
    mst_free(self->x);
    mst_free(self->z);
    mst_free(self->d);
    mst_free(self->norms);
    mst_free(self->ranks);
    mst_free(self);
}

/* ---- the run ---- */

static mst_status take_memory(mst_matmul *self)
{
    const mst_matmul_plan *plan = &self->plan;
    TRY(mst_mm_pages_take(&self->share_a, plan->a, "A's share"));
    TRY(mst_mm_pages_take(&self->share_b, plan->b, "B's share"));
    TRY(mst_mm_pages_take(&self->tile, plan->c, "C's share"));
    self->order = mst_calloc((size_t)self->size, sizeof *self->order);
    for (int i = 0; i < 2; i++) {
        TRY(mst_mm_pages_take(&self->pieces[i].buffer, plan->buffers / 2, "the panels"));
        self->pieces[i].a = mst_calloc(plan->layout.n_rows, sizeof *self->pieces[i].a);
        self->pieces[i].b = mst_calloc(plan->layout.n_cols, sizeof *self->pieces[i].b);
        if (self->pieces[i].a == NULL || self->pieces[i].b == NULL || self->order == NULL)
            return mst_fail_memory();
    }
    if (self->o.what == MST_MATMUL_PRODUCT)
        TRY(mst_sgemm_new(self->kernels, self->o.n_threads, plan->layout.m, plan->layout.n,
                          plan->layout.block, &self->sgemm));
    return self->o.check || self->o.what == MST_MATMUL_VERIFY ? mst_mm_check_begin(self) : MST_OK;
}

/* Rank 0 creates the file and sends its name to the others. */
static mst_status open_output(mst_matmul *self)
{
    char name[4096] = "";
    uint64_t rows = self->plan.layout.m, cols = self->plan.layout.n;
    mst_status st = MST_OK;
    if (self->rank == 0) {
        st = mst_npy_create(self->o.out, rows, cols, &self->out);
        if (st == MST_OK) {
            matmul_set_temporary(self->out.temporary);
            snprintf(name, sizeof name, "%s", self->out.temporary);
        }
    }
    TRY(mst_mm_agree(self, st));
    if (self->size > 1)
        TRY(self->o.mpi->ops->broadcast(0, name, sizeof name, 0));
    name[sizeof name - 1] = '\0';
    if (self->rank != 0) {
        st = mst_npy_join(self->o.out, name, rows, cols, &self->out);
        if (st == MST_OK)
            matmul_set_temporary(self->out.temporary); /* rank 0 may die before it removes it */
    }
    return mst_mm_agree(self, st);
}

static mst_status close_output(mst_matmul *self)
{
    TRY(mst_mm_agree(self, mst_npy_sync(&self->out)));
    mst_status st = self->rank == 0 ? mst_npy_commit(&self->out) : MST_OK;
    return mst_mm_agree(self, st);
}

static mst_status run_product(mst_matmul *self, mst_matmul_result *out)
{
    bool product = self->o.what == MST_MATMUL_PRODUCT, check = self->o.check || !product;
    mst_status st = take_memory(self);
    if (st == MST_OK && product)
        st = mst_mm_fill(self);
    TRY(mst_mm_agree(self, st));
    if (product && self->o.out != NULL)
        TRY(open_output(self));
    out->fill_seconds = self->mine.fill_seconds;
    uint64_t start = mst_now_ns();
    if (product) {
        TRY(mst_mm_product(self));
        self->product_seconds = mst_seconds_since(start) - self->deliver_seconds;
    }
    if (check)
        TRY(mst_mm_check_end(self, out));
    out->check_seconds += self->deliver_seconds;
    if (product && self->o.out != NULL)
        TRY(close_output(self));
    return MST_OK;
}

/* The figures of every rank, on every rank. */
static mst_status matmul_gather(mst_matmul *self, mst_matmul_result *out)
{
    typedef struct rank_figures {
        mst_matmul_rank rank;
        double norm2, seconds, fill_seconds, check_seconds;
    } rank_figures;
    bool trace = matmul_is_trace(self);
    rank_figures mine = {.rank = self->mine, .norm2 = self->norm2, .fill_seconds = out->fill_seconds};
    mine.seconds = trace ? self->mine.seconds : self->product_seconds;
    mine.check_seconds = out->check_seconds;
    mst_status st = MST_OK;
    if (self->o.mpi != NULL)
        snprintf(mine.rank.host, sizeof mine.rank.host, "%s", self->o.mpi->host);
    else
        gethostname(mine.rank.host, sizeof mine.rank.host - 1);
    rank_figures *all = mst_calloc((size_t)self->size, sizeof *all);
    self->ranks = mst_calloc((size_t)self->size, sizeof *self->ranks);
    if (all == NULL || self->ranks == NULL) {
        mst_free(all);
        return mst_fail_memory();
    }
    all[0] = mine;
    if (self->size > 1 && self->o.mpi != NULL)
        st = self->o.mpi->ops->allgather(0, &mine, sizeof mine, all);
    double norm2 = 0;
    for (int r = 0; r < self->size; r++) {
        self->ranks[r] = all[r].rank;
        norm2 += all[r].norm2;
        out->moved += all[r].rank.sent;
        out->seconds = fmax(out->seconds, all[r].seconds);
        out->fill_seconds = fmax(out->fill_seconds, all[r].fill_seconds);
        out->check_seconds = fmax(out->check_seconds, all[r].check_seconds);
    }
    mst_free(all);
    out->norm = sqrt(norm2);
    out->n_ranks = (uint32_t)self->size;
    out->ranks = self->ranks;
    return st;
}

void mst_matmul_on_progress(mst_matmul *self, void (*progress)(void *arg, double done, double total),
                            void *arg)
{
    self->o.progress = progress;
    self->o.arg = arg;
}

bool mst_matmul_alone(const mst_matmul *self)
{
    return self->size > 1 && !self->agreed;
}

mst_status mst_matmul_run(mst_matmul *self, mst_matmul_result *out)
{
    mst_matmul_result result = {.trace = NAN, .norm = NAN};
    bool trace = matmul_is_trace(self);
    self->total = self->plan.flops / self->size;
    self->agreed = false;
    int before = mst_dnnl_enter(self->o.n_threads);
    mst_status st = trace ? mst_mm_trace(self, &result) : run_product(self, &result);
    if (trace)
        result.fill_seconds = self->mine.fill_seconds;
    if (st == MST_OK)
        st = matmul_gather(self, &result);
    mst_dnnl_leave(before);
    if (st == MST_OK)
        *out = result;
    return st;
}
