/* Steps of a study as processes; contract in study_steps.h.
 *
 * A command is a line for sh in the folder of the study, with the folder of this program in front of PATH. In
 * a lab it runs on host 1. Standard output goes to out/KEY.out, standard error to out/KEY.log. */
#include "launch/study_steps.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/parent.h"
#include "base/strings.h"
#include "base/version.h"
#include "launch/launch_remote.h"
#include "launch/supervisor.h"

#define TICK_MS       200
#define GRACE_S       25
#define TIMEOUT_S     3600
#define SENTENCE_MAX_ (MST_CHILD_LINE + 64)

/* kill: of a step, while its command runs. */
typedef struct kill_plan {
    char *file; /* process.json of the process; NULL: no kill */
    double after_s;
    int signal;
    uint64_t seen_ns; /* when the file appeared; 0: it has not */
    bool done;
} kill_plan;

typedef struct steps {
    mst_study *study;
    const mst_steps_progress *progress;
    char *netlab, lab[17];
    mst_supervisor *supervisor;
    mst_child *child;
    uv_timer_t tick;
    FILE *log;
    const char *key; /* of the current command */
    double timeout_s;
    bool ended, timed_out, lab_up;
    char line[160]; /* the last of its standard error */
    kill_plan kill;
    size_t at, n;
} steps;

/* ---- the machine ---- */

char *mst_steps_netlab(void)
{
    const char *given = getenv("MUSTER_NETLAB");
    char program[4096], *path = NULL, *whole;
    if (given != NULL)
        return mst_path_exists(given) ? mst_strdup(given) : NULL;
    if (mst_own_program(program, sizeof program) == MST_OK) {
        char *slash = strrchr(program, '/');
        if (slash != NULL)
            *slash = '\0';
        path = mst_sprintf("%s/../../scripts/netlab", program); /* build/release/muster */
        whole = path != NULL ? realpath(path, NULL) : NULL;
        mst_free(path);
        path = whole != NULL ? mst_strdup(whole) : NULL;
        free(whole);
    }
    return path;
}

/* Runs a command of netlab whose output is its first line. True: exit code 0. */
static bool steps_ask(const char *command, char *line, size_t size)
{
    FILE *in = popen(command, "re");
    if (in == NULL)
        return false;
    if (fgets(line, (int)size, in) == NULL)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return pclose(in) == 0;
}

static bool steps_needs(const json_t *spec, const char *what)
{
    const json_t *needs = json_object_get(spec, "needs");
    size_t i;
    json_t *one;
    if (json_is_string(needs))
        return strcmp(json_string_value(needs), what) == 0;
    json_array_foreach(needs, i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), what) == 0)
            return true;
    }
    return false;
}

char *mst_steps_obstacle(const mst_study *study)
{
    char line[400] = "", *command;
    if (steps_needs(study->spec, "mpi") &&
        !steps_ask("command -v mpirun mpiexec 2>/dev/null", line, sizeof line) && line[0] == '\0')
        return mst_strdup("it needs MPI, and mpirun is not installed");
    if (json_object_get(study->spec, "lab") == NULL)
        return NULL;
    char *netlab = mst_steps_netlab();
    if (netlab == NULL)
        return mst_strdup("it needs the lab, and netlab was not found; MUSTER_NETLAB names it");
    mst_string text = {0};
    mst_string_shell(&text, netlab);
    mst_free(netlab);
    mst_string_add(&text, " check 2>&1");
    command = text.text;
    bool fine = command != NULL && steps_ask(command, line, sizeof line);
    mst_string_fini(&text);
    const char *why = strncmp(line, "netlab: ", 8) == 0 ? line + 8 : line;
    return fine ? NULL : mst_sprintf("it needs the lab: %s", why);
}

/* The machine in a sentence, for the report. */
static void steps_describe_machine(mst_string *out)
{
    struct utsname name;
    char line[400], cpu[200] = "", size[MST_FIGURE_SIZE];
    FILE *in = fopen("/proc/cpuinfo", "re");
    while (in != NULL && cpu[0] == '\0' && fgets(line, sizeof line, in) != NULL)
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL)
            snprintf(cpu, sizeof cpu, "%.150s", strchr(line, ':') + 2);
    cpu[strcspn(cpu, "\n")] = '\0';
    if (in != NULL)
        fclose(in);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    mst_string_format(out, "Machine: %ld cores (%s), %s of memory, %s %s; muster %s.",
                      sysconf(_SC_NPROCESSORS_ONLN), cpu[0] != '\0' ? cpu : "unknown CPU",
                      mst_figure_bytes(memory, size), uname(&name) == 0 ? name.sysname : "",
                      uname(&name) == 0 ? name.release : "", mst_version());
}

/* ---- kills ---- */

static mst_status kill_plan_init(kill_plan *k, const mst_study *study, const mst_study_cell *cell)
{
    const json_t *spec = json_object_get(cell->step, "kill");
    *k = (kill_plan){0};
    if (spec == NULL)
        return MST_OK;
    const char *signal_name = mst_study_text(spec, "signal");
    mst_string run = {0};
    mst_study_substitute(cell->labels, mst_study_text(spec, "run"), &run);
    k->file = mst_sprintf("%s/%s/processes/%s/process.json", study->folder, run.text != NULL ? run.text : "",
                          mst_study_text(spec, "process"));
    k->after_s = atof(mst_study_text(spec, "after"));
    k->signal = signal_name == NULL || strcmp(signal_name, "KILL") == 0 ? SIGKILL
                : strcmp(signal_name, "STOP") == 0                      ? SIGSTOP
                                                                        : SIGTERM;
    char *folder = mst_sprintf("%s/%s", study->folder, run.text != NULL ? run.text : "");
    /* The file of an earlier try names a process that is gone. */
    mst_status st = k->file != NULL && folder != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && run.text != NULL && strstr(run.text, "..") == NULL && run.text[0] != '/')
        st = mst_remove_tree(folder);
    mst_free(folder);
    mst_string_fini(&run);
    return st;
}

static void kill_plan_fini(kill_plan *k)
{
    mst_free(k->file);
    *k = (kill_plan){0};
}

static void kill_plan_tick(steps *s)
{
    kill_plan *k = &s->kill;
    if (k->file == NULL || k->done)
        return;
    json_t *info = json_load_file(k->file, 0, NULL);
    json_int_t pid = json_integer_value(json_object_get(info, "pid"));
    json_decref(info);
    if (pid <= 1)
        return;
    if (k->seen_ns == 0)
        k->seen_ns = mst_now_ns();
    if (mst_seconds_since(k->seen_ns) < k->after_s)
        return;
    k->done = true;
    if (kill((pid_t)pid, k->signal) == 0 && s->log != NULL)
        fprintf(s->log, "study: signal %d to process %lld\n", k->signal, (long long)pid);
}

/* ---- one command ---- */

static void steps_on_line(void *arg, mst_child *child, bool is_error, const char *text, size_t n)
{
    steps *s = arg;
    (void)child;
    (void)is_error;
    if (s->log != NULL)
        fprintf(s->log, "%.*s\n", (int)n, text);
    snprintf(s->line, sizeof s->line, "%.*s", (int)(n < sizeof s->line ? n : sizeof s->line - 1), text);
}

static void steps_on_ended(void *arg, mst_child *child)
{
    steps *s = arg;
    (void)child;
    s->ended = true;
}

static void steps_on_stop(void *arg, int number)
{
    steps *s = arg;
    (void)number;
    mst_child_stop(s->child, SIGTERM, GRACE_S * 1000);
}

static void steps_tick(uv_timer_t *timer)
{
    steps *s = timer->data;
    char text[400], seconds[MST_FIGURE_SIZE];
    if (s->child == NULL || !s->child->running)
        return;
    kill_plan_tick(s);
    double age_s = mst_seconds_since(s->child->began_ns);
    if (!s->child->stopping && age_s > s->timeout_s) {
        s->timed_out = true;
        mst_child_stop(s->child, SIGTERM, GRACE_S * 1000);
    }
    snprintf(text, sizeof text, "[%zu/%zu] %s  %s  %.120s", s->at, s->n, s->key,
             mst_figure_seconds(floor(age_s), seconds), s->line);
    s->progress->show(s->progress->arg, text);
}

/* Starts the words and waits for their end. */
static mst_status steps_start(steps *s, const char *key, const char *const *argv)
{
    char *path = mst_sprintf("%s/out/%s.log", s->study->folder, key);
    mst_status st = path != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && (s->log = fopen(path, "we")) == NULL)
        st = mst_fail(MST_EIO, "%s: cannot be written", path);
    mst_free(path);
    TRY(st);
    s->key = key;
    s->ended = s->timed_out = false;
    s->line[0] = '\0';
    st = mst_child_start(s->child, &(mst_process_start){.argv = argv});
    while (st == MST_OK && !s->ended)
        mst_supervisor_turn(s->supervisor);
    fclose(s->log);
    s->log = NULL;
    s->progress->show(s->progress->arg, NULL);
    return st;
}

/* Why the command failed; "": it did not. */
static void steps_sentence(const steps *s, char out[SENTENCE_MAX_])
{
    const mst_child *c = s->child;
    out[0] = '\0';
    if (s->timed_out)
        snprintf(out, SENTENCE_MAX_, "took longer than %.0f s", s->timeout_s);
    else if (c->signal != 0)
        snprintf(out, SENTENCE_MAX_, "killed by signal %d (%s)", c->signal, strsignal(c->signal));
    else if (c->code != 0 && (c->error[0] != '\0' || c->last_line[0] != '\0'))
        snprintf(out, SENTENCE_MAX_, "%s", c->error[0] != '\0' ? c->error : c->last_line);
    else if (c->code != 0)
        snprintf(out, SENTENCE_MAX_, "ended with exit code %d and no error message", c->code);
}

/* netlab WORDS of this study's lab; its failure is one of the study. */
static mst_status steps_netlab(steps *s, const char *word, const char *options, bool may_fail)
{
    mst_status st;
    mst_text_list words = {0};
    const char *const first[] = {s->netlab, "--name", s->lab, word, NULL};
    char sentence[SENTENCE_MAX_];
    TRY_OUT(st, mst_text_list_add_all(&words, first));
    if (options != NULL)
        TRY_OUT(st, mst_text_list_add_split(&words, options));
    TRY_OUT(st, mst_text_list_end(&words));
    s->timeout_s = 60;
    TRY_OUT(st, steps_start(s, "netlab", (const char *const *)words.items));
    steps_sentence(s, sentence);
    if (sentence[0] != '\0' && !may_fail)
        st = mst_fail(MST_EIO, "netlab %s: %s", word, sentence);
out:
    mst_text_list_fini(&words);
    return st;
}

static mst_status steps_raise_lab(steps *s)
{
    const json_t *lab = json_object_get(s->study->spec, "lab");
    const char *options = mst_study_text(lab, "options");
    if (lab == NULL || s->lab_up)
        return MST_OK;
    char *all = mst_sprintf("--hosts %u %s", mst_study_hosts(s->study->spec), options != NULL ? options : "");
    mst_status st = all != NULL ? steps_netlab(s, "down", NULL, true)
                                : mst_fail_memory(); /* of a study that was killed */
    s->lab_up = true;
    if (st == MST_OK)
        st = steps_netlab(s, "up", all, false);
    mst_free(all);
    return st;
}

static mst_status steps_run_cell(steps *s, const mst_study_cell *cell)
{
    mst_status st;
    char *script = NULL, sentence[SENTENCE_MAX_], seconds[MST_FIGURE_SIZE];
    const char *timeout = mst_study_text(cell->step, "timeout");
    const char *argv[12];
    size_t n = 0;
    mst_string text = {0};
    mst_string_add(&text, "set -eu; cd ");
    mst_string_shell(&text, s->study->folder);
    mst_string_format(&text, "\n{ %s\n} >out/%s.out", cell->command, cell->key);
    TRY_OUT(st, text.failed ? mst_fail_memory() : steps_raise_lab(s));
    TRY_OUT(st, kill_plan_init(&s->kill, s->study, cell));
    if (s->lab_up) {
        const char *const words[] = {s->netlab, "--name", s->lab, "exec", "1"};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            argv[n++] = words[i];
    }
    argv[n++] = "sh";
    argv[n++] = "-c";
    argv[n++] = text.text;
    argv[n] = NULL;
    s->timeout_s = timeout != NULL && atof(timeout) > 0 ? atof(timeout) : TIMEOUT_S;
    TRY_OUT(st, steps_start(s, cell->key, argv));
    if (mst_supervisor_stopped_by(s->supervisor) != 0)
        TRY_OUT(st,
                mst_fail_lead(MST_ESTOPPED, "stopped", " in step %s; the same command continues", cell->key));
    double took_s = mst_seconds_since(s->child->began_ns);
    steps_sentence(s, sentence);
    if (sentence[0] == '\0' && s->kill.file != NULL && !s->kill.done)
        snprintf(sentence, sizeof sentence, "ended before the process of kill: could be killed");
    script = sentence[0] != '\0' ? mst_sprintf("[%zu/%zu] %s failed: %s", s->at, s->n, cell->key, sentence)
                                 : mst_sprintf("[%zu/%zu] %s done in %s", s->at, s->n, cell->key,
                                               mst_figure_seconds(took_s, seconds));
    TRY_OUT(st, script != NULL ? MST_OK : mst_fail_memory());
    s->progress->note(s->progress->arg, script);
    st = mst_study_mark(s->study, cell, took_s, sentence[0] != '\0' ? sentence : NULL);
out:
    kill_plan_fini(&s->kill);
    mst_free(script);
    mst_string_fini(&text);
    return st;
}

/* ---- all ---- */

/* muster of this binary is the first on PATH of the commands. */
static mst_status steps_set_environment(void)
{
    char program[4096];
    const char *old = getenv("PATH");
    TRY(mst_own_program(program, sizeof program));
    char *slash = strrchr(program, '/');
    if (slash != NULL)
        *slash = '\0';
    char *path = mst_sprintf("%s:%s", program, old != NULL ? old : "/usr/bin:/bin");
    bool failed = path == NULL || setenv("PATH", path, 1) != 0 || setenv(MST_PARENT_ENV, "15", 1) != 0;
    mst_free(path);
    return failed ? mst_fail_memory() : MST_OK;
}

static mst_status steps_all(steps *s)
{
    mst_study_cell *cells;
    mst_status st = MST_OK;
    TRY(mst_study_cells(s->study, &cells, &s->n));
    for (size_t i = 0; i < s->n && st == MST_OK; i++) {
        s->at = i + 1;
        if (mst_study_is_done(s->study, &cells[i]))
            continue;
        st = mst_study_forget_later(s->study, &cells[i]);
        if (st == MST_OK)
            st = steps_run_cell(s, &cells[i]);
        bool sweep = json_object_get(cells[i].step, "sweep") != NULL;
        if (st == MST_OK && !sweep && !mst_study_is_done(s->study, &cells[i]))
            break; /* later steps may need its results */
        bool last = i + 1 == s->n || cells[i + 1].step != cells[i].step;
        if (st == MST_OK && last) /* a wrong name of the file ends the study here, not after the last step */
            st = mst_study_read_rows(s->study);
    }
    mst_study_cells_free(cells, s->n);
    return st;
}

mst_status mst_steps_run(mst_study *study, const mst_steps_progress *progress)
{
    static const mst_supervisor_events events = {
        .on_line = steps_on_line, .on_ended = steps_on_ended, .on_stop = steps_on_stop};
    mst_status st;
    steps s = {.study = study, .progress = progress};
    mst_string machine = {0};
    steps_describe_machine(&machine);
    if (machine.failed || json_object_set_new(study->state, "machine", json_string(machine.text)) != 0)
        TRY_OUT(st, mst_fail_memory());
    mst_study_lab_name(study->folder, s.lab);
    s.netlab = mst_steps_netlab();
    TRY_OUT(st, steps_set_environment());
    TRY_OUT(st, mst_study_save(study));
    TRY_OUT(st, mst_study_write_inputs(study));
    TRY_OUT(st, mst_supervisor_new(1, &events, &s, &s.supervisor));
    s.child = mst_supervisor_child(s.supervisor, 0);
    mst_supervisor_timer(s.supervisor, &s.tick, &s);
    uv_timer_start(&s.tick, steps_tick, TICK_MS, TICK_MS);
    st = steps_all(&s);
    if (s.lab_up) {
        mst_error error = {0};
        if (st != MST_OK)
            mst_error_save(&error, st);
        mst_status down = steps_netlab(&s, "down", NULL, true);
        st = st != MST_OK ? mst_fail(error.code, "%s", error.text) : down;
    }
out:
    mst_supervisor_destroy(s.supervisor);
    mst_free(s.netlab);
    mst_string_fini(&machine);
    return st;
}
