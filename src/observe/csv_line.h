/* A CSV line in a buffer of fixed size. Text that does not fit is left out and sets `cut`. */
#ifndef MST_OBSERVE_CSV_LINE_H
#define MST_OBSERVE_CSV_LINE_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct mst_csv_line {
    char *data; /* not owned; NUL-terminated */
    size_t n, size;
    bool cut;
} mst_csv_line;

__attribute__((format(printf, 2, 3))) static inline void mst_csv_line_add(mst_csv_line *text,
                                                                          const char *format, ...)
{
    size_t room = text->size - text->n;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text->data + text->n, room, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < room) {
        text->n += (size_t)n;
        return;
    }
    text->data[text->n] = 0;
    text->cut = true;
}

/* Adds ",VALUE" with six significant digits, or "," for an unknown value (NAN). */
static inline void mst_csv_line_add_real(mst_csv_line *text, double value)
{
    if (isfinite(value))
        mst_csv_line_add(text, ",%.6g", value);
    else
        mst_csv_line_add(text, ",");
}

#endif
