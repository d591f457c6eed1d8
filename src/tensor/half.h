/* Floats on the wire: fp32, bf16 or fp16. Rounding is to nearest, ties to even; fp16 saturates at its largest
 * finite value (infinity and NaN are kept). Vectorised where the machine can. */
#ifndef MST_TENSOR_HALF_H
#define MST_TENSOR_HALF_H

#include <stddef.h>
#include <stdint.h>

typedef enum mst_wire {
    MST_WIRE_FP32,
    MST_WIRE_BF16,
    MST_WIRE_FP16,
} mst_wire;

static inline size_t mst_wire_size(mst_wire wire)
{
    return wire == MST_WIRE_FP32 ? 4 : 2;
}

/* n floats; `wire` side needs no alignment. */
void mst_wire_encode(mst_wire wire, const float *in, size_t n, void *out);
void mst_wire_decode(mst_wire wire, const void *in, size_t n, float *out);

#endif
