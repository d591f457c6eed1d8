/* Steps of a study as processes: its lab (scripts/netlab), its commands one after another, and the kills that
 * the file asks for.
 *
 * Signals of this process are caught from new to destroy: the first SIGINT, SIGTERM or SIGHUP makes the
 * current command save and end, a second one kills it. The lab is removed at the end, unless this process is
 * killed; the next start of the study then removes it. Thread: one. */
#ifndef MST_LAUNCH_STUDY_STEPS_H
#define MST_LAUNCH_STUDY_STEPS_H

#include "study/study.h"

/* Gets a line of progress several times a second; NULL: a command has ended. */
typedef struct mst_steps_progress {
    void *arg;
    void (*show)(void *arg, const char *text);
    void (*note)(void *arg, const char *text); /* a line that stays */
} mst_steps_progress;

/* The program netlab: MUSTER_NETLAB, that of the source tree of this binary, or one on PATH. The caller
 * frees; NULL: there is none. */
char *mst_steps_netlab(void);

/* Why the study cannot run on this machine, as a sentence; NULL: it can. The caller frees. */
char *mst_steps_obstacle(const mst_study *study);

/* Runs the commands that are not done. A command that fails is recorded, and ends the study unless it is a
 * sweep; this is MST_OK. MST_ESTOPPED after a signal. */
mst_status mst_steps_run(mst_study *study, const mst_steps_progress *progress);

#endif
