/* The public interface: nets with custom layers. Only the injection of allocation failures is not public. */
#include "unit/api/api_trial.h"

#include "base/alloc.h"

static muster_status leaky_shape(const muster_layer_info *info, muster_layer_shape *out)
{
    if (info->options[0] > 1.0)
        return muster_fail(MUSTER_EINPUT, "%s: slope %g is above 1", info->name, info->options[0]);
    out->out = info->in;
    return MUSTER_OK;
}

static void leaky_forward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                          const float *x, float *const *w, float *y)
{
    size_t size = (size_t)n * info->in.c * info->in.h * info->in.w;
    (void)state;
    (void)pass;
    (void)w;
    for (size_t i = 0; i < size; i++)
        y[i] = x[i] > 0.0f ? x[i] : x[i] * (float)info->options[0];
}

static void leaky_backward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                           const float *x, const float *y, const float *dy, float *const *w, float *dx,
                           float *const *g)
{
    size_t size = (size_t)n * info->in.c * info->in.h * info->in.w;
    (void)state;
    (void)y;
    (void)w;
    (void)g;
    assert_true(pass->training);
    for (size_t i = 0; dx != NULL && i < size; i++)
        dx[i] = x[i] > 0.0f ? dy[i] : dy[i] * (float)info->options[0];
}

static const muster_layer leaky = {.kind = "leaky",
                                   .options = "slope=0.01 unused=2",
                                   .shape = leaky_shape,
                                   .forward = leaky_forward,
                                   .backward = leaky_backward};

/* Multiplies every number with one that is learned, and keeps what went in; counts batches in state. */
static muster_status gain_shape(const muster_layer_info *info, muster_layer_shape *out)
{
    out->out = info->in;
    out->n_params = 2;
    out->params[0] = (muster_layer_param){
        .name = "gain", .n_dims = 1, .dims = {1}, .init = MUSTER_INIT_CONSTANT, .scale = info->options[0]};
    out->params[1] = (muster_layer_param){
        .name = "batches", .n_dims = 1, .dims = {1}, .init = MUSTER_INIT_CONSTANT, .is_state = 1};
    return MUSTER_OK;
}

static size_t gain_state(const muster_layer_info *info, uint32_t n)
{
    return (size_t)n * info->in.c * sizeof(float);
}

static void gain_forward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                         const float *x, float *const *w, float *y)
{
    assert_true((state != NULL) == (pass->training != 0));
    if (state != NULL)
        memcpy(state, x, (size_t)n * info->in.c * sizeof *x);
    for (size_t i = 0; i < (size_t)n * info->in.c; i++)
        y[i] = x[i] * w[0][0];
}

static void gain_backward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                          const float *x, const float *y, const float *dy, float *const *w, float *dx,
                          float *const *g)
{
    (void)pass;
    (void)y;
    assert_memory_equal(state, x, (size_t)n * info->in.c * sizeof *x);
    for (size_t i = 0; i < (size_t)n * info->in.c; i++) {
        g[0][0] += dy[i] * x[i];
        if (dx != NULL)
            dx[i] = dy[i] * w[0][0];
    }
    g[1][0] = w[1][0] + 1.0f;
}

static const muster_layer gain = {.kind = "gain",
                                  .options = "start=1",
                                  .shape = gain_shape,
                                  .state_size = gain_state,
                                  .forward = gain_forward,
                                  .backward = gain_backward};

static muster_net *net_of(const char *lines)
{
    muster_net *net = NULL;
    ok(muster_net_new(&net));
    ok(muster_net_add_kind(net, &leaky));
    ok(muster_net_add_kind(net, &gain));
    ok(muster_net_add(net, lines));
    return net;
}

static void nets_are_checked(void **state)
{
    muster_dims in = {1, 8, 8};
    uint64_t n;
    muster_net *net = net_of("conv 2 kernel=3");
    muster_layer bad = leaky;
    muster_options *o = NULL;
    (void)state;
    ok(muster_net_add(net, "leaky 0.2\nlinear classes\n"));
    assert_string_equal(muster_net_text(net), "conv 2 kernel=3\nleaky 0.2\nlinear classes\n");
    ok(muster_net_check(net, in, 3, &n));
    assert_int_equal(n, 2 * 9 + 2 + 2 * 36 * 3 + 3);
    refused(muster_net_add_kind(net, &leaky), MUSTER_EUSAGE, "already");
    refused(muster_net_add_kind(net, NULL), MUSTER_EUSAGE, "no kind of layer is given");
    bad.kind = "conv";
    refused(muster_net_add_kind(net, &bad), MUSTER_EUSAGE, "already");
    bad.kind = "2x";
    refused(muster_net_add_kind(net, &bad), MUSTER_EUSAGE, "no name");
    bad.kind = "other";
    bad.options = "slope";
    refused(muster_net_add_kind(net, &bad), MUSTER_EUSAGE, "name=number");
    bad.options = NULL;
    bad.backward = NULL;
    refused(muster_net_add_kind(net, &bad), MUSTER_EUSAGE, "backward");
    ok(muster_options_new(&o));
    ok(muster_options_set_net(o, net));
    refused(muster_net_add(net, "relu"), MUSTER_EUSAGE, "cannot change");
    muster_options_free(o);
    muster_net_free(net);
    net = net_of("linear 4\nleaky slope=2\nlinear classes\n");
    refused(muster_net_check(net, in, 3, NULL), MUSTER_EINPUT, "net:2: leaky1: slope 2 is above 1");
    muster_net_free(net);
    net = net_of("linear 4\nleaky steep=2\n");
    refused(muster_net_check(net, in, 3, NULL), MUSTER_EINPUT, "its options: slope, unused");
    muster_net_free(net);
    muster_net_free(NULL);
}

static muster_model *train_net(muster_net *net, muster_options *o, muster_summary *out)
{
    muster_trainer *t = NULL;
    muster_model *m = NULL;
    muster_summary s;
    ok(muster_options_set_net(o, net));
    ok(muster_trainer_new(o, &t));
    muster_options_free(o);
    ok(muster_trainer_run(t, 0, NULL, NULL, &s));
    ok(muster_model_load(s.checkpoint, net, &m));
    if (out != NULL)
        *out = s;
    muster_trainer_free(t);
    muster_net_free(net);
    return m;
}

static void own_layers_train_as_built_in_ones(void **state)
{
    muster_reader r = dense_reader(1000);
    muster_summary s;
    (void)state;
    muster_model *a = train_net(net_of("fc1: linear 8\nrelu\nfc2: linear classes\n"),
                                prepare(&r, "built-in", "model", "net", "executor", "plain", NULL), NULL);
    muster_model *b =
        train_net(net_of("fc1: linear 8\nleaky 0\nfc2: linear classes\n"),
                  prepare(&r, "own", "model", "net", "executor", "plain", "test", "rows", NULL), &s);
    muster_model *any = train_net(net_of("fc1: linear 8\nleaky 0\nfc2: linear classes\n"),
                                  prepare(&r, "any", "model", "net", NULL), NULL);
    assert_same_weights(a, b, "fc1.weight", 0.0);
    assert_same_weights(a, b, "fc2.bias", 0.0);
    assert_same_weights(a, any, "fc1.weight", 1e-5); /* whichever executor takes it */
    muster_model_free(any);
    assert_int_equal(s.test.rows, 1000);
    muster_model *c = NULL;
    refused(muster_model_load(path_of("own"), NULL, &c), MUSTER_EINPUT, "leaky");
    muster_model_free(a);
    muster_model_free(b);
}

static void own_layers_have_parameters_and_state(void **state)
{
    muster_reader r = dense_reader(1000);
    uint64_t size;
    float p[CLASSES], dense[DENSE] = {0, 1, 0, 0, 1, 0};
    muster_row row = {.dense = dense, .n_dense = DENSE};
    (void)state;
    muster_model *m = train_net(net_of("linear 8\nmul: gain 0.5\nleaky\nlinear classes\n"),
                                prepare(&r, "gain", "model", "net", "lr", "0.2", "epochs", "4", NULL), NULL);
    const float *w = muster_model_weight(m, "mul.gain", &size);
    assert_non_null(w);
    assert_int_equal(size, 1);
    assert_true(w[0] != 0.5f);
    assert_float_equal(muster_model_weight(m, "mul.batches", NULL)[0], 400.0, 0.0);
    assert_null(muster_model_weight(m, "mul.weight", NULL));
    ok(muster_model_predict(m, &row, 1, p));
    assert_true(p[1] > 0.6f);
    muster_model *two = train_net(
        net_of("linear 8\nmul: gain 0.5\nleaky\nlinear classes\n"),
        prepare(&r, "gain-2", "model", "net", "threads", "2", "lr", "0.2", "epochs", "4", NULL), NULL);
    assert_same_weights(m, two, "mul.gain", 1e-4);
    assert_same_weights(m, two, "mul.batches", 0.0);
    assert_same_weights(m, two, "linear2.weight", 1e-3);
    muster_model_free(two);
    muster_model_free(m);
}

static void own_layers_train_through_servers(void **state)
{
    static const char lines[] = "linear 8\nmul: gain 0.5\nleaky\nlinear classes\n";
    muster_reader r = dense_reader(1000);
    (void)state;
    muster_model *a = train_net(net_of(lines), prepare(&r, "one", "model", "net", "batch", "20", NULL), NULL);
    muster_model *b = train_net(
        net_of(lines), prepare(&r, "two", "model", "net", "strategy", "ps", "workers", "2", NULL), NULL);
    assert_same_weights(a, b, "mul.gain", 1e-4);
    assert_same_weights(a, b, "mul.batches", 0.0);
    assert_same_weights(a, b, "linear1.weight", 1e-4);
    muster_model_free(a);
    muster_model_free(b);
}

#define SIDE 6

/* Class k of CLASSES is bright in rows k and k + CLASSES of the image. */
static muster_status image_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    uint32_t label = (uint32_t)(number * 7 % CLASSES);
    (void)arg;
    (void)end;
    for (uint32_t i = 0; i < SIDE * SIDE; i++)
        row->bytes[i] =
            (unsigned char)(noise(number * SIDE * SIDE + i) * 100 + (i / SIDE % CLASSES == label ? 150 : 0));
    row->label = (float)label;
    return MUSTER_OK;
}

/* Images to predict go through what training did to them: the centre, normalised. */
static void images_are_augmented_as_in_training(void **state)
{
    muster_reader r = {.n_rows = 600,
                       .n_dense = SIDE * SIDE,
                       .bytes = 1,
                       .n_classes = CLASSES,
                       .channels = 1,
                       .height = SIDE,
                       .width = SIDE,
                       .read = image_row};
    unsigned char bytes[70][SIDE * SIDE];
    muster_row rows[70];
    float p[70][CLASSES], want[CLASSES];
    int end = 0;
    (void)state;
    muster_model *m = train_net(net_of("linear classes\n"),
                                prepare(&r, "cut", "model", "net", "crop", "4x4", "mirror", "true",
                                        "normalise", "0.25/0.5", "lr", "0.1", "epochs", "3", NULL),
                                NULL);
    assert_int_equal(muster_model_features(m), SIDE * SIDE);
    const float *w = muster_model_weight(m, "linear1.weight", NULL),
                *b = muster_model_weight(m, "linear1.bias", NULL);
    for (uint32_t i = 0; i < 70; i++) {
        rows[i] = (muster_row){.bytes = bytes[i], .n_dense = SIDE * SIDE};
        ok(image_row(NULL, 1000 + i, &rows[i], &end));
    }
    ok(muster_model_predict(m, rows, 70, p[0]));
    for (uint32_t i = 0; i < 70; i++) {
        double sum = 0.0;
        for (uint32_t c = 0; c < CLASSES; c++) {
            double score = (double)b[c];
            for (uint32_t k = 0; k < 16; k++)
                score +=
                    (double)w[c * 16 + k] * (bytes[i][(1 + k / 4) * SIDE + 1 + k % 4] / 255.0 - 0.25) / 0.5;
            want[c] = (float)exp(score);
            sum += exp(score);
        }
        for (uint32_t c = 0; c < CLASSES; c++)
            assert_float_equal(p[i][c], (double)want[c] / sum, 1e-5);
    }
    rows[0].n_dense = 16;
    refused(muster_model_predict(m, rows, 1, p[0]), MUSTER_EINPUT, "trained on images of 1 x 6 x 6");
    muster_model_free(m);
}

/* With more than five classes there is a top-5 accuracy. */
static void top5_is_told(void **state)
{
    muster_reader r = dense_reader(300);
    muster_summary s;
    (void)state;
    muster_model_free(train(prepare(&r, "few", "test", "rows", NULL), 0, NULL, &s));
    assert_true(isnan(s.test.top5));
    r.n_classes = 8;
    heard h = {0};
    muster_model_free(train(prepare(&r, "many", "test", "rows", NULL), 0, &h, &s));
    assert_true(s.test.top5 >= s.test.accuracy && s.test.top5 <= 1.0);
    assert_true(h.last.top5 == s.test.top5);
}

static void options_that_change_a_net_are_refused(void **state)
{
    muster_reader r = dense_reader(100);
    static const char *const given[][2] = {{"init", "he"}, {"net", "x.net"}, {"model", "lenet"}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        muster_net *net = net_of("linear classes\n");
        muster_options *o = prepare(&r, "refused", "model", "net", given[i][0], given[i][1], NULL);
        muster_trainer *t = NULL;
        ok(muster_options_set_net(o, net));
        muster_net_free(net);
        refused(muster_trainer_new(o, &t), MUSTER_EUSAGE, given[i][0]);
        muster_options_free(o);
    }
}

static void memory_that_is_short_is_told(void **state)
{
    muster_reader r = {.n_rows = 300, .n_dense = 2, .n_features = 1000, .max_keys = 4, .n_classes = 2};
    muster_status st = MUSTER_ENOMEM;
    (void)state;
    r.read = keyed_row;
    for (uint64_t k = 1; k < 3000 && st != MUSTER_OK; k += 1 + k / 40) {
        muster_options *o = NULL;
        muster_net *net = NULL;
        muster_trainer *t = NULL;
        mst_alloc_fail_at(k);
        st = muster_options_new(&o);
        if (st == MUSTER_OK)
            st = muster_net_new(&net);
        if (st == MUSTER_OK)
            st = muster_net_add_kind(net, &leaky);
        if (st == MUSTER_OK)
            st = muster_net_add(net, "linear 4\nleaky\nlinear classes");
        if (st == MUSTER_OK)
            st = muster_options_set_net(o, net);
        if (st == MUSTER_OK)
            st = muster_options_add_reader(o, "rows", &r);
        if (st == MUSTER_OK)
            st = muster_options_add_file(o, "rows");
        if (st == MUSTER_OK)
            st = muster_trainer_new(o, &t);
        mst_alloc_fail_at(0);
        if (st != MUSTER_OK)
            assert_int_equal(st, MUSTER_ENOMEM);
        muster_trainer_free(t);
        muster_options_free(o);
        muster_net_free(net);
    }
    assert_int_equal(st, MUSTER_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nets_are_checked),
        cmocka_unit_test(own_layers_train_as_built_in_ones),
        cmocka_unit_test(own_layers_have_parameters_and_state),
        cmocka_unit_test(own_layers_train_through_servers),
        cmocka_unit_test(images_are_augmented_as_in_training),
        cmocka_unit_test(top5_is_told),
        cmocka_unit_test(options_that_change_a_net_are_refused),
        cmocka_unit_test(memory_that_is_short_is_told),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
