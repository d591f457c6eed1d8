/* The options of `muster train` about its output. */
#ifndef MST_OPTIONS_OUTPUT_OPTIONS_H
#define MST_OPTIONS_OUTPUT_OPTIONS_H

#include "base/option.h"

typedef struct mst_output_options {
    bool json, dry_run, quiet;
    char *config;
} mst_output_options;
extern const mst_option mst_output_option_table[];

#endif
