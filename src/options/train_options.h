/* The options of training and evaluation. */
#ifndef MST_OPTIONS_TRAIN_OPTIONS_H
#define MST_OPTIONS_TRAIN_OPTIONS_H

#include "base/option.h"

typedef struct mst_train_options {
    mst_text_list test;          /* --test FILES */
    char *valid;                 /* --valid FRACTION|FILE */
    int64_t epochs, steps, rows; /* --epochs, --steps, --rows: 0: no limit */
    int64_t steps_per_epoch; /* --steps-per-epoch: what an epoch is to limits and evaluations; 0: a pass */
    double seconds;          /* --seconds of training; 0: no limit */
    char *until;             /* --until CONDITION */
    int64_t patience;        /* --patience N evaluations without a better valid loss; 0: off */
    char *eval_every;        /* --eval-every */
    int eval_mode;           /* --eval-mode: an mst_eval_mode */
    int64_t eval_rows;       /* --eval-rows: the first M rows of the test set; 0: all */
    int64_t eval_batch;      /* --eval-batch */
    char *auc_by;            /* --auc-by FIELD; "-1": none */
    bool strict_features;    /* --strict-features: in evaluations */
    int64_t seed;            /* --seed */
    int64_t valid_seed;      /* --valid-seed; -1: --seed */
    int64_t shuffle_rows;    /* --shuffle-rows: window; 0: file order */
    int64_t prefetch;        /* --prefetch: parsing threads; 0: like --threads */
    bool cache;              /* --cache */
    char *cache_folder;      /* --cache-folder */
    char *run;               /* --run FOLDER; NULL: runs/MODEL-N */
    char *group;             /* --group NAME of the run's repeats, or NULL */
    bool resume, overwrite;
    int resume_data;        /* --resume-data: an mst_resume_data */
    bool fail_if_done;      /* --fail-if-done: a resumed run with nothing to do fails */
    bool save;              /* --save / --no-save */
    char *checkpoint_every; /* --checkpoint-every */
    int64_t keep;           /* --keep N checkpoints */
    char *init_from;        /* --init-from CHECKPOINT */
    bool force;             /* --force: rows of another origin than the model's */
    char *isa;              /* --isa */
    bool observe;           /* --observe / --no-observe: what the run writes about itself */
    double resources_every; /* --resources-every: seconds */
    bool trace;             /* --trace */
    char *trace_steps;      /* --trace-steps A:B */
} mst_train_options;
typedef enum mst_resume_data { MST_RESUME_AUTO, MST_RESUME_SAME, MST_RESUME_NEW } mst_resume_data;
typedef enum mst_eval_mode { MST_EVAL_AUTO, MST_EVAL_EXACT, MST_EVAL_OVERLAP } mst_eval_mode;
extern const mst_option mst_train_option_table[];

#endif
