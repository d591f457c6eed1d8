/* The watch: notices that a rank of an MPI job is dead, which MPI does not tell.
 *
 * Ranks connect to rank 0 over net's tcp engine, beside MPI: the addresses and a fresh secret travel through
 * MPI at the start, so nobody names a port. A rank that dies, is cut off or is silent for the timeout is
 * found by rank 0, which tells all others who it was; when rank 0 itself dies everybody sees that.
 *
 * Thread: a thread of the watch's own runs it. `lost` is called on that thread, once, with a whole sentence;
 * the thread that uses MPI may hang in a collective for ever by then, so `lost` must not wait for it.
 * Waiting: mst_watch_new for all ranks, at most timeout_ms, naming those that did not come. It is the first
 * that ranks do together: MST_EUSAGE, on all of them, where their purposes differ. */
#ifndef MST_RANKS_RANK_WATCH_H
#define MST_RANKS_RANK_WATCH_H

#include "mpi/mpi.h"

typedef struct mst_watch_options {
    mst_mpi *mpi; /* used by mst_watch_new only, on the caller's thread */
    uint32_t start_timeout_ms, peer_timeout_ms;
    /* "rank 3 (host b, process 4711) died: ..."; death: it died, fell silent or was dropped for its silence,
     * and did not fail with a sentence of its own. */
    void (*lost)(void *arg, bool death, const char *sentence);
    void *arg;
    const char *purpose; /* what this rank was started for, "--strategy ps": all must say the same; or NULL */
} mst_watch_options;

typedef struct mst_watch mst_watch;
mst_status mst_watch_new(const mst_watch_options *options, mst_watch **out);

/* This rank fails with a sentence of its own: all others hear it, with its rank in front, and are `lost` with
 * it. Any thread. Waits a second at most for it to leave. */
void mst_watch_fail(mst_watch *self, const char *sentence);

/* MPI failed in this rank, perhaps since another one is dead: waits until `lost` was called, timeout_ms at
 * most, since the watch knows who it was and MPI does not. Whether it was. Any thread but the watch's. */
bool mst_watch_await_lost(mst_watch *self, uint32_t timeout_ms);

/* ---- letters ---- */

/* What ranks other than 0 have to tell rank 0 beside training travels over the watch's connections, in order,
 * on the watch's thread: neither MPI nor a thread that trains has a part in it. Letters are not worth a job:
 * what a dead or slow rank has not sent is lost, and nothing fails by it. */
#define MST_WATCH_LETTER (((size_t)1 << 20) + 64) /* bytes at most */
#define MST_WATCH_CLOCK  56

/* Called on the watch's thread, not to wait in; any may be NULL. */
typedef struct mst_letters {
    void *arg;
    /* The next letter, the watch's to mst_free; false: none now. Asked about once a second. */
    bool (*next)(void *arg, void **letter, size_t *bytes);
    /* On rank 0: a letter of that rank has come; valid inside. */
    void (*heard)(void *arg, int rank, const void *letter, size_t bytes);
    /* On rank 0: the answer to a question about its clock, MST_WATCH_CLOCK bytes. */
    void (*clock)(void *arg, uint8_t *answer);
    /* On the others: rank 0's answer to a question that was sent at asked_ns. Asked about once a second, and
     * again at once where this returns true. */
    bool (*clock_heard)(void *arg, uint64_t asked_ns, const void *answer, size_t bytes);
    void (*tick)(void *arg); /* about once a second, on all ranks */
} mst_letters;

/* From here on; NULL: no more, and none of the functions before runs when this returns. The others are asked
 * for letters once rank 0 has somebody who takes them. Any thread; a NULL watch does nothing, here and below.
 */
void mst_watch_letters(mst_watch *self, const mst_letters *letters);

/* On ranks other than 0: the last letters; rank 0 hears that they were. Waits until they are on their way,
 * timeout_ms at most. */
void mst_watch_letters_end(mst_watch *self, uint32_t timeout_ms);

/* On rank 0: waits until all other ranks have sent their last letters or somebody is lost, timeout_ms at
 * most. */
void mst_watch_letters_await(mst_watch *self, uint32_t timeout_ms);

/* This rank has finished: its leaving is no death. Waits for nobody; NULL-safe. */
void mst_watch_destroy(mst_watch *self);

#endif
