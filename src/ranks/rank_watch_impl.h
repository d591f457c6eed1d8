/* What watch.c and watch_letters.c share; nobody else includes this. */
#ifndef MST_RANKS_RANK_WATCH_IMPL_H
#define MST_RANKS_RANK_WATCH_IMPL_H

#include <pthread.h>

#include "ranks/rank_watch.h"
#include "net/net.h"

#define MST_WATCH_HOST      64
#define MST_WATCH_PURPOSE   40
#define MST_WATCH_SENTENCE  900
#define MST_WATCH_ADDRESSES 8
#define MST_WATCH_NOBODY    UINT32_MAX

/* All: of rank 0, but LEAVE (everybody's), FAIL, LETTER, CLOCK (a question; rank 0's is the answer) and DONE
 * (of the others). */
enum { ALL = MST_NET_TYPES, LEAVE, FAIL, LOST, OPEN, LETTER, DONE, CLOCK };

/* A rank, as it presents itself through MPI. */
typedef struct mst_watch_who {
    char host[MST_WATCH_HOST];
    char purpose[MST_WATCH_PURPOSE];
    uint64_t process;
} mst_watch_who;

typedef struct mst_watch_member {
    uint32_t peer; /* of the net; MST_WATCH_NOBODY: not connected */
    bool came, left, done;
    void *body; /* of the message that arrives */
} mst_watch_member;

struct mst_watch {
    mst_watch_options options;
    int rank, size;
    mst_net *net;
    mst_watch_who *who;        /* [size]; other ranks than 0 know rank 0 and themselves only */
    mst_watch_member *members; /* [size] */
    uint32_t n_came;
    uint32_t dialled[MST_WATCH_ADDRESSES], n_dialled;
    bool told; /* lost was called, or nobody is left to watch */
    pthread_t thread;
    bool thread_made;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ending, failing, failed, lost, joined;
    mst_error broken; /* code MST_OK: not */
    char sentence[MST_WATCH_SENTENCE];

    /* Letters. */
    pthread_mutex_t post; /* guards `letters`, and is held while one of its functions runs */
    mst_letters letters;
    bool open; /* the thread's: rank 0 takes letters */
    uint64_t looked_ns, asked_ns, ticked_ns;
    uint32_t asked;
    bool opening, finishing, finished; /* guarded by the mutex, as is n_done */
    int n_done;                        /* ranks that have no more letters */
};

/* ---- watch_letters.c; the watch's thread ---- */

/* Sends what is due. When to look again, in nanoseconds of mst_now_ns; UINT64_MAX: no need to. */
uint64_t mst_letters_serve(mst_watch *self);
/* A message of the letters' types has come from that rank. */
mst_status mst_letters_heard(mst_watch *self, int rank, const mst_message *m, const void *body);

#endif
