/* Option tables: notations, checks and their sentences, precedence of sources, YAML, help, manifest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/option.h"

typedef struct train_options {
    int64_t batch, rows;
    double lr;
    bool shuffle, quiet;
    char *name, *note;
    int mode, optimizer;
    mst_text_list data;
} train_options;

typedef struct eval_options {
    int64_t every;
    double rate;
} eval_options;

#define FIELD(name) offsetof(train_options, name)
static const mst_option train_table[] = {
    {.name = "batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(batch),
     .fallback = "100",
     .min = 1,
     .max = 1e6,
     .help = "Rows per step and worker."},
    {.name = "rows", .type = MST_OPTION_INT, .offset = FIELD(rows), .help = "Stop after N rows."},
    {.name = "lr",
     .type = MST_OPTION_REAL,
     .offset = FIELD(lr),
     .fallback = "0.01",
     .min = 1e-9,
     .max = 1e308,
     .help = "Learning rate."},
    {.name = "shuffle",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(shuffle),
     .fallback = "true",
     .help = "Change the order of rows."},
    {.name = "quiet", .type = MST_OPTION_FLAG, .offset = FIELD(quiet), .help = "Print nothing."},
    {.name = "name",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(name),
     .metavar = "NAME",
     .help = "Name of the run."},
    {.name = "note",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(note),
     .fallback = "none",
     .help = "A remark that is kept with the run and is long enough that its help has to be wrapped over "
             "several lines, each of which starts in the same column as the first one does."},
    {.name = "mode",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(mode),
     .fallback = "sync",
     .choices = "sync|async",
     .help = "How threads meet."},
    {.name = "optimizer",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(optimizer),
     .fallback = "sgd",
     .choices = "sgd|momentum|adagrad|adam|ftrl",
     .help = "Rule."},
    {.name = "data",
     .type = MST_OPTION_LIST,
     .offset = FIELD(data),
     .fallback = "train.txt",
     .help = "Files."},
    {.name = NULL},
};
static const mst_option eval_table[] = {
    {.name = "eval-every",
     .type = MST_OPTION_INT,
     .offset = offsetof(eval_options, every),
     .fallback = "0",
     .min = 0,
     .max = 0x1p63,
     .help = "Steps between."},
    {.name = "rate",
     .type = MST_OPTION_REAL,
     .offset = offsetof(eval_options, rate),
     .min = -1,
     .max = 1,
     .help = "A rate."},
    {.name = NULL},
};

typedef struct fixture {
    train_options train;
    eval_options eval;
    mst_option_group groups[2];
    char folder[64], file[96];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    memset(&f->train, 0xa5, sizeof f->train); /* init must not read what was there */
    f->groups[0] = (mst_option_group){.title = "Training", .table = train_table, .base = &f->train};
    f->groups[1] = (mst_option_group){.title = "Evaluation", .table = eval_table, .base = &f->eval};
    strcpy(f->folder, "/tmp/muster-test-option.XXXXXX");
    *state = f;
    if (mkdtemp(f->folder) == NULL)
        return -1;
    snprintf(f->file, sizeof f->file, "%s/c.yaml", f->folder);
    return mst_options_init(f->groups, 2) == MST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    mst_options_fini(f->groups, 2);
    mst_options_fini(f->groups, 2);
    mst_remove_tree(f->folder);
    free(f);
    return 0;
}

/* Parses words separated by spaces. */
static mst_status parse(fixture *f, const char *line, mst_text_list *positionals)
{
    char copy[512], *argv[32];
    int argc = 0;
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    return mst_options_parse(f->groups, 2, argc, argv, positionals);
}

static void check_refused(fixture *f, const char *line, const char *sentence)
{
    assert_int_equal(parse(f, line, NULL), MST_EUSAGE);
    assert_string_equal(mst_error_text(), sentence);
}

static void test_int_notation(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"1000", 1000},
        {"1e6", 1000000},
        {"1E6", 1000000},
        {"64k", 64000},
        {"64K", 64000},
        {"10M", 10000000},
        {"2G", 2000000000},
        {"1T", 1000000000000},
        {"1Ki", 1024},
        {"1Mi", 1 << 20},
        {"1Gi", 1 << 30},
        {"2^20", 1 << 20},
        {"1.5M", 1500000},
        {"1.5Ki", 1536},
        {"2.50e3", 2500},
        {"100e-2", 1},
        {"-5", -5},
        {"+7", 7},
        {"-2^3", -8},
        {"2^62", 1l << 62},
        {"0e1000", 0},
        {"10^18", 1000000000000000000},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"-2^63", INT64_MIN},
        {"0^0", 1},
        {"1^999", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t value = 42;
        if (!mst_parse_int(good[i].text, &value) || value != good[i].value)
            fail_msg("%s -> %lld", good[i].text, (long long)value);
    }
    static const char *const bad[] = {"",
                                      "-",
                                      "k",
                                      "1x",
                                      "1e",
                                      "1e1.5",
                                      "1kk",
                                      "1i",
                                      " 1",
                                      "1 ",
                                      "1.5",
                                      "1k.",
                                      "2^",
                                      "^2",
                                      "2^63",
                                      "2^-1",
                                      "0x10",
                                      "1e19",
                                      "1e-1",
                                      "--1",
                                      "1Kib",
                                      "1.2.3",
                                      "2^1k",
                                      "9223372036854775808",
                                      "nan",
                                      "inf",
                                      ".",
                                      "1e99999999999999999999",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t value = 42;
        if (mst_parse_int(bad[i], &value))
            fail_msg("\"%s\" was taken as %lld", bad[i], (long long)value);
        assert_int_equal(value, 42);
    }
}

static void test_defaults(void **state)
{
    fixture *f = *state;
    assert_int_equal(f->train.batch, 100);
    assert_int_equal(f->train.rows, 0);
    assert_true(f->train.lr == 0.01);
    assert_true(f->train.shuffle);
    assert_false(f->train.quiet);
    assert_null(f->train.name);
    assert_string_equal(f->train.note, "none");
    assert_int_equal(f->train.mode, 0);
    assert_int_equal(f->train.data.n, 1);
    assert_string_equal(f->train.data.items[0], "train.txt");
    assert_false(mst_options_is_set(f->groups, 2, "batch"));
}

static void test_command_line(void **state)
{
    fixture *f = *state;
    mst_text_list rest = {0};
    assert_int_equal(
        parse(f,
              "first --batch 2Ki --lr=1e-3 --no-shuffle --quiet --name=-odd --mode async - --data a,b\\,b "
              "--data=c,,d --eval-every 5 --rate -0.5 -- --batch -x",
              &rest),
        MST_OK);
    assert_int_equal(f->train.batch, 2048);
    assert_true(f->train.lr == 1e-3);
    assert_false(f->train.shuffle);
    assert_true(f->train.quiet);
    assert_string_equal(f->train.name, "-odd");
    assert_int_equal(f->train.mode, 1);
    assert_int_equal(f->train.data.n, 4); /* the default is replaced, not added to */
    assert_string_equal(f->train.data.items[0], "a");
    assert_string_equal(f->train.data.items[1], "b,b");
    assert_string_equal(f->train.data.items[3], "d");
    assert_int_equal(f->eval.every, 5);
    assert_true(f->eval.rate == -0.5);
    assert_int_equal(rest.n, 4);
    assert_string_equal(rest.items[0], "first");
    assert_string_equal(rest.items[1], "-");
    assert_string_equal(rest.items[2], "--batch");
    assert_string_equal(rest.items[3], "-x");
    mst_text_list_fini(&rest);
    assert_true(mst_options_is_set(f->groups, 2, "batch"));
    assert_true(mst_options_is_set(f->groups, 2, "shuffle"));
    assert_false(mst_options_is_set(f->groups, 2, "note"));
    assert_false(mst_options_is_set(f->groups, 2, "no-such"));
    assert_int_equal(parse(f, "--batch 7 --batch 8 --shuffle=true --quiet=off", NULL), MST_OK);
    assert_int_equal(f->train.batch, 8);
    assert_true(f->train.shuffle);
    assert_false(f->train.quiet);
}

static void test_refusals(void **state)
{
    fixture *f = *state;
    check_refused(f, "--bacth 5", "unknown option --bacth; did you mean --batch?");
    check_refused(f, "--evalevery 5", "unknown option --evalevery; did you mean --eval-every?");
    check_refused(f, "--eval 5", "unknown option --eval; did you mean --eval-every?");
    check_refused(f, "--no-shufle", "unknown option --no-shufle; did you mean --no-shuffle?");
    check_refused(f, "--zzzzzzzz", "unknown option --zzzzzzzz");
    check_refused(f, "--no-batch", "unknown option --no-batch; did you mean --batch?");
    check_refused(f, "-b 5", "unknown option -b; options are written --name");
    check_refused(f, "--batch 0", "--batch 0: must be between 1 and 1000000");
    check_refused(f, "--batch=2M", "--batch 2M: must be between 1 and 1000000");
    check_refused(f, "--lr 0", "--lr 0: must be at least 1e-09");
    check_refused(f, "--eval-every -1", "--eval-every -1: must be at least 0");
    check_refused(f, "--rate 1.5", "--rate 1.5: must be between -1 and 1");
    check_refused(f, "--rate nan", "--rate nan: not a finite number");
    check_refused(f, "--lr 1e999", "--lr 1e999: not a finite number");
    check_refused(f, "--batch ten", "--batch ten: not an integer (such as 1000, 64k, 1e6, 2Gi or 2^20)");
    check_refused(f, "--mode asink", "--mode asink: not one of sync, async");
    check_refused(f, "--mode syn", "--mode syn: not one of sync, async");
    check_refused(f, "--mode", "--mode needs a value");
    check_refused(f, "--name --quiet",
                  "--name needs a value; one that starts with a dash is written --name=--quiet");
    check_refused(f, "--no-quiet=1", "--no-quiet takes no value");
    check_refused(f, "--quiet=maybe", "--quiet maybe: must be true or false");
    check_refused(f, "stray", "unexpected argument \"stray\"");
    assert_int_equal(f->train.batch, 100); /* nothing refused was stored */
    assert_int_equal(f->groups[0].set, 0);
    assert_int_equal(f->groups[1].set, 0);
}

static void test_contradictions(void **state)
{
    fixture *f = *state;
    const char *both = "--quiet and --no-quiet contradict each other; give one of them";
    check_refused(f, "--quiet --no-quiet", both);
    check_refused(f, "--no-quiet --lr 0.5 --quiet=on", both);
    check_refused(f, "--quiet=yes --quiet=0", both);
    assert_int_equal(parse(f, "--no-quiet --quiet=off", NULL), MST_OK); /* another command line */
    assert_int_equal(parse(f, "--quiet --no-shuffle --quiet", NULL), MST_OK);
}

static void test_set(void **state)
{
    fixture *f = *state;
    assert_int_equal(mst_options_set(f->groups, 2, "data", "x,y"), MST_OK);
    assert_int_equal(mst_options_set(f->groups, 2, "data", "z"), MST_OK);
    assert_int_equal(f->train.data.n, 1);
    assert_int_equal(mst_options_set(f->groups, 2, "quiet", "true"), MST_OK);
    assert_true(f->train.quiet);
    assert_true(mst_options_is_set(f->groups, 2, "quiet"));
    assert_int_equal(mst_options_set(f->groups, 2, "batch", "-1"), MST_EUSAGE);
    assert_int_equal(mst_options_set(f->groups, 2, "moed", "x"), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "unknown option --moed; did you mean --mode?");
}

static mst_status load(fixture *f, const char *text)
{
    FILE *file = fopen(f->file, "w");
    fputs(text, file);
    fclose(file);
    return mst_options_load_yaml(f->groups, 2, f->file);
}

static void test_yaml(void **state)
{
    fixture *f = *state;
    assert_int_equal(parse(f, "--batch 9 --data cli", NULL), MST_OK);
    mst_status st = load(f, "# a comment\n"
                            "batch: 50\n"
                            "lr: 0.5\n"
                            "shuffle: no\n"
                            "mode: async\n"
                            "note: \"\"\n"
                            "name: 'null'\n"
                            "data:\n  - one\n  - two\n"
                            "eval-every: 1e3\n");
    if (st != MST_OK)
        fail_msg("%s", mst_error_text());
    assert_int_equal(f->train.batch, 9); /* the command line wins */
    assert_int_equal(f->train.data.n, 1);
    assert_string_equal(f->train.data.items[0], "cli");
    assert_true(f->train.lr == 0.5);
    assert_false(f->train.shuffle);
    assert_int_equal(f->train.mode, 1);
    assert_string_equal(f->train.note, "");
    assert_string_equal(f->train.name, "null");
    assert_int_equal(f->eval.every, 1000);
    assert_true(mst_options_is_set(f->groups, 2, "lr"));
    assert_false(mst_options_is_set(f->groups, 2, "rows"));
}

static void test_yaml_lists(void **state)
{
    fixture *f = *state;
    assert_int_equal(load(f, "data: [\"a,b\", c]\n"), MST_OK);
    assert_int_equal(f->train.data.n, 2);
    assert_string_equal(f->train.data.items[0], "a,b");
    f->groups[0].set = 0;
    assert_int_equal(load(f, "data: a,b,c\n"), MST_OK);
    assert_int_equal(f->train.data.n, 3);
    f->groups[0].set = 0;
    assert_int_equal(load(f, "data: []\n"), MST_OK);
    assert_int_equal(f->train.data.n, 0);
    assert_int_equal(load(f, ""), MST_OK);
    assert_int_equal(load(f, "# nothing\n"), MST_OK);
    assert_int_equal(load(f, "---\n"), MST_OK);
}

static void test_yaml_refusals(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"batch: 5\nbacth: 6\n", ":2: unknown option bacth; did you mean batch?"},
        {"eval_every: 6\n", ":1: unknown option eval_every; did you mean eval-every?"},
        {"rows: 5\nlr: 1\nrows: 6\n", ":3: rows is given twice (first on line 1)"},
        {"rows: 1\n\nbatch: 0\n", ":3: batch 0: must be between 1 and 1000000"},
        {"batch:\n  size: 3\n", ":2: batch must be a single value, not nested"},
        {"batch: [1, 2]\n", ":1: batch must be a single value, not nested"},
        {"data:\n  - a\n  - [b]\n", ":3: data must be a single value, not nested"},
        {"rows: 1\nname:\n", ":2: name has no value"},
        {"name: ~\n", ":1: name has no value"},
        {"- a\n", ":1: must be a mapping of option names to values"},
        {"just text\n", ":1: must be a mapping of option names to values"},
        {"[a]: b\n", ":1: a key must be a single value, not nested"},
        {"rows: &x 1\nbatch: *x\n", ":2: batch must be a single value, not nested"},
        {"rows: 1\n---\nrows: 2\n", ":2: has a second document; only one is allowed"},
        {"quiet: 2\n", ":1: quiet 2: must be true or false"},
        {"name: \"a\\0b\"\n", ":1: name contains a zero byte"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char expected[256];
        f->groups[0].set = f->groups[1].set = 0;
        assert_int_equal(load(f, bad[i].text), MST_EUSAGE);
        snprintf(expected, sizeof expected, "%s%s", f->file, bad[i].sentence);
        assert_string_equal(mst_error_text(), expected);
    }
    assert_int_equal(load(f, "rows: 1\ndata: [1\n"), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "/c.yaml:3: not valid YAML: "));
    unlink(f->file);
    assert_int_equal(mst_options_load_yaml(f->groups, 2, f->file), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "/c.yaml: cannot be opened: No such file"));
}

static void test_help(void **state)
{
    fixture *f = *state;
    char *help = mst_options_help(f->groups, 2);
    assert_non_null(help);
    assert_memory_equal(help, "Training:\n", 10);
    assert_non_null(strstr(help, "\n\nEvaluation:\n"));
    assert_non_null(strstr(help, "  --batch N          Rows per step and worker. (default: 100)\n"));
    assert_non_null(strstr(help, "  --[no-]shuffle     Change the order of rows.\n"));
    assert_non_null(strstr(help, "  --name NAME        Name of the run.\n"));
    assert_non_null(strstr(help, "  --mode sync|async  How threads meet. (default: sync)\n"));
    assert_non_null(
        strstr(help, "  --optimizer NAME   Rule. (one of sgd, momentum, adagrad, adam, ftrl; default: "));
    size_t column = 0;
    for (const char *c = help; *c != '\0'; c++) {
        column = *c == '\n' ? 0 : column + 1;
        assert_true(column <= 100);
    }
    const char *note = strstr(help, "  --note TEXT");
    assert_non_null(note);
    const char *second = strchr(note, '\n') + 1;
    assert_int_equal(strspn(second, " "), strstr(note, "A remark") - note);
    mst_free(help);
}

typedef struct need_options {
    bool quick;
    int mode;
    int64_t wait, keep, late, many;
} need_options;

#define NEED(name) .type = MST_OPTION_INT, .offset = offsetof(need_options, name), .help = "Help."
static const mst_option need_table[] = {
    {.name = "quick", .type = MST_OPTION_FLAG, .offset = offsetof(need_options, quick), .help = "Help."},
    {.name = "mode",
     .type = MST_OPTION_CHOICE,
     .offset = offsetof(need_options, mode),
     .fallback = "a",
     .choices = "a|b|c",
     .help = "Help."},
    {.name = "wait",
     NEED(wait),
     .needs = {{.option = "mode", .values = "b|c"}, {.option = "quick", .values = "true"}},
     .facts = MST_OPTION_LIMIT},
    {.name = "keep", NEED(keep), .needs = {{.option = "quick", .values = "false"}}},
    {.name = "late", NEED(late), .needs = {{.option = "mode", .values = "b", .check = MST_NEED_LENIENT}}},
    {.name = "many", NEED(many), .needs = {{.option = "mode", .values = "b", .check = MST_NEED_SWEEP}}},
    {.name = NULL},
};

/* What an option needs is checked by its kind, and stated by help. */
static void test_needs(void **state)
{
    need_options o;
    mst_option_group g = {.title = "needs", .table = need_table, .base = &o};
    const mst_option *wait = mst_option_row(need_table, "wait"), *late = mst_option_row(need_table, "late"),
                     *many = mst_option_row(need_table, "many");
    char text[64];
    (void)state;
    assert_int_equal(mst_options_init(&g, 1), MST_OK);
    assert_null(mst_option_row(need_table, "later"));
    assert_ptr_equal(mst_options_unmet(&g, 1, wait, MST_NEED_STRICT, NULL), &wait->needs[0]);
    assert_ptr_equal(mst_options_unmet(&g, 1, wait, MST_NEED_STRICT, "quick"), &wait->needs[1]);
    assert_null(mst_options_unmet(&g, 1, wait, MST_NEED_STRICT, "other"));
    assert_null(mst_options_unmet(&g, 1, late, MST_NEED_STRICT, NULL));
    assert_ptr_equal(mst_options_unmet(&g, 1, late, MST_NEED_LENIENT, NULL), &late->needs[0]);
    assert_null(mst_options_unmet(&g, 1, many, MST_NEED_LENIENT, NULL));
    assert_ptr_equal(mst_options_unmet(&g, 1, many, MST_NEED_SWEEP, NULL), &many->needs[0]);
    assert_null(mst_options_set_with(&g, 1, MST_OPTION_LIMIT));
    assert_int_equal(mst_options_set(&g, 1, "mode", "c"), MST_OK);
    assert_int_equal(mst_options_set(&g, 1, "quick", "true"), MST_OK);
    assert_int_equal(mst_options_set(&g, 1, "wait", "3"), MST_OK);
    assert_null(mst_options_unmet(&g, 1, wait, MST_NEED_SWEEP, NULL));
    assert_string_equal(mst_options_set_with(&g, 1, MST_OPTION_LIMIT), "wait");
    assert_string_equal(mst_option_need_text(&wait->needs[0], text, sizeof text), "--mode b or c");
    assert_string_equal(mst_option_need_text(&wait->needs[1], text, sizeof text), "--quick");
    char *help = mst_options_help(&g, 1), *roff = mst_options_roff(&g, 1);
    assert_non_null(strstr(help, "Needs:\n"));
    assert_non_null(strstr(help, "--wait N      Help. (only with --mode b or c and --quick)\n"));
    assert_non_null(strstr(help, "--keep N      Help. (not with --quick)\n"));
    assert_non_null(strstr(help, "--late N      Help. (only with --mode b)\n"));
    assert_non_null(strstr(help, "--many N      Help.\n"));
    assert_non_null(strstr(roff, ".TP\n\\fB\\-\\-mode\\fR \\fIa|b|c\\fR\nHelp. (default: a)\n"));
    mst_free(help);
    mst_free(roff);
    mst_options_fini(&g, 1);
}

static void test_json(void **state)
{
    fixture *f = *state;
    assert_int_equal(parse(f, "--batch 64k --name caf\xe9 --data a,b", NULL), MST_OK); /* not UTF-8 */
    json_t *all = mst_options_json(f->groups, 2);
    assert_non_null(all);
    json_t *train = json_object_get(all, "Training");
    assert_int_equal(json_integer_value(json_object_get(train, "batch")), 64000);
    assert_true(json_real_value(json_object_get(train, "lr")) == 0.01);
    assert_true(json_is_true(json_object_get(train, "shuffle")));
    assert_string_equal(json_string_value(json_object_get(train, "name")), "caf?");
    assert_string_equal(json_string_value(json_object_get(train, "mode")), "sync");
    assert_int_equal(json_array_size(json_object_get(train, "data")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(all, "Evaluation"), "eval-every")),
                     0);
    assert_int_equal(json_object_size(train), 10);
    json_decref(all);
}

/* Every allocation in turn fails: MST_ENOMEM, nothing leaked, and fini is safe. */
static void test_no_memory(void **state)
{
    fixture *f = *state;
    mst_options_fini(f->groups, 2);
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    mst_status st;
    uint64_t k = 0;
    do {
        mst_alloc_fail_at(++k);
        st = mst_options_init(f->groups, 2);
        if (st == MST_OK)
            st = parse(f, "--name x --note y --data a,b,c --data d", NULL);
        if (st == MST_OK)
            st = load(f, "batch: 3\n");
        char *help = st == MST_OK ? mst_options_help(f->groups, 2) : NULL;
        if (st == MST_OK && help == NULL)
            st = MST_ENOMEM;
        mst_free(help);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        mst_options_fini(f->groups, 2);
        mst_alloc_stats_get(&after);
        assert_int_equal(before.blocks, after.blocks);
    } while (st != MST_OK && k < 200);
    mst_alloc_fail_at(0);
    assert_int_equal(st, MST_OK);
    assert_true(k > 10);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_int_notation), T(test_defaults), T(test_command_line), T(test_refusals),
        T(test_int_notation), T(test_defaults), T(test_command_line), T(test_contradictions),
        T(test_set),          T(test_yaml),     T(test_yaml_lists),   T(test_yaml_refusals),
        T(test_help),         T(test_needs),    T(test_json),         T(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
