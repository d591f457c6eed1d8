/* A piece of text built in a buffer of fixed size: what does not fit is left out, and `cut` says so. */
#ifndef MST_OBSERVE_TEXT_H
#define MST_OBSERVE_TEXT_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct mst_text {
    char *data; /* not owned; NUL-terminated */
    size_t n, size;
    bool cut;
} mst_text;

__attribute__((format(printf, 2, 3))) static inline void mst_text_add(mst_text *text, const char *format, ...)
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

/* ",VALUE" to microseconds, or millionths; "," when it is not known. */
static inline void mst_text_real(mst_text *text, double value)
{
    if (isfinite(value))
        mst_text_add(text, ",%.6g", value);
    else
        mst_text_add(text, ",");
}

#endif
