/* check_trace FILE [SLACK_MS]: what `muster trace merge` writes is sound. Prints how much of each kind there
 * is; every violation is a line on standard error, and exit code 1.
 *
 * 1. Times count from the start of the job: all are below DAY, and the file says when that was.
 * 2. Every arrow has one beginning and one end, in different processes, and goes forward; by SLACK_MS at most
 *    backwards, where clocks are estimated.
 * 3. Slices of a thread nest: two are apart, or one lies within the other.
 * Times are compared in whole nanoseconds, as readers of the format do. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define DAY ((int64_t)86400 * 1000000000)

typedef struct slice {
    int64_t thread, from, to;
    const char *name;
} slice;

typedef struct end {
    int64_t id, pid, at;
    bool begins;
} end;

static unsigned wrong;

#define WRONG(...)                                                                                           \
    do {                                                                                                     \
        if (wrong++ < 20)                                                                                    \
            fprintf(stderr, __VA_ARGS__);                                                                    \
    } while (0)

static int64_t ns_of(const json_t *event, const char *key)
{
    return llround(json_number_value(json_object_get(event, key)) * 1000.0);
}

static int64_t number(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

static int by_place(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to < y->to) - (x->to > y->to); /* the outer one first */
}

static int by_id(const void *a, const void *b)
{
    const end *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : y->begins - x->begins;
}

static void check_slices(slice *slices, size_t n)
{
    size_t *open = malloc((n + 1) * sizeof *open), depth = 0;
    qsort(slices, n, sizeof *slices, by_place);
    for (size_t i = 0; i < n && open != NULL; i++) {
        const slice *s = &slices[i];
        while (depth > 0 &&
               (slices[open[depth - 1]].thread != s->thread || slices[open[depth - 1]].to <= s->from))
            depth--;
        const slice *outer = depth > 0 ? &slices[open[depth - 1]] : NULL;
        if (outer != NULL && s->to > outer->to)
            WRONG("thread %" PRId64 ": %s at %" PRId64 " ns ends %" PRId64 " ns after %s around it\n",
                  s->thread, s->name, s->from, s->to - outer->to, outer->name);
        open[depth++] = i;
    }
    free(open);
}

static void check_arrows(end *ends, size_t n, int64_t slack)
{
    qsort(ends, n, sizeof *ends, by_id);
    for (size_t i = 0; i < n;) {
        size_t k = i;
        while (k < n && ends[k].id == ends[i].id)
            k++;
        const end *from = &ends[i], *to = &ends[k - 1];
        if (k - i != 2 || !from->begins || to->begins)
            WRONG("arrow %" PRId64 " has %zu ends\n", from->id, k - i);
        else if (from->pid == to->pid)
            WRONG("arrow %" PRId64 " stays in process %" PRId64 "\n", from->id, from->pid);
        else if (from->at > to->at + slack)
            WRONG("arrow %" PRId64 " ends %" PRId64 " ns before it begins\n", from->id, from->at - to->at);
        i = k;
    }
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *events = argc == 2 || argc == 3 ? json_load_file(argv[1], 0, &error) : NULL, *event;
    size_t i, n_slices = 0, n_ends = 0, all = json_array_size(events);
    slice *slices = calloc(all + 1, sizeof *slices);
    end *ends = calloc(all + 1, sizeof *ends);
    bool dated = false;
    if (events == NULL || slices == NULL || ends == NULL) {
        fprintf(stderr, "usage: check_trace FILE [SLACK_MS]; FILE holds a JSON array%s%s\n",
                argc >= 2 ? ": " : "", argc >= 2 ? error.text : "");
        return 2;
    }
    json_array_foreach(events, i, event)
    {
        const char *ph = json_string_value(json_object_get(event, "ph")),
                   *name = json_string_value(json_object_get(event, "name"));
        int64_t at = ns_of(event, "ts"), pid = number(event, "pid");
        if (ph == NULL || name == NULL) {
            WRONG("event %zu has no name or kind\n", i);
            continue;
        }
        dated |= strcmp(name, "job_start") == 0 &&
                 number(json_object_get(event, "args"), "unix_us") > 1500000000000000;
        if (at < 0 || at > DAY)
            WRONG("event %zu, %s, is %" PRId64 " ns after the start of the job\n", i, name, at);
        if (strcmp(ph, "X") == 0)
            slices[n_slices++] =
                (slice){pid << 16 | number(event, "tid"), at, at + ns_of(event, "dur"), name};
        if (strcmp(ph, "s") == 0 || strcmp(ph, "f") == 0)
            ends[n_ends++] = (end){number(event, "id"), pid, at, ph[0] == 's'};
    }
    if (!dated)
        WRONG("no event says when the job began\n");
    check_slices(slices, n_slices);
    check_arrows(ends, n_ends, argc == 3 ? 1000000 * strtoll(argv[2], NULL, 10) : 0);
    printf("slices %zu arrows %zu wrong %u\n", n_slices, n_ends / 2, wrong);
    free(slices);
    free(ends);
    json_decref(events);
    return wrong > 0;
}
