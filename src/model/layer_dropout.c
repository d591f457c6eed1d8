/* Dropout: in training, each unit is zero with probability rate, and the others are multiplied by 1 / (1 -
 * rate), so that inference has nothing to do.
 *
 * Which units drop is a function of (seed, step, row in the global batch, layer, unit): a batch drops the
 * same ones however it is divided among threads and workers. The stream of a row gives unit u its u-th word.
 */
#include <math.h>

#include "base/rng.h"
#include "model/layer_impl.h"

static const mst_option dropout_options[] = {
    {.name = "rate",
     .type = MST_OPTION_REAL,
     .offset = 0,
     .fallback = "0.5",
     .min = 0,
     .max = 0.999,
     .metavar = "P",
     .help = "Fraction of the units to drop."},
    {.name = NULL},
};

static uint64_t dropout_flops(const mst_layer *self)
{
    return mst_dims_size(&self->in);
}

static size_t dropout_state_size(const mst_layer *self, uint32_t n)
{
    return n * mst_dims_size(&self->in) * sizeof(float);
}

/* FNV-1a: distinguishes the layers of a net. */
static uint64_t name_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash;
}

uint64_t mst_dropout_seed(const mst_layer *self, const mst_pass *pass)
{
    return mst_rng_at(pass->seed ^ name_hash(self->name), MST_RNG_DROPOUT, pass->step);
}

void mst_dropout_row(const mst_layer *self, const mst_pass *pass, uint64_t row, uint64_t n, float *factors)
{
    const mst_dropout *dropout = (const mst_dropout *)self;
    double rate = dropout->options.rate;
    uint64_t limit = (uint64_t)(rate * 0x1p32); /* words below it drop */
    float keep = (float)(1.0 / (1.0 - rate));
    mst_rng rng;
    mst_rng_init(&rng, mst_dropout_seed(self, pass), MST_RNG_DROPOUT, pass->first_row + row);
    for (uint64_t i = 0; i < n; i++)
        factors[i] = mst_rng_u32(&rng) < limit ? 0.0f : keep;
}

static void dropout_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                            const float *x, float *const *w, float *y)
{
    size_t size = mst_dims_size(&self->in);
    float *factors = state;
    (void)w;
    for (uint32_t r = 0; r < n; r++, x += size, y += size) {
        if (pass->training)
            mst_dropout_row(self, pass, r, size, factors);
        for (size_t i = 0; i < size; i++)
            y[i] = pass->training ? x[i] * factors[i] : x[i];
        factors = pass->training ? factors + size : NULL;
    }
}

static void dropout_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                             const float *x, const float *y, const float *dy, float *const *w, float *dx,
                             float *const *g)
{
    size_t size = dx != NULL ? n * mst_dims_size(&self->in) : 0;
    const float *factors = state;
    (void)w, (void)g, (void)x, (void)y;
    for (size_t i = 0; i < size; i++)
        dx[i] = pass->training ? dy[i] * factors[i] : dy[i];
}

const mst_layer_ops mst_layer_dropout = {
    .name = "dropout",
    .help = "drops units at random in training: dropout rate=0.5",
    .size = sizeof(mst_dropout),
    .options = dropout_options,
    .options_at = offsetof(mst_dropout, options),
    .main_option = "rate",
    .shape = mst_layer_same_shape,
    .flops = dropout_flops,
    .state_size = dropout_state_size,
    .forward = dropout_forward,
    .backward = dropout_backward,
};
