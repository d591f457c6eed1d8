/* Exchanges of hot weights between asynchronous threads; contract in hot_weights.h.
 *
 * A unit is a weight of the dense ranges or a popular key. Each thread has `mine`, the units that it trains
 * on, and `seen`, their values after its last exchange. All threads share `blocks`, the sums of the changes
 * so far. An exchange of thread t: block += gain * (mine - seen), mine = seen = block. It moves the few cache
 * lines of a block from the core that exchanged last, whatever the number of threads. A block has a lock of
 * its own, held for some ten instructions; a thread that finds it taken for long (its holder waits for a
 * core) goes on training, and exchanges later. State that is no sum (moving averages) would not survive the
 * addition: each thread keeps its own, and end takes the mean.
 *
 * The gain of a weight. Let a step of a thread take the weight the share a of the way to its optimum: a =
 * rate * c, c being the second derivative of the loss. n steps of a thread take it about x = n * a of the
 * way, if that is little. The T threads make their steps side by side, from the same start. Where T * x is
 * small, their changes add up as if they were made one after the other: the gain is 1. Where x is large, each
 * thread makes the whole way, and the mean remains: the gain is 1/T; the sum would overshoot T-fold.
 * (1 + x) / (1 + T * x) is right at both ends, and differs from the quotient of the ways of T * n and of T
 * times n steps by less than a fifth in between.
 *
 * The weights of a row move its margin together, so the steps of all count. With gains g, the changes of an
 * interval take the margins of rows like the sample's L of the way, L being the sum of g_i * T * x_i * s_i
 * over all weights and s_i the share of rows that have weight i; they are stable in every direction, not only
 * along the axes, if L is about 1 at most. So x is multiplied by N, the number of weights of a row that are
 * stiff (moved the whole way by the threads together): N = sum of s_i * N * T * x_i / (1 + N * T * x_i), at
 * least 1, makes L at most 1. Each thread finds N by iteration: an exchange replaces the part of its block.
 * Where no weight is stiff, which is soon so with falling rates, N is 1 and all gains are near 1.
 *
 * c is the mean of x_i^2 * v in the sample, v being the weight of a row, times a bound of p * (1 - p): this
 * is at most 1/4, and at most 1/4 / log 2 of the entropy of p, which is the loss of a calibrated model. The
 * rate is that of the update rule with the weight's state. So nothing is tuned to data.
 *
 * Intervals. Rows of a thread between two exchanges of a block: TOUCHES occurrences of its first key, at
 * least HOT_DENSE_ROWS. At the start, where weights move far, an interval of all threads is at most the share
 * 1/WARM of the rows so far.
 *
 * Keys of several weights (fm with Adagrad) are a block each, whose x comes from the squares of the gradients
 * that the state of the weights has collected since the last exchange: their sum is about n * c, since the
 * mean square of the loss's slope is the mean of p * (1 - p) for a calibrated model. So products of factors,
 * whose c changes as they grow, need no sample. They do not count in N: a row has hundreds of them, each a
 * little stiff at the start, and with N their changes would be means for long, while their state is summed
 * and lowers their rates. A block has more cache lines per key than with one weight, so its interval is
 * ROW_TOUCHES occurrences, and keys that no thread has trained on since are left out. */
#include <math.h>

#include "base/isa.h"
#include "strategy/hot_weights_impl.h"

#define WARM   64
#define TRIES  256 /* for a lock */
#define X_MOST 1e6f
#define LN2    0.6931472f

/* *before: the block's exchanges so far, twice. */
static inline bool hot_take(hot_block *block, unsigned *before)
{
    for (int i = 0; i < TRIES; i++) {
        *before = atomic_load_explicit(&block->exchanges, memory_order_relaxed);
        if (*before % 2 == 0 &&
            atomic_compare_exchange_strong_explicit(&block->exchanges, before, *before + 1,
                                                    memory_order_acquire, memory_order_relaxed))
            return true;
    }
    return false;
}

/* The step of a weight per unit of its gradient. */
static inline float hot_rate(const mst_rule *rule, const float *w, size_t jump)
{
    switch (rule->kind) {
    case MST_RULE_SGD:
        break;
    case MST_RULE_MOMENTUM:
        return rule->lr / (1.0f - rule->keep1);
    case MST_RULE_ADAGRAD:
        return rule->lr / (sqrtf(w[jump]) + rule->eps);
    case MST_RULE_ADAM:
        return rule->rate / (sqrtf(w[2 * jump]) * rule->unbias + rule->eps);
    case MST_RULE_FTRL:
        return 1.0f / ((rule->eps + sqrtf(w[2 * jump])) * rule->rate + rule->l2);
    }
    return rule->lr;
}

/* x of the units of a block; steps is times the bound of p * (1 - p). Returns the stiff units of a row among
 * them; threads is times N. */
MST_WIDE static float hot_ways(const hot_place *at, const mst_rule *rule, float steps, float threads,
                               float *restrict x)
{
    float stiff = 0.0f;
    if (rule->kind == MST_RULE_SGD)
        for (uint32_t i = 0; i < at->n; i++)
            x[i] = rule->lr * steps * at->curve[i];
    else
        for (uint32_t i = 0; i < at->n; i++)
            x[i] = hot_rate(rule, at->base + i * at->step, at->jump) * steps * at->curve[i];
    for (uint32_t i = 0; i < at->n; i++) {
        x[i] =
            x[i] < X_MOST ? x[i] : X_MOST; /* also if there is no number: without squares a rate is endless */
        stiff += at->share[i] * (threads * x[i] / (1.0f + threads * x[i]));
    }
    return stiff;
}

/* The changes of the units of a block, times their gains. stiff: N. x becomes the gain. */
MST_WIDE static void hot_damp(const hot_place *at, const float *restrict seen, bool ftrl, float stiff,
                              float threads, float *restrict x, float *restrict out)
{
    uint32_t sent = at->sent;
    for (uint32_t i = 0; i < at->n; i++)
        x[i] = (1.0f + stiff * x[i]) / (1.0f + threads * stiff * x[i]);
    if (sent == 1 && at->step == 1) {
        for (uint32_t i = 0; i < at->n; i++)
            out[i] = x[i] * (at->base[i] - seen[i]);
        return;
    }
    for (uint32_t i = 0; i < at->n; i++)
        for (uint32_t j = 0; j < sent; j++) {
            float change = at->base[i * at->step + j * at->jump] - seen[i * sent + j];
            /* ftrl's z is a part of the weight; all other sums are of squares */
            out[i * sent + j] = j == 0 || (j == 1 && ftrl) ? x[i] * change : change;
        }
}

/* The same of a key of several weights, which it has side by side in `mine`. */
MST_WIDE static void hot_damp_key(const float *restrict mine, const float *restrict seen, uint32_t width,
                                  const mst_rule *rule, float threads, float *restrict out)
{
    float lr = rule->lr, eps = rule->eps;
    for (uint32_t i = 0; i < width; i++) /* two loops, which the compiler makes vectors of */
        out[width + i] = mine[width + i] - seen[width + i];
    for (uint32_t i = 0; i < width; i++) {
        float x = lr / (sqrtf(mine[width + i]) + eps) * (mine[width + i] - seen[width + i]);
        x = x < X_MOST ? x : X_MOST; /* also if there is no number */
        out[i] = (1.0f + x) / (1.0f + threads * x) * (mine[i] - seen[i]);
    }
}

static void hot_exchange(mst_hot_weights *hot, unsigned t, uint32_t b, const mst_rule *rule)
{
    hot_thread *self = &hot->threads[t];
    hot_block *block = &hot->blocks[b];
    hot_place at = hot_find(hot, t, b);
    float *seen = self->seen[b], x[HOT_BLOCK + 1], changes[HOT_BLOCK + 1], threads = (float)hot->n_threads;
    uint32_t n = at.n * at.sent;
    if (at.key != 0) {
        float mine[HOT_BLOCK + 1];
        hot_gather(hot, at.key, mine);
        hot_damp_key(mine, seen, hot->width, rule, threads, changes);
    } else {
        float stiff = hot_ways(&at, rule, self->second * (float)(self->steps - self->last[b].steps),
                               threads * fmaxf(self->all_stiff, 1.0f), x);
        self->all_stiff += stiff - self->stiff[b];
        self->stiff[b] = stiff;
        stiff = self->all_stiff > 1.0f ? self->all_stiff : 1.0f;
        hot_damp(&at, seen, rule->kind == MST_RULE_FTRL, stiff, threads, x, changes);
    }
    unsigned before;
    if (!hot_take(block, &before))
        return;
    for (uint32_t i = 0; i < n; i++) /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        seen[i] = block->at[i] = block->at[i] + changes[i];
    atomic_store_explicit(&block->exchanges, before + 2, memory_order_release);
    self->last[b] = (hot_last){.steps = self->steps, .exchanges = before + 2};
    if (at.key != 0) {
        hot_scatter(hot, at.key, seen);
        return;
    }
    if (at.sent == 1 && at.step == 1) {
        memcpy(at.base, seen, n * sizeof *seen);
        return;
    }
    for (uint32_t i = 0; i < at.n; i++)
        for (uint32_t j = 0; j < at.sent; j++)
            at.base[i * at.step + j * at.jump] = seen[i * at.sent + j];
}

/* Whether thread t has changed the linear weight of a key of several weights, or its state, since its last
 * exchange. A step that changes neither, by a number of 0 or by a slope whose square is lost in the state,
 * leaves the key for a later exchange, at the latest that of end. */
static inline bool hot_key_moved(const mst_hot_weights *hot, unsigned t, uint32_t b)
{
    const float *mine = mst_key_first(&hot->params->rows, hot_find(hot, t, b).key),
                *seen = hot->threads[t].seen[b];
    return mine[0] != seen[0] || mine[1] != seen[hot->width];
}

/* Whether others have exchanged a block since thread t did. */
static inline bool hot_block_moved(const mst_hot_weights *hot, unsigned t, uint32_t b)
{
    return atomic_load_explicit(&hot->blocks[b].exchanges, memory_order_relaxed) !=
           hot->threads[t].last[b].exchanges;
}

void mst_hot_exchange_blocks(mst_hot_weights *hot, unsigned t, uint32_t first, uint32_t to,
                             const mst_rule *rule, bool all)
{
    enum { AHEAD = 4 };
    all = all || hot->width == 1 || first < hot->n_dense_blocks;
    for (uint32_t b = first; b < to; b++) {
        for (uint32_t ahead = b == first ? b : b + AHEAD; ahead <= b + AHEAD && ahead < to; ahead++) {
            const char *block = (const char *)&hot->blocks[ahead];
            if (!all && !hot_key_moved(hot, t, ahead))
                __builtin_prefetch(block);
            else
                for (size_t i = 0; i < sizeof *hot->blocks; i += 64)
                    __builtin_prefetch(block + i, 1);
        }
        if (all || hot_key_moved(hot, t, b) || hot_block_moved(hot, t, b))
            hot_exchange(hot, t, b, rule);
    }
}

/* Rows of one thread between exchanges: `rows`, but less at the start. */
static uint32_t hot_interval(const mst_hot_weights *hot, uint32_t rows, uint64_t rows_so_far)
{
    uint64_t most = rows_so_far / WARM / hot->n_threads;
    uint64_t mine = rows < most ? rows : most;
    return mine > 1 ? (uint32_t)mine : 1;
}

uint32_t mst_hot_weights_interval(const mst_hot_weights *hot, uint64_t rows_so_far)
{
    return hot_interval(hot, HOT_DENSE_ROWS, rows_so_far);
}

void mst_hot_weights_exchange(mst_hot_weights *hot, unsigned t, uint32_t n_rows, uint64_t n_steps,
                              const mst_rule *rule, float loss, uint64_t rows_so_far)
{
    hot_thread *self = &hot->threads[t];
    self->steps += n_steps;
    self->rule = *rule;
    self->second = loss < LN2 ? 0.25f / LN2 * loss : 0.25f;
    mst_hot_exchange_blocks(hot, t, 0, hot->n_dense_blocks, rule, false);
    for (uint32_t p = 0, first = hot->n_dense_blocks; p < HOT_PARTS && first < hot->n_blocks; p++) {
        uint32_t to = first + (1u << p);
        self->since[p] += n_rows;
        if (self->since[p] >= hot_interval(hot, hot->rows_of_part[p], rows_so_far)) {
            mst_hot_exchange_blocks(hot, t, first, to < hot->n_blocks ? to : hot->n_blocks, rule, false);
            self->since[p] = 0;
        }
        first = to;
    }
}
