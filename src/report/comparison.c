/* What several runs say together, in sentences: the beginning of a report of more than one. */
#include <math.h>
#include <string.h>

#include "report/report_impl.h"

/* The run with the greatest value, n when none has one. */
static size_t greatest(const mst_report *self, double (*of)(const mst_run_figures *f))
{
    size_t best = self->n;
    for (size_t i = 0; i < self->n; i++) {
        double value = of(&self->figures[i]);
        if (isfinite(value) && (best == self->n || value > of(&self->figures[best])))
            best = i;
    }
    return best;
}

static double speed(const mst_run_figures *f)
{
    return f->rows_per_s;
}

static double accuracy(const mst_run_figures *f)
{
    return f->best_accuracy;
}

static double low_loss(const mst_run_figures *f)
{
    return -f->best_loss;
}

static const char *set_name(const mst_run_figures *f)
{
    return strcmp(f->set, "test") == 0 ? "test" : "validation";
}

/* "The bottleneck is computing in 3 of 6 runs and the disk in 1; nothing dominates in 2." */
static void add_bottlenecks(const mst_report *self, mst_buffer *out)
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
    for (size_t told = 0; told < kinds; told++) { /* the most frequent first */
        size_t most = 0;
        for (size_t k = 1; k < MST_BOTTLENECKS; k++)
            most = counts[k] > counts[most] ? k : most;
        mst_buffer_format(out, "%s%s in ",
                          told == 0           ? " The bottleneck is "
                          : told + 1 == kinds ? " and "
                                              : ", ",
                          mst_bottleneck_title((mst_bottleneck)most));
        if (counts[most] == self->n)
            mst_buffer_add(out, "all of them");
        else
            mst_buffer_format(out, told == 0 ? "%zu of %zu runs" : "%zu", counts[most], self->n);
        counts[most] = 0;
    }
    if (balanced == self->n)
        mst_buffer_add(out, " No bottleneck dominates in any of them");
    else if (balanced > 0)
        mst_buffer_format(out, "%s dominates in %zu", kinds > 0 ? "; nothing" : " No bottleneck", balanced);
    if (kinds > 0 || balanced > 0)
        mst_buffer_add(out, ".");
}

void mst_report_comparison(const mst_report *self, mst_buffer *out)
{
    size_t fast = greatest(self, speed), right = greatest(self, accuracy), low = greatest(self, low_loss);
    char a[40], b[40];
    if (self->n < 2)
        return;
    if (fast < self->n)
        mst_buffer_format(out, "%s was the fastest, with %s rows/s.", self->labels[fast],
                          mst_figure_short(self->figures[fast].rows_per_s, a));
    if (right < self->n)
        mst_buffer_format(out, "%s%s reached the lowest %s error, %.2f%%, after %s of training.",
                          fast < self->n ? " " : "", self->labels[right], set_name(&self->figures[right]),
                          100 * (1 - self->figures[right].best_accuracy),
                          mst_figure_seconds(self->figures[right].best_accuracy_s, b));
    else if (low < self->n)
        mst_buffer_format(out, "%s%s reached the lowest %s loss, %s.", fast < self->n ? " " : "",
                          self->labels[low], set_name(&self->figures[low]),
                          mst_figure_real(self->figures[low].best_loss, a));
    add_bottlenecks(self, out);
}
