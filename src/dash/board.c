/* The runs that are shown (board.h).
 *
 * Design: a scan of folders takes a few system calls for each, so it runs every other second; a run that is
 * over is read every five seconds. The verdict is made when a run has ended, and every third second before
 * that.
 *
 * Invariant: a run whose folder was removed stays on the board with the data already read; one whose folder
 * was replaced is dropped and read as a new run. */
#include "dash/board.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "base/version.h"
#include "dash/sse.h"
#include "report/page.h"

#define SCAN_NS    (2 * MST_S)
#define LIVE_NS    (MST_S / 2)
#define OVER_NS    (5 * MST_S)
#define JUDGE_NS   (3 * MST_S)
#define DEPTH      3 /* SWEEPS/NAME/runs/RUN */
#define UNREAD_MAX 3 /* notes on folders that cannot be read */

/* ---- runs ---- */

static void board_drop_tables(mst_board_run *run)
{
    for (size_t i = 0; i < run->n_tables; i++)
        mst_point_table_fini(&run->tables[i]);
    mst_free(run->tables);
    run->tables = NULL;
    run->n_tables = run->tables_capacity = 0;
}

static void board_run_destroy(mst_board_run *run)
{
    if (run == NULL)
        return;
    board_drop_tables(run);
    mst_run_view_fini(&run->view);
    mst_run_data_destroy(run->data);
    mst_string_fini(&run->delta);
    mst_free(run->text);
    mst_free(run->path);
    mst_free(run->label);
    mst_free(run);
}

static uint64_t board_folder_inode(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? (uint64_t)info.st_ino : 0;
}

/* Appends the run at path. A folder without readable files is tried again later: MST_OK. */
static mst_status board_add_run(mst_board *self, const char *path)
{
    mst_status st = MST_OK;
    mst_board_run *run = mst_zalloc(sizeof *run);
    if (run == NULL)
        return mst_fail_memory();
    run->inode = board_folder_inode(path);
    run->begin = NAN;
    run->appeared = true;
    st = mst_run_data_open(path, &run->data);
    if (st != MST_OK) {
        board_run_destroy(run);
        return st == MST_ENOMEM ? st : MST_OK;
    }
    run->path = mst_strdup(path);
    run->label = mst_utf8_clean(run->data->name);
    if (run->path == NULL || run->label == NULL ||
        !mst_grow(&self->runs, &self->capacity, self->n + 1, sizeof(void *)))
        TRY_OUT(st, mst_fail_memory());
    run->id = ++self->last_id;
    self->runs[self->n++] = run;
    run = NULL;
out:
    board_run_destroy(run);
    return st;
}

static mst_status board_drop_run(mst_board *self, size_t i)
{
    unsigned id = self->runs[i]->id;
    board_run_destroy(self->runs[i]);
    memmove(&self->runs[i], &self->runs[i + 1], (self->n - i - 1) * sizeof(void *));
    self->n--;
    return mst_text_list_format(&self->dropped, "%u", id);
}

/* Runs with the same name are labelled by their paths. */
static mst_status board_label_runs(mst_board *self)
{
    for (size_t i = 0; i < self->n; i++) {
        size_t same = 0;
        for (size_t k = 0; k < self->n; k++)
            same += strcmp(self->runs[k]->data->name, self->runs[i]->data->name) == 0;
        char *label = mst_utf8_clean(same > 1 ? self->runs[i]->path : self->runs[i]->data->name);
        if (label == NULL)
            return mst_fail_memory();
        if (strcmp(label, self->runs[i]->label) != 0)
            self->runs[i]->due_ns = 0;
        mst_free(self->runs[i]->label);
        self->runs[i]->label = label;
    }
    return MST_OK;
}

/* ---- folders ---- */

typedef struct candidate {
    char *path;
    int64_t written; /* seconds since 1970 */
} candidate;

typedef struct candidates {
    candidate *items;
    size_t n, capacity;
    mst_text_list unread; /* sentences about folders that cannot be read */
} candidates;

/* *error: why an existing folder cannot be read; otherwise unchanged. */
static bool board_has_file(const char *folder, const char *name, int64_t *written, int *error)
{
    struct stat info;
    char *path = mst_sprintf("%s/%s", folder, name);
    bool there = path != NULL && stat(path, &info) == 0;
    bool found = there && S_ISREG(info.st_mode) && access(path, R_OK) == 0;
    if (path != NULL && !found && (!there || S_ISREG(info.st_mode)) && errno != ENOENT && errno != ENOTDIR)
        *error = errno;
    if (found && (int64_t)info.st_mtim.tv_sec > *written)
        *written = (int64_t)info.st_mtim.tv_sec;
    mst_free(path);
    return found;
}

static bool board_on_board(const mst_board *self, const char *path)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->runs[i]->path, path) == 0)
            return true;
    return false;
}

static mst_status board_look_in(const mst_board *self, const char *path, int depth, candidates *found)
{
    mst_status st = MST_OK;
    struct dirent *entry;
    int64_t written = INT64_MIN;
    int no_manifest = 0, no_metrics = 0;
    bool manifest = board_has_file(path, "manifest.json", &written, &no_manifest),
         metrics = board_has_file(path, "metrics.csv", &written, &no_metrics);
    if (manifest || metrics) {
        if (board_on_board(self, path))
            return MST_OK;
        char *copy = mst_strdup(path);
        if (copy == NULL || !mst_grow(&found->items, &found->capacity, found->n + 1, sizeof *found->items)) {
            mst_free(copy);
            return mst_fail_memory();
        }
        found->items[found->n++] = (candidate){copy, written};
        return MST_OK;
    }
    if (no_manifest != 0 || no_metrics != 0)
        return mst_text_list_format(&found->unread, "%s/%s cannot be read: %s.", path,
                                    no_manifest != 0 ? "manifest.json" : "metrics.csv",
                                    strerror(no_manifest != 0 ? no_manifest : no_metrics));
    DIR *dir = depth > 0 ? opendir(path) : NULL;
    if (dir == NULL && depth > 0 && errno != ENOENT && errno != ENOTDIR)
        return mst_text_list_format(&found->unread, "%s cannot be read: %s.", path, strerror(errno));
    while (st == MST_OK && dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' ||
            (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK))
            continue;
        char *below = mst_sprintf("%s/%s", path, entry->d_name);
        if (below == NULL)
            st = mst_fail_memory();
        else if (mst_path_is_folder(below))
            st = board_look_in(self, below, depth - 1, found);
        mst_free(below);
    }
    if (dir != NULL)
        closedir(dir);
    return st;
}

static int board_newest_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->written != y->written ? (x->written > y->written ? -1 : 1) : strcmp(x->path, y->path);
}

static mst_status board_add_notes(mst_board *self, const mst_text_list *unread, size_t more)
{
    mst_text_list_fini(&self->notes);
    for (size_t i = 0; i < self->roots.n; i++)
        if (!mst_path_is_folder(self->roots.items[i]))
            TRY(mst_text_list_format(&self->notes, "%s is not there any more.", self->roots.items[i]));
    for (size_t i = 0; i < unread->n && i < UNREAD_MAX; i++)
        TRY(mst_text_list_add(&self->notes, unread->items[i]));
    if (self->n == 0 && unread->n == 0)
        TRY(mst_text_list_format(&self->notes, "No run yet in %s%s; runs appear here when they start.",
                                 self->roots.items[0], self->roots.n > 1 ? " and the others" : ""));
    if (more > 0)
        TRY(mst_text_list_format(&self->notes,
                                 "%zu more runs are not shown: the newest %d are. Name those that you "
                                 "want to see.",
                                 more, MST_BOARD_RUNS));
    return MST_OK;
}

static mst_status board_scan(mst_board *self)
{
    mst_status st = MST_OK;
    candidates found = {0};
    size_t before = self->n, more = 0;
    for (size_t i = 0; i < self->roots.n && st == MST_OK; i++)
        st = board_look_in(self, self->roots.items[i], DEPTH, &found);
    if (found.n > 1)
        qsort(found.items, found.n, sizeof *found.items, board_newest_first);
    for (size_t i = 0; i < found.n && st == MST_OK; i++) {
        for (size_t k = 0; k < self->n && self->n >= MST_BOARD_RUNS && st == MST_OK; k++)
            if (self->runs[k]->view.life == MST_LIFE_GONE)
                st = board_drop_run(self, k--);
        if (self->n >= MST_BOARD_RUNS)
            more++;
        else if (st == MST_OK && !board_on_board(self, found.items[i].path)) /* a folder may be given twice */
            st = board_add_run(self, found.items[i].path);
    }
    if (st == MST_OK && self->n != before)
        st = board_label_runs(self);
    if (st == MST_OK)
        st = board_add_notes(self, &found.unread, more);
    for (size_t i = 0; i < found.n; i++)
        mst_free(found.items[i].path);
    mst_free(found.items);
    mst_text_list_fini(&found.unread);
    return st;
}

/* ---- curves ---- */

static mst_status board_want_table(mst_board_run *run, mst_table_kind kind, const char *set,
                                   const char *before, const char *name, const mst_csv *csv)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s", before, name);
    for (size_t i = 0; i < run->n_tables; i++)
        if (strcmp(run->tables[i].name, full) == 0)
            return MST_OK;
    if (csv->n_rows == 0)
        return MST_OK;
    if (!mst_grow(&run->tables, &run->tables_capacity, run->n_tables + 1, sizeof *run->tables))
        return mst_fail_memory();
    TRY(mst_point_table_init(&run->tables[run->n_tables], kind, full, set, csv, run->begin));
    run->n_tables++;
    return MST_OK;
}

static mst_status board_update_tables(mst_board_run *run)
{
    const mst_run_data *data = run->data;
    double begin = mst_run_data_begin(data);
    if (!(begin == run->begin) && !(isnan(begin) && isnan(run->begin))) {
        run->begin = begin;
        board_drop_tables(run);
    }
    TRY(board_want_table(run, MST_TABLE_TRAIN, NULL, "train", "", &data->metrics));
    if (mst_run_has_set(data, "test"))
        TRY(board_want_table(run, MST_TABLE_EVALUATED, "test", "eval/test", "", &data->metrics));
    if (mst_run_has_set(data, "valid"))
        TRY(board_want_table(run, MST_TABLE_EVALUATED, "valid", "eval/valid", "", &data->metrics));
    for (size_t i = 0; i < data->n_processes && i < MST_VIEW_PROCESSES; i++) {
        const mst_process_data *p = data->processes[i];
        TRY(board_want_table(run, MST_TABLE_RESOURCES, NULL, "r/", p->name, &p->resources));
        TRY(board_want_table(run, MST_TABLE_SPANS, NULL, "s/", p->name, &p->spans));
    }
    for (size_t i = 0; i < run->n_tables; i++)
        TRY(mst_point_table_update(&run->tables[i]));
    return MST_OK;
}

static void board_add_points(const mst_board_run *run, const mst_point_table *table, size_t from,
                             mst_string *out)
{
    mst_string json = {0};
    mst_string_format(&json, "{\"id\":%u,\"points\":", run->id);
    mst_point_table_json(table, from, &json);
    mst_string_add(&json, "}");
    mst_sse_add(out, "points", json.failed ? NULL : json.text);
    out->failed = out->failed || json.failed;
    mst_string_fini(&json);
}

void mst_board_snapshot(const mst_board_run *run, mst_string *out)
{
    mst_sse_add(out, "run", run->text);
    for (size_t i = 0; i < run->n_tables; i++)
        board_add_points(run, &run->tables[i], 0, out);
}

/* ---- update ---- */

static mst_status board_make_text(mst_board_run *run, bool *changed)
{
    json_t *json = mst_run_view_json(&run->view, run->label);
    if (json == NULL)
        return mst_fail_memory();
    json_object_set_new(json, "id", json_integer(run->id));
    char *dumped = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(14));
    json_decref(json);
    char *text = dumped != NULL ? mst_strdup(dumped) : NULL;
    free(dumped);
    if (text == NULL)
        return mst_fail_memory();
    *changed = run->text == NULL || strcmp(run->text, text) != 0;
    mst_free(run->text);
    run->text = text;
    return MST_OK;
}

static mst_status board_look_at(mst_board *self, mst_board_run *run, bool gone, uint64_t now)
{
    mst_run_view view;
    bool grew = false, changed = false;
    TRY(mst_run_data_update(run->data, &grew));
    if (grew || !run->looked || gone || run->view.life == MST_LIFE_LIVE ||
        run->view.life == MST_LIFE_SILENT || run->due_ns == 0) {
        bool judge = !run->looked || (grew && now - run->judged_ns >= JUDGE_NS) ||
                     (grew && run->view.life != MST_LIFE_LIVE);
        TRY(mst_run_view_init(run->data, gone, judge, &view));
        if (!judge && run->view.has_verdict) { /* the last one is still valid */
            view.verdict = run->view.verdict;
            view.has_verdict = true;
        }
        /* the verdict of a run that has just ended covers all of it */
        if (!judge && view.life != run->view.life && run->looked) {
            TRY(mst_verdict_of(run->data, &view.verdict));
            view.has_verdict = judge = true;
        }
        if (judge)
            run->judged_ns = now;
        mst_run_view_fini(&run->view);
        run->view = view;
        run->looked = true;
        TRY(board_make_text(run, &changed));
    }
    if (self->curves && (grew || run->n_tables == 0))
        TRY(board_update_tables(run));
    if (changed && !run->appeared)
        mst_sse_add(&run->delta, "run", run->text);
    for (size_t i = 0; i < run->n_tables; i++) {
        mst_point_table *t = &run->tables[i];
        if (t->sent < t->n && !run->appeared)
            board_add_points(run, t, t->sent, &run->delta);
        t->sent = t->n;
    }
    run->due_ns = now + (run->view.life == MST_LIFE_LIVE ? LIVE_NS : OVER_NS);
    return run->delta.failed ? mst_fail_memory() : MST_OK;
}

mst_status mst_board_update(mst_board *self)
{
    uint64_t now = mst_now_ns();
    mst_text_list_fini(&self->dropped);
    if (now >= self->scan_ns) {
        for (size_t i = 0; i < self->n; i++) {
            uint64_t inode = board_folder_inode(self->runs[i]->path);
            if (inode != 0 && inode != self->runs[i]->inode)
                TRY(board_drop_run(self, i--));
            else if (inode == 0 && self->runs[i]->view.life != MST_LIFE_GONE)
                self->runs[i]->due_ns = 0;
        }
        TRY(board_scan(self));
        self->scan_ns = now + SCAN_NS;
    }
    for (size_t i = 0; i < self->n; i++) {
        mst_board_run *run = self->runs[i];
        mst_string_fini(&run->delta);
        run->appeared = !run->looked;
        if (now >= run->due_ns || !run->looked)
            TRY(board_look_at(self, run, board_folder_inode(run->path) == 0, now));
    }
    return MST_OK;
}

mst_status mst_board_new(const mst_text_list *paths, bool curves, mst_board **out)
{
    mst_status st = MST_OK;
    mst_board *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->curves = curves;
    for (size_t i = 0; i < paths->n; i++) {
        const char *path = paths->items[i];
        if (!mst_path_exists(path))
            TRY_OUT(st, mst_fail(MST_EINPUT, "%s: there is no such run, nor a folder of runs", path));
        if (!mst_path_is_folder(path))
            TRY_OUT(st,
                    mst_fail(MST_EINPUT, "%s: not a run: a run is a folder that muster train creates", path));
        if (access(path, R_OK | X_OK) != 0)
            TRY_OUT(st, mst_fail(MST_EINPUT, "%s: cannot be read: %s", path, strerror(errno)));
        size_t n = strlen(path);
        while (n > 1 && path[n - 1] == '/')
            n--;
        TRY_OUT(st, mst_text_list_format(&self->roots, "%.*s", (int)n, path));
    }
    TRY_OUT(st, mst_board_update(self));
    *out = self;
    self = NULL;
out:
    mst_board_destroy(self);
    return st;
}

void mst_board_destroy(mst_board *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n; i++)
        board_run_destroy(self->runs[i]);
    mst_free(self->runs);
    mst_text_list_fini(&self->roots);
    mst_text_list_fini(&self->dropped);
    mst_text_list_fini(&self->notes);
    mst_free(self);
}

/* ---- access ---- */

static json_t *board_texts_json(const mst_text_list *list)
{
    json_t *json = json_array();
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(json, mst_page_string(list->items[i]));
    return json;
}

static json_t *board_phases_json(void)
{
    json_t *list = json_array();
    for (int k = 0; k < MST_COSTS; k++)
        json_array_append_new(list,
                              json_pack("[s, i]", mst_cost_kinds[k].title, (int)mst_cost_kinds[k].colour));
    return list;
}

json_t *mst_board_json(const mst_board *self)
{
    return json_pack("{s:o, s:o, s:s, s:f, s:o, s:o}", "notes", board_texts_json(&self->notes), "roots",
                     board_texts_json(&self->roots), "version", mst_version(), "now", mst_wall_s(), "causes",
                     mst_causes_json(), "phases", board_phases_json());
}

mst_board_run *mst_board_newest(const mst_board *self)
{
    mst_board_run *best = NULL;
    for (size_t i = 0; i < self->n; i++) {
        mst_board_run *run = self->runs[i];
        bool live = run->view.life == MST_LIFE_LIVE,
             best_live = best != NULL && best->view.life == MST_LIFE_LIVE;
        if (best == NULL || live > best_live || (live == best_live && run->view.begin > best->view.begin))
            best = run;
    }
    return best;
}
