/* Numbers and units as people read them: the one place that formats them.
 *
 * Every function writes to out, which holds MST_FIGURE_SIZE bytes (32 are enough for grouped and size), and
 * returns it. A value that is not finite
 * becomes a dash. Bytes are in powers of ten. */
#ifndef MST_BASE_FIGURE_H
#define MST_BASE_FIGURE_H

#include <stdint.h>

#define MST_FIGURE_SIZE 40
#define MST_FIGURE_NONE "\xe2\x80\x93" /* the dash */

typedef enum mst_figure_unit {
    MST_FIGURE_PLAIN,
    MST_FIGURE_COUNT,
    MST_FIGURE_SECONDS,
    MST_FIGURE_BYTES,
    MST_FIGURE_RATE,  /* bytes/s */
    MST_FIGURE_SHARE, /* of one; shown in percent */
    MST_FIGURE_CORES,
} mst_figure_unit;
const char *mst_figure_unit_name(mst_figure_unit unit); /* "bytes"; of the page's JSON */

const char *mst_figure_grouped(uint64_t value, char *out);  /* 1,234,567 */
const char *mst_figure_size(uint64_t bytes, char *out);     /* 12 bytes, 1.50 MB */
const char *mst_figure_count(double value, char *out);      /* 1,234,567 */
const char *mst_figure_short(double value, char *out);      /* 12.3k, 4.5M, 0.0012 */
const char *mst_figure_bytes(double value, char *out);      /* 1.5 MB */
const char *mst_figure_rate(double value, char *out);       /* 1.5 MB/s */
const char *mst_figure_seconds(double value, char *out);    /* 12.3 ms, 4.56 s, 3 min 20 s, 2 h 5 min */
const char *mst_figure_percent(double share, char *out);    /* 12%, 1.2% */
const char *mst_figure_precise(double share, char *out);    /* 12.34% */
const char *mst_figure_real(double value, char *out);       /* four significant digits */
const char *mst_figure_cores(double value, char *out);      /* 1.25 */
const char *mst_figure_bits(double bytes_per_s, char *out); /* 100 Mbit/s, 2.5 Gbit/s */

/* The value in its unit. */
const char *mst_figure_text(mst_figure_unit unit, double value, char *out);

/* The value in its unit, with the decimals that make the numbers of a table's column equally long. */
const char *mst_figure_column(mst_figure_unit unit, double value, char *out);

/* Mean and deviation in one unit and with the same number of decimals: "1.17 ± 0.03M". A deviation of NAN is
 * left out. out holds twice MST_FIGURE_SIZE. */
const char *mst_figure_spread(mst_figure_unit unit, double mean, double deviation, char *out);

/* The size of the unit in which a value is shown, and its name: 1e6 and "MB" for bytes of 4.5e6. */
double mst_figure_unit_scale(mst_figure_unit unit, double value, const char **name);

#endif
