/* The conversions of half.h with an instruction set of choice, for half.c and its test. Every set gives the
 * same bits. */
#ifndef MST_TENSOR_HALF_IMPL_H
#define MST_TENSOR_HALF_IMPL_H

#include "base/isa.h"
#include "tensor/half.h"

/* isa must be supported by the machine. */
void mst_wire_encode_with(mst_isa isa, mst_wire wire, const float *in, size_t n, void *out);
void mst_wire_decode_with(mst_isa isa, mst_wire wire, const void *in, size_t n, float *out);

#endif
