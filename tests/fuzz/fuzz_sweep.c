/* The file of a sweep and its grid: any bytes are read or refused, and an accepted file gives cells. */
#include <stdint.h>

#include "sweep/halving.h"
#include "sweep/sweep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *spec = NULL;
    mst_sweep *sweep = NULL;
    mst_target target;
    if (mst_sweep_spec_parse("fuzz.yaml", (const char *)data, size, &spec) != MST_OK)
        return 0;
    if (mst_sweep_new("fuzz.yaml", "folder", spec, NULL, &sweep) == MST_OK && mst_sweep_until(sweep) != NULL)
        (void)mst_target_parse(mst_sweep_until(sweep), &target);
    mst_sweep_destroy(sweep);
    json_decref(spec);
    return 0;
}
