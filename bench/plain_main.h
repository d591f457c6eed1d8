/* The main of a plain loop: words, options with a value, the usage, the exit code. */
#ifndef MST_BENCH_PLAIN_MAIN_H
#define MST_BENCH_PLAIN_MAIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"

enum { MAX_RUNS = 101, MAX_THREADS = 64 };

/* Numbers below 0 are options that the loop does not have. */
typedef struct arguments {
    const char *words[3];
    int n_words;
    int64_t n_runs, n_features, n_threads;
    double lr, seconds;
} arguments;

static bool read_count(const char *value, int64_t least, int64_t most, int64_t *out)
{
    return *out >= 0 && mst_parse_int(value, out) && *out >= least && *out <= most;
}

static bool read_positive(const char *value, double *out)
{
    return *out >= 0 && (*out = strtod(value, NULL)) > 0;
}

static bool read_option(const char *name, const char *value, arguments *out)
{
    return strcmp(name, "--runs") == 0       ? read_count(value, 1, MAX_RUNS, &out->n_runs)
           : strcmp(name, "--features") == 0 ? read_count(value, 14, INT64_MAX, &out->n_features)
           : strcmp(name, "--threads") == 0  ? read_count(value, 1, MAX_THREADS, &out->n_threads)
           : strcmp(name, "--lr") == 0       ? read_positive(value, &out->lr)
           : strcmp(name, "--seconds") == 0  ? read_positive(value, &out->seconds)
                                             : false;
}

/* usage: "bench_NAME WORD [WORD] [--option N]", with least to most words. defaults: the numbers. */
static int plain_main(int argc, char **argv, const char *usage, int least, int most, arguments defaults,
                      mst_status (*run)(const arguments *args))
{
    arguments args = defaults;
    mst_status st = MST_OK;
    for (int i = 1; st == MST_OK && i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        bool fine = name[0] == '-' ? read_option(name, value, &args) : args.n_words < most;
        if (!fine)
            st = mst_fail(MST_EUSAGE, "cannot use %s %s", name, value);
        else if (name[0] == '-')
            i++; /* every option has a value */
        else
            args.words[args.n_words++] = name;
    }
    if (st == MST_OK && args.n_words < least)
        st = mst_fail(MST_EUSAGE, "usage: %s", usage);
    if (st == MST_OK)
        st = run(&args);
    if (st != MST_OK)
        fprintf(stderr, "%.*s: %s\n", (int)strcspn(usage, " "), usage, mst_error_text());
    return mst_status_exit_code(st);
}

#endif
