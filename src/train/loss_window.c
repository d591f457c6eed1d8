/* Contract in loss_window.h.
 *
 * Invariants
 * 1. All parts but the newest have at least PART_ROWS rows each: an interval is added to the newest part
 * until it has as many.
 * 2. All parts but the oldest have fewer than MST_LOSS_ROWS rows together: older ones are not needed. With 1,
 * there are at most MST_LOSS_PARTS + 2. */
#include "train/loss_window.h"

#define PART_ROWS ((MST_LOSS_ROWS + MST_LOSS_PARTS - 1) / MST_LOSS_PARTS)

mst_loss_sum mst_loss_window_sum(const mst_loss_window *self, const mst_loss_sum *interval)
{
    mst_loss_sum sum = *interval;
    uint64_t half = self->interval_rows / 2, enough = half > MST_LOSS_ROWS ? half : MST_LOSS_ROWS;
    for (uint32_t i = self->n; i > 0 && sum.rows < enough; i--)
        mst_add_loss(&sum, &self->parts[i - 1]);
    return sum;
}

static void loss_window_drop_oldest(mst_loss_window *self)
{
    self->n--;
    for (uint32_t i = 0; i < self->n; i++)
        self->parts[i] = self->parts[i + 1];
}

void mst_loss_window_close(mst_loss_window *self, const mst_loss_sum *interval)
{
    uint64_t newer = 0;
    if (interval->rows == 0)
        return;
    self->interval_rows = interval->rows;
    if (self->n > 0 && self->parts[self->n - 1].rows < PART_ROWS) {
        mst_add_loss(&self->parts[self->n - 1], interval);
    } else {
        if (self->n == MST_LOSS_NEWEST)
            loss_window_drop_oldest(self);
        self->parts[self->n++] = *interval;
    }
    for (uint32_t i = 1; i < self->n; i++)
        newer += self->parts[i].rows;
    for (; self->n > 1 && newer >= MST_LOSS_ROWS; newer -= self->parts[0].rows)
        loss_window_drop_oldest(self);
}

json_t *mst_loss_sum_json(const mst_loss_sum *sum)
{
    json_t *json = json_pack("[f, f, I]", sum->loss, sum->weight, (json_int_t)sum->rows);
    if (json != NULL && isfinite(sum->correct))
        json_array_append_new(json, json_real(sum->correct));
    return json;
}

bool mst_loss_sum_restore(mst_loss_sum *sum, const json_t *json)
{
    json_int_t rows;
    mst_loss_sum s = {0};
    const json_t *correct = json_array_get(json, 3);
    if (json_unpack((json_t *)json, "[F, F, I]", &s.loss, &s.weight, &rows) != 0 || rows < 0)
        return false;
    s.rows = (uint64_t)rows;
    s.correct = json_is_number(correct) || rows == 0 ? json_number_value(correct) : (double)NAN;
    *sum = s;
    return true;
}

json_t *mst_loss_window_json(const mst_loss_window *self)
{
    json_t *parts = json_array();
    for (uint32_t i = 0; parts != NULL && i < self->n; i++)
        json_array_append_new(parts, mst_loss_sum_json(&self->parts[i]));
    return json_pack("{s:I, s:o}", "interval_rows", (json_int_t)self->interval_rows, "parts", parts);
}

void mst_loss_window_restore(mst_loss_window *self, const json_t *json)
{
    mst_loss_window w = {0};
    json_int_t rows = json_integer_value(json_object_get(json, "interval_rows"));
    json_t *parts = json_object_get(json, "parts"), *part;
    size_t i;
    *self = w;
    if (rows < 0 || json_array_size(parts) > MST_LOSS_NEWEST)
        return;
    w.interval_rows = (uint64_t)rows;
    json_array_foreach(parts, i, part)
    {
        mst_loss_sum *p = &w.parts[w.n++];
        if (!mst_loss_sum_restore(p, part) || p->rows == 0)
            return;
    }
    *self = w;
}
