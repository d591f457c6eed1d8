/* Names of features, and the survey of the first block (contract: tfrecord_survey.h). */
#include "data/tfrecord_survey.h"

#include "base/alloc.h"
#include "data/image.h"
#include "data/text.h"

/* ---- names ---- */

static void link_name(mst_tf_layout *l, size_t i)
{
    uint32_t mask = (1u << l->bucket_bits) - 1;
    uint32_t s = mst_tf_bucket(l->names[i].head, l->names[i].size, l->bucket_bits);
    while (l->buckets[s] != 0)
        s = (s + 1) & mask;
    l->buckets[s] = (uint16_t)(i + 1);
}

mst_tf_layout *mst_tf_layout_alloc(void)
{
    mst_tf_layout *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return NULL;
    l->bucket_bits = 6;
    l->buckets = mst_calloc((size_t)1 << l->bucket_bits, sizeof *l->buckets);
    if (l->buckets == NULL) {
        mst_free(l);
        return NULL;
    }
    return l;
}

void mst_tf_layout_destroy(mst_tf_layout *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_names; i++)
        mst_free(l->names[i].text);
    mst_free(l->names);
    mst_free(l->buckets);
    mst_free(l->images);
    mst_free(l->strange);
    mst_free(l->bare);
    mst_text_list_fini(&l->left_out);
    mst_free(l);
}

static uint64_t text_head(const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;
    return mst_tf_head(bytes, size, bytes + size);
}

mst_status mst_tf_add_name(mst_tf_layout *l, const char *text, size_t size, mst_tf_name **out)
{
    if (l->n_names == MST_TFRECORD_NAMES)
        return mst_fail(MST_EINPUT,
                        "TFRecord rows of more than %u features: name the ones to use with --tf-columns",
                        MST_TFRECORD_NAMES);
    if (!mst_grow(&l->names, &l->name_capacity, l->n_names + 1, sizeof *l->names))
        return mst_fail_memory();
    if ((l->n_names + 1) * 4 > (size_t)1 << l->bucket_bits) {
        uint16_t *bigger = mst_calloc((size_t)2 << l->bucket_bits, sizeof *bigger);
        if (bigger == NULL)
            return mst_fail_memory();
        mst_free(l->buckets);
        l->buckets = bigger;
        l->bucket_bits++;
        for (size_t i = 0; i < l->n_names; i++)
            link_name(l, i);
    }
    char *copy = mst_alloc(size + 1);
    if (copy == NULL)
        return mst_fail_memory();
    memcpy(copy, text, size);
    copy[size] = '\0';
    mst_tf_name *name = &l->names[l->n_names];
    *name = (mst_tf_name){.text = copy, .size = (uint32_t)size, .head = text_head(text, size)};
    link_name(l, l->n_names++);
    *out = name;
    return MST_OK;
}

size_t mst_tf_find_text(const mst_tf_layout *l, const char *text, size_t size)
{
    return mst_tf_find(l, (const uint8_t *)text, size, text_head(text, size));
}

/* ---- survey ---- */

int mst_tf_side_of(const mst_example_feature *feature)
{
    static const struct {
        const char *name;
        int side;
    } known[] = {{"height", MST_TF_HEIGHT},
                 {"width", MST_TF_WIDTH},
                 {"depth", MST_TF_DEPTH},
                 {"channels", MST_TF_DEPTH}};
    const uint8_t *name = feature->name;
    size_t size = feature->name_size;
    if (size > 6 && memcmp(name, "image/", 6) == 0) {
        name += 6;
        size -= 6;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (size == strlen(known[i].name) && memcmp(name, known[i].name, size) == 0)
            return known[i].side;
    return MST_TF_SIDES;
}

static void look_at_bytes(const mst_tf_survey *s, mst_tf_finding *f, const uint8_t *value, size_t n)
{
    f->text = f->text && mst_looks_like_text(value, n);
    if (f->record != 0)
        return;
    f->encoded = mst_image_sniff(value, n);
    f->length = n;
    f->record = s->n_records + 1;
}

/* The record is read: which of its bytes have the size of its image? */
static void end_record(mst_tf_survey *s)
{
    int64_t *side = s->sides, area = 0;
    bool possible = true;
    for (int i = 0; i < MST_TF_SIDES; i++)
        possible = possible && mst_tf_side_possible(i, side[i]);
    if (possible)
        area = side[MST_TF_HEIGHT] * side[MST_TF_WIDTH];
    for (size_t i = 0; i < s->names->n_names; i++) {
        mst_tf_finding *f = &s->findings[i];
        if (f->kind != MST_EXAMPLE_BYTES || f->record != s->n_records + 1)
            continue;
        memcpy(f->sides, side, sizeof f->sides);
        f->raw = area > 0 && f->length > 0 &&
                 (side[MST_TF_DEPTH] > 0 ? f->length == (uint64_t)(area * side[MST_TF_DEPTH])
                                         : f->length == (uint64_t)area || f->length == (uint64_t)area * 3);
    }
    if (area > 0 && s->first_sides[MST_TF_HEIGHT] == 0)
        memcpy(s->first_sides, side, sizeof s->sides);
    s->n_records++;
    memset(side, 0, sizeof s->sides);
}

/* The index of the feature's finding; n_names: it has none yet. */
static size_t survey_find(const mst_tf_survey *s, const mst_example_feature *feature, const uint8_t *end)
{
    uint64_t head = mst_tf_head(feature->name, feature->name_size, end);
    size_t i = mst_tf_find(s->names, feature->name, feature->name_size, head);
    return i < s->names->n_names ? i : s->names->n_names;
}

/* Adds the record's new names, and notes where each name occurs last. */
static mst_status find_last(mst_tf_survey *s, const uint8_t *data, size_t n)
{
    mst_example_walk walk;
    mst_example_feature feature;
    mst_example_walk_init(&walk, data, n);
    for (uint32_t position = 0; mst_example_next(&walk, &feature); position++) {
        size_t i = survey_find(s, &feature, data + n);
        mst_tf_name *ignored;
        if (i == s->names->n_names && feature.kind != MST_EXAMPLE_NONE &&
            i < MST_TFRECORD_NAMES) { /* more cannot be used; add_name fails if they are needed */
            TRY(mst_tf_add_name(s->names, (const char *)feature.name, feature.name_size, &ignored));
            s->findings[i] = (mst_tf_finding){.min = INT64_MAX, .max = INT64_MIN, .text = true};
        }
        if (i < s->names->n_names)
            s->findings[i].last = position;
    }
    return MST_OK; /* a broken record is found by the walk that follows */
}

static mst_status survey_look_at(const mst_block *block, const uint8_t *record, mst_tf_survey *s,
                                 mst_tf_finding *f, const mst_example_feature *feature)
{
    if (f->kind == MST_EXAMPLE_NONE)
        f->kind = feature->kind;
    f->mixed |= f->kind != feature->kind;
    mst_example_list list;
    const uint8_t *run;
    size_t n, width = 0;
    int side = feature->kind == MST_EXAMPLE_INTS ? mst_tf_side_of(feature) : MST_TF_SIDES;
    mst_example_list_init(&list, feature);
    while (mst_example_run(&list, &run, &n)) {
        if (feature->kind == MST_EXAMPLE_BYTES)
            look_at_bytes(s, f, run, n);
        else if (feature->kind == MST_EXAMPLE_FLOATS)
            width += n / 4;
        else if (feature->kind == MST_EXAMPLE_INTS)
            for (const uint8_t *at = run; at < run + n;) {
                uint64_t bits;
                at = mst_varint(at, run + n, &bits);
                if (at == NULL)
                    return mst_block_fail(
                        &mst_format_tfrecord, block, record, "feature \"%.*s\" holds a broken int64",
                        (int)(feature->name_size < 80 ? feature->name_size : 80), feature->name);
                int64_t value = (int64_t)bits;
                f->min = value < f->min ? value : f->min;
                f->max = value > f->max ? value : f->max;
                if (side < MST_TF_SIDES)
                    s->sides[side] = value;
            }
    }
    if (list.problem != NULL)
        return mst_block_fail(&mst_format_tfrecord, block, record, "%s", list.problem);
    if (width != 0) {
        f->varying |= f->width != 0 && f->width != width;
        f->width = (uint32_t)width; /* a record is at most 64 MiB */
    }
    return MST_OK;
}

/* Whether a later feature of the record replaces this one. */
static bool survey_is_replaced(mst_example_walk walk, const mst_example_feature *feature)
{
    mst_example_feature later;
    while (mst_example_next(&walk, &later))
        if (later.name_size == feature->name_size && memcmp(later.name, feature->name, later.name_size) == 0)
            return true;
    return false;
}

/* Whether all features of a record can be read, without a trace in the survey. */
static mst_status survey_check(const mst_block *block, const uint8_t *record, const uint8_t *data, size_t n)
{
    mst_tf_survey aside = {0};
    mst_example_walk walk;
    mst_example_feature feature;
    mst_example_walk_init(&walk, data, n);
    while (mst_example_next(&walk, &feature)) {
        mst_tf_finding finding = {0};
        mst_status st = feature.kind != MST_EXAMPLE_NONE
                            ? survey_look_at(block, record, &aside, &finding, &feature)
                            : MST_OK;
        if (st != MST_OK && !survey_is_replaced(walk, &feature))
            return st;
    }
    return walk.problem == NULL ? MST_OK
                                : mst_block_fail(&mst_format_tfrecord, block, record, "%s", walk.problem);
}

mst_status mst_tfrecord_check(const mst_block *block)
{
    const uint8_t *at = block->data, *end = block->data + block->size;
    while (at < end) {
        const uint8_t *data = NULL, *record = at;
        size_t n = 0;
        TRY(mst_tfrecord_next(block, &at, &data, &n));
        TRY(survey_check(block, record, data, n));
    }
    return MST_OK;
}

static mst_status survey_take(const mst_block *block, const uint8_t *record, const uint8_t *data, size_t n,
                              mst_tf_survey *s)
{
    mst_example_walk walk;
    mst_example_feature feature;
    TRY(find_last(s, data, n));
    mst_example_walk_init(&walk, data, n);
    for (uint32_t position = 0; mst_example_next(&walk, &feature); position++) {
        size_t i = survey_find(s, &feature, data + n);
        if (i < s->names->n_names && s->findings[i].last == position && feature.kind != MST_EXAMPLE_NONE)
            TRY(survey_look_at(block, record, s, &s->findings[i], &feature));
    }
    if (walk.problem != NULL)
        return mst_block_fail(&mst_format_tfrecord, block, record, "%s", walk.problem);
    end_record(s);
    return MST_OK;
}

mst_status mst_tf_take_survey(const mst_block *block, bool skip, mst_tf_survey *s)
{
    const uint8_t *at = block->data, *end = block->data + block->size;
    mst_status st = MST_OK;
    while (at < end) {
        const uint8_t *data = NULL, *record = at;
        size_t n = 0;
        st = mst_tfrecord_next(block, &at, &data, &n);
        if (st == MST_OK && skip)
            st = survey_check(block, record, data, n);
        if (st == MST_OK)
            TRY(survey_take(block, record, data, n, s));
        else if (st != MST_EINPUT || !skip || at == record)
            return st;
    }
    return s->n_records > 0 ? MST_OK : st;
}
