/* Code that the `data` commands share: writing rows to a file, with progress, Ctrl-C and a summary line. */
#ifndef MST_CLI_CMD_DATA_H
#define MST_CLI_CMD_DATA_H

#include "cli/cli.h"
#include "cli/progress_line.h"
#include "data/write.h"

extern const mst_command mst_cmd_data_gen_images; /* in a file of its own; listed in cmd_data_gen.c */

/* --out, --to, --overwrite, --quiet, --threads. */
typedef struct mst_data_out_options {
    char *out, *to;
    bool overwrite, quiet;
    int64_t threads;
} mst_data_out_options;
extern const mst_option mst_data_out_table[];

/* Writes rows to a file. The file appears only if commit succeeds. */
typedef struct mst_data_sink {
    mst_row_writer *writer;
    mst_bar bar;
    bool quiet; /* no bar and no summary line */
    const char *path;
    const char *source_key;           /* for a cache (cache.h); NULL: none */
    uint64_t total_rows, total_bytes; /* the one that is known sets the length of the bar */
    uint64_t skip, limit; /* rows to skip at the start of the source; most rows to write (0: all) */
    uint64_t rows, bytes; /* written; read from the source */
    bool full;            /* limit reached: take refused the rest with MST_ESTOPPED */
    uint64_t start_ns;
} mst_data_sink;

/* Opens the file in the format of options->to or of its name; MST_EEXIST when it is there and
 * options->overwrite is not set. what is for the bar ("generating"). Signals
 * become flags from here on. */
mst_status mst_data_sink_open(mst_data_sink *sink, const mst_data_out_options *options, const char *what,
                              uint64_t total_rows, uint64_t total_bytes);

/* An mst_chunk_fn with the sink as arg. MST_ESTOPPED after SIGINT or SIGTERM, and when full. */
mst_status mst_data_sink_take(void *sink, uint64_t first_row, mst_chunk *chunk);

/* Commits, and prints a summary line to standard error. */
mst_status mst_data_sink_commit(mst_data_sink *sink, const mst_data_info *info);
void mst_data_sink_close(mst_data_sink *sink); /* safe after a failed open */

/* MST_EEXIST, naming the file, when one of these is in the folder. */
mst_status mst_data_check_free(const char *folder, const char *const *names, size_t n);

#endif
