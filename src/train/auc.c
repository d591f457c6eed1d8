/* The exact AUC; contract in auc.h. Rows are collected in groups, so that the lock is taken once per thousand
 * rows. */
#include "train/auc.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

#define GROUP      1024
#define DIGIT      11 /* bits per pass of the auc_sort */
#define DIGIT_MASK ((1u << DIGIT) - 1)

void mst_auc_init(mst_auc *auc)
{
    *auc = (mst_auc){0};
    pthread_mutex_init(&auc->mutex, NULL);
}

void mst_auc_fini(mst_auc *auc)
{
    mst_free(auc->keys[0]);
    mst_free(auc->keys[1]);
    pthread_mutex_destroy(&auc->mutex);
}

void mst_auc_clear(mst_auc *auc)
{
    auc->n[0] = auc->n[1] = 0;
    auc->beyond = false;
}

/* An integer that grows with the score: the order of negative floats is reversed. */
static uint32_t auc_key(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are the same score */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static void auc_append(mst_auc *auc, int side, const uint32_t *keys, size_t n)
{
    if (n == 0)
        return;
    if (auc->beyond || auc->n[0] + auc->n[1] + n > MST_AUC_ROWS ||
        !mst_grow(&auc->keys[side], &auc->capacity[side], auc->n[side] + n, sizeof **auc->keys)) {
        auc->beyond = true;
        return;
    }
    memcpy(auc->keys[side] + auc->n[side], keys, n * sizeof *keys);
    auc->n[side] += n;
}

void mst_auc_add(mst_auc *auc, const mst_batch *batch, const float *scores)
{
    for (uint32_t from = 0; from < batch->n_rows; from += GROUP) {
        mst_batch group = mst_batch_range(batch, from, GROUP);
        uint32_t keys[2][GROUP];
        size_t n[2] = {0, 0};
        for (uint32_t i = 0; i < group.n_rows; i++) {
            int side = mst_label_positive(group.rows[i].label);
            keys[side][n[side]++] = auc_key(scores[from + i]);
        }
        pthread_mutex_lock(&auc->mutex);
        auc_append(auc, 0, keys[0], n[0]);
        auc_append(auc, 1, keys[1], n[1]);
        pthread_mutex_unlock(&auc->mutex);
    }
}

/* Radix auc_sort by digits of 11, 11 and 10 bits, the lowest first; other has room for n. */
static void auc_sort(uint32_t *keys, uint32_t *other, size_t n)
{
    uint32_t *from = keys, *to = other;
    for (unsigned shift = 0; shift < 32; shift += DIGIT) {
        size_t at[1u << DIGIT] = {0}, sum = 0;
        for (size_t i = 0; i < n; i++)
            at[from[i] >> shift & DIGIT_MASK]++;
        for (size_t d = 0; d <= DIGIT_MASK; d++) {
            size_t count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            to[at[from[i] >> shift & DIGIT_MASK]++] = from[i];
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    memcpy(keys, from, n * sizeof *keys); /* after three passes the result is in other */
}

double mst_auc_value(mst_auc *auc)
{
    size_t most = auc->n[0] > auc->n[1] ? auc->n[0] : auc->n[1];
    if (auc->beyond || auc->n[0] == 0 || auc->n[1] == 0)
        return NAN;
    uint32_t *other = mst_calloc(most, sizeof *other);
    if (other == NULL)
        return NAN;
    for (int side = 0; side < 2; side++)
        auc_sort(auc->keys[side], other, auc->n[side]);
    mst_free(other);
    /* Twice the pairs won: integers below 2^51. */
    uint64_t wins = 0;
    const uint32_t *negative = auc->keys[0];
    size_t below = 0,
           upto = 0; /* negatives with lower scores than this positive, and with scores not above it */
    for (size_t i = 0; i < auc->n[1]; i++) {
        uint32_t key = auc->keys[1][i];
        while (below < auc->n[0] && negative[below] < key)
            below++;
        while (upto < auc->n[0] && negative[upto] <= key)
            upto++;
        wins += below + upto;
    }
    return (double)wins / (2.0 * (double)auc->n[0] * (double)auc->n[1]);
}
