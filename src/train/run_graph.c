/* Contract in run_graph.h. */
#include "train/run_graph.h"

#include <stdio.h>
#include <string.h>

#define DEVICE 64

static void graph_set_device(json_t *node, const char *device)
{
    json_object_set_new(node, "device", json_string(device));
}

static void graph_set_task(json_t *node, const char *job, uint32_t task)
{
    char device[DEVICE];
    snprintf(device, sizeof device, "%s/task:%u", job, task);
    graph_set_device(node, device);
}

/* The floats of a view that a task holds. */
static uint64_t graph_floats_held(const mst_run_places *places, const mst_view *view, uint32_t task)
{
    uint64_t n = 0, end = view->offset + view->size;
    for (uint32_t i = 0; i < places->n_parts; i++) {
        const mst_part_spec *p = &places->parts[i];
        uint64_t from = p->first > view->offset ? p->first : view->offset,
                 to = p->first + p->count < end ? p->first + p->count : end;
        n += p->server == task && from < to ? to - from : 0;
    }
    return n;
}

/* A parameter that one task holds is placed there. For a parameter that is split, each task's range is a
 * node, numbered like the task, and the parameter joins them. */
static void graph_place_view(json_t *nodes, json_t *node, const mst_view *view, const mst_run_places *places)
{
    const char *name = json_string_value(json_object_get(node, "name"));
    for (uint32_t s = 0; s < places->n_tasks; s++) {
        uint64_t n = graph_floats_held(places, view, s);
        char part[160];
        if (n == view->size) {
            graph_set_task(node, places->store, s);
            return;
        }
        if (n == 0)
            continue;
        snprintf(part, sizeof part, "%s_%u", name, s);
        json_t *fresh = json_pack("{s:s, s:s, s:[], s:[I], s:O, s:b}", "name", part, "op", "VariableV2",
                                  "inputs", "shape", (json_int_t)n, "attr", json_object_get(node, "attr"),
                                  "keyed", view->width != 0);
        graph_set_task(fresh, places->store, s);
        json_array_append_new(nodes, fresh);
        json_array_append_new(json_object_get(node, "inputs"), json_string(part));
    }
    json_object_set_new(node, "op", json_string("PartitionedVariable"));
    graph_set_device(node, places->compute);
}

/* Takes the reference of inputs. */
static void graph_add_optimizer(json_t *nodes, const char *name, const mst_optimizer *optimizer,
                                json_t *inputs, const mst_run_places *places)
{
    json_array_append_new(nodes, json_pack("{s:s, s:s, s:o, s:s, s:{s:f, s:I}}", "name", name, "op",
                                           optimizer->ops->name, "inputs", inputs, "device", places->store,
                                           "attr", "lr", optimizer->options.lr, "state_vectors",
                                           (json_int_t)optimizer->ops->n_slots));
}

/* Adds the gradients and the optimizer, which is on the devices of the parameters; views with keys may have
 * one of their own. */
static void graph_add_training(json_t *nodes, const mst_optimizer *optimizer, const mst_run_places *places)
{
    json_t *inputs = json_pack("[s]", "gradients"), *node;
    json_t *keyed = optimizer->sparse != NULL ? json_pack("[s]", "gradients") : inputs;
    size_t i;
    json_array_foreach(nodes, i, node)
    {
        const char *op = json_string_value(json_object_get(node, "op"));
        if (op != NULL && strcmp(op, "VariableV2") == 0 &&
            json_is_true(json_object_get(json_object_get(node, "attr"), "trainable")))
            json_array_append(json_is_true(json_object_get(node, "keyed")) ? keyed : inputs,
                              json_object_get(node, "name"));
    }
    json_array_append_new(nodes, json_pack("{s:s, s:s, s:[s], s:s}", "name", "gradients", "op", "gradients",
                                           "inputs", "loss", "device", places->compute));
    graph_add_optimizer(nodes, "optimizer", optimizer, inputs, places);
    if (optimizer->sparse != NULL)
        graph_add_optimizer(nodes, "optimizer_sparse", optimizer->sparse, keyed, places);
}

json_t *mst_run_graph(const mst_assembly *assembly, const mst_optimizer *optimizer,
                      const mst_run_places *places)
{
    json_t *nodes = mst_model_graph(assembly->model, &assembly->params), *node;
    size_t i, n = json_array_size(nodes);
    for (i = 0; i < n && (node = json_array_get(nodes, i)) != NULL; i++) {
        const char *name = json_string_value(json_object_get(node, "view"));
        const mst_view *view = name != NULL ? mst_params_find(&assembly->params, name) : NULL;
        if (view != NULL)
            json_object_set_new(node, "keyed", json_boolean(view->width != 0));
        if (view != NULL && places->parts != NULL)
            graph_place_view(nodes, node, view, places);
        else
            graph_set_device(node, view != NULL ? places->store : places->compute);
    }
    graph_add_training(nodes, optimizer, places);
    return nodes;
}

void mst_run_graph_report(mst_observe *observe, const mst_assembly *assembly, const mst_optimizer *optimizer,
                          const mst_run_places *places)
{
    json_t *nodes = observe != NULL ? mst_run_graph(assembly, optimizer, places) : NULL;
    if (nodes != NULL)
        mst_observe_graph(observe, nodes);
    json_decref(nodes);
}
