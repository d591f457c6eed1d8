/* Matrices by seed or from files; contract in matrix.h. */
#include "matmul/matrix.h"

#include "tensor/dnnl_ops.h"

void mst_matrix_generated(mst_matrix *out, uint64_t rows, uint64_t cols, uint64_t seed, unsigned which)
{
    *out = (mst_matrix){.rows = rows, .cols = cols, .seed = seed, .which = which, .generated = true};
    out->file.fd = -1;
}

mst_status mst_matrix_open(mst_matrix *out, const char *path)
{
    *out = (mst_matrix){.file = {.fd = -1}};
    TRY(mst_npy_open(path, &out->file));
    out->rows = out->file.header.rows;
    out->cols = out->file.header.cols;
    return MST_OK;
}

void mst_matrix_close(mst_matrix *self)
{
    if (!self->generated)
        mst_npy_close(&self->file);
}

typedef struct fetching {
    const mst_matrix *matrix;
    const mst_mm_kernels *kernels;
    uint64_t row, col, rows, cols;
    float *out;
    unsigned n_parts;
    mst_error *errors; /* one per part */
} fetching;

#define PARTS_MAX 64

static void fetch_part(void *arg, unsigned part)
{
    fetching *f = arg;
    const mst_matrix *m = f->matrix;
    uint64_t first = f->rows * part / f->n_parts, last = f->rows * (part + 1) / f->n_parts;
    if (m->generated) {
        for (uint64_t r = first; r < last; r++)
            f->kernels->generate(m->seed, 2 * (f->row + r) + m->which, f->col, f->cols, f->out + r * f->cols);
        return;
    }
    mst_status st =
        mst_npy_read(&m->file, f->row + first, f->col, last - first, f->cols, f->out + first * f->cols);
    if (st != MST_OK)
        mst_error_save(&f->errors[part], st);
}

mst_status mst_matrix_fetch(const mst_matrix *self, const mst_mm_kernels *kernels, unsigned n_threads,
                            uint64_t row, uint64_t col, uint64_t rows, uint64_t cols, float *out)
{
    mst_error errors[PARTS_MAX];
    fetching f = {.matrix = self, .kernels = kernels, .row = row, .col = col, .rows = rows, .cols = cols};
    f.out = out;
    f.errors = errors;
    f.n_parts = n_threads < PARTS_MAX ? n_threads : PARTS_MAX;
    for (unsigned i = 0; i < f.n_parts; i++)
        errors[i].code = MST_OK;
    if (f.n_parts == 1)
        fetch_part(&f, 0);
    else
        mst_dnnl_each(f.n_parts, fetch_part, &f);
    for (unsigned i = 0; i < f.n_parts; i++)
        if (errors[i].code != MST_OK)
            return mst_error_restore(&errors[i]);
    return MST_OK;
}
