/* Written by make_metrics.py; do not edit. */
/* clang-format off */
#define GOLDEN_ROWS 997
#define GOLDEN_GROUPS 41
typedef struct golden_figures {
    double loss, auc, calibration, normalised_entropy, grouped_auc;
    uint64_t groups, groups_left_out, rows_left_out;
    uint64_t rows[10];
    double predicted[10], observed[10];
} golden_figures;

static const golden_figures golden_scores = {
    .loss = 0.5714995793586096, .auc = 0.62646404744255,
    .calibration = 2.560910339051702,
    .normalised_entropy = 1.3956932389011805, .grouped_auc = 0.6202831306356219,
    .groups = 33, .groups_left_out = 12, .rows_left_out = 32,
    .rows = {99, 100, 100, 99, 100, 100, 99, 100, 100, 100},
    .predicted = {0.07485949053719415, 0.11227123681116052, 0.15570776080811002, 0.21356220145231894, 0.28851846647542784, 0.3692378193816428, 0.46949129991825755, 0.5610730680551945, 0.6541316483009482, 0.745477336991378},
    .observed = {0.0, 0.11, 0.16, 0.12121212121212122, 0.16, 0.15, 0.13131313131313133, 0.16, 0.1, 0.33},
};
static const golden_figures golden_ties = {
    .loss = 0.5407104032533129, .auc = 0.5078453175191501,
    .calibration = 2.1335810541743347,
    .normalised_entropy = 1.3205011539485931, .grouped_auc = 0.5167795771202702,
    .groups = 33, .groups_left_out = 12, .rows_left_out = 32,
};
