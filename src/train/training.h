/* A training: data, model, optimizer, run log and observer of one process, built from resolved options. All
 * kinds of process build it here; the role decides which parts there are.
 *
 *   role             data   model             strategy   run log
 *   local, rank 0    yes    with weights      yes        yes
 *   other ranks      yes    with weights      yes        no
 *   worker           yes    without weights   no         no
 *   server 0         no     with weights      no         yes
 *   other servers    no     with weights      no         no
 *
 * A process with data describes its training (model, how rows are read). Servers have no data: they build the
 * model and the run log from the description that the first worker sends.
 *
 *   mst_training_new    opens and checks everything; nothing is written
 *   mst_training_run    local, rank 0: trains, writes the run directory, ends with a checkpoint
 *   mst_training_plan   for --dry-run: estimates memory and traffic
 *
 * The library does not print: callbacks report events. Thread: one caller. */
#ifndef MST_TRAIN_TRAINING_H
#define MST_TRAIN_TRAINING_H

#include "observe/observe.h"
#include "train/run_log.h"
#include "train/train_config.h"
#include "train/train_data.h"

/* The end of a training in memory, from which another one starts. */
typedef struct mst_start {
    mst_assembly assembly; /* weights, and optimizer state in the slots */
    char optimizer[16];    /* that the state is of; "": there is none */
    char sparse[16];       /* the optimizer of keys; "": the same */
    json_t *state;         /* of the run log: mst_run_log_state; NULL: none, steps count from 0 */
} mst_start;
void mst_start_fini(mst_start *self); /* zeroes are fine */

/* Read-only for other files. */
typedef struct mst_training {
    mst_train_config config;
    mst_train_options options;             /* a copy, changed for data that can be read only once */
    bool epochs_given;                     /* likewise */
    mst_strategy_options strategy_options; /* a copy */
    mst_run_schedule schedule;
    const mst_kernels *kernels;
    mst_optimizer optimizer, optimizer_sparse; /* the second: optimizer.sparse, if there is one */
    mst_train_data data;                       /* zeroes on servers */
    mst_assembly assembly;                     /* the model and its parameters */
    json_t *description; /* {"model", "reading", "reading_unknown", "found"}; on servers the first worker's */
    mst_strategy *strategy; /* local, ranks; else NULL */
    mst_run_log *log;       /* local, rank 0, server 0; else NULL */
    mst_observe *observe;   /* NULL: none, or not started */
    mst_checkpoint
        *start;     /* server 0: the checkpoint that the run starts from, until it is closed; or NULL */
    bool has_slots; /* and it has optimizer state that the run continues with */
    /* Added to the weight at shift_at of that checkpoint, whose --keep-negatives differs. */
    uint64_t shift_at;
    float shift;
    char *continued;       /* server 0: the run that continues because the job started again; or NULL */
    uint64_t report_every; /* steps; 0: by time only */
    json_t *workers;       /* report of each process, once the run is over; NULL: there is one process */
} mst_training;

/* *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_training_new(const mst_train_config *config, mst_training **out);
void mst_training_destroy(mst_training *self); /* NULL-safe */

/* Starts the observer of this process, if the options select one. step: of the run. */
void mst_training_observe(mst_training *self, uint64_t step);

/* ---- local, rank 0 ---- */

/* The options for the manifest. Values that were found in the data (--normalise auto, --csv-columns) and the
 * number of threads of --threads 0 are there as found, so that a resumed run keeps them. New reference or
 * NULL. */
json_t *mst_training_options(const mst_training *self);
/* The cost of the run: {"model", "parameters", "weights_bytes", "optimizer_bytes", "batch_rows", ...}. Reads
 * one batch. New reference in *out. */
mst_status mst_training_plan(mst_training *self, json_t **out);

/* callbacks->progress is called at every multiple of n steps, besides a few times a second. */
void mst_training_report_every(mst_training *self, uint64_t n);

mst_status mst_training_run(mst_training *self, const mst_train_callbacks *callbacks,
                            mst_train_summary *summary);

/* ---- servers ---- */

/* Reads the options again after the configuration has changed: those of a resumed run. */
mst_status mst_training_reload(mst_training *self);

/* Builds the model with its weights from a worker's description. */
mst_status mst_training_build(mst_training *self, const json_t *description);

/* Server 0, before mst_training_start_log: the job lost its state, and this run continues from its last
 * checkpoint, or from the beginning if it has none. Closes the run log. */
mst_status mst_training_continue(mst_training *self, const char *run);

/* Server 0, after build: makes the run log; opens the checkpoint of --resume or --init-from as self->start.
 * *plan: the rows left to train on, from the checkpoint (mst_run_log_plan); a new reference, or NULL. */
mst_status mst_training_start_log(mst_training *self, json_t **plan);
/* The same without a checkpoint: from a state and progress of mst_run_log_resume_state. */
mst_status mst_training_start_log_from(mst_training *self, const json_t *state, const mst_progress *at);

/* Reads floats [first, first + count) of the weights (slot 0) or of the optimizer's slot - 1, of self->start
 * or config.from. */
mst_status mst_training_read_start(mst_training *self, uint32_t slot, uint64_t first, uint64_t count,
                                   float *out);
void mst_training_close_start(mst_training *self);
/* During training: opens the last checkpoint of the run, or that of --init-from, as self->start; without any
 * it stays NULL. meta: zeroes, or of a checkpoint of the run; the caller drops the references. */
mst_status mst_training_reopen_start(mst_training *self, mst_checkpoint_meta *meta);

/* ---- processes with a run log ---- */

/* After a training in memory: hands its model over, on server 0 with the floats of all servers. Nothing but
 * mst_training_destroy may follow. */
mst_status mst_training_take(mst_training *self, mst_start *out);

/* Opens the run directory and writes its manifest. */
mst_status mst_training_open_run(mst_training *self);

/* Writes the number of malformed rows that were left out to the manifest and the summary. */
mst_status mst_training_note_skipped(mst_training *self, uint64_t skipped, mst_train_summary *summary);

/* When all files of the run are complete: writes the verdict. A failure is a warning; the thread's error
 * stays as it is. */
void mst_training_write_verdict(const mst_training *self);

#endif
