/* The command lines that repeat a training, from the history of its run. */
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "options/option_tables.h"
#include "report/report_impl.h"

static bool command_leaves_out(const json_t *value)
{
    return value == NULL || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
}

static void command_add_files(const json_t *files, mst_string *out)
{
    size_t i;
    json_t *file;
    json_array_foreach((json_t *)files, i, file)
    {
        mst_string_add(out, " ");
        mst_string_shell(out, json_is_string(file) ? json_string_value(file) : "");
    }
}

/* Whether `muster launch` can start the processes of a piece, also roles that were started one by one. */
static bool crew_is_launched(const mst_crew *crew)
{
    return strcmp(crew->by, "launch") == 0 || strcmp(crew->by, "roles") == 0;
}

static bool crew_has_ranks(const mst_crew *crew)
{
    return !crew_is_launched(crew) && strcmp(crew->by, "train") != 0;
}

/* The strategy of a resumed run is unknown to ranks until rank 0 sends the options. */
static void command_add_starter(const mst_crew *crew, const json_t *files, mst_string *out)
{
    bool ranks = crew_has_ranks(crew);
    double n_ranks = crew->workers + crew->servers;
    if (ranks && strncmp(crew->by, "muster", 6) == 0)
        mst_string_format(out, "muster launch --mpi --ranks %.0f -- train", n_ranks);
    else if (ranks)
        mst_string_format(out, "%.*s -n %.0f muster train",
                          (int)strspn(crew->by, "abcdefghijklmnopqrstuvwxyz"), crew->by, n_ranks);
    else if (crew_is_launched(crew))
        mst_string_format(out, "muster launch --servers %.0f --workers %.0f -- train",
                          crew->hosted ? 0 : crew->servers, crew->workers);
    else
        mst_string_add(out, "muster train");
    command_add_files(files, out);
    if ((ranks && crew->strategy == MST_CREW_ALLREDUCE) || (!ranks && crew->given_allreduce))
        mst_string_add(out, " --strategy=allreduce");
    else if (ranks)
        mst_string_format(out, " --strategy=ps --servers=%.0f", crew->servers);
}

/* Whether the launcher gives the option to the processes, or the strategy has no use for it. */
static bool crew_sets_option(const mst_crew *crew, const char *name)
{
    bool of_job = mst_train_option_is(name, MST_OPTION_OF_JOB);
    if (crew_has_ranks(crew) || crew_is_launched(crew))
        return of_job;
    return of_job && crew->strategy == MST_CREW_LOCAL && strcmp(name, "strategy") != 0;
}

static void command_add_option(const mst_crew *crew, const char *name, const json_t *value, mst_string *out)
{
    if (command_leaves_out(value) || json_is_object(value) ||
        mst_train_option_is(name, MST_OPTION_NOT_COMPARED) || crew_sets_option(crew, name))
        return;
    mst_string_format(out, " --%s%s", json_is_false(value) ? "no-" : "", name);
    if (json_is_boolean(value))
        return;
    char *text = mst_option_text(value);
    out->failed = out->failed || text == NULL;
    if (text == NULL)
        return;
    mst_string_add(out, "=");
    mst_string_shell(out, text);
    mst_free(text);
}

/* Every option that differs from its default; every option that is set if defaults are not known. */
static void command_add_options(const mst_crew *crew, const json_t *options, const json_t *defaults,
                                mst_string *out)
{
    const char *title, *name;
    json_t *group, *value;
    json_object_foreach((json_t *)options, title, group)
    {
        json_object_foreach(group, name, value)
        {
            const json_t *usual = json_object_get(json_object_get(defaults, title), name);
            if (usual == NULL || !json_equal(usual, value))
                command_add_option(crew, name, value, out);
        }
    }
}

static void command_add_resumed(const mst_segment *segment, const json_t *files, mst_string *out)
{
    const char *title, *name;
    json_t *group, *pair;
    mst_string_add(out, "\n");
    command_add_starter(&segment->crew, files, out);
    json_object_foreach(mst_segment_changed(segment), title, group)
    {
        json_object_foreach(group, name, pair)
        {
            command_add_option(&segment->crew, name, json_array_get(pair, 1), out);
        }
    }
}

/* The run directory of a repetition in several pieces, and the steps of this piece. */
static void command_add_piece(const mst_run_data *run, const mst_segment *segment, bool resumed,
                              mst_string *out)
{
    char from[40], to[40], *folder = mst_sprintf("%s-again", run->name);
    out->failed = out->failed || folder == NULL;
    mst_string_add(out, resumed ? " --resume --run=" : " --run=");
    mst_string_shell(out, folder != NULL ? folder : "");
    mst_free(folder);
    mst_string_format(out, "  # steps %s to %s", mst_figure_count(segment->step + 1, from),
                      mst_figure_count(segment->to_step, to));
}

char *mst_report_command(const mst_run_data *run, const mst_history *history, const json_t *defaults)
{
    mst_string out = {0};
    const json_t *files = history->files;
    const char *exact = mst_run_data_text(run, "command", NULL);
    if (exact != NULL)
        return mst_strdup(exact);
    if (history->options == NULL)
        return mst_strdup("");
    command_add_starter(&history->segments[0].crew, files, &out);
    command_add_options(&history->segments[0].crew, history->options, defaults, &out);
    for (size_t i = 0; i < history->n; i++) {
        const mst_segment *s = &history->segments[i];
        files = mst_segment_files(s) != NULL ? mst_segment_files(s) : files;
        if (i > 0)
            command_add_resumed(s, files, &out);
        if (history->n > 1)
            command_add_piece(run, s, i > 0, &out);
        if (strcmp(s->crew.by, "roles") == 0)
            mst_string_format(&out, "%s its processes were started one at a time, with --role",
                              history->n > 1 ? ";" : "  #");
    }
    if (out.failed)
        mst_string_fini(&out);
    return out.text;
}
