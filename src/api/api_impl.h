/* Shared by the files of the public interface (include/muster/muster.h); no other file includes this. */
#ifndef MST_API_API_IMPL_H
#define MST_API_API_IMPL_H

#include "data/array_rows.h"
#include "model/layer.h"
#include "muster/muster.h"
#include "train/settings.h"
#include "train/training.h"

/* ---- nets (api_net.c) ---- */

/* Reference-counted: options, trainers and models hold it. It does not change once it is held, so several
 * threads may read it. */
struct muster_net {
    atomic_uint references;
    bool fixed; /* it is held, and cannot change */
    char *text;
    const mst_layer_ops **kinds; /* NULL-terminated; each is a kind of api_net.c */
    size_t n_kinds, kind_capacity;
};

muster_net *mst_api_net_hold(muster_net *net); /* NULL-safe; fixes it */

/* ---- readers (api_reader.c) ---- */

/* Checks the description of a reader; name is for the message. */
mst_status mst_api_reader_check(const char *name, const muster_reader *reader);
/* The reader as a dataset, which is the caller's to destroy; both are copied. */
mst_status mst_api_reader_open(const char *name, const muster_reader *reader, mst_dataset **out);

/* ---- rows in arrays (api_data.c) ---- */

struct muster_data {
    mst_array_rows *rows;
};

unsigned mst_api_threads(uint32_t n); /* 0: the number of cores */
mst_status mst_api_arrays(const muster_arrays *from, mst_array_spec *out);

/* ---- options (api_options.c) ---- */

/* A reader, or rows in arrays. */
typedef struct mst_api_named_reader {
    char *name;
    muster_reader reader;
    mst_array_rows *rows; /* a reference; NULL: the reader */
} mst_api_named_reader;

struct muster_options {
    mst_settings settings;
    mst_api_named_reader *readers;
    size_t n_readers, reader_capacity;
    muster_net *net; /* held; or NULL */
    bool in_memory;
    const muster_model *model; /* to start from; borrowed; or NULL */
    char *text;                /* of get and help */
};

mst_status mst_api_options_copy(const muster_options *from, muster_options **out);

/* ---- models (api_model.c) ---- */

/* Takes over the contents of `from`, also on failure. */
mst_status mst_api_model_of(mst_start *from, muster_net *net, muster_model **out);
const mst_start *mst_api_model_start(const muster_model *model);

/* The status of a function of the program: MST_OK, or a failure with a message, which this function adds if
 * the program recorded none. mst_api_forget must have cleared the message before the call. */
mst_status mst_api_answer(muster_status status, const char *who);
void mst_api_forget(void);

#endif
