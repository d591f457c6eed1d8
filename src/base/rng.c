/* Philox streams; contract in rng.h. */
#include "base/rng.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>

void mst_rng_init(mst_rng *rng, uint64_t seed, mst_rng_purpose purpose, uint64_t index)
{
    *rng = (mst_rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, (uint32_t)purpose, (uint32_t)index, (uint32_t)(index >> 32)},
        .used = 4,
    };
}

void mst_rng_refill(mst_rng *rng)
{
    philox4x32_key_t key = {{rng->key[0], rng->key[1]}};
    philox4x32_ctr_t counter = {{rng->counter[0], rng->counter[1], rng->counter[2], rng->counter[3]}};
    philox4x32_ctr_t out = philox4x32(counter, key);
    memcpy(rng->block, out.v, sizeof rng->block);
    rng->counter[0]++;
    rng->used = 0;
}

double mst_rng_normal(mst_rng *rng)
{
    double u = 1.0 - mst_rng_uniform(rng); /* (0, 1]: the logarithm is finite */
    double v = mst_rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t mst_rng_at(uint64_t seed, mst_rng_purpose purpose, uint64_t index)
{
    mst_rng rng;
    mst_rng_init(&rng, seed, purpose, index);
    return mst_rng_u64(&rng);
}
