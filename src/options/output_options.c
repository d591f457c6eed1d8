/* The table of output_options.h. */
#include "options/output_options.h"

#define FIELD(name) offsetof(mst_output_options, name)
const mst_option mst_output_option_table[] = {
    {.name = "config",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(config),
     .metavar = "FILE",
     .help = "YAML file with options; flags on the command line take precedence.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_OUTPUT},
    {.name = "dry-run",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(dry_run),
     .help = "Print files and options as a file for --config, and the memory and bytes per step; then exit.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_OUTPUT},
    {.name = "json",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "Print the summary as JSON.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_OUTPUT},
    {.name = "quiet",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(quiet),
     .help = "Print no progress and no evaluation lines.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_OUTPUT},
    {.name = NULL},
};
