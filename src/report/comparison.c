/* The comparison of several runs in sentences, at the start of their report. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "report/report_impl.h"

/* The run with the greatest value; n: no run has one. */
static size_t comparison_greatest(const mst_report *self, double (*of)(const mst_run_figures *f))
{
    size_t best = self->n;
    for (size_t i = 0; i < self->n; i++) {
        double value = of(&self->figures[i]);
        if (isfinite(value) && (best == self->n || value > of(&self->figures[best])))
            best = i;
    }
    return best;
}

static double comparison_speed(const mst_run_figures *f)
{
    return f->rows_per_s;
}

static double comparison_accuracy(const mst_run_figures *f)
{
    return f->best_accuracy;
}

static double comparison_low_loss(const mst_run_figures *f)
{
    return -f->best_loss;
}

static const char *comparison_set_name(const mst_run_figures *f)
{
    return strcmp(f->set, "test") == 0 ? "test" : "validation";
}

/* COMPUTE stands for computing and waiting for a core together; the table has a column for each. */
static const char *comparison_bottleneck_words(size_t kind)
{
    return kind == MST_BOTTLENECK_COMPUTE ? "the cores" : mst_bottleneck_title((mst_bottleneck)kind);
}

/* "The bottleneck is the cores in 3 of 6 runs and disk in 1; nothing dominates in 2." */
static void comparison_add_bottlenecks(const mst_report *self, mst_string *out)
{
    size_t counts[MST_BOTTLENECKS] = {0}, kinds = 0, balanced = 0;
    for (size_t i = 0; i < self->n; i++) {
        const mst_verdict *v = &self->verdicts[i];
        if (!v->known)
            continue;
        if ((unsigned)v->kind >= MST_BOTTLENECKS || v->kind == MST_BOTTLENECK_NONE)
            balanced++;
        else
            kinds += counts[v->kind]++ == 0;
    }
    for (size_t listed = 0; listed < kinds; listed++) { /* the most frequent first */
        size_t most = 0;
        for (size_t k = 1; k < MST_BOTTLENECKS; k++)
            most = counts[k] > counts[most] ? k : most;
        mst_string_format(out, "%s%s in ",
                          listed == 0           ? " The bottleneck is "
                          : listed + 1 == kinds ? " and "
                                                : ", ",
                          comparison_bottleneck_words(most));
        if (counts[most] == self->n)
            mst_string_add(out, "all of them");
        else
            mst_string_format(out, listed == 0 ? "%zu of %zu runs" : "%zu", counts[most], self->n);
        counts[most] = 0;
    }
    if (balanced == self->n)
        mst_string_add(out, " No bottleneck dominates in any of them");
    else if (balanced > 0)
        mst_string_format(out, "%s dominates in %zu", kinds > 0 ? "; nothing" : " No bottleneck", balanced);
    if (kinds > 0 || balanced > 0)
        mst_string_add(out, ".");
}

/* Paths by their last word: runs may have been started in different folders. */
static bool comparison_same_file(const char *a, const char *b)
{
    const char *x = a != NULL ? a : "", *y = b != NULL ? b : "";
    const char *slash_x = strrchr(x, '/'), *slash_y = strrchr(y, '/');
    return strcmp(slash_x != NULL ? slash_x + 1 : x, slash_y != NULL ? slash_y + 1 : y) == 0;
}

/* Known and the same in both. */
static bool comparison_same_real(const mst_run_data *a, const mst_run_data *b, const char *key)
{
    return mst_run_data_real(a, "data", key, NULL) == mst_run_data_real(b, "data", key, NULL);
}

/* By the manifests; the same rows may come in several formats. */
static bool comparison_same_data(const mst_run_data *a, const mst_run_data *b)
{
    char *test_a = mst_run_data_option(a, "test"), *test_b = mst_run_data_option(b, "test");
    bool rows = comparison_same_real(a, b, "rows") || isnan(mst_run_data_real(a, "data", "rows", NULL)) ||
                isnan(mst_run_data_real(b, "data", "rows", NULL));
    bool named = comparison_same_file(mst_run_data_text(a, "data", "source", NULL),
                                      mst_run_data_text(b, "data", "source", NULL));
    bool alike = comparison_same_real(a, b, "rows") && comparison_same_real(a, b, "positive");
    bool same = ((named && rows) || alike) && comparison_same_file(test_a, test_b);
    mst_free(test_a);
    mst_free(test_b);
    return same;
}

static bool comparison_all_on_same_data(const mst_report *self)
{
    for (size_t i = 1; i < self->n; i++)
        if (!comparison_same_data(self->runs[0], self->runs[i]))
            return false;
    return true;
}

void mst_report_comparison(const mst_report *self, mst_string *out)
{
    size_t fast = comparison_greatest(self, comparison_speed),
           right = comparison_greatest(self, comparison_accuracy),
           low = comparison_greatest(self, comparison_low_loss);
    char a[40], b[40];
    if (self->n < 2)
        return;
    if (fast < self->n)
        mst_string_format(out, "%s was the fastest, with %s rows/s.", self->labels[fast],
                          mst_figure_short(self->figures[fast].rows_per_s, a));
    bool alike = comparison_all_on_same_data(self);
    if (!alike && (right < self->n || low < self->n))
        mst_string_format(out,
                          "%sThe runs trained on different data: their errors and losses cannot be compared.",
                          fast < self->n ? " " : "");
    else if (right < self->n)
        mst_string_format(out, "%s%s reached the lowest %s error, %.2f%%, after %s of training.",
                          fast < self->n ? " " : "", self->labels[right],
                          comparison_set_name(&self->figures[right]),
                          100 * (1 - self->figures[right].best_accuracy),
                          mst_figure_seconds(self->figures[right].best_accuracy_s, b));
    else if (low < self->n)
        mst_string_format(out, "%s%s reached the lowest %s loss, %s.", fast < self->n ? " " : "",
                          self->labels[low], comparison_set_name(&self->figures[low]),
                          mst_figure_real(self->figures[low].best_loss, a));
    comparison_add_bottlenecks(self, out);
}
