/* Net files and chains: accepted files, inferred shapes, refused files with their errors; built-in nets;
 * initial values; nets as models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/executor.h"
#include "model/layer.h"
#include "model/model.h"

static mst_chain *parse(const char *text, mst_dims in, uint32_t n_classes)
{
    mst_chain *chain = NULL;
    if (mst_chain_parse(text, "a.net", &in, n_classes, &chain) != MST_OK)
        fail_msg("%s", mst_error_text());
    return chain;
}

static uint64_t count_params(const mst_chain *chain)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < chain->n_layers; i++)
        for (uint32_t p = 0; p < chain->layers[i]->n_params; p++) {
            uint64_t size = 1;
            for (uint32_t d = 0; d < chain->layers[i]->params[p].n_dims; d++)
                size *= chain->layers[i]->params[p].dims[d];
            n += size;
        }
    return n;
}

/* ---- reading ---- */

static void a_net_is_read(void **state)
{
    (void)state;
    mst_chain *chain = parse("# LeNet-5\n"
                             "conv1: conv 6 kernel=5 pad=2   # 6 x 28 x 28\n"
                             "relu\n"
                             "\n"
                             "avgpool kernel=2\n"
                             "\tconv 16 kernel=5\r\n"
                             "relu\n"
                             "avgpool 2\n"
                             "linear 120\n"
                             "relu\n"
                             "out: linear classes",
                             (mst_dims){1, 28, 28}, 10);
    static const char *const names[] = {"conv1",    "relu1",   "avgpool1", "conv2", "relu2",
                                        "avgpool2", "linear1", "relu3",    "out"};
    static const unsigned lines[] = {2, 3, 5, 6, 7, 8, 9, 10, 11};
    assert_int_equal(chain->n_layers, 9);
    for (uint32_t i = 0; i < 9; i++) {
        assert_string_equal(chain->layers[i]->name, names[i]);
        assert_int_equal(chain->layers[i]->line, lines[i]);
    }
    assert_int_equal(chain->in.h, 28);
    assert_int_equal(chain->layers[0]->out.h, 28);
    assert_int_equal(chain->layers[3]->out.h, 10);
    assert_int_equal(chain->layers[5]->out.w, 5);
    assert_int_equal(chain->layers[6]->in.c, 16);
    assert_int_equal(chain->layers[8]->out.c, 10);
    assert_int_equal(chain->n_ranges, 8);
    assert_int_equal(chain->layers[6]->first_range, 4);
    assert_string_equal(chain->layers[6]->params[1].name, "bias");
    mst_chain_destroy(chain);
}

static void names_do_not_collide(void **state)
{
    (void)state;
    mst_chain *chain = parse("relu2: relu\nrelu\nrelu\n", (mst_dims){5, 1, 1}, 0);
    assert_string_equal(chain->layers[0]->name, "relu2");
    assert_string_equal(chain->layers[1]->name, "relu3");
    assert_string_equal(chain->layers[2]->name, "relu4");
    mst_chain_destroy(chain);
}

static void input_lines(void **state)
{
    (void)state;
    mst_chain *chain = parse("input 3x4x5\nlinear 2\n", (mst_dims){0, 0, 0}, 0);
    assert_int_equal(chain->in.c, 3);
    assert_int_equal(chain->in.w, 5);
    mst_chain_destroy(chain);
    chain = parse("input 3x4x5\nlinear 2\n", (mst_dims){3, 4, 5}, 0); /* as the data says too */
    mst_chain_destroy(chain);
    chain =
        parse("input 1x8x8\nlinear 2\n", (mst_dims){61, 1, 1}, 0); /* rows whose last pixels are never set */
    assert_int_equal(chain->in.h, 8);
    mst_chain_destroy(chain);
    chain = parse("input 60\nlinear 2\n", (mst_dims){0, 0, 0}, 0);
    assert_int_equal(chain->in.c, 60);
    assert_int_equal(chain->in.h, 1);
    mst_chain_destroy(chain);
}

static void defaults_hold_for_what_follows(void **state)
{
    (void)state;
    mst_chain *chain = parse("linear 4\n"
                             "defaults init=normal init-scale=0.5 rate=0.1\n"
                             "linear 4\n"
                             "relu\n"
                             "linear 4 init=glorot\n",
                             (mst_dims){4, 1, 1}, 0);
    assert_int_equal(chain->layers[0]->params[0].init, MST_INIT_HE);
    assert_int_equal(chain->layers[1]->params[0].init, MST_INIT_NORMAL);
    assert_true(chain->layers[1]->params[0].init_scale == 0.5);
    assert_int_equal(chain->layers[3]->params[0].init, MST_INIT_GLOROT);
    mst_chain_destroy(chain);
}

/* ---- refusing ---- */

static const struct {
    const char *text;
    mst_dims in;
    uint32_t n_classes;
    const char *sentence;
} refused[] = {
    {"", {1, 4, 4}, 0, "a.net: a net without layers"},
    {"# only\n\n", {1, 4, 4}, 0, "a.net: a net without layers"},
    {"relu\nconvolution 5\n",
     {1, 4, 4},
     0,
     "a.net:2: \"convolution\" is not a kind of layer: see `muster list layers`"},
    {"conv 6\n", {1, 4, 4}, 0, "a.net:1: conv1: give the size of its kernel: conv 6 kernel=5"},
    {"conv kernel=3\n", {1, 4, 4}, 0, "a.net:1: conv1: give its number of filters: conv 6 kernel=5"},
    {"\nc: conv 6 kernel=9", {1, 4, 4}, 0, "a.net:2: c: a kernel of 9x9 does not fit its input of 1x4x4"},
    {"conv 6 kernel=9",
     {16, 1, 1},
     0,
     "a.net:1: conv1: a kernel of 9x9 does not fit its input of 16x1x1; where rows are images, give their "
     "size: "
     "\"input CxHxW\" in the net, or --image CxHxW"},
    {"conv 6 kernel=3 groups=4",
     {6, 4, 4},
     0,
     "a.net:1: conv1: groups=4 must divide both the 6 channels and the 6 filters"},
    {"conv 6 kernal=3",
     {1, 4, 4},
     0,
     "a.net:1: conv has no option kernal; its options: filters, kernel, kernel-h, kernel-w, stride, pad, "
     "groups, "
     "init, init-scale, bias-init, bias"},
    {"relu 5", {1, 4, 4}, 0, "a.net:1: \"5\" is not option=value"},
    {"relu x=5", {1, 4, 4}, 0, "a.net:1: relu has no option x; its options: none"},
    {"linear 5 stray", {1, 4, 4}, 0, "a.net:1: \"stray\" is not option=value"},
    {"linear five",
     {1, 4, 4},
     0,
     "a.net:1: outputs five: not an integer (such as 1000, 64k, 1e6, 2Gi or 2^20)"},
    {"conv 4 kernel=3 stride=0", {1, 4, 4}, 0, "a.net:1: stride 0: must be between 1 and 65536"},
    {"linear 5 init=magic",
     {1, 4, 4},
     0,
     "a.net:1: init magic: not one of glorot, he, uniform, normal, constant"},
    {"linear", {1, 4, 4}, 0, "a.net:1: linear1: give its number of outputs: linear 120"},
    {"maxpool 2 pad=2", {1, 4, 4}, 0, "a.net:1: maxpool1: pad=2 is more than half of its kernel of 2"},
    {"a: relu\na: relu", {1, 4, 4}, 0, "a.net:2: there is a layer a already"},
    {"a:", {1, 4, 4}, 0, "a.net:1: \"a:\" is followed by no layer"},
    {"1a: relu",
     {1, 4, 4},
     0,
     "a.net:1: \"1a\" is not a name: a letter, then letters, digits, _ and -, at most 31 together"},
    {"a.b: relu",
     {1, 4, 4},
     0,
     "a.net:1: \"a.b\" is not a name: a letter, then letters, digits, _ and -, at most 31 together"},
    {"relu",
     {0, 0, 0},
     0,
     "a.net:1: the input is not known: put a line \"input CxHxW\" before the first layer, or give "
     "--input CxHxW"},
    {"relu\ninput 1x4x4", {1, 4, 4}, 0, "a.net:2: input must come before the first layer"},
    {"input 1x4x4\ninput 1x4x4", {1, 4, 4}, 0, "a.net:2: the input is given twice"},
    {"input 4x4x4x4",
     {0, 0, 0},
     0,
     "a.net:1: input takes channels x height x width, such as 1x28x28, or the numbers of a row, at most 2^28 "
     "together"},
    {"input 1x28",
     {0, 0, 0},
     0,
     "a.net:1: input takes channels x height x width, such as 1x28x28, or the numbers of a row, at most 2^28 "
     "together"},
    {"linear 4 outputs=5", {1, 4, 4}, 0, "a.net:1: outputs is given twice"},
    {"conv 4 kernel=3 kernel=2", {1, 4, 4}, 0, "a.net:1: kernel is given twice"},
    {"defaults init=he init=glorot", {1, 4, 4}, 0, "a.net:1: init is given twice"},
    {"linear 4 init=normal init-scale=-1",
     {1, 4, 4},
     0,
     "a.net:1: init-scale=-1: a bound or deviation cannot be below 0"},
    {"defaults bias=false\n\xef\xbb\xbfrelu",
     {1, 4, 4},
     0,
     "a.net:2: \"\xef\xbb\xbfrelu\" is not a kind of layer: see `muster list layers`"},
    {"input 99999x9999x9999",
     {0, 0, 0},
     0,
     "a.net:1: input takes channels x height x width, such as 1x28x28, or the numbers of a row, at most 2^28 "
     "together"},
    {"input 1x5x5\nrelu", {1, 4, 4}, 0, "a.net:1: input 1x5x5, but the data has 1x4x4"},
    {"input 1x5x5\nrelu",
     {26, 1, 1},
     0,
     "a.net:1: input 1x5x5 does not match the data, whose rows have 26 values"},
    {"defaults\n", {1, 4, 4}, 0, "a.net:1: defaults takes option=value, such as init=glorot"},
    {"defaults speed=3\n", {1, 4, 4}, 0, "a.net:1: no kind of layer has an option speed"},
    {"linear classes", {1, 4, 4}, 0, "a.net:1: the number of classes is not known here: give --classes N"},
    {"linear 9\nrelu\n\n",
     {1, 4, 4},
     10,
     "a.net:2: the net has 9 outputs, but there are 10 classes: end it with \"linear classes\""},
    {"linear 3",
     {1, 4, 4},
     2,
     "a.net:1: the net has 3 outputs, but there are 2 classes: end it with \"linear classes\" or \"linear "
     "1\""},
    {"relu from=here", {4, 1, 1}, 0, "a.net:1: from=here: there is no such layer above"},
    {"relu from=", {4, 1, 1}, 0, "a.net:1: from= takes names of layers above, separated by commas"},
    {"linear 3 from=rows,rows", {4, 1, 1}, 0, "a.net:1: linear reads one layer: put a concat before it"},
    {"a: linear 3\nb: linear 4 from=rows\nadd from=a,b",
     {4, 1, 1},
     0,
     "a.net:3: add1: its inputs have 3 and 4 numbers; they must be equally long"},
    {"a: linear 3\nb: linear 3 from=rows", {4, 1, 1}, 0, "a.net:1: no layer reads a"},
    {"fm",
     {4, 1, 1},
     0,
     "a.net:1: fm1: it reads one vector; pairs need two, such as an embedding of several fields"},
    {"embedding 4\nlinear 1", {4, 1, 1}, 0, "a.net:1: the features are not known here: give --features N"},
    {"a: linear 3\nembedding 4",
     {4, 1, 1},
     0,
     "a.net:2: embedding cannot be used together with a, which reads whole rows"},
    {"linear embedding", {4, 1, 1}, 0, "a.net:1: outputs=embedding, but there is no embedding above"},
    {"mlp 4,x\nlinear 1",
     {4, 1, 1},
     0,
     "a.net:1: hidden=4,x: sizes of hidden layers separated by commas, such as 400,400"},
    {"cross from=rows,rows,rows",
     {4, 1, 1},
     0,
     "a.net:1: cross1: it reads x0 and x, which must be equally long, or one layer that is both"},
    {"linear 16M",
     {1, 1000, 1000},
     0,
     "a.net:1: linear1: with an input of 1x1000x1000 it has more than 2^32 - 1 parameters"},
    {"conv 16M kernel=1",
     {1, 10, 10},
     0,
     "a.net:1: conv1: 16000000x10x10 numbers come out of it; at most 2^28 are possible"},
};

static void errors_name_the_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mst_chain *chain = NULL;
        assert_int_equal(
            mst_chain_parse(refused[i].text, "a.net", &refused[i].in, refused[i].n_classes, &chain),
            MST_EINPUT);
        assert_null(chain);
        assert_string_equal(mst_error_text(), refused[i].sentence);
    }
}

static void too_many_layers(void **state)
{
    char text[8192] = "";
    mst_dims in = {4, 1, 1};
    mst_chain *chain = NULL;
    (void)state;
    for (int i = 0; i < MST_NET_LAYERS; i++)
        strcat(text, "relu\n");
    mst_chain_destroy(parse(text, in, 0));
    strcat(text, "relu\n");
    assert_int_equal(mst_chain_parse(text, "a.net", &in, 0, &chain), MST_EINPUT);
    assert_string_equal(mst_error_text(), "a.net:129: a net has at most 128 layers");
    *text = '\0';
    for (int i = 0; i < 65; i++)
        strcat(text, "linear 4\n");
    assert_int_equal(mst_chain_parse(text, "a.net", &in, 0, &chain), MST_EINPUT);
    assert_string_equal(mst_error_text(), "a.net:65: a net has at most 128 weights and biases");
}

/* Every allocation fails once. */
static void short_memory_is_reported(void **state)
{
    const char *text = "defaults init=he\nconv 4 kernel=3\nbatchnorm\nrelu\nlinear classes\n";
    mst_dims in = {1, 5, 5};
    (void)state;
    for (uint64_t k = 1;; k++) {
        mst_chain *chain = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_chain_parse(text, "a.net", &in, 3, &chain);
        mst_alloc_fail_at(0);
        mst_chain_destroy(chain);
        if (st == MST_OK)
            break;
        assert_int_equal(st, MST_ENOMEM);
    }
}

/* ---- nets that come with muster ---- */

static void known_nets_have_their_sizes(void **state)
{
    static const struct {
        const char *name;
        uint64_t n_params;
    } sizes[] = {{"lenet", 61706},
                 {"lenet-small", 60 + 880 + 400 * 120 + 120 + 120 * 84 + 84 + 850},
                 {"alexnet", 61100840},
                 {"alexnet-paper", 60965224},
                 {"mlp", 784 * 300 + 300 + 300 * 100 + 100 + 1010},
                 /* the layers of nets over embeddings of 26 fields and 13 numbers; their tables are beside */
                 {"wide-deep", 430 * 400 + 2 * 401 * 400 + 401},
                 {"deepfm", 430 * 400 + 2 * 401 * 400 + 401},
                 {"dcn", 2 * 429 * 430 + 430 * 400 + 2 * 401 * 400 + 830},
                 {"dlrm", 14 * 64 + 65 * 16 + (351 + 16 + 1) * 400 + 401 * 400 + 401}};
    (void)state;
    for (const mst_known_net *known = mst_known_nets; known->name != NULL; known++) {
        mst_chain *chain = NULL;
        mst_net_data data = {
            .in = known->in, .n_classes = known->n_classes, .n_keys = 1000, .n_dense = 13, .n_fields = 39};
        bool found = false;
        assert_int_equal(mst_chain_parse_with(known->text, "a.net", &data, &chain), MST_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if (strcmp(sizes[i].name, known->name) == 0) {
                found = true;
                assert_int_equal(count_params(chain), sizes[i].n_params);
            }
        assert_true(found);
        mst_chain_destroy(chain);
    }
}

static void flops_are_counted(void **state)
{
    (void)state;
    const mst_known_net *lenet = mst_known_nets;
    mst_chain *chain = parse(lenet->text, lenet->in, 10);
    uint64_t multiply_adds = 28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 840;
    assert_in_range(mst_chain_flops(chain), 2 * multiply_adds, 2 * multiply_adds + 40000);
    mst_chain_destroy(chain);
}

static void shipped_files_are_the_known_nets(void **state)
{
    (void)state;
    for (const mst_known_net *known = mst_known_nets; known->name != NULL; known++) {
        char path[1024], *text;
        size_t size;
        snprintf(path, sizeof path, "%s/../nets/%s.net", MUSTER_TEST_DATA, known->name);
        if (mst_file_read_all(path, 1 << 20, &text, &size) != MST_OK)
            fail_msg("%s", mst_error_text());
        assert_string_equal(text, known->text);
        mst_free(text);
    }
}

/* ---- first values ---- */

static void moments(const mst_params *params, const char *name, double *mean, double *deviation, double *most)
{
    const mst_view *view = mst_params_find(params, name);
    double sum = 0.0, square = 0.0;
    assert_non_null(view);
    *most = 0.0;
    for (uint64_t i = 0; i < view->size; i++) {
        double w = (double)params->w[view->offset + i];
        sum += w;
        square += w * w;
        *most = fmax(*most, fabs(w));
    }
    *mean = sum / (double)view->size;
    *deviation = sqrt(square / (double)view->size - *mean * *mean);
}

static void first_values(void **state)
{
    mst_params params = {0}, again = {0};
    double mean, deviation, most;
    (void)state;
    mst_chain *chain = parse("g: conv 40 kernel=5 init=glorot bias-init=0.5\n"
                             "h: linear 101 init=he\n"
                             "u: linear 100 init=uniform init-scale=0.2\n"
                             "n: linear 100 init=normal init-scale=0.3\n"
                             "c: linear 100 init=constant init-scale=-2\n"
                             "b: batchnorm\n",
                             (mst_dims){8, 5, 5}, 0);
    assert_int_equal(mst_chain_declare(chain, &params), MST_OK);
    assert_int_equal(mst_params_reserve(&params, 0, 0), MST_OK);
    mst_chain_start(chain, &params, 3);

    double bound = sqrt(6.0 / (8 * 25 + 40 * 25));
    moments(&params, "g.weight", &mean, &deviation, &most);
    assert_true(fabs(mean) < 0.05 * bound && fabs(deviation - bound / sqrt(3)) < 0.03 * bound);
    assert_true(most <= bound && most > 0.98 * bound);
    moments(&params, "g.bias", &mean, &deviation, &most);
    assert_true(mean == 0.5 && most == 0.5);
    moments(&params, "h.weight", &mean, &deviation, &most);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - sqrt(2.0 / 40)) < 0.01 && most > 2.5 * deviation);
    moments(&params, "h.bias", &mean, &deviation, &most);
    assert_true(most == 0.0);
    moments(&params, "u.weight", &mean, &deviation, &most);
    assert_true(fabs(deviation - 0.2 / sqrt(3)) < 0.005 && most <= 0.2 && most > 0.195);
    moments(&params, "n.weight", &mean, &deviation, &most);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - 0.3) < 0.01);
    moments(&params, "c.weight", &mean, &deviation, &most);
    assert_true(mean == -2.0 && most == 2.0);
    moments(&params, "b.running_var", &mean, &deviation, &most);
    assert_true(mean == 1.0 && most == 1.0);
    assert_int_equal(mst_params_find(&params, "b.running_var")->kind, MST_VIEW_STATE);

    assert_int_equal(mst_chain_declare(chain, &again), MST_OK);
    assert_int_equal(mst_params_reserve(&again, 0, 0), MST_OK);
    mst_chain_start(chain, &again, 3);
    assert_memory_equal(params.w, again.w, params.size * sizeof(float));
    mst_chain_start(chain, &again, 4);
    assert_memory_not_equal(params.w, again.w, params.size * sizeof(float));
    mst_params_fini(&params);
    mst_params_fini(&again);
    mst_chain_destroy(chain);
}

/* ---- nets as models ---- */

static int model_index(const char *name)
{
    for (int i = 0; mst_models[i] != NULL; i++)
        if (strcmp(mst_models[i]->name, name) == 0)
            return i;
    fail_msg("no model %s", name);
    return -1;
}

static void expect_model_refused(const mst_model_options *options, const mst_shape *shape, mst_status code,
                                 const char *sentence)
{
    mst_model *model = NULL;
    assert_int_equal(mst_model_new(options, shape, mst_kernels_get(MST_ISA_PORTABLE), &model), code);
    assert_null(model);
    assert_string_equal(mst_error_text(), sentence);
}

static void options_of_nets(void **state)
{
    mst_shape images = {.n_features = 784, .n_dense = 784, .n_classes = 10, .c = 1, .h = 28, .w = 28};
    mst_shape rows = {.n_features = 781, .n_classes = 10};
    mst_model_options o = {.model = model_index("lenet"), .activation = 1, .init = 1, .executor = "plain"};
    mst_model *model;
    (void)state;
    assert_int_equal(mst_model_new(&o, &images, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_OK);
    const mst_chain *chain = mst_model_chain(model);
    assert_string_equal(chain->layers[1]->ops->name, "tanh");
    assert_int_equal(chain->layers[0]->params[0].init, MST_INIT_GLOROT);
    assert_non_null(strstr(chain->text, "defaults init=glorot\n"));
    assert_int_equal(model->n_scores, 10);
    mst_model_destroy(model);

    o = (mst_model_options){.model = model_index("mlp"), .hidden = "20,30,40", .activation = 2};
    assert_int_equal(mst_model_new(&o, &rows, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_OK);
    chain = mst_model_chain(model);
    assert_int_equal(chain->n_layers, 7);
    assert_int_equal(chain->layers[0]->in.c, 781);
    assert_int_equal(chain->layers[4]->out.c, 40);
    assert_string_equal(chain->layers[5]->ops->name, "sigmoid");
    mst_model_destroy(model);

    o = (mst_model_options){.model = model_index("lenet"), .image = "1x28x28"};
    assert_int_equal(mst_model_new(&o, &rows, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_OK);
    assert_int_equal(model->shape.n_features, 784);
    mst_model_destroy(model);

    o.image = "1x27x28";
    expect_model_refused(&o, &rows, MST_EUSAGE, "--image 1x27x28: each row of the data has 781 values");
    expect_model_refused(&o, &images, MST_EUSAGE, "--image 1x27x28: the data has images of 1x28x28");
    o.image = "1x";
    expect_model_refused(&o, &rows, MST_EUSAGE,
                         "--image 1x: must be channels x height x width, such as 3x32x32");
    o.image = NULL;
    expect_model_refused(&o, &rows, MST_EINPUT,
                         "lenet takes images, such as 1x28x28, but the data has rows of 781 sparse features; "
                         "use --model softmax, or give --image CxHxW if the rows are images");
    expect_model_refused(&o, &(mst_shape){.n_features = 33762578, .n_dense = 13, .n_classes = 2}, MST_EINPUT,
                         "lenet takes images, such as 1x28x28, but the data has rows of 33762578 sparse "
                         "features; use --model logreg, or give --image CxHxW if the rows are images");
    o.hidden = "3";
    expect_model_refused(&o, &images, MST_EUSAGE, "--hidden is for --model mlp and nets over embeddings");
    o = (mst_model_options){.model = model_index("mlp"), .hidden = "3,,4"};
    expect_model_refused(&o, &images, MST_EUSAGE,
                         "--hidden 3,,4: sizes of hidden layers separated by commas, such as 300,100");
    o = (mst_model_options){.model = model_index("net")};
    expect_model_refused(&o, &images, MST_EUSAGE, "--model net needs the net: --net FILE");
    o = (mst_model_options){.model = model_index("lenet"), .net = "x.net"};
    expect_model_refused(&o, &images, MST_EUSAGE,
                         "--net x.net is for --model net; --model lenet has a net of its own");
    o = (mst_model_options){.model = model_index("lenet"), .executor = "fast"};
    mst_model *none = NULL;
    assert_int_equal(mst_model_new(&o, &images, mst_kernels_get(MST_ISA_PORTABLE), &none), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "--executor fast: not one of auto, "));
    images.n_classes = 1;
    o.executor = NULL;
    expect_model_refused(&o, &images, MST_EINPUT, "a net needs at least two classes; the data has 1");
}

/* Every allocation of a model and of its scratch fails once. */
static void short_memory_of_models(void **state)
{
    mst_shape shape = {.n_features = 49, .n_classes = 3, .c = 1, .h = 7, .w = 7};
    mst_model_options o[] = {
        {.model = model_index("mlp"), .hidden = "5,4", .init = 2, .executor = "plain"},
        {.model = model_index("net"),
         .net_text = "conv 2 kernel=3\nlrn\nlinear classes\n",
         .executor = "plain"},
    };
    (void)state;
    for (int i = 0; i < 2; i++)
        for (uint64_t k = 1;; k++) {
            mst_model *model = NULL;
            void *scratch = NULL;
            mst_alloc_fail_at(k);
            mst_status st = mst_model_new(&o[i], &shape, mst_kernels_get(MST_ISA_PORTABLE), &model);
            if (st == MST_OK)
                st = mst_model_scratch_new(model, 3, 1, true, &scratch);
            mst_alloc_fail_at(0);
            if (model != NULL)
                mst_model_scratch_free(model, scratch);
            mst_model_destroy(model);
            if (st == MST_OK)
                break;
            assert_int_equal(st, MST_ENOMEM);
        }
}

/* The model of a net file, rebuilt from its text alone. */
static void text_rebuilds_the_net(void **state)
{
    mst_shape shape = {.n_features = 12, .n_classes = 3};
    mst_model_options o = {.model = model_index("net"),
                           .net_text = "input 3x2x2\nconv 4 kernel=2 init=he\nrelu\nlinear classes\n"};
    mst_model *model, *again;
    (void)state;
    assert_int_equal(mst_model_new(&o, &shape, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_OK);
    mst_model_options copy = model->options;
    assert_string_equal(copy.net_text, o.net_text);
    assert_int_equal(mst_model_new(&copy, &model->shape, mst_kernels_get(MST_ISA_PORTABLE), &again), MST_OK);
    assert_int_equal(count_params(mst_model_chain(again)), 4 * 12 + 4 + 15);
    mst_model_destroy(model);
    mst_model_destroy(again);
}

/* Batches in parts: the gradient and the loss are sums over rows, dropout included; a share without rows
 * leaves state as it is. */
static void shares_add_up(void **state)
{
    enum { ROWS = 5, CLASSES = 3, SIZE = 12 };
    mst_shape shape = {.n_features = SIZE, .n_dense = SIZE, .n_classes = CLASSES, .c = 3, .h = 2, .w = 2};
    mst_model_options o = {.model = model_index("net"),
                           .net_text = "conv 4 kernel=2 pad=1\nrelu\ndropout 0.3\nlinear classes\n"};
    mst_model *model;
    mst_params params = {0};
    mst_weights w;
    mst_grad layout = {0}, whole, parts;
    float dense[ROWS][SIZE], scores[ROWS * CLASSES];
    mst_row rows[ROWS];
    mst_loss_sum a = {0}, b = {0};
    void *scratch;
    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t j = 0; j < SIZE; j++)
            dense[i][j] = (float)((i * 7 + j * 5) % 11) / 4.0f - 1.0f;
        rows[i] =
            (mst_row){.dense = dense[i], .n_dense = SIZE, .label = (float)(i % CLASSES), .weight = 1.0f};
    }
    assert_int_equal(mst_model_new(&o, &shape, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_OK);
    assert_int_equal(model->ops->declare(model, &params), MST_OK);
    assert_int_equal(mst_params_reserve(&params, 0, 0), MST_OK);
    model->ops->start(model, &params, 2);
    mst_model_weights(model, &params, &w);
    model->ops->layout(model, &params, &layout);
    assert_int_equal(mst_grad_init(&whole, layout.ranges, layout.n_ranges, 0, 0, 1), MST_OK);
    assert_int_equal(mst_grad_init(&parts, layout.ranges, layout.n_ranges, 0, 0, 1), MST_OK);
    assert_int_equal(mst_model_scratch_new(model, ROWS, 1, true, &scratch), MST_OK);

    mst_step step = {.seed = 4, .number = 17};
    mst_batch batch = {.rows = rows, .n_rows = ROWS};
    assert_int_equal(model->ops->compute(model, scratch, &batch, &w, 0.2f, &whole, &step, &a), MST_OK);
    static const uint32_t cuts[] = {0, 2, 2, 5};
    for (int i = 0; i < 3; i++) {
        mst_batch part = {.rows = rows + cuts[i], .n_rows = cuts[i + 1] - cuts[i]};
        step.first_row = cuts[i];
        assert_int_equal(model->ops->compute(model, scratch, &part, &w, 0.2f, &parts, &step, &b), MST_OK);
    }
    assert_true(fabs(a.loss - b.loss) < 1e-5 && a.rows == b.rows && a.weight == b.weight && a.rows == ROWS);
    for (uint32_t r = 0; r < whole.n_ranges; r++)
        for (uint64_t i = 0; i < whole.ranges[r].size; i++)
            assert_true(fabs((double)whole.ranges[r].g[i] - (double)parts.ranges[r].g[i]) < 1e-5);
    mst_model_scratch_free(model, scratch);

    assert_int_equal(mst_model_scratch_new(model, ROWS, 1, false, &scratch), MST_OK);
    assert_int_equal(model->ops->forward(model, scratch, &batch, &w, scores), MST_OK);
    for (uint32_t i = 0; i < ROWS * CLASSES; i++)
        assert_true(isfinite(scores[i]));
    mst_model_scratch_free(model, scratch);
    mst_grad_fini(&whole);
    mst_grad_fini(&parts);
    mst_params_fini(&params);
    mst_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_net_is_read),
        cmocka_unit_test(names_do_not_collide),
        cmocka_unit_test(input_lines),
        cmocka_unit_test(defaults_hold_for_what_follows),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(too_many_layers),
        cmocka_unit_test(short_memory_is_reported),
        cmocka_unit_test(known_nets_have_their_sizes),
        cmocka_unit_test(flops_are_counted),
        cmocka_unit_test(shipped_files_are_the_known_nets),
        cmocka_unit_test(first_values),
        cmocka_unit_test(options_of_nets),
        cmocka_unit_test(short_memory_of_models),
        cmocka_unit_test(text_rebuilds_the_net),
        cmocka_unit_test(shares_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
