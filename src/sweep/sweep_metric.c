/* Names of metrics; contract in sweep_metric.h. */
#include "sweep/sweep_metric.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    bool of_a_set, evaluated, high_is_good;
} metrics[] = {
    {"loss", true, true, false},         {"accuracy", true, true, true},
    {"auc", true, true, true},           {"top5", true, true, true},
    {"grouped_auc", true, true, true},   {"normalised_entropy", true, true, false},
    {"train_loss", false, true, false},  {"train_accuracy", false, true, true},
    {"rows_per_s", false, false, true},  {"train_s", false, false, false},
    {"target_s", false, false, false},   {"total_s", false, false, false},
    {"cpu_s", false, false, false},      {"memory", false, false, false},
    {"memory_all", false, false, false}, {"traffic", false, false, false},
};

bool mst_sweep_metric_find(const char *name, mst_sweep_metric *out)
{
    static const char *const sets[] = {"test", "valid"};
    mst_sweep_metric m = {.set = ""};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        size_t n = strlen(sets[i]);
        if (strncmp(name, sets[i], n) == 0 && name[n] == '_')
            memcpy(m.set, sets[i], n + 1);
    }
    if (m.set[0] != '\0')
        name += strlen(m.set) + 1;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(metrics[i].name, name) == 0 && (m.set[0] == '\0' || metrics[i].of_a_set)) {
            m.column = metrics[i].name;
            m.evaluated = metrics[i].evaluated;
            m.any_set = metrics[i].of_a_set && m.set[0] == '\0';
            m.high_is_good = metrics[i].high_is_good;
            *out = m;
            return true;
        }
    return false;
}
