/* Processes that join a job: whether they have the cluster, the options and the files of this one; contract
 * in job_impl.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "job/job_impl.h"

/* Fails if the clusters differ; the message names the first difference. */
static mst_status admission_check_cluster(const mst_cluster *here, const char *theirs, const char *who,
                                          json_int_t index)
{
    mst_cluster there = {0};
    char difference[512] = "";
    char *mine = mst_cluster_text(here);
    bool same = mine != NULL && theirs != NULL && strcmp(mine, theirs) == 0;
    if (mine == NULL)
        return mst_fail_memory();
    mst_free(mine);
    if (same)
        return MST_OK;
    if (theirs != NULL && mst_cluster_read_json(theirs, NULL, &there) == MST_OK)
        mst_cluster_difference(here, &there, difference, sizeof difference);
    mst_cluster_fini(&there);
    return mst_fail(MST_EUSAGE, "%s %lld has another cluster: %s", who, (long long)index,
                    difference[0] != '\0' ? difference
                    : theirs != NULL      ? theirs
                                          : "none");
}

/* Compares the files of a worker with those of this process or, if they are not on this host, of the first
 * worker. */
static mst_status admission_check_files(mst_job_admission *self, const mst_job_config *config,
                                        const json_t *join, json_int_t index)
{
    char who[24];
    snprintf(who, sizeof who, "worker %lld", (long long)index);
    for (int set = 0; set < MST_JOB_N_SETS; set++) {
        json_t *theirs = json_object_get(join, mst_job_sets[set]), **ours = &self->data[set].files;
        char *of = self->data[set].of;
        if (*ours == NULL) {
            snprintf(of, sizeof self->data[set].of, "server 0");
            TRY(mst_job_data(config, (mst_job_set)set, ours));
        }
        TRY(mst_job_same_data((mst_job_set)set, theirs, who, *ours, of, true));
        if (json_is_null(*ours) && json_is_object(theirs)) {
            *ours = json_incref(theirs);
            snprintf(of, sizeof self->data[set].of, "%s", who);
        }
    }
    return MST_OK;
}

/* The value of an option for a message; jansson's allocation or NULL. */
static char *admission_value_text(const char *name, const json_t *value)
{
    bool files = strcmp(name, "test") == 0 || strcmp(name, "valid") == 0;
    return files && json_is_boolean(value) ? strdup(json_is_true(value) ? "FILE" : "none")
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
}

/* Keeps the identity of a process that joins, until it takes part. A guest has none. */
static mst_status admission_note_process(mst_job_admission *self, const json_t *join, const char *role,
                                         json_int_t index)
{
    char name[MST_PROCESS_NAME];
    const char *process = json_string_value(json_object_get(join, "process"));
    snprintf(name, sizeof name, "%s-%lld", role != NULL ? role : "", (long long)index);
    if (self->processes == NULL)
        self->processes = json_object();
    if (process == NULL)
        json_object_del(self->processes, name);
    else if (json_object_set_new(self->processes, name, json_string(process)) != 0)
        return mst_fail_memory();
    return MST_OK;
}

mst_status mst_job_admit(mst_job_admission *self, const mst_job_config *config, const json_t *join)
{
    const char *role = json_string_value(json_object_get(join, "role")), *name;
    json_int_t index = json_integer_value(json_object_get(join, "index"));
    json_t *theirs = json_object_get(join, "same"), *value;
    mst_status st;
    TRY(admission_check_cluster(config->cluster, json_string_value(json_object_get(join, "cluster")),
                                role ? role : "process", index));
    json_object_foreach(config->same, name, value)
    {
        const json_t *other = json_object_get(theirs, name);
        if (json_equal(value, (json_t *)other))
            continue;
        char *a = admission_value_text(name, other), *b = admission_value_text(name, value);
        st = mst_fail(MST_EUSAGE,
                      "%s %lld has --%s %s, the coordinator has %s; give all processes the same options",
                      role ? role : "process", (long long)index, name, a ? a : "null", b ? b : "null");
        free(a); /* jansson's allocation */
        free(b);
        return st;
    }
    if (role != NULL && strcmp(role, "worker") == 0)
        TRY(admission_check_files(self, config, join, index));
    return admission_note_process(self, join, role, index);
}

void mst_job_admission_fini(mst_job_admission *self)
{
    for (int set = 0; set < MST_JOB_N_SETS; set++)
        json_decref(self->data[set].files);
    json_decref(self->processes);
}
