/* Runs a generator on several threads and passes its chunks on in order; contract in gen.h. */
#include "data/gen.h"

#include "data/chunk_ring.h"

typedef struct gen_run {
    uint64_t first_row, rows;
    uint32_t chunk_rows;
    mst_gen_make *make;
    const void *self;
    mst_chunk_fn *fn;
    void *arg;
} gen_run;

static mst_status gen_make(void *arg, uint64_t number, mst_raw_block *block, mst_chunk_builder *builder,
                           mst_chunk **out)
{
    const gen_run *r = arg;
    uint64_t at = number * r->chunk_rows, left = r->rows - at;
    (void)block;
    mst_chunk_builder_clear(builder);
    return r->make(r->self, r->first_row + at, left < r->chunk_rows ? (uint32_t)left : r->chunk_rows, builder,
                   out);
}

static mst_status gen_pass_on(void *arg, uint64_t row, mst_chunk *chunk)
{
    const gen_run *r = arg;
    return r->fn(r->arg, r->first_row + row, chunk);
}

mst_status mst_gen_run(uint64_t first_row, uint64_t rows, uint32_t chunk_rows, unsigned n_threads,
                       mst_gen_make *make, const void *self, mst_chunk_fn *fn, void *arg)
{
    gen_run r = {.first_row = first_row,
                 .rows = rows,
                 .chunk_rows = chunk_rows,
                 .make = make,
                 .self = self,
                 .fn = fn,
                 .arg = arg};
    mst_chunk_maker maker = {.make = gen_make, .arg = &r};
    if (rows > UINT64_MAX - first_row)
        return mst_fail(MST_EUSAGE, "--first-row %llu plus %llu rows exceeds the largest row number",
                        (unsigned long long)first_row, (unsigned long long)rows);
    return mst_chunks_each(&maker, "generated rows", n_threads, rows / chunk_rows + (rows % chunk_rows != 0),
                           gen_pass_on, &r);
}
