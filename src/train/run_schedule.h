/* The schedule of a run: when it evaluates, saves and stops, from options such as --eval-every "500 steps",
 * --until "test_loss<=0.35" and --trace-steps 10:20. */
#ifndef MST_TRAIN_RUN_SCHEDULE_H
#define MST_TRAIN_RUN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "options/train_options.h"

typedef enum mst_unit {
    MST_UNIT_NEVER,
    MST_UNIT_STEPS,
    MST_UNIT_ROWS,
    MST_UNIT_SECONDS, /* of training */
    MST_UNIT_EPOCHS,
} mst_unit;

typedef struct mst_interval {
    mst_unit unit;
    double n;
} mst_interval;

/* "500", "500 steps", "1M rows", "10s", "2 epochs", "never"; spaces are optional. name is for the message.
 */
mst_status mst_interval_parse(const char *name, const char *text, mst_interval *out);

typedef enum mst_metric {
    MST_METRIC_TRAIN_LOSS,
    MST_METRIC_TRAIN_ACCURACY,
    MST_METRIC_TEST_LOSS,
    MST_METRIC_TEST_ACCURACY,
    MST_METRIC_TEST_AUC,
    MST_METRIC_TEST_TOP5,
    MST_METRIC_TEST_GROUPED_AUC,
    MST_METRIC_TEST_NORMALISED_ENTROPY,
    MST_METRIC_VALID_LOSS,
    MST_METRIC_VALID_ACCURACY,
    MST_METRIC_VALID_AUC,
    MST_METRIC_VALID_TOP5,
    MST_METRIC_VALID_GROUPED_AUC,
    MST_METRIC_VALID_NORMALISED_ENTROPY,
    MST_METRIC_COUNT,
} mst_metric;

const char *mst_metric_name(mst_metric metric);

typedef struct mst_condition {
    mst_metric metric;
    bool less, or_equal;
    double value;
} mst_condition;

/* "test_loss<=0.35": a metric, one of < <= > >=, a number; spaces are optional. MST_EUSAGE also for a
 * condition that no value of the metric fulfils. */
mst_status mst_condition_parse(const char *text, mst_condition *out);
bool mst_condition_holds(const mst_condition *condition, double value); /* false for NAN */

/* --trace-steps A:B, A: or :B; NULL: all steps. MST_EUSAGE otherwise. */
mst_status mst_trace_steps_parse(const char *text, uint64_t *from, uint64_t *to);

#define MST_AUTO_SAVE_S     60.0 /* --checkpoint-every auto: the shortest interval */
#define MST_AUTO_SAVE_SHARE 0.02 /* and the largest share of the time that saving may take */

typedef struct mst_run_schedule {
    mst_interval eval, checkpoint;
    bool auto_checkpoint; /* --checkpoint-every auto: `checkpoint` is the first interval */
    bool has_until;
    mst_condition until;
} mst_run_schedule;

/* Parses --eval-every, --checkpoint-every and --until, and checks the options against each other: MST_EUSAGE
 * with a message otherwise. saves: of a job that loses its weights with a process, so that `auto` saves. */
mst_status mst_run_schedule_parse(const mst_train_options *options, bool saves, mst_run_schedule *out);
/* --eval-mode: training waits during evaluations. */
bool mst_run_schedule_is_exact(const mst_train_options *options);
/* The metric of --until must exist for a model of so many scores. */
mst_status mst_run_schedule_check(const mst_run_schedule *self, const mst_train_options *options,
                                  uint32_t n_scores);

#endif
