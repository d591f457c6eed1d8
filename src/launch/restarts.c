/* The restart policy; contract in restarts.h. */
#include "launch/restarts.h"

#include <signal.h>

#include "base/clock.h"

#define FIRST_NS     (10 * MST_S)
#define HOUR_NS      (3600 * MST_S)
#define REPEATS      3
#define PAUSE_MS     100
#define PAUSE_MAX_MS 5000

/* A signal that the process caused itself. */
static bool restarts_is_crash(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE ||
           number == SIGILL || number == SIGSYS || number == SIGTRAP;
}

static void restarts_count_same(mst_restarts *r, const mst_restart_end *end, bool quick)
{
    bool own = !end->by_others && (end->signal == 0 || restarts_is_crash(end->signal));
    bool same = r->n_same > 0 && r->code == end->code && r->signal == end->signal;
    if (!own || !quick)
        r->n_same = 0;
    else if (same)
        r->n_same++;
    else
        r->n_same = 1;
    r->from_start = r->n_same > 0 && (end->first_start || (same && r->from_start));
    r->code = end->code;
    r->signal = end->signal;
}

mst_restart_verdict mst_restarts_decide(mst_restarts *r, const mst_restart_end *end, uint32_t max_restarts,
                                        uint64_t *pause_ms)
{
    bool quick = end->ended_ns - end->began_ns < FIRST_NS;
    restarts_count_same(r, end, quick);
    r->n_quick = quick ? r->n_quick + 1 : 0;
    if (r->n_same >= REPEATS)
        return MST_RESTART_REPEATED;
    if (r->n_in_hour == 0 || end->ended_ns - r->hour_began_ns >= HOUR_NS) {
        r->n_in_hour = 0;
        r->hour_began_ns = end->ended_ns;
    }
    if (r->n_in_hour >= max_restarts)
        return MST_RESTART_SPENT;
    r->n_in_hour++;
    *pause_ms = PAUSE_MS;
    for (uint32_t i = 1; i < r->n_quick && *pause_ms < PAUSE_MAX_MS; i++)
        *pause_ms *= 2;
    if (*pause_ms > PAUSE_MAX_MS)
        *pause_ms = PAUSE_MAX_MS;
    return MST_RESTART_AGAIN;
}
