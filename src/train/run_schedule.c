/* Schedules of events and conditions on metrics; contract in run_schedule.h. */
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
        return mst_fail(MST_EUSAGE,
                        "--%s %s: not like \"500 steps\", \"1M rows\", \"10s\", \"1 epoch\" or \"never\"",
                        name, text);
    *out = (mst_interval){.unit = unit, .n = value};
    return MST_OK;
}

static const char *const metric_names[MST_METRIC_COUNT] = {
    "train_loss", "test_loss",      "test_accuracy", "test_auc",   "test_top5",
    "valid_loss", "valid_accuracy", "valid_auc",     "valid_top5",
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
        *out = c;
        return MST_OK;
    }
    return mst_fail(
        MST_EUSAGE,
        "--until %s: not like 'test_loss<=0.35' (metrics: train_loss, and loss, accuracy, auc, top5 with "
        "test_ or valid_ before them)",
        text);
}

bool mst_condition_holds(const mst_condition *c, double value)
{
    if (c->or_equal && value == c->value)
        return true;
    return c->less ? value < c->value : value > c->value;
}
