/* MST_RACY marks functions that read or write weights which other threads update at the same time without
 * locks. Asynchronous SGD is defined that way: each access is one aligned 32-bit word, updates may be lost,
 * and nothing else is shared through these weights. The mark keeps the thread sanitizer quiet about exactly
 * these functions. */
#ifndef MST_BASE_RACY_H
#define MST_BASE_RACY_H

#define MST_RACY __attribute__((no_sanitize("thread")))

#endif
