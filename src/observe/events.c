/* Contract in events.h. Field numbers are those of TensorFlow's event.proto, summary.proto, tensor.proto,
 * graph.proto, node_def.proto, attr_value.proto and tensor_shape.proto, and of TensorBoard's plugins/hparams
 * api.proto and plugin_data.proto. */
#include "observe/events.h"

#include <math.h>

#include "base/crc.h"

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };
enum {
    EVENT_WALL = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_GRAPH = 4,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTO = 5, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, DT_FLOAT = 1, DT_STRING = 7 };
enum { HPARAMS_START = 3, HPARAMS_END = 4 };
enum { MAP_KEY = 1, MAP_VALUE = 2 };
enum { NODE_NAME = 1, NODE_OP = 2, NODE_INPUT = 3, NODE_DEVICE = 4, NODE_ATTR = 5 };
enum {
    ATTR_LIST = 1,
    ATTR_TEXT = 2,
    ATTR_INT = 3,
    ATTR_FLOAT = 4,
    ATTR_BOOL = 5,
    ATTR_TYPE = 6,
    ATTR_SHAPE = 7
};

#define FRAME_HEAD 12
#define NEST_MAX   4 /* bytes of a nested message's length: up to 2^28 */

/* ---- protobuf ---- */

static void events_add_varint(mst_bytes *out, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 128; value >>= 7)
        bytes[n++] = (uint8_t)(value | 128);
    bytes[n++] = (uint8_t)value;
    mst_bytes_add(out, bytes, n);
}

static void events_add_key(mst_bytes *out, unsigned field, unsigned type)
{
    events_add_varint(out, (uint64_t)field << 3 | type);
}

static void events_add_int(mst_bytes *out, unsigned field, uint64_t value)
{
    events_add_key(out, field, VARINT);
    events_add_varint(out, value);
}

static void events_add_little(mst_bytes *out, uint64_t value, unsigned n)
{
    uint8_t bytes[8];
    mst_put_little(bytes, value, n);
    mst_bytes_add(out, bytes, n);
}

static void events_add_bare_double(mst_bytes *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    events_add_little(out, bits, 8);
}

static void events_add_double(mst_bytes *out, unsigned field, double value)
{
    events_add_key(out, field, FIXED64);
    events_add_bare_double(out, value);
}

static void events_add_float(mst_bytes *out, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    events_add_key(out, field, FIXED32);
    events_add_little(out, bits, 4);
}

static void events_add_text(mst_bytes *out, unsigned field, const char *text)
{
    size_t n = strlen(text);
    events_add_key(out, field, LENGTH);
    events_add_varint(out, n);
    mst_bytes_add(out, text, n);
}

/* A nested message: begin, fields, end. The end inserts the length before the fields. */
static size_t events_nest(mst_bytes *out, unsigned field)
{
    events_add_key(out, field, LENGTH);
    return out->n;
}

static void events_end_nest(mst_bytes *out, size_t begin)
{
    uint8_t bytes[NEST_MAX];
    size_t length = out->n - begin, k = 0;
    for (size_t left = length; k < NEST_MAX; left >>= 7) {
        bytes[k++] = (uint8_t)(left & 127) | (left >= 128 ? 128 : 0);
        if (left < 128)
            break;
    }
    if (length >> 7 * NEST_MAX != 0)
        out->failed = true;
    if (out->failed || !mst_bytes_room(out, k))
        return;
    memmove(out->data + begin + k, out->data + begin, length);
    memcpy(out->data + begin, bytes, k);
    out->n += k;
}

/* ---- records ---- */

/* Begins a record with an Event; events_end ends it. */
static size_t events_begin(mst_bytes *out, double wall, uint64_t step)
{
    static const uint8_t head[FRAME_HEAD];
    size_t begin = out->n;
    mst_bytes_add(out, head, sizeof head);
    events_add_double(out, EVENT_WALL, wall);
    if (step != 0)
        events_add_int(out, EVENT_STEP, step);
    return begin;
}

static void events_end(mst_bytes *out, size_t begin)
{
    if (!mst_bytes_room(out, 4)) {
        out->n = begin;
        return;
    }
    uint8_t *head = out->data + begin, *data = head + FRAME_HEAD;
    size_t length = out->n - begin - FRAME_HEAD;
    mst_put_little(head, length, 8);
    mst_put_little(head + 8, mst_crc_mask(mst_crc32c(0, head, 8)), 4);
    mst_put_little(data + length, mst_crc_mask(mst_crc32c(0, data, length)), 4);
    out->n += 4;
}

void mst_event_version(mst_bytes *out, double wall)
{
    size_t e = events_begin(out, wall, 0);
    events_add_text(out, EVENT_VERSION, "brain.Event:2");
    events_end(out, e);
}

void mst_event_start(mst_bytes *out, double wall, uint64_t step)
{
    enum { STATUS = 1, START = 1 };
    size_t e = events_begin(out, wall, step), session = events_nest(out, EVENT_SESSION);
    events_add_int(out, STATUS, START);
    events_end_nest(out, session);
    events_end(out, e);
}

/* A value of a summary, two nested messages. */
typedef struct value {
    size_t summary, value;
} value;

static value events_begin_value(mst_bytes *out, const char *tag)
{
    value v;
    v.summary = events_nest(out, EVENT_SUMMARY);
    v.value = events_nest(out, 1);
    events_add_text(out, VALUE_TAG, tag);
    return v;
}

static void events_end_value(mst_bytes *out, value v)
{
    events_end_nest(out, v.value);
    events_end_nest(out, v.summary);
}

void mst_event_scalars(mst_bytes *out, double wall, uint64_t step, const mst_scalar *scalars, size_t n)
{
    size_t e = events_begin(out, wall, step), any = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(scalars[i].value))
            continue;
        value v = events_begin_value(out, scalars[i].tag);
        events_add_float(out, VALUE_SIMPLE, (float)scalars[i].value);
        events_end_value(out, v);
        any++;
    }
    if (any > 0)
        events_end(out, e);
    else
        out->n = e;
}

static void events_add_limit(void *arg, double limit, double count)
{
    (void)count;
    events_add_bare_double(arg, limit);
}

static void events_add_count(void *arg, double limit, double count)
{
    (void)limit;
    events_add_bare_double(arg, count);
}

void mst_event_histogram(mst_bytes *out, double wall, uint64_t step, const char *tag, const mst_histogram *h)
{
    enum { MIN = 1, MAX, NUM, SUM, SQUARES, LIMITS, COUNTS };
    size_t e = events_begin(out, wall, step), part;
    value v = events_begin_value(out, tag);
    size_t histo = events_nest(out, VALUE_HISTO);
    events_add_double(out, MIN, h->min);
    events_add_double(out, MAX, h->max);
    events_add_double(out, NUM, h->count);
    events_add_double(out, SUM, h->sum);
    events_add_double(out, SQUARES, h->sum_squares);
    part = events_nest(out, LIMITS);
    mst_histogram_each(h, events_add_limit, out);
    events_end_nest(out, part);
    part = events_nest(out, COUNTS);
    mst_histogram_each(h, events_add_count, out);
    events_end_nest(out, part);
    events_end_nest(out, histo);
    events_end_value(out, v);
    events_end(out, e);
}

/* The plugin that shows the value. The caller adds the content between begin and end. */
typedef struct metadata {
    size_t metadata, plugin, content;
} metadata;

static metadata events_begin_metadata(mst_bytes *out, const char *plugin)
{
    metadata m;
    m.metadata = events_nest(out, VALUE_METADATA);
    m.plugin = events_nest(out, 1);
    events_add_text(out, 1, plugin);
    m.content = events_nest(out, 2);
    return m;
}

static void events_end_metadata(mst_bytes *out, metadata m)
{
    enum { DATA_CLASS = 4, TENSOR = 2 };
    events_end_nest(out, m.content);
    events_end_nest(out, m.plugin);
    events_add_int(out, DATA_CLASS, TENSOR);
    events_end_nest(out, m.metadata);
}

void mst_event_text(mst_bytes *out, double wall, uint64_t step, const char *tag, const char *text)
{
    size_t e = events_begin(out, wall, step);
    value v = events_begin_value(out, tag);
    events_end_metadata(out, events_begin_metadata(out, "text"));
    size_t tensor = events_nest(out, VALUE_TENSOR);
    events_add_int(out, TENSOR_DTYPE, DT_STRING);
    events_end_nest(out, events_nest(out, TENSOR_SHAPE)); /* no dimensions: a single text */
    events_add_text(out, TENSOR_STRING, text);
    events_end_nest(out, tensor);
    events_end_value(out, v);
    events_end(out, e);
}

/* ---- graphs ---- */

/* An entry of a node's attributes: a named AttrValue. */
typedef struct attribute {
    size_t entry, value;
} attribute;

static attribute events_begin_attribute(mst_bytes *out, const char *name)
{
    attribute a;
    a.entry = events_nest(out, NODE_ATTR);
    events_add_text(out, MAP_KEY, name);
    a.value = events_nest(out, MAP_VALUE);
    return a;
}

static void events_end_attribute(mst_bytes *out, attribute a)
{
    events_end_nest(out, a.value);
    events_end_nest(out, a.entry);
}

static void events_add_shape(mst_bytes *out, const json_t *shape)
{
    enum { DIM = 2, SIZE = 1 };
    size_t begin = events_nest(out, ATTR_SHAPE);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        size_t dim = events_nest(out, DIM);
        events_add_int(out, SIZE, (uint64_t)json_integer_value(json_array_get(shape, i)));
        events_end_nest(out, dim);
    }
    events_end_nest(out, begin);
}

/* Adds type and shape of the output of a node, where TensorBoard expects them, and of an input or a
 * parameter. */
static void events_add_output(mst_bytes *out, const json_t *shape, bool source)
{
    attribute a = events_begin_attribute(out, "_output_shapes");
    size_t list = events_nest(out, ATTR_LIST);
    events_add_shape(out, shape);
    events_end_nest(out, list);
    events_end_attribute(out, a);
    a = events_begin_attribute(out, "dtype");
    events_add_int(out, ATTR_TYPE, DT_FLOAT);
    events_end_attribute(out, a);
    if (!source)
        return;
    a = events_begin_attribute(out, "shape");
    events_add_shape(out, shape);
    events_end_attribute(out, a);
}

static void events_add_node(mst_bytes *out, const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "name")),
               *op = json_string_value(json_object_get(node, "op")),
               *device = json_string_value(json_object_get(node, "device"));
    const json_t *shape = json_object_get(node, "shape"), *inputs = json_object_get(node, "inputs");
    json_t *v;
    if (name == NULL || op == NULL)
        return;
    size_t begin = events_nest(out, 1);
    events_add_text(out, NODE_NAME, name);
    events_add_text(out, NODE_OP, op);
    for (size_t i = 0; i < json_array_size(inputs); i++)
        if (json_is_string(json_array_get(inputs, i)))
            events_add_text(out, NODE_INPUT, json_string_value(json_array_get(inputs, i)));
    if (device != NULL)
        events_add_text(out, NODE_DEVICE, device);
    json_object_foreach(json_object_get(node, "attr"), name, v)
    {
        if (!json_is_number(v) && !json_is_boolean(v) && !json_is_string(v))
            continue;
        attribute a = events_begin_attribute(out, name);
        if (json_is_integer(v))
            events_add_int(out, ATTR_INT, (uint64_t)json_integer_value(v));
        else if (json_is_real(v))
            events_add_float(out, ATTR_FLOAT, (float)json_real_value(v));
        else if (json_is_boolean(v))
            events_add_int(out, ATTR_BOOL, json_is_true(v));
        else
            events_add_text(out, ATTR_TEXT, json_string_value(v));
        events_end_attribute(out, a);
    }
    if (shape != NULL)
        events_add_output(out, shape, json_array_size(inputs) == 0);
    events_end_nest(out, begin);
}

void mst_event_graph(mst_bytes *out, double wall, const json_t *nodes)
{
    size_t e = events_begin(out, wall, 0), graph = events_nest(out, EVENT_GRAPH);
    for (size_t i = 0; i < json_array_size(nodes); i++)
        events_add_node(out, json_array_get(nodes, i));
    events_end_nest(out, graph);
    events_end(out, e);
}

/* ---- hparams ---- */

typedef struct hparams {
    size_t event, data;
    value value;
    metadata metadata;
} hparams;

static hparams events_begin_hparams(mst_bytes *out, double wall, const char *tag, unsigned field)
{
    hparams h;
    h.event = events_begin(out, wall, 0);
    h.value = events_begin_value(out, tag);
    h.metadata = events_begin_metadata(out, "hparams");
    h.data = events_nest(out, field);
    return h;
}

static void events_end_hparams(mst_bytes *out, hparams h)
{
    events_end_nest(out, h.data);
    events_end_metadata(out, h.metadata);
    size_t tensor = events_nest(out, VALUE_TENSOR); /* of no elements */
    events_add_int(out, TENSOR_DTYPE, DT_FLOAT);
    size_t shape = events_nest(out, TENSOR_SHAPE), dimension = events_nest(out, 2);
    events_end_nest(out, dimension);
    events_end_nest(out, shape);
    events_end_nest(out, tensor);
    events_end_value(out, h.value);
    events_end(out, h.event);
}

enum { TYPE_NONE, TYPE_TEXT, TYPE_BOOL, TYPE_NUMBER }; /* DataType of api.proto */

static unsigned events_type_of(const json_t *v)
{
    if (json_is_number(v))
        return TYPE_NUMBER;
    if (json_is_boolean(v))
        return TYPE_BOOL;
    return json_is_string(v) && json_string_length(v) > 0 ? TYPE_TEXT : TYPE_NONE;
}

void mst_event_run_begins(mst_bytes *out, double wall, const char *group, const json_t *values)
{
    enum { HPARAMS = 1, GROUP = 4, STARTED = 5, NUMBER = 2, STRING = 3, BOOL = 4 };
    const char *name;
    json_t *v;
    hparams h = events_begin_hparams(out, wall, "_hparams_/session_start_info", HPARAMS_START);
    json_object_foreach((json_t *)values, name, v)
    {
        if (events_type_of(v) == TYPE_NONE)
            continue;
        size_t entry = events_nest(out, HPARAMS);
        events_add_text(out, MAP_KEY, name);
        size_t held = events_nest(out, MAP_VALUE);
        if (json_is_number(v))
            events_add_double(out, NUMBER, json_number_value(v));
        else if (json_is_boolean(v))
            events_add_int(out, BOOL, json_is_true(v));
        else
            events_add_text(out, STRING, json_string_value(v));
        events_end_nest(out, held);
        events_end_nest(out, entry);
    }
    if (group != NULL)
        events_add_text(out, GROUP, group);
    events_add_double(out, STARTED, wall);
    events_end_hparams(out, h);
}

void mst_event_run_ends(mst_bytes *out, double wall, bool failed)
{
    enum { STATUS = 1, ENDED = 2, SUCCESS = 1, FAILURE = 2 };
    hparams h = events_begin_hparams(out, wall, "_hparams_/session_end_info", HPARAMS_END);
    events_add_int(out, STATUS, failed ? FAILURE : SUCCESS);
    events_add_double(out, ENDED, wall);
    events_end_hparams(out, h);
}
