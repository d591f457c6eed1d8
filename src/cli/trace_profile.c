/* Contract in trace_profile.h. */
#include "cli/trace_profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define OPS_MAX  4096  /* most names of a process */
#define ROUNDING 0.002 /* microseconds: times have three decimals */

/* An op whose phase has not arrived yet. */
typedef struct profile_slice {
    double from_us, us;
    mst_profile_op sums; /* of this call; seconds without those of ops within it */
    bool inner;          /* within another op */
} profile_slice;

struct profile_lane {
    int64_t pid, tid;
    size_t profile; /* SIZE_MAX: it has no events of interest yet */
    bool phased;
    profile_slice *slices;
    size_t n, capacity;
};

const char *mst_profile_kind_name(mst_profile_kind kind)
{
    static const char *const names[] = {"op", "wait", "beside", "other"};
    return names[kind];
}

bool mst_profile_in_step(mst_phase phase)
{
    return phase < MST_PHASE_IDLE && phase != MST_PHASE_EVALUATE && phase != MST_PHASE_CHECKPOINT;
}

bool mst_profile_is_wait(mst_phase phase)
{
    return phase == MST_PHASE_READ || phase == MST_PHASE_PULL_WAIT || phase == MST_PHASE_BARRIER_WAIT;
}

double mst_profile_step_seconds(const mst_profile *self, double *named)
{
    double all = 0.0;
    *named = 0.0;
    for (unsigned p = 0; p < MST_PHASES; p++) {
        if (!mst_profile_in_step((mst_phase)p))
            continue;
        all += self->phases[p];
        *named += mst_profile_is_wait((mst_phase)p) ? self->phases[p] : self->covered[p];
    }
    return all;
}

static void profiles_drop_lanes(mst_profiles *self)
{
    for (size_t i = 0; i < self->n_lanes; i++)
        mst_free(self->lanes[i].slices);
    self->n_lanes = 0;
}

void mst_profiles_fini(mst_profiles *self)
{
    profiles_drop_lanes(self);
    mst_free(self->lanes);
    for (size_t i = 0; i < self->n; i++)
        mst_free(self->items[i].ops);
    mst_free(self->items);
}

/* ---- ops ---- */

/* The number of an op; SIZE_MAX: without memory, or too many. */
static size_t profile_find_op(mst_profile *self, const char *name, mst_profile_kind kind)
{
    for (size_t i = 0; i < self->n_ops; i++)
        if (self->ops[i].kind == kind && strcmp(self->ops[i].name, name) == 0)
            return i;
    if (self->n_ops == OPS_MAX || !mst_grow(&self->ops, &self->capacity, self->n_ops + 1, sizeof *self->ops))
        return SIZE_MAX;
    mst_profile_op *op = &self->ops[self->n_ops];
    *op = (mst_profile_op){.kind = kind};
    snprintf(op->name, sizeof op->name, "%s", name);
    return self->n_ops++;
}

/* Adds the sums of one op to another. */
static void profile_add_op(mst_profile_op *to, const mst_profile_op *from)
{
    to->varies |= from->varies;
    for (unsigned i = 0; i < MST_TRACE_DIMS && to->shapes > 0 && from->shapes > 0; i++)
        to->varies |= to->dims[i] / (double)to->shapes != from->dims[i] / (double)from->shapes;
    for (unsigned i = 0; i < MST_TRACE_DIMS; i++)
        to->dims[i] += from->dims[i];
    to->calls += from->calls;
    to->seconds += from->seconds;
    to->outputs += from->outputs;
    to->bytes += from->bytes;
    to->elements += from->elements;
    to->shapes += from->shapes;
}

static void profile_count(mst_profile *self, mst_profile_kind kind, const mst_profile_op *sums)
{
    size_t at = profile_find_op(self, sums->name, kind);
    if (at != SIZE_MAX)
        profile_add_op(&self->ops[at], sums);
}

/* The sums of one call. */
static mst_profile_op profile_call(const char *name, double us, const json_t *args)
{
    mst_profile_op op = {
        .calls = 1, .seconds = us * 1e-6, .bytes = json_number_value(json_object_get(args, "bytes"))};
    const json_t *shape = json_object_get(args, "shape");
    snprintf(op.name, sizeof op.name, "%s", name);
    op.outputs = op.bytes > 0.0;
    op.shapes = json_array_size(shape) > 0;
    op.elements = (double)op.shapes;
    for (size_t i = 0; i < json_array_size(shape) && i < MST_TRACE_DIMS; i++) {
        op.dims[i] = json_number_value(json_array_get(shape, i));
        op.elements *= op.dims[i];
    }
    return op;
}

static int profile_by_time(const void *a, const void *b)
{
    const mst_profile_op *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : strcmp(x->name, y->name);
}

/* ---- processes and threads ---- */

static mst_status profiles_find(mst_profiles *self, const char *process, size_t *out)
{
    for (*out = 0; *out < self->n; (*out)++)
        if (strcmp(self->items[*out].process, process) == 0)
            return MST_OK;
    if (!mst_grow(&self->items, &self->capacity, self->n + 1, sizeof *self->items))
        return mst_fail_memory();
    mst_profile *p = &self->items[self->n++];
    *p = (mst_profile){.n_processes = 1};
    snprintf(p->process, sizeof p->process, "%s", process);
    return MST_OK;
}

static mst_status profiles_lane(mst_profiles *self, const json_t *event, struct profile_lane **out)
{
    int64_t pid = json_integer_value(json_object_get(event, "pid")),
            tid = json_integer_value(json_object_get(event, "tid"));
    size_t profile = SIZE_MAX;
    for (size_t i = 0; i < self->n_lanes; i++) {
        *out = &self->lanes[i];
        if ((*out)->pid != pid)
            continue;
        profile = (*out)->profile;
        if ((*out)->tid == tid)
            return MST_OK;
    }
    if (profile == SIZE_MAX) { /* a file without the name of its process */
        char name[32];
        snprintf(name, sizeof name, "process %lld", (long long)pid);
        TRY(profiles_find(self, name, &profile));
    }
    if (!mst_grow(&self->lanes, &self->lane_capacity, self->n_lanes + 1, sizeof *self->lanes))
        return mst_fail_memory();
    *out = &self->lanes[self->n_lanes++];
    **out = (struct profile_lane){.pid = pid, .tid = tid, .profile = profile};
    return MST_OK;
}

/* The name of a process: a first lane, without a thread, holds it. */
static mst_status profiles_name(mst_profiles *self, const json_t *event, const char *process)
{
    size_t profile;
    if (process == NULL)
        return MST_OK;
    TRY(profiles_find(self, process, &profile));
    if (!mst_grow(&self->lanes, &self->lane_capacity, self->n_lanes + 1, sizeof *self->lanes))
        return mst_fail_memory();
    self->lanes[self->n_lanes++] = (struct profile_lane){
        .pid = json_integer_value(json_object_get(event, "pid")), .tid = -1, .profile = profile};
    return MST_OK;
}

/* ---- slices ---- */

static mst_status lane_add_op(struct profile_lane *lane, const char *name, double from_us, double us,
                              const json_t *args)
{
    if (!mst_grow(&lane->slices, &lane->capacity, lane->n + 1, sizeof *lane->slices))
        return mst_fail_memory();
    profile_slice *slice = &lane->slices[lane->n];
    *slice = (profile_slice){.from_us = from_us, .us = us, .sums = profile_call(name, us, args)};
    for (size_t i = lane->n; i > 0 && lane->slices[i - 1].from_us >= from_us - ROUNDING; i--) {
        profile_slice *child = &lane->slices[i - 1];
        slice->sums.seconds -= child->inner ? 0.0 : child->us * 1e-6;
        child->inner = true;
    }
    lane->n++;
    return MST_OK;
}

/* Counts the ops of a lane from a time on as those of a kind; returns the time that they cover. Ops before
 * are of a phase that is not in the trace. */
static double lane_settle(struct profile_lane *lane, mst_profile *p, double from_us, mst_profile_kind kind)
{
    double covered_us = 0.0;
    for (size_t i = 0; i < lane->n; i++) {
        const profile_slice *slice = &lane->slices[i];
        bool within = slice->from_us >= from_us - ROUNDING;
        covered_us += within && !slice->inner ? slice->us : 0.0;
        profile_count(p, within ? kind : MST_PROFILE_OTHER, &slice->sums);
    }
    lane->n = 0;
    return covered_us;
}

/* Widens the steps of the process by those of a phase. */
static void profile_add_steps(mst_profile *p, const json_t *args)
{
    const json_t *last = json_object_get(args, "last_step");
    uint64_t from = (uint64_t)json_integer_value(json_object_get(args, "step")),
             to = last != NULL ? (uint64_t)json_integer_value(last) : from;
    if (from == 0)
        return;
    p->first_step = p->first_step == 0 || from < p->first_step ? from : p->first_step;
    p->last_step = to > p->last_step ? to : p->last_step;
    p->all_steps = p->last_step - p->first_step + 1;
}

static void lane_end_phase(struct profile_lane *lane, mst_profile *p, const char *name, double from_us,
                           double us, const json_t *args)
{
    unsigned phase = 0;
    while (phase < MST_PHASES && strcmp(mst_phase_name((mst_phase)phase), name) != 0)
        phase++;
    if (phase == MST_PHASES) /* of another version */
        return;
    bool in_step = mst_profile_in_step((mst_phase)phase);
    double covered_us = lane_settle(lane, p, from_us, in_step ? MST_PROFILE_OP : MST_PROFILE_OTHER);
    p->phases[phase] += us * 1e-6;
    p->covered[phase] += (covered_us < us ? covered_us : us) * 1e-6;
    if (in_step)
        profile_add_steps(p, args);
    p->n_threads += in_step && !lane->phased;
    lane->phased |= in_step;
    if (mst_profile_is_wait((mst_phase)phase)) {
        mst_profile_op wait = profile_call(name, covered_us < us ? us - covered_us : 0.0, NULL);
        profile_count(p, MST_PROFILE_WAIT, &wait);
    }
}

mst_status mst_profiles_event(mst_profiles *self, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name")),
               *kind = json_string_value(json_object_get(event, "cat"));
    const json_t *args = json_object_get(event, "args");
    struct profile_lane *lane = NULL;
    if (name == NULL)
        return MST_OK;
    if (kind == NULL && strcmp(name, "process_name") == 0)
        return profiles_name(self, event, json_string_value(json_object_get(args, "name")));
    bool dropped = kind == NULL && strcmp(name, "dropped") == 0;
    if (!dropped && (kind == NULL ||
                     (strcmp(kind, "op") != 0 && strcmp(kind, "phase") != 0 && strcmp(kind, "steps") != 0)))
        return MST_OK;
    TRY(profiles_lane(self, event, &lane));
    mst_profile *p = &self->items[lane->profile];
    double from_us = json_number_value(json_object_get(event, "ts")),
           us = json_number_value(json_object_get(event, "dur"));
    if (dropped) {
        p->dropped += (uint64_t)json_integer_value(json_object_get(args, "value"));
    } else if (strcmp(kind, "op") == 0) {
        return lane_add_op(lane, name, from_us, us, args);
    } else if (strcmp(kind, "phase") == 0) {
        lane_end_phase(lane, p, name, from_us, us, args);
    } else {
        p->steps += (uint64_t)json_integer_value(json_object_get(args, "steps"));
        p->rows += (uint64_t)json_integer_value(json_object_get(args, "rows"));
    }
    return MST_OK;
}

/* Ops of a lane without phases ran beside the steps; those of a phase that did not end are left out. */
void mst_profiles_file(mst_profiles *self)
{
    for (size_t i = 0; i < self->n_lanes; i++)
        if (!self->lanes[i].phased)
            lane_settle(&self->lanes[i], &self->items[self->lanes[i].profile], 0.0, MST_PROFILE_BESIDE);
    profiles_drop_lanes(self);
}

/* ---- sums ---- */

static void profile_add(mst_profile *to, const mst_profile *from)
{
    to->n_processes += from->n_processes;
    to->n_threads += from->n_threads;
    to->steps += from->steps;
    to->all_steps += from->all_steps;
    to->rows += from->rows;
    to->dropped += from->dropped;
    for (unsigned i = 0; i < MST_PHASES; i++) {
        to->phases[i] += from->phases[i];
        to->covered[i] += from->covered[i];
    }
    for (size_t i = 0; i < from->n_ops; i++)
        profile_count(to, from->ops[i].kind, &from->ops[i]);
}

static int profile_by_name(const void *a, const void *b)
{
    const mst_profile *x = a, *y = b;
    size_t n = strlen(x->process), m = strlen(y->process);
    int role = strncmp(x->process, y->process, 3); /* local, rank-, server-, worker- */
    return role != 0 ? -role : n != m ? (n > m ? 1 : -1) : strcmp(x->process, y->process);
}

/* The name of the sum that a process belongs to: "worker-*" for worker-3. */
static void profile_role(const mst_profile *self, char *out, size_t size)
{
    const char *dash = strrchr(self->process, '-');
    int n = dash != NULL ? (int)(dash - self->process) : (int)strlen(self->process);
    snprintf(out, size, "%.*s-*", n, self->process);
}

mst_status mst_profiles_sum(mst_profiles *self)
{
    size_t n = self->n;
    if (n > 0)
        qsort(self->items, n, sizeof *self->items, profile_by_name);
    for (size_t from = 0, to; from < n; from = to) {
        char role[MST_PROFILE_NAME], other[MST_PROFILE_NAME];
        size_t sum;
        profile_role(&self->items[from], role, sizeof role);
        for (to = from + 1; to < n; to++) {
            profile_role(&self->items[to], other, sizeof other);
            if (strcmp(role, other) != 0)
                break;
        }
        if (to - from < 2)
            continue;
        TRY(profiles_find(self, role, &sum));
        self->items[sum].n_processes = 0;
        for (size_t i = from; i < to; i++)
            profile_add(&self->items[sum], &self->items[i]);
    }
    for (size_t i = 0; i < self->n; i++)
        if (self->items[i].n_ops > 0)
            qsort(self->items[i].ops, self->items[i].n_ops, sizeof *self->items[i].ops, profile_by_time);
    return MST_OK;
}
