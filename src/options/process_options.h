/* The options that identify one process of a job. */
#ifndef MST_OPTIONS_PROCESS_OPTIONS_H
#define MST_OPTIONS_PROCESS_OPTIONS_H

#include "base/option.h"

/* Which process of a cluster this one is. */
typedef struct mst_process_options {
    int role; /* 0: from the cluster spec, or none; 1: server; 2: worker */
    int64_t index;
    char *cluster;
    mst_text_list files; /* to train on, where no others are named: the list of a file for --config */
    int mpi_plugin;      /* 0: the launcher's */
} mst_process_options;
extern const mst_option mst_process_option_table[];

#endif
