/* The profile of a process from the events of its trace (trace.json, docs/RUNS.md): the time of every op, of
 * waits and of phases, and the number of steps that they belong to.
 *
 * Slices of a thread arrive in the order in which they end, so an op arrives before the phase around it. A
 * phase of a step is read, prepare, compute, pull_wait, barrier_wait, push, apply or serve. The time of a
 * phase that no op covers is a wait (read, pull_wait, barrier_wait) or the rest of the phase. */
#ifndef MST_CLI_TRACE_PROFILE_H
#define MST_CLI_TRACE_PROFILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "observe/trace_file.h"

typedef enum mst_profile_kind {
    MST_PROFILE_OP,     /* of a step */
    MST_PROFILE_WAIT,   /* of a step */
    MST_PROFILE_BESIDE, /* of a thread beside the steps: parsing */
    MST_PROFILE_OTHER,  /* in a phase that is not part of a step: evaluate, checkpoint, idle */
} mst_profile_kind;
const char *mst_profile_kind_name(mst_profile_kind kind);

#define MST_PROFILE_NAME 64

typedef struct mst_profile_op {
    char name[MST_PROFILE_NAME];
    mst_profile_kind kind;
    uint64_t calls;
    double seconds;
    uint64_t outputs; /* calls with an output; the next are their sums */
    double bytes, elements, dims[MST_TRACE_DIMS];
    uint64_t shapes; /* calls with a shape */
    bool varies;     /* shapes differ */
} mst_profile_op;

typedef struct mst_profile {
    char process[MST_PROFILE_NAME];
    unsigned n_processes, n_threads; /* threads of steps */
    uint64_t steps, rows, dropped;
    uint64_t first_step, last_step; /* of the phases of steps */
    uint64_t all_steps; /* also those whose events were dropped; ops beside the steps belong to these */
    double phases[MST_PHASES], covered[MST_PHASES]; /* seconds; covered by ops */
    mst_profile_op *ops;
    size_t n_ops, capacity;
} mst_profile;

typedef struct mst_profiles {
    mst_profile *items;
    size_t n, capacity;
    struct profile_lane *lanes; /* threads of the file that is being read */
    size_t n_lanes, lane_capacity;
} mst_profiles;

void mst_profiles_fini(mst_profiles *self);

/* The next event is of another file; also after the last one. */
void mst_profiles_file(mst_profiles *self);
mst_status mst_profiles_event(mst_profiles *self, const json_t *event);

/* After the last event: adds a profile per role that has several processes, their sum: "worker-*"; sorts
 * processes by name, the sums last, and ops by time. */
mst_status mst_profiles_sum(mst_profiles *self);

/* Whether the phase is part of a step, and whether it is a wait. */
bool mst_profile_in_step(mst_phase phase);
bool mst_profile_is_wait(mst_phase phase);
/* Seconds of the phases of steps; *named: of ops and waits. */
double mst_profile_step_seconds(const mst_profile *self, double *named);

#endif
