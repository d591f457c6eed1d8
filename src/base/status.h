/* Status codes and the one-sentence error that goes with them.
 *
 * A fallible function returns mst_status. Where a failure is decided, mst_fail() records one sentence (what,
 * where, what to do) for the calling thread; callers pass the code on and never add to the sentence. Code
 * branches only on the returned status. mst_error_save and mst_error_restore move a sentence from one thread
 * to another. */
#ifndef MST_BASE_STATUS_H
#define MST_BASE_STATUS_H

#include <stdarg.h>

/* X(name, text): the code's name without the prefix, and its meaning. */
#define MST_STATUS_MAP(X)                                                                                    \
    X(OK, "done")                                                                                            \
    X(EUSAGE, "wrong usage")                                                                                 \
    X(EINPUT, "bad input: a file, a record or a value that cannot be used")                                  \
    X(EIO, "the operating system refused a read or a write")                                                 \
    X(ENOMEM, "out of memory")                                                                               \
    X(EEXIST, "something is there already")                                                                  \
    X(ETIMEOUT, "a deadline passed")                                                                         \
    X(ESTOPPED, "stop requested")                                                                            \
    X(EPEER, "a peer failed")                                                                                \
    X(EUNSUPPORTED, "not possible in this build or on this machine")                                         \
    X(EDONE, "there was nothing to do")                                                                      \
    X(EAGAIN, "a connection to the job was lost, or it starts again: join it again")                         \
    X(EUNSAVED, "training is over, but its result could not be saved")

typedef enum mst_status {
#define X(name, text) MST_##name,
    MST_STATUS_MAP(X)
#undef X
} mst_status;

#define MST_ERROR_MAX 1024

/* A failure carried from one thread to another. */
typedef struct mst_error {
    mst_status code;
    unsigned lead; /* length of the text's lead (mst_fail_lead); 0: it has none */
    char text[MST_ERROR_MAX];
} mst_error;

/* Records the sentence and returns code, so that `return mst_fail(...)` reads well. */
mst_status mst_fail(mst_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
mst_status mst_vfail(mst_status code, const char *format, va_list args);
/* Records lead + the formatted rest. Code may use the lead's length instead of reading the sentence. Two
 * kinds of sentences have one: MST_ESTOPPED ("stopped" + " while reading x"), so that the program can name
 * the signal; and a failure that began in another process ("worker 1" + ": no such file"). */
mst_status mst_fail_lead(mst_status code, const char *lead, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records that memory is short, with the size of the allocation that failed last on this thread, and returns
 * MST_ENOMEM. Defined beside the allocator (base/alloc.c). */
mst_status mst_fail_memory(void);
#ifdef __clang_analyzer__ /* lets it see that the code given is the code returned */
#define mst_fail(code, ...)            ((mst_fail)(code, __VA_ARGS__), (code))
#define mst_fail_lead(code, lead, ...) ((mst_fail_lead)(code, lead, __VA_ARGS__), (code))
#define mst_fail_memory()              ((mst_fail_memory)(), MST_ENOMEM)
#endif

/* The calling thread's last sentence; "" when nothing failed. Valid until the next mst_fail on this thread.
 */
const char *mst_error_text(void);
const char *mst_status_text(mst_status code);

/* Copies the calling thread's failure out, and back in on another thread (returns its code). */
void mst_error_save(mst_error *out, mst_status code);
mst_status mst_error_restore(const mst_error *error);

/* Process exit code for a status: 0 done, 2 wrong usage, 3 stopped by a peer, 4 nothing to do, 1 anything
 * else. */
int mst_status_exit_code(mst_status code);

/* Leaves the function with the status on failure. */
#define TRY(expr)                                                                                            \
    do {                                                                                                     \
        mst_status try_st_ = (expr);                                                                         \
        if (try_st_ != MST_OK)                                                                               \
            return try_st_;                                                                                  \
    } while (0)

/* Same for a function with one exit: sets st and goes to out. */
#define TRY_OUT(st, expr)                                                                                    \
    do {                                                                                                     \
        (st) = (expr);                                                                                       \
        if ((st) != MST_OK)                                                                                  \
            goto out;                                                                                        \
    } while (0)

#endif
