/* The graph of a run: the nodes of every model, and their servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/isa.h"
#include "ps/placement.h"
#include "train/run_graph.h"

static const json_t *node_named(const json_t *nodes, const char *name)
{
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        if (strcmp(json_string_value(json_object_get(node, "name")), name) == 0)
            return node;
    }
    return NULL;
}

static const char *text(const json_t *nodes, const char *name, const char *key)
{
    const json_t *node = node_named(nodes, name);
    if (node == NULL)
        fail_msg("there is no node %s", name);
    const char *found = json_string_value(json_object_get(node, key));
    return found != NULL ? found : "";
}

static uint64_t size_of(const json_t *node)
{
    const json_t *shape = json_object_get(node, "shape");
    uint64_t size = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        size *= (uint64_t)json_integer_value(json_array_get(shape, i));
    return size;
}

static bool feeds(const json_t *nodes, const char *from, const char *to)
{
    const json_t *inputs = json_object_get(node_named(nodes, to), "inputs");
    for (size_t i = 0; i < json_array_size(inputs); i++)
        if (strcmp(json_string_value(json_array_get(inputs, i)), from) == 0)
            return true;
    return false;
}

/* Names are unique, inputs are there, everything lives somewhere, and parameters are all floats of the views.
 */
static void check_graph(const json_t *nodes, const mst_params *params)
{
    uint64_t floats = 0, all = 0;
    for (uint32_t v = 0; v < params->n_views; v++)
        all += params->views[v].size;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i), *inputs = json_object_get(node, "inputs");
        const char *name = json_string_value(json_object_get(node, "name"));
        assert_ptr_equal(node_named(nodes, name), node);
        assert_true(text(nodes, name, "op")[0] != 0 && text(nodes, name, "device")[0] == '/');
        for (size_t k = 0; k < json_array_size(inputs); k++)
            assert_non_null(node_named(nodes, json_string_value(json_array_get(inputs, k))));
        if (strcmp(text(nodes, name, "op"), "VariableV2") == 0)
            floats += size_of(node);
    }
    assert_int_equal(floats, all);
    assert_true(feeds(nodes, "labels", "loss") && feeds(nodes, "loss", "gradients") &&
                feeds(nodes, "gradients", "optimizer"));
}

static void begin(mst_assembly *assembly, mst_optimizer *optimizer, const char *model, const mst_shape *shape)
{
    mst_model_options options = {.bias = true, .pos_weight = 1.0};
    while (strcmp(mst_models[options.model]->name, model) != 0)
        options.model++;
    assert_int_equal(mst_optimizer_init(optimizer, &(mst_optim_options){.lr = 0.5, .decay_steps = 1}),
                     MST_OK);
    assert_int_equal(mst_assembly_init(assembly, &options, shape, mst_kernels_get(MST_ISA_PORTABLE),
                                       &(mst_store_spec){0}, 1),
                     MST_OK);
}

static void test_linear_models(void **state)
{
    static const char *const models[] = {"logreg", "softmax"};
    const mst_run_places here = {.compute = "/job:local", .store = "/job:local"};
    (void)state;
    for (int m = 0; m < 2; m++) {
        mst_assembly a;
        mst_optimizer optimizer;
        char weight[32], scores[32];
        begin(&a, &optimizer, models[m], &(mst_shape){.n_features = 5000, .n_classes = 2});
        json_t *nodes = mst_run_graph(&a, &optimizer, &here);
        check_graph(nodes, &a.params);
        snprintf(weight, sizeof weight, "%s/weight", models[m]);
        snprintf(scores, sizeof scores, "%s/scores", models[m]);
        assert_string_equal(text(nodes, weight, "op"), "VariableV2");
        assert_true(feeds(nodes, weight, scores) && feeds(nodes, "rows", scores));
        assert_true(feeds(nodes, scores, "loss") && feeds(nodes, weight, "optimizer"));
        assert_string_equal(text(nodes, "loss", "op"), m == 0 ? "logistic" : "softmax_cross_entropy");
        assert_string_equal(text(nodes, "optimizer", "op"), "sgd");
        assert_string_equal(text(nodes, "optimizer", "device"), "/job:local");
        json_decref(nodes);
        mst_assembly_fini(&a);
    }
}

/* A parameter of one server is there as it is; one that is cut has a part for each. */
static void test_servers(void **state)
{
    mst_assembly a;
    mst_optimizer optimizer;
    mst_placement table = {0};
    mst_grad layout = {0};
    (void)state;
    begin(&a, &optimizer, "logreg", &(mst_shape){.n_features = 5000, .n_classes = 2});
    a.model->ops->layout(a.model, &a.params, &layout);
    assert_int_equal(mst_placement_make(&table, &a.params, &layout, 3, NULL, 0, false), MST_OK);
    mst_part_spec parts[64];
    assert_true(table.n_partitions <= 64);
    for (uint32_t i = 0; i < table.n_partitions; i++)
        parts[i] =
            (mst_part_spec){table.partitions[i].first, table.partitions[i].count, table.partitions[i].server};
    const mst_run_places places = {.compute = "/job:worker",
                                   .store = "/job:server",
                                   .parts = parts,
                                   .n_parts = table.n_partitions,
                                   .n_tasks = 3};
    json_t *nodes = mst_run_graph(&a, &optimizer, &places);
    check_graph(nodes, &a.params);
    assert_string_equal(text(nodes, "logreg/scores", "device"), "/job:worker");
    assert_string_equal(text(nodes, "optimizer", "device"), "/job:server");
    assert_string_equal(text(nodes, "logreg/weight", "op"), "PartitionedVariable");
    for (uint32_t s = 0; s < 3; s++) {
        char name[32], device[32];
        snprintf(name, sizeof name, "logreg/weight_%u", s);
        snprintf(device, sizeof device, "/job:server/task:%u", s);
        assert_string_equal(text(nodes, name, "device"), device);
        assert_true(feeds(nodes, name, "logreg/weight") && feeds(nodes, name, "optimizer"));
        assert_true(size_of(node_named(nodes, name)) > 1000);
    }
    assert_false(feeds(nodes, "logreg/weight", "optimizer"));
    assert_memory_equal(text(nodes, "logreg/bias", "device"), "/job:server/task:", 17);
    assert_null(node_named(nodes, "optimizer_sparse"));
    json_decref(nodes);
    /* weights with keys have an optimizer of their own */
    mst_optimizer sparse;
    mst_optim_options options = {.lr = 0.5, .lr_sparse = 0.25, .decay_steps = 1};
    assert_int_equal(mst_optimizer_init_parts(&optimizer, &sparse, &options), MST_OK);
    nodes = mst_run_graph(&a, &optimizer, &places);
    check_graph(nodes, &a.params);
    assert_true(feeds(nodes, "logreg/weight_1", "optimizer_sparse") &&
                feeds(nodes, "logreg/bias", "optimizer"));
    assert_false(feeds(nodes, "logreg/weight_1", "optimizer") ||
                 feeds(nodes, "logreg/bias", "optimizer_sparse"));
    const json_t *attributes = json_object_get(node_named(nodes, "optimizer_sparse"), "attr");
    assert_true(json_real_value(json_object_get(attributes, "lr")) == 0.25);
    json_decref(nodes);
    mst_placement_fini(&table);
    mst_assembly_fini(&a);
}

static void test_nets(void **state)
{
    const mst_run_places here = {.compute = "/job:rank", .store = "/job:rank"};
    mst_assembly a;
    mst_optimizer optimizer;
    (void)state;
    begin(&a, &optimizer, "lenet",
          &(mst_shape){.n_features = 784, .n_dense = 784, .n_classes = 10, .c = 1, .h = 28, .w = 28});
    json_t *nodes = mst_run_graph(&a, &optimizer, &here);
    check_graph(nodes, &a.params);
    const json_t *conv = node_named(nodes, "conv1/conv"), *weight = node_named(nodes, "conv1/weight");
    assert_non_null(conv);
    json_t *shape = json_pack("[i, i, i, i]", -1, 6, 28, 28);
    assert_true(json_equal(json_object_get(conv, "shape"), shape));
    json_decref(shape);
    assert_int_equal(size_of(weight), 150);
    assert_true(feeds(nodes, "rows", "conv1/conv") && feeds(nodes, "conv1/weight", "conv1/conv") &&
                feeds(nodes, "conv1/bias", "conv1/conv") && feeds(nodes, "fc3/linear", "loss"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(conv, "attr"), "filters")), 6);
    assert_true(json_integer_value(json_object_get(json_object_get(conv, "attr"), "flops")) > 1000);
    json_decref(nodes);
    mst_assembly_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear_models), cmocka_unit_test(test_servers),
                                       cmocka_unit_test(test_nets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
