/* Messages of the parameter server; contract in proto.h, layout in docs/WIRE.md.
 *
 * Numbers are little-endian and read byte by byte, so that bodies need no alignment.
 *
 * Invariants
 * 1. A decoded head describes exactly the bytes of its message: a walk by the head's counts stays inside.
 * 2. Unused bytes are zero, and a message with others is refused. */
#include "ps/proto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/observe.h"

#include "ps/key_pack.h"

static const char *const type_names[] = {
    [MST_PS_JOB - MST_NET_TYPES] = "JOB",
    [MST_PS_JOIN - MST_NET_TYPES] = "JOIN",
    [MST_PS_SETUP - MST_NET_TYPES] = "SETUP",
    [MST_PS_FLOATS - MST_NET_TYPES] = "FLOATS",
    [MST_PS_READY - MST_NET_TYPES] = "READY",
    [MST_PS_WELCOME - MST_NET_TYPES] = "WELCOME",
    [MST_PS_STEP - MST_NET_TYPES] = "STEP",
    [MST_PS_VALUES - MST_NET_TYPES] = "VALUES",
    [MST_PS_WORK - MST_NET_TYPES] = "WORK",
    [MST_PS_WANT - MST_NET_TYPES] = "WANT",
    [MST_PS_CLOSE - MST_NET_TYPES] = "CLOSE",
    [MST_PS_GONE - MST_NET_TYPES] = "GONE",
    [MST_PS_CUT - MST_NET_TYPES] = "CUT",
    [MST_PS_MARKER - MST_NET_TYPES] = "MARKER",
    [MST_PS_SAVED - MST_NET_TYPES] = "SAVED",
    [MST_PS_CHIEF - MST_NET_TYPES] = "CHIEF",
    [MST_PS_EVAL_LIST - MST_NET_TYPES] = "EVAL_LIST",
    [MST_PS_EVAL_VALUES - MST_NET_TYPES] = "EVAL_VALUES",
    [MST_PS_EVAL_RESULT - MST_NET_TYPES] = "EVAL_RESULT",
    [MST_PS_REPORT - MST_NET_TYPES] = "REPORT",
    [MST_PS_STOP - MST_NET_TYPES] = "STOP",
    [MST_PS_END - MST_NET_TYPES] = "END",
    [MST_PS_FAIL - MST_NET_TYPES] = "FAIL",
    [MST_PS_LOG - MST_NET_TYPES] = "LOG",
    [MST_PS_CLOCK - MST_NET_TYPES] = "CLOCK",
    [MST_PS_GRADIENT - MST_NET_TYPES] = "GRADIENT",
    [MST_PS_WEIGHTS - MST_NET_TYPES] = "WEIGHTS",
    [MST_PS_MEMBER - MST_NET_TYPES] = "MEMBER",
    [MST_PS_TAKE - MST_NET_TYPES] = "TAKE",
    [MST_PS_COPY - MST_NET_TYPES] = "COPY",
    [MST_PS_PIECE - MST_NET_TYPES] = "PIECE",
    [MST_PS_DELTA - MST_NET_TYPES] = "DELTA",
    [MST_PS_COPIED - MST_NET_TYPES] = "COPIED",
    [MST_PS_APPLIED - MST_NET_TYPES] = "APPLIED",
    [MST_PS_STATE - MST_NET_TYPES] = "STATE",
    [MST_PS_ROSTER - MST_NET_TYPES] = "ROSTER",
    [MST_PS_HOLD - MST_NET_TYPES] = "HOLD",
    [MST_PS_PROBE - MST_NET_TYPES] = "PROBE",
};

const char *mst_ps_type_name(uint16_t type)
{
    size_t n = sizeof type_names / sizeof *type_names;
    return type >= MST_NET_TYPES && (size_t)(type - MST_NET_TYPES) < n ? type_names[type - MST_NET_TYPES]
                                                                       : "unknown";
}

/* ---- numbers ---- */

static void proto_put32(uint8_t *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

static void proto_put64(uint8_t *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t proto_get32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint64_t proto_get64(const uint8_t *in)
{
    return proto_get32(in) | (uint64_t)proto_get32(in + 4) << 32;
}

static void proto_put_double(uint8_t *out, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    proto_put64(out, bits);
}

static double proto_get_double(const uint8_t *in)
{
    uint64_t bits = proto_get64(in);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- work ---- */

void mst_work_encode(const mst_work *work, uint8_t *out)
{
    proto_put32(out, work->kind);
    proto_put32(out + 4, work->share);
    proto_put32(out + 8, work->n_shares);
    proto_put32(out + 12, 0);
    proto_put64(out + 16, work->step);
    proto_put64(out + 24, work->epoch);
    proto_put64(out + 32, work->from);
    proto_put64(out + 40, work->to);
}

mst_status mst_work_decode(const uint8_t *in, size_t size, mst_work *out)
{
    if (size < MST_WORK_SIZE)
        return mst_fail(MST_EINPUT, "a work item of %zu bytes; it has %d", size, MST_WORK_SIZE);
    uint32_t kind = proto_get32(in);
    mst_work work = {
        .share = proto_get32(in + 4),
        .n_shares = proto_get32(in + 8),
        .step = proto_get64(in + 16),
        .epoch = proto_get64(in + 24),
        .from = proto_get64(in + 32),
        .to = proto_get64(in + 40),
    };
    if (kind < MST_WORK_SLICE || kind > MST_WORK_STOP || proto_get32(in + 12) != 0)
        return mst_fail(MST_EINPUT, "a work item of unknown kind %" PRIu32, kind);
    work.kind = (mst_work_kind)kind;
    if (work.from > work.to)
        return mst_fail(MST_EINPUT, "a work item whose rows start at %" PRIu64 " and end at %" PRIu64,
                        work.from, work.to);
    if (work.kind == MST_WORK_GRANT && work.from != 0)
        return mst_fail(MST_EINPUT, "a work item that grants rows from %" PRIu64 " on; they start at 0",
                        work.from);
    if (work.kind == MST_WORK_SLICE &&
        (work.share >= work.n_shares || (work.to - work.from) > UINT64_MAX / work.n_shares))
        return mst_fail(MST_EINPUT, "a work item with share %" PRIu32 " of %" PRIu32 " of %" PRIu64 " rows",
                        work.share, work.n_shares, work.to - work.from);
    *out = work;
    return MST_OK;
}

/* ---- steps ---- */

void mst_step_head_encode(const mst_step_head *head, uint8_t *out)
{
    proto_put_double(out, head->loss);
    proto_put_double(out + 8, head->weight);
    proto_put32(out + 16, head->rows);
    proto_put32(out + 20, head->push_floats);
    proto_put32(out + 24, head->pull_ranges);
    proto_put32(out + 28, head->pull_keys);
    proto_put32(out + 32, head->packed_bytes);
    proto_put32(out + 36, head->part_floats);
    proto_put32(out + 40, head->correct);
    proto_put32(out + 44, 0);
}

mst_status mst_step_head_decode(const mst_message *m, const uint8_t *body, mst_step_head *out)
{
    const char *type = mst_ps_type_name(m->type);
    uint32_t wire = m->flags >> MST_STEP_WIRE_SHIFT;
    uint32_t known = MST_STEP_PUSH | MST_STEP_PULL | MST_STEP_EXHAUSTED;
    if (wire > MST_FLOAT_FP16 || (m->flags & ((1u << MST_STEP_WIRE_SHIFT) - 1) & ~known) != 0)
        return mst_fail(MST_EINPUT, "a %s with flags 0x%" PRIx32 ", some of which are undefined", type,
                        m->flags);
    if (m->size < MST_STEP_HEAD)
        return mst_fail(MST_EINPUT, "a %s of %" PRIu64 " bytes; its head alone has %d", type, m->size,
                        MST_STEP_HEAD);
    mst_step_head head = {
        .loss = proto_get_double(body),
        .weight = proto_get_double(body + 8),
        .rows = proto_get32(body + 16),
        .push_floats = proto_get32(body + 20),
        .pull_ranges = proto_get32(body + 24),
        .pull_keys = proto_get32(body + 28),
        .packed_bytes = proto_get32(body + 32),
        .part_floats = proto_get32(body + 36),
        .correct = proto_get32(body + 40),
    };
    if (head.correct > head.rows)
        return mst_fail(MST_EINPUT, "a %s with %" PRIu32 " of %" PRIu32 " rows correct", type, head.correct,
                        head.rows);
    if (head.part_floats != 0 && ((m->flags & MST_STEP_PULL) == 0 || head.part_floats < MST_PART_MIN))
        return mst_fail(MST_EINPUT, "a %s that requests its answer in parts of %" PRIu32 " floats", type,
                        head.part_floats);
    if ((m->flags & MST_STEP_PUSH) == 0 && head.push_floats != 0)
        return mst_fail(MST_EINPUT, "a %s with %" PRIu32 " floats that pushes nothing", type,
                        head.push_floats);
    if ((m->flags & MST_STEP_PULL) == 0 && (head.pull_ranges | head.pull_keys | head.packed_bytes) != 0)
        return mst_fail(MST_EINPUT, "a %s with %" PRIu32 " ranges and %" PRIu32 " keys that pulls nothing",
                        type, head.pull_ranges, head.pull_keys);
    if (head.pull_ranges > MST_EXTENT_MAX)
        return mst_fail(MST_EINPUT, "a %s with %" PRIu32 " ranges; there are at most %d", type,
                        head.pull_ranges, MST_EXTENT_MAX);
    uint64_t size = MST_STEP_HEAD + (uint64_t)head.push_floats * mst_float_size((mst_float_format)wire) +
                    (uint64_t)head.pull_ranges * MST_RANGE_SIZE + head.packed_bytes;
    if (size != m->size)
        return mst_fail(MST_EINPUT, "a %s of %" PRIu64 " bytes whose sections add up to %" PRIu64, type,
                        m->size, size);
    *out = head;
    return MST_OK;
}

mst_extent mst_step_range_decode(const uint8_t *in)
{
    return (mst_extent){.first = proto_get64(in), .count = proto_get64(in + 8)};
}

void mst_step_range_encode(const mst_extent *range, uint8_t *out)
{
    proto_put64(out, range->first);
    proto_put64(out + 8, range->count);
}

size_t mst_step_list_bound(const mst_key_list *list)
{
    return (size_t)list->n_ranges * MST_RANGE_SIZE + mst_key_pack_bound(list->n_keys);
}

size_t mst_step_list_encode(const mst_key_list *list, mst_step_head *head, uint8_t *out)
{
    uint8_t *at = out;
    for (uint32_t i = 0; i < list->n_ranges; i++, at += MST_RANGE_SIZE)
        mst_step_range_encode(&list->ranges[i], at);
    size_t packed = mst_key_pack(list->keys, list->n_keys, at);
    head->pull_ranges = list->n_ranges;
    head->pull_keys = list->n_keys;
    head->packed_bytes = (uint32_t)packed;
    return (size_t)(at - out) + packed;
}

/* ---- deltas ---- */

void mst_delta_head_encode(const mst_delta_head *head, uint8_t *out)
{
    proto_put32(out, head->n_ranges);
    proto_put32(out + 4, head->n_keys);
    proto_put32(out + 8, head->packed_bytes);
    proto_put32(out + 12, 0);
}

mst_status mst_delta_head_decode(const uint8_t *in, uint64_t size, mst_delta_head *out)
{
    if (size < MST_DELTA_HEAD)
        return mst_fail(MST_EPEER, "a DELTA of %" PRIu64 " bytes; its head alone has %d", size,
                        MST_DELTA_HEAD);
    *out = (mst_delta_head){
        .n_ranges = proto_get32(in), .n_keys = proto_get32(in + 4), .packed_bytes = proto_get32(in + 8)};
    if (proto_get32(in + 12) != 0 || mst_delta_list_size(out) > size)
        return mst_fail(MST_EPEER,
                        "a DELTA of %" PRIu64 " bytes with %" PRIu32 " ranges and %" PRIu32 " bytes of keys",
                        size, out->n_ranges, out->packed_bytes);
    return MST_OK;
}

/* ---- JSON ---- */

mst_status mst_ps_json(const mst_message *m, const void *body, json_t **out)
{
    const char *type = mst_ps_type_name(m->type);
    json_error_t error;
    if (m->size > MST_PS_JSON_MAX)
        return mst_fail(MST_EPEER, "a %s of %" PRIu64 " bytes; at most %u are read", type, m->size,
                        MST_PS_JSON_MAX);
    if (m->size == 0)
        return mst_fail(MST_EPEER, "a %s without a body; it has JSON", type);
    json_t *json = json_loadb(body, (size_t)m->size, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL && json_error_code(&error) == json_error_out_of_memory)
        return mst_fail_memory();
    if (json == NULL)
        return mst_fail(MST_EPEER, "a %s that is not JSON: %s at byte %d", type, error.text, error.position);
    *out = json;
    return MST_OK;
}

mst_status mst_ps_send_log(mst_net *net, uint32_t peer, mst_observe *observe)
{
    mst_record record;
    mst_status st = MST_OK;
    uint8_t head[MST_RECORD_HEAD];
    while (st == MST_OK && mst_observe_take(observe, &record)) {
        mst_message m = {.type = MST_PS_LOG};
        mst_piece pieces[] = {{.data = head, .size = sizeof head}, {.data = record.data, .size = record.n}};
        mst_record_encode(&record, head);
        st = mst_net_send(net, peer, &m, pieces, 2, NULL);
        mst_free((void *)record.data);
    }
    return st;
}

mst_status mst_ps_clock_ask(mst_ps_clock *self, mst_net *net, uint32_t peer)
{
    self->asked_ns = mst_now_ns();
    return mst_ps_send(net, peer, &(mst_message){.type = MST_PS_CLOCK, .request = ++self->number});
}

mst_status mst_ps_clock_answer(mst_net *net, uint32_t peer, const mst_message *m, mst_observe *observe)
{
    uint8_t body[MST_CLOCK_ANSWER];
    mst_message answer = {.type = MST_PS_CLOCK, .request = m->request};
    mst_piece piece = {.data = body, .size = sizeof body};
    mst_observe_clock_answer(observe, body);
    return mst_net_send(net, peer, &answer, &piece, 1, NULL);
}

mst_status mst_ps_clock_take(mst_ps_clock *self, mst_net *net, uint32_t peer, const mst_message *m,
                             const void *body, mst_observe *observe)
{
    if (m->size != MST_CLOCK_ANSWER)
        return mst_fail(MST_EINPUT, "a CLOCK of %" PRIu64 " bytes; an answer has %d", m->size,
                        MST_CLOCK_ANSWER);
    if (m->request != self->number || self->asked_ns == 0)
        return MST_OK;
    if (mst_observe_clock_receive(observe, self->asked_ns, body, m->size))
        (void)mst_ps_clock_ask(self, net, peer); /* a lost connection is reported separately */
    return MST_OK;
}

mst_status mst_ps_send_json(mst_net *net, uint32_t peer, const mst_message *m, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json); /* NULL-safe */
    if (text == NULL)
        return mst_fail_memory();
    mst_piece piece = {.data = text, .size = strlen(text)};
    mst_status st = mst_net_send(net, peer, m, &piece, 1, NULL);
    free(text); /* jansson allocates with malloc */
    return st;
}

json_t *mst_ps_text(const char *text)
{
    char plain[MST_ERROR_MAX];
    json_t *json = json_string(text);
    if (json != NULL)
        return json;
    snprintf(plain, sizeof plain, "%s", text);
    for (char *c = plain; *c != '\0'; c++)
        *c = (unsigned char)*c < 128 ? *c : '?';
    return json_string(plain);
}

mst_status mst_ps_send_error(mst_net *net, uint32_t peer, mst_ps_type type, const mst_error *error)
{
    return mst_ps_send_json(net, peer, &(mst_message){.type = type},
                            json_pack("{s:i, s:o, s:i}", "code", (int)error->code, "text",
                                      mst_ps_text(error->text), "lead", (int)error->lead));
}

void mst_ps_read_error(const json_t *json, mst_error *out)
{
    const char *text = "no reason was given";
    json_int_t code = MST_EPEER, lead = 0;
    json_unpack((json_t *)json, "{s:I, s:s, s?I}", "code", &code, "text", &text, "lead", &lead);
    bool valid = (code >= MST_OK && code <= MST_EUNSUPPORTED) || code == MST_EAGAIN;
    *out = (mst_error){.code = valid ? (mst_status)code : MST_EPEER};
    snprintf(out->text, sizeof out->text, "%s", text);
    if (lead > 0 && (size_t)lead <= strlen(out->text))
        out->lead = (unsigned)lead;
}

mst_status mst_ps_send(mst_net *net, uint32_t peer, const mst_message *m)
{
    return mst_net_send(net, peer, m, NULL, 0, NULL);
}
