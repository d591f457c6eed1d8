/* The files of web/, part of the binary: the page that shows reports, sweeps and live runs. */
#ifndef MST_REPORT_ASSETS_H
#define MST_REPORT_ASSETS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mst_asset {
    const char *path, *type; /* "/page.js"; its content type */
    const unsigned char *data;
    size_t size;
} mst_asset;
extern const mst_asset mst_assets[]; /* ends with a path of NULL; made from web/ by the build */
extern const bool mst_assets_uplot;  /* whether uPlot was available at build time */

#endif
