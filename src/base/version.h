/* The library's version, e.g. "0.2.0". */
#ifndef MST_BASE_VERSION_H
#define MST_BASE_VERSION_H

const char *mst_version(void);

#endif
