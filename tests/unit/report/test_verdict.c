/* The verdict on run directories with every kind of bottleneck, and with none; its advice. */
#include "report/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "unit/report/run_fixture.h"
#include "unit/report/test_folder.h"

/* What advice is ordered by: more hardware stands first for 1.5 times the gain only. */
static double order(const mst_advice *a)
{
    return a->hardware ? a->gain / 1.5 : a->gain;
}

static void judge(const fixture_run *run, mst_verdict *out)
{
    mst_run_data *data = NULL;
    assert_int_equal(mst_remove_tree(folder), MST_OK); /* of the run before */
    fixture_write(folder, run);
    assert_int_equal(mst_run_data_new(folder, &data), MST_OK);
    assert_int_equal(mst_verdict_of(data, out), MST_OK);
    mst_run_data_destroy(data);
    double sum = 0;
    for (int k = 0; k < MST_BOTTLENECKS; k++) {
        assert_true(out->shares[k] >= 0 && out->shares[k] <= 1);
        sum += out->shares[k];
    }
    assert_true(sum <= 1.0001);
    for (size_t i = 0; i < out->n_advice; i++) {
        assert_true(out->advice[i].gain >= 1.05 && out->advice[i].gain < 100);
        assert_true(i == 0 || order(&out->advice[i]) <= order(&out->advice[i - 1]));
    }
}

static void is(const mst_verdict *v, mst_bottleneck kind, const char *process)
{
    assert_string_equal(mst_bottleneck_name(v->kind), mst_bottleneck_name(kind));
    assert_string_equal(v->process, process);
    assert_true(v->known);
    assert_true(strlen(v->sentence) > 20);
}

/* The gain that is predicted for the change; 0 when it is not advised. */
static double gain_of(const mst_verdict *v, const char *change)
{
    for (size_t i = 0; i < v->n_advice; i++)
        if (strncmp(v->advice[i].change, change, strlen(change)) == 0)
            return v->advice[i].gain;
    return 0;
}

static void test_compute(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    r.processes[0].cores = 8;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_float_equal(v.shares[MST_BOTTLENECK_COMPUTE], 0.92, 0.01);
    assert_string_equal(v.advice[0].change, "--threads 8");
    r = fixture_job("async");
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_true(gain_of(&v, "--workers 6") > 1.6);
    assert_true(gain_of(&v, "--servers") == 0);
}

static void slow_network(fixture_run *r, double bits)
{
    for (int i = 1; i < r->n; i++) {
        fixture_process *w = &r->processes[i];
        w->compute = 0.15;
        w->prepare = 0.05;
        *(strcmp(r->mode, "async") == 0 ? &w->pull_wait : &w->barrier_wait) = 0.78;
        if (strcmp(r->mode, "async") == 0)
            w->barrier_wait = 0;
        w->cpu = 0.25;
        w->host_cpu = 0.3;
        w->bytes_in = w->bytes_out = 2e6;
    }
    r->processes[0].bytes_in = r->processes[0].bytes_out = 6e6;
    r->processes[0].link_bits = bits;
}

static void test_server_network(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("async");
    slow_network(&r, 50e6); /* 6 MB/s are 48 Mbit/s */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SERVER_NETWORK, "server-0");
    assert_non_null(strstr(v.sentence, "its link of 50 Mbit/s is used 96%"));
    assert_true(gain_of(&v, "--servers 2") > 1.6 && gain_of(&v, "--servers 2") <= 2.05);
    assert_true(gain_of(&v, "--wire bf16") > 1.3);
    r = fixture_job("sync");
    slow_network(&r, 130e6); /* in and out follow each other: 0.74 */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SERVER_NETWORK, "server-0");
    r.processes[0].link_bits = 0; /* no speed is known: by the bytes of a step */
    for (int i = 1; i < r.n; i++)
        r.processes[i].link_bits = 0;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SERVER_NETWORK, "server-0");
    assert_non_null(strstr(v.sentence, "and a step moves"));
}

static void test_worker_network(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("sync");
    slow_network(&r, 1e9);
    r.processes[2].link_bits = 42e6;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "worker-1");
    r = fixture_job("async"); /* no speed is known, one worker waits far longer */
    slow_network(&r, 0);
    for (int i = 1; i < 4; i++)
        r.processes[i].link_bits = 0;
    r.processes[3].steps /= 4;
    r.processes[3].rows /= 4;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "worker-2");
}

static void test_server_cpu(void **state)
{
    (void)state;
    mst_verdict v;
    const char *modes[] = {"sync", "async"};
    for (int i = 0; i < 2; i++) {
        fixture_run r = fixture_job(modes[i]);
        slow_network(&r, 1e9);
        r.processes[0].apply = 0.5;
        r.processes[0].serve = 0.4;
        judge(&r, &v);
        is(&v, MST_BOTTLENECK_SERVER_CPU, "server-0");
        assert_true(gain_of(&v, "--servers 2") > 1.4);
    }
}

static void test_input(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    r.format = "libsvm";
    r.processes[0].read = 0.75;
    r.processes[0].compute = 0.15;
    r.processes[0].prepare = 0.05;
    r.processes[0].barrier_wait = 0;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_INPUT, "");
    assert_true(gain_of(&v, "--cache") > 3);
    assert_non_null(strstr(v.sentence, "waits for rows to be parsed"));
    fixture_run slow = r; /* what parses has nothing to do either */
    slow.processes[0].cpu = 0.5;
    slow.processes[0].host_cpu = 0.6;
    judge(&slow, &v);
    is(&v, MST_BOTTLENECK_INPUT, "");
    assert_non_null(strstr(v.sentence, "waits for rows to be read 7"));
    slow.file = "-";
    slow.processes[0].host_cpu = 2; /* busy with others, which is no reason */
    slow.processes[0].delay = 0.05;
    judge(&slow, &v);
    assert_null(strstr(v.sentence, "Parsing"));
    assert_true(gain_of(&v, "stopping other programs") < 1.2);
    assert_non_null(strstr(v.sentence, "waits for rows from standard input 7"));
    assert_non_null(strstr(v.sentence, "of the time, since the program that writes them is slow."));
    assert_true(gain_of(&v, "--cache") == 0);
    slow.file = "rows.fifo";
    slow.once = true;
    judge(&slow, &v);
    assert_non_null(strstr(v.sentence, "waits for rows from rows.fifo 7"));
    assert_non_null(strstr(v.sentence, "the program that writes them is slow"));
    assert_true(gain_of(&v, "--cache") == 0 && gain_of(&v, "--threads") < 1.2);
    fixture_run job = fixture_job("async"); /* a worker and a server in one process */
    job.workers = 1;
    job.n = 2;
    job.file = "rows.fifo";
    job.once = true;
    job.format = "criteo";
    job.processes[0].host = job.processes[1].host;
    job.processes[0].pid = job.processes[1].pid = 77;
    job.processes[0].thread = true;
    job.processes[1].read = 0.9;
    job.processes[1].compute = job.processes[1].prepare = job.processes[1].barrier_wait = 0.01;
    job.processes[1].cpu = job.processes[1].host_cpu = 0.1;
    judge(&job, &v);
    is(&v, MST_BOTTLENECK_INPUT, "");
    assert_non_null(strstr(v.sentence, "the program that writes them is slow"));
    assert_true(gain_of(&v, "--workers 2") < 1.1); /* workers share the rows of the pipe */
    slow = r;                                      /* the parser is slower than the writer */
    slow.file = "rows.fifo";
    slow.once = true;
    judge(&slow, &v);
    assert_non_null(strstr(v.sentence, "waits for rows from rows.fifo 7"));
    assert_null(strstr(v.sentence, "slow"));
    static const char *const ready[] = {"cache", "idx", "cifar10"}; /* which are not parsed */
    for (size_t i = 0; i < sizeof ready / sizeof *ready; i++) {
        r.format = ready[i];
        judge(&r, &v);
        assert_true(gain_of(&v, "--cache") == 0);
        assert_null(strstr(v.sentence, "pars"));
    }
    r.format = "libsvm"; /* nothing is predicted from a part of a second */
    r.trained = 0.2;
    judge(&r, &v);
    assert_false(v.known);
    assert_int_equal(v.n_advice, 0);
    assert_non_null(strstr(v.sentence, "too short to determine the bottleneck: it trained for 200 ms"));
}

/* Threads that parse take the cores of those that train: without them, CPU time is less and cores are free.
 */
static void test_parsing_takes_cores(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    fixture_process *p = &r.processes[0];
    r.format = "libsvm";
    r.threads = 1;
    p->threads = 1; /* on one of two cores: 0.25 of it trains, 0.75 parses, both want three times as much */
    p->cpu_limit = 1;
    p->cpu = 1;
    p->host_cpu = 1.1;
    p->delay = 2;
    p->read = 0.2;
    p->prepare = 0.05;
    p->compute = 0.7;
    p->push = p->barrier_wait = 0;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_non_null(strstr(v.sentence, "Cores are the bottleneck: threads compute 25% of their time"));
    assert_non_null(strstr(v.sentence, "Parsing uses 0.7"));
    assert_true(gain_of(&v, "--cache") > 3.2 && gain_of(&v, "--cache") < 4);
    assert_true(gain_of(&v, "stopping other programs") == 0 && gain_of(&v, "--threads") == 0);
    fixture_run two = r; /* two threads on one core still take turns, with other programs in between */
    two.threads = 2;
    two.processes[0].threads = 2;
    two.processes[0].read = 0.05;
    two.processes[0].prepare = 0.1;
    two.processes[0].compute = 0;
    two.processes[0].barrier_wait = 0.84;
    two.processes[0].cpu = 0.95;
    judge(&two, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    double quiet = gain_of(&v, "--cache");
    two.processes[0].host_cpu = 1.99;
    judge(&two, &v);
    assert_true(gain_of(&v, "--cache") > 1.3 && gain_of(&v, "--cache") < 0.95 * quiet);
    p->cpu_limit = 0; /* a core is free: what parses takes none */
    p->delay = 0.05;
    judge(&r, &v);
    assert_null(strstr(v.sentence, "Parsing"));
    assert_true(gain_of(&v, "--cache") < 1.35);
}

/* Programs beside the run: without them, it has the cores that it waits for. */
static void test_other_programs(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    fixture_process *p = &r.processes[0];
    p->cpu = 1;
    p->host_cpu = 2;
    p->delay = 0.9;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_string_equal(v.advice[0].change, "stopping other programs on this host");
    assert_non_null(strstr(v.advice[0].text, "use 1.0 of its 2 cores: stop them, or train on another host"));
    assert_true(v.advice[0].gain > 1.6 && v.advice[0].gain < 2.1);
    assert_true(gain_of(&v, "muster launch --hosts FILE --servers 1 --workers 2") > 1.6);
    assert_true(gain_of(&v, "--strategy") == 0);
    r = fixture_local(); /* its own threads use all of it */
    judge(&r, &v);
    assert_true(gain_of(&v, "stopping other programs") == 0);
    assert_string_equal(v.advice[0].change, "muster launch --hosts FILE --servers 1 --workers 2");
    assert_true(v.advice[0].hardware);
    r.file = "-"; /* which no other host can read */
    judge(&r, &v);
    assert_int_equal(v.n_advice, 0);
}

/* Only what happens before the end can happen less often. */
static void test_rarer(void **state)
{
    (void)state;
    static const char *const given[][2] = {
        {"500rows", "--eval-every 2000rows"}, {"1M rows", "--eval-every 4000000rows"},
        {"1 epoch", "--eval-every 4epochs"},  {"0.5s", "--eval-every 2s"},
        {"250", "--eval-every 1000steps"},    {"10 steps", "--eval-every 40steps"},
        {"odd", "--eval-every 1200steps"}, /* by the marks: 6000 steps, 20 of them */
    };
    mst_verdict v;
    fixture_run r = fixture_local();
    r.processes[0].compute = 0.25;
    r.processes[0].evaluate = 0.6;
    r.eval_seconds = 36;
    r.evaluations = 20;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        r.eval_every = given[i][0];
        judge(&r, &v);
        assert_string_equal(v.advice[0].change, given[i][1]);
    }
    double many = v.advice[0].gain; /* 4 of 19 stay, and the last */
    assert_true(many > 1.7 && many < 1.9);
    assert_non_null(strstr(v.advice[0].text, "evaluations and saving included"));
    r.evaluations = 2; /* one of them is the last */
    judge(&r, &v);
    assert_true(gain_of(&v, "--eval-every") == 0);
    r.evaluations = 3; /* one of three stays */
    judge(&r, &v);
    assert_true(gain_of(&v, "--eval-every") > 1.4 && gain_of(&v, "--eval-every") < many);

    r = fixture_local();
    r.processes[0].compute = 0.2;
    r.processes[0].checkpoint = 0.65;
    r.checkpoint_every = "1 epoch";
    r.saves = 1;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_DISK, "");
    assert_true(gain_of(&v, "--checkpoint-every") == 0);
    r.saves = 9; /* two and the last stay */
    judge(&r, &v);
    assert_true(gain_of(&v, "--checkpoint-every 4epochs") > 1.6);
    assert_true(gain_of(&v, "--checkpoint-every 4epochs") < 1.9);
    r.checkpoint_every = "never"; /* by signals */
    judge(&r, &v);
    assert_true(gain_of(&v, "--checkpoint-every") == 0);
}

static void test_disk(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    r.processes[0].read = 0.7; /* all threads wait for rows */
    r.processes[0].compute = 0.2;
    r.processes[0].prepare = 0.05;
    r.processes[0].barrier_wait = 0;
    r.processes[0].cpu = 0.4;
    r.processes[0].host_cpu = 0.4;
    r.processes[0].iowait = 0.9;
    r.processes[0].disk_read = 20e6;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_DISK, "");
    r = fixture_local(); /* a mapped cache: the time shows in computing */
    r.processes[0].cpu = 0.3;
    r.processes[0].host_cpu = 0.3;
    r.processes[0].faults = 400;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_DISK, "");
    r.processes[0].faults = 0; /* a CPU quota looks alike but for the faults */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    r = fixture_local(); /* saving */
    r.processes[0].compute = 0.2;
    r.processes[0].checkpoint = 0.65;
    r.saves = 20;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_DISK, "");
    assert_true(gain_of(&v, "--checkpoint-every 1200steps") > 1.5); /* by the marks */
}

static void test_stragglers(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("sync");
    for (int i = 1; i < 4; i++) {
        r.processes[i].compute = i == 2 ? 0.85 : 0.25;
        r.processes[i].prepare = 0.05;
        r.processes[i].barrier_wait = i == 2 ? 0.05 : 0.65;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_STRAGGLERS, "worker-1");
    assert_true(gain_of(&v, "--mode async") > 1.8);
    assert_true(gain_of(&v, "--quorum 2") > 1.1);
    assert_true(gain_of(&v, "--workers 6") > 1.6 && !v.advice[0].hardware); /* which costs more */
    assert_string_equal(v.advice[0].change, "--mode async");
    fixture_run limited = r; /* it is slow for want of cores, the others do not wait for any */
    limited.processes[2].cpu_limit = limited.processes[2].cpu = 0.4;
    judge(&limited, &v);
    is(&v, MST_BOTTLENECK_STRAGGLERS, "worker-1");
    assert_true(v.shares[MST_BOTTLENECK_CORES] == 0);
    assert_true(v.shares[MST_BOTTLENECK_STRAGGLERS] > 0.6);
    assert_non_null(strstr(v.sentence, "It uses all of its CPU quota."));
    limited.processes[2].compute = 0.35; /* the others wait for its messages rather than for its work */
    limited.processes[2].barrier_wait = 0.55;
    judge(&limited, &v);
    is(&v, MST_BOTTLENECK_STRAGGLERS, "worker-1");
    assert_true(v.shares[MST_BOTTLENECK_STRAGGLERS] > 0.6);
    for (int i = 1; i < 4; i++) /* as all have used theirs, it is no reason to wait for one of them */
        limited.processes[i].cpu_limit = limited.processes[i].cpu;
    judge(&limited, &v);
    assert_true(v.shares[MST_BOTTLENECK_STRAGGLERS] < 0.2);
    fixture_run two = r; /* with two workers the faster one is typical */
    two.n = 3;
    two.workers = 2;
    judge(&two, &v);
    is(&v, MST_BOTTLENECK_STRAGGLERS, "worker-1");
    r.quorum = 2; /* steps do not wait for it */
    judge(&r, &v);
    assert_true(v.kind != MST_BOTTLENECK_STRAGGLERS && v.shares[MST_BOTTLENECK_STRAGGLERS] == 0);
    assert_null(strstr(v.sentence, "wait for it"));
    assert_true(gain_of(&v, "--quorum") == 0);
}

static void test_synchronisation(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("async"); /* tiny steps: round trips */
    for (int i = 1; i < 4; i++) {
        r.processes[i].compute = 0.1;
        r.processes[i].prepare = 0.05;
        r.processes[i].barrier_wait = 0;
        r.processes[i].pull_wait = 0.8;
        r.processes[i].steps = 2000;
        r.processes[i].rows = 20000;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_true(gain_of(&v, "--batch 400") > 2);
    assert_true(gain_of(&v, "--pipeline") > 1.1);
    r = fixture_local(); /* threads wait for each other */
    r.processes[0].compute = 0.25;
    r.processes[0].barrier_wait = 0.6;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_non_null(strstr(v.sentence, "1 of the 2 threads would do"));
    r.processes[0].threads = r.threads = 8; /* one of them takes the rows of a step, the others wait for it */
    r.processes[0].cores = 8;
    r.processes[0].cpu = r.processes[0].host_cpu = 0.4;
    r.processes[0].prepare = 0;
    r.processes[0].compute = 0.05;
    r.processes[0].read = 0.11;
    r.processes[0].barrier_wait = 0.8;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_INPUT, "");
    assert_true(v.shares[MST_BOTTLENECK_INPUT] > 0.8);
    assert_float_equal(gain_of(&v, "--batch"), 0, 0);
}

/* The threads that the verdict finds enough, of n that wait for each other `wait` of the time; *alone: the
 * part of a step in which one thread works at worst, and the others wait. */
static double enough_threads(int n, double wait, double *alone)
{
    mst_verdict v;
    fixture_run r = fixture_local();
    r.threads = n;
    r.processes[0].threads = n;
    r.processes[0].cores = 2 * n; /* none of the waits is for a core */
    r.processes[0].cpu = r.processes[0].host_cpu = n * (1 - wait);
    r.processes[0].prepare = r.processes[0].read = 0;
    r.processes[0].compute = 1 - wait;
    r.processes[0].barrier_wait = wait;
    judge(&r, &v);
    *alone =
        v.shares[MST_BOTTLENECK_SYNCHRONISATION] / (1 - v.shares[MST_BOTTLENECK_EVALUATION]) * n / (n - 1);
    assert_true(fabs(*alone - wait * n / (n - 1)) < 0.05);
    for (size_t i = 0; i < v.n_evidence; i++)
        if (strcmp(v.evidence[i].unit, "threads") == 0) {
            assert_non_null(strstr(v.sentence, "threads would do: the others add at most a tenth"));
            return v.evidence[i].value;
        }
    assert_null(strstr(v.sentence, "threads would do"));
    return n;
}

/* m threads take alone + (1 - alone) n / m of the present time of a step: at most 1.1. */
static void test_spare_threads(void **state)
{
    (void)state;
    double alone;
    assert_true(enough_threads(2, 0.1, &alone) == 2);
    assert_true(enough_threads(2, 0.3, &alone) == 2);
    assert_true(enough_threads(2, 0.48, &alone) == 1);
    assert_true(enough_threads(16, 0.02, &alone) >= 15);
    static const int threads[] = {4, 8, 16};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        for (double part = 0.1; part < 1; part += 0.1) {
            double n = threads[i], m = enough_threads(threads[i], part * (n - 1) / n, &alone);
            assert_true(m == n || alone + (1 - alone) * n / m <= 1.1 + 1e-3);
            assert_true(m == 1 || alone + (1 - alone) * n / (m - 1) > 1.1 - 1e-3);
        }
}

/* 16 threads on 2 cores compute 0.04 of their time, which is 0.64 cores, and wait for each other, because the
 * threads that they wait for have no core: two threads would compute these rows in 0.32 of the time. */
static void test_more_threads_than_cores(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    fixture_process *p = &r.processes[0];
    r.threads = 16;
    p->threads = 16;
    p->cores = p->cpu = p->host_cpu = 2;
    p->delay = 13;
    p->prepare = p->read = p->push = 0;
    p->compute = 0.04;
    p->barrier_wait = 0.96;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_non_null(strstr(v.sentence, "2 of the 16 threads would do: the process has 2 cores"));
    assert_string_equal(v.advice[0].change, "--threads 2");
    assert_true(v.advice[0].gain > 2.5 && v.advice[0].gain < 3.5);
    assert_float_equal(gain_of(&v, "muster launch"), 0, 0);
    p->cpu = p->host_cpu = 1.2; /* most threads sleep at the barrier */
    p->delay = 0.5;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_non_null(strstr(v.sentence, "2 of the 16 threads would do: the process has 2 cores"));
    assert_string_equal(v.advice[0].change, "--threads 2");
    assert_true(v.advice[0].gain > 1.5 && v.advice[0].gain < 3.5);
    p->cpu = p->host_cpu = 2;
    p->delay = 13;
    p->compute = 1; /* threads without a barrier: fewer are as fast */
    p->barrier_wait = 0;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_non_null(strstr(v.sentence, "2 of the 16 threads would do"));
    assert_float_equal(gain_of(&v, "--threads"), 0, 0);
    assert_float_equal(gain_of(&v, "muster launch"), 0, 0);
    r.threads = 2; /* one thread for each core: only more hosts help */
    p->threads = 2;
    p->delay = 0.01;
    judge(&r, &v);
    assert_null(strstr(v.sentence, "would do"));
    assert_true(gain_of(&v, "muster launch") > 1.5);
}

/* The manifest has the number of threads beyond which more are slower. */
static void test_threads_of_small_batches(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    fixture_process *p = &r.processes[0];
    p->cores = 8;
    r.entries = "\"threads_most\": 4, ";
    judge(&r, &v);
    assert_string_equal(v.advice[0].change, "--threads 4");
    r.entries = "\"threads_most\": 1, ";
    r.threads = 1;
    p->threads = 1;
    judge(&r, &v);
    assert_float_equal(gain_of(&v, "--threads"), 0, 0);
    assert_float_equal(gain_of(&v, "muster launch"), 0, 0); /* 7 cores are free */
    assert_null(strstr(v.sentence, "would do"));
    r.threads = 2;
    p->threads = 2;
    p->prepare = p->read = p->push = 0;
    p->compute = 0.1;
    p->barrier_wait = 0.9;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_non_null(
        strstr(v.sentence, "1 of the 2 threads would do: with batches of 100 rows, more are slower"));
    assert_string_equal(v.advice[0].change, "--threads 1");
    assert_true(v.advice[0].gain > 4 && v.advice[0].gain < 6); /* all the work on one core */
}

/* Other programs saturate the host. The server is stopped for most of the time, in which it is neither
 * running nor runnable: the waits of the workers are not for cores. */
static void test_stopped_server(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("async");
    for (int i = 0; i < 4; i++) {
        fixture_process *p = &r.processes[i];
        p->host = "one";
        p->cores = p->host_cpu = 2;
        p->cpu = 0.02;
        p->delay = i == 0 ? 0.02 : 0.15;
        p->apply = p->serve = i == 0 ? 0.01 : 0;
        p->compute = i == 0 ? 0 : 0.05;
        p->prepare = p->barrier_wait = 0;
        p->pull_wait = i == 0 ? 0 : 0.9;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_true(v.shares[MST_BOTTLENECK_CORES] < 0.25);
    r.processes[0].delay = 0.9; /* it is runnable all that time */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_true(v.shares[MST_BOTTLENECK_CORES] > 0.7);
}

/* A server that polls while it waits uses a whole core, however little it works. */
static void test_busy_poll(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("async");
    r.processes[0].cpu = 1;
    r.processes[0].apply = r.processes[0].serve = 0.05;
    for (int i = 1; i < 4; i++) {
        r.processes[i].compute = 0.25;
        r.processes[i].barrier_wait = 0;
        r.processes[i].pull_wait = 0.7;
        r.processes[i].cpu = 1;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SERVER_CPU, "server-0"); /* its CPU time is work */
    r.busy_poll = 200;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_true(v.shares[MST_BOTTLENECK_SERVER_CPU] < 0.2);
}

static void test_evaluation(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_local();
    r.processes[0].compute = 0.25;
    r.processes[0].evaluate = 0.6;
    r.eval_seconds = 38;
    r.evaluations = 40;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_EVALUATION, "");
    assert_true(gain_of(&v, "--eval-every") > 1.7 && gain_of(&v, "--eval-every") < 2.1);
    r.processes[0].compute = 0.7; /* files that overlap: evaluation keeps its part of the wall time */
    judge(&r, &v);
    assert_true(v.shares[MST_BOTTLENECK_EVALUATION] >= 38 / 60.5);
    r = fixture_job("sync");
    r.processes[1].evaluate = 0.9; /* by a thread beside the one that trains */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_float_equal(v.shares[MST_BOTTLENECK_COMPUTE], 0.92, 0.02);
    assert_true(v.shares[MST_BOTTLENECK_STRAGGLERS] == 0);
}

/* Recoveries and repeated training are a part of the wall time beside the shares. */
static void test_losses(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("sync");
    r.entries = "\"losses\": [{\"step\": 0, \"steps\": 40, \"rows\": 400, \"train_seconds\": 0.25, "
                "\"recovery_seconds\": 0.25}, {\"step\": 90, \"steps\": 9, \"rows\": 90, \"server\": 1, "
                "\"train_seconds\": 9.5, \"recovery_seconds\": 0.5}], ";
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_null(strstr(v.sentence, "Losses"));
    assert_string_equal(v.evidence[v.n_evidence - 1].what, "time of training that was repeated");
    assert_float_equal(v.evidence[v.n_evidence - 1].value, 0.25, 1e-9); /* that of a share is not lost */
    assert_float_equal(v.evidence[v.n_evidence - 2].value, 0.75, 1e-9);
    assert_float_equal(v.evidence[v.n_evidence - 3].value, 1.0 / (r.seconds + 1.5), 1e-6);
    r.entries = "\"losses\": [{\"step\": 40, \"steps\": 40, \"rows\": 400, \"train_seconds\": 10, "
                "\"recovery_seconds\": 16}], ";
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_non_null(strstr(v.sentence, "Losses of processes took 30% of the wall time: 16 s of recovery, and "
                                       "10 s of training that was repeated."));
}

static void test_balanced(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("sync");
    for (int i = 1; i < 4; i++) {
        fixture_process *w = &r.processes[i];
        w->compute = 0.33;
        w->prepare = 0.02;
        w->read = 0.3;
        w->barrier_wait = 0.33;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_NONE, "");
    assert_non_null(strstr(v.sentence, "Nothing dominates"));
}

/* All on one host: whose the cores are decides what waits mean. */
static void test_one_host(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("async");
    for (int i = 0; i < 4; i++) {
        fixture_process *p = &r.processes[i];
        p->host = "a";
        p->host_cpu = 2;
        p->link_bits = 0;
        if (i == 0)
            continue;
        p->compute = 0.3;
        p->barrier_wait = 0;
        p->pull_wait = 0.5;
        p->cpu = 0.6;
        p->bytes_in = p->bytes_out = 1e6;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    /* What a worker spends computing is what the table of phases beside the sentence shows; waits stay waits.
     */
    const fixture_process *w = &r.processes[1];
    double own = w->prepare + w->compute + w->push;
    assert_float_equal(v.shares[MST_BOTTLENECK_COMPUTE], own, 0.01);
    assert_true(v.shares[MST_BOTTLENECK_CORES] > 0.2 && v.shares[MST_BOTTLENECK_CORES] <= 0.501);
    char words[80];
    snprintf(words, sizeof words, "workers compute %.0f%% of their time", 100 * own);
    assert_non_null(strstr(v.sentence, words));
    snprintf(words, sizeof words, "wait for a core %.0f%%", 100 * v.shares[MST_BOTTLENECK_CORES]);
    assert_non_null(strstr(v.sentence, words));
    for (int i = 1; i < 4; i++)
        r.processes[i].cpu = 0.2; /* others are there */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_non_null(strstr(v.sentence, "Other programs use 1.3 of the 2 cores"));
    assert_non_null(strstr(v.sentence, "wait for a core"));
    for (size_t i = 0; i < v.n_advice; i++)
        if (strncmp(v.advice[i].change, "--workers", 9) == 0)
            assert_string_equal(v.advice[i].change, "--workers 6, the new ones on other hosts");
    r = fixture_local(); /* half of the cores are others', which share them evenly: 2 or 8 of 12 threads */
    r.processes[0].cores = 8;
    r.processes[0].host_cpu = 5.9;
    r.processes[0].barrier_wait = 0;
    judge(&r, &v);
    double busy = gain_of(&v, "--threads 8");
    assert_true(busy > 2.2 && busy < 2.7);
    assert_non_null(strstr(v.advice[0].text, "assumes that other programs keep 4.0 cores busy"));
    r.processes[0].host_cpu = 1.9;
    judge(&r, &v);
    assert_true(gain_of(&v, "--threads 8") > 1.3 * busy);
    assert_null(strstr(v.advice[0].text, "assumes"));
}

/* Workers on other hosts than the server, one beside it. */
static fixture_run far_job(const char *mode, const char *path)
{
    fixture_run r = fixture_job(mode);
    for (int i = 1; i < 4; i++) {
        fixture_process *w = &r.processes[i];
        w->host = i == 1 ? r.processes[0].host : w->host;
        w->paths = i == 1 ? NULL : path;
        w->link_bits = i == 1 ? 1e10 : 1.8e9; /* the system's figure, and the path's */
        w->compute = w->prepare = w->push = 0.03;
        w->barrier_wait = w->pull_wait = 0;
        *(strcmp(mode, "sync") == 0 ? &w->barrier_wait : &w->pull_wait) = 0.85;
        w->steps = 600;
        w->rows = 60000;
        w->bytes_in = w->bytes_out = 3e6;
        w->cpu = 0.1;
        w->host_cpu = 0.2;
    }
    r.processes[0].paths = "[{\"to\": \"worker-1\", \"bits_per_s\": 1800000000, \"round_trip_s\": 0.001}]";
    r.processes[0].bytes_in = r.processes[0].bytes_out = 6e6;
    r.processes[0].cpu = r.processes[0].apply = r.processes[0].serve = 0.05;
    r.processes[0].link_bits = 35e9; /* of a connection that does not leave the host */
    return r;
}

static void test_paths(void **state)
{
    (void)state;
    mst_verdict v;
    static const char *const near = "[{\"to\": \"server-0\", \"bits_per_s\": 1800000000, "
                                    "\"round_trip_s\": 0.001}]",
                             *const slow = "[{\"to\": \"server-0\", \"bits_per_s\": 60000000, "
                                           "\"round_trip_s\": 0.0001}]",
                             *const less = "[{\"to\": \"server-0\", \"bits_per_s\": 18000000, "
                                           "\"round_trip_s\": 0.0001}]",
                             *const far = "[{\"to\": \"server-0\", \"bits_per_s\": 60000000, "
                                          "\"round_trip_s\": 0.022}]",
                             *const more = "[{\"to\": \"server-0\", \"bits_per_s\": 200000000, "
                                           "\"round_trip_s\": 0.0001}]";
    fixture_run r = far_job("sync", near); /* 600 steps/s with round trips of 1 ms */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_LATENCY, "worker-1");
    assert_float_equal(v.shares[MST_BOTTLENECK_LATENCY], 0.6, 0.05);
    assert_non_null(strstr(v.sentence, "round trips of up to 1 ms"));
    assert_true(gain_of(&v, "--wire") == 0);
    double sync_gain = gain_of(&v, "--mode async"); /* the worker beside the server has no round trips */
    assert_true(sync_gain > 2);
    r = far_job("async", near);
    r.processes[2].steps = r.processes[3].steps = 750;
    r.processes[1].steps = 6000; /* it computes instead */
    r.processes[1].rows = 600000;
    r.processes[1].compute = 0.8;
    r.processes[1].pull_wait = 0.1;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_LATENCY, "worker-1");
    assert_true(gain_of(&v, "--pipeline 2") > 1.1);
    r = far_job("sync", near); /* bytes, not their distance */
    for (int i = 1; i < 4; i++) {
        r.processes[i].steps = 20;
        r.processes[i].bytes_in = r.processes[i].bytes_out = 4.4e7;
    }
    r.processes[0].bytes_in = r.processes[0].bytes_out = 8.8e7;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SERVER_NETWORK, "server-0");
    assert_non_null(strstr(v.sentence, "its link of 1.8 Gbit/s is used 78%"));
    r = far_job("sync", near); /* the path to one worker is slow */
    r.processes[3].paths = slow;
    for (int i = 1; i < 4; i++)
        r.processes[i].steps = 20;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "worker-2");
    r.entries = "\"workers\": [{\"worker\": 1}, {\"worker\": 2, \"held_seconds\": 45}], ";
    r.processes[3].paths = less; /* it carries more than was measured before training; steps wait for it */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "worker-2");
    r.processes[3].paths = more; /* the measurement was too high; other links are still faster */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "worker-2");
    r.processes[3].paths = far; /* steps wait for its round trips of 22 ms rather than for its bytes */
    r.processes[3].bytes_in = r.processes[3].bytes_out = 1e6;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_LATENCY, "worker-2");
    r.processes[3].paths = near; /* its link is like the others': it is slow itself */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_STRAGGLERS, "worker-2");
    r = far_job("sync", near); /* the only worker on another host, whose bytes the other one waits for */
    r.n = 3;
    r.workers = 2;
    r.entries = "\"workers\": [{\"worker\": 0}, {\"worker\": 1, \"held_seconds\": 50}], ";
    for (int i = 0; i < 3; i++) {
        r.processes[i].steps = i > 0 ? 20 : 0;
        r.processes[i].bytes_in = r.processes[i].bytes_out = 8.8e7;
    }
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SERVER_NETWORK, "server-0");
    r = far_job("sync", near); /* neither bytes nor distance explain the waits */
    for (int i = 1; i < 4; i++)
        r.processes[i].steps = 20;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_non_null(strstr(v.sentence, "Waiting for others"));
}

/* A run of an older muster: the manifest's workers are what there is. */
/* Every worker hosts a share of the model: its server has no resources of its own, and the link of its host
 * carries the messages of both. */
static fixture_run hosted_job(double bytes)
{
    static const char *const names[] = {"server-0", "server-1", "server-2"}, *const workers[] = {"worker-0",
                                                                                                 "worker-1",
                                                                                                 "worker-2"};
    fixture_run r = {
        .strategy = "ps", .mode = "sync", .servers = 3, .workers = 3, .batch = 100, .seconds = 60, .n = 6};
    for (int i = 0; i < 3; i++) {
        static const char *const to_servers = "[{\"to\": \"server-0\", \"bits_per_s\": 800000000, "
                                              "\"round_trip_s\": 0.002}, {\"to\": \"server-1\", "
                                              "\"bits_per_s\": 800000000, \"round_trip_s\": 0.002}, "
                                              "{\"to\": \"server-2\", \"bits_per_s\": 800000000, "
                                              "\"round_trip_s\": 0.002}]";
        static const char *const to_workers = "[{\"to\": \"worker-0\", \"bits_per_s\": 800000000, "
                                              "\"round_trip_s\": 0.002}, {\"to\": \"worker-1\", "
                                              "\"bits_per_s\": 800000000, \"round_trip_s\": 0.002}, "
                                              "{\"to\": \"worker-2\", \"bits_per_s\": 800000000, "
                                              "\"round_trip_s\": 0.002}]";
        fixture_process *s = &r.processes[i], *w = &r.processes[3 + i];
        *s = fixture_server(names[i]);
        *w = fixture_worker(workers[i]);
        s->host = w->host;
        s->thread = true;
        s->paths = to_workers;
        w->paths = to_servers;
        w->compute = w->prepare = w->push = 0.03;
        w->barrier_wait = 0.9;
        w->steps = 400;
        w->bytes_in = w->bytes_out = s->bytes_in = s->bytes_out = bytes;
        w->net_in = w->net_out = 2 * bytes * 2 / 3; /* two of three messages leave the host, as either */
        w->cpu = 0.1;
        w->host_cpu = 0.2;
    }
    return r;
}

static void test_hosted(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = hosted_job(5e6);
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_LATENCY, "worker-0");
    assert_true(v.shares[MST_BOTTLENECK_SERVER_NETWORK] < 0.1 &&
                v.shares[MST_BOTTLENECK_WORKER_NETWORK] == 0);
    assert_non_null(strstr(v.sentence, "the busiest link is used 6"));
    assert_true(gain_of(&v, "--mode async") > 1 && gain_of(&v, "--servers") == 0);
    r.entries = "\"cluster\": {\"given_strategy\": \"allreduce\"}, ";
    judge(&r, &v); /* ranks have no other mode */
    assert_true(gain_of(&v, "--mode") == 0 && gain_of(&v, "--quorum") == 0 && gain_of(&v, "--batch") > 1);
    r = hosted_job(6e7);
    for (int i = 3; i < 6; i++)
        r.processes[i].steps = 40;
    judge(&r, &v);
    assert_int_equal(v.kind, MST_BOTTLENECK_SERVER_NETWORK);
    assert_true(gain_of(&v, "--servers") == 0 && gain_of(&v, "--wire bf16") > 1.3);
}

static void test_manifest_only(void **state)
{
    (void)state;
    mst_verdict v;
    mst_run_data *data = NULL;
    FILE *f = fixture_open(folder, "manifest.json");
    fprintf(f,
            "{\"state\": \"done\", \"options\": {\"strategy\": {\"strategy\": \"ps\", \"mode\": \"async\"}}, "
            "\"progress\": {\"train_seconds\": 10, \"eval_seconds\": 0}, \"workers\": [{\"steps\": 100, "
            "\"rows\": "
            "10000, \"compute_seconds\": 8.5, \"wait_seconds\": 1, \"input_seconds\": 0.5}]}");
    fclose(f);
    assert_int_equal(mst_run_data_new(folder, &data), MST_OK);
    assert_int_equal(mst_verdict_of(data, &v), MST_OK);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    mst_run_data_destroy(data);
    f = fixture_open(folder, "manifest.json");
    fprintf(f, "{\"state\": \"running\"}");
    fclose(f);
    assert_int_equal(mst_run_data_new(folder, &data), MST_OK);
    assert_int_equal(mst_verdict_of(data, &v), MST_OK);
    assert_false(v.known);
    assert_int_equal(v.kind, MST_BOTTLENECK_NONE);
    assert_non_null(strstr(v.sentence, "too early"));
    mst_run_data_destroy(data);
    f = fixture_open(folder, "manifest.json"); /* waits, and nothing that tells for what */
    fprintf(f,
            "{\"state\": \"done\", \"options\": {\"strategy\": {\"strategy\": \"ps\", \"mode\": \"sync\"}}, "
            "\"progress\": {\"train_seconds\": 10}, \"workers\": [{\"steps\": 100, \"rows\": 10000, "
            "\"compute_seconds\": 2, \"wait_seconds\": 7.9}]}");
    fclose(f);
    assert_int_equal(mst_run_data_new(folder, &data), MST_OK);
    assert_int_equal(data->warnings.n, 2);
    assert_non_null(strstr(data->warnings.items[0], "no metrics.csv"));
    assert_non_null(strstr(data->warnings.items[1], "no processes/"));
    assert_int_equal(mst_verdict_of(data, &v), MST_OK);
    assert_false(v.known);
    assert_non_null(strstr(v.sentence, "wait 79% of their time"));
    mst_run_data_destroy(data);
}

/* The ranks of r wait so much of their time; what is left of it they compute. */
static void ranks_wait(fixture_run *r, double share)
{
    for (int i = 0; i < r->n; i++) {
        fixture_process *p = &r->processes[i];
        p->read = p->prepare = p->pull_wait = p->push = p->apply = 0;
        p->compute = 0.97 - share;
        p->barrier_wait = share;
        p->cpu = 1 - share;
        p->host_cpu = 1.1 - share;
    }
}

static void test_ranks(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_ranks();
    ranks_wait(&r, 0.1);
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_non_null(strstr(v.sentence, "of a rank's time; the CPU of the host of rank-"));
    assert_true(gain_of(&v, "mpirun -n 6") > 1.5);
    assert_true(gain_of(&v, "--workers") == 0 && gain_of(&v, "--mode") == 0 && gain_of(&v, "--servers") == 0);
    r.launcher = "srun --mpi=pmix";
    judge(&r, &v);
    assert_true(gain_of(&v, "srun -n 6") > 1.5);
    r.launcher = "muster launch --mpi";
    r.global_batch = 300; /* which more ranks share */
    judge(&r, &v);
    assert_true(gain_of(&v, "muster launch --mpi --ranks 6") > 1.5);

    r = fixture_ranks();
    ranks_wait(&r, 0.7); /* two of them, for the third */
    r.processes[2].compute = 0.9;
    r.processes[2].barrier_wait = 0.07;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_STRAGGLERS, "rank-2");
    assert_non_null(strstr(v.sentence, "the median rank's"));

    r = fixture_ranks(); /* on hosts of their own */
    ranks_wait(&r, 0.8);
    for (int i = 0; i < r.n; i++)
        r.processes[i].bytes_in = r.processes[i].bytes_out = 4e6;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "");
    assert_non_null(strstr(v.sentence, "The network at the ranks is the bottleneck: ranks wait 80%"));
    assert_true(gain_of(&v, "--wire bf16") > 1.3);
    r.processes[1].link_bits = 70e6; /* 8 MB/s are 64 Mbit/s */
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_WORKER_NETWORK, "rank-1");

    r = fixture_ranks(); /* on one host, there is no network to wait for */
    ranks_wait(&r, 0.8);
    for (int i = 0; i < r.n; i++) {
        r.processes[i].bytes_in = r.processes[i].bytes_out = 4e6;
        r.processes[i].host = "a";
        r.processes[i].cores = 8;
    }
    r.global_batch = 300;
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_SYNCHRONISATION, "");
    assert_non_null(strstr(v.sentence, "of a rank's time"));
    assert_true(gain_of(&v, "--global-batch 1200") > 1.5);
}

/* Servers and workers that are ranks of an MPI job: the advice names the option of the launcher. */
static void test_ps_ranks(void **state)
{
    (void)state;
    mst_verdict v;
    fixture_run r = fixture_job("async");
    r.launcher = "mpiexec (MPICH)";
    judge(&r, &v);
    is(&v, MST_BOTTLENECK_COMPUTE, "");
    assert_true(gain_of(&v, "mpiexec -n 7") > 1.6);
    slow_network(&r, 50e6);
    judge(&r, &v);
    assert_true(gain_of(&v, "--servers 2 and mpiexec -n 5") > 1.2);
}

static void test_write(void **state)
{
    (void)state;
    fixture_run r = fixture_local();
    mst_run_data *data = NULL;
    fixture_write(folder, &r);
    assert_int_equal(mst_verdict_write(folder), MST_OK);
    assert_int_equal(mst_run_data_new(folder, &data), MST_OK);
    assert_non_null(data->verdict);
    assert_string_equal(json_string_value(json_object_get(data->verdict, "bottleneck")), "compute");
    assert_true(json_array_size(json_object_get(data->verdict, "evidence")) > 3);
    assert_true(json_is_object(json_object_get(data->verdict, "shares")));
    assert_true(json_is_array(json_object_get(data->verdict, "advice")));
    mst_run_data_destroy(data);
    assert_int_equal(mst_verdict_write("/nowhere/at-all"), MST_EINPUT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_compute),
        TEST(test_server_network),
        TEST(test_worker_network),
        TEST(test_server_cpu),
        TEST(test_input),
        TEST(test_disk),
        TEST(test_stragglers),
        TEST(test_synchronisation),
        TEST(test_spare_threads),
        TEST(test_more_threads_than_cores),
        TEST(test_threads_of_small_batches),
        TEST(test_stopped_server),
        TEST(test_busy_poll),
        TEST(test_evaluation),
        TEST(test_losses),
        TEST(test_balanced),
        TEST(test_manifest_only),
        TEST(test_one_host),
        TEST(test_paths),
        TEST(test_hosted),
        TEST(test_ranks),
        TEST(test_ps_ranks),
        TEST(test_parsing_takes_cores),
        TEST(test_other_programs),
        TEST(test_rarer),
        TEST(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
