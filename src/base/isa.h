/* Which instruction set the kernels use: the best the machine has, or the one pinned with --isa. */
#ifndef MST_BASE_ISA_H
#define MST_BASE_ISA_H

#include <stdbool.h>

#include "base/status.h"

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

#endif
