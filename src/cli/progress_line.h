/* Progress of long work: a bar on standard error if that is a terminal, otherwise a plain line every few
 * seconds. One bar at a time. Calls for a bar come from one thread at a time; mst_bar_line from any thread.
 */
#ifndef MST_CLI_PROGRESS_LINE_H
#define MST_CLI_PROGRESS_LINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mst_bar {
    const char *what, *unit; /* "converting", "rows" */
    uint64_t total;          /* of `done`; 0: unknown */
    uint64_t start_ns, shown_ns;
} mst_bar;

void mst_bar_start(mst_bar *bar, const char *what, const char *unit, uint64_t total);

/* done counts towards total, units is what the rate is of (the same for most uses). Cheap: looks at the
 * clock, and draws at most ten times a second on a terminal and every five seconds elsewhere. */
void mst_bar_update(mst_bar *bar, uint64_t done, uint64_t units);

/* The two halves of update, for other text: whether it is time to show a line, and showing it in place of the
 * bar (a plain line without a terminal). */
bool mst_bar_due(mst_bar *bar);
void mst_bar_show(const char *text);

/* Removes the bar from the terminal. */
void mst_bar_end(mst_bar *bar);

/* Writes a line to standard error, above the bar if there is one. */
void mst_bar_line(const char *line);

#endif
