/* muster: trains models by stochastic gradient descent.
 *
 * The public header of libmuster. Symbols that are not declared here may change between versions. */
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that the program runs with, e.g. "0.1.0". */
const char *mst_version(void);

#ifdef __cplusplus
}
#endif

#endif
