/* The end of a rank whose job has lost another; contract in mpi_lost.h. */
#include "cli/mpi_lost.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

void mst_cli_mpi_lost(void *arg, const char *sentence)
{
    (void)arg;
    char line[MST_ERROR_MAX + 128];
    bool resumable = strstr(sentence, ") died") != NULL || strstr(sentence, ") is silent") != NULL;
    int n = snprintf(line, sizeof line, "muster: %s; the job ends%s\n", sentence,
                     resumable ? ", and can be resumed from its last checkpoint" : "");
    /* in one piece, among what other ranks write, and past a lock that the main thread may hold */
    ssize_t written =
        write(STDERR_FILENO, line, n > 0 && (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    (void)written;
    _exit(mst_status_exit_code(MST_EPEER));
}
