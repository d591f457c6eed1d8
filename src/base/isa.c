/* Instruction sets; contract in isa.h. */
#include "base/isa.h"

#include <string.h>

const char *mst_isa_name(mst_isa isa)
{
    static const char *const names[MST_ISA_COUNT] = {"portable", "avx2", "avx512"};
    return names[isa];
}

bool mst_isa_supported(mst_isa isa)
{
    switch (isa) {
    case MST_ISA_PORTABLE:
        return true;
#ifdef __x86_64__
    case MST_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");
    case MST_ISA_AVX512:
        return mst_isa_supported(MST_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    default:
        return false;
    }
}

mst_isa mst_isa_best(void)
{
    mst_isa best = MST_ISA_PORTABLE;
    for (mst_isa isa = 0; isa < MST_ISA_COUNT; isa++)
        if (mst_isa_supported(isa))
            best = isa;
    return best;
}

mst_status mst_isa_parse(const char *name, mst_isa *out)
{
    if (strcmp(name, "auto") == 0) {
        *out = mst_isa_best();
        return MST_OK;
    }
    for (mst_isa isa = 0; isa < MST_ISA_COUNT; isa++) {
        if (strcmp(name, mst_isa_name(isa)) != 0)
            continue;
        if (!mst_isa_supported(isa))
            return mst_fail(MST_EUNSUPPORTED, "--isa %s: this machine does not have it (best here: %s)", name,
                            mst_isa_name(mst_isa_best()));
        *out = isa;
        return MST_OK;
    }
    return mst_fail(MST_EUSAGE, "--isa %s: not one of auto, portable, avx2, avx512", name);
}
