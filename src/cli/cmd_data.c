/* `muster data`: the registry of its commands, and code that they share; contract in cmd_data.h. */
#include "cli/cmd_data.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"

#define FIELD(name) offsetof(mst_data_out_options, name)

const mst_option mst_data_out_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(out),
     .metavar = "FILE",
     .help = "Output file, which appears when it is complete; \"-\": standard output, which requires --to. "
             "Files with the suffix .gz or .zst are compressed."},
    {.name = "to",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(to),
     .metavar = "FORMAT",
     .help = "Output format (see 'muster list outputs'). Default: by the suffix of --out."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(overwrite),
     .help = "Replace --out if it exists."},
    {.name = "quiet",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(quiet),
     .help = "Print no progress and no summary."},
    {.name = "threads",
     .type = MST_OPTION_INT,
     .offset = FIELD(threads),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .help = "Threads that generate or parse rows; 0: one per core. The output does not depend on it."},
    {.name = NULL},
};

/* ---- parts of chunks ---- */

static void data_destroy_part(mst_chunk *self)
{
    mst_free(self);
}

/* Labels, keys and entries as found in the rows. */
static void data_describe(mst_chunk *c)
{
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        c->min_label = i == 0 || row.label < c->min_label ? row.label : c->min_label;
        c->max_label = i == 0 || row.label > c->max_label ? row.label : c->max_label;
        c->n_entries += row.n_dense + row.n_keys;
        uint32_t last = row.n_dense > 0 ? row.n_dense - 1 : 0, field = last;
        for (uint32_t k = 0; k < row.n_keys; k++) {
            last = row.keys[k] > last ? row.keys[k] : last;
            field = c->fielded && mst_row_field(&row, k) > field ? mst_row_field(&row, k) : field;
        }
        c->max_key = last > c->max_key ? last : c->max_key;
        c->max_field = field > c->max_field ? field : c->max_field;
    }
}

/* Rows [from, from + n) of a chunk as a chunk of their own, independent of it. *out is the caller's to
 * release. */
static mst_status data_copy_rows(const mst_chunk *chunk, uint32_t from, uint32_t n, mst_chunk **out)
{
    const size_t head = (sizeof(mst_chunk) + 63) & ~(size_t)63;
    size_t start = chunk->stride ? (size_t)from * chunk->stride : chunk->offsets[from];
    size_t end = chunk->stride ? (size_t)(from + n) * chunk->stride : chunk->offsets[from + n];
    size_t n_words = end - start, n_offsets = chunk->stride ? 0 : (size_t)n + 1;
    uint8_t *block = mst_alloc_lines(head + (n_words + n_offsets) * sizeof(uint32_t));
    if (block == NULL)
        return mst_fail_memory();
    uint32_t *words = (uint32_t *)(block + head), *offsets = words + n_words;
    if (n_words > 0)
        memcpy(words, chunk->words + start, n_words * sizeof *words);
    for (size_t i = 0; i < n_offsets; i++)
        offsets[i] = chunk->offsets[from + i] - (uint32_t)start;
    mst_chunk *part = (mst_chunk *)block;
    *part = (mst_chunk){
        .n_rows = n,
        .n_dense = chunk->n_dense,
        .dense_bytes = chunk->dense_bytes,
        .has_weights = chunk->has_weights,
        .has_values = chunk->has_values,
        .fielded = chunk->fielded,
        .has_fields = chunk->has_fields,
        .any_order = chunk->any_order,
        .stride = chunk->stride,
        .offsets = chunk->stride ? NULL : offsets,
        .words = words,
        .n_words = n_words,
        .references = 1,
        .destroy = data_destroy_part,
    };
    data_describe(part);
    *out = part;
    return MST_OK;
}

static const mst_command *const commands[] = {
    &mst_cmd_data_gen,  &mst_cmd_data_convert, &mst_cmd_data_fetch,
    &mst_cmd_data_stat, &mst_cmd_data_index,   NULL,
};

const mst_command mst_cmd_data = {
    .name = "data",
    .summary = "generate, convert, fetch, describe and index data",
    .commands = commands,
};

/* ---- rows to a file ---- */

mst_status mst_data_sink_open(mst_data_sink *sink, const mst_data_out_options *options, const char *what,
                              uint64_t total_rows, uint64_t total_bytes)
{
    const mst_row_writer_ops *ops;
    if (options->out == NULL)
        return mst_fail(MST_EUSAGE, "no output file given; add --out FILE");
    TRY(mst_row_writer_find(options->to, options->out, &ops));
    TRY(mst_cli_check_free(options->out, options->overwrite));
    mst_signals_install();
    sink->path = options->out;
    sink->total_rows = total_rows;
    sink->total_bytes = total_bytes;
    sink->start_ns = mst_now_ns();
    sink->quiet = options->quiet;
    mst_bar_start(&sink->bar, what, "rows", total_rows > 0 ? total_rows : total_bytes);
    return mst_row_writer_new(ops, options->out, sink->source_key, &sink->writer);
}

/* Adds rows [from, to) of the chunk. */
static mst_status data_add_part(mst_data_sink *sink, const mst_chunk *chunk, uint32_t from, uint32_t to)
{
    mst_chunk *part = NULL;
    if (from == to)
        return MST_OK;
    sink->rows += to - from;
    if (from == 0 && to == chunk->n_rows)
        return mst_row_writer_add(sink->writer, chunk);
    TRY(data_copy_rows(chunk, from, to - from, &part));
    mst_status st = mst_row_writer_add(sink->writer, part);
    mst_chunk_release(part);
    return st;
}

mst_status mst_data_sink_take(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    mst_data_sink *sink = arg;
    (void)first_row;
    TRY(mst_signals_check("nothing was written"));
    uint64_t n = chunk->n_rows, from = sink->skip < n ? sink->skip : n, to = n;
    sink->skip -= from;
    bool last = sink->limit > 0 && to - from >= sink->limit - sink->rows;
    if (last)
        to = from + (sink->limit - sink->rows);
    TRY(data_add_part(sink, chunk, (uint32_t)from, (uint32_t)to));
    sink->full = last;
    sink->bytes += chunk->bytes_read;
    if (!sink->quiet)
        mst_bar_update(&sink->bar, sink->total_rows > 0 ? sink->rows : sink->bytes, sink->rows);
    return sink->full ? mst_fail(MST_ESTOPPED, "the requested number of rows is written") : MST_OK;
}

mst_status mst_data_sink_commit(mst_data_sink *sink, const mst_data_info *info)
{
    char count[32], rate[32], bytes[32];
    TRY(mst_signals_check("nothing was written"));
    TRY(mst_row_writer_commit(sink->writer, info));
    mst_bar_end(&sink->bar);
    double seconds = mst_seconds_since(sink->start_ns);
    mst_map map = {0};
    snprintf(count, sizeof count, "%s row%s", mst_figure_grouped(sink->rows, rate),
             sink->rows == 1 ? "" : "s");
    mst_figure_grouped((uint64_t)((double)sink->rows / (seconds > 1e-9 ? seconds : 1e-9)), rate);
    if (sink->quiet)
        return MST_OK;
    if (strcmp(sink->path, "-") == 0 || mst_map_open(sink->path, &map) != MST_OK)
        mst_info("%s written in %.2f s (%s rows/s)", count, seconds, rate);
    else
        mst_info("%s: %s, %s, written in %.2f s (%s rows/s)", sink->path, count,
                 mst_figure_size(map.size, bytes), seconds, rate);
    mst_map_close(&map);
    return MST_OK;
}

void mst_data_sink_close(mst_data_sink *sink)
{
    if (sink->writer != NULL)
        mst_bar_end(&sink->bar);
    mst_row_writer_destroy(sink->writer);
    sink->writer = NULL;
}

mst_status mst_data_check_free(const char *folder, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *path = mst_sprintf("%s/%s", folder, names[i]);
        if (path == NULL)
            return mst_fail_memory();
        mst_status st =
            mst_path_exists(path)
                ? mst_fail(MST_EEXIST,
                           "%s already exists; choose another folder, or replace it with --overwrite", path)
                : MST_OK;
        mst_free(path);
        TRY(st);
    }
    return MST_OK;
}
