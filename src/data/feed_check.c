/* Checks of the feed's rows: against the model, of the mapped chunks of a window, and of the files that rows
 * come from. */
#include <math.h>
#include <sched.h>

#include "base/clock.h"
#include "base/fault.h"
#include "data/feed_impl.h"

#define LOOK_NS     (20 * MST_MS)                 /* polling interval of the files */
#define FEED_ROW(n) ((unsigned long long)(n) + 1) /* of row n in messages */

/* ---- rows against the model ---- */

bool mst_feed_has_unseen(const mst_feed_options *o, const mst_chunk *c)
{
    return o->features != 0 && c->n_entries != 0 && c->max_key >= o->features;
}

bool mst_feed_has_other_fields(const mst_feed_options *o, const mst_chunk *c)
{
    return o->fields != 0 && c->n_entries != 0 && c->fielded && c->max_field >= o->fields;
}

/* The advice for a label that is not a class. */
static const char *feed_labels_hint(const mst_feed *f, const mst_chunk *c, float label, char out[static 80])
{
    uint32_t classes = f->options.classes;
    if (f->dataset->labels_from != 0)
        return " after --labels-from was taken off";
    if (label != rintf(label))
        return "; classes are whole numbers";
    if (label == (float)classes && c->min_label >= 1.0f)
        return "; if 1 is the first class, give --labels-from 1";
    if (label < (float)classes || label >= 0x1p24f)
        return "";
    snprintf(out, 80, "; more classes need --classes %.0f or more%s", (double)label + 1.0,
             classes == 2 ? ", and --model softmax or a net" : "");
    return out;
}

/* The text that a label is the number of, where labels are texts. */
static const char *feed_label_text(const mst_feed *f, float label, char out[static 80])
{
    const mst_dataset *d = f->dataset;
    if (d->class_names != NULL && label >= 0.0f && label < (float)d->n_class_names)
        snprintf(out, 80, " (\"%.60s\")", d->class_names[(uint32_t)label]);
    return out;
}

/* The first row of the chunk with a feature, or with a field, that is not below the limit, and its number.
 * Both stay as they are if the rows do not state them. */
static mst_status feed_find_beyond(mst_chunk *c, bool fields, uint64_t limit, uint64_t *number, uint32_t *at)
{
    TRY(mst_chunk_check_wait(c));
    for (uint32_t i = c->n_rows; i-- > 0;) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        uint32_t n = (fields ? row.fields != NULL : row.keys != NULL) ? row.n_keys : 0;
        for (uint32_t k = n; k-- > 0;)
            if ((fields ? row.fields[k] : row.keys[k]) >= limit) {
                *number = fields ? row.fields[k] : row.keys[k];
                *at = i;
            }
        if (!fields && row.n_dense > limit) {
            *number = limit;
            *at = i;
        }
    }
    return MST_OK;
}

/* Names the first row with a feature that the model does not have, numbered as in the file. */
static mst_status feed_fail_unseen(const mst_feed *f, mst_chunk *c, uint64_t first_row, const char *whose)
{
    uint64_t features = f->options.features, feature = c->max_key;
    uint32_t base = f->dataset->info.index_base == 1, at = 0;
    TRY(feed_find_beyond(c, false, features, &feature, &at));
    return mst_fail(MST_EINPUT,
                    "%s: row %llu%s has feature %llu, but the model has features %u to %llu; start a new "
                    "training with a larger --features",
                    f->dataset->name, FEED_ROW(first_row + at), whose, (unsigned long long)feature + base,
                    base, (unsigned long long)features - 1 + base);
}

/* Names the first row with a field that the model does not have. */
static mst_status feed_check_fields(const mst_feed *f, mst_chunk *c, uint64_t first_row, const char *whose)
{
    uint32_t fields = f->options.fields, at = 0;
    uint64_t dense = (uint64_t)c->n_rows * c->n_dense;
    if (!c->fielded && c->n_entries > dense)
        return mst_fail(MST_EINPUT, "%s: its rows have no fields, but the model has %u", f->dataset->name,
                        fields);
    uint64_t last = c->fielded ? c->max_field : c->n_dense - 1;
    if (last < fields || (c->fielded && f->options.drop_unseen))
        return MST_OK;
    TRY(feed_find_beyond(c, true, fields, &last, &at));
    return mst_fail(MST_EINPUT, "%s: row %llu%s has field %llu, but the model has fields 0 to %u",
                    f->dataset->name, FEED_ROW(first_row + at), whose, (unsigned long long)last, fields - 1);
}

mst_status mst_feed_check_chunk(const mst_feed *f, mst_chunk *c, uint64_t first_row)
{
    const mst_feed_options *o = &f->options;
    const char *name = f->dataset->name; /* a sharded stream: rows are numbered among the parsed ones */
    const char *whose = !f->dataset->random && o->n_shards > 1 ? " of this worker's share" : "";
    if (f->augmented_stride != 0) {
        if (c->n_rows > 0 &&
            (c->n_dense != mst_augment_in(o->augment) || c->n_entries != (uint64_t)c->n_rows * c->n_dense))
            return mst_fail(MST_EINPUT, "%s: rows from %llu on%s are not images of %u x %u x %u", name,
                            FEED_ROW(first_row), whose, o->augment->channels, o->augment->in_height,
                            o->augment->in_width);
    } else if (mst_feed_has_unseen(o, c) && !o->drop_unseen) {
        return feed_fail_unseen(f, c, first_row, whose);
    }
    if (o->fields != 0 && c->n_entries != 0)
        TRY(feed_check_fields(f, c, first_row, whose));
    if (o->classes == 0 || c->n_rows == 0)
        return MST_OK;
    float lowest = o->classes == 2 ? -1.0f : 0.0f, highest = o->classes == 2 ? 1.0f : (float)(o->classes - 1);
    bool whole = c->whole_labels || (f->dataset->info.scanned && f->dataset->info.labels_integral);
    if (whole && c->min_label >= lowest && c->max_label <= highest)
        return MST_OK;
    TRY(mst_chunk_check_wait(c));
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        char hint[80], text[80] = "";
        mst_chunk_row(c, i, &row);
        if (!(row.label >= lowest && row.label <= highest) || row.label != rintf(row.label))
            return mst_fail(MST_EINPUT, "%s: row %llu%s has label %g%s, which is not %s%u%s", name,
                            FEED_ROW(first_row + i), whose, (double)row.label,
                            feed_label_text(f, row.label, text),
                            o->classes == 2 ? "-1, 0 or " : "a class from 0 to ", o->classes - 1,
                            feed_labels_hint(f, c, row.label, hint));
    }
    return MST_OK;
}

mst_status mst_feed_check(const mst_feed *f, uint32_t c, mst_chunk *chunk)
{
    return mst_feed_check_chunk(f, chunk, (uint64_t)c * f->dataset->chunk_rows);
}

uint64_t mst_feed_drop_unseen(mst_row *rows, uint32_t n, uint64_t features)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        mst_row *row = &rows[i];
        uint32_t before = row->n_dense + row->n_keys;
        if (row->n_dense > features)
            row->n_dense = (uint32_t)features;
        while (row->n_keys > 0 && row->keys[row->n_keys - 1] >= features) /* they ascend */
            row->n_keys--;
        count += row->n_dense + row->n_keys < before;
    }
    return count;
}

/* ---- damage and changed files ---- */

bool mst_feed_check_next(mst_feed *f)
{
    mst_chunk *chunk;
    uint_fast32_t next = atomic_load(&f->next_check);
    do {
        if (!f->by_lanes || next >= f->order.n_chunks)
            return false;
    } while (!atomic_compare_exchange_weak(&f->next_check, &next, next + 1));
    if (f->dataset->ops->peek(f->dataset, f->order.chunks[next], &chunk) != MST_OK)
        return false;
    mst_chunk_check(chunk); /* the lane that gets its rows finds a failure again */
    mst_chunk_release(chunk);
    return true;
}

mst_status mst_feed_check_window(mst_feed *f, mst_feed_window *w)
{
    if (atomic_load_explicit(&w->checked, memory_order_acquire))
        return MST_OK;
    for (uint32_t i = 0; i < w->n_chunks; i++)
        TRY(mst_chunk_check(w->chunks[i]));
    for (uint32_t i = 0; i < w->n_chunks; i++)
        while (!mst_chunk_checked(w->chunks[i])) {
            TRY(mst_chunk_check(w->chunks[i]));
            if (!mst_chunk_checked(w->chunks[i]) && !mst_feed_check_next(f))
                sched_yield(); /* the checking thread needs a fraction of a millisecond and does not wait */
        }
    atomic_store_explicit(&w->checked, true, memory_order_release);
    return MST_OK;
}

mst_status mst_feed_check_files(mst_feed *f, mst_feed_lane *l, bool due)
{
    uint64_t faults = mst_fault_count(), now = f->dataset->ops->intact != NULL ? mst_now_ns() : 0;
    if (now == 0 || (!due && faults == l->faults && now < l->look_ns))
        return MST_OK;
    TRY(mst_dataset_intact(f->dataset));
    uint64_t end = mst_now_ns();
    l->faults = faults;
    l->look_ns = end + LOOK_NS + 100 * (end - now); /* at most 1% of the time */
    return MST_OK;
}
