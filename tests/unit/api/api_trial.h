/* Training through the public interface, for its tests: rows from readers, a callback that records its events
 * and can stop, runs in a temporary folder. */
#ifndef MST_TESTS_API_TRIAL_H
#define MST_TESTS_API_TRIAL_H

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "muster/muster.h"

static char root[64];

static inline int make_root(void **state)
{
    (void)state;
    unsetenv("TF_CONFIG");
    unsetenv("MUSTER_CLUSTER");
    strcpy(root, "/tmp/muster-test-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define ok(expr)                                                                                             \
    do {                                                                                                     \
        muster_status ok_st_ = (expr);                                                                       \
        if (ok_st_ != MUSTER_OK)                                                                             \
            fail_msg("%s: %s", #expr, muster_error_text());                                                  \
    } while (0)

#define refused(expr, code, part)                                                                            \
    do {                                                                                                     \
        assert_int_equal(expr, code);                                                                        \
        if (strstr(muster_error_text(), part) == NULL)                                                       \
            fail_msg("no \"%s\" in \"%s\"", part, muster_error_text());                                      \
    } while (0)

/* ---- rows ---- */

#define DENSE   6
#define CLASSES 3

static inline double noise(uint64_t n)
{
    n = (n + 1) * 0x9e3779b97f4a7c15u;
    n ^= n >> 29;
    n *= 0xbf58476d1ce4e5b9u;
    return (double)(n >> 40) / 16777216.0;
}

/* Class k of CLASSES has features k and k + CLASSES above the others. */
static inline muster_status dense_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    uint64_t n_rows = arg != NULL ? *(const uint64_t *)arg : UINT64_MAX;
    uint32_t label = (uint32_t)(number * 7 % CLASSES);
    if (number >= n_rows) {
        *end = 1;
        return MUSTER_OK;
    }
    for (uint32_t i = 0; i < DENSE; i++)
        row->dense[i] = (float)(noise(number * DENSE + i) * 0.5 + (i % CLASSES == label ? 0.8 : 0.0));
    row->label = (float)label;
    return MUSTER_OK;
}

static inline muster_reader dense_reader(uint64_t n_rows)
{
    return (muster_reader){.n_rows = n_rows, .n_dense = DENSE, .n_classes = CLASSES, .read = dense_row};
}

static inline muster_status byte_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    float dense[DENSE];
    unsigned char *bytes = row->bytes;
    row->dense = dense;
    muster_status st = dense_row(arg, number, row, end);
    for (uint32_t i = 0; i < DENSE; i++)
        bytes[i] = (unsigned char)(dense[i] * 100.0f);
    return st;
}

/* Two dense numbers that say nothing, and keys out of order, of which the small ones tell the class. */
static inline muster_status keyed_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    (void)arg;
    (void)end;
    row->dense[0] = (float)noise(number);
    row->dense[1] = 1.0f;
    row->label = (float)(number % 2);
    row->keys[0] = 500 + (uint32_t)(noise(number * 3) * 400);
    row->keys[1] = 2 + (uint32_t)(number % 2) * 10 + (uint32_t)(noise(number * 5) * 10);
    row->n_keys = 2;
    return MUSTER_OK;
}

/* ---- training ---- */

static inline char *path_of(const char *name)
{
    static _Thread_local char paths[4][160];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

/* Options of a training on a reader; more are name, value, ..., NULL. */
static inline muster_options *prepare(const muster_reader *reader, const char *run, ...)
{
    muster_options *options = NULL;
    const char *name;
    va_list more;
    ok(muster_options_new(&options));
    ok(muster_options_add_reader(options, "rows", reader));
    ok(muster_options_add_file(options, "rows"));
    ok(muster_options_set(options, "model", "softmax"));
    ok(muster_options_set(options, "threads", "1"));
    ok(muster_options_set(options, "batch", "10"));
    ok(muster_options_set(options, "run", path_of(run)));
    va_start(more, run);
    while ((name = va_arg(more, const char *)) != NULL)
        ok(muster_options_set(options, name, va_arg(more, const char *)));
    va_end(more);
    return options;
}

typedef struct heard {
    uint64_t steps[1000], stop_at;
    size_t n, n_evaluated, n_saved;
    muster_result last;
} heard;

static inline int listen(void *arg, const muster_progress *p)
{
    heard *h = arg;
    if (p->event == MUSTER_EVENT_STEPS && h->n < 1000)
        h->steps[h->n++] = p->step;
    if (p->event == MUSTER_EVENT_EVALUATED) {
        h->n_evaluated++;
        h->last = p->result;
        assert_true(p->set[0] != '\0');
    }
    h->n_saved += p->event == MUSTER_EVENT_SAVED;
    return h->stop_at != 0 && p->step >= h->stop_at;
}

/* Trains and loads what was saved; the options are freed. */
static inline muster_model *train(muster_options *options, uint64_t every, heard *h, muster_summary *out)
{
    muster_trainer *trainer = NULL;
    muster_model *model = NULL;
    muster_summary summary;
    ok(muster_trainer_new(options, &trainer));
    muster_options_free(options); /* the trainer has a copy */
    ok(muster_trainer_run(trainer, every, h != NULL ? listen : NULL, h, &summary));
    assert_true(summary.has_run);
    ok(muster_model_load(summary.checkpoint, NULL, &model));
    if (out != NULL)
        *out = summary;
    refused(muster_trainer_run(trainer, 0, NULL, NULL, NULL), MUSTER_EUSAGE, "has run");
    muster_trainer_free(trainer);
    return model;
}

static inline void assert_same_weights(const muster_model *a, const muster_model *b, const char *name,
                                       double within)
{
    uint64_t n, m;
    const float *x = muster_model_weight(a, name, &n), *y = muster_model_weight(b, name, &m);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(n, m);
    for (uint64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - (double)y[i]) <= within))
            fail_msg("%s[%llu]: %g and %g", name, (unsigned long long)i, (double)x[i], (double)y[i]);
}

#endif
