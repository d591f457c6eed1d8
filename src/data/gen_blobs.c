/* Gaussian classes in a few dimensions; contract in gen.h. Centres are drawn once per data set, rows around
 * them. */
#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "data/gen.h"

#define LIMIT       65536
#define CHUNK_WORDS (1u << 18) /* about 1 MiB */

/* Row numbers and class numbers name streams of one purpose; centres take the upper half. */
#define CENTRE_FIRST (1ull << 63)

typedef struct blobs {
    const mst_gen_blobs_options *options;
    float *centres; /* (classes, dims) */
} blobs;

static mst_status blobs_make(const void *self, uint64_t first_row, uint32_t n, mst_chunk_builder *b,
                             mst_chunk **out)
{
    const blobs *g = self;
    const mst_gen_blobs_options *o = g->options;
    for (uint32_t i = 0; i < n; i++) {
        mst_rng rng;
        mst_rng_init(&rng, o->seed, MST_RNG_GENERATE, first_row + i);
        uint32_t label = mst_rng_below(&rng, o->classes);
        const float *centre = g->centres + (size_t)label * o->dims;
        TRY(mst_chunk_builder_room(b, o->dims));
        for (uint32_t j = 0; j < o->dims; j++) {
            double x = centre[j] + mst_rng_normal(&rng);
            mst_chunk_builder_add(b, j, (float)(round(x * 1000) / 1000));
        }
        TRY(mst_chunk_builder_end_row(b, (float)label, 1.0f));
    }
    return mst_chunk_builder_pack(b, 0, n, out);
}

mst_status mst_gen_blobs(const mst_gen_blobs_options *o, mst_chunk_fn *fn, void *arg)
{
    if (o->dims < 1 || o->dims > LIMIT || o->classes < 2 || o->classes > LIMIT ||
        !(o->spread > 0 && o->spread < 1e6))
        return mst_fail(
            MST_EUSAGE,
            "gen blobs needs 1 to %d dimensions, 2 to %d classes and a spread above 0, not %u, %u and %g",
            LIMIT, LIMIT, o->dims, o->classes, o->spread);
    blobs g = {.options = o, .centres = mst_calloc((size_t)o->classes * o->dims, sizeof(float))};
    if (g.centres == NULL)
        return mst_fail_memory();
    for (uint32_t c = 0; c < o->classes; c++) {
        mst_rng rng;
        mst_rng_init(&rng, o->seed, MST_RNG_GENERATE, CENTRE_FIRST + c);
        for (uint32_t j = 0; j < o->dims; j++)
            g.centres[(size_t)c * o->dims + j] = (float)(o->spread * mst_rng_normal(&rng));
    }
    uint32_t chunk_rows = CHUNK_WORDS / (o->dims + 1);
    chunk_rows = chunk_rows < 1 ? 1 : chunk_rows > 4096 ? 4096 : chunk_rows;
    mst_status st = mst_gen_run(o->first_row, o->rows, chunk_rows, o->n_threads, blobs_make, &g, fn, arg);
    mst_free(g.centres);
    return st;
}
