/* The cluster file: each source, its errors, precedence, differences, texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "net/cluster.h"

static char folder[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_cluster.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/c.yaml", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return mst_remove_tree(folder) == MST_OK ? 0 : -1;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(full, mode), 0);
}

static void contains(const char *sentence)
{
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("'%s' does not say '%s'", mst_error_text(), sentence);
}

static void yaml_refused(const char *text, const char *sentence)
{
    mst_cluster c = {0};
    write_file("c.yaml", text, 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_EUSAGE);
    assert_null(c.source);
    contains("c.yaml:");
    contains(sentence);
}

static void json_refused(const char *text, const char *sentence)
{
    mst_cluster c = {0};
    assert_int_equal(mst_cluster_read_json(text, NULL, &c), MST_EUSAGE);
    contains("MUSTER_CLUSTER: ");
    contains(sentence);
}

static void tf_refused(const char *text, const char *sentence)
{
    mst_cluster c = {0};
    assert_int_equal(mst_cluster_read_tf(text, NULL, &c), MST_EUSAGE);
    contains("TF_CONFIG: ");
    contains(sentence);
}

/* ---- YAML ---- */

static void yaml(void **state)
{
    (void)state;
    mst_cluster c;
    write_file(
        "c.yaml",
        "# two servers\nservers: [a:5000, unix:@name, 'unix:/tmp/x', \"[::1]:7\"]\nworkers:\n  - a\n  - a\n"
        "  - b.example:80\njob: clicks-3\n",
        0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_OK);
    assert_string_equal(c.source, path);
    assert_string_equal(c.job, "clicks-3");
    assert_string_equal(c.secret, "");
    assert_int_equal(c.n_servers, 4);
    assert_string_equal(c.servers[1], "unix:@name");
    assert_string_equal(c.servers[3], "[::1]:7");
    assert_int_equal(c.n_workers, 3);
    assert_string_equal(c.workers[2], "b.example:80");
    assert_false(c.colocated);
    assert_false(c.has_task);
    mst_cluster_fini(&c);
    mst_cluster_fini(&c);
}

static void yaml_colocated(void **state)
{
    (void)state;
    mst_cluster c;
    write_file("c.yaml", "workers: [a:1, b:1]\nservers: []\n", 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_OK);
    assert_true(c.colocated);
    assert_int_equal(c.n_servers, 2);
    assert_string_equal(c.servers[1], "b:1");
    assert_int_equal(mst_cluster_check_index(&c, MST_ROLE_SERVER, 0), MST_EUSAGE);
    contains("every worker hosts one");
    assert_int_equal(mst_cluster_check_index(&c, MST_ROLE_WORKER, 1), MST_OK);
    mst_cluster_fini(&c);
}

static void yaml_is_checked(void **state)
{
    (void)state;
    yaml_refused("servers: [a:1]\n", "names no workers");
    yaml_refused("servers: [a]\nworkers: [b]\n", "servers: entry 1 (a) has no port; servers listen");
    yaml_refused("workers: [b:1, c]\n", "workers: entry 2 (c) has no port; without servers");
    yaml_refused("workers: [b]\nserver: [a:1]\n", "c.yaml:2: unknown option server");
    yaml_refused("workers: [b]\nserver: [a:1]\n", "servers");
    yaml_refused("servers: [a:1, b:2, a:1]\nworkers: [b]\n",
                 "a:1 is named twice: entry 1 of servers and entry 3 of");
    yaml_refused("servers: [a:1]\nworkers: [b, a:1]\n",
                 "a:1 is named twice: entry 1 of servers and entry 2 of workers");
    yaml_refused("servers: [a:x]\nworkers: [b]\n", "(a:x) has a port that is not a number");
    yaml_refused("servers: [a:0]\nworkers: [b]\n", "(a:0) has a port that is not between");
    yaml_refused("servers: [a:65536]\nworkers: [b]\n", "has a port that is not between");
    yaml_refused("servers: ['a:9999999999999']\nworkers: [b]\n", "has a port that is not between");
    yaml_refused("servers: [':5']\nworkers: [b]\n", "has no host");
    yaml_refused("servers: ['::1:5']\nworkers: [b]\n", "has no host");
    yaml_refused("servers: ['fe80::1:5']\nworkers: [b]\n", "in brackets");
    yaml_refused("servers: ['[::1:5']\nworkers: [b]\n", "closing bracket");
    yaml_refused("servers: ['unix:name']\nworkers: [b]\n", "after unix:");
    yaml_refused("servers: ['unix:@']\nworkers: [b]\n", "has no name");
    yaml_refused("servers: [a:1]\nworkers: ['-oProxyCommand=x']\n", "begins with a dash");
    yaml_refused("servers: [a:1]\nworkers: ['a b']\n", "is not host:port");
    yaml_refused("workers: [b\n", "not valid YAML");
    yaml_refused("servers: [a:1]\nworkers: [b]\njob: a/b\n",
                 "may have a-z, 0-9, dot, dash and underscore only");
    yaml_refused("servers: [a:1]\nworkers: [b]\njob: 0123456789012345678901234567890123456789\n",
                 "longer than 39");
    char *many = malloc(1 << 16);
    size_t n = (size_t)sprintf(many, "servers: [a:1]\nworkers: [b");
    for (int i = 0; i < 1024; i++)
        n += (size_t)sprintf(many + n, ", b%d", i);
    strcpy(many + n, "]\n");
    yaml_refused(many, "workers has 1025 entries; at most 1024 are possible");
    free(many);
}

static void secret_and_job(void **state)
{
    (void)state;
    mst_cluster c;
    write_file("c.yaml", "servers: [a:1]\nworkers: [b]\njob: one\nsecret-file: key\n", 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_EUSAGE);
    contains("/key is not a file");
    write_file("key", "0123456789abcdef01234567\n", 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_OK);
    assert_string_equal(c.secret, "0123456789abcdef01234567");
    assert_string_equal(c.job, "one");
    mst_cluster_fini(&c);
    mst_cluster_env env = {.secret = "another secret of this job", .job = "two"};
    assert_int_equal(mst_cluster_read_yaml(path, &env, &c), MST_OK);
    assert_string_equal(c.secret, "another secret of this job");
    assert_string_equal(c.job, "two");
    mst_cluster_fini(&c);
    write_file("key", "short\n", 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_EUSAGE);
    contains("/key: the secret is easy to guess (characters: 5, different ones: 5); use at least 24 random");
    assert_null(strstr(mst_error_text(), "short"));
    write_file("key", "0123456789abcdef0123456\n", 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_EUSAGE);
    contains("(characters: 23, ");
    write_file("key", "abcdeabcdeabcdeabcdeabcdeabcde\n", 0600);
    assert_int_equal(mst_cluster_read_yaml(path, NULL, &c), MST_EUSAGE);
    contains("(characters: 30, different ones: 5)");
}

/* ---- JSON ---- */

static void json(void **state)
{
    (void)state;
    mst_cluster c, again;
    char difference[256];
    assert_int_equal(
        mst_cluster_read_json("{\"servers\": [\"unix:@m-0\"], \"workers\": [\"a\", \"b\"], \"job\": \"j\"}",
                              NULL, &c),
        MST_OK);
    assert_string_equal(c.source, "MUSTER_CLUSTER");
    assert_int_equal(c.n_workers, 2);
    char *text = mst_cluster_text(&c);
    assert_string_equal(text, "{\"servers\":[\"unix:@m-0\"],\"workers\":[\"a\",\"b\"]}");
    assert_int_equal(mst_cluster_read_json(text, NULL, &again), MST_OK);
    assert_string_equal(mst_cluster_difference(&c, &again, difference, sizeof difference), "");
    mst_free(text);
    mst_cluster_fini(&again);
    mst_cluster_fini(&c);
    json_refused("{", "not valid JSON at character");
    json_refused("[]", "must be a JSON object");
    json_refused("{\"server\": []}", "unknown key server (did you mean servers?)");
    json_refused("{\"wrokers\": []}", "unknown key wrokers (did you mean workers?)");
    json_refused("{\"secret_file\": []}", "(did you mean secret-file?)");
    json_refused("{\"colour\": []}", "unknown key colour");
    assert_null(strstr(mst_error_text(), "did you mean"));
    json_refused("{\"workers\": \"a\"}", "workers must be a list");
    json_refused("{\"workers\": [\"a\", 3]}", "workers: entry 2 is not a string");
    json_refused("{\"workers\": [\"a:1\"], \"job\": 3}", "job must be a text");
    json_refused("{\"workers\": [\"a:1\"], \"workers\": [\"b:1\"]}", "not valid JSON");
}

/* ---- TF_CONFIG ---- */

static void tf_config(void **state)
{
    (void)state;
    mst_cluster c;
    const char *ps =
        "{\"cluster\": {\"ps\": [\"p:1\"], \"chief\": [\"c:1\"], \"worker\": [\"w:1\", \"w:2\"],"
        " \"evaluator\": [\"e:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}, \"environment\": \"x\"}";
    assert_int_equal(mst_cluster_read_tf(ps, NULL, &c), MST_OK);
    assert_int_equal(c.n_servers, 1);
    assert_int_equal(c.n_workers, 3);
    assert_string_equal(c.workers[0], "c:1");
    assert_true(c.has_task);
    assert_int_equal(c.role, MST_ROLE_WORKER);
    assert_int_equal(c.index, 2);
    mst_cluster_fini(&c);
    assert_int_equal(mst_cluster_read_tf("{\"cluster\": {\"ps\": [\"p:1\", \"p:2\"], \"master\": [\"w:1\"]}, "
                                         "\"task\": {\"type\": \"ps\", \"index\": \"1\"}}",
                                         NULL, &c),
                     MST_OK);
    assert_int_equal(c.role, MST_ROLE_SERVER);
    assert_int_equal(c.index, 1);
    mst_cluster_fini(&c);
    assert_int_equal(mst_cluster_read_tf("{\"cluster\": {\"ps\": [\"p:1\"], \"chief\": [\"w:1\"]}, "
                                         "\"task\": {\"type\": \"chief\"}}",
                                         NULL, &c),
                     MST_OK);
    assert_int_equal(c.role, MST_ROLE_WORKER);
    assert_int_equal(c.index, 0);
    mst_cluster_fini(&c);
    assert_int_equal(mst_cluster_read_tf("{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}}", NULL, &c),
                     MST_OK);
    assert_true(c.colocated);
    assert_false(c.has_task);
    mst_cluster_fini(&c);
}

static void tf_config_is_checked(void **state)
{
    (void)state;
    tf_refused("{\"task\": {}}", "cluster must be");
    tf_refused("{\"clutser\": {}}", "did you mean cluster?");
    tf_refused("{\"cluster\": {\"workers\": [\"a:1\"]}}",
               "unknown key cluster.workers (did you mean worker?)");
    tf_refused("{\"cluster\": {\"ps\": [\"a:1\"]}}", "names no workers; list them under cluster.worker");
    tf_refused("{\"cluster\": {\"ps\": [\"a\"], \"worker\": [\"b\"]}}",
               "cluster.ps: entry 1 (a) has no port");
    tf_refused("{\"cluster\": {\"chief\": [\"a:1\"], \"master\": [\"b:1\"]}}", "name 2 processes");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}",
               "there is no worker 1; the cluster has one, worker 0");
    tf_refused(
        "{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 7}}",
        "there is no worker 7; the cluster has 2, from 0 to 1");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": -1}}",
               "task.index must be");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1e3}}",
               "task.index must be");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"boss\", \"index\": 0}}",
               "task.type boss is not one of");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", \"index\": 0}}",
               "do not start this process");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"chief\", \"index\": 0}}",
               "no chief 0");
    tf_refused("{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": []}", "task must be");
}

/* ---- which one ---- */

static char logged[512];

static void keep_line(void *arg, mst_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static void precedence(void **state)
{
    (void)state;
    mst_cluster c;
    mst_cluster_env env = {.cluster = "{\"workers\": [\"json:1\"]}",
                           .tf_config = "{\"cluster\": {\"worker\": [\"tf:1\"]}}"};
    mst_log_set(keep_line, NULL, MST_LOG_INFO);
    write_file("c.yaml", "workers: [file:1]\n", 0600);
    assert_int_equal(mst_cluster_find(path, &env, &c), MST_OK);
    assert_string_equal(c.workers[0], "file:1");
    assert_non_null(strstr(logged, "not used: MUSTER_CLUSTER and TF_CONFIG"));
    mst_cluster_fini(&c);
    assert_int_equal(mst_cluster_find(NULL, &env, &c), MST_OK);
    assert_string_equal(c.workers[0], "json:1");
    assert_non_null(strstr(logged, "that of MUSTER_CLUSTER; not used: TF_CONFIG"));
    mst_cluster_fini(&c);
    env.cluster = "";
    logged[0] = '\0';
    assert_int_equal(mst_cluster_find(NULL, &env, &c), MST_OK);
    assert_string_equal(c.workers[0], "tf:1");
    assert_string_equal(logged, "");
    mst_cluster_fini(&c);
    env.tf_config = NULL;
    assert_int_equal(mst_cluster_find(NULL, &env, &c), MST_OK);
    assert_null(c.source);
    mst_cluster_fini(&c);
    mst_log_set(NULL, NULL, MST_LOG_INFO);
}

static void make(mst_cluster *out, const char *server, const char *worker)
{
    const char *servers[] = {"s:1", server}, *workers[] = {"a", "b", worker};
    assert_int_equal(mst_cluster_make(servers, server != NULL ? 2 : 0, workers, 3, out), MST_OK);
}

static void first_difference(void **state)
{
    (void)state;
    mst_cluster x, y, z;
    char text[256];
    make(&x, "t:1", "c");
    make(&y, "t:1", "d");
    make(&z, "u:1", "c");
    assert_string_equal(mst_cluster_difference(&x, &y, text, sizeof text),
                        "workers: entry 3 is c here and d there");
    assert_string_equal(mst_cluster_difference(&x, &z, text, sizeof text),
                        "servers: entry 2 is t:1 here and u:1 there");
    const char *one[] = {"a:1"};
    mst_cluster_fini(&z);
    assert_int_equal(mst_cluster_make(NULL, 0, one, 1, &z), MST_OK);
    assert_string_equal(mst_cluster_difference(&x, &z, text, sizeof text),
                        "servers: some here and none there");
    mst_cluster_fini(&x);
    mst_cluster_fini(&y);
    mst_cluster_fini(&z);
}

static void hosts(void **state)
{
    (void)state;
    char out[64];
    assert_string_equal(mst_address_host("a.b:5", out, sizeof out), "a.b");
    assert_string_equal(mst_address_host("a.b", out, sizeof out), "a.b");
    assert_string_equal(mst_address_host("[::1]:5", out, sizeof out), "::1");
    assert_string_equal(mst_address_host("unix:@x", out, sizeof out), "");
}

static void short_memory(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_cluster_env env = {.cluster = "{\"workers\": [\"a:1\", \"b:1\"], \"job\": \"x\"}",
                           .secret = "0123456789abcdef01234567"};
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1;; k++) {
        mst_cluster c = {0};
        mst_alloc_fail_at(k);
        mst_status st = mst_cluster_find(NULL, &env, &c);
        mst_alloc_fail_at(0);
        mst_cluster_fini(&c);
        if (st == MST_OK)
            break;
        assert_int_equal(st, MST_ENOMEM);
        assert_true(k < 100);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.bytes, before.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml),
        cmocka_unit_test(yaml_colocated),
        cmocka_unit_test(yaml_is_checked),
        cmocka_unit_test(secret_and_job),
        cmocka_unit_test(json),
        cmocka_unit_test(tf_config),
        cmocka_unit_test(tf_config_is_checked),
        cmocka_unit_test(precedence),
        cmocka_unit_test(first_difference),
        cmocka_unit_test(hosts),
        cmocka_unit_test(short_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
