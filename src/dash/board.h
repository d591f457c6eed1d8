/* The board: the runs that are shown, from the given folders, including those that appear later.
 *
 * A given folder is a run, or contains runs at most two folders deep. mst_board_update reads everything from
 * files on the caller's thread; it waits for nothing and writes nothing. */
#ifndef MST_DASH_BOARD_H
#define MST_DASH_BOARD_H

#include "base/option.h"
#include "dash/point_table.h"
#include "dash/run_view.h"

typedef struct mst_board mst_board;

#define MST_BOARD_RUNS 200 /* the newest; a note mentions any others */

typedef struct mst_board_run {
    unsigned id; /* ascending, never reused */
    char *path, *label;
    mst_run_data *data;
    mst_run_view view; /* of the last update */
    mst_point_table *tables;
    size_t n_tables, tables_capacity;
    double begin;          /* the zero of times in the tables */
    uint64_t inode;        /* of the folder: a new inode is a new run */
    uint64_t due_ns;       /* when it is read again */
    uint64_t judged_ns;    /* when its verdict was made */
    char *text;            /* the view as JSON with "id", in one line */
    mst_string delta;      /* events since the previous update; empty: no change */
    bool appeared, looked; /* looked: there is a view */
} mst_board_run;

struct mst_board {
    mst_text_list roots;
    mst_board_run **runs; /* by id */
    size_t n, capacity;
    unsigned last_id;
    mst_text_list dropped; /* ids of runs that were replaced, of the last update, as text */
    mst_text_list notes;   /* sentences about the folders, from the last scan */
    uint64_t scan_ns;      /* time of the next scan of folders */
    bool curves;           /* whether points of curves are kept */
};

/* Reads everything once. MST_EINPUT when a path is not a folder. curves: also keep points of curves. *out is
 * the caller's to destroy; set only on MST_OK. */
mst_status mst_board_new(const mst_text_list *paths, bool curves, mst_board **out);
void mst_board_destroy(mst_board *self); /* NULL-safe */

/* Reads what is due: live runs each time, others every few seconds. Afterwards each run's delta has the
 * events for the listeners. MST_ENOMEM only. */
mst_status mst_board_update(mst_board *self);

/* Everything about a run, as events. */
void mst_board_snapshot(const mst_board_run *run, mst_string *out);

/* {"notes": [...], "roots": [...], "version": ..., "now": seconds, "causes": [[name, title], ...], "phases":
 * [[title, colour], ...]}; new reference or NULL. */
json_t *mst_board_json(const mst_board *self);

/* The live run that began last, or else the run that began last; NULL: there is none. */
mst_board_run *mst_board_newest(const mst_board *self);

#endif
