/* The view of a run, live or over: the figures that the page, the terminal and /metrics show.
 *
 * A view is made from a run that was read (report/run_read.h) and points into it: it is valid until the next
 * update of that run. Rates cover the last seconds of a live run, and afterwards the training time without
 * evaluations. One thread; reads only the files' times. */
#ifndef MST_DASH_RUN_VIEW_H
#define MST_DASH_RUN_VIEW_H

#include "report/figures.h"
#include "report/verdict.h"

/* X(name, text). */
#define MST_LIFE_MAP(X)                                                                                      \
    X(LIVE, "live")                                                                                          \
    X(SILENT, "silent")     /* not over by its files, but nothing was written for a while */                 \
    X(FINISHED, "finished") /* a process: it had done its work, or the run is over */                        \
    X(STOPPED, "stopped")   /* by a signal; a run */                                                         \
    X(FAILED, "failed")     /* a run */                                                                      \
    X(DEAD, "dead")         /* a process */                                                                  \
    X(GONE, "gone")         /* a run whose folder was removed */

typedef enum mst_life {
#define X(name, text) MST_LIFE_##name,
    MST_LIFE_MAP(X)
#undef X
        MST_LIVES
} mst_life;
const char *mst_life_name(mst_life life);

#define MST_VIEW_RECENT_S 5.0 /* the length of "recent" */

typedef struct mst_process_view {
    const mst_process_data *process;
    mst_life life;
    double last;          /* newest line of it, seconds since 1970; NAN: none */
    mst_costs now, total; /* recent (of a run that is over: as total; nothing once it ended before the run) */
    mst_loads now_use, all_use; /* likewise */
    /* recent; of a run that is over: of its training time, as the run's rates are */
    double rows_per_s, steps_per_s;
} mst_process_view;

typedef struct mst_run_view {
    const mst_run_data *data;
    mst_life life;
    double quiet_s; /* since something was written; NAN: not known */
    mst_run_figures figures;
    double rows_per_s, steps_per_s; /* of the workers together: recent, or of the training time */
    double waits;                   /* share of workers' time, recent: waiting for weights, others or rows */
    double train_loss, lr;          /* newest; the loss may be infinite */
    bool train_loss_is_nan;         /* the newest is no number */
    double share_done;              /* 0 to 1 by the limit that is reached first; NAN: no limit is known */
    double left_s;                  /* by that share; NAN: not known, or over */
    double begin, end;              /* seconds since 1970 */
    mst_process_view *processes;    /* those with samples */
    size_t n_processes;
    mst_verdict verdict; /* so far */
    bool has_verdict;
} mst_run_view;

/* gone: the folder was removed. judge: also make the verdict, the most expensive part of a view. *out is
 * the caller's to fini; set only on MST_OK. MST_ENOMEM only. */
mst_status mst_run_view_init(const mst_run_data *data, bool gone, bool judge, mst_run_view *out);
void mst_run_view_fini(mst_run_view *self);

/* A phase's share of the time of the process's threads, recently; 0 when there is none. */
double mst_process_view_share(const mst_process_view *self, mst_cost_kind kind);
/* Waiting for weights, for others and for rows. */
double mst_process_view_waits(const mst_process_view *self);

/* The text for a loss that is not finite; NULL: it is finite, or not known. */
const char *mst_odd_loss(double loss, bool is_nan);

/* The view for programs and for the page. Marks: the newest MST_VIEW_MARKS. New reference; NULL with
 * MST_ENOMEM recorded. */
#define MST_VIEW_MARKS     60
#define MST_VIEW_PROCESSES 256 /* at most in JSON; "more_processes" counts the rest */
json_t *mst_run_view_json(const mst_run_view *self, const char *label);

#endif
