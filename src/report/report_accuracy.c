/* The tables of a report about evaluations; contract in report_impl.h. */
#include <math.h>
#include <stdio.h>

#include "report/report_impl.h"

void mst_sheet_accuracy(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Accuracy reached", .key = "accuracy"};
    mst_sheet_column_add(out, "run", "run", false);
    mst_sheet_column_add(out, "set", "set", false);
    mst_sheet_column_add(out, "loss", "loss", true);
    mst_sheet_column_add(out, "accuracy", "accuracy", true);
    mst_sheet_column_add(out, "error", "error", true);
    mst_sheet_column_add(out, "top 5", "top5", true);
    mst_sheet_column_add(out, "AUC", "auc", true);
    mst_sheet_column_add(out, "grouped AUC", "grouped_auc", true);
    mst_sheet_column_add(out, "normalised entropy", "normalised_entropy", true);
    mst_sheet_column_add(out, "calibration", "calibration", true);
    mst_sheet_column_add(out, "progressive loss", "progressive_loss", true);
    mst_sheet_column_add(out, "best loss", "best_loss", true);
    mst_sheet_column_add(out, "best accuracy", "best_accuracy", true);
    mst_sheet_column_add(out, "after", "best_accuracy_s", true);
    for (size_t i = 0; i < self->n; i++) {
        const mst_run_figures *f = &self->figures[i];
        if (f->set[0] == '\0')
            continue;
        mst_sheet_text(out, self->labels[i]);
        mst_sheet_text(out, f->set);
        if (isfinite(f->test_loss) || (isnan(f->test_loss) && !f->loss_is_nan))
            mst_sheet_real(out, f->test_loss);
        else
            mst_sheet_text(out, isnan(f->test_loss) ? "nan" : "inf");
        mst_sheet_precise(out, f->test_accuracy);
        mst_sheet_precise(out, 1 - f->test_accuracy);
        mst_sheet_precise(out, f->test_top5);
        mst_sheet_real(out, f->test_auc);
        mst_sheet_real(out, f->test_grouped_auc);
        mst_sheet_real(out, f->test_normalised_entropy);
        mst_sheet_real(out, f->test_calibration);
        mst_sheet_real(out, f->progressive_loss);
        mst_sheet_real(out, f->best_loss);
        mst_sheet_precise(out, f->best_accuracy);
        mst_sheet_seconds(out, f->best_accuracy_s);
    }
}

static double calibration_cell(const json_t *tenth, size_t i)
{
    const json_t *value = json_array_get(tenth, i);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

void mst_sheet_calibration(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){
        .title = "Calibration",
        .key = "calibration",
        .note = "The rows of the last evaluation in the order of their scores, in ten equal parts: "
                "mean predicted probability and share of positive rows."};
    mst_sheet_column_add(out, "tenth", "tenth", false);
    mst_sheet_column_add(out, "set", "set", false);
    mst_sheet_column_add(out, "rows", "rows", true);
    mst_sheet_column_add(out, "predicted", "predicted", true);
    mst_sheet_column_add(out, "observed", "observed", true);
    mst_sheet_column_add(out, "predicted / observed", "ratio", true);
    for (size_t i = 0; i < self->n; i++) {
        const char *set = self->figures[i].set;
        const json_t *result = json_object_get(self->runs[i]->manifest, set),
                     *tenths = json_object_get(result, "calibration_tenths"), *tenth;
        size_t t;
        json_array_foreach((json_t *)tenths, t, tenth)
        {
            char name[32];
            double predicted = calibration_cell(tenth, 1), observed = calibration_cell(tenth, 2);
            snprintf(name, sizeof name, "%zu", t + 1);
            mst_sheet_name_row(self, out, i, name);
            mst_sheet_text(out, set);
            mst_sheet_count(out, calibration_cell(tenth, 0));
            mst_sheet_real(out, predicted);
            mst_sheet_real(out, observed);
            mst_sheet_real(out, observed > 0 ? predicted / observed : (double)NAN);
        }
    }
}
