/* A trained model as an ONNX file (model/onnx.h), which can point at the weights in the checkpoint. */
#ifndef MST_CLI_EXPORT_ONNX_H
#define MST_CLI_EXPORT_ONNX_H

#include "train/assembly.h"

/* external: the weights go to a file of their own; link: they stay in the checkpoint, which must be below the
 * folder of path (MST_EUSAGE). */
mst_status mst_export_onnx(const char *path, bool external, bool link, const mst_assembly *assembly,
                           const mst_checkpoint_meta *meta, const char *checkpoint);

#endif
