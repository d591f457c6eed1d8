/* Recovers from page faults in memory that other processes can change, instead of ending the process.
 *
 * A mapped file that another process truncates raises SIGBUS where its bytes were. Keys from a file that
 * another process overwrites can index past the weights and fault in the guard pages that follow (SIGSEGV).
 * In both cases zeroed memory is mapped at the fault, the range records it, and the thread continues. The
 * owner of the range checks it from time to time and fails with a message.
 *
 * The handlers of SIGBUS and SIGSEGV are installed while there are ranges. Faults elsewhere, and
 * signals that a process sends, go to the previous handlers. Threads that use a range must not block these
 * signals.
 *
 * Thread: any. */
#ifndef MST_BASE_FAULT_H
#define MST_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mst_fault_kind {
    MST_FAULT_FILE,  /* a mapping of a file: from the fault on the range reads as zeros */
    MST_FAULT_GUARD, /* pages without access: they become writable, and all alias a few MB */
} mst_fault_kind;

typedef struct mst_fault_range mst_fault_range;

/* Guards [start, start + size), which begins on a page. NULL: no memory. */
mst_fault_range *mst_fault_guard(void *start, size_t size, mst_fault_kind kind);
void mst_fault_unguard(mst_fault_range *range); /* before the range is unmapped; NULL-safe */

/* Whether there was a fault in the range. */
bool mst_fault_hit(const mst_fault_range *range);

/* Faults recovered so far in this process: cheaper to check than every range. */
uint64_t mst_fault_count(void);

#endif
