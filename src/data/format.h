/* A format: how bytes of a file become rows. One const table per format, listed in
 * mst_data_kinds.
 *
 * Input is read in blocks of about a megabyte; `find_end` finds where the last whole record of a block ends,
 * the rest is carried into the next block. Whole blocks are then parsed by any thread, several at a time,
 * each into its own builder. So parse sees only whole records, keeps no state between blocks, and must be
 * safe on any bytes: lengths are checked before use, and a bad record is MST_EINPUT with one message naming
 * path and line or offset (see mst_block_fail). */
#ifndef MST_DATA_FORMAT_H
#define MST_DATA_FORMAT_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "data/chunk.h"
#include "data/data_kind.h"

/* The sets that one folder may hold. */
typedef enum mst_set { MST_SET_ALL, MST_SET_TRAINING, MST_SET_TEST } mst_set;

/* The options for reading data; the table is mst_data_option_table. */
typedef struct mst_data_options {
    char *format;      /* --format NAME; "auto": by content */
    int64_t features;  /* --features N; 0: found in the data. Hashing formats hash into it */
    int64_t fields;    /* --fields N (libffm); 0: found in the data */
    char *vw_fields;   /* --vw-fields LIST: the namespaces that are fields 0, 1, ...; NULL: found */
    char *csv_columns; /* --csv-columns LIST: kinds of columns (csv_list.c); NULL: found */
    char *csv_label,
        *csv_weight;     /* --csv-label, --csv-weight: a column's name or number from 1; NULL: found, none */
    int csv_numeric;     /* --csv-numeric standard|number|log|bucket: columns of numbers without a kind */
    char *csv_delimiter; /* --csv-delimiter: one character, "tab" or "auto" */
    int csv_header, csv_quote; /* --csv-header auto|yes|no, --csv-quote double|none */
    int64_t classes;           /* --classes N; 0: found in the data */
    int64_t labels_from;       /* --labels-from N: the label of class 0 */
    int index_base;            /* --index-base auto|0|1 (libsvm); choice index 0, 1, 2 */
    char *tf_label, *tf_index, *tf_value, *tf_weight; /* --tf-label ... : tf.Example feature names */
    char *tf_columns;     /* --tf-columns: fixed columns, e.g. "I1..I13,C1..C26"; empty: index/value pairs or
                             found */
    int tf_keys;          /* --tf-keys auto|global|hash: the meaning of int64 columns; choice index */
    char *labels;         /* --labels FILE: IDX labels when not named as usual */
    int criteo_numeric;   /* --criteo-numeric bucket|log|both */
    int64_t hash_seed;    /* --hash-seed */
    int64_t min_count;    /* --min-count N: makes a vocabulary of categories that occur so often; 0: hashes */
    char *vocabulary;     /* --vocabulary FILE: categories have its keys; NULL: hashes */
    char *feature_names;  /* --feature-names FILE: of numbered features (name_list.h); or NULL */
    int cifar_label;      /* --cifar-label fine|coarse: which of CIFAR-100's labels */
    char *image_size;     /* --image-size HxW of a folder of images (images.h) */
    int64_t image_resize; /* --image-resize: their shorter side before they are cropped to that size */
    bool image_gray;      /* --image-gray: one channel instead of three */
    bool skip_bad_rows;   /* --skip-bad-rows: malformed rows of streams are left out */
    mst_text_list image_classes; /* --image-classes: the folders that are classes 0, 1, ...; empty: by name */
    uint64_t given;              /* bit i: the user has set row i of the table (mst_data_options_note) */
    /* Not options, but the use of the rows: */
    struct mst_vocabulary *counter; /* categories are counted, not used; or NULL */
    bool live;                      /* rows are wanted as they come: pipes are not read in whole blocks */
    uint32_t settle_ms; /* live: how long the first block, which settles the format, may take to fill */
    bool unlabelled;    /* labels are not looked at and need not be there; they are 0 then (predict) */
    bool any_key;       /* keys at or beyond `features` are kept: the consumer of the rows bounds them */
    bool mark_missing;  /* missing numbers are NaN in rows, not 0 (data stat) */
    mst_set set;        /* the files to read of a folder that has a training and a test set: IDX */
} mst_data_options;
enum { MST_CSV_HEADER_AUTO, MST_CSV_HEADER_YES, MST_CSV_HEADER_NO }; /* csv_header */
enum { MST_CSV_QUOTE_DOUBLE, MST_CSV_QUOTE_NONE };                   /* csv_quote */
enum { MST_TF_KEYS_AUTO, MST_TF_KEYS_GLOBAL, MST_TF_KEYS_HASH };     /* tf_keys */
extern const mst_option mst_data_option_table[];
/* A number that is missing, as rows have it. */
static inline float mst_missing_number(const mst_data_options *options)
{
    return options->mark_missing ? NAN : 0.0f;
}
/* Records which of the options the user has set, in groups that include them. */
void mst_data_options_note(mst_data_options *self, const mst_option_group *groups, size_t n_groups);
bool mst_data_options_given(const mst_data_options *self, const char *name);
/* MST_EUSAGE if --hash-seed was given for data whose categories have the features of a vocabulary. */
mst_status mst_data_options_check_seed(const mst_data_options *self);
#define MST_DATA_OPTION_OF_IMAGES MST_OPTION_FACT_FREE /* a fact: has an effect on encoded images only */
#define MST_DATA_OPTION_SKIPS     (MST_OPTION_FACT_FREE << 2) /* a fact: leaves rows out */

/* A run of whole records. line and offset are those of its first byte in the (decompressed) file. */
typedef struct mst_block {
    const char *path;
    const uint8_t *data;
    size_t size;
    uint64_t offset, line; /* line is 1-based; counted for text formats only */
} mst_block;

/* The state that a format needs to parse blocks of one dataset; made once, shared read-only by the parsing
 * threads. */
typedef struct mst_parse_context {
    const mst_data_options *options;
    uint64_t features;    /* keys must be below, unless any_key; 0: any 32-bit key below 2^32 - 1 */
    bool any_key;         /* as in the options when the dataset was opened */
    bool requests;        /* rows are of requests to a model: their sender has no options */
    uint32_t index_base;  /* libsvm: settled before parsing starts */
    const void *prepared; /* made by the format's prepare */
    /* Categories have its keys; NULL: they are hashed. Set before prepare; the counter, or owned. */
    const struct mst_vocabulary *vocabulary;
    const char *names;  /* the file of --feature-names if `features` is its number of names; else NULL */
    bool ready;         /* prepare has succeeded */
    uint32_t n_numbers; /* set by prepare of formats with categories: keys below are numbers */
    /* Set by prepare where rows are images, encoded or raw; copied to the dataset. */
    uint32_t channels, height, width;
    bool encoded;
    uint64_t first_rows;           /* in the first block, where rows are images */
    uint32_t n_fields;             /* set by prepare where rows have fields and their number is known */
    const mst_text_list *left_out; /* see mst_dataset; prepared owns it. NULL: nothing */
    const mst_text_list *doubts;   /* likewise */
    const mst_text_list *classes;  /* names of classes 0, 1, ...; prepared owns it. NULL or empty: unknown */
    uint32_t max_dense; /* chunks have no longer dense prefix: that of the first block (mst_first_rows) */
} mst_parse_context;

typedef struct mst_format {
    /* First, so that the kind is the format (mst_data_kind_format). Its sniff gives rows without a label at
     * most 1: parse fails on them, unless options->unlabelled. */
    mst_data_kind kind;
    bool text;   /* bytes are text, whose last line feed is optional; without `find_end`, records are lines */
    bool fields; /* rows have fields, whose number is found from the data where context->n_fields is 0 */
    bool categories; /* rows have categories, which a vocabulary can give keys */
    bool hashes;     /* keys are hashed into --features, which is then never found from the data */
    bool numbered;   /* the text has the numbers of features, which --feature-names can name */

    /* Length of the longest prefix of [data, data+n) that is whole records; 0 when not even one is whole. A
     * prefix that can never become a record is MST_EINPUT. offset is for the message. The first block of a
     * dataset is found before prepare. NULL for lines. */
    mst_status (*find_end)(const mst_parse_context *context, const mst_block *block, size_t *whole);

    /* Length of the record at the start of the block, which need not end with the block; 0: the block ends
     * within it. Checks as in find_end. *row: whether the record is a row. NULL for lines. */
    mst_status (*record)(const mst_parse_context *context, const mst_block *block, size_t *n, bool *row);

    /* Once per dataset, before any parse: checks the options and the first block. NULL: nothing to prepare.
     * unprepare releases context->prepared. May set context->index_base. */
    mst_status (*prepare)(mst_parse_context *context, const mst_block *first);
    void (*unprepare)(const void *prepared);

    /* The meaning of keys (origin.h), once prepared. New reference, NULL when memory is short. Without this
     * function: numbers. */
    json_t *(*origin)(const mst_parse_context *context);

    /* Whether a key of the field stands for a missing value, in rows of such an origin. NULL: never. */
    bool (*missing_key)(const json_t *origin, uint32_t field, uint32_t *key);

    /* Whether the records of a block are well-formed, with any options of reading. NULL: those that parse
     * takes without labels. */
    mst_status (*check)(const mst_block *block);

    /* Appends the block's rows to the builder. Any thread. */
    mst_status (*parse)(const mst_parse_context *context, const mst_block *block, mst_chunk_builder *out);
} mst_format;

/* Whether the records of a format are lines. */
static inline bool mst_format_has_lines(const mst_format *format)
{
    return format->text && format->find_end == NULL;
}

/* Opens files of a format (mst_data_kind.open of all of them): by an index if there is one beside each file,
 * everything else as a stream. */
mst_status mst_format_open(const mst_data_kind *self, mst_data_source *source, struct mst_dataset **out);

/* Loads the vocabulary, if the options name one, and calls the format's prepare. fini undoes both, also after
 * a failure. */
mst_status mst_parse_context_init(mst_parse_context *context, const mst_format *format,
                                  const mst_block *first);
void mst_parse_context_fini(mst_parse_context *context, const mst_format *format);

/* The origin of a format's rows: its own or numbers. New reference in *out. */
mst_status mst_format_origin(const mst_format *format, const mst_parse_context *context, json_t **out);

/* Parses and takes options->labels_from off the labels. */
mst_status mst_format_parse(const mst_format *format, const mst_parse_context *context,
                            const mst_block *block, mst_chunk_builder *out);

/* The malformed rows of a dataset that --skip-bad-rows leaves out. Every pass over the data finds them again:
 * the distinct ones are those of the pass that has found most. */
typedef struct mst_bad_rows {
    atomic_uint_fast64_t pass; /* found in this pass */
    uint64_t most;             /* in an earlier one; changes while no thread parses */
    bool silent;               /* they are not counted: another dataset of the same files counts them */
    bool stated;               /* their number has been reported */
} mst_bad_rows;

/* A pass begins; no thread parses. */
void mst_bad_rows_rewind(mst_bad_rows *self);
uint64_t mst_bad_rows_count(const mst_bad_rows *self);

/* The same for a block that has malformed rows, which are left out and counted, with warnings for some of
 * those that no earlier pass has found. bad NULL: neither. A record whose end cannot be found is MST_EINPUT.
 */
mst_status mst_format_parse_good(const mst_format *format, const mst_parse_context *context,
                                 const mst_block *block, mst_bad_rows *bad, mst_chunk_builder *out);

/* Facts about the rows of the first block. All are 0 when it cannot be parsed: the next parse of it fails
 * with the reason. */
typedef struct mst_first_rows {
    /* The dense prefix of a dataset: features that every row has. Later chunks may have less of it, never
     * more, so the dense part of models is known before the rows are read. */
    uint32_t n_dense;
    uint64_t features;          /* the largest feature number + 1 */
    float min_label, max_label; /* after --labels-from was taken off */
} mst_first_rows;

mst_first_rows mst_first_rows_of(const mst_format *format, const mst_parse_context *context,
                                 const mst_block *first);

/* Feature numbers in the data must be below this. */
static inline uint64_t mst_key_limit(const mst_parse_context *context)
{
    return context->features != 0 && !context->any_key ? context->features : UINT32_MAX;
}

/* Fails with "PATH:LINE: message" (text: the line that holds `at`) or "PATH at byte N: message". */
mst_status mst_block_fail(const mst_format *format, const mst_block *block, const uint8_t *at,
                          const char *message, ...) __attribute__((format(printf, 4, 5)));

/* Adds the advice to give --skip-bad-rows to the message of MST_EINPUT about a malformed row of a stream,
 * unless it is given or rows without a label are read, which no command leaves out. Returns st. */
mst_status mst_format_advise(const mst_parse_context *context, mst_status st);

/* The end of the message about a row without a label. */
#define MST_NO_LABEL "the row has no label, and only predict takes such rows"

#endif
