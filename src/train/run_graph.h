/* A run as a graph for TensorBoard: the graph of the model (model.h), the optimizer, and the device of each
 * node. */
#ifndef MST_TRAIN_RUN_GRAPH_H
#define MST_TRAIN_RUN_GRAPH_H

#include "observe/observe.h"
#include "optim/optim.h"
#include "train/assembly.h"

typedef struct mst_run_places {
    const char *compute; /* rows, layers, loss and gradients: "/job:worker" */
    const char *store;   /* parameters and the optimizer: "/job:server" */
    const mst_part_spec
        *parts; /* the ranges of parameters that each task of `store` holds; NULL: all hold all */
    uint32_t n_parts, n_tasks;
} mst_run_places;

/* For mst_event_graph. New reference, or NULL without memory. */
json_t *mst_run_graph(const mst_assembly *assembly, const mst_optimizer *optimizer,
                      const mst_run_places *places);

/* Writes the graph into the event file of the process. */
void mst_run_graph_report(mst_observe *observe, const mst_assembly *assembly, const mst_optimizer *optimizer,
                          const mst_run_places *places);

#endif
