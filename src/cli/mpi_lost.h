/* What the program does when a rank of its MPI job is dead: it says so and ends with exit code 3, at once,
 * since MPI hangs and the launcher will kill what is left. For mst_watch_options.lost and mst_job_lost. */
#ifndef MST_CLI_MPI_LOST_H
#define MST_CLI_MPI_LOST_H

/* arg is not used. Any thread; does not return. */
void mst_cli_mpi_lost(void *arg, const char *sentence);

#endif
