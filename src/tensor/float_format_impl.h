/* The conversions of float_format.h with an instruction set of choice, for float_format.c and its test. Every
 * set gives the same bits. */
#ifndef MST_TENSOR_FLOAT_FORMAT_IMPL_H
#define MST_TENSOR_FLOAT_FORMAT_IMPL_H

#include "base/isa.h"
#include "tensor/float_format.h"

/* isa must be supported by the machine. */
void mst_float_encode_with(mst_isa isa, mst_float_format wire, const float *in, size_t n, void *out);
void mst_float_decode_with(mst_isa isa, mst_float_format wire, const void *in, size_t n, float *out);

#endif
