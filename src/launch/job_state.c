/* The folders of jobs; contract in job_state.h. */
#include "launch/job_state.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/option.h"
#include "base/signals.h"
#include "base/strings.h"

#define NAME_LENGTH 24
#define KEPT_S      (7 * 24 * 3600)
#define JSON_BYTES  ((size_t)1 << 20)

bool mst_job_name_valid(const char *name)
{
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || (name[n] != '\0' && strchr("._-", name[n]) != NULL))
        n++;
    return n > 0 && n <= NAME_LENGTH && name[n] == '\0' && *name != '.';
}

mst_status mst_job_state_path(const char *job, const char *file, char out[MST_JOB_STATE_PATH])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char host[128];
    bool given = state != NULL && *state == '/';
    if (!given && (home == NULL || *home == '\0'))
        return mst_fail(MST_EUSAGE, "there is no folder for the state of jobs: set HOME or XDG_STATE_HOME");
    if (gethostname(host, sizeof host) != 0 || host[0] == '\0' || strchr(host, '/') != NULL)
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = '\0';
    int n = snprintf(out, MST_JOB_STATE_PATH, "%s%s/muster/%s%s%s%s%s", given ? state : home,
                     given ? "" : "/.local/state", host, job != NULL ? "/" : "", job != NULL ? job : "",
                     file != NULL ? "/" : "", file != NULL ? file : "");
    return n < MST_JOB_STATE_PATH
               ? MST_OK
               : mst_fail(MST_EUSAGE, "the path of the folder for the state of jobs is too "
                                      "long; set XDG_STATE_HOME to a shorter one");
}

bool mst_job_state_runs(const char *job)
{
    char path[MST_JOB_STATE_PATH];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (mst_job_state_path(job, "lock", path) != MST_OK)
        return false;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return held;
}

mst_status mst_job_state_status(int exit_code)
{
    int number = mst_signals_of_exit_code(exit_code);
    if (number != 0) {
        mst_signals_note(number);
        return MST_ESTOPPED;
    }
    return exit_code == 0   ? MST_OK
           : exit_code == 2 ? MST_EUSAGE
           : exit_code == 3 ? MST_EPEER
           : exit_code == 4 ? MST_EDONE
                            : MST_EINPUT;
}

void mst_job_state_remove(const char *job)
{
    static const char *const files[] = {"control", "output", "job.json", "lock", NULL};
    char path[MST_JOB_STATE_PATH];
    for (const char *const *file = files; *file != NULL; file++)
        if (mst_job_state_path(job, *file, path) == MST_OK)
            unlink(path);
    if (mst_job_state_path(job, NULL, path) == MST_OK)
        rmdir(path);
}

/* NULL: there is no entry that can be read. */
static json_t *state_load(const char *job)
{
    char path[MST_JOB_STATE_PATH];
    char *text = NULL;
    size_t size;
    if (!mst_job_name_valid(job) || mst_job_state_path(job, "job.json", path) != MST_OK ||
        !mst_path_exists(path) || mst_file_read_all(path, JSON_BYTES, &text, &size) != MST_OK)
        return NULL;
    json_t *facts = json_loadb(text, size, 0, NULL);
    mst_free(text);
    if (!json_is_object(facts) || !json_is_string(json_object_get(facts, "job"))) {
        json_decref(facts);
        return NULL;
    }
    if (mst_job_state_runs(job))
        json_object_set_new(facts, "state", json_string("running"));
    else if (!json_is_string(json_object_get(facts, "state")))
        json_object_set_new(facts, "state", json_string("lost"));
    return facts;
}

static bool state_is_running(const json_t *facts)
{
    return strcmp(json_string_value(json_object_get(facts, "state")), "running") == 0;
}

/* Of a job that ended a week ago. */
static bool state_out_of_date(const json_t *facts)
{
    time_t ended = (time_t)json_integer_value(json_object_get(facts, "ended_s")),
           began = (time_t)json_integer_value(json_object_get(facts, "began_s"));
    return !state_is_running(facts) && time(NULL) - (ended != 0 ? ended : began) > KEPT_S;
}

mst_status mst_job_state_list(json_t **out)
{
    char path[MST_JOB_STATE_PATH];
    TRY(mst_job_state_path(NULL, NULL, path));
    mst_text_list names = {0};
    mst_status st = MST_OK;
    json_t *list = json_array();
    DIR *folder = opendir(path);
    for (struct dirent *e = NULL; folder != NULL && (e = readdir(folder)) != NULL && st == MST_OK;)
        if (mst_job_name_valid(e->d_name))
            st = mst_text_list_add(&names, e->d_name);
    if (folder != NULL)
        closedir(folder);
    mst_text_list_sort(&names, 0);
    for (size_t i = 0; st == MST_OK && i < names.n; i++) {
        json_t *facts = state_load(names.items[i]);
        if (facts != NULL && state_out_of_date(facts)) {
            mst_job_state_remove(names.items[i]);
            json_decref(facts);
        } else if (facts != NULL && json_array_append_new(list, facts) != 0) {
            st = mst_fail_memory();
        }
    }
    mst_text_list_fini(&names);
    if (list == NULL || st != MST_OK) {
        json_decref(list);
        return st != MST_OK ? st : mst_fail_memory();
    }
    *out = list;
    return MST_OK;
}

mst_status mst_job_state_read(const char *job, json_t **out)
{
    mst_string running = {0};
    json_t *list = NULL, *facts = NULL, *one;
    size_t i;
    TRY(mst_job_state_list(&list));
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "job"));
        if (strcmp(name, job) == 0)
            facts = json_incref(one);
        if (state_is_running(one))
            mst_string_format(&running, "%s%s", running.size > 0 ? ", " : "", name);
    }
    json_decref(list);
    mst_status st = facts != NULL ? MST_OK
                                  : mst_fail(MST_EUSAGE, "there is no job %.64s on this host; %s%s", job,
                                             running.size > 0 ? "running jobs: " : "no job is running",
                                             running.size > 0 ? running.text : "");
    mst_string_fini(&running);
    *out = facts;
    return st;
}
