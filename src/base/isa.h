/* Which instruction set the kernels use: the best the machine has, or the one pinned with --isa. */
#ifndef MST_BASE_ISA_H
#define MST_BASE_ISA_H

#include <stdbool.h>

#include "base/status.h"

/* Marks a function outside the kernels that benefits from wide registers: compiled for each instruction set,
 * chosen when the program starts. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&    \
    !defined(__SANITIZE_THREAD__)
#define MST_WIDE __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define MST_WIDE
#endif

typedef enum mst_isa {
    MST_ISA_PORTABLE, /* whatever the compiler makes for any x86-64 or arm64 */
    MST_ISA_AVX2,     /* with FMA and F16C */
    MST_ISA_AVX512,   /* F, BW, DQ, VL */
    MST_ISA_COUNT,
} mst_isa;

const char *mst_isa_name(mst_isa isa);
bool mst_isa_supported(mst_isa isa);
mst_isa mst_isa_best(void);

/* "auto" or a name; MST_EUSAGE when unknown, MST_EUNSUPPORTED when this machine lacks it. */
mst_status mst_isa_parse(const char *name, mst_isa *out);

/* Defines name_get(isa): the table of an instruction set, a `name` that is called name_portable, and on
 * x86-64 name_avx2 and name_avx512. */
#ifdef __x86_64__
#define MST_ISA_TABLES(name)                                                                                 \
    extern const name name##_portable, name##_avx2, name##_avx512;                                           \
    const name *name##_get(mst_isa isa)                                                                      \
    {                                                                                                        \
        return isa == MST_ISA_AVX512 ? &name##_avx512                                                        \
               : isa == MST_ISA_AVX2 ? &name##_avx2                                                          \
                                     : &name##_portable;                                                     \
    }
#else
#define MST_ISA_TABLES(name)                                                                                 \
    extern const name name##_portable;                                                                       \
    const name *name##_get(mst_isa isa)                                                                      \
    {                                                                                                        \
        (void)isa;                                                                                           \
        return &name##_portable;                                                                             \
    }
#endif

#endif
