/* Core dumps of processes that hold a secret. */
#ifndef MST_BASE_CORE_DUMP_H
#define MST_BASE_CORE_DUMP_H

/* From here on this process writes no core dump: a secret, and keys made from it, may be anywhere in its
 * memory and registers. A program that receives dumps from the kernel gets one without memory. Best effort.
 */
void mst_core_dump_disable(void);

#endif
