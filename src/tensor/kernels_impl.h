/* The kernels' source, compiled once per instruction set: kernels_<isa>.c defines LANES (floats per vector),
 * KERNELS_ISA and KERNELS_NAME and includes this file. Written with GNU vector types, so that one source
 * serves all; the headers are split by topic and included here only. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/racy.h"
#include "tensor/kernels.h"

#include "tensor/kernels_vec.h"

#include "tensor/kernels_linear.h"

#include "tensor/kernels_rows.h"

#include "tensor/kernels_keys.h"

#include "tensor/kernels_picks.h"

#include "tensor/kernels_dense.h"

#include "tensor/kernels_factors.h"

#include "tensor/kernels_fm.h"

const mst_kernels KERNELS_NAME = {
    .isa = KERNELS_ISA,
    .margins = margins,
    .logistic = logistic,
    .scatter = scatter,
    .scatter_dense = scatter_dense,
    .emit_keys = emit_keys,
    .descend_rows = descend_rows,
    .translate = translate,
    .train_rows = train_rows,
    .place_rows = place_rows,
    .sum_rows = sum_rows,
    .apply_sums = apply_sums,
    .divide_keys = divide_keys,
    .add_places = add_places,
    .approach_picks = approach_picks,
    .subtract_picks = subtract_picks,
    .collect_picks = collect_picks,
    .pick_own = pick_own,
    .sum_picks = sum_picks,
    .make_rows = make_rows,
    .add_prefix = add_prefix,
    .apply_touched = apply_touched,
    .apply_dense = apply_dense,
    .look_up_keys = look_up_keys,
    .rank_numbers = rank_numbers,
    .sum_counts = sum_counts,
    .logistic_loss = logistic_loss,
    .unpack_bytes = unpack_bytes,
    .dense_forward = dense_forward,
    .dense_backward = dense_backward,
    .softmax = softmax,
    .softmax_loss = softmax_loss,
    .keys_distinct = keys_distinct,
    .update_rows = update_rows,
    .fm_margin = fm_margin,
    .fm_gradient = fm_gradient,
    .fm_train_rows = fm_train_rows,
    .fm_batch_takes = fm_batch_takes,
    .fm_forward_rows = fm_forward_rows,
    .fm_add_rows = fm_add_rows,
    .fm_apply_sums = fm_apply_sums,
    .fm_margins = fm_margins,
    .fm_add_gradient = fm_add_gradient,
    .ffm_margin = ffm_margin,
    .ffm_gradient = ffm_gradient,
    .ffm_descend = ffm_descend,
    .fwfm_margin = fwfm_margin,
    .fwfm_gradient = fwfm_gradient,
};
