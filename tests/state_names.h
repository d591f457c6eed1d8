/* Stores with named optimizer state: of adagrad with one slot, of adam with two. */
#ifndef MST_TESTS_STATE_NAMES_H
#define MST_TESTS_STATE_NAMES_H

#include "tensor/params.h"

static inline mst_status reserve_named(mst_params *params, uint32_t n_slots, uint64_t spare)
{
    static const char *const adagrad[] = {"accumulator"}, *const adam[] = {"m", "v"};
    mst_status st = mst_params_reserve(params, n_slots, spare);
    for (uint32_t v = 0; v < params->n_views; v++)
        for (uint32_t s = 0; s < params->views[v].state.n_slots; s++)
            params->views[v].state.names[s] = (n_slots == 1 ? adagrad : adam)[s];
    return st;
}

#endif
