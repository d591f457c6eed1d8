/* The functions of muster that a plug-in calls. It is linked against MPI only, and receives them before its
 * first call. Private to mpi.c and plugin.c. */
#ifndef MST_MPI_PLUGIN_H
#define MST_MPI_PLUGIN_H

#include "mpi/mpi.h"

typedef struct mst_mpi_host {
    mst_status (*fail)(mst_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
} mst_mpi_host;

#define MST_MPI_HOST_SYMBOL                                                                                  \
    "mst_mpi_plugin_host" /* of type const mst_mpi_host *, set by the program that loads it                  \
                           */

#endif
