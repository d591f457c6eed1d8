/* A sweep: a grid of trainings that a YAML file describes. Each cell of the grid is a run with its own
 * directory.
 *
 *   mst_sweep_spec_read    FILE.yaml -> one JSON object in normal form (sweep_file.c)
 *   mst_sweep_new          the cells: options, names, commands, and those that are skipped (sweep_cells.c)
 *   mst_sweep_load, save   SWEEP/sweep.json: the state (sweep_state.c)
 *   mst_sweep_report_*     the results (sweep_report.h)
 *
 * launch/sweep_runs.h starts the processes; this folder starts and prints nothing. A run is finished when its
 * directory records it; sweep.json holds only what the directories do not. One thread. */
#ifndef MST_SWEEP_SWEEP_H
#define MST_SWEEP_SWEEP_H

#include <jansson.h>
#include <stdbool.h>

#include "base/option.h"
#include "base/status.h"

#define MST_SWEEP_CELLS_MAX 10000

typedef enum mst_cell_state {
    MST_CELL_PENDING,
    MST_CELL_RUNNING, /* in sweep.json: the sweep was interrupted while it ran */
    MST_CELL_STOPPED, /* stopped; it can be resumed */
    MST_CELL_DONE,
    MST_CELL_FAILED,
    MST_CELL_SKIPPED, /* cannot run, or is the same as another; sentence is the reason */
} mst_cell_state;
const char *mst_cell_state_name(mst_cell_state state);

/* One run of the grid. */
typedef struct mst_sweep_cell {
    char *name;          /* of its folder, from the values of the axes: "async-workers2-batch100-seed1" */
    char *config;        /* the same without the seed, shared by repeats; "run" when nothing varies */
    json_t *set;         /* option -> text: options of the file, and those that follow from them */
    json_t *labels;      /* axis -> text, for axes with an effect on this cell */
    mst_text_list words; /* of muster's command line: train ..., or launch ... -- train ... */
    mst_cell_state state;
    bool is_duplicate; /* skipped because another cell has the same options */
    char *sentence;    /* why it failed or is skipped; NULL: none */
    double seconds;    /* wall time it took, all its pieces together where it was resumed; NAN: not known */
    double began;      /* of the current or last piece, in seconds since 1970; NAN: not known */
    unsigned jobs;     /* the most runs that ran at the same time, with this one; 0: not run yet */
} mst_sweep_cell;

typedef struct mst_sweep {
    char *folder, *file; /* SWEEP/, and the YAML file as it was given */
    json_t *spec;        /* normal form */
    mst_sweep_cell *cells;
    size_t n;
    json_t *search; /* of --auto (halving.h); NULL: none */
} mst_sweep;

/* ---- the file (docs/SWEEP.md) ---- */

/* {"files": [text], "for": {option: text}, "train": {option: text}, "grid": {axis: [{"label": text, "set":
 * {option: text}}]}, "metric": text, "jobs": text}, with every value checked and as a command line would have
 * it; metric and jobs where the file has them. MST_EUSAGE with "FILE:LINE: key: what is wrong". New
 * reference; set only on MST_OK. */
mst_status mst_sweep_spec_read(const char *path, json_t **out);
/* The same for text in memory; path is for errors. */
mst_status mst_sweep_spec_parse(const char *path, const char *text, size_t size, json_t **out);

/* ---- the grid ---- */

/* Options of a cell in addition to those of a training: how its processes are started. */
typedef struct mst_deploy_options {
    int deploy; /* embedded, launch, mpi, a preset of `launch --deploy` */
    char *hosts, *ssh, *mpi_args;
    bool copy;
    int64_t port;
    int mpi_plugin;
} mst_deploy_options;
extern const mst_option mst_deploy_option_table[];
enum { MST_DEPLOY_EMBEDDED, MST_DEPLOY_LAUNCH, MST_DEPLOY_MPI };

/* Makes the cells, in the order they run: all configurations once, then again with the next seed. batches:
 * batch sizes to add as an axis when the grid has none; NULL: none. Takes no reference of spec. *out is the
 * caller's to destroy; set only on MST_OK. */
mst_status mst_sweep_new(const char *file, const char *folder, const json_t *spec, const char *const *batches,
                         mst_sweep **out);
void mst_sweep_destroy(mst_sweep *self); /* NULL-safe */

/* Checks that the files of a cell exist; MST_EINPUT with the sentence of `muster train`. Files of a run on
 * other hosts are not checked. */
mst_status mst_sweep_check_files(const mst_sweep *self, const mst_sweep_cell *cell);

/* Parses the number of concurrent runs: a number, or "auto" (as many as the cores allow; MST_JOBS_AUTO).
 * False: neither. */
#define MST_JOBS_MAX  1024
#define MST_JOBS_AUTO 0
bool mst_sweep_jobs_parse(const char *text, unsigned *out);

/* Number of computing threads of the processes of a cell, on a host with so many cores. */
unsigned mst_sweep_cell_threads(const mst_sweep_cell *cell, unsigned cores);

/* The metric of the file, or MST_METRIC_DEFAULT. given: whether the file has one; or NULL. */
const char *mst_sweep_metric_name(const mst_sweep *self, bool *given);

/* SWEEP/runs/NAME. The caller frees; NULL when memory is short. */
char *mst_sweep_run_path(const mst_sweep *self, const mst_sweep_cell *cell);

/* The condition of for: until; NULL: none. */
const char *mst_sweep_until(const mst_sweep *self);

/* ---- state ---- */

typedef enum mst_sweep_change {
    MST_SWEEP_SAME,      /* refuses a changed file, with the differences */
    MST_SWEEP_EXTEND,    /* keeps runs with an unchanged command; none of a search */
    MST_SWEEP_OVERWRITE, /* ignores the existing state */
    MST_SWEEP_RUNS,      /* reads the run folders only, not sweep.json */
} mst_sweep_change;

/* Reads SWEEP/sweep.json and the manifests of the runs. MST_OK without such a file. MST_EEXIST if the folder
 * holds something else, or another sweep; MST_EINPUT if sweep.json is damaged, except with OVERWRITE and
 * RUNS. */
mst_status mst_sweep_load(mst_sweep *self, mst_sweep_change change);

/* Replaces SWEEP/sweep.json atomically. Creates the folder. */
mst_status mst_sweep_save(const mst_sweep *self);

/* Whether the cell is the first that is skipped for its reason; then *why is the reason, and *n the number of
 * cells. All duplicates have one reason. */
bool mst_sweep_left_out(const mst_sweep *self, size_t cell, size_t *n, const char **why);

void mst_sweep_count(const mst_sweep *self, size_t counts[MST_CELL_SKIPPED + 1]);

/* Estimated seconds of the pending cells, from finished ones: of the same configuration if there is one, else
 * the mean. NAN: none is finished. */
double mst_sweep_estimate(const mst_sweep *self);

/* Sets state and sentence (copied; NULL: none). */
mst_status mst_sweep_mark(mst_sweep_cell *cell, mst_cell_state state, const char *sentence);

#endif
