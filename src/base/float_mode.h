/* The floating-point mode in which muster trains, serves parameters, evaluates and predicts: subnormal
 * numbers (floats below 1.2e-38) count as 0, as operands and as results.
 *
 * Gradients of a converged model become subnormal, and many processors compute with them ten and more times
 * slower than with other numbers. Their contribution to weights is below the rounding of any weight above
 * 1e-31.
 *
 * The mode belongs to a thread; a new thread inherits that of its creator. So the thread that starts the work
 * sets it once, before it makes others. On machines other than x86-64 and arm64 the functions do nothing. */
#ifndef MST_BASE_FLOAT_MODE_H
#define MST_BASE_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t mst_float_mode;

#if defined(__x86_64__)
/* MXCSR: bit 15 flushes results, bit 6 operands. */
#define MST_FLOAT_FLUSH 0x8040u

static inline mst_float_mode mst_float_mode_get(void)
{
    return __builtin_ia32_stmxcsr();
}

static inline void mst_float_mode_set(mst_float_mode mode)
{
    __builtin_ia32_ldmxcsr((unsigned)mode);
}
#elif defined(__aarch64__)
/* FPCR: bit 24 flushes operands and results. */
#define MST_FLOAT_FLUSH 0x1000000u

static inline mst_float_mode mst_float_mode_get(void)
{
    mst_float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static inline void mst_float_mode_set(mst_float_mode mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
#define MST_FLOAT_FLUSH 0u

static inline mst_float_mode mst_float_mode_get(void)
{
    return 0;
}

static inline void mst_float_mode_set(mst_float_mode mode)
{
    (void)mode;
}
#endif

static inline bool mst_float_flushes(void)
{
    return (mst_float_mode_get() & MST_FLOAT_FLUSH) == MST_FLOAT_FLUSH;
}

/* Makes the calling thread flush and returns the mode before, for mst_float_mode_set. */
static inline mst_float_mode mst_float_flush(void)
{
    mst_float_mode before = mst_float_mode_get();
    mst_float_mode_set(before | MST_FLOAT_FLUSH);
    return before;
}

#endif
