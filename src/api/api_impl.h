/* What the files of the public interface (include/muster/muster.h) share; nobody else includes this. */
#ifndef MST_API_API_IMPL_H
#define MST_API_API_IMPL_H

#include "data/dataset.h"
#include "model/layer.h"
#include "muster/muster.h"
#include "train/settings.h"

/* ---- nets (api_net.c) ---- */

/* Counted: options, trainers and models hold what they were given. Once held it does not change, so threads
 * may read it at once. */
struct muster_net {
    atomic_uint references;
    bool fixed; /* somebody holds it */
    char *text;
    const mst_layer_ops **kinds; /* NULL-terminated; each is a kind of api_net.c */
    size_t n_kinds, kind_capacity;
};

muster_net *mst_api_net_hold(muster_net *net); /* NULL-safe; fixes it */

/* ---- readers (api_reader.c) ---- */

/* Checks what a reader says of itself; name is for the sentence. */
mst_status mst_api_reader_check(const char *name, const muster_reader *reader);
/* The reader as a dataset, which is the caller's to destroy; both are copied. */
mst_status mst_api_reader_open(const char *name, const muster_reader *reader, mst_dataset **out);

/* ---- options (api_options.c) ---- */

typedef struct mst_api_named_reader {
    char *name;
    muster_reader reader;
} mst_api_named_reader;

struct muster_options {
    mst_settings settings;
    mst_api_named_reader *readers;
    size_t n_readers, reader_capacity;
    muster_net *net; /* held; or NULL */
    char *text;      /* of get and help */
};

mst_status mst_api_options_copy(const muster_options *from, muster_options **out);

/* What a function of the program's own returned: MST_OK, or a failure with a sentence, made up here when the
 * program recorded none. Before the call the sentence must have been emptied with mst_api_forget. */
mst_status mst_api_answer(muster_status status, const char *who);
void mst_api_forget(void);

#endif
