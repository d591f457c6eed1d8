/* `muster matmul`: C = A x B and trace(A x B) in blocks, by this process or by all ranks of an MPI job.
 *
 * Every rank runs this; rank 0 prints. Ranks compare their arguments; rank 0 alone reports wrong usage,
 * options that differ, and every later failure that all ranks detect. A failure of one rank is sent to the
 * others through the rank monitor, and each of them prints it and exits with 3. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "cli/progress_line.h"
#include "cli/rank_exit.h"
#include "cli/table.h"
#include "matmul/matmul.h"
#include "ranks/rank_monitor.h"

#define START_MS  60000
#define PEER_MS   10000
#define NAMED_MS  2000 /* for the rank monitor to report the loss that made MPI fail */
#define DETACH_MS 60000
#define SIDE_MAX  1e9
#define WORDS_MAX (1u << 20)

typedef struct matmul_options {
    int64_t m, n, k, seed, block, memory, threads;
    char *out, *verify, *grid;
    bool overwrite, trace, by_product, check;
    int placement;
    char *config;
    bool json;
} matmul_options;

#define FIELD(name) offsetof(matmul_options, name)
static const mst_option matmul_table[] = {
    {.name = "m",
     .type = MST_OPTION_INT,
     .offset = FIELD(m),
     .fallback = "0",
     .min = 0,
     .max = SIDE_MAX,
     .help = "Rows of a generated A (and of C); 0: A and B come from files."},
    {.name = "n",
     .type = MST_OPTION_INT,
     .offset = FIELD(n),
     .fallback = "0",
     .min = 0,
     .max = SIDE_MAX,
     .help = "Columns of a generated B (and of C); 0: same as --m."},
    {.name = "k",
     .type = MST_OPTION_INT,
     .offset = FIELD(k),
     .fallback = "0",
     .min = 0,
     .max = SIDE_MAX,
     .help = "Columns of a generated A and rows of a generated B; 0: same as --m."},
    {.name = "seed",
     .type = MST_OPTION_INT,
     .offset = FIELD(seed),
     .fallback = "1",
     .min = 0,
     .max = 9.2e18,
     .help = "Seed of the generated elements, which are in [-1, 1], and of the vectors of --check."},
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(out),
     .metavar = "C.npy",
     .help = "Output file for C, as float32; with several ranks in a folder that all hosts share. Without "
             "it, only the norm and the check are computed."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(overwrite),
     .help = "Replace --out if it exists."},
    {.name = "verify",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(verify),
     .metavar = "C.npy",
     .help = "Do not multiply; check that this file is the product."},
    {.name = "trace",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(trace),
     .help = "Compute only the trace of the product, from the elements that contribute to the diagonal."},
    {.name = "by-product",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(by_product),
     .help = "With --trace: multiply the blocks on the diagonal instead."},
    {.name = "check",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(check),
     .fallback = "true",
     .help = "Check the product with random vectors (Freivalds); costs n^2 instead of n^3 operations."},
    {.name = "block",
     .type = MST_OPTION_INT,
     .offset = FIELD(block),
     .fallback = "0",
     .min = 0,
     .max = 65536,
     .help = "Columns of A and rows of B per multiplication; also the side of the blocks for a trace and for "
             "round-robin. 0: chosen automatically."},
    {.name = "grid",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(grid),
     .metavar = "PxQ",
     .help = "Rows and columns of the grid of ranks. Default: the grid that moves the fewest bytes."},
    {.name = "memory",
     .type = MST_OPTION_INT,
     .offset = FIELD(memory),
     .fallback = "0",
     .min = 0,
     .max = 9e18,
     .metavar = "BYTES",
     .help = "Memory limit of each rank; 0: the smallest of its resource limits, its control group and the "
             "host."},
    {.name = "placement",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(placement),
     .fallback = "together",
     .choices = "together|round-robin",
     .help = "together: blocks that are multiplied are on one rank; round-robin: blocks are dealt to the "
             "ranks in turn, to compare the bytes moved."},
    {.name = "threads",
     .type = MST_OPTION_INT,
     .offset = FIELD(threads),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .help = "Threads of each rank; 0: the cores of the host divided by its ranks."},
    {.name = NULL},
};
static const mst_command_group matmul_groups[] = {
    {"Multiplication", matmul_table, 0},
    {"Other", mst_cli_config_table, FIELD(config)},
    {"Output", mst_cli_json_table, FIELD(json)},
    {.table = NULL},
};

/* ---- options ---- */

static mst_status matmul_read_grid(const char *text, uint32_t grid[2])
{
    unsigned p, q;
    char rest;
    if (sscanf(text, "%5ux%5u%c", &p, &q, &rest) != 2 || p == 0 || q == 0)
        return mst_fail(MST_EUSAGE, "--grid %s: must be rows x columns of ranks, as 2x3", text);
    grid[0] = p;
    grid[1] = q;
    return MST_OK;
}

/* C is written in place by all ranks, so that it needs a file. */
static mst_status matmul_check_out(const matmul_options *o)
{
    struct stat found;
    if (*o->out == '\0' || strcmp(o->out, "-") == 0)
        return mst_fail(MST_EUSAGE, "--out %s: give the name of a file", *o->out == '\0' ? "\"\"" : "-");
    if (stat(o->out, &found) == 0 && !S_ISREG(found.st_mode))
        return mst_fail(MST_EUSAGE, "--out %s: is not a regular file", o->out);
    return mst_cli_check_free(o->out, o->overwrite);
}

static mst_status matmul_read_options(const matmul_options *o, const mst_text_list *files,
                                      mst_matmul_options *out)
{
    if (files->n != 0 && files->n != 2)
        return mst_fail(MST_EUSAGE, "%zu file%s given: a product has two factors, A.npy and B.npy", files->n,
                        files->n == 1 ? "" : "s");
    if (files->n == 2 && (o->m > 0 || o->n > 0 || o->k > 0))
        return mst_fail(MST_EUSAGE, "--m, --n and --k are for generated matrices; %s and %s have their sizes",
                        files->items[0], files->items[1]);
    if (files->n == 0 && o->m == 0)
        return mst_fail(MST_EUSAGE,
                        "no matrices: give A.npy and B.npy, or --m (and --n, --k) to generate them");
    if (o->by_product && !o->trace)
        return mst_fail(MST_EUSAGE, "--by-product requires --trace");
    if (o->trace && (o->out != NULL || o->verify != NULL))
        return mst_fail(MST_EUSAGE, "--trace does not compute C: omit --%s",
                        o->out != NULL ? "out" : "verify");
    if (o->out != NULL && o->verify != NULL)
        return mst_fail(MST_EUSAGE, "--verify does not write C: omit --out");
    if (o->out != NULL) /* every rank sees the same: C appears when all are done */
        TRY(matmul_check_out(o));
    if (files->n == 2) {
        out->a = files->items[0];
        out->b = files->items[1];
    }
    out->m = (uint64_t)o->m;
    out->n = o->n > 0 ? (uint64_t)o->n : out->m;
    out->k = o->k > 0 ? (uint64_t)o->k : out->m;
    out->seed = (uint64_t)o->seed;
    out->c = o->verify;
    out->out = o->out;
    out->block = (uint64_t)o->block;
    out->memory = (uint64_t)o->memory;
    out->placement = o->placement == 0 ? MST_PLACEMENT_TOGETHER : MST_PLACEMENT_ROUND_ROBIN;
    out->check = o->check;
    out->what = o->verify != NULL ? MST_MATMUL_VERIFY
                : !o->trace       ? MST_MATMUL_PRODUCT
                : o->by_product   ? MST_MATMUL_TRACE_BY_PRODUCT
                                  : MST_MATMUL_TRACE;
    return o->grid != NULL ? matmul_read_grid(o->grid, out->grid) : MST_OK;
}

/* Cores that this process may use, but no more than its part of the host's. */
static unsigned matmul_choose_threads(int64_t option, const mst_mpi *mpi)
{
    unsigned usable = mst_cli_threads(option);
    if (option > 0 || mpi == NULL)
        return usable;
    int ranks = mpi->launch.local_size > 0 ? mpi->launch.local_size : mpi->size;
    long share = sysconf(_SC_NPROCESSORS_ONLN) / ranks;
    return share < 1 ? 1 : (long)usable < share ? usable : (unsigned)share;
}

/* ---- what is shown ---- */

static void matmul_show_progress(void *arg, double done, double total)
{
    mst_bar *bar = arg;
    (void)total;
    mst_bar_update(bar, (uint64_t)(done * 1e-6), (uint64_t)(done * 1e-6));
}

static void matmul_print_plan(const mst_matmul_plan *p, const mst_matmul_options *o, unsigned n_ranks)
{
    char a[32], b[32], c[32], buffers[32], vectors[32], total[32], limit[32], moved[32], dealt[32];
    mst_info("plan for each of %u rank%s with %u thread%s: A %s%s, B %s%s, C %s, buffers %s, check %s: %s of "
             "%s (%s)",
             n_ranks, n_ranks == 1 ? "" : "s", o->n_threads, o->n_threads == 1 ? "" : "s",
             mst_figure_size(p->a, a), p->keeps_a ? "" : " (streamed)", mst_figure_size(p->b, b),
             p->keeps_b ? "" : " (streamed)", mst_figure_size(p->c, c), mst_figure_size(p->buffers, buffers),
             mst_figure_size(p->vectors, vectors), mst_figure_size(p->total, total),
             mst_figure_size(p->limit.bytes, limit), p->limit.name);
    if (o->what == MST_MATMUL_PRODUCT && p->layout.placement == MST_PLACEMENT_TOGETHER)
        mst_info("grid %u x %u, panels of %" PRIu64 ", C in %u x %u parts", p->layout.grid[0],
                 p->layout.grid[1], p->layout.block, p->row_passes, p->col_passes);
    if (n_ranks > 1 && o->what != MST_MATMUL_VERIFY)
        mst_info("moves %s between ranks; blocks dealt out in turn would move %s",
                 mst_figure_size(p->moved, moved), mst_figure_size(p->moved_round_robin, dealt));
}

static void matmul_real(mst_table *t, const char *name, double value, const char *format)
{
    char text[64];
    snprintf(text, sizeof text, format, value);
    mst_table_value(mst_fact(t, name), isfinite(value) ? json_real(value) : json_null(), text);
}

static void matmul_fill_facts(mst_table *t, const mst_matmul_options *o, const mst_matmul_plan *p,
                              const mst_matmul_result *r)
{
    static const char *const names[] = {"product", "trace", "trace by product", "verify"};
    char shape[96];
    const mst_layout *l = &p->layout;
    bool traces = o->what == MST_MATMUL_TRACE || o->what == MST_MATMUL_TRACE_BY_PRODUCT;
    snprintf(shape, sizeof shape, "%" PRIu64 " x %" PRIu64 " x %" PRIu64, l->m, l->k, l->n);
    mst_table_text(mst_fact(t, "what"), names[o->what]);
    mst_table_text(mst_fact(t, "m x k x n"), shape);
    if (traces)
        matmul_real(t, "trace", r->trace, "%.12g");
    else
        matmul_real(t, "norm of C", r->norm, "%.9g");
    if (o->what != MST_MATMUL_VERIFY) {
        matmul_real(t, "seconds", r->seconds, "%.3f");
        matmul_real(t, "GFLOP per s", p->flops / r->seconds * 1e-9, "%.1f");
    }
    if (o->what == MST_MATMUL_TRACE && p->keeps_a)
        matmul_real(t, "GB read per s", ((double)l->m * (double)l->k * 8) / r->seconds * 1e-9, "%.2f");
    matmul_real(t, "fill seconds", r->fill_seconds, "%.3f");
    if (r->checked) {
        char text[128];
        matmul_real(t, "check seconds", r->check_seconds, "%.3f");
        matmul_real(t, "check difference", r->check_share, "%.3g of the possible rounding error");
        snprintf(text, sizeof text, "wrong by over %.3g: passes with probability below %.1g", r->check_error,
                 r->check_escapes);
        mst_table_value(mst_fact(t, "check bound"),
                        json_pack("{s:f,s:f}", "error", r->check_error, "escapes", r->check_escapes), text);
    }
    mst_table_count(mst_fact(t, "ranks"), r->n_ranks);
    mst_table_bytes(mst_fact(t, "bytes moved"), r->moved);
    mst_table_bytes(mst_fact(t, "bytes moved per rank"), r->moved / r->n_ranks);
    mst_table_bytes(mst_fact(t, "bytes moved if dealt in turn"), p->moved_round_robin);
    mst_table_bytes(mst_fact(t, "memory per rank"), p->total);
    if (o->out != NULL)
        mst_table_text(mst_fact(t, "out"), o->out);
}

static void matmul_fill_ranks(mst_table *t, const mst_matmul_result *r)
{
    for (uint32_t i = 0; i < r->n_ranks; i++) {
        const mst_matmul_rank *rank = &r->ranks[i];
        mst_table_count(t, i);
        mst_table_text(t, rank->host);
        mst_table_count(t, rank->blocks);
        mst_table_real(t, rank->flops * 1e-9, 3);
        mst_table_real(t, rank->seconds, 3);
        mst_table_real(t, rank->fill_seconds, 3);
        mst_table_real(t, rank->wait_seconds, 3);
        mst_table_bytes(t, rank->sent);
        mst_table_bytes(t, rank->received);
    }
}

static mst_status matmul_print(const mst_matmul_options *o, const mst_matmul_plan *p,
                               const mst_matmul_result *r, bool as_json)
{
    static const mst_column rank_columns[] = {
        {"rank", true},         {"host", false},   {"blocks", true},
        {"GFLOP", true},        {"seconds", true}, {"fill_seconds", true},
        {"wait_seconds", true}, {"sent", true},    {"received", true}};
    mst_table *facts = NULL, *ranks = NULL;
    mst_status st;
    TRY_OUT(st, mst_facts_new(false, &facts));
    TRY_OUT(st, mst_table_new(rank_columns, sizeof rank_columns / sizeof *rank_columns, &ranks));
    matmul_fill_facts(facts, o, p, r);
    matmul_fill_ranks(ranks, r);
    if (as_json) {
        json_t *all = mst_table_json_facts(facts), *list = mst_table_json(ranks);
        if (all != NULL)
            json_object_set(all, "per_rank", list);
        json_decref(list);
        st = mst_cli_print_json(all);
    } else {
        TRY_OUT(st, mst_table_print(facts, NULL, false));
        st = mst_table_print(ranks, "", true);
    }
out:
    mst_table_destroy(facts);
    mst_table_destroy(ranks);
    return st;
}

/* ---- the ranks ---- */

static mst_status matmul_work(mst_matmul_options *o, bool as_json, bool *alone)
{
    mst_matmul *mm = NULL;
    mst_matmul_result result;
    mst_bar bar;
    bool first = o->mpi == NULL || o->mpi->rank == 0;
    unsigned n_ranks = o->mpi != NULL ? (unsigned)o->mpi->size : 1;
    mst_status st;
    TRY_OUT(st, mst_matmul_new(o, &mm));
    const mst_matmul_plan *plan = mst_matmul_plan_of(mm);
    if (first) {
        matmul_print_plan(plan, o, n_ranks);
        mst_bar_start(&bar, "multiplying", "MFLOP", (uint64_t)(plan->flops / n_ranks * 1e-6) + 1);
    }
    mst_matmul_on_progress(mm, first ? matmul_show_progress : NULL, &bar);
    mst_rank_exit_on_stop(mst_matmul_unfinished); /* from here on all ranks agree */
    st = mst_matmul_run(mm, &result);
    if (first)
        mst_bar_end(&bar);
    *alone = st != MST_OK && mst_matmul_alone(mm);
    if (*alone) /* rank 0 may be killed before it removes it */
        mst_matmul_abandon();
    if (st == MST_OK && first)
        st = matmul_print(o, plan, &result, as_json);
out:
    mst_matmul_destroy(mm);
    return st;
}

/* The arguments that must be equal on all ranks: the files, and the options except those about a rank's own
 * resources.
 */
static json_t *matmul_shared_options(const mst_call *call)
{
    const mst_text_list *files = &call->words;
    json_t *all = mst_options_json(call->groups, 1), *out = json_array(), *list = json_array();
    json_t *options = json_object_get(all, call->groups->title);
    for (size_t i = 0; i < files->n; i++)
        json_array_append_new(list, json_string(files->items[i]));
    json_object_del(options, "threads");
    json_object_del(options, "memory");
    json_array_append(out, options);
    json_array_append_new(out, list);
    json_decref(all);
    return out;
}

static mst_status matmul_differs(int rank, const char *prefix, const char *name, const json_t *mine,
                                 const json_t *zeros)
{
    char *a = json_dumps(mine, JSON_ENCODE_ANY), *b = json_dumps(zeros, JSON_ENCODE_ANY);
    char who[24];
    snprintf(who, sizeof who, "rank %d", rank);
    mst_status st =
        mst_fail_lead(MST_EUSAGE, who, " has %s%s %s, rank 0 has %s; all ranks must have the same value",
                      prefix, name, a != NULL ? a : "none", b != NULL ? b : "none");
    free(a); /* jansson's allocation */
    free(b);
    return st;
}

static mst_status matmul_compare(int rank, const json_t *mine, const json_t *zeros)
{
    const json_t *options = json_array_get(zeros, 0), *files = json_array_get(mine, 1);
    const char *name;
    json_t *value;
    json_object_foreach(json_array_get(mine, 0), name, value)
    {
        const json_t *other = json_object_get(options, name);
        if (!json_equal(value, other))
            return matmul_differs(rank, "--", name, value, other);
    }
    return json_equal(files, json_array_get(zeros, 1))
               ? MST_OK
               : matmul_differs(rank, "", "the files", files, json_array_get(zeros, 1));
}

/* Rank 0's words to all, who compare them with their own. */
static mst_status matmul_compare_words(const mst_mpi *mpi, const json_t *mine)
{
    char *text = mpi->rank == 0 ? json_dumps(mine, JSON_COMPACT) : NULL, *received = NULL;
    uint64_t size = text != NULL ? strlen(text) + 1 : 0;
    mst_status st;
    TRY_OUT(st, mpi->ops->broadcast(0, &size, sizeof size, 0));
    received = size > 0 && size < WORDS_MAX ? mst_zalloc(size) : NULL;
    if (received == NULL) /* the same on all ranks, unless memory is short */
        TRY_OUT(st, mst_fail(MST_EUSAGE, "options of %" PRIu64 " bytes cannot be compared", size));
    if (text != NULL)
        memcpy(received, text, size);
    TRY_OUT(st, mpi->ops->broadcast(0, received, size, 0));
    received[size - 1] = '\0';
    json_t *zeros = json_loads(received, 0, NULL);
    st = matmul_compare(mpi->rank, mine, zeros);
    json_decref(zeros);
out:
    mst_free(received);
    free(text); /* jansson's allocation */
    return st;
}

/* Every rank's failure to every rank: the first of them is that of all. */
static mst_status matmul_share_failure(const mst_mpi *mpi, mst_status st)
{
    mst_error mine = {.code = MST_OK}, *all = mst_calloc((size_t)mpi->size, sizeof *all);
    if (all == NULL)
        return mst_fail_memory();
    if (st != MST_OK)
        mst_error_save(&mine, st);
    mst_status shared = mpi->ops->allgather(0, &mine, sizeof mine, all);
    st = shared;
    for (int r = 0; r < mpi->size && shared == MST_OK && st == MST_OK; r++) {
        char tag[32] = "";
        all[r].text[MST_ERROR_MAX - 1] = '\0';
        if (r > 0 && all[r].lead == 0)
            snprintf(tag, sizeof tag, "rank %d: ", r);
        if (all[r].code != MST_OK)
            st = mst_fail(all[r].code, "%s%s", tag, all[r].text);
    }
    mst_free(all);
    return st;
}

/* st: how this rank understood its words. */
static mst_status matmul_agree(const mst_mpi *mpi, mst_status st, const mst_call *call)
{
    TRY(matmul_share_failure(mpi, st));
    json_t *mine = matmul_shared_options(call);
    st = matmul_compare_words(mpi, mine);
    json_decref(mine);
    return matmul_share_failure(mpi, st);
}

/* The job of one rank; everything that ends well, or ill with all ranks knowing it, ends MPI together. */
static mst_status matmul_work_as_rank(mst_matmul_options *o, bool as_json, mst_status understood,
                                      const mst_call *call)
{
    mst_rank_monitor *monitor = NULL;
    mst_rank_monitor_options w = {.mpi = o->mpi,
                                  .start_timeout_ms = START_MS,
                                  .peer_timeout_ms = PEER_MS,
                                  .lost = mst_rank_exit_lost,
                                  .purpose = "matmul"};
    mst_error error;
    bool alone = false;
    mst_error_save(&error, understood);
    TRY(mst_rank_monitor_new(&w, &monitor));
    mst_status st = matmul_agree(o->mpi, understood == MST_OK ? MST_OK : mst_error_restore(&error), call);
    if (st == MST_OK)
        st = matmul_work(o, as_json, &alone);
    mst_error_save(&error, st);
    mst_status parted = alone ? MST_OK : mst_mpi_detach(o->mpi, mst_now_ns() + DETACH_MS * MST_MS);
    if (parted != MST_OK && st == MST_OK)
        mst_error_save(&error, parted);
    if (alone || parted != MST_OK) {
        if (error.code == MST_EPEER)
            (void)mst_rank_monitor_await_lost(monitor,
                                              NAMED_MS); /* which ends the process, if a rank is dead */
        mst_rank_exit_failed(monitor, &error);
    }
    mst_rank_monitor_destroy(monitor);
    if (st == MST_OK)
        return MST_OK;
    if (o->mpi->rank != 0) { /* rank 0 prints it for all */
        mst_rank_exit_end(mst_signals_exit_code(st));
        _exit(mst_signals_exit_code(st));
    }
    return mst_error_restore(&error);
}

static mst_status matmul_run(mst_call *call)
{
    const matmul_options *options = call->options;
    mst_matmul_options o = {.stop = mst_signals_stop()};
    mst_mpi_launch launch;
    bool alone;
    mst_status st = call->parsed;
    if (st == MST_OK)
        st = matmul_read_options(options, &call->words, &o);
    mst_signals_install();
    mst_mpi_launched(&launch);
    if (launch.launched) {
        mst_error understood;
        mst_error_save(&understood, st);
        mst_rank_exit_prepare(START_MS);
        TRY(mst_mpi_start(NULL, &o.mpi));
        st = understood.code == MST_OK ? MST_OK : mst_error_restore(&understood);
        o.n_threads = matmul_choose_threads(options->threads, o.mpi);
        st = matmul_work_as_rank(&o, options->json, st, call);
    } else if (st == MST_OK) {
        o.n_threads = matmul_choose_threads(options->threads, NULL);
        st = matmul_work(&o, options->json, &alone);
    }
    return st;
}

const mst_command mst_cmd_matmul = {
    .name = "matmul",
    .summary = "multiply matrices in blocks, on one host or under MPI, or compute the trace of the product",
    .run = matmul_run,
    .usage = "matmul [A.npy B.npy] [options]",
    .details = "A and B come from .npy files (float32 or float64) or, with --m, from a seed. The memory that "
               "each rank needs is printed before the start; matrices that do not fit are streamed.\n",
    .run_misused = true,
    .groups = matmul_groups,
    .options_size = sizeof(matmul_options),
    .examples = "muster matmul --m 8192 --out C.npy\n"
                "mpirun -n 4 muster matmul A.npy B.npy --out C.npy\n"
                "muster matmul --m 20000 --trace\n",
};
