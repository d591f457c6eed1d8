/* The library's version, e.g. "0.1.0". */
#ifndef MST_BASE_VERSION_H
#define MST_BASE_VERSION_H

const char *mst_version(void);

#endif
