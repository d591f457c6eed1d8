/* The progress bar; contract in progress_line.h.
 *
 * g_drawn, guarded by g_mutex, is true while a bar is on the last line of the terminal, so that a thread that
 * writes a line clears it first. */
#include "cli/progress_line.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/figure.h"
#include "cli/cli.h"

#define TERMINAL_EVERY (100 * MST_MS)
#define PLAIN_EVERY    (5 * MST_S)
#define BAR_CELLS      24
#define CLEAR          "\r\033[K"

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool g_drawn; /* guarded by g_mutex */

static bool progress_on_terminal(void)
{
    static int answer = -1; /* every thread finds the same */
    if (answer < 0)
        answer = isatty(STDERR_FILENO);
    return answer == 1;
}

void mst_bar_start(mst_bar *bar, const char *what, const char *unit, uint64_t total)
{
    *bar = (mst_bar){.what = what, .unit = unit, .total = total, .start_ns = mst_now_ns()};
    bar->shown_ns = bar->start_ns;
}

static size_t progress_terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10 ? size.ws_col : 80;
}

/* "  38%  [#####     ]  " or, without a total, nothing. */
static int progress_format_share(char *out, size_t size, double share, bool cells)
{
    if (!cells)
        return snprintf(out, size, " %3.0f%%", share * 100);
    char bar[BAR_CELLS + 1];
    size_t full = (size_t)(share * BAR_CELLS);
    memset(bar, ' ', BAR_CELLS);
    memset(bar, '#', full);
    bar[BAR_CELLS] = '\0';
    return snprintf(out, size, " %3.0f%% [%s]", share * 100, bar);
}

static void progress_format_line(const mst_bar *bar, uint64_t done, uint64_t units, bool cells, char *out,
                                 size_t size)
{
    char count[32], rate[32];
    double seconds = mst_seconds_since(bar->start_ns);
    double share = bar->total > 0 ? (double)(done < bar->total ? done : bar->total) / (double)bar->total : 0;
    int n = snprintf(out, size, "%s", bar->what);
    if (bar->total > 0)
        n += progress_format_share(out + n, size - (size_t)n, share, cells);
    n += snprintf(out + n, size - (size_t)n, " %s %s, %s/s", mst_figure_grouped(units, count), bar->unit,
                  mst_figure_grouped((uint64_t)((double)units / (seconds > 0 ? seconds : 1)), rate));
    if (share > 0 && share < 1)
        snprintf(out + n, size - (size_t)n, ", %.0f s left", seconds * (1 - share) / share);
}

bool mst_bar_due(mst_bar *bar)
{
    uint64_t now = mst_now_ns();
    if (now - bar->shown_ns < (progress_on_terminal() ? TERMINAL_EVERY : PLAIN_EVERY))
        return false;
    bar->shown_ns = now;
    return true;
}

void mst_bar_show(const char *text)
{
    if (!progress_on_terminal()) {
        mst_bar_line(text);
        return;
    }
    int columns = (int)progress_terminal_columns() - 1;
    pthread_mutex_lock(&g_mutex);
    fprintf(stderr, CLEAR "%.*s", columns, text);
    fflush(stderr);
    g_drawn = true;
    pthread_mutex_unlock(&g_mutex);
}

void mst_bar_update(mst_bar *bar, uint64_t done, uint64_t units)
{
    if (!mst_bar_due(bar))
        return;
    char line[256];
    progress_format_line(bar, done, units, progress_on_terminal(), line, sizeof line);
    mst_bar_show(line);
}

static void progress_clear_locked(void)
{
    if (g_drawn)
        fputs(CLEAR, stderr);
    g_drawn = false;
}

void mst_bar_end(mst_bar *bar)
{
    (void)bar;
    pthread_mutex_lock(&g_mutex);
    progress_clear_locked();
    fflush(stderr);
    pthread_mutex_unlock(&g_mutex);
}

void mst_bar_line(const char *line)
{
    pthread_mutex_lock(&g_mutex);
    progress_clear_locked();
    fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&g_mutex);
}
