/* The run directory: created once, resumed to a step, overwritten only if it belongs to a run. */
#include <fcntl.h>
#include <math.h>
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
#include "base/json_text.h"
#include "run/run_dir.h"

#define OLD_HEADER "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc\n"
#define MID_HEADER "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5\n"
#define LAST_HEADER                                                                                          \
    "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5,train_accuracy\n"
#define HEADER                                                                                               \
    "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5,train_accuracy,"    \
    "progressive_loss,grouped_auc,calibration,normalised_entropy\n"

static char root[64], path[96];

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/runs/a", root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mst_out_fail_at(0);
    return mst_remove_tree(root) == MST_OK ? 0 : -1;
}

static const char *in(const char *name)
{
    static char text[160];
    snprintf(text, sizeof text, "%s/%s", path, name);
    return text;
}

static void expect_text(const char *name, const char *expected)
{
    char *text = NULL;
    size_t size;
    assert_int_equal(mst_file_read_all(in(name), 1 << 20, &text, &size), MST_OK);
    assert_string_equal(text, expected);
    mst_free(text);
}

static void write_text(const char *name, const char *text, size_t n)
{
    FILE *f = fopen(in(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void expect_refused(mst_run_open how, mst_status code, const char *sentence)
{
    mst_run *run = NULL;
    assert_int_equal(mst_run_new(path, how, 0, 0 + 1, &run), code);
    assert_null(run);
    assert_ptr_equal(strstr(mst_error_text(), path), mst_error_text());
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", mst_error_text(), sentence);
}

static void test_new(void **state)
{
    (void)state;
    mst_run *run = NULL;
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    assert_string_equal(mst_run_path(run), path);
    assert_true(mst_path_exists(in("manifest.json"))); /* from the start */
    mst_metrics m = {100, 10000, 0, 1.5, 0.25, 0.1, 0.5, "", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    assert_int_equal(mst_run_metrics(run, &m), MST_OK);
    expect_text("metrics.csv",
                HEADER "100,10000,0,1.500000,0.250000,0.1,0.5,,,,,,,,,,\n"); /* there before destroy */
    m = (mst_metrics){200,  20000,    1,     3,     0.5, NAN,  NAN, "test", 0.333333343,
                      0.75, INFINITY, 0.875, 0.625, 0.5, 0.25, 1.5, 0.125};
    assert_int_equal(mst_run_metrics(run, &m), MST_OK);
    json_t *manifest = json_pack("{s:i, s:s}", "seed", 7, "format", "something else");
    assert_int_equal(mst_run_manifest(run, manifest), MST_OK);
    json_decref(manifest);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER
                "100,10000,0,1.500000,0.250000,0.1,0.5,,,,,,,,,,\n"
                "200,20000,1,3.000000,0.500000,,,test,0.333333343,0.75,inf,0.875,0.625,0.5,0.25,1.5,0.125\n");
    manifest = json_load_file(in("manifest.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(manifest, "seed")), 7);
    assert_string_equal(json_string_value(json_object_get(manifest, "format")), "muster-run");
    json_decref(manifest);

    expect_refused(
        MST_RUN_NEW, MST_EEXIST,
        "already exists; choose another name, continue it with --resume, or replace it with --overwrite");
    mst_run_destroy(NULL);
}

static void test_resume(void **state)
{
    (void)state;
    mst_run *run = NULL;
    expect_refused(MST_RUN_RESUME, MST_EINPUT, "no run to resume; leave out --resume to start one");
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    for (uint64_t step = 10; step <= 50; step += 10) {
        mst_metrics m = {step, step, 0, 0, 0, 1, 1, "", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
        assert_int_equal(mst_run_metrics(run, &m), MST_OK);
        if (step % 20 == 0) {
            m.set = "test";
            assert_int_equal(mst_run_metrics(run, &m), MST_OK);
        }
    }
    mst_run_destroy(run);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 20, 20 + 1, &run), MST_OK);
    expect_text("metrics.csv", HEADER "10,10,0,0.000000,0.000000,1,1,,,,,,,,,,\n"
                                      "20,20,0,0.000000,0.000000,1,1,,,,,,,,,,\n"
                                      "20,20,0,0.000000,0.000000,1,1,test,,,,,,,,,\n");
    mst_metrics m = {30, 30, 0, 0, 0, 2, 2, "", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    assert_int_equal(mst_run_metrics(run, &m), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER "10,10,0,0.000000,0.000000,1,1,,,,,,,,,,\n"
                                      "20,20,0,0.000000,0.000000,1,1,,,,,,,,,,\n"
                                      "20,20,0,0.000000,0.000000,1,1,test,,,,,,,,,\n"
                                      "30,30,0,0.000000,0.000000,2,2,,,,,,,,,,\n");
    /* An evaluation that is repeated writes its lines again. */
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 20, 20, &run), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER "10,10,0,0.000000,0.000000,1,1,,,,,,,,,,\n");

    /* An incomplete end is dropped; a missing or empty file starts again; another file is refused. */
    static const char *const torn[] = {"10,1,0,0,0,1,1,,,,,,,,,,\n20,2,0,0,0,1,1,,,,,",
                                       "10,1,0,0,0,1,1,,,,,,,,,,\n\n",
                                       "10,1,0,0,0,1,1,,,,,,,,,,\n20,2,0,0\n30,1,0,0,0,1,1,,,,,,,,,,\n",
                                       "10,1,0,0,0,1,1,,,,,,,,,,\nx,2,0,0,0,1,1,,,,,,\n"};
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        char *text = mst_sprintf("%s%s", HEADER, torn[i]);
        write_text("metrics.csv", text, strlen(text));
        mst_free(text);
        assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 100, 100 + 1, &run), MST_OK);
        mst_run_destroy(run);
        expect_text("metrics.csv", HEADER "10,1,0,0,0,1,1,,,,,,,,,,\n");
    }
    /* Runs without the last columns continue with them. */
    static const char old[] =
        OLD_HEADER "10,1,0,0,0,1,1,,,,\n20,2,0,0,0,1,1,test,1,0.5,\n30,3,0,0,0,1,1,,,,\n";
    write_text("metrics.csv", old, sizeof old - 1);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 20, 20 + 1, &run), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER "10,1,0,0,0,1,1,,,,,,,,,,\n20,2,0,0,0,1,1,test,1,0.5,,,,,,,\n");
    static const char mid[] = MID_HEADER "10,1,0,0,0,1,1,,,,,\n20,2,0,0,0,1,1,test,1,0.5,,0.75\n";
    write_text("metrics.csv", mid, sizeof mid - 1);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 20, 20 + 1, &run), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER "10,1,0,0,0,1,1,,,,,,,,,,\n20,2,0,0,0,1,1,test,1,0.5,,0.75,,,,,\n");
    static const char last[] = LAST_HEADER "10,1,0,0,0,1,1,,,,,,\n20,2,0,0,0,1,1,test,1,0.5,,0.75,0.5\n";
    write_text("metrics.csv", last, sizeof last - 1);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 20, 20 + 1, &run), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER "10,1,0,0,0,1,1,,,,,,,,,,\n20,2,0,0,0,1,1,test,1,0.5,,0.75,0.5,,,,\n");
    write_text("metrics.csv", "", 0);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 100, 100 + 1, &run), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER);
    assert_int_equal(unlink(in("metrics.csv")), 0);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 100, 100 + 1, &run), MST_OK);
    mst_run_destroy(run);
    expect_text("metrics.csv", HEADER);
    write_text("metrics.csv", "a,b\n1,2\n", 8);
    expect_refused(MST_RUN_RESUME, MST_EINPUT, "metrics.csv:1: not the metrics of a muster run");
    expect_text("metrics.csv", "a,b\n1,2\n");
}

static void test_overwrite(void **state)
{
    (void)state;
    mst_run *run = NULL;
    assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run), MST_OK); /* nothing there */
    mst_run_destroy(run);
    assert_int_equal(mst_make_folders(in("checkpoints/step-000000000001")), MST_OK);
    assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run), MST_OK);
    mst_run_destroy(run);
    assert_false(mst_path_exists(in("checkpoints")));

    /* What a killed process has put aside is removed; a folder of the same form that no lock names stays. */
    char left[2][1100], lock[2400], host[256] = "";
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < 2; i++) {
        snprintf(left[i], sizeof left[i], "%s.old-%d", path, 99999990 + i);
        snprintf(lock, sizeof lock, "%s/checkpoints", left[i]);
        assert_int_equal(mst_make_folders(lock), MST_OK);
        snprintf(lock, sizeof lock, "%s/.lock", left[i]);
        FILE *f = fopen(lock, "w");
        assert_non_null(f);
        fprintf(f, "%d %s\n", 99999990, host);
        fclose(f);
    }
    assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run), MST_OK);
    assert_true(mst_path_exists(left[0]));
    mst_run_destroy(run);
    assert_false(mst_path_exists(left[0]));
    assert_true(mst_path_exists(left[1]));
    assert_int_equal(mst_remove_tree(left[1]), MST_OK);

    /* What is not ours stays. */
    assert_int_equal(mst_make_folders(in("checkpoints/step-000000000002")), MST_OK);
    write_text("manifest.json.tmp.12.3", "", 0);
    assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run), MST_OK);
    mst_run_destroy(run);
    write_text("notes.txt", "", 0);
    expect_refused(MST_RUN_OVERWRITE, MST_EEXIST,
                   "a/notes.txt does not belong to the run, and --overwrite would remove it; move it, or "
                   "choose another name");
    assert_int_equal(unlink(in("notes.txt")), 0);
    static const char *const manifests[] = {"", "{\"format\": \"muster-checkpoint\"}", "{}", "[]",
                                            "{\"format\":"};
    for (size_t i = 0; i < sizeof manifests / sizeof *manifests; i++) {
        write_text("manifest.json", manifests[i], strlen(manifests[i]));
        expect_refused(MST_RUN_OVERWRITE, MST_EEXIST,
                       "not removed, because it has no manifest.json of a muster run; choose another name");
        expect_refused(MST_RUN_RESUME, MST_EINPUT, "the folder has no manifest.json of a muster run");
        expect_text("manifest.json", manifests[i]);
    }
    assert_int_equal(unlink(in("manifest.json")), 0);
    expect_refused(MST_RUN_OVERWRITE, MST_EEXIST, "not removed");
    assert_true(mst_path_exists(in("metrics.csv")));
    /* An empty folder may go; a file or a link may not. */
    assert_int_equal(unlink(in("metrics.csv")), 0);
    assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run), MST_OK);
    mst_run_destroy(run);
    char target[96];
    strcpy(target, path);
    snprintf(path, sizeof path, "%s/link", root);
    assert_int_equal(symlink(target, path), 0);
    expect_refused(MST_RUN_OVERWRITE, MST_EEXIST, "not removed, because it is not a folder");
    assert_true(mst_path_is_folder(target));
}

/* What is replaced stays aside until the new run is settled, and comes back when it is abandoned. */
static void test_replace(void **state)
{
    (void)state;
    mst_run *run = NULL;
    char aside[160];
    snprintf(aside, sizeof aside, "%s.old-%ld", path, (long)getpid());
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    assert_false(mst_run_replaces(run));
    mst_run_destroy(run);
    write_text("report.html", "old", 3);
    for (int good = 0; good < 2; good++) {
        assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run), MST_OK);
        assert_true(mst_run_replaces(run) && mst_path_is_folder(aside));
        assert_false(mst_path_exists(in("report.html")));
        if (good)
            mst_run_settle(run);
        else
            mst_run_abandon(run);
        assert_false(mst_run_replaces(run) || mst_path_exists(aside));
        assert_int_equal(mst_path_exists(in("report.html")), !good);
        mst_run_destroy(run);
        assert_false(mst_path_exists(in(".lock")));
        assert_true(mst_path_exists(in("manifest.json")));
    }
}

/* A process that is killed while it creates the run leaves a folder that the next one uses. */
static void test_killed_early(void **state)
{
    (void)state;
    mst_run *run = NULL;
    assert_int_equal(mst_make_folders(path), MST_OK);
    write_text(".lock", "", 0);
    write_text("manifest.json.tmp.123.0", "{", 1);
    assert_int_equal(mst_run_new(path, MST_RUN_OVERWRITE, 0, 1, &run), MST_OK);
    assert_true(mst_path_exists(in("manifest.json")));
    assert_false(mst_path_exists(in("manifest.json.tmp.123.0")));
    mst_run_abandon(run);
    mst_run_destroy(run);
}

static void test_lock(void **state)
{
    (void)state;
    mst_run *run = NULL;
    char who[64];
    snprintf(who, sizeof who, " is being trained by process %ld on ", (long)getpid());
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    expect_refused(MST_RUN_RESUME, MST_EEXIST, who);
    expect_refused(MST_RUN_OVERWRITE, MST_EEXIST, who);
    mst_run_destroy(run);
    assert_int_equal(mst_make_folders(in("checkpoints/step-000000000030")), MST_OK);
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 20, 20 + 1, &run),
                     MST_OK); /* no manifest: no checkpoint */
    mst_run_destroy(run);
    write_text("checkpoints/step-000000000030/manifest.json", "{}", 2);
    expect_refused(MST_RUN_RESUME, MST_EEXIST, "another process has continued the run to step 30");
    assert_int_equal(mst_run_new(path, MST_RUN_RESUME, 30, 30 + 1, &run), MST_OK);
    mst_run_destroy(run);
}

static void test_text(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"plain", "plain"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xe9.x", "caf\xef\xbf\xbd.x"},
        {"\xc3\xa9\xff\xc3", "\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *text = mst_json_text(texts[i][0]);
        assert_string_equal(json_string_value(text), texts[i][1]);
        json_decref(text);
    }
}

static void test_disk_full(void **state)
{
    (void)state;
    mst_run *run = NULL;
    mst_out_fail_at(1);
    expect_refused(MST_RUN_NEW, MST_EIO, "No space left on device");
    assert_false(mst_path_exists(path)); /* nothing half-made */
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    json_t *manifest = json_pack("{s:i}", "seed", 7);
    char *before = NULL;
    size_t size;
    assert_int_equal(mst_file_read_all(in("manifest.json"), 1 << 20, &before, &size), MST_OK);
    mst_out_fail_at(1);
    assert_int_equal(mst_run_manifest(run, manifest), MST_EIO);
    expect_text("manifest.json", before);
    mst_free(before);
    json_decref(manifest);
    mst_run_destroy(run);
}

static void test_free_name(void **state)
{
    (void)state;
    mst_run *run = NULL;
    char expected[160];
    for (unsigned i = 1; i <= 3; i++) {
        char *name = mst_run_free_name(root, "logreg");
        snprintf(expected, sizeof expected, "%s/logreg-%u", root, i);
        assert_string_equal(name, expected);
        assert_int_equal(mst_run_new(name, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
        mst_run_destroy(run);
        mst_free(name);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_run *run = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_run_new(path, MST_RUN_OVERWRITE, 0, 0 + 1, &run);
        mst_alloc_fail_at(0);
        mst_run_destroy(run);
        done = st == MST_OK && k > 40;
        assert_true(k < 500);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
}

static void expect_resume_hint(const char *expected)
{
    char text[256], whole[256];
    mst_run_resume_hint(path, text, sizeof text);
    snprintf(whole, sizeof whole, expected, path);
    assert_string_equal(text, whole);
}

/* The advice after a failure of another process is conditional unless a checkpoint is known. */
static void test_resume_hint(void **state)
{
    static const char *const maybe =
        "resume the run if it has saved a checkpoint by starting all processes again with --run %s --resume";
    mst_run *run = NULL;
    char host[256] = "";
    (void)state;
    gethostname(host, sizeof host - 1);
    expect_resume_hint(maybe); /* no such folder here */
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    expect_resume_hint(maybe); /* no owner yet */
    json_t *manifest = json_pack("{s:s, s:s}", "state", "running", "host", host);
    assert_int_equal(mst_run_manifest(run, manifest), MST_OK);
    expect_resume_hint("no checkpoint was saved; start again with --checkpoint-every");
    assert_false(mst_run_has_result(path));
    assert_int_equal(mst_make_folders(in("checkpoints")), MST_OK);
    expect_resume_hint("no checkpoint was saved; start again with --checkpoint-every");
    assert_int_equal(mst_make_folders(in("checkpoints/step-000000000007")), MST_OK);
    expect_resume_hint(maybe); /* half written */
    write_text("checkpoints/step-000000000007/manifest.json", "{}", 2);
    expect_resume_hint("resume the run by starting all processes again with --run %s --resume");
    assert_true(mst_run_has_result(path));
    json_object_set_new(manifest, "host", json_string("another.host")); /* a copy, or a run of that name */
    assert_int_equal(mst_run_manifest(run, manifest), MST_OK);
    expect_resume_hint(maybe);
    json_object_set_new(manifest, "host", json_string(host));
    json_object_set_new(manifest, "state", json_string("done")); /* an earlier one */
    assert_int_equal(mst_run_manifest(run, manifest), MST_OK);
    expect_resume_hint(maybe);
    assert_int_equal(mst_remove_tree(in("checkpoints")), MST_OK);
    assert_true(mst_run_has_result(path));
    json_decref(manifest);
    mst_run_destroy(run);
}

/* Every bit of the manifest that options are resumed from: damage is detected, or changes nothing. */
static void test_flipped_bits(void **state)
{
    (void)state;
    mst_run *run = NULL;
    json_t *options = json_pack("{s:{s:f, s:s}, s:[s]}", "options", "lr", 0.1, "mode", "sync", "files", "a"),
           *whole, *loaded, *value;
    const char *key;
    struct stat info;
    assert_int_equal(mst_run_new(path, MST_RUN_NEW, 0, 0 + 1, &run), MST_OK);
    assert_int_equal(mst_run_manifest(run, options), MST_OK);
    mst_run_destroy(run);
    assert_int_equal(mst_run_load_manifest(path, &whole), MST_OK);
    int fd = open(in("manifest.json"), O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    for (off_t i = 0; i < info.st_size * 8; i++) {
        uint8_t byte, damaged;
        assert_int_equal(pread(fd, &byte, 1, i / 8), 1);
        damaged = byte ^ (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &damaged, 1, i / 8), 1);
        if (mst_run_load_manifest(path, &loaded) == MST_OK) { /* the checksum's name is damaged */
            assert_true(json_object_get(loaded, "crc32c") == NULL);
            json_object_foreach(options, key, value)
                assert_true(json_equal(value, json_object_get(loaded, key)));
            json_decref(loaded);
        }
        assert_int_equal(pwrite(fd, &byte, 1, i / 8), 1);
    }
    close(fd);
    assert_int_equal(mst_run_load_manifest(path, &loaded), MST_OK);
    assert_true(json_equal(whole, loaded));
    json_decref(loaded);
    json_decref(whole);
    json_decref(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_new, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resume, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_overwrite, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_early, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_free_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resume_hint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flipped_bits, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
