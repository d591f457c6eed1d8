/* Nets of the fake GPU plug-in, for tests of the code around it. A step adds a thousandth of the sum of its
 * labels to every weight, and 1 to every state; every row has loss 0.5. All scores are 0, so that class 0 is
 * predicted. */
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_net.h"

extern const mst_cuda_host *mst_cuda_plugin_host;
extern const mst_cuda_net_ops mst_cuda_fake_nets;

struct mst_cuda_net {
    mst_cuda_net_spec spec;
    mst_cuda_param *params;
    float **places; /* 3 per parameter: weights, state */
    char *rows;
    float *labels;
    mst_cuda_loss loss;
};

static void fake_net_close(mst_cuda_net *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; self->places != NULL && i < 3 * self->spec.n_params; i++)
        free(self->places[i]);
    free(self->places);
    free(self->params);
    free(self->rows);
    free(self->labels);
    free(self);
}

static mst_status fake_net_open(const mst_cuda_net_spec *spec, mst_cuda_net **out)
{
    mst_cuda_net *self = calloc(1, sizeof *self);
    size_t size = (size_t)spec->in.c * spec->in.h * spec->in.w;
    bool whole = self != NULL;
    if (whole) {
        self->spec = *spec;
        self->params = calloc(spec->n_params, sizeof *self->params);
        self->places = calloc(3 * spec->n_params, sizeof *self->places);
        self->rows = malloc(spec->max_rows * size * sizeof(float));
        self->labels = malloc(2 * spec->max_rows * sizeof(float));
        whole = self->params != NULL && self->places != NULL && self->rows != NULL && self->labels != NULL;
    }
    for (uint32_t i = 0; whole && i < 3 * spec->n_params; i++)
        whole = (self->places[i] = calloc(spec->params[i / 3].size, sizeof(float))) != NULL;
    if (!whole) {
        fake_net_close(self);
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left");
    }
    memcpy(self->params, spec->params, spec->n_params * sizeof *spec->params);
    *out = self;
    return MST_OK;
}

static mst_status fake_net_write(mst_cuda_net *self, uint32_t slot, uint32_t param, const float *from)
{
    memcpy(self->places[3 * param + slot], from, self->params[param].size * sizeof *from);
    return MST_OK;
}

static mst_status fake_net_read(mst_cuda_net *self, uint32_t slot, uint32_t param, float *to)
{
    memcpy(to, self->places[3 * param + slot], self->params[param].size * sizeof *to);
    return MST_OK;
}

static mst_status fake_net_stage(mst_cuda_net *self, mst_cuda_rows *out)
{
    *out = (mst_cuda_rows){.bytes = (uint8_t *)self->rows,
                           .numbers = (float *)self->rows,
                           .labels = self->labels,
                           .weights = self->labels + self->spec.max_rows};
    return MST_OK;
}

static mst_status fake_net_step(mst_cuda_net *self, const mst_cuda_step *step)
{
    float sum = 0.0f;
    for (uint32_t r = 0; r < step->n_rows; r++) {
        sum += self->labels[r];
        self->loss.loss += 0.5;
        self->loss.weight += (double)self->labels[self->spec.max_rows + r];
        self->loss.correct += self->labels[r] == 0.0f;
    }
    for (uint32_t i = 0; i < 3 * self->spec.n_params; i++)
        for (uint64_t k = 0; k < self->params[i / 3].size; k++)
            self->places[i][k] += i % 3 == 0 ? 0.001f * sum : 1.0f;
    return MST_OK;
}

static mst_status fake_net_forward(mst_cuda_net *self, uint32_t n_rows, bool floats, float *scores)
{
    (void)floats;
    memset(scores, 0, (size_t)n_rows * self->spec.n_scores * sizeof *scores);
    return MST_OK;
}

static mst_status fake_net_losses(mst_cuda_net *self, mst_cuda_loss *out)
{
    *out = self->loss;
    self->loss = (mst_cuda_loss){0};
    return MST_OK;
}

const mst_cuda_net_ops mst_cuda_fake_nets = {
    .open = fake_net_open,
    .close = fake_net_close,
    .write = fake_net_write,
    .read = fake_net_read,
    .stage = fake_net_stage,
    .step = fake_net_step,
    .gradient = fake_net_step,
    .forward = fake_net_forward,
    .losses = fake_net_losses,
};
