/* Writes past the caches, for lines that other cores have read and will read next. On AMD, a core has few
 * requests to own such a line under way, and each takes a round trip to the others; a write past the caches
 * takes none. On Intel, the second-level cache fetches ahead of the writes, and memory is slower. Seen for
 * 247 kB that all threads read, a part of which each writes: on AMD (2 cores) 55 us by plain writes and 7 us
 * past the caches; on Intel (16 cores) 18 us and 15 us, but then 30 us instead of 19 us to read it. */
#ifndef MST_TENSOR_PAST_CACHES_H
#define MST_TENSOR_PAST_CACHES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Whether this machine gains by it. */
static inline bool mst_stream_gains(void)
{
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

/* Copies n floats to `to`, which is on a 64-byte boundary. Writes may become visible in any order before the
 * next mst_stream_end. */
static inline void mst_stream_copy(float *to, const float *from, size_t n)
{
    size_t i = 0;
#ifdef __SSE2__
    for (; i + 16 <= n; i += 16) { /* whole lines: parts of one would be written one by one */
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
        _mm_stream_ps(to + i + 4, _mm_loadu_ps(from + i + 4));
        _mm_stream_ps(to + i + 8, _mm_loadu_ps(from + i + 8));
        _mm_stream_ps(to + i + 12, _mm_loadu_ps(from + i + 12));
    }
#endif
    memcpy(to + i, from + i, (n - i) * sizeof *to);
}

/* Before a barrier or a flag after which other threads read the copies. */
static inline void mst_stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
