/* Counter-based random numbers (Philox4x32-10 of Random123).
 *
 * A stream is named by (seed, purpose, index) and needs no state beyond its position, so whatever a run draws
 * is a function of the seed and not of threads or order. Purposes keep streams of different uses apart. */
#ifndef MST_BASE_RNG_H
#define MST_BASE_RNG_H

#include <stdint.h>

typedef enum mst_rng_purpose {
    MST_RNG_CHUNK_ORDER = 1,
    MST_RNG_ROW_ORDER,
    MST_RNG_HOLD_OUT,
    MST_RNG_INIT,
    MST_RNG_DROPOUT,
    MST_RNG_GENERATE,
    MST_RNG_TEST,
    MST_RNG_AUGMENT,
    MST_RNG_MATRIX,
    MST_RNG_NET,
    MST_RNG_FACTORS,
    MST_RNG_TABLE,
    MST_RNG_KEEP_NEGATIVES,
} mst_rng_purpose;

typedef struct mst_rng {
    uint32_t key[2];
    uint32_t counter[4]; /* [0] runs; [1] purpose; [2..3] index */
    uint32_t block[4];
    unsigned used; /* words of block handed out */
} mst_rng;

void mst_rng_init(mst_rng *rng, uint64_t seed, mst_rng_purpose purpose, uint64_t index);

void mst_rng_refill(mst_rng *rng);

static inline uint32_t mst_rng_u32(mst_rng *rng)
{
    if (rng->used == 4)
        mst_rng_refill(rng);
    return rng->block[rng->used++];
}

static inline uint64_t mst_rng_u64(mst_rng *rng)
{
    uint64_t high = mst_rng_u32(rng);
    return high << 32 | mst_rng_u32(rng);
}

/* Uniform in [0, n), n > 0, without modulo bias beyond 2^-32 (multiply-shift). */
static inline uint32_t mst_rng_below(mst_rng *rng, uint32_t n)
{
    return (uint32_t)((uint64_t)mst_rng_u32(rng) * n >> 32);
}

/* Uniform in [0, 1). */
static inline double mst_rng_uniform(mst_rng *rng)
{
    return (double)(mst_rng_u64(rng) >> 11) * 0x1p-53;
}

double mst_rng_normal(mst_rng *rng);

/* One 64-bit number for (seed, purpose, index): no state at all. */
uint64_t mst_rng_at(uint64_t seed, mst_rng_purpose purpose, uint64_t index);

#endif
