/* A kind of data: how files of it are recognised and opened, and the properties of its rows. One const table
 * per kind, listed in mst_data_kinds: the names of --format. */
#ifndef MST_DATA_DATA_KIND_H
#define MST_DATA_DATA_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

struct mst_data_options;
struct mst_dataset;
struct mst_format;

typedef enum mst_data_capability {
    MST_DATA_FORMAT = 1u << 0,      /* the kind is an mst_format: a stream, which a pipe can provide too */
    MST_DATA_FOLDERS = 1u << 1,     /* data is given as folders, and `claims` recognises them */
    MST_DATA_CACHED = 1u << 2,      /* how the rows were read is recorded in the files and cannot change */
    MST_DATA_FIXED_ROWS = 1u << 3,  /* every row has the same numbers, zeros included: pixels */
    MST_DATA_OWN_CLASSES = 1u << 4, /* classes are numbered from 0, whatever --labels-from is */
    MST_DATA_INDEX_BASE = 1u << 5,  /* rows number their features from --index-base and may omit some */
    MST_DATA_PARSED = 1u << 6,      /* rows are parsed or decoded whenever they are read; a cache avoids it */
} mst_data_capability;

/* The input of mst_data_kind.open. */
typedef struct mst_data_source {
    const mst_text_list *patterns; /* as given */
    mst_text_list *paths;          /* the files that match them; empty for folders */
    const struct mst_data_options *options;
    mst_in *in;          /* the first of the paths that can be read only once, or NULL; open takes it */
    const uint8_t *head; /* read from `in` already */
    size_t n_head;
} mst_data_source;

#define MST_SNIFF_BINARY 3

typedef struct mst_data_kind mst_data_kind;
struct mst_data_kind {
    const char *name, *help;
    unsigned capabilities; /* mst_data_capability bits */
    /* The options that are for rows of this and some other kinds only, "csv- hash-seed": names, and how the
     * names of some begin. NULL: none. */
    const char *reads;

    /* The confidence that a file starting with these (decompressed) bytes is of this kind: 0 no, 1 could be,
     * 2 is, MST_SNIFF_BINARY is a binary file of this kind. file_size is 0 when unknown. The highest
     * wins; the order in mst_data_kinds breaks ties. NULL: never by content. */
    int (*sniff)(const uint8_t *head, size_t n, uint64_t file_size);

    /* Whether every pattern names such a folder; unlabelled: folders need no classes. NULL: the kind reads
     * files. */
    bool (*claims)(const mst_text_list *patterns, bool unlabelled);

    /* *out is the caller's to destroy; set only on MST_OK. */
    mst_status (*open)(const mst_data_kind *self, mst_data_source *source, struct mst_dataset **out);
};

extern const mst_data_kind *const mst_data_kinds[]; /* NULL-terminated */

/* The kind of that name; NULL: there is none (name may be NULL). */
const mst_data_kind *mst_data_kind_find(const char *name);

static inline bool mst_data_kind_has(const mst_data_kind *self, mst_data_capability capability)
{
    return (self->capabilities & (unsigned)capability) != 0;
}

/* Whether `reads` names the option. */
bool mst_data_kind_reads(const mst_data_kind *self, const char *option);

/* The kind as a format; NULL: it is none (self may be NULL). */
const struct mst_format *mst_data_kind_format(const mst_data_kind *self);

/* "libsvm, tfrecord, ...", for messages. */
const char *mst_data_kind_names(char *out, size_t size);

#endif
