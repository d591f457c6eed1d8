/* Settles how the rows of a TFRecord dataset are laid out, from the options and a survey of the first block:
 * which features there are, of what kind and width, and in what range their int64 values lie (rules:
 * tfrecord.c). */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "data/image.h"
#include "data/origin.h"
#include "data/text.h"
#include "data/tfrecord.h"

/* What the first block shows of a feature; parallel to the survey's names. */
typedef struct finding {
    mst_example_kind kind;
    bool mixed;       /* of more than one kind */
    bool varying;     /* float lists of different lengths */
    uint32_t width;   /* of its float lists; 0: only empty ones */
    int64_t min, max; /* of its int64 values; min > max: none */
    bool text;        /* bytes: all values are text */
    bool encoded;     /* bytes: the first value is a JPEG or PNG file */
    bool raw;         /* bytes: the first value is as long as the sides of the record's image say */
    size_t length;    /* bytes: of the first value ... */
    uint64_t record;  /* ... which is in the record of this number, from 1; 0: no value yet */
} finding;

enum { HEIGHT, WIDTH, DEPTH, SIDES };

typedef struct survey {
    mst_tf_layout *names;
    finding *findings; /* MST_TFRECORD_NAMES */
    uint64_t n_records;
    int64_t sides[SIDES], first_sides[SIDES]; /* of the record's image; of the first image; 0: none */
} survey;

/* ---- names ---- */

static mst_status no_memory(void)
{
    return mst_fail(MST_ENOMEM, "out of memory: the layout of TFRecord rows");
}

static void link_name(mst_tf_layout *l, size_t i)
{
    uint32_t mask = (1u << l->slot_bits) - 1;
    uint32_t s = mst_tf_slot(l->names[i].head, l->names[i].size, l->slot_bits);
    while (l->slots[s] != 0)
        s = (s + 1) & mask;
    l->slots[s] = (uint16_t)(i + 1);
}

static mst_tf_layout *layout_alloc(void)
{
    mst_tf_layout *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return NULL;
    l->slot_bits = 6;
    l->slots = mst_calloc((size_t)1 << l->slot_bits, sizeof *l->slots);
    if (l->slots == NULL) {
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
    mst_free(l->slots);
    mst_free(l->images);
    mst_free(l->strange);
    mst_text_list_fini(&l->left_out);
    mst_free(l);
}

static uint64_t text_head(const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;
    return mst_tf_head(bytes, size, bytes + size);
}

/* Adds a name that is not there yet; *out is its entry, to be filled by the caller. */
static mst_status add_name(mst_tf_layout *l, const char *text, size_t size, mst_tf_name **out)
{
    if (l->n_names == MST_TFRECORD_NAMES)
        return mst_fail(MST_EINPUT,
                        "TFRecord rows of more than %u features: name the ones to use with --tf-columns",
                        MST_TFRECORD_NAMES);
    if (!mst_grow(&l->names, &l->name_capacity, l->n_names + 1, sizeof *l->names))
        return no_memory();
    if ((l->n_names + 1) * 4 > (size_t)1 << l->slot_bits) {
        uint16_t *bigger = mst_calloc((size_t)2 << l->slot_bits, sizeof *bigger);
        if (bigger == NULL)
            return no_memory();
        mst_free(l->slots);
        l->slots = bigger;
        l->slot_bits++;
        for (size_t i = 0; i < l->n_names; i++)
            link_name(l, i);
    }
    char *copy = mst_alloc(size + 1);
    if (copy == NULL)
        return no_memory();
    memcpy(copy, text, size);
    copy[size] = '\0';
    mst_tf_name *name = &l->names[l->n_names];
    *name = (mst_tf_name){.text = copy, .size = (uint32_t)size, .head = text_head(text, size)};
    link_name(l, l->n_names++);
    *out = name;
    return MST_OK;
}

static size_t find_text(const mst_tf_layout *l, const char *text, size_t size)
{
    return mst_tf_find(l, (const uint8_t *)text, size, text_head(text, size));
}

/* Adds a name that the user gave. */
static mst_status add_wanted(mst_tf_layout *l, const char *text, size_t size, mst_tf_role role,
                             mst_tf_name **out)
{
    mst_tf_name *name;
    if (size == 0 || find_text(l, text, size) != l->n_names)
        return mst_fail(MST_EUSAGE, "the --tf-... options name the feature \"%.*s\" twice", (int)size, text);
    TRY(add_name(l, text, size, &name));
    name->role = role;
    if (out != NULL)
        *out = name;
    return MST_OK;
}

/* ---- survey ---- */

/* Which side of an image a feature speaks of; SIDES: none. */
static int side_of(const mst_example_feature *feature)
{
    static const struct {
        const char *name;
        int side;
    } known[] = {{"height", HEIGHT}, {"width", WIDTH}, {"depth", DEPTH}, {"channels", DEPTH}};
    const uint8_t *name = feature->name;
    size_t size = feature->name_size;
    if (size > 6 && memcmp(name, "image/", 6) == 0) {
        name += 6;
        size -= 6;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (size == strlen(known[i].name) && memcmp(name, known[i].name, size) == 0)
            return known[i].side;
    return SIDES;
}

static void look_at_bytes(const survey *s, finding *f, const uint8_t *value, size_t n)
{
    f->text = f->text && mst_looks_like_text(value, n);
    if (f->record != 0)
        return;
    f->encoded = mst_image_sniff(value, n);
    f->length = n;
    f->record = s->n_records + 1;
}

/* The record is read: which of its bytes have the size of its image? */
static void end_record(survey *s)
{
    int64_t *side = s->sides, area = 0;
    if (side[HEIGHT] > 0 && side[WIDTH] > 0 && side[HEIGHT] <= MST_IMAGE_SIDE_MAX &&
        side[WIDTH] <= MST_IMAGE_SIDE_MAX && side[DEPTH] >= 0 && side[DEPTH] <= 255)
        area = side[HEIGHT] * side[WIDTH];
    for (size_t i = 0; i < s->names->n_names; i++) {
        finding *f = &s->findings[i];
        if (f->kind == MST_EXAMPLE_BYTES && f->record == s->n_records + 1)
            f->raw = area > 0 && f->length > 0 &&
                     (side[DEPTH] > 0 ? f->length == (uint64_t)(area * side[DEPTH])
                                      : f->length == (uint64_t)area || f->length == (uint64_t)area * 3);
    }
    if (area > 0 && s->first_sides[HEIGHT] == 0)
        memcpy(s->first_sides, side, sizeof s->sides);
    s->n_records++;
    memset(side, 0, sizeof s->sides);
}

static mst_status look_at(const mst_block *block, const uint8_t *record, survey *s,
                          const mst_example_feature *feature, const uint8_t *end)
{
    uint64_t head = mst_tf_head(feature->name, feature->name_size, end);
    size_t i = mst_tf_find(s->names, feature->name, feature->name_size, head);
    if (feature->kind == MST_EXAMPLE_NONE)
        return MST_OK;
    if (i == s->names->n_names) {
        mst_tf_name *ignored;
        if (i == MST_TFRECORD_NAMES)
            return MST_OK; /* more than can be used; add_name says so if they are wanted */
        TRY(add_name(s->names, (const char *)feature->name, feature->name_size, &ignored));
        s->findings[i] = (finding){.kind = feature->kind, .min = INT64_MAX, .max = INT64_MIN, .text = true};
    }
    finding *f = &s->findings[i];
    f->mixed |= f->kind != feature->kind;
    mst_example_list list;
    const uint8_t *run;
    size_t n, width = 0;
    int side = feature->kind == MST_EXAMPLE_INTS ? side_of(feature) : SIDES;
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
                if (side < SIDES)
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

static mst_status take_survey(const mst_block *block, survey *s)
{
    const uint8_t *at = block->data, *end = block->data + block->size;
    while (at < end) {
        const uint8_t *data = NULL, *record = at;
        size_t n = 0;
        mst_example_walk walk;
        mst_example_feature feature;
        TRY(mst_tfrecord_next(block, &at, &data, &n));
        mst_example_walk_init(&walk, data, n);
        while (mst_example_next(&walk, &feature))
            TRY(look_at(block, record, s, &feature, data + n));
        if (walk.problem != NULL)
            return mst_block_fail(&mst_format_tfrecord, block, record, "%s", walk.problem);
        end_record(s);
    }
    return MST_OK;
}

/* ---- columns ---- */

/* I2 before I10: runs of digits compare as numbers, all else by bytes. */
static int natural_order(const void *a, const void *b)
{
    const unsigned char *x = *(const unsigned char *const *)a, *y = *(const unsigned char *const *)b;
    while (*x != 0 && *y != 0) {
        if (isdigit(*x) && isdigit(*y)) {
            size_t m = 0, n = 0;
            for (; *x == '0' && isdigit(x[1]); x++) {
            }
            for (; *y == '0' && isdigit(y[1]); y++) {
            }
            while (isdigit(x[m]))
                m++;
            while (isdigit(y[n]))
                n++;
            int order = m != n ? (m < n ? -1 : 1) : memcmp(x, y, m);
            if (order != 0)
                return order;
            x += m;
            y += n;
        } else if (*x != *y) {
            return *x < *y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    return (*x != 0) - (*y != 0);
}

/* Names that the survey found and the layout does not have, by name; freed with mst_free. NULL when memory is
 * short. */
static const char **names_left(const mst_tf_layout *l, const survey *s, size_t *n)
{
    const char **texts = mst_calloc(s->names->n_names + 1, sizeof *texts);
    *n = 0;
    for (size_t i = 0; texts != NULL && i < s->names->n_names; i++) {
        const mst_tf_name *name = &s->names->names[i];
        if (name->size > 0 && strlen(name->text) == name->size && /* no zero byte in it */
            find_text(l, name->text, name->size) == l->n_names)
            texts[(*n)++] = name->text;
    }
    if (texts != NULL)
        qsort(texts, *n, sizeof *texts, natural_order);
    return texts;
}

/* Of a name that the survey has. */
static const finding *finding_of(const survey *s, const char *text)
{
    return &s->findings[find_text(s->names, text, strlen(text))];
}

/* Every feature of numbers or text that is not spoken for, by name. */
static mst_status columns_found(mst_tf_layout *l, const survey *s, bool text)
{
    mst_status st = MST_OK;
    size_t n;
    const char **texts = names_left(l, s, &n);
    if (texts == NULL)
        return no_memory();
    for (size_t i = 0; i < n; i++) {
        const finding *f = finding_of(s, texts[i]);
        if (f->kind != MST_EXAMPLE_BYTES || (text && f->text))
            TRY_OUT(st, add_wanted(l, texts[i], strlen(texts[i]), MST_TF_CATEGORY, NULL));
    }
out:
    mst_free(texts);
    return st;
}

/* Names what is left out, unless the user chose the columns. */
static mst_status note_left_out(mst_tf_layout *l, const survey *s)
{
    mst_status st = MST_OK;
    size_t n;
    const char **texts = names_left(l, s, &n);
    l->strange = mst_zalloc(sizeof *l->strange);
    if (texts == NULL || l->strange == NULL) {
        st = no_memory();
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        mst_tf_name *name = NULL;
        char *clean = mst_utf8_clean(texts[i]);
        st = clean != NULL ? mst_text_list_add(&l->left_out, clean) : no_memory();
        mst_free(clean);
        TRY_OUT(st, st);
        if (l->n_names < MST_TFRECORD_NAMES) {
            TRY_OUT(st, add_name(l, texts[i], strlen(texts[i]), &name));
            name->role = MST_TF_LEFT_OUT;
        }
    }
out:
    mst_free(texts);
    return st;
}

/* ---- images ---- */

/* How much a feature looks like the image of its record; 0: not at all. */
static int image_score(const mst_tf_name *name, const finding *f)
{
    static const char *const usual[] = {"image", "image_raw", "image/encoded"};
    bool called = memmem(name->text, name->size, "image", 5) != NULL;
    int score = 1;
    if (f->kind != MST_EXAMPLE_BYTES || strlen(name->text) != name->size ||
        !(f->encoded || (f->raw && (called || !f->text))))
        return 0;
    for (int i = 0; i < 3; i++)
        if (strcmp(name->text, usual[i]) == 0)
            score = 2 + i;
    return score;
}

/* The feature that is the row's image; NULL: rows are none. Columns that were given must be that feature. */
static const mst_tf_name *find_image(const survey *s, const char *given)
{
    const mst_tf_name *best = NULL;
    int best_score = 0;
    for (size_t i = 0; i < s->names->n_names; i++) {
        const mst_tf_name *name = &s->names->names[i];
        int score = given == NULL || strcmp(name->text, given) == 0 ? image_score(name, &s->findings[i]) : 0;
        if (score > best_score ||
            (score > 0 && score == best_score && natural_order(&name->text, &best->text) < 0)) {
            best = name;
            best_score = score;
        }
    }
    return best;
}

/* The features that hold the sides of raw images: each must be in every record what it is in the first. */
static mst_status add_sides(mst_tf_layout *l, const survey *s)
{
    for (size_t i = 0; i < s->names->n_names; i++) {
        const mst_tf_name *found = &s->names->names[i];
        mst_example_feature feature = {.name = (const uint8_t *)found->text, .name_size = found->size};
        int side = s->findings[i].kind == MST_EXAMPLE_INTS ? side_of(&feature) : SIDES;
        mst_tf_name *name = NULL;
        if (side == SIDES || s->first_sides[side] == 0 || find_text(l, found->text, found->size) < l->n_names)
            continue;
        TRY(add_wanted(l, found->text, found->size, MST_TF_SIDE, &name));
        name->width = (uint32_t)s->first_sides[side];
    }
    return MST_OK;
}

static mst_status settle_image(mst_tf_layout *l, const survey *s, const mst_tf_name *image,
                               mst_parse_context *context)
{
    const finding *f = finding_of(s, image->text);
    l->images = mst_zalloc(sizeof *l->images);
    if (l->images == NULL)
        return no_memory();
    l->image = l->n_names;
    TRY(add_wanted(l, image->text, image->size, MST_TF_IMAGE, NULL));
    l->encoded = f->encoded;
    if (l->encoded) {
        TRY(mst_image_rows_init(l->images, context->options));
    } else {
        TRY(add_sides(l, s));
        l->images->height = (uint32_t)s->first_sides[HEIGHT];
        l->images->width = (uint32_t)s->first_sides[WIDTH];
        l->images->channels = s->first_sides[DEPTH] > 0 ? (uint32_t)s->first_sides[DEPTH]
                              : f->length == (size_t)l->images->height * l->images->width ? 1
                                                                                          : 3;
    }
    context->channels = l->images->channels;
    context->height = l->images->height;
    context->width = l->images->width;
    context->encoded = l->encoded;
    context->first_rows = s->n_records;
    context->features = (uint64_t)context->channels * context->height * context->width;
    return MST_OK;
}

/* ---- columns given ---- */

/* Length of the part before the digits that end the text; *number is what they spell. */
static size_t split_number(const char *text, size_t size, uint32_t *number)
{
    size_t n = size;
    while (n > 0 && size - n < 6 && isdigit((unsigned char)text[n - 1]))
        n--;
    *number = 0;
    for (size_t i = n; i < size; i++)
        *number = *number * 10 + (uint32_t)(text[i] - '0');
    return n;
}

/* --tf-columns: names and ranges such as I1..I13, separated by commas. */
static mst_status columns_given(mst_tf_layout *l, const char *text)
{
    for (const char *item = text; item != NULL;) {
        const char *comma = strchr(item, ',');
        size_t size = comma != NULL ? (size_t)(comma - item) : strlen(item);
        const char *dots = memmem(item, size, "..", 2);
        if (dots == NULL) {
            TRY(add_wanted(l, item, size, MST_TF_CATEGORY, NULL));
        } else {
            uint32_t first, last;
            const char *right = dots + 2;
            size_t left_size = (size_t)(dots - item), right_size = size - left_size - 2;
            size_t prefix = split_number(item, left_size, &first);
            size_t right_prefix = split_number(right, right_size, &last);
            if (prefix == left_size || right_prefix == right_size || prefix != right_prefix || first > last ||
                prefix > 200 || memcmp(item, right, prefix) != 0)
                return mst_fail(MST_EUSAGE, "--tf-columns: \"%.*s\" is not a range such as I1..I13",
                                (int)size, item);
            for (uint32_t i = first; i <= last; i++) {
                char name[256];
                int n = snprintf(name, sizeof name, "%.*s%u", (int)prefix, item, i);
                TRY(add_wanted(l, name, (size_t)n, MST_TF_CATEGORY, NULL));
            }
        }
        item = comma != NULL ? comma + 1 : NULL;
    }
    return MST_OK;
}

/* Gives every column its role and place, from what the survey saw of it. */
static mst_status place_columns(mst_tf_layout *l, size_t first_column, const survey *s,
                                const mst_block *block)
{
    uint64_t n_dense = 0;
    uint32_t n_categories = 0;
    for (size_t c = first_column; c < l->n_names; c++) {
        mst_tf_name *name = &l->names[c];
        size_t i = find_text(s->names, name->text, name->size);
        if (i == s->names->n_names)
            return mst_fail(MST_EINPUT,
                            "%s: the first %" PRIu64 " records have no feature \"%s\" (--tf-columns)",
                            block->path, s->n_records, name->text);
        const finding *f = &s->findings[i];
        if (f->mixed)
            return mst_fail(MST_EINPUT, "%s: feature \"%s\" is of different kinds in the first records",
                            block->path, name->text);
        name->kind = f->kind;
        if (f->kind != MST_EXAMPLE_FLOATS) {
            name->base = n_categories++;
            continue;
        }
        if (f->varying)
            return mst_fail(
                MST_EINPUT,
                "%s: feature \"%s\" is a float list of varying length, which no column can be: name it "
                "with --tf-value and its indices with --tf-index, or name the columns with --tf-columns",
                block->path, name->text);
        name->role = MST_TF_DENSE;
        name->base = (uint32_t)n_dense;
        name->width = f->width != 0 ? f->width : 1;
        n_dense += name->width;
        if (n_dense >= UINT32_MAX)
            return mst_fail(MST_EINPUT, "%s: the float columns hold more than 2^32 - 2 numbers", block->path);
    }
    l->n_dense = (uint32_t)n_dense;
    return MST_OK;
}

/* Whether the categories are feature numbers already: ranges that ascend from column to column, none below
 * n_dense. */
static bool keys_look_global(const mst_tf_layout *l, size_t first_column, const survey *s, uint64_t limit)
{
    int64_t above = l->n_dense;
    for (size_t c = first_column; c < l->n_names; c++) {
        const mst_tf_name *name = &l->names[c];
        if (name->role != MST_TF_CATEGORY)
            continue;
        const finding *f = &s->findings[find_text(s->names, name->text, name->size)];
        if (f->kind != MST_EXAMPLE_INTS)
            return false;
        if (f->min > f->max) /* no value yet */
            continue;
        if (f->min < above || (uint64_t)f->max >= limit)
            return false;
        above = f->max + 1;
    }
    return true;
}

static mst_status settle_keys(mst_tf_layout *l, size_t first_column, const survey *s,
                              mst_parse_context *context, const mst_block *block)
{
    int keys = context->options->tf_keys;
    uint64_t limit = context->features != 0 ? context->features : UINT32_MAX;
    bool text = false, categories = false;
    for (size_t c = first_column; c < l->n_names; c++) {
        categories |= l->names[c].role == MST_TF_CATEGORY;
        text |= l->names[c].kind == MST_EXAMPLE_BYTES;
    }
    if (keys == MST_TF_KEYS_GLOBAL && text)
        return mst_fail(MST_EUSAGE, "%s: columns of bytes are no feature numbers: use --tf-keys hash",
                        block->path);
    l->hashed = categories &&
                (keys == MST_TF_KEYS_HASH ||
                 (keys == MST_TF_KEYS_AUTO && !keys_look_global(l, first_column, s, mst_key_limit(context))));
    if (l->hashed && context->features == 0)
        context->features = limit = MST_TFRECORD_HASHED;
    if (limit < l->n_dense + (uint64_t)l->hashed)
        return mst_fail(MST_EINPUT,
                        "%s: the float columns alone hold %u features, and --features is %" PRIu64,
                        block->path, l->n_dense, limit);
    return MST_OK;
}

/* ---- the whole ---- */

static const char *or_default(const char *text, const char *fallback)
{
    return text != NULL && *text != '\0' ? text : fallback;
}

/* The feature that holds the label: where records of images have none of the default name, the usual one. */
static const char *label_name(const mst_data_options *o, const survey *s, bool images)
{
    static const char usual[] = "image/class/label";
    const char *label = or_default(o->tf_label, "label");
    bool has = find_text(s->names, label, strlen(label)) < s->names->n_names;
    bool has_usual = find_text(s->names, usual, strlen(usual)) < s->names->n_names;
    return images && !has && has_usual && strcmp(label, "label") == 0 ? usual : label;
}

/* Bytes that are neither text nor images are all there is. */
static mst_status nothing_to_use(const mst_tf_layout *l, const mst_block *block)
{
    return mst_fail(
        MST_EINPUT,
        "%s: no feature can be used: \"%s\"%s holds bytes that are neither text, nor a JPEG or PNG "
        "image, nor raw pixels with int64 features height, width and depth",
        block->path, l->left_out.items[0], l->left_out.n > 1 ? " (one of several)" : "");
}

/* Adds what rows are made of, and names the rest. */
static mst_status settle_rows(mst_tf_layout *l, const survey *s, const mst_tf_name *image,
                              mst_parse_context *context, const mst_block *first)
{
    const mst_data_options *o = context->options;
    const char *index = or_default(o->tf_index, "index"), *value = or_default(o->tf_value, "value");
    bool given = *or_default(o->tf_columns, "") != '\0',
         pairs = find_text(s->names, index, strlen(index)) < s->names->n_names;
    size_t first_column = l->n_names;
    if (image != NULL)
        TRY(settle_image(l, s, image, context));
    else if (given && s->n_records > 0)
        TRY(columns_given(l, o->tf_columns));
    else if (!pairs)
        TRY(columns_found(l, s, o->tf_keys != MST_TF_KEYS_GLOBAL));
    l->columns = image == NULL && l->n_names > first_column;
    if (l->columns) {
        TRY(place_columns(l, first_column, s, first));
        TRY(settle_keys(l, first_column, s, context, first));
    } else if (image == NULL) {
        TRY(add_wanted(l, index, strlen(index), MST_TF_INDEX, NULL));
        TRY(add_wanted(l, value, strlen(value), MST_TF_VALUE, NULL));
    }
    if (given)
        return MST_OK;
    TRY(note_left_out(l, s));
    if (!l->columns && image == NULL && !pairs && l->left_out.n > 0)
        return nothing_to_use(l, first);
    context->left_out = &l->left_out;
    return MST_OK;
}

mst_status mst_tf_layout_new(mst_parse_context *context, const mst_block *first, mst_tf_layout **out)
{
    const mst_data_options *o = context->options;
    const char *index = or_default(o->tf_index, "index"), *given = or_default(o->tf_columns, "");
    mst_status st = MST_OK;
    survey s = {.names = layout_alloc(), .findings = mst_calloc(MST_TFRECORD_NAMES, sizeof(finding))};
    mst_tf_layout *l = layout_alloc();
    if (l == NULL || s.names == NULL || s.findings == NULL) {
        st = no_memory();
        goto out;
    }
    l->hash_seed = (uint64_t)o->hash_seed;
    if (first != NULL && first->size > 0)
        TRY_OUT(st, take_survey(first, &s));
    const mst_tf_name *image = *given != '\0' || find_text(s.names, index, strlen(index)) == s.names->n_names
                                   ? find_image(&s, *given != '\0' ? given : NULL)
                                   : NULL;
    const char *label = label_name(o, &s, image != NULL);
    TRY_OUT(st, add_wanted(l, label, strlen(label), MST_TF_LABEL, NULL)); /* names[0]: parse counts on it */
    if (o->tf_weight != NULL && *o->tf_weight != '\0')
        TRY_OUT(st, add_wanted(l, o->tf_weight, strlen(o->tf_weight), MST_TF_WEIGHT, NULL));
    TRY_OUT(st, settle_rows(l, &s, image, context, first));
    *out = l;
    l = NULL;
out:
    mst_tf_layout_destroy(l);
    mst_tf_layout_destroy(s.names);
    mst_free(s.findings);
    return st;
}

static json_t *column_json(const mst_tf_name *name)
{
    static const char *const kinds[] = {"nothing", "bytes", "float", "int64"};
    char width[24] = "";
    if (name->role == MST_TF_DENSE && name->width != 1)
        snprintf(width, sizeof width, "[%u]", name->width);
    char *clean = mst_utf8_clean(name->text);
    json_t *json = clean != NULL ? json_sprintf("%s %s%s", clean, kinds[name->kind], width) : NULL;
    mst_free(clean);
    return json;
}

json_t *mst_tf_layout_origin(const mst_tf_layout *l, uint64_t features)
{
    json_t *origin = mst_origin_numbers(), *columns = json_array();
    for (size_t i = 0; l->columns && i < l->n_names; i++)
        if ((l->names[i].role == MST_TF_DENSE || l->names[i].role == MST_TF_CATEGORY) &&
            json_array_append_new(columns, column_json(&l->names[i])) != 0) {
            json_decref(origin);
            origin = NULL;
        }
    if (l->columns)
        json_object_set(origin, "columns", columns);
    json_decref(columns);
    if (l->hashed) {
        json_object_set_new(origin, "keys", json_string("tfrecord"));
        json_object_set_new(origin, "features", json_integer((json_int_t)features));
        json_object_set_new(origin, "hash-seed", json_integer((json_int_t)l->hash_seed));
    }
    return origin;
}
