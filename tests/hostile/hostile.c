/* A muster that misbehaves on command: the program itself, linked so that every mst_net_send passes through
 * here first. As a worker it authenticates and joins like any other, and then sends what HOSTILE names:
 *
 *     HOSTILE=COMMAND hostile train --role worker ...
 *
 * HOSTILE_SERVERS is the number of servers (1). The peers of a worker are its servers, in their order.
 * HOSTILE_LAST is the last float of the model, which the last server owns. Commands of joined workers act at
 * their AT-th push, or replace the messages of one type. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ps/proto.h"

#define AT         5
#define FLOOD_BODY (256u << 10)
#define FLOOD_N    1200
#define UNREAD_N   20000
#define SECONDS    6
#define HALF_AT    300
#define HALF_US    300000

mst_status __real_mst_net_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                               uint32_t n_pieces, void *token);
mst_status __wrap_mst_net_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                               uint32_t n_pieces, void *token);

static uint32_t hostile_number(const char *name, uint32_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static uint32_t hostile_servers(void)
{
    return hostile_number("HOSTILE_SERVERS", 1);
}

static mst_status hostile_send(mst_net *net, uint32_t peer, mst_message m, const void *body, size_t size)
{
    mst_piece piece = {body, size};
    return __real_mst_net_send(net, peer, &m, &piece, size > 0, NULL);
}

/* A STEP that pulls one range, or pushes one float for it. */
static void hostile_step(mst_net *net, uint32_t peer, uint64_t first, uint64_t count, bool push)
{
    uint8_t body[MST_STEP_HEAD + MST_RANGE_SIZE + 64];
    mst_key_list list = {.n_ranges = push ? 0 : 1};
    mst_extent range = {first, count};
    mst_step_head head = {.loss = 1, .weight = 1, .rows = push, .push_floats = push};
    float g = 1e8f;
    size_t n = MST_STEP_HEAD;
    list.ranges[0] = range;
    if (push) {
        memcpy(body + n, &g, sizeof g);
        n += sizeof g;
    } else {
        n += mst_step_list_encode(&list, &head, body + n);
    }
    mst_step_head_encode(&head, body);
    (void)hostile_send(net, peer,
                       (mst_message){.type = MST_PS_STEP,
                                     .flags = push ? MST_STEP_PUSH : MST_STEP_PULL,
                                     .request = push ? 0x80000001u : 1,
                                     .count = push ? 1 : 0,
                                     .step = 1},
                       body, n);
}

static void hostile_marker(mst_net *net, uint32_t peer, uint64_t step)
{
    (void)hostile_send(net, peer,
                       (mst_message){.type = MST_PS_MARKER, .flags = 2, .count = UINT32_MAX, .step = step},
                       NULL, 0);
}

static void hostile_eval_list(mst_net *net, uint32_t peer)
{
    uint8_t body[MST_STEP_HEAD] = {0};
    (void)hostile_send(net, peer, (mst_message){.type = MST_PS_EVAL_LIST, .flags = MST_STEP_PULL}, body,
                       sizeof body);
}

/* ---- without a JOIN ---- */

static mst_status hostile_instead_of_join(const char *command, mst_net *net)
{
    uint32_t n = hostile_servers();
    for (uint32_t s = 0; s < n; s++) {
        uint64_t first = s + 1 < n ? 0 : hostile_number("HOSTILE_LAST", 0);
        if (strcmp(command, "stranger-step") == 0) {
            hostile_step(net, s, first, 1, false);
            hostile_step(net, s, first, 1, true);
        } else if (strcmp(command, "stranger-marker") == 0) {
            hostile_marker(net, s, 1u << 30);
        } else if (strcmp(command, "stranger-eval-list") == 0) {
            hostile_eval_list(net, s);
        }
    }
    return MST_OK;
}

/* ---- a joined worker ---- */

/* Every server gets a message that the worker does not owe it. */
static void hostile_at_push(const char *command, mst_net *net, uint64_t step)
{
    uint32_t n = hostile_servers();
    if (strcmp(command, "bad-json") == 0)
        (void)hostile_send(net, 0, (mst_message){.type = MST_PS_REPORT}, "{", 1);
    for (uint32_t s = 0; s < n; s++) {
        if (strcmp(command, "marker") == 0)
            hostile_marker(net, s, step - 1);
        if (strcmp(command, "eval-list") == 0)
            hostile_eval_list(net, s);
    }
    if (strcmp(command, "late-marker") == 0) /* only the last server, which does not decide on cuts */
        hostile_marker(net, n - 1, step - 1);
    if (strcmp(command, "hold") == 0) {
        uint8_t *body = calloc(1, FLOOD_BODY);
        hostile_marker(net, n - 1, step - 1);
        for (unsigned i = 0; body != NULL && i < FLOOD_N; i++)
            if (hostile_send(net, n - 1, (mst_message){.type = MST_PS_STEP, .flags = MST_STEP_PUSH}, body,
                             FLOOD_BODY) != MST_OK)
                break;
        free(body);
    }
    if (strcmp(command, "unread") == 0) { /* requests weights and does not read them */
        uint64_t end = mst_now_ns() + SECONDS * MST_S;
        for (unsigned i = 0; mst_now_ns() < end; i++) {
            if (i < UNREAD_N)
                hostile_step(net, 0, 0, hostile_number("HOSTILE_LAST", 0), false);
            else
                usleep(1000);
        }
        _exit(0);
    }
}

/* Changes a push. */
static mst_status hostile_push(const char *command, mst_net *net, uint32_t peer, mst_message m,
                               const mst_piece *pieces, uint32_t n_pieces)
{
    size_t size = 0, at = 0;
    for (uint32_t i = 0; i < n_pieces; i++)
        size += pieces[i].size;
    uint8_t *body = malloc(size + 1);
    if (body == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < n_pieces; at += pieces[i++].size)
        memcpy(body + at, pieces[i].data, pieces[i].size);
    const float nan = NAN, infinite = INFINITY;
    const double nan_loss = NAN;
    const uint32_t most = UINT32_MAX;
    uint32_t floats;
    memcpy(&floats, body + 20, sizeof floats);
    if (strcmp(command, "nan") == 0 && floats > 0)
        memcpy(body + MST_STEP_HEAD + 4 * (size_t)(floats - 1), &nan, sizeof nan);
    if (strcmp(command, "inf") == 0 && floats > 0)
        memcpy(body + MST_STEP_HEAD, &infinite, sizeof infinite);
    if (strcmp(command, "nan-loss") == 0)
        memcpy(body, &nan_loss, sizeof nan_loss);
    if (strcmp(command, "rows") == 0)
        memcpy(body + 16, &most, sizeof most);
    if (strcmp(command, "floats") == 0)
        memcpy(body + 20, &most, sizeof most);
    if (strcmp(command, "keys") == 0 && size >= 8)
        memset(body + size - 8, 0xff, 8);
    if (strcmp(command, "future") == 0)
        m.step += 3;
    if (strcmp(command, "past") == 0)
        m.step -= 3;
    if (strcmp(command, "exhausted") == 0)
        m.flags |= MST_STEP_EXHAUSTED;
    mst_status st = hostile_send(net, peer, m, body, size);
    if (strcmp(command, "twice") == 0)
        st = hostile_send(net, peer, m, body, size);
    free(body);
    return st;
}

/* Ends this process between its pushes for one step to the first and to the second server. "last": after the
 * others have pushed. */
static void hostile_half(const char *command, mst_net *net, uint64_t step)
{
    static unsigned sent;
    if (strncmp(command, "half", 4) != 0 || step != HALF_AT)
        return;
    if (sent++ == 0) {
        usleep(strcmp(command, "half-last") == 0 ? HALF_US : 0);
        return;
    }
    (void)mst_net_flush(net, mst_now_ns() + MST_S);
    (void)raise(SIGKILL);
}

mst_status __wrap_mst_net_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                               uint32_t n_pieces, void *token)
{
    static unsigned pushes;
    const char *command = getenv("HOSTILE");
    if (command == NULL)
        command = "";
    if (m->type == MST_PS_JOIN && strncmp(command, "stranger", 8) == 0)
        return hostile_instead_of_join(command, net);
    if (m->type == MST_PS_JOIN && strcmp(command, "join-twice") == 0)
        (void)__real_mst_net_send(net, peer, m, pieces, n_pieces, NULL);
    if ((m->type == MST_PS_EVAL_RESULT && strcmp(command, "no-result") == 0) ||
        (m->type == MST_PS_EVAL_LIST && strcmp(command, "no-list") == 0) ||
        (m->type == MST_PS_REPORT && m->flags & MST_REPORT_LAST && strcmp(command, "no-report") == 0))
        return MST_OK;
    if (m->type != MST_PS_STEP || !(m->flags & MST_STEP_PUSH))
        return __real_mst_net_send(net, peer, m, pieces, n_pieces, token);
    pushes += peer == 0;
    hostile_half(command, net, m->step);
    if (pushes == AT && peer == 0)
        hostile_at_push(command, net, m->step);
    bool changes = pushes == AT || (pushes > AT && strcmp(command, "nan-loss") == 0);
    return changes ? hostile_push(command, net, peer, *m, pieces, n_pieces)
                   : __real_mst_net_send(net, peer, m, pieces, n_pieces, token);
}
