/* The verdict: the bottleneck of a run, the evidence in numbers, and advice with the predicted gain.
 * docs/REPORT.md explains the rules; verdict.c has them in full, and verdict_sentences.c the table of causes.
 *
 * Works on a run that was read (run_read.h), in any state; never touches the run's processes. */
#ifndef MST_REPORT_VERDICT_H
#define MST_REPORT_VERDICT_H

#include "report/run_read.h"

/* Causes; docs/REPORT.md explains them. */
typedef enum mst_bottleneck {
    MST_BOTTLENECK_COMPUTE,
    MST_BOTTLENECK_SERVER_NETWORK,
    MST_BOTTLENECK_WORKER_NETWORK,
    MST_BOTTLENECK_SERVER_CPU,
    MST_BOTTLENECK_INPUT,
    MST_BOTTLENECK_DISK,
    MST_BOTTLENECK_STRAGGLERS,
    MST_BOTTLENECK_SYNCHRONISATION,
    MST_BOTTLENECK_EVALUATION,
    MST_BOTTLENECK_CORES,
    MST_BOTTLENECK_LATENCY,
    MST_BOTTLENECKS,
    MST_BOTTLENECK_NONE = MST_BOTTLENECKS
} mst_bottleneck;
const char *mst_bottleneck_name(mst_bottleneck kind);  /* in verdict.json: "server-cpu"; also "none" */
const char *mst_bottleneck_title(mst_bottleneck kind); /* in tables: "work of the servers" */
/* [[name, title], ...] in the order of their colours on the page; new reference or NULL. */
json_t *mst_causes_json(void);

#define MST_EVIDENCE_MAX 20
#define MST_ADVICE_MAX   6

typedef struct mst_evidence {
    char what[160];
    double value;
    char unit[16]; /* share, rows/s, bytes, bytes/s, cores, ratio, s */
} mst_evidence;

typedef struct mst_advice {
    char change[96]; /* a flag and its value where there is one */
    char text[320];
    double gain;   /* rows/s after over rows/s now, the time of evaluating and saving included */
    bool hardware; /* it needs more hosts or cores than the run had */
} mst_advice;

typedef struct mst_verdict {
    bool known;          /* false: the files are insufficient; `sentence` names the missing ones */
    mst_bottleneck kind; /* never CORES: COMPUTE stands for both, as both want cores */
    char process[208];   /* where it is; "" when it is nowhere in particular */
    char sentence[640];
    double shares[MST_BOTTLENECKS]; /* of a typical worker's time */
    double core_wait_own;           /* of that of CORES, what was in phases of own work, and not of waits */
    mst_evidence evidence[MST_EVIDENCE_MAX];
    size_t n_evidence;
    mst_advice advice[MST_ADVICE_MAX]; /* sorted by gain; a hardware gain is weighted 2/3 */
    size_t n_advice;
} mst_verdict;

/* MST_ENOMEM only. */
mst_status mst_verdict_of(const mst_run_data *run, mst_verdict *out);

/* verdict.json's object; new reference, or NULL when memory is short. */
json_t *mst_verdict_json(const mst_verdict *verdict);

/* Reads the run in that folder and writes its verdict.json, which appears whole. For the end of a run: call
 * after the last line of spans.csv, resources.csv and marks.csv is written. */
mst_status mst_verdict_write(const char *run_path);

#endif
