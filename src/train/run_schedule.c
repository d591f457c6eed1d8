/* Parsing the schedule of a run; contract in run_schedule.h. */
#include "train/run_schedule.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"

static const struct {
    const char *name;
    mst_unit unit;
} units[] = {
    {"steps", MST_UNIT_STEPS},     {"step", MST_UNIT_STEPS},    {"rows", MST_UNIT_ROWS},
    {"row", MST_UNIT_ROWS},        {"epochs", MST_UNIT_EPOCHS}, {"epoch", MST_UNIT_EPOCHS},
    {"seconds", MST_UNIT_SECONDS}, {"s", MST_UNIT_SECONDS},
};

mst_status mst_interval_parse(const char *name, const char *text, mst_interval *out)
{
    if (strcmp(text, "never") == 0) {
        *out = (mst_interval){.unit = MST_UNIT_NEVER};
        return MST_OK;
    }
    char number[32];
    size_t length = strlen(text), digits = length;
    mst_unit unit = MST_UNIT_STEPS;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if (length > n && strcmp(text + length - n, units[i].name) == 0) {
            unit = units[i].unit;
            digits = length - n;
            break;
        }
    }
    while (digits > 0 && isspace((unsigned char)text[digits - 1]))
        digits--;
    int64_t whole = 0;
    double value = 0.0;
    if (digits > 0 && digits < sizeof number) {
        memcpy(number, text, digits);
        number[digits] = '\0';
        char *end;
        if (mst_parse_int(number, &whole))
            value = (double)whole;
        else if (unit == MST_UNIT_SECONDS && (value = strtod(number, &end), *end != '\0'))
            value = 0.0;
    }
    if (!(value > 0.0) || !isfinite(value))
        return mst_fail(
            MST_EUSAGE,
            "--%s %s is invalid; examples: \"500 steps\", \"1M rows\", \"10s\", \"1 epoch\", \"never\"", name,
            text);
    *out = (mst_interval){.unit = unit, .n = value};
    return MST_OK;
}

static const char *const metric_names[MST_METRIC_COUNT] = {
    "train_loss",        "train_accuracy",
    "test_loss",         "test_accuracy",
    "test_auc",          "test_top5",
    "test_grouped_auc",  "test_normalised_entropy",
    "valid_loss",        "valid_accuracy",
    "valid_auc",         "valid_top5",
    "valid_grouped_auc", "valid_normalised_entropy",
};

const char *mst_metric_name(mst_metric metric)
{
    return metric_names[metric];
}

static const char *skip_spaces(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* Losses and normalised entropy are 0 or more; all other metrics are shares, between 0 and 1. */
static bool condition_is_of_loss(const mst_condition *c)
{
    return strstr(metric_names[c->metric], "_loss") != NULL ||
           strstr(metric_names[c->metric], "_entropy") != NULL;
}

/* Whether a value that the metric can have fulfils the condition: the lowest or the highest one does, if any
 * does. */
static bool condition_is_possible(const mst_condition *c)
{
    return mst_condition_holds(c, c->less ? 0.0 : condition_is_of_loss(c) ? INFINITY : 1.0);
}

mst_status mst_condition_parse(const char *text, mst_condition *out)
{
    const char *at = skip_spaces(text);
    for (mst_metric m = 0; m < MST_METRIC_COUNT; m++) {
        size_t n = strlen(metric_names[m]);
        if (strncmp(at, metric_names[m], n) != 0)
            continue;
        const char *sign = skip_spaces(at + n);
        if (*sign != '<' && *sign != '>')
            break;
        mst_condition c = {.metric = m, .less = *sign == '<', .or_equal = sign[1] == '='};
        const char *number = sign + 1 + c.or_equal;
        char *end;
        c.value = strtod(number, &end);
        if (end == number || *skip_spaces(end) != '\0' || !isfinite(c.value))
            break;
        if (!condition_is_possible(&c))
            return mst_fail(MST_EUSAGE, "--until %s can never be met: %s is %s", text, metric_names[m],
                            condition_is_of_loss(&c) ? "0 or more" : "between 0 and 1");
        *out = c;
        return MST_OK;
    }
    return mst_fail(
        MST_EUSAGE,
        "--until %s is invalid; example: 'test_loss<=0.35' (metrics: train_loss, train_accuracy, "
        "and loss, accuracy, auc, grouped_auc, normalised_entropy, top5 with test_ or valid_ before them)",
        text);
}

bool mst_condition_holds(const mst_condition *c, double value)
{
    if (c->or_equal && value == c->value)
        return true;
    return c->less ? value < c->value : value > c->value;
}

/* Parses a step number and moves *text past it; `none` if there are no digits. */
static bool parse_step(const char **text, uint64_t none, uint64_t *out)
{
    char *end;
    *out = none;
    if (**text < '0' || **text > '9')
        return true;
    unsigned long long value = strtoull(*text, &end, 10);
    *out = value;
    *text = end;
    return value < UINT64_MAX;
}

mst_status mst_trace_steps_parse(const char *text, uint64_t *from, uint64_t *to)
{
    const char *p = text;
    *from = 0;
    *to = UINT64_MAX;
    if (text == NULL)
        return MST_OK;
    if (!parse_step(&p, 0, from) || *p++ != ':' || !parse_step(&p, UINT64_MAX, to) || *p != 0 || *from > *to)
        return mst_fail(MST_EUSAGE, "--trace-steps %s: give A:B, the first step and the last", text);
    return MST_OK;
}

/* With --steps-per-epoch, an interval in epochs is counted in steps. */
static void count_epochs_in_steps(mst_interval *every, int64_t steps_per_epoch)
{
    if (steps_per_epoch > 0 && every->unit == MST_UNIT_EPOCHS)
        *every = (mst_interval){.unit = MST_UNIT_STEPS, .n = every->n * (double)steps_per_epoch};
}

static bool schedule_has_until(const mst_train_options *o)
{
    return o->until != NULL && strcmp(o->until, "never") != 0;
}

static bool schedule_groups(const mst_train_options *o)
{
    return o->auc_by != NULL && strcmp(o->auc_by, "-1") != 0;
}

mst_status mst_run_schedule_parse(const mst_train_options *o, bool saves, mst_run_schedule *out)
{
    bool is_auto = strcmp(o->checkpoint_every, "auto") == 0;
    mst_run_schedule self = {.auto_checkpoint = is_auto && saves && o->save};
    uint64_t from, to;
    TRY(mst_trace_steps_parse(o->trace_steps, &from, &to));
    TRY(mst_interval_parse("eval-every", o->eval_every, &self.eval));
    if (self.auto_checkpoint)
        self.checkpoint = (mst_interval){.unit = MST_UNIT_SECONDS, .n = MST_AUTO_SAVE_S};
    else if (!is_auto)
        TRY(mst_interval_parse("checkpoint-every", o->checkpoint_every, &self.checkpoint));
    count_epochs_in_steps(&self.eval, o->steps_per_epoch);
    count_epochs_in_steps(&self.checkpoint, o->steps_per_epoch);
    if (schedule_has_until(o)) {
        TRY(mst_condition_parse(o->until, &self.until));
        self.has_until = true;
        const char *metric = mst_metric_name(self.until.metric);
        if (strncmp(metric, "test", 4) == 0 && o->test.n == 0)
            return mst_fail(MST_EUSAGE, "--until %s needs a --test set", o->until);
        if (strncmp(metric, "valid", 5) == 0 && o->valid == NULL)
            return mst_fail(MST_EUSAGE, "--until %s needs --valid", o->until);
    }
    if ((self.has_until || o->patience > 0) && self.eval.unit == MST_UNIT_NEVER)
        return mst_fail(MST_EUSAGE, "--%s needs evaluations, and --eval-every is never",
                        self.has_until ? "until" : "patience");
    if (o->patience > 0 && o->valid == NULL)
        return mst_fail(MST_EUSAGE, "--patience needs --valid");
    if (schedule_groups(o) && o->test.n == 0 && o->valid == NULL)
        return mst_fail(MST_EUSAGE, "--auc-by needs --test or --valid");
    if (o->resume && o->overwrite)
        return mst_fail(MST_EUSAGE, "--resume and --overwrite exclude each other");
    if (o->resume && o->run == NULL)
        return mst_fail(MST_EUSAGE, "--resume needs --run, the directory of the run to continue");
    if (o->resume_data != 0 && !o->resume)
        return mst_fail(MST_EUSAGE, "--resume-data is for --resume");
    if (o->resume && o->init_from != NULL)
        return mst_fail(MST_EUSAGE, "--resume and --init-from exclude each other");
    if (o->epochs == 0 && o->steps == 0 && o->rows == 0 && o->seconds == 0.0 && !self.has_until &&
        o->patience == 0)
        return mst_fail(MST_EUSAGE,
                        "nothing ends this run: give --epochs, --steps, --rows, --seconds, --until or "
                        "--patience");
    *out = self;
    return MST_OK;
}

bool mst_run_schedule_is_exact(const mst_train_options *o)
{
    return o->eval_mode == MST_EVAL_EXACT || (o->eval_mode == MST_EVAL_AUTO && schedule_has_until(o));
}

mst_status mst_run_schedule_check(const mst_run_schedule *self, const mst_train_options *options,
                                  uint32_t n_scores)
{
    mst_metric metric = self->until.metric;
    bool grouped = metric == MST_METRIC_TEST_GROUPED_AUC || metric == MST_METRIC_VALID_GROUPED_AUC;
    bool binary = grouped || metric == MST_METRIC_TEST_AUC || metric == MST_METRIC_VALID_AUC ||
                  metric == MST_METRIC_TEST_NORMALISED_ENTROPY ||
                  metric == MST_METRIC_VALID_NORMALISED_ENTROPY;
    bool top5 = metric == MST_METRIC_TEST_TOP5 || metric == MST_METRIC_VALID_TOP5;
    if (self->has_until && binary && n_scores != 1)
        return mst_fail(MST_EUSAGE, "--until %s can never be met: %s needs a binary model (--model logreg)",
                        options->until,
                        grouped || metric == MST_METRIC_TEST_AUC || metric == MST_METRIC_VALID_AUC
                            ? "AUC"
                            : "normalised entropy");
    if (self->has_until && grouped && !schedule_groups(options))
        return mst_fail(MST_EUSAGE, "--until %s can never be met without --auc-by", options->until);
    if (self->has_until && top5 && n_scores <= 5)
        return mst_fail(MST_EUSAGE,
                        "--until %s can never be met: top-5 accuracy needs more than five classes",
                        options->until);
    return MST_OK;
}
