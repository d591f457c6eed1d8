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

static void add_varint(mst_bytes *out, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 128; value >>= 7)
        bytes[n++] = (uint8_t)(value | 128);
    bytes[n++] = (uint8_t)value;
    mst_bytes_add(out, bytes, n);
}

static void add_key(mst_bytes *out, unsigned field, unsigned type)
{
    add_varint(out, (uint64_t)field << 3 | type);
}

static void add_int(mst_bytes *out, unsigned field, uint64_t value)
{
    add_key(out, field, VARINT);
    add_varint(out, value);
}

static void add_little(mst_bytes *out, uint64_t value, unsigned n)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    mst_bytes_add(out, bytes, n);
}

static void add_bare_double(mst_bytes *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_little(out, bits, 8);
}

static void add_double(mst_bytes *out, unsigned field, double value)
{
    add_key(out, field, FIXED64);
    add_bare_double(out, value);
}

static void add_float(mst_bytes *out, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(out, field, FIXED32);
    add_little(out, bits, 4);
}

static void add_text(mst_bytes *out, unsigned field, const char *text)
{
    size_t n = strlen(text);
    add_key(out, field, LENGTH);
    add_varint(out, n);
    mst_bytes_add(out, text, n);
}

/* A nested message: begin, its fields, end, which puts the length before them. */
static size_t nest(mst_bytes *out, unsigned field)
{
    add_key(out, field, LENGTH);
    return out->n;
}

static void end_nest(mst_bytes *out, size_t begin)
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

static void put_little(uint8_t *at, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

/* Opens a record with an Event in it; its end is end_event's. */
static size_t event(mst_bytes *out, double wall, uint64_t step)
{
    static const uint8_t head[FRAME_HEAD];
    size_t begin = out->n;
    mst_bytes_add(out, head, sizeof head);
    add_double(out, EVENT_WALL, wall);
    if (step != 0)
        add_int(out, EVENT_STEP, step);
    return begin;
}

static void end_event(mst_bytes *out, size_t begin)
{
    if (!mst_bytes_room(out, 4)) {
        out->n = begin;
        return;
    }
    uint8_t *head = out->data + begin, *data = head + FRAME_HEAD;
    size_t length = out->n - begin - FRAME_HEAD;
    put_little(head, length, 8);
    put_little(head + 8, mst_crc_mask(mst_crc32c(0, head, 8)), 4);
    put_little(data + length, mst_crc_mask(mst_crc32c(0, data, length)), 4);
    out->n += 4;
}

void mst_event_version(mst_bytes *out, double wall)
{
    size_t e = event(out, wall, 0);
    add_text(out, EVENT_VERSION, "brain.Event:2");
    end_event(out, e);
}

void mst_event_start(mst_bytes *out, double wall, uint64_t step)
{
    enum { STATUS = 1, START = 1 };
    size_t e = event(out, wall, step), session = nest(out, EVENT_SESSION);
    add_int(out, STATUS, START);
    end_nest(out, session);
    end_event(out, e);
}

/* Opens a value of a summary, which nests two deep. */
typedef struct value {
    size_t summary, value;
} value;

static value begin_value(mst_bytes *out, const char *tag)
{
    value v;
    v.summary = nest(out, EVENT_SUMMARY);
    v.value = nest(out, 1);
    add_text(out, VALUE_TAG, tag);
    return v;
}

static void end_value(mst_bytes *out, value v)
{
    end_nest(out, v.value);
    end_nest(out, v.summary);
}

void mst_event_scalars(mst_bytes *out, double wall, uint64_t step, const mst_scalar *scalars, size_t n)
{
    size_t e = event(out, wall, step), any = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(scalars[i].value))
            continue;
        value v = begin_value(out, scalars[i].tag);
        add_float(out, VALUE_SIMPLE, (float)scalars[i].value);
        end_value(out, v);
        any++;
    }
    if (any > 0)
        end_event(out, e);
    else
        out->n = e;
}

static void add_limit(void *arg, double limit, double count)
{
    (void)count;
    add_bare_double(arg, limit);
}

static void add_count(void *arg, double limit, double count)
{
    (void)limit;
    add_bare_double(arg, count);
}

void mst_event_histogram(mst_bytes *out, double wall, uint64_t step, const char *tag, const mst_histogram *h)
{
    enum { MIN = 1, MAX, NUM, SUM, SQUARES, LIMITS, COUNTS };
    size_t e = event(out, wall, step), part;
    value v = begin_value(out, tag);
    size_t histo = nest(out, VALUE_HISTO);
    add_double(out, MIN, h->min);
    add_double(out, MAX, h->max);
    add_double(out, NUM, h->count);
    add_double(out, SUM, h->sum);
    add_double(out, SQUARES, h->sum_squares);
    part = nest(out, LIMITS);
    mst_histogram_each(h, add_limit, out);
    end_nest(out, part);
    part = nest(out, COUNTS);
    mst_histogram_each(h, add_count, out);
    end_nest(out, part);
    end_nest(out, histo);
    end_value(out, v);
    end_event(out, e);
}

/* Which plugin shows the value; content: what is nested by the caller between begin and end. */
typedef struct metadata {
    size_t metadata, plugin, content;
} metadata;

static metadata begin_metadata(mst_bytes *out, const char *plugin)
{
    metadata m;
    m.metadata = nest(out, VALUE_METADATA);
    m.plugin = nest(out, 1);
    add_text(out, 1, plugin);
    m.content = nest(out, 2);
    return m;
}

static void end_metadata(mst_bytes *out, metadata m)
{
    enum { DATA_CLASS = 4, TENSOR = 2 };
    end_nest(out, m.content);
    end_nest(out, m.plugin);
    add_int(out, DATA_CLASS, TENSOR);
    end_nest(out, m.metadata);
}

void mst_event_text(mst_bytes *out, double wall, uint64_t step, const char *tag, const char *text)
{
    size_t e = event(out, wall, step);
    value v = begin_value(out, tag);
    end_metadata(out, begin_metadata(out, "text"));
    size_t tensor = nest(out, VALUE_TENSOR);
    add_int(out, TENSOR_DTYPE, DT_STRING);
    end_nest(out, nest(out, TENSOR_SHAPE)); /* no dimensions: one text */
    add_text(out, TENSOR_STRING, text);
    end_nest(out, tensor);
    end_value(out, v);
    end_event(out, e);
}

/* ---- graphs ---- */

/* Opens an entry of a node's attributes, an AttrValue by name. */
typedef struct attribute {
    size_t entry, value;
} attribute;

static attribute begin_attribute(mst_bytes *out, const char *name)
{
    attribute a;
    a.entry = nest(out, NODE_ATTR);
    add_text(out, MAP_KEY, name);
    a.value = nest(out, MAP_VALUE);
    return a;
}

static void end_attribute(mst_bytes *out, attribute a)
{
    end_nest(out, a.value);
    end_nest(out, a.entry);
}

static void add_shape(mst_bytes *out, const json_t *shape)
{
    enum { DIM = 2, SIZE = 1 };
    size_t begin = nest(out, ATTR_SHAPE);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        size_t dim = nest(out, DIM);
        add_int(out, SIZE, (uint64_t)json_integer_value(json_array_get(shape, i)));
        end_nest(out, dim);
    }
    end_nest(out, begin);
}

/* Type and shape: of what a node puts out, where TensorBoard looks for it; and of an input or a parameter. */
static void add_output(mst_bytes *out, const json_t *shape, bool source)
{
    attribute a = begin_attribute(out, "_output_shapes");
    size_t list = nest(out, ATTR_LIST);
    add_shape(out, shape);
    end_nest(out, list);
    end_attribute(out, a);
    a = begin_attribute(out, "dtype");
    add_int(out, ATTR_TYPE, DT_FLOAT);
    end_attribute(out, a);
    if (!source)
        return;
    a = begin_attribute(out, "shape");
    add_shape(out, shape);
    end_attribute(out, a);
}

static void add_node(mst_bytes *out, const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "name")),
               *op = json_string_value(json_object_get(node, "op")),
               *device = json_string_value(json_object_get(node, "device"));
    const json_t *shape = json_object_get(node, "shape"), *inputs = json_object_get(node, "inputs");
    json_t *v;
    if (name == NULL || op == NULL)
        return;
    size_t begin = nest(out, 1);
    add_text(out, NODE_NAME, name);
    add_text(out, NODE_OP, op);
    for (size_t i = 0; i < json_array_size(inputs); i++)
        if (json_is_string(json_array_get(inputs, i)))
            add_text(out, NODE_INPUT, json_string_value(json_array_get(inputs, i)));
    if (device != NULL)
        add_text(out, NODE_DEVICE, device);
    json_object_foreach(json_object_get(node, "attr"), name, v)
    {
        if (!json_is_number(v) && !json_is_boolean(v) && !json_is_string(v))
            continue;
        attribute a = begin_attribute(out, name);
        if (json_is_integer(v))
            add_int(out, ATTR_INT, (uint64_t)json_integer_value(v));
        else if (json_is_real(v))
            add_float(out, ATTR_FLOAT, (float)json_real_value(v));
        else if (json_is_boolean(v))
            add_int(out, ATTR_BOOL, json_is_true(v));
        else
            add_text(out, ATTR_TEXT, json_string_value(v));
        end_attribute(out, a);
    }
    if (shape != NULL)
        add_output(out, shape, json_array_size(inputs) == 0);
    end_nest(out, begin);
}

void mst_event_graph(mst_bytes *out, double wall, const json_t *nodes)
{
    size_t e = event(out, wall, 0), graph = nest(out, EVENT_GRAPH);
    for (size_t i = 0; i < json_array_size(nodes); i++)
        add_node(out, json_array_get(nodes, i));
    end_nest(out, graph);
    end_event(out, e);
}

/* ---- hparams ---- */

typedef struct hparams {
    size_t event, data;
    value value;
    metadata metadata;
} hparams;

static hparams begin_hparams(mst_bytes *out, double wall, const char *tag, unsigned field)
{
    hparams h;
    h.event = event(out, wall, 0);
    h.value = begin_value(out, tag);
    h.metadata = begin_metadata(out, "hparams");
    h.data = nest(out, field);
    return h;
}

static void end_hparams(mst_bytes *out, hparams h)
{
    end_nest(out, h.data);
    end_metadata(out, h.metadata);
    size_t tensor = nest(out, VALUE_TENSOR); /* of no elements */
    add_int(out, TENSOR_DTYPE, DT_FLOAT);
    size_t shape = nest(out, TENSOR_SHAPE), dimension = nest(out, 2);
    end_nest(out, dimension);
    end_nest(out, shape);
    end_nest(out, tensor);
    end_value(out, h.value);
    end_event(out, h.event);
}

enum { TYPE_NONE, TYPE_TEXT, TYPE_BOOL, TYPE_NUMBER }; /* DataType of api.proto */

static unsigned type_of(const json_t *v)
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
    hparams h = begin_hparams(out, wall, "_hparams_/session_start_info", HPARAMS_START);
    json_object_foreach((json_t *)values, name, v)
    {
        if (type_of(v) == TYPE_NONE)
            continue;
        size_t entry = nest(out, HPARAMS);
        add_text(out, MAP_KEY, name);
        size_t held = nest(out, MAP_VALUE);
        if (json_is_number(v))
            add_double(out, NUMBER, json_number_value(v));
        else if (json_is_boolean(v))
            add_int(out, BOOL, json_is_true(v));
        else
            add_text(out, STRING, json_string_value(v));
        end_nest(out, held);
        end_nest(out, entry);
    }
    if (group != NULL)
        add_text(out, GROUP, group);
    add_double(out, STARTED, wall);
    end_hparams(out, h);
}

void mst_event_run_ends(mst_bytes *out, double wall, bool failed)
{
    enum { STATUS = 1, ENDED = 2, SUCCESS = 1, FAILURE = 2 };
    hparams h = begin_hparams(out, wall, "_hparams_/session_end_info", HPARAMS_END);
    add_int(out, STATUS, failed ? FAILURE : SUCCESS);
    add_double(out, ENDED, wall);
    end_hparams(out, h);
}
