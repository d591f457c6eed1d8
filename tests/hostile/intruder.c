/* An authenticated process that never joins: it connects again and again as a worker, and sends random and
 * mutated messages until it is dropped.
 *
 *     intruder SEED MESSAGES INDEX ADDRESS...
 *
 * The secret is MUSTER_SECRET, if set. It ends after so many messages, and prints how often it was dropped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "ps/proto.h"

#define BODY    2048
#define BURST   16           /* messages of one connection, at most */
#define UP_NS   (2 * MST_S)  /* to connect */
#define WAIT_NS (2 * MST_MS) /* for the answer to a burst */

typedef struct intruder {
    mst_rng rng;
    mst_net *net;
    bool up, down;
    uint64_t n_down;
} intruder;

static void intruder_up(void *arg, uint32_t peer, const mst_identity *who)
{
    intruder *s = arg;
    (void)peer;
    (void)who;
    s->up = true;
}

static void intruder_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    intruder *s = arg;
    (void)peer;
    (void)why;
    s->down = true;
}

static mst_status intruder_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    static uint8_t room[1 << 20];
    (void)arg;
    (void)peer;
    *out = room;
    return m->size <= sizeof room ? MST_OK : mst_fail(MST_EPEER, "too large");
}

static mst_status intruder_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    (void)arg;
    (void)peer;
    (void)m;
    (void)body;
    return MST_OK;
}

static void intruder_sent(void *arg, uint32_t peer, void *token)
{
    (void)arg;
    (void)peer;
    (void)token;
}

/* Bytes that resemble those of a message; returns their number. */
static size_t intruder_text(intruder *s, uint8_t *out)
{
    static const char *const texts[] = {
        "{\"role\": \"worker\", \"index\": 1, \"same\": {}, \"cluster\": \"\", \"model\": {}, \"data\": "
        "{\"rows\": 5}}",
        "{\"steps\": 1, \"rows\": 2}",
        "{\"test\": {\"loss\": 1.0, \"rows\": 3}}",
        "{\"error\": 5}",
        "[[[[[[[[[[[[[[[[[[[[[[[[",
        "{\"a\": \"\\u0000\", \"a\": 1}",
        "{",
        "null",
        "",
    };
    const char *text = texts[mst_rng_below(&s->rng, sizeof texts / sizeof *texts)];
    size_t n = strlen(text);
    memcpy(out, text, n);
    if (n > 0 && mst_rng_below(&s->rng, 2) == 0)
        out[mst_rng_below(&s->rng, (uint32_t)n)] = (uint8_t)mst_rng_u32(&s->rng);
    return n;
}

/* A body of a STEP whose fields are near those of a valid one. */
static size_t intruder_step(intruder *s, uint8_t *out)
{
    mst_step_head head = {.loss = 1, .weight = 1, .rows = mst_rng_below(&s->rng, 3)};
    mst_key_list list = {.n_ranges = 1};
    list.ranges[0] = (mst_extent){mst_rng_below(&s->rng, 100), 1 + mst_rng_below(&s->rng, 100)};
    size_t n = MST_STEP_HEAD + mst_step_list_encode(&list, &head, out + MST_STEP_HEAD);
    mst_step_head_encode(&head, out);
    for (uint32_t flips = mst_rng_below(&s->rng, 4); flips > 0; flips--)
        out[mst_rng_below(&s->rng, (uint32_t)n)] ^= (uint8_t)(1u << mst_rng_below(&s->rng, 8));
    return n;
}

static void intruder_send(intruder *s, uint32_t peer)
{
    uint8_t body[BODY];
    mst_message m = {.type = (uint16_t)(MST_NET_TYPES + mst_rng_below(&s->rng, 32)),
                     .flags = mst_rng_below(&s->rng, 2) ? mst_rng_u32(&s->rng) : mst_rng_below(&s->rng, 8),
                     .request = mst_rng_below(&s->rng, 20),
                     .count = mst_rng_below(&s->rng, 2) ? mst_rng_u32(&s->rng) : mst_rng_below(&s->rng, 8),
                     .step = mst_rng_below(&s->rng, 2) ? mst_rng_u64(&s->rng) : mst_rng_below(&s->rng, 8)};
    size_t n = 0;
    switch (mst_rng_below(&s->rng, 4)) {
    case 0:
        n = intruder_text(s, body);
        break;
    case 1:
        n = intruder_step(s, body);
        break;
    case 2:
        n = mst_rng_below(&s->rng, BODY);
        for (size_t i = 0; i < n; i++)
            body[i] = (uint8_t)mst_rng_u32(&s->rng);
        break;
    default:
        break;
    }
    mst_piece piece = {body, n};
    (void)mst_net_send(s->net, peer, &m, &piece, n > 0, NULL);
}

/* Polls until a flag is set, or for so long. */
static void intruder_poll(intruder *s, const bool *flag, uint64_t ns)
{
    uint64_t end = mst_now_ns() + ns;
    while (!*flag && !s->down && mst_now_ns() < end)
        if (mst_net_poll(s->net, end) != MST_OK)
            exit(1);
}

int main(int argc, char **argv)
{
    static const mst_net_events events = {.up = intruder_up,
                                          .down = intruder_down,
                                          .body = intruder_body,
                                          .message = intruder_message,
                                          .sent = intruder_sent};
    if (argc < 5)
        return 2;
    intruder s = {0};
    uint64_t n = strtoull(argv[2], NULL, 10), sent = 0;
    mst_net_options options = {.self = {.role = MST_ROLE_WORKER, .index = (uint32_t)atoi(argv[3])},
                               .secret = getenv("MUSTER_SECRET"),
                               .max_body = 1 << 20,
                               .max_queue = 1 << 20,
                               .peer_timeout_ms = 10000,
                               .hello_timeout_ms = 5000};
    const char *job = getenv("MUSTER_JOB");
    snprintf(options.self.job, sizeof options.self.job, "%s", job != NULL ? job : "");
    mst_rng_init(&s.rng, strtoull(argv[1], NULL, 10), MST_RNG_TEST, 0);
    while (sent < n) {
        uint32_t peer;
        options.self.incarnation = mst_rng_u64(&s.rng);
        s.up = s.down = false;
        if (mst_net_new(&mst_net_tcp, &options, &events, &s, &s.net) != MST_OK ||
            mst_net_connect(s.net, argv[4 + mst_rng_below(&s.rng, (uint32_t)(argc - 4))],
                            mst_now_ns() + UP_NS, &peer) != MST_OK)
            return 1;
        intruder_poll(&s, &s.up, UP_NS);
        for (uint32_t burst = 1 + mst_rng_below(&s.rng, BURST); s.up && burst > 0; burst--, sent++)
            intruder_send(&s, peer);
        sent += !s.up; /* refused at once */
        intruder_poll(&s, &s.down, WAIT_NS);
        s.n_down += s.down;
        mst_net_destroy(s.net);
    }
    printf("%llu messages, dropped %llu times\n", (unsigned long long)sent, (unsigned long long)s.n_down);
    return 0;
}
