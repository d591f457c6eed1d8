/* The table of process_options.h. */
#include "options/process_options.h"

#include "mpi/mpi.h"

#define FIELD(name) offsetof(mst_process_options, name)
const mst_option mst_process_option_table[] = {
    {.name = "role",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(role),
     .fallback = "auto",
     .choices = "auto|server|worker",
     .help = "Role of this process in a cluster; auto: as in TF_CONFIG, or a training on its own.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_PROCESS},
    {.name = "index",
     .type = MST_OPTION_INT,
     .offset = FIELD(index),
     .fallback = "0",
     .min = 0,
     .max = 1023,
     .metavar = "I",
     .help = "Number of this server or worker, starting at 0.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_PROCESS},
    {.name = "cluster",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(cluster),
     .metavar = "FILE",
     .help = "Cluster spec: a YAML file with `servers:` and `workers:`. MUSTER_CLUSTER and TF_CONFIG are "
             "alternatives.",
     .facts = MST_OPTION_PRIVATE | MST_OPTION_OF_PROCESS},
    {.name = "mpi-plugin",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(mpi_plugin),
     .fallback = "auto",
     .choices = MST_MPI_KINDS,
     .help = "MPI implementation to use under mpirun, mpiexec or srun; auto: that of the launcher. "
             "MUSTER_MPI is an alternative.",
     .facts = MST_OPTION_PRIVATE},
    {.name = "files",
     .type = MST_OPTION_LIST,
     .offset = FIELD(files),
     .metavar = "FILES",
     .help = "Training files, when given in a --config file; ignored if the command line names files.",
     .facts = MST_OPTION_PRIVATE},
    {.name = NULL},
};
