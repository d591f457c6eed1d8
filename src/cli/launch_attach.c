/* Commands to a job that runs; contract in launch_attach.h. */
#include "cli/launch_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "launch/job_entry.h"
#include "launch/job_state.h"

#define TICK_MS 100

static mst_status attach_copy(int fd, const char *path)
{
    char bytes[16384];
    for (;;) {
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mst_fail(MST_EIO, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0)
            return fflush(stdout) == 0 ? MST_OK : mst_fail(MST_EIO, "standard output: cannot be written");
        if (fwrite(bytes, 1, (size_t)n, stdout) != (size_t)n)
            return mst_fail(MST_EIO, "standard output: cannot be written");
    }
}

/* The outcome of a job that has ended; its output has the message. */
static mst_status attach_outcome(const char *job)
{
    json_t *facts, *code;
    TRY(mst_job_state_read(job, &facts));
    code = json_object_get(facts, "exit_code");
    int exit_code = code != NULL ? (int)json_integer_value(code) : 1;
    json_decref(facts);
    if (code == NULL)
        return mst_fail(MST_EPEER, "the process of the job %s was killed", job);
    mst_status st = mst_job_state_status(exit_code);
    if (st == MST_ESTOPPED)
        return mst_fail_lead(MST_ESTOPPED, "the job was stopped",
                             "; its output has the command that resumes it");
    return st == MST_OK ? MST_OK : mst_fail(st, "the job %s failed with exit code %d", job, exit_code);
}

mst_status mst_launch_attach(const char *job)
{
    char path[MST_JOB_STATE_PATH];
    json_t *facts;
    TRY(mst_job_state_read(job, &facts));
    bool detached = json_is_true(json_object_get(facts, "detached"));
    json_decref(facts);
    if (!detached)
        return mst_fail(MST_EUSAGE,
                        "--attach: the job %s was started without --detach; its output is where it "
                        "was started, and in its logs",
                        job);
    TRY(mst_job_state_path(job, "output", path));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    mst_status st;
    bool runs;
    do {
        runs = mst_job_state_runs(job); /* the output of a job that has ended is complete */
        st = attach_copy(fd, path);
        if (runs && st == MST_OK)
            poll(NULL, 0, TICK_MS);
    } while (runs && st == MST_OK);
    close(fd);
    TRY(st);
    return attach_outcome(job);
}

mst_status mst_launch_add(const char *job, uint32_t n)
{
    json_t *facts;
    TRY(mst_job_state_read(job, &facts)); /* names the jobs that run */
    json_decref(facts);
    if (!mst_job_state_runs(job))
        return mst_fail(MST_EUSAGE, "--add: the job %s has ended", job);
    TRY(mst_job_request_add(job, n));
    mst_cli_note("launch: %u worker%s added to the job %s", n, n == 1 ? "" : "s", job);
    return MST_OK;
}
