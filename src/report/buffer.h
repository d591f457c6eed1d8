/* Text that grows: what pages, tables and plots are written into.
 *
 * Adding never fails visibly: when memory runs out the buffer remembers it (failed), takes nothing more, and
 * whoever uses the text asks once at the end. One thread. */
#ifndef MST_REPORT_BUFFER_H
#define MST_REPORT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_buffer {
    char *text; /* NUL-terminated once something was added; NULL before */
    size_t size, capacity;
    bool failed;
} mst_buffer;

void mst_buffer_fini(mst_buffer *self);
void mst_buffer_add(mst_buffer *self, const char *text);
void mst_buffer_addn(mst_buffer *self, const char *text, size_t n);
void mst_buffer_format(mst_buffer *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text of unknown origin as it may stand in HTML, in SVG and between the quotes of an attribute. Bytes that
 * are not UTF-8 and control characters become U+FFFD. NULL: nothing. */
void mst_buffer_html(mst_buffer *self, const char *text);
/* ... in a cell of a Markdown table, and as one field of a CSV file. */
void mst_buffer_markdown(mst_buffer *self, const char *text);
void mst_buffer_csv(mst_buffer *self, const char *text);
/* ... as one word of a POSIX shell: quoted where it needs to be. */
void mst_buffer_shell(mst_buffer *self, const char *text);

/* Writes the whole text to path ("-": standard output), which appears whole or not at all. MST_ENOMEM when
 * the buffer failed. */
mst_status mst_buffer_save(const mst_buffer *self, const char *path);

/* ---- figures as people read them; out holds at least 40 bytes and is returned ---- */

const char *mst_figure_count(double value, char *out);   /* 1,234,567 */
const char *mst_figure_short(double value, char *out);   /* 12.3k, 4.5M, 0.0012 */
const char *mst_figure_bytes(double value, char *out);   /* 1.5 MB, in powers of ten */
const char *mst_figure_seconds(double value, char *out); /* 12.3 ms, 4.56 s, 3 min 20 s, 2 h 5 min */
const char *mst_figure_percent(double share, char *out); /* 12.3% */
const char *mst_figure_real(double value, char *out);    /* four significant digits; NAN: a dash */

#endif
