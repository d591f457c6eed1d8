/* The parameter server stopped and resumed: a synchronous run equals the undisturbed one, bit for bit with
 * any number of servers and to rounding with any number of workers that share the same batches; an
 * asynchronous run trains on the remaining rows once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_trial.h"

#define N_ROWS   650
#define FEATURES 3000
#define SINGLES  997
#define LR       0.0078125

static int make_data(void **state)
{
    static char text[32 * SINGLES];
    size_t n = 0;
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("clicks.cache", N_ROWS, 0, FEATURES);
    for (int i = 0; i < SINGLES; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d %d:1\n", i % 3 == 0, i);
    trial_write("single.libsvm", text);
    return 0;
}

typedef struct kind {
    const char *model, *optimizer;
} kind;

static const kind kinds[] = {
    {"logreg", "adam"}, {"logreg", "ftrl"}, {"softmax", "adagrad"}, {"logreg", "sgd"}, {"fm", "rowwise"}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A step has 60 rows for any number of workers; an epoch has 11 steps, the last of 50 rows. */
static void begin(trial *t, const kind *k, const char *run, int servers, int workers)
{
    job_init(t, "clicks.cache", run, servers, workers);
    trial_int(t, "features", FEATURES);
    trial_set(t, "model", k->model);
    trial_set(t, "classes", "2");
    trial_set(t, "optimizer", k->optimizer);
    trial_set(t, "lr", "0.02");
    trial_set(t, "l2", "0.001");
    trial_set(t, "eps", "0.001");
    trial_set(t, "warmup", "15");
    trial_set(t, "batch", "20");
    trial_set(t, "global-batch", "60");
    trial_set(t, "shuffle-rows", "100");
    trial_set(t, "epochs", "3");
    trial_set(t, "stall-timeout", "20");
}

/* Stops a run when it has got to a step, give or take what is under way; tells where it stopped. */
static uint64_t stopped_run(const kind *k, int servers, uint64_t step)
{
    trial t;
    assert_int_equal(mst_remove_tree(trial_path("parts")), MST_OK);
    begin(&t, k, "parts", servers, 3);
    t.stop_at = step;
    job_must_run(&t, NULL);
    uint64_t at = t.summary.status.step;
    if (t.summary.end != MST_END_STOPPED) /* it was done by then */
        assert_int_equal(at, 33);
    else
        assert_in_range(at, step, 33);
    trial_fini(&t);
    return at;
}

static void sync_goes_on(void **state)
{
    static const struct {
        int servers, workers;
    } later[] = {{2, 3}, {1, 3}, {3, 3}, {2, 2}, {2, 4}, {1, 1}};
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        trial t;
        trained whole, r;
        unsigned early = 0;
        begin(&t, &kinds[k], NULL, 2, 3);
        job_train(&t, &whole);
        assert_int_equal(t.summary.status.step, 33);
        trial_fini(&t);
        for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
            early += stopped_run(&kinds[k], 2, 1 + 5 * i) < 33;
            begin(&t, &kinds[k], "parts", later[i].servers, later[i].workers);
            trial_set(&t, "resume", "true");
            job_train(&t, &r);
            assert_int_equal(t.summary.end, MST_END_EPOCHS);
            assert_int_equal(t.summary.status.step, 33);
            assert_int_equal(t.summary.status.rows, 3 * N_ROWS);
            if (later[i].workers == 3)
                assert_true(params_same_bits(&whole.assembly.params, &r.assembly.params));
            else
                assert_true(params_distance(&whole.assembly.params, &r.assembly.params) < 1e-4);
            trained_fini(&r);
            trial_fini(&t);
        }
        assert_true(early > 0); /* of all these, some were stopped on the way */
        trained_fini(&whole);
    }
}

/* Adam without memory counts the steps in which a row was; see test_ps_rows.c. */
static void begin_singles(trial *t, const char *mode, int servers, int workers)
{
    job_init(t, "single.libsvm", "singles", servers, workers);
    trial_int(t, "features", SINGLES);
    trial_set(t, "index-base", "0");
    trial_set(t, "cache", "true");
    trial_set(t, "cache-folder", trial_path("caches"));
    trial_set(t, "bias", "false");
    trial_set(t, "optimizer", "adam");
    trial_set(t, "beta1", "0");
    trial_set(t, "beta2", "0");
    trial_set(t, "eps", "1e-12");
    trial_set(t, "lr", "0.0078125");
    trial_set(t, "shuffle-rows", "150");
    trial_set(t, "mode", mode);
    trial_set(t, "batch", "5");
    trial_set(t, "epochs", "2");
    trial_set(t, "stall-timeout", "20");
}

/* How often a row was used, least and most, and all uses. */
static uint64_t count_uses(const trained *r, int *least, int *most)
{
    uint64_t uses = 0;
    *least = 1 << 30;
    *most = 0;
    for (int i = 0; i < SINGLES; i++) {
        double times = (double)r->assembly.params.w[i] / (i % 3 == 0 ? LR : -LR);
        int whole = (int)lround(times);
        assert_true(fabs(times - whole) < 0.01);
        *least = whole < *least ? whole : *least;
        *most = whole > *most ? whole : *most;
        uses += (uint64_t)whole;
    }
    return uses;
}

static void rows_are_used_once_all_the_same(void **state)
{
    static const char *const modes[] = {"async", "ssp", "sync"};
    int stopped = 0;
    (void)state;
    for (int mode = 0; mode < 3; mode++)
        for (int servers = 1; servers <= 3; servers++) {
            trial t;
            trained r;
            int least, most;
            assert_int_equal(mst_remove_tree(trial_path("singles")), MST_OK);
            for (uint64_t part = 0; part < 4; part++) {
                begin_singles(&t, modes[mode], 1 + (servers + (int)part) % 3,
                              1 + (servers + (int)part * 2) % 4);
                if (part > 0)
                    trial_set(&t, "resume", "true");
                t.stop_at = part < 3 ? 40 * (part + 1) : 0;
                job_train(&t, &r);
                bool over = t.summary.end == MST_END_EPOCHS;
                uint64_t uses = count_uses(&r, &least, &most);
                assert_int_equal(uses, t.summary.status.rows); /* whatever is saved is consistent */
                stopped += !over;
                if (over && (least != 2 || most != 2))
                    print_error("%s, part %llu: rows were used %d to %d times\n", modes[mode],
                                (unsigned long long)part, least, most);
                if (over)
                    assert_true(least == 2 && most == 2);
                trained_fini(&r);
                trial_fini(&t);
                if (over)
                    break;
                assert_true(part < 3);
            }
        }
    assert_true(stopped > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_goes_on),
        cmocka_unit_test(rows_are_used_once_all_the_same),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
