/* What is done with a run directory when nobody writes into it any more. */
#ifndef MST_TRAIN_CLOSING_H
#define MST_TRAIN_CLOSING_H

/* Writes the verdict of the run in that folder (NULL, or gone: nothing). A failure is a warning, and the
 * thread's sentence stays what it was: the run has ended as it has. After the last line of every file of the
 * run. */
void mst_train_closing(const char *run);

#endif
