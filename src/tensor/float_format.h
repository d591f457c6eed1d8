/* Floats on the wire: fp32, bf16 or fp16. Rounding is to nearest, ties to even; fp16 saturates at its largest
 * finite value (infinity and NaN are kept). Vectorised where the machine can. */
#ifndef MST_TENSOR_FLOAT_FORMAT_H
#define MST_TENSOR_FLOAT_FORMAT_H

#include <stddef.h>
#include <stdint.h>

typedef enum mst_float_format {
    MST_FLOAT_FP32,
    MST_FLOAT_BF16,
    MST_FLOAT_FP16,
} mst_float_format;

static inline size_t mst_float_size(mst_float_format wire)
{
    return wire == MST_FLOAT_FP32 ? 4 : 2;
}

/* n floats; `wire` side needs no alignment. */
void mst_float_encode(mst_float_format wire, const float *in, size_t n, void *out);
void mst_float_decode(mst_float_format wire, const void *in, size_t n, float *out);

#endif
