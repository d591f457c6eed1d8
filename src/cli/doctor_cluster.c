/* `muster doctor --cluster`: the table and the file of the links' figures; contract in doctor_cluster.h. */
#include "cli/doctor_cluster.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "launch/link_survey.h"

static const mst_column link_columns[] = {
    {.key = "from"}, {.key = "to"}, {.key = "rtt_us", .right = true}, {.key = "gbit_per_s", .right = true}};

static mst_status links_table(const mst_link_survey *survey, mst_table **out)
{
    TRY(mst_table_new(link_columns, 4, out));
    for (size_t i = 0; i < mst_link_survey_count(survey); i++) {
        mst_link link = mst_link_survey_get(survey, i);
        mst_table_text(*out, link.from);
        mst_table_text(*out, link.to);
        mst_table_real(*out, link.rtt_us, 1);
        mst_table_real(*out, link.gbit_per_s, link.gbit_per_s < 10 ? 3 : 1);
    }
    return MST_OK;
}

/* {"date", "muster", "cluster", "links": [...]}; new reference, or NULL. */
static json_t *links_json(const char *file, const mst_table *table)
{
    char date[24];
    mst_wall_time(date);
    json_t *links = mst_table_json(table);
    return links != NULL ? json_pack("{s:s, s:s, s:s, s:o}", "date", date, "muster", mst_version(), "cluster",
                                     file, "links", links)
                         : NULL;
}

static mst_status links_write(const char *file, const json_t *figures)
{
    mst_status st;
    mst_out *out = NULL;
    char *text = figures != NULL ? json_dumps(figures, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    char *path = mst_sprintf("%s.links.json", file);
    if (text == NULL || path == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_printf(out, "%s\n", text));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    mst_free(path);
    free(text);
    return st;
}

static bool links_any(const mst_link_survey *survey)
{
    for (size_t i = 0; i < mst_link_survey_count(survey); i++)
        if (!isnan(mst_link_survey_get(survey, i).rtt_us))
            return true;
    return false;
}

mst_status mst_doctor_cluster(const char *file, const char *ssh, bool json)
{
    mst_status st;
    mst_link_survey *survey = NULL;
    mst_table *table = NULL;
    json_t *figures = NULL;
    TRY(mst_link_survey_run(file, ssh, &survey));
    TRY_OUT(st, links_table(survey, &table));
    figures = links_json(file, table);
    if (links_any(survey))
        TRY_OUT(st, links_write(file, figures));
    if (json)
        TRY_OUT(st, mst_cli_print_json(json_incref(figures)));
    else if (links_any(survey))
        TRY_OUT(st, mst_table_print(table, "Links", true));
    st = mst_link_survey_check(survey);
out:
    json_decref(figures);
    mst_table_destroy(table);
    mst_link_survey_destroy(survey);
    return st;
}
