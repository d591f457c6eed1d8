/* The thresholds of the verdict's rules (verdict.c). Shares are parts of a worker's time unless noted. */
#ifndef MST_REPORT_VERDICT_THRESHOLDS_H
#define MST_REPORT_VERDICT_THRESHOLDS_H

/* ---- the bottleneck ---- */

#define MST_VERDICT_DOMINATES      0.4  /* the greatest share is at least this, */
#define MST_VERDICT_LEADS          1.25 /* and this many times the second; */
#define MST_VERDICT_SATURATED      0.9  /* or a server or a link is used for this part of the time, */
#define MST_VERDICT_SATURATED_WAIT 0.15 /* and workers wait for this part of it */

/* ---- disk ---- */

#define MST_VERDICT_IOWAIT    0.2 /* cores of the host that wait for disks, */
#define MST_VERDICT_FAULTS    50  /* or major faults/s, */
#define MST_VERDICT_READ_RATE 1e6 /* or bytes/s from disks are a sign of waits for them; */
#define MST_VERDICT_CPU_FREE  0.3 /* without runnable times, if this part of the host's CPU is free */

/* ---- stragglers ---- */

#define MST_VERDICT_STRAGGLES 1.5 /* times the median's own work: not a typical worker */
#define MST_VERDICT_SLOWER    1.2 /* times the median's own work: steps wait for the slowest worker */
#define MST_VERDICT_HELD      0.1 /* of the time, steps are held open for one worker */
#define MST_VERDICT_IDLE_GAP  0.3 /* of the time that one worker idles more than another, without lockstep */

/* ---- servers and network ---- */

#define MST_VERDICT_QUEUES 0.7  /* use of a resource from which queues form, without lockstep (job_plan.c) */
#define MST_VERDICT_ENDS   1.25 /* times the use of a server's link: the link of a worker counts */
#define MST_VERDICT_SLOW_LINK                                                                                \
    0.2 /* use of a link that is slower than others: it is why steps are held open */
#define MST_VERDICT_WAITS_LONGER 1.5   /* times the median's wait per step: the network at that worker */
#define MST_VERDICT_STEP_BYTES   32768 /* bytes of a step that make the network a cause of waits */

/* ---- cores and input ---- */

#define MST_VERDICT_CROWDED    0.95 /* of a host's cores are busy: they are saturated */
#define MST_VERDICT_FULL       0.9  /* of the CPU quota is used: it is saturated */
#define MST_VERDICT_CROWDING   0.25 /* of the cores are used by others: threads of one process lack cores */
#define MST_VERDICT_OTHERS     0.25 /* of the cores are used by other programs: the verdict mentions them */
#define MST_VERDICT_CORES_LACK 0.15 /* of the time, runnable without a core: the sentence is about cores */
#define MST_VERDICT_SPARE      0.1  /* of the rate at most is what spare threads add */
#define MST_VERDICT_SOURCE     0.5  /* of the waits for rows, parsing is running or runnable */
#define MST_VERDICT_OVERLAP_S  2    /* of training: lines of several processes cover nearly the same time */
#define MST_VERDICT_SHORT_S    1    /* of training: a shorter run is not judged */

/* ---- text and advice ---- */

#define MST_VERDICT_SHOWN     0.02 /* a share in the evidence */
#define MST_VERDICT_MENTIONED 0.05 /* a share in the sentence */
#define MST_VERDICT_WORTH     1.05 /* predicted gain of a change that is advised */
#define MST_VERDICT_HARDWARE  1.5  /* times the gain, before more hardware comes first */
#define MST_VERDICT_RARER     4    /* times the present interval of evaluations or saves */
#define MST_VERDICT_SEVERAL   2    /* evaluations or saves during training, before rarer ones are advised */

#endif
