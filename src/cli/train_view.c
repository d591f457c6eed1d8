/* Contract in train_view.h. */
#include "cli/train_view.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/cond.h"
#include "base/figure.h"
#include "cli/cli.h"
#include "launch/parent_pipe.h"

#define LOOK_NS    (500 * MST_MS)
#define STALL_S    3.0 /* a longer step is reported, */
#define STALL_MEAN 3.0 /* unless it is less than this many times the mean */

static bool view_is_stalled(const mst_train_status *s, double idle_s)
{
    double step_s = s->step > 0 ? s->train_seconds / (double)s->step : 0.0;
    return idle_s > STALL_S && idle_s > STALL_MEAN * step_s;
}

static void view_format_line(const mst_train_status *s, double idle_s, const char *waiting, char *out,
                             size_t size)
{
    char step[32], rate[32], mean[32];
    double share = s->epoch_rows > 0 ? 100.0 * (double)s->epoch_position / (double)s->epoch_rows : 0.0;
    int n = snprintf(out, size, "epoch %llu", (unsigned long long)s->epoch + 1);
    if (s->epoch_rows > 0)
        n += snprintf(out + n, size - (size_t)n, " %3.0f%%", share);
    n += snprintf(out + n, size - (size_t)n, "  step %s", mst_figure_grouped(s->step, step));
    if (view_is_stalled(s, idle_s)) {
        snprintf(out + n, size - (size_t)n, "  no step for %.0f s%s%s", idle_s,
                 waiting != NULL ? ", waiting for " : "", waiting != NULL ? waiting : "");
        return;
    }
    if (s->rows_per_s <= 0 && s->train_loss == 0)
        return; /* no step since the job started again */
    n += snprintf(out + n, size - (size_t)n, "  %s rows/s (mean %s)  loss %.4f",
                  mst_figure_grouped((uint64_t)s->rows_per_s, rate),
                  mst_figure_grouped((uint64_t)s->mean_rows_per_s, mean), s->train_loss);
    if (isfinite(s->eta_seconds))
        snprintf(out + n, size - (size_t)n, "  %.0f s left", s->eta_seconds);
}

/* With the mutex held. */
static void view_show(mst_train_view *v, uint64_t now)
{
    char line[256];
    double idle_s = v->step_ns != 0 ? (double)(now - v->step_ns) * 1e-9 : 0.0;
    view_format_line(&v->status, idle_s, v->status.waiting != NULL ? v->status.waiting : v->others, line,
                     sizeof line);
    mst_bar_show(line);
}

/* For the supervisor of a launched process. */
static void view_on_began(void *arg, const char *run)
{
    (void)arg;
    if (mst_cli_launched())
        mst_cli_note(MST_PARENT_BEGAN "%s", run);
}

static void view_on_progress(void *arg, const mst_train_status *s)
{
    mst_train_view *v = arg;
    if (v->quiet)
        return;
    pthread_mutex_lock(&v->mutex);
    uint64_t now = mst_now_ns();
    if (v->step_ns == 0 || s->step != v->status.step)
        v->step_ns = now;
    v->status = *s;
    if (s->waiting != NULL) {
        snprintf(v->waiting, sizeof v->waiting, "%s", s->waiting);
        v->status.waiting = v->waiting;
    }
    if (mst_bar_due(&v->bar))
        view_show(v, now);
    pthread_mutex_unlock(&v->mutex);
}

/* Shows the accuracy so far of a long evaluation in place of the training progress. */
static void view_on_evaluating(void *arg, const char *set, uint64_t rows, uint64_t correct)
{
    mst_train_view *v = arg;
    char line[128];
    if (v->quiet)
        return;
    pthread_mutex_lock(&v->mutex);
    v->step_ns = mst_now_ns(); /* no step can happen meanwhile */
    if (mst_bar_due(&v->bar)) {
        mst_text_accuracy(set, rows, correct, line, sizeof line);
        mst_bar_show(line);
    }
    pthread_mutex_unlock(&v->mutex);
}

static void view_on_evaluated(void *arg, const mst_train_status *s, const char *set, const mst_result *r)
{
    const mst_train_view *v = arg;
    char step[32], auc[64] = "", top5[32] = "";
    if (v->quiet)
        return;
    if (isfinite(r->auc))
        snprintf(auc, sizeof auc, isfinite(r->grouped_auc) ? "  auc %.4f  grouped auc %.4f" : "  auc %.4f",
                 r->auc, r->grouped_auc);
    if (isfinite(r->top5))
        snprintf(top5, sizeof top5, "  top5 %.4f", r->top5);
    mst_cli_note("step %-10s %-5s loss %.4f  accuracy %.4f%s%s  (trained %.2f s, evaluated in %.2f s)",
                 mst_figure_grouped(s->step, step), set, r->loss, r->accuracy, top5, auc, s->train_seconds,
                 r->seconds);
}

mst_train_callbacks mst_train_view_callbacks(mst_train_view *self)
{
    return (mst_train_callbacks){.arg = self,
                                 .began = view_on_began,
                                 .progress = view_on_progress,
                                 .evaluating = view_on_evaluating,
                                 .evaluated = view_on_evaluated};
}

/* ---- the thread ---- */

static void *view_main(void *arg)
{
    mst_train_view *v = arg;
    pthread_mutex_lock(&v->mutex);
    while (!v->ending) {
        uint64_t now = mst_now_ns();
        if (v->step_ns != 0 && view_is_stalled(&v->status, (double)(now - v->step_ns) * 1e-9) &&
            mst_bar_due(&v->bar))
            view_show(v, now);
        mst_cond_wait(&v->changed, &v->mutex, now + LOOK_NS);
    }
    pthread_mutex_unlock(&v->mutex);
    return NULL;
}

void mst_train_view_begin(mst_train_view *self, bool quiet, const char *others)
{
    *self = (mst_train_view){.quiet = quiet, .others = others};
    mst_bar_start(&self->bar, "training", "rows", 0);
    pthread_mutex_init(&self->mutex, NULL);
    mst_cond_init(&self->changed);
    if (quiet)
        return;
    sigset_t all, before; /* signals go to the other threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    self->thread_made =
        pthread_create(&self->thread, NULL, view_main, self) == 0; /* otherwise there is no such line */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void mst_train_view_end(mst_train_view *self)
{
    pthread_mutex_lock(&self->mutex);
    self->ending = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    if (self->thread_made)
        pthread_join(self->thread, NULL);
    self->thread_made = false;
    mst_bar_end(&self->bar);
}
