/* The probe of `muster doctor --cluster`; contract in doctor_cluster.h.
 *
 * One net endpoint that answers messages and, on request, measures one peer: ECHOES small messages, one at a
 * time, then messages of 1 MB for one second, three in flight. A thread reads standard input and wakes the
 * poll; everything else happens on the main thread. The time of the stream ends when the peer has confirmed
 * all bytes, so that bytes in buffers do not count. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/doctor_cluster.h"
#include "net/net.h"

#define ECHOES       200
#define ECHO_BYTES   64
#define PIECE_BYTES  ((size_t)1 << 20)
#define ON_THEIR_WAY 3
#define STREAM_NS    MST_S
#define CONNECT_NS   (10 * MST_S)
#define MEASURE_NS   (25 * MST_S)
#define QUIET_MS     8000
#define LINE_SIZE    512

enum { TYPE_ECHO = MST_NET_TYPES, TYPE_ECHO_BACK, TYPE_PIECE, TYPE_FINISH, TYPE_FINISHED };

/* Shared by the reading thread and the main thread. */
typedef struct inbox {
    pthread_mutex_t lock;
    char line[LINE_SIZE]; /* "": none */
    bool over;            /* standard input has ended */
    pthread_cond_t taken;
    mst_net *net;
} inbox;

typedef struct probe {
    mst_net *net;
    inbox in;
    uint8_t echo[ECHO_BYTES]; /* body of a small message */
    uint8_t *sink;            /* destination of received pieces, which are not used */
    uint8_t *piece;           /* the streamed bytes */
    /* the current measurement */
    uint32_t peer; /* MST_PEER_NONE: none */
    uint32_t n_echoes, on_their_way;
    bool up, streaming, finishing, done;
    uint64_t sent_ns, stream_ns, streamed, deadline_ns;
    double echo_us[ECHOES], gbit_per_s;
    mst_error error;
} probe;

/* ---- standard input ---- */

static void *probe_read_lines(void *arg)
{
    inbox *in = arg;
    char line[LINE_SIZE];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        pthread_mutex_lock(&in->lock);
        while (in->line[0] != '\0')
            pthread_cond_wait(&in->taken, &in->lock);
        memcpy(in->line, line, sizeof line);
        pthread_mutex_unlock(&in->lock);
        mst_net_wake(in->net);
    }
    pthread_mutex_lock(&in->lock);
    in->over = true;
    pthread_mutex_unlock(&in->lock);
    mst_net_wake(in->net);
    return NULL;
}

/* The next line, or ""; false at the end of input, because the parent has ended. */
static bool probe_next_line(inbox *in, char *out)
{
    pthread_mutex_lock(&in->lock);
    memcpy(out, in->line, LINE_SIZE);
    in->line[0] = '\0';
    bool goes_on = !in->over;
    pthread_cond_signal(&in->taken);
    pthread_mutex_unlock(&in->lock);
    return goes_on;
}

static void probe_say(const char *word, const char *text)
{
    printf("%s %s\n", word, text);
    fflush(stdout);
}

/* ---- measuring ---- */

static mst_status probe_send_small(probe *p, uint32_t peer, uint16_t type, uint64_t step, const void *body,
                                   size_t n)
{
    mst_message m = {.type = type, .step = step};
    mst_piece piece = {.data = body, .size = n};
    return mst_net_send(p->net, peer, &m, &piece, n > 0 ? 1 : 0, NULL);
}

static mst_status probe_send_echo(probe *p)
{
    p->sent_ns = mst_now_ns();
    return probe_send_small(p, p->peer, TYPE_ECHO, p->n_echoes, p->echo, sizeof p->echo);
}

/* Keeps pieces in flight until the time is over, then requests the number of bytes received. */
static mst_status probe_stream(probe *p)
{
    while (p->on_their_way < ON_THEIR_WAY && mst_now_ns() < p->stream_ns + STREAM_NS) {
        mst_message m = {.type = TYPE_PIECE};
        mst_piece piece = {.data = p->piece, .size = PIECE_BYTES};
        TRY(mst_net_send(p->net, p->peer, &m, &piece, 1, p->piece));
        p->on_their_way++;
        p->streamed += PIECE_BYTES;
    }
    if (p->on_their_way > 0 || p->finishing)
        return MST_OK;
    p->finishing = true;
    return probe_send_small(p, p->peer, TYPE_FINISH, 0, NULL, 0);
}

static mst_status probe_take_echo(probe *p)
{
    p->echo_us[p->n_echoes++] = (double)(mst_now_ns() - p->sent_ns) * 1e-3;
    if (p->n_echoes < ECHOES)
        return probe_send_echo(p);
    p->streaming = true;
    p->stream_ns = mst_now_ns();
    return probe_stream(p);
}

/* ---- events ---- */

static void probe_fail_measurement(probe *p, mst_status st)
{
    mst_error_save(&p->error, st);
    p->done = true;
}

static void probe_on_up(void *arg, uint32_t peer, const mst_identity *who)
{
    probe *p = arg;
    (void)who;
    if (peer != p->peer)
        return;
    p->up = true;
    mst_status st = probe_send_echo(p);
    if (st != MST_OK)
        probe_fail_measurement(p, st);
}

static void probe_on_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    probe *p = arg;
    if (peer == p->peer && !p->done) {
        p->error = why->error;
        p->done = true;
    }
}

static mst_status probe_on_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    probe *p = arg;
    (void)peer;
    if (m->size > PIECE_BYTES)
        return mst_fail(MST_EINPUT, "a message of %llu bytes is too large for a probe",
                        (unsigned long long)m->size);
    *out = p->sink;
    return MST_OK;
}

static mst_status probe_on_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    probe *p = arg;
    bool mine = peer == p->peer && p->up && !p->done;
    switch (m->type) {
    case TYPE_ECHO:
        return m->size <= ECHO_BYTES
                   ? probe_send_small(p, peer, TYPE_ECHO_BACK, m->step, body, m->size)
                   : mst_fail(MST_EINPUT, "an echo of %llu bytes", (unsigned long long)m->size);
    case TYPE_ECHO_BACK:
        return mine && !p->streaming && m->step == p->n_echoes ? probe_take_echo(p) : MST_OK;
    case TYPE_PIECE:
        return MST_OK;
    case TYPE_FINISH:
        return probe_send_small(p, peer, TYPE_FINISHED, 0, NULL, 0);
    case TYPE_FINISHED:
        if (mine && p->finishing) {
            p->gbit_per_s = (double)p->streamed * 8 / (double)(mst_now_ns() - p->stream_ns);
            p->done = true;
        }
        return MST_OK;
    default:
        return mst_fail(MST_EINPUT, "unexpected message type %u", m->type);
    }
}

static void probe_on_sent(void *arg, uint32_t peer, void *token)
{
    probe *p = arg;
    (void)token;
    if (peer != p->peer || p->done)
        return;
    p->on_their_way--;
    mst_status st = probe_stream(p);
    if (st != MST_OK)
        probe_fail_measurement(p, st);
}

static int probe_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- commands ---- */

static void probe_obey_listen(probe *p, const char *address)
{
    char bound[LINE_SIZE];
    if (mst_net_listen(p->net, address, bound, sizeof bound) == MST_OK)
        probe_say("listening", bound);
    else
        probe_say("failed", mst_error_text());
}

static void probe_begin_measurement(probe *p, const char *address)
{
    uint64_t now = mst_now_ns();
    p->n_echoes = p->on_their_way = 0;
    p->up = p->streaming = p->finishing = p->done = false;
    p->streamed = 0;
    p->error = (mst_error){0};
    p->deadline_ns = now + MEASURE_NS;
    mst_status st = mst_net_connect(p->net, address, now + CONNECT_NS, &p->peer);
    if (st != MST_OK) {
        p->peer = MST_PEER_NONE;
        probe_say("failed", mst_error_text());
    }
}

static void probe_end_measurement(probe *p)
{
    char text[96], name[LINE_SIZE];
    if (!p->done) {
        mst_net_name_of(p->net, p->peer, name, sizeof name);
        probe_fail_measurement(
            p, mst_fail(MST_ETIMEOUT, "%s has not answered within %d s", name, (int)(MEASURE_NS / MST_S)));
    }
    if (p->error.code == MST_OK) {
        qsort(p->echo_us, ECHOES, sizeof *p->echo_us, probe_by_value);
        snprintf(text, sizeof text, "%.1f %.4f", p->echo_us[ECHOES / 2], p->gbit_per_s);
        probe_say("result", text);
    } else {
        probe_say("failed", p->error.text);
    }
    if (p->up)
        mst_net_drop(p->net, p->peer, "the measurement is over");
    p->peer = MST_PEER_NONE;
}

static mst_status probe_serve(probe *p)
{
    char line[LINE_SIZE];
    probe_say("ready", "");
    while (probe_next_line(&p->in, line)) {
        if (strncmp(line, "listen ", 7) == 0)
            probe_obey_listen(p, line + 7);
        else if (strncmp(line, "measure ", 8) == 0 && p->peer == MST_PEER_NONE)
            probe_begin_measurement(p, line + 8);
        else if (line[0] != '\0')
            probe_say("failed", "not a command of a probe");
        bool measuring = p->peer != MST_PEER_NONE;
        TRY(mst_net_poll(p->net, measuring ? p->deadline_ns : mst_now_ns() + 3600 * MST_S));
        if (measuring && (p->done || mst_now_ns() >= p->deadline_ns))
            probe_end_measurement(p);
    }
    return MST_OK;
}

mst_status mst_doctor_probe(void)
{
    static const mst_net_events events = {.up = probe_on_up,
                                          .down = probe_on_down,
                                          .body = probe_on_body,
                                          .message = probe_on_message,
                                          .sent = probe_on_sent};
    const char *job = getenv("MUSTER_JOB");
    mst_net_options options = {.self = {.role = MST_ROLE_PROBE, .incarnation = mst_now_ns()},
                               .secret = getenv("MUSTER_SECRET"),
                               .max_body = PIECE_BYTES,
                               .max_queue = 2 * ON_THEIR_WAY * PIECE_BYTES,
                               .peer_timeout_ms = QUIET_MS,
                               .hello_timeout_ms = QUIET_MS};
    mst_status st;
    pthread_t thread;
    snprintf(options.self.job, sizeof options.self.job, "%s", job != NULL ? job : "");
    probe *p = mst_zalloc(sizeof *p);
    if (p == NULL)
        return mst_fail_memory();
    p->peer = MST_PEER_NONE;
    p->sink = mst_alloc(PIECE_BYTES);
    p->piece = mst_zalloc(PIECE_BYTES);
    if (p->sink == NULL || p->piece == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_net_new(&mst_net_tcp, &options, &events, p, &p->net));
    pthread_mutex_init(&p->in.lock, NULL);
    pthread_cond_init(&p->in.taken, NULL);
    p->in.net = p->net;
    if (pthread_create(&thread, NULL, probe_read_lines, &p->in) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "no thread to read standard input"));
    st = probe_serve(p);
    if (st != MST_OK)
        return st; /* the thread may still be reading; the process ends */
    pthread_join(thread, NULL);
out:
    mst_net_destroy(p->net);
    mst_free(p->sink);
    mst_free(p->piece);
    mst_free(p);
    return st;
}
