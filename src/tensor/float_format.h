/* Floats on the wire: fp32, bf16 or fp16. Rounding is to nearest, ties to even; fp16 saturates at its largest
 * finite value (infinity and NaN are kept). Vectorised where the machine can. */
#ifndef MST_TENSOR_FLOAT_FORMAT_H
#define MST_TENSOR_FLOAT_FORMAT_H

#include <stdbool.h>
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

/* Whether none of n floats in that format is infinite or NaN; `in` needs no alignment. */
bool mst_float_finite(mst_float_format wire, const void *in, size_t n);
/* Whether n floats are finite, and stay so when they are encoded. */
bool mst_float_encodes_finite(mst_float_format wire, const float *in, size_t n);

#endif
