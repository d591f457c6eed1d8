/* The training data of a run as its checkpoints record it, to find out whether a resumed run has the same
 * data.
 *
 *   {"files": [names], "size", "checksum": from data/fingerprint.h, if known, "once": true for a pipe} */
#ifndef MST_TRAIN_DATA_IDENTITY_H
#define MST_TRAIN_DATA_IDENTITY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/option.h"
#include "base/status.h"

/* New reference in *out. own: the files belong to one worker among several, so only their names count. */
mst_status mst_data_identity_of(const mst_text_list *files, bool own, json_t **out);

/* Whether both are the same data: by content if that is known for both, else by name. A pipe is never the
 * same twice. then NULL: a checkpoint without this record, which counts as the same. */
bool mst_data_identity_same(const json_t *then, const json_t *now);

/* Whether part of it is a pipe. */
bool mst_data_identity_reads_once(const json_t *source);

/* Returns in out "FILE", or "FILE and N more". */
const char *mst_data_identity_name(const json_t *source, char *out, size_t size);

#endif
