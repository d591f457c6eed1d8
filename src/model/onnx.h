/* Models as ONNX files: a graph from rows to probabilities, as `muster predict` prints them.
 *
 * Inputs, N rows: "x" [N, features] or [N, c, h, w] for dense models; "indices" and "values" [N, K] for
 * models over keys, padded with value 0, and "fields" [N, K] where the model has fields; "numbers"
 * [N, dense] for the numbers of nets over embeddings. Output: "probability" [N] of two classes, or
 * "probabilities" [N, classes].
 *
 * Weights are stored in the file, or in FILE.data beside it where they would not fit the 2 GB of a protobuf
 * message; or the file points at the checkpoint. */
#ifndef MST_MODEL_ONNX_H
#define MST_MODEL_ONNX_H

#include "base/strings.h"
#include "model/model.h"

#define MST_ONNX_OPSET  13
#define MST_ONNX_SUFFIX ".data" /* after the file's name: external weights */

/* Weights of a view that are in a file already. */
typedef struct mst_onnx_place {
    const char *view;
    char *location; /* of the file, from the folder of the ONNX file */
    uint64_t offset, bytes;
} mst_onnx_place;

typedef struct mst_onnx_options {
    const char *version;          /* of muster */
    bool external;                /* weights go to FILE.data, whatever their size */
    const mst_onnx_place *places; /* weights that are not written but pointed at */
    size_t n_places;
    /* Of images, per channel: (x - mean) * scale before the first layer; or NULL. */
    const float *mean, *scale;
    uint32_t n_channels;
} mst_onnx_options;

/* Writes path, and FILE.data where necessary; each appears whole or not at all. params: not by rows.
 * MST_EUSAGE for a layer that ONNX cannot express. */
mst_status mst_onnx_export(const mst_model *model, const mst_params *params, const mst_onnx_options *options,
                           const char *path);

/* ---- a graph in the making (onnx_write.c) ---- */

typedef struct mst_onnx_tensor {
    char *name;
    uint32_t n_dims;
    int64_t dims[4];
    const void *data; /* floats or 64-bit integers */
    void *owned;      /* data, if it is the graph's */
    uint64_t bytes;
    bool integers;
} mst_onnx_tensor;

typedef struct mst_onnx_graph {
    mst_string nodes, inputs, outputs; /* encoded */
    mst_onnx_tensor *tensors;
    size_t n_tensors, tensor_capacity;
    unsigned n_names;
    bool failed; /* memory was short */
} mst_onnx_graph;

/* A name of a value in the graph. */
typedef struct mst_onnx_name {
    char text[48];
} mst_onnx_name;

void mst_onnx_graph_fini(mst_onnx_graph *self);

/* Adds a node and returns the name of its output. inputs: names between commas. attributes: "axis=i1
 * eps=f1e-05 pads=I0,0,1,1", or "". */
mst_onnx_name mst_onnx_node(mst_onnx_graph *self, const char *op, const char *inputs, const char *attributes);
/* The same with a formatted list of inputs. */
mst_onnx_name mst_onnx_call(mst_onnx_graph *self, const char *op, const char *attributes, const char *inputs,
                            ...) __attribute__((format(printf, 4, 5)));

/* Adds a constant. weights: the data is borrowed. floats and integers: copied, and named by the graph. */
mst_onnx_name mst_onnx_weights(mst_onnx_graph *self, const char *name, uint32_t n_dims, const uint64_t *dims,
                               const float *data);
mst_onnx_name mst_onnx_floats(mst_onnx_graph *self, uint32_t n_dims, const uint64_t *dims, const float *data);
mst_onnx_name mst_onnx_integers(mst_onnx_graph *self, size_t n, const int64_t *data);
/* One number, without dimensions. */
mst_onnx_name mst_onnx_number(mst_onnx_graph *self, double value);

/* Declares an input, or the value that is the output. dims: "N,K" or "N,784": names or numbers between
 * commas. */
void mst_onnx_input(mst_onnx_graph *self, const char *name, bool integers, const char *dims);
void mst_onnx_output(mst_onnx_graph *self, const mst_onnx_name *value, const char *name, const char *dims);

/* Writes the model. text: a description of the inputs for people. */
mst_status mst_onnx_write(const mst_onnx_graph *self, const char *text, const mst_onnx_options *options,
                          const char *path);

/* ---- parts (onnx_export.c, onnx_net.c) ---- */

/* Values of indices, values and fields as a sum over keys. */
mst_onnx_name mst_onnx_terms(mst_onnx_graph *self, const char *table, const char *values);
/* [N, fields, K] of 0 and 1: whether a key is of a field; first: the number of field 0. */
mst_onnx_name mst_onnx_by_field(mst_onnx_graph *self, uint32_t n_fields, uint32_t first);

/* The input "x" of rows of `size` numbers, normalised. */
mst_onnx_name mst_onnx_rows(mst_onnx_graph *self, const mst_onnx_options *options, uint64_t size);

/* The scores of a net: [N, n], or [N] of one number. */
struct mst_chain;
mst_status mst_onnx_net(mst_onnx_graph *self, const struct mst_chain *chain, const mst_params *params,
                        const mst_onnx_options *options, mst_onnx_name *scores);

#endif
