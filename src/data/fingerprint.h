/* The fingerprint of training files: a cheap test of whether two processes have the same data. */
#ifndef MST_DATA_FINGERPRINT_H
#define MST_DATA_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"

typedef struct mst_fingerprint {
    bool known;     /* false: a file is missing here or can be read only once; the rest is 0 */
    uint64_t rows;  /* of the caches among the files */
    uint64_t bytes; /* of the other files */
    uint32_t checksum;
} mst_fingerprint;

/* The files are expanded as mst_glob does. Names and times do not count, so copies are equal. Caches are
 * equal when their rows are: the checksum covers all of them. Of other files it covers the sizes and a few
 * samples of each, of folders in a folder the names and sizes of their files. A damaged cache is MST_EINPUT.
 */
mst_status mst_fingerprint_files(const mst_text_list *patterns, mst_fingerprint *out);

#endif
