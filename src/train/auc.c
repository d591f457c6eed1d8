/* The exact AUC, alone and by groups, and calibration by tenths; contract in auc.h. Rows are collected in
 * portions, so that the lock is taken once per thousand rows.
 *
 * Pairs are sorted by score first: at that point the AUC of all rows and the tenths are counted. A stable
 * sort by group after it makes every group a run of ascending scores. */
#include "train/auc.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/model.h"

#define PORTION    1024
#define DIGIT      11 /* bits per pass of a sort */
#define DIGIT_MASK ((1u << DIGIT) - 1)

void mst_auc_init(mst_auc *auc, int64_t group_field)
{
    *auc = (mst_auc){.group_field = group_field};
    pthread_mutex_init(&auc->mutex, NULL);
}

void mst_auc_fini(mst_auc *auc)
{
    for (int s = 0; s < 2; s++) {
        mst_free(auc->sides[s].keys);
        mst_free(auc->sides[s].pairs);
    }
    pthread_mutex_destroy(&auc->mutex);
}

void mst_auc_clear(mst_auc *auc)
{
    auc->sides[0].n = auc->sides[1].n = 0;
    auc->beyond = false;
}

static bool auc_is_grouped(const mst_auc *auc)
{
    return auc->group_field >= 0;
}

/* ---- adding ---- */

/* An integer that grows with the score: the order of negative floats is reversed. */
static uint32_t auc_key(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are the same score */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float auc_key_score(uint32_t key)
{
    uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* The row's first key of the field, or the bits of a number of the dense prefix. */
static uint32_t auc_group(const mst_row *row, uint32_t field)
{
    if (field < row->n_dense) {
        float number = mst_row_dense(row, field);
        return isnan(number) ? MST_AUC_NO_GROUP : auc_key(number);
    }
    if (row->fields == NULL)
        return field - row->n_dense < row->n_keys ? row->keys[field - row->n_dense] : MST_AUC_NO_GROUP;
    for (uint32_t i = 0; i < row->n_keys; i++)
        if (row->fields[i] == field)
            return row->keys[i];
    return MST_AUC_NO_GROUP;
}

/* False when there are too many rows, or no memory. */
static bool auc_append(mst_auc *auc, int side, const uint32_t *keys, const uint32_t *groups, size_t n)
{
    mst_auc_side *s = &auc->sides[side];
    if (n == 0)
        return true;
    if (auc->sides[0].n + auc->sides[1].n + n > MST_AUC_ROWS)
        return false;
    if (groups == NULL) {
        if (!mst_grow(&s->keys, &s->capacity, s->n + n, sizeof *s->keys))
            return false;
        memcpy(s->keys + s->n, keys, n * sizeof *keys);
    } else {
        if (!mst_grow(&s->pairs, &s->capacity, s->n + n, sizeof *s->pairs))
            return false;
        for (size_t i = 0; i < n; i++)
            /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): all n are set */
            s->pairs[s->n + i] = (uint64_t)groups[i] << 32 | keys[i];
    }
    s->n += n;
    return true;
}

void mst_auc_add(mst_auc *auc, const mst_batch *batch, const mst_batch *keyed, const float *scores)
{
    bool grouped = auc_is_grouped(auc);
    for (uint32_t from = 0; from < batch->n_rows; from += PORTION) {
        mst_batch portion = mst_batch_range(batch, from, PORTION);
        uint32_t keys[2][PORTION], groups[2][PORTION];
        size_t n[2] = {0, 0};
        for (uint32_t i = 0; i < portion.n_rows; i++) {
            int side = mst_label_positive(portion.rows[i].label);
            if (grouped)
                groups[side][n[side]] = auc_group(&keyed->rows[from + i], (uint32_t)auc->group_field);
            keys[side][n[side]++] = auc_key(scores[from + i]);
        }
        pthread_mutex_lock(&auc->mutex);
        for (int side = 0; side < 2; side++)
            auc->beyond =
                auc->beyond || !auc_append(auc, side, keys[side], grouped ? groups[side] : NULL, n[side]);
        pthread_mutex_unlock(&auc->mutex);
    }
}

/* ---- sorting ---- */

/* A stable radix sort by 32 bits from `low` on, in digits of 11, 11 and 10 bits; other has room for n. */
#define AUC_SORT(name, type)                                                                                 \
    static void name(type *items, type *other, size_t n, unsigned low)                                       \
    {                                                                                                        \
        type *from = items, *to = other;                                                                     \
        for (unsigned shift = 0; shift < 32; shift += DIGIT) {                                               \
            size_t at[1u << DIGIT] = {0}, sum = 0;                                                           \
            for (size_t i = 0; i < n; i++)                                                                   \
                at[(uint32_t)(from[i] >> low) >> shift & DIGIT_MASK]++;                                      \
            for (size_t d = 0; d <= DIGIT_MASK; d++) {                                                       \
                size_t count = at[d];                                                                        \
                at[d] = sum;                                                                                 \
                sum += count;                                                                                \
            }                                                                                                \
            for (size_t i = 0; i < n; i++)                                                                   \
                to[at[(uint32_t)(from[i] >> low) >> shift & DIGIT_MASK]++] = from[i];                        \
            type *swap = from;                                                                               \
            from = to;                                                                                       \
            to = swap;                                                                                       \
        }                                                                                                    \
        if (n > 0) /* after three passes the result is in other */                                           \
            memcpy(items, from, n * sizeof *items);                                                          \
    }
AUC_SORT(auc_sort_keys, uint32_t)
AUC_SORT(auc_sort_pairs, uint64_t)

/* ---- counting ---- */

static uint32_t auc_at(const mst_auc_side *side, size_t i)
{
    return side->pairs != NULL ? (uint32_t)side->pairs[i] : side->keys[i];
}

/* The AUC of negatives [n_from, n_to) and positives [p_from, p_to), both in the order of their scores. Pairs
 * are counted twice: integers below 2^51. */
static double auc_of(const mst_auc_side sides[2], size_t n_from, size_t n_to, size_t p_from, size_t p_to)
{
    uint64_t wins = 0;
    size_t below = n_from, upto = n_from; /* negatives with lower scores than this positive; not above it */
    for (size_t i = p_from; i < p_to; i++) {
        uint32_t key = auc_at(&sides[1], i);
        while (below < n_to && auc_at(&sides[0], below) < key)
            below++;
        while (upto < n_to && auc_at(&sides[0], upto) <= key)
            upto++;
        wins += (below - n_from) + (upto - n_from);
    }
    return (double)wins / (2.0 * (double)(n_to - n_from) * (double)(p_to - p_from));
}

/* Rows of one score to the tenths: *rank rows have lower scores. */
static void auc_add_tenth(mst_auc_result *out, size_t n, size_t *rank, size_t rows, double positive,
                          double predicted)
{
    while (rows > 0) {
        size_t t = *rank * MST_AUC_TENTHS / n; /* the last one whose first row is at or before the rank */
        while (t + 1 < MST_AUC_TENTHS && (t + 1) * n / MST_AUC_TENTHS <= *rank)
            t++;
        size_t room = (t + 1) * n / MST_AUC_TENTHS - *rank, take = rows < room ? rows : room;
        out->tenths[t].rows += take;
        out->tenths[t].predicted += (double)take * predicted;
        out->tenths[t].observed += (double)take * positive;
        *rank += take;
        rows -= take;
    }
}

static void auc_count_tenths(const mst_auc_side sides[2], mst_auc_result *out)
{
    size_t n = sides[0].n + sides[1].n, i[2] = {0, 0}, rank = 0;
    while (rank < n) {
        uint32_t key = UINT32_MAX;
        size_t count[2] = {0, 0};
        for (int s = 0; s < 2; s++)
            if (i[s] < sides[s].n && auc_at(&sides[s], i[s]) < key)
                key = auc_at(&sides[s], i[s]);
        for (int s = 0; s < 2; s++)
            for (; i[s] < sides[s].n && auc_at(&sides[s], i[s]) == key; i[s]++)
                count[s]++;
        size_t rows = count[0] + count[1];
        auc_add_tenth(out, n, &rank, rows, (double)count[1] / (double)rows,
                      mst_probability((double)auc_key_score(key)));
    }
    out->n_tenths = n > 0 ? MST_AUC_TENTHS : 0;
    for (uint32_t t = 0; t < out->n_tenths; t++) { /* NAN for no rows */
        out->tenths[t].predicted /= (double)out->tenths[t].rows;
        out->tenths[t].observed /= (double)out->tenths[t].rows;
    }
}

/* The end of the run of pairs of one group that begins at `from`. */
static size_t auc_group_end(const mst_auc_side *side, size_t from, uint32_t group)
{
    while (from < side->n && side->pairs[from] >> 32 == group)
        from++;
    return from;
}

static void auc_count_groups(const mst_auc_side sides[2], mst_auc_result *out)
{
    size_t from[2] = {0, 0}, to[2];
    double sum = 0.0, rows = 0.0;
    while (from[0] < sides[0].n || from[1] < sides[1].n) {
        uint32_t group = UINT32_MAX;
        for (int s = 0; s < 2; s++)
            if (from[s] < sides[s].n && sides[s].pairs[from[s]] >> 32 < group)
                group = (uint32_t)(sides[s].pairs[from[s]] >> 32);
        for (int s = 0; s < 2; s++)
            to[s] = auc_group_end(&sides[s], from[s], group);
        size_t n = to[0] - from[0] + to[1] - from[1];
        if (group == MST_AUC_NO_GROUP) {
            out->rows_left_out += n;
        } else if (to[0] == from[0] || to[1] == from[1]) {
            out->groups_left_out++;
        } else {
            sum += (double)n * auc_of(sides, from[0], to[0], from[1], to[1]);
            rows += (double)n;
            out->groups++;
        }
        memcpy(from, to, sizeof from);
    }
    if (rows > 0.0)
        out->grouped = sum / rows;
}

void mst_auc_result_of(mst_auc *auc, mst_auc_result *out)
{
    mst_auc_side *sides = auc->sides;
    bool grouped = auc_is_grouped(auc);
    size_t most = sides[0].n > sides[1].n ? sides[0].n : sides[1].n;
    *out = (mst_auc_result){.auc = (double)NAN, .grouped = (double)NAN};
    void *other = auc->beyond ? NULL : mst_calloc(most + 1, grouped ? sizeof(uint64_t) : sizeof(uint32_t));
    if (other == NULL)
        return;
    for (int s = 0; s < 2; s++)
        grouped ? auc_sort_pairs(sides[s].pairs, other, sides[s].n, 0)
                : auc_sort_keys(sides[s].keys, other, sides[s].n, 0);
    if (sides[0].n > 0 && sides[1].n > 0)
        out->auc = auc_of(sides, 0, sides[0].n, 0, sides[1].n);
    auc_count_tenths(sides, out);
    if (grouped) {
        for (int s = 0; s < 2; s++)
            auc_sort_pairs(sides[s].pairs, other, sides[s].n, 32);
        auc_count_groups(sides, out);
    }
    mst_free(other);
}
