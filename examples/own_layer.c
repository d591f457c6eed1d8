/* A net with a custom layer, trained on custom rows: two spirals, which no straight line separates.
 *
 *   own_layer --strategy ps --workers 2 --run spirals
 *
 * The layer is swish, y = x * sigmoid(b * x), with one learned b per unit. The reader computes row i of the
 * training set from the number i, so any thread can read any row. */
#include <muster/muster.h>

#include <math.h>
#include <stdio.h>

/* ---- the layer ---- */

static muster_status swish_shape(const muster_layer_info *info, muster_layer_shape *out)
{
    if (info->options[0] <= 0.0)
        return muster_fail(MUSTER_EINPUT, "%s: b must start above 0, not at %g", info->name,
                           info->options[0]);
    out->out = info->in;
    out->n_params = 1;
    out->params[0].name = "b";
    out->params[0].n_dims = 1;
    out->params[0].dims[0] = (uint64_t)info->in.c * info->in.h * info->in.w;
    out->params[0].init = MUSTER_INIT_CONSTANT;
    out->params[0].scale = info->options[0];
    return MUSTER_OK;
}

static void swish_forward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                          const float *x, float *const *w, float *y)
{
    size_t units = (size_t)info->in.c * info->in.h * info->in.w;
    (void)state;
    (void)pass;
    for (size_t i = 0; i < n * units; i++)
        y[i] = x[i] / (1.0f + expf(-w[0][i % units] * x[i]));
}

static void swish_backward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                           const float *x, const float *y, const float *dy, float *const *w, float *dx,
                           float *const *g)
{
    size_t units = (size_t)info->in.c * info->in.h * info->in.w;
    (void)state;
    (void)pass;
    (void)y;
    for (size_t i = 0; i < n * units; i++) {
        float b = w[0][i % units], s = 1.0f / (1.0f + expf(-b * x[i])), ds = s * (1.0f - s);
        g[0][i % units] += dy[i] * x[i] * x[i] * ds;
        if (dx != NULL)
            dx[i] = dy[i] * (s + b * x[i] * ds);
    }
}

static const muster_layer swish = {
    "swish", "b=1", NULL, swish_shape, NULL, swish_forward, swish_backward,
};

/* ---- the reader ---- */

/* Computes a point of spiral number % 2. arg selects one of two disjoint sets of rows. */
static muster_status spiral_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    uint64_t h = (number * 2 + *(const unsigned *)arg) * 0x9e3779b97f4a7c15u;
    double t = (double)(h >> 40) / 16777216.0, angle = 6.0 * t + 3.14159265 * (double)(number % 2);
    (void)end;
    row->dense[0] = (float)((0.2 + t) * cos(angle));
    row->dense[1] = (float)((0.2 + t) * sin(angle));
    row->label = (float)(number % 2);
    return MUSTER_OK;
}

static muster_status add_rows(muster_options *options, const char *name, uint64_t n_rows, unsigned *which)
{
    muster_reader reader = {0};
    reader.arg = which;
    reader.n_rows = n_rows;
    reader.n_dense = 2;
    reader.n_classes = 2;
    reader.read = spiral_row;
    return muster_options_add_reader(options, name, &reader);
}

/* ---- training ---- */

static int on_progress(void *arg, const muster_progress *p)
{
    (void)arg;
    if (p->event == MUSTER_EVENT_EVALUATED)
        printf("step %llu: %s loss %.4f, accuracy %.4f\n", (unsigned long long)p->step, p->set,
               p->result.loss, p->result.accuracy);
    return p->event == MUSTER_EVENT_EVALUATED && p->result.loss < 0.01; /* good enough: stop */
}

/* Predicts two points with the saved model. */
static muster_status try_out(const char *checkpoint, muster_net *net)
{
    muster_model *model = NULL;
    float points[2][2] = {{-0.69f, 0.10f}, {0.69f, -0.10f}}, p[2][2];
    muster_row rows[2] = {{0}, {0}};
    muster_status st = muster_model_load(checkpoint, net, &model);
    for (int i = 0; i < 2; i++) {
        rows[i].dense = points[i];
        rows[i].n_dense = 2;
    }
    if (st == MUSTER_OK)
        st = muster_model_predict(model, rows, 2, p[0]);
    for (int i = 0; st == MUSTER_OK && i < 2; i++)
        printf("(%5.2f, %5.2f) is of spiral 1 with probability %.3f\n", (double)points[i][0],
               (double)points[i][1], (double)p[i][1]);
    muster_model_free(model);
    return st;
}

static muster_status define(muster_net *net, muster_options *options)
{
    static unsigned train_rows = 0, test_rows = 1;
    muster_status st = muster_net_add_kind(net, &swish);
    if (st == MUSTER_OK)
        st = muster_net_add(net, "linear 32\nswish\nlinear 32\nswish 0.5\nlinear classes\n");
    if (st == MUSTER_OK)
        st = muster_options_set_net(options, net);
    if (st == MUSTER_OK)
        st = add_rows(options, "spirals", 4000, &train_rows);
    if (st == MUSTER_OK)
        st = add_rows(options, "more-spirals", 1000, &test_rows);
    if (st == MUSTER_OK)
        st = muster_options_add_file(options, "spirals");
    if (st == MUSTER_OK)
        st = muster_options_set(options, "test", "more-spirals");
    if (st == MUSTER_OK)
        st = muster_options_set(options, "optimizer", "adam");
    if (st == MUSTER_OK)
        st = muster_options_set(options, "lr", "0.01");
    if (st == MUSTER_OK)
        st = muster_options_set(options, "epochs", "40");
    return st;
}

int main(int argc, char **argv)
{
    muster_net *net = NULL;
    muster_options *options = NULL;
    muster_trainer *trainer = NULL;
    muster_summary summary;
    muster_status st = muster_net_new(&net);
    if (st == MUSTER_OK)
        st = muster_options_new(&options);
    if (st == MUSTER_OK)
        st = define(net, options);
    if (st == MUSTER_OK)
        st = muster_options_parse(options, argc - 1, argv + 1);
    if (st == MUSTER_OK)
        st = muster_trainer_new(options, &trainer);
    if (st == MUSTER_OK)
        st = muster_trainer_run(trainer, 0, on_progress, NULL, &summary);
    if (st == MUSTER_OK && summary.has_run && summary.checkpoint[0] != '\0')
        st = try_out(summary.checkpoint, net);
    if (st != MUSTER_OK)
        fprintf(stderr, "own_layer: %s\n", muster_error_text());
    muster_trainer_free(trainer);
    muster_options_free(options);
    muster_net_free(net);
    return st == MUSTER_OK ? 0 : 1;
}
