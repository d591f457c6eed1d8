/* Results of evaluations as tables; contract in result_table.h. */
#include "cli/result_table.h"

#include <math.h>
#include <stdio.h>

static mst_table *result_fact(mst_table *t, const char *set, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s%s", set, *set != '\0' ? " " : "", name);
    for (char *c = text; *c != '\0'; c++)
        *c = (char)(*c == '_' ? ' ' : *c);
    return mst_fact(t, text);
}

static void result_add_count(mst_table *t, const char *set, const char *name, uint64_t count)
{
    if (count > 0)
        mst_table_count(result_fact(t, set, name), count);
}

void mst_facts_add_result(mst_table *t, const char *set, const mst_result *r, int digits)
{
    if (r->rows == 0)
        return;
    result_add_count(t, set, "rows", r->rows);
    result_add_count(t, set, "unseen rows", r->unseen);
    result_add_count(t, set, "skipped rows", r->skipped);
    for (const mst_result_figure *f = mst_result_figures; f->name != NULL; f++)
        if (!isnan(mst_result_value(r, f)))
            mst_table_real(result_fact(t, set, f->name), mst_result_value(r, f), digits);
    result_add_count(t, set, "groups", r->groups);
    result_add_count(t, set, "groups of one class", r->groups_left_out);
    result_add_count(t, set, "rows without group", r->rows_left_out);
}

mst_status mst_tenths_table(const mst_result *r, mst_table **out)
{
    static const mst_column columns[] = {
        {"tenth", true}, {"rows", true}, {"predicted", true}, {"observed", true}, {"ratio", true}};
    *out = NULL;
    if (r->n_tenths == 0)
        return MST_OK;
    TRY(mst_table_new(columns, sizeof columns / sizeof *columns, out));
    for (uint32_t i = 0; i < r->n_tenths; i++) {
        const mst_auc_tenth *tenth = &r->tenths[i];
        mst_table_count(*out, i + 1);
        mst_table_count(*out, tenth->rows);
        mst_table_real(*out, tenth->predicted, 6);
        mst_table_real(*out, tenth->observed, 6);
        mst_table_real(*out, tenth->observed > 0.0 ? tenth->predicted / tenth->observed : (double)NAN, 4);
    }
    return MST_OK;
}
