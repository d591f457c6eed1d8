/* Letters to rank 0 over the connections of the watch; contract in watch.h.
 *
 * MPI itself is no way for them: it is used by one thread, which is in the middle of a step or asleep, and a
 * rank's MPI may hang when another one dies. The watch has a thread and a connection to rank 0 that outlive
 * all that.
 *
 *   rank 0   OPEN    somebody takes letters now
 *   others   LETTER  as many as there are, once a second
 *            DONE    there will be no more
 *            CLOCK   a question once a second, and rank 0's answer
 *
 * Invariants
 * 1. At most QUEUED_MAX bytes wait for rank 0 when a letter is taken: a sentence of the watch's is never far
 * behind, and a slow way to rank 0 leaves letters with those who write them, who bound their memory.
 * 2. A letter that was taken is sent once, or its connection is down. */
#include "base/alloc.h"
#include "base/clock.h"
#include "ranks/rank_watch_impl.h"

#define LOOK_NS    MST_S
#define AGAIN_NS   (20 * MST_MS) /* while letters wait for room */
#define QUEUED_MAX ((uint64_t)256 << 10)

static void deliver(mst_watch *w, int rank, const mst_message *m, const void *body, size_t bytes)
{
    mst_piece piece = {.data = body, .size = bytes};
    if (w->members[rank].peer != MST_WATCH_NOBODY)
        (void)mst_net_send(w->net, w->members[rank].peer, m, &piece, bytes > 0, NULL);
}

/* ---- the thread ---- */

static void ask_clock(mst_watch *w)
{
    w->asked_ns = mst_now_ns();
    deliver(w, 0, &(mst_message){.type = CLOCK, .request = ++w->asked}, NULL, 0);
}

/* Sends letters while there is room; whether there may be more. */
static bool send_letters(mst_watch *w)
{
    mst_net_stats stats;
    void *letter;
    size_t bytes;
    bool more = true;
    pthread_mutex_lock(&w->post);
    while (w->members[0].peer != MST_WATCH_NOBODY) {
        mst_net_stats_get(w->net, w->members[0].peer, &stats);
        if (stats.queued > QUEUED_MAX)
            break;
        more = w->letters.next != NULL && w->letters.next(w->letters.arg, &letter, &bytes);
        if (!more)
            break;
        if (bytes <= MST_WATCH_LETTER)
            deliver(w, 0, &(mst_message){.type = LETTER}, letter, bytes);
        mst_free(letter);
    }
    pthread_mutex_unlock(&w->post);
    return more && w->members[0].peer != MST_WATCH_NOBODY;
}

/* Returns when the next tick is due; UINT64_MAX: nobody listens. */
static uint64_t tick(mst_watch *w, uint64_t now)
{
    pthread_mutex_lock(&w->post);
    bool listens = w->letters.tick != NULL;
    if (listens && now >= w->ticked_ns + LOOK_NS) {
        w->ticked_ns = now;
        w->letters.tick(w->letters.arg);
    }
    pthread_mutex_unlock(&w->post);
    return listens ? w->ticked_ns + LOOK_NS : UINT64_MAX;
}

static void serve_zero(mst_watch *w)
{
    pthread_mutex_lock(&w->mutex);
    bool opening = w->opening;
    w->opening = false;
    pthread_mutex_unlock(&w->mutex);
    for (int r = 1; opening && r < w->size; r++)
        deliver(w, r, &(mst_message){.type = OPEN}, NULL, 0);
}

/* When a rank other than 0 is to look again. */
static uint64_t serve_other(mst_watch *w, uint64_t now)
{
    pthread_mutex_lock(&w->mutex);
    bool finishing = w->finishing, finished = w->finished;
    pthread_mutex_unlock(&w->mutex);
    if (finished || (!finishing && !w->open))
        return UINT64_MAX;
    if (!finishing && now < w->looked_ns + LOOK_NS)
        return w->looked_ns + LOOK_NS;
    if (!finishing && now >= w->asked_ns + LOOK_NS)
        ask_clock(w);
    if (w->open && send_letters(w))
        return now + AGAIN_NS;
    w->looked_ns = now;
    if (!finishing)
        return now + LOOK_NS;
    deliver(w, 0, &(mst_message){.type = DONE}, NULL, 0);
    pthread_mutex_lock(&w->mutex);
    w->finished = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    return UINT64_MAX;
}

uint64_t mst_letters_serve(mst_watch *w)
{
    uint64_t now = mst_now_ns(), due = tick(w, now), other = UINT64_MAX;
    if (w->rank == 0)
        serve_zero(w);
    else
        other = serve_other(w, now);
    return due < other ? due : other;
}

static void hear_clock(mst_watch *w, const mst_message *m, const void *body)
{
    if (m->request != w->asked || w->asked_ns == 0 || body == NULL)
        return;
    pthread_mutex_lock(&w->post);
    bool again =
        w->letters.clock_heard != NULL && w->letters.clock_heard(w->letters.arg, w->asked_ns, body, m->size);
    pthread_mutex_unlock(&w->post);
    if (again)
        ask_clock(w);
}

static void answer_clock(mst_watch *w, int rank, const mst_message *m)
{
    uint8_t answer[MST_WATCH_CLOCK];
    pthread_mutex_lock(&w->post);
    bool any = w->letters.clock != NULL;
    if (any)
        w->letters.clock(w->letters.arg, answer);
    pthread_mutex_unlock(&w->post);
    if (any)
        deliver(w, rank, &(mst_message){.type = CLOCK, .request = m->request}, answer, sizeof answer);
}

static void hear_done(mst_watch *w, int rank)
{
    if (w->members[rank].done)
        return;
    w->members[rank].done = true;
    pthread_mutex_lock(&w->mutex);
    w->n_done++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

mst_status mst_letters_heard(mst_watch *w, int rank, const mst_message *m, const void *body)
{
    if (w->rank != 0 && m->type == OPEN) {
        w->open = true;
    } else if (w->rank != 0 && m->type == CLOCK) {
        hear_clock(w, m, body);
    } else if (w->rank == 0 && m->type == CLOCK) {
        answer_clock(w, rank, m);
    } else if (w->rank == 0 && m->type == DONE) {
        hear_done(w, rank);
    } else if (w->rank == 0 && m->type == LETTER) {
        pthread_mutex_lock(&w->post);
        if (w->letters.heard != NULL)
            w->letters.heard(w->letters.arg, rank, body, body != NULL ? m->size : 0);
        pthread_mutex_unlock(&w->post);
    } else {
        return mst_fail(MST_EINPUT, "a message of type %u is none of the watch's", m->type);
    }
    return MST_OK;
}

/* ---- any thread ---- */

void mst_watch_letters(mst_watch *w, const mst_letters *letters)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->post);
    w->letters = letters != NULL ? *letters : (mst_letters){0};
    pthread_mutex_unlock(&w->post);
    pthread_mutex_lock(&w->mutex);
    w->opening = w->rank == 0 && letters != NULL;
    pthread_mutex_unlock(&w->mutex);
    if (w->thread_made)
        mst_net_wake(w->net);
}

/* Waits until what the watch's thread changes says so, or somebody is lost. */
static void await(mst_watch *w, const bool *flag, int n_done, uint32_t timeout_ms)
{
    uint64_t deadline = mst_now_ns() + timeout_ms * MST_MS;
    struct timespec until = {.tv_sec = (time_t)(deadline / MST_S), .tv_nsec = (long)(deadline % MST_S)};
    pthread_mutex_lock(&w->mutex);
    while (!*flag && w->n_done < n_done && !w->lost && w->broken.code == MST_OK && mst_now_ns() < deadline)
        pthread_cond_timedwait(&w->changed, &w->mutex, &until);
    pthread_mutex_unlock(&w->mutex);
}

void mst_watch_letters_end(mst_watch *w, uint32_t timeout_ms)
{
    if (w == NULL || !w->thread_made || w->rank == 0)
        return;
    pthread_mutex_lock(&w->mutex);
    w->finishing = true;
    pthread_mutex_unlock(&w->mutex);
    mst_net_wake(w->net);
    await(w, &w->finished, w->size, timeout_ms);
}

void mst_watch_letters_await(mst_watch *w, uint32_t timeout_ms)
{
    static const bool never = false;
    if (w != NULL && w->thread_made && w->rank == 0)
        await(w, &never, w->size - 1, timeout_ms);
}
