/* Settles how the rows of a TFRecord dataset are laid out, from the options and a survey of the first block
 * (rules: tfrecord.c). */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "data/origin.h"
#include "data/tfrecord_survey.h"

/* Adds a name that the user gave. */
static mst_status add_wanted(mst_tf_layout *l, const char *text, size_t size, mst_tf_role role,
                             mst_tf_name **out)
{
    mst_tf_name *name;
    if (size == 0 || mst_tf_find_text(l, text, size) != l->n_names)
        return mst_fail(MST_EUSAGE, "the --tf-... options name the feature \"%.*s\" twice", (int)size, text);
    TRY(mst_tf_add_name(l, text, size, &name));
    name->role = role;
    if (out != NULL)
        *out = name;
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
static const char **names_left(const mst_tf_layout *l, const mst_tf_survey *s, size_t *n)
{
    const char **texts = mst_calloc(s->names->n_names + 1, sizeof *texts);
    *n = 0;
    for (size_t i = 0; texts != NULL && i < s->names->n_names; i++) {
        const mst_tf_name *name = &s->names->names[i];
        if (name->size > 0 && strlen(name->text) == name->size && /* no zero byte in it */
            s->findings[i].kind != MST_EXAMPLE_NONE &&
            mst_tf_find_text(l, name->text, name->size) == l->n_names)
            texts[(*n)++] = name->text;
    }
    if (texts != NULL)
        qsort(texts, *n, sizeof *texts, natural_order);
    return texts;
}

/* Of a name that the survey has. */
static const mst_tf_finding *finding_of(const mst_tf_survey *s, const char *text)
{
    return &s->findings[mst_tf_find_text(s->names, text, strlen(text))];
}

/* Every feature of numbers or text that is not spoken for, by name. */
static mst_status columns_found(mst_tf_layout *l, const mst_tf_survey *s, bool text)
{
    mst_status st = MST_OK;
    size_t n;
    const char **texts = names_left(l, s, &n);
    if (texts == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < n; i++) {
        const mst_tf_finding *f = finding_of(s, texts[i]);
        if (f->kind != MST_EXAMPLE_BYTES || (text && f->text))
            TRY_OUT(st, add_wanted(l, texts[i], strlen(texts[i]), MST_TF_CATEGORY, NULL));
    }
out:
    mst_free(texts);
    return st;
}

/* Lists the features left out, unless the user chose the columns. */
static mst_status note_left_out(mst_tf_layout *l, const mst_tf_survey *s)
{
    mst_status st = MST_OK;
    size_t n;
    const char **texts = names_left(l, s, &n);
    l->strange = mst_zalloc(sizeof *l->strange);
    if (texts == NULL || l->strange == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        mst_tf_name *name = NULL;
        char *clean = mst_utf8_clean(texts[i]);
        st = clean != NULL ? mst_text_list_add(&l->left_out, clean) : mst_fail_memory();
        mst_free(clean);
        if (st != MST_OK)
            goto out;
        if (l->n_names < MST_TFRECORD_NAMES) {
            TRY_OUT(st, mst_tf_add_name(l, texts[i], strlen(texts[i]), &name));
            name->role = MST_TF_LEFT_OUT;
        }
    }
out:
    mst_free(texts);
    return st;
}

/* ---- images ---- */

/* Score of a feature as the image of its record; 0: it is not an image. */
static int image_score(const mst_tf_name *name, const mst_tf_finding *f)
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
static const mst_tf_name *find_image(const mst_tf_survey *s, const char *given)
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

/* Bytes that are called an image, in records with the sides of one, and are none: refused rather than left
 * out, as the sides would become categories. */
static mst_status check_no_image(const mst_tf_survey *s, const mst_block *block)
{
    static const char *const names[] = {"height", "width", "depth"};
    for (size_t i = 0; i < s->names->n_names; i++) {
        const mst_tf_name *name = &s->names->names[i];
        const mst_tf_finding *f = &s->findings[i];
        const int64_t *side = f->sides;
        if (f->kind != MST_EXAMPLE_BYTES || f->text || memmem(name->text, name->size, "image", 5) == NULL ||
            side[MST_TF_HEIGHT] == 0 || side[MST_TF_WIDTH] == 0)
            continue;
        for (int k = 0; k < MST_TF_SIDES; k++)
            if (!mst_tf_side_possible(k, side[k]))
                return mst_fail(MST_EINPUT,
                                "%s: the %s of the image in record %" PRIu64 " is %" PRId64
                                ", which is impossible; --tf-columns chooses other features to use",
                                block->path, names[k], f->record, side[k]);
        return mst_fail(MST_EINPUT,
                        "%s: feature \"%s\" of record %" PRIu64
                        " is neither a JPEG or PNG image nor raw pixels: it "
                        "holds %zu bytes, but its sides are %" PRId64 " x %" PRId64 " x %" PRId64
                        "; --tf-columns chooses other features to use",
                        block->path, name->text, f->record, f->length, side[MST_TF_HEIGHT],
                        side[MST_TF_WIDTH], side[MST_TF_DEPTH] != 0 ? side[MST_TF_DEPTH] : 1);
    }
    return MST_OK;
}

/* The features that hold the sides of raw images: each must be the same in every record. */
static mst_status add_sides(mst_tf_layout *l, const mst_tf_survey *s)
{
    for (size_t i = 0; i < s->names->n_names; i++) {
        const mst_tf_name *found = &s->names->names[i];
        mst_example_feature feature = {.name = (const uint8_t *)found->text, .name_size = found->size};
        int side = s->findings[i].kind == MST_EXAMPLE_INTS ? mst_tf_side_of(&feature) : MST_TF_SIDES;
        mst_tf_name *name = NULL;
        if (side == MST_TF_SIDES || s->first_sides[side] == 0 ||
            mst_tf_find_text(l, found->text, found->size) < l->n_names)
            continue;
        TRY(add_wanted(l, found->text, found->size, MST_TF_SIDE, &name));
        name->width = (uint32_t)s->first_sides[side];
    }
    return MST_OK;
}

static mst_status settle_image(mst_tf_layout *l, const mst_tf_survey *s, const mst_tf_name *image,
                               mst_parse_context *context)
{
    const mst_tf_finding *f = finding_of(s, image->text);
    l->images = mst_zalloc(sizeof *l->images);
    if (l->images == NULL)
        return mst_fail_memory();
    l->image = l->n_names;
    TRY(add_wanted(l, image->text, image->size, MST_TF_IMAGE, NULL));
    l->encoded = f->encoded;
    if (l->encoded) {
        TRY(mst_image_rows_init(l->images, context->options));
    } else {
        TRY(add_sides(l, s));
        l->images->height = (uint32_t)s->first_sides[MST_TF_HEIGHT];
        l->images->width = (uint32_t)s->first_sides[MST_TF_WIDTH];
        l->images->channels = s->first_sides[MST_TF_DEPTH] > 0 ? (uint32_t)s->first_sides[MST_TF_DEPTH]
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

/* Length of the part before the digits that end the text; *number is their value. */
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

static const char *const kind_names[] = {"nothing", "bytes", "float", "int64"};

/* Takes ":bytes", ":int64", ":float" or ":float[N]" off the end of an item. */
static mst_example_kind split_kind(const char *item, size_t *size, uint32_t *width)
{
    const char *colon = memrchr(item, ':', *size), *end = item + *size;
    *width = 0;
    if (colon == NULL)
        return MST_EXAMPLE_NONE;
    for (int kind = MST_EXAMPLE_BYTES; kind <= MST_EXAMPLE_INTS; kind++) {
        size_t n = strlen(kind_names[kind]), left = (size_t)(end - colon) - 1;
        if (left < n || memcmp(colon + 1, kind_names[kind], n) != 0)
            continue;
        const char *p = colon + 1 + n;
        if (kind == MST_EXAMPLE_FLOATS && p < end && *p == '[' && end[-1] == ']' && end - p <= 10)
            for (p++; p < end - 1 && isdigit((unsigned char)*p); p++)
                *width = *width * 10 + (uint32_t)(*p - '0');
        if (p == end || (*width > 0 && p == end - 1)) {
            *size = (size_t)(colon - item);
            return (mst_example_kind)kind;
        }
        *width = 0;
    }
    return MST_EXAMPLE_NONE;
}

/* One item of --tf-columns, without its kind. */
static mst_status add_item(mst_tf_layout *l, const char *item, size_t size)
{
    const char *dots = memmem(item, size, "..", 2);
    if (dots == NULL)
        return add_wanted(l, item, size, MST_TF_CATEGORY, NULL);
    uint32_t first, last;
    const char *right = dots + 2;
    size_t left_size = (size_t)(dots - item), right_size = size - left_size - 2;
    size_t prefix = split_number(item, left_size, &first);
    size_t right_prefix = split_number(right, right_size, &last);
    if (prefix == left_size || right_prefix == right_size || prefix != right_prefix || first > last ||
        prefix > 200 || memcmp(item, right, prefix) != 0)
        return mst_fail(MST_EUSAGE, "--tf-columns: \"%.*s\" is not a range such as I1..I13", (int)size, item);
    for (uint32_t i = first; i <= last; i++) {
        char name[256];
        int n = snprintf(name, sizeof name, "%.*s%u", (int)prefix, item, i);
        TRY(add_wanted(l, name, (size_t)n, MST_TF_CATEGORY, NULL));
    }
    return MST_OK;
}

/* --tf-columns: names and ranges such as I1..I13, separated by commas, each with its kind or without. */
static mst_status columns_given(mst_tf_layout *l, const char *text)
{
    for (const char *item = text; item != NULL;) {
        const char *comma = strchr(item, ',');
        size_t size = comma != NULL ? (size_t)(comma - item) : strlen(item), first = l->n_names;
        uint32_t width;
        mst_example_kind kind = split_kind(item, &size, &width);
        TRY(add_item(l, item, size));
        for (; first < l->n_names; first++) {
            l->names[first].kind = kind;
            l->names[first].width = width;
        }
        item = comma != NULL ? comma + 1 : NULL;
    }
    return MST_OK;
}

/* The type of a column: from --tf-columns, or from the survey. */
static mst_status settle_kind(mst_tf_name *name, const mst_tf_survey *s, const mst_block *block)
{
    size_t i = mst_tf_find_text(s->names, name->text, name->size);
    const mst_tf_finding *f =
        i < s->names->n_names && s->findings[i].kind != MST_EXAMPLE_NONE ? &s->findings[i] : NULL;
    if (f == NULL && name->kind == MST_EXAMPLE_NONE)
        return mst_fail(MST_EINPUT,
                        "%s: the first %" PRIu64 " records have no feature \"%s\" (--tf-columns); %s:bytes, "
                        "%s:int64 or %s:float gives its type",
                        block->path, s->n_records, name->text, name->text, name->text, name->text);
    if (f == NULL)
        return MST_OK;
    if (f->mixed)
        return mst_fail(MST_EINPUT, "%s: feature \"%s\" is of different kinds in the first records",
                        block->path, name->text);
    if (name->kind != MST_EXAMPLE_NONE && name->kind != f->kind)
        return mst_fail(MST_EINPUT, "%s: feature \"%s\" holds %s, but --tf-columns declares %s", block->path,
                        name->text, kind_names[f->kind], kind_names[name->kind]);
    if (f->varying)
        return mst_fail(
            MST_EINPUT,
            "%s: feature \"%s\" is a float list of varying length, which cannot be a column: name it "
            "with --tf-value and its indices with --tf-index, or name the columns with --tf-columns",
            block->path, name->text);
    name->kind = f->kind;
    if (name->width == 0)
        name->width = f->width;
    return MST_OK;
}

/* Whether a record has any of the columns. One record without features may be a row of absent values. */
static mst_status check_columns(const mst_tf_layout *l, size_t first_column, const mst_tf_survey *s,
                                const mst_block *block)
{
    size_t n;
    const char **others = names_left(l, s, &n);
    if (others == NULL)
        return mst_fail_memory();
    mst_status st = MST_OK;
    bool some = n == 0 && s->n_records == 1;
    for (size_t c = first_column; c < l->n_names && !some; c++)
        some = mst_tf_find_text(s->names, l->names[c].text, l->names[c].size) < s->names->n_names;
    if (!some) {
        char *other = n > 0 ? mst_utf8_clean(others[0]) : mst_strdup("no other features");
        size_t columns = l->n_names - first_column;
        st = other == NULL
                 ? mst_fail_memory()
                 : mst_fail(MST_EINPUT,
                            "%s: none of the %zu expected columns (\"%s\"%s) is in the first %" PRIu64
                            " records, which hold %s%s%s%s",
                            block->path, columns, l->names[first_column].text, columns > 1 ? ", ..." : "",
                            s->n_records, n > 0 ? "\"" : "", other, n > 0 ? "\"" : "",
                            n > 1 ? " and others" : "");
        mst_free(other);
    }
    mst_free(others);
    return st;
}

/* Gives every column its role and place. */
static mst_status place_columns(mst_tf_layout *l, size_t first_column, const mst_tf_survey *s,
                                const mst_block *block)
{
    uint64_t n_dense = 0;
    uint32_t n_categories = 0;
    for (size_t c = first_column; c < l->n_names; c++) {
        mst_tf_name *name = &l->names[c];
        TRY(settle_kind(name, s, block));
        if (name->kind != MST_EXAMPLE_FLOATS) {
            name->base = n_categories++;
            continue;
        }
        name->role = MST_TF_DENSE;
        name->base = (uint32_t)n_dense;
        name->width = name->width != 0 ? name->width : 1;
        n_dense += name->width;
        if (n_dense >= UINT32_MAX)
            return mst_fail(MST_EINPUT, "%s: the float columns hold more than 2^32 - 2 numbers", block->path);
    }
    l->n_dense = (uint32_t)n_dense;
    return MST_OK;
}

/* Whether the categories are feature numbers already: ranges that ascend from column to column, none below
 * n_dense. */
static bool keys_look_global(const mst_tf_layout *l, size_t first_column, const mst_tf_survey *s,
                             uint64_t limit)
{
    int64_t above = l->n_dense;
    for (size_t c = first_column; c < l->n_names; c++) {
        const mst_tf_name *name = &l->names[c];
        if (name->role != MST_TF_CATEGORY)
            continue;
        if (name->kind != MST_EXAMPLE_INTS)
            return false;
        size_t i = mst_tf_find_text(s->names, name->text, name->size);
        const mst_tf_finding *f = i < s->names->n_names ? &s->findings[i] : NULL;
        if (f == NULL || f->min > f->max) /* no value yet */
            continue;
        if (f->min < above || (uint64_t)f->max >= limit)
            return false;
        above = f->max + 1;
    }
    return true;
}

static mst_status settle_keys(mst_tf_layout *l, size_t first_column, const mst_tf_survey *s,
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
        return mst_fail(MST_EUSAGE, "%s: columns of bytes are not feature numbers: use --tf-keys hash",
                        block->path);
    l->hashed = categories &&
                (context->vocabulary != NULL || keys == MST_TF_KEYS_HASH ||
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
static const char *label_name(const mst_data_options *o, const mst_tf_survey *s, bool images)
{
    static const char usual[] = "image/class/label";
    const char *label = or_default(o->tf_label, "label");
    bool has = mst_tf_find_text(s->names, label, strlen(label)) < s->names->n_names;
    bool has_usual = mst_tf_find_text(s->names, usual, strlen(usual)) < s->names->n_names;
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

/* Adds the features of rows, and lists the rest. */
static mst_status tf_layout_settle_rows(mst_tf_layout *l, const mst_tf_survey *s, const mst_tf_name *image,
                                        mst_parse_context *context, const mst_block *first)
{
    const mst_data_options *o = context->options;
    const char *index = or_default(o->tf_index, "index"), *value = or_default(o->tf_value, "value");
    bool given = *or_default(o->tf_columns, "") != '\0',
         pairs = mst_tf_find_text(s->names, index, strlen(index)) < s->names->n_names;
    size_t first_column = l->n_names;
    if (image != NULL) {
        TRY(settle_image(l, s, image, context));
    } else if (given && s->n_records > 0) {
        TRY(columns_given(l, o->tf_columns));
        TRY(check_columns(l, first_column, s, first));
    } else if (!pairs) {
        TRY(check_no_image(s, first));
        TRY(columns_found(l, s, o->tf_keys != MST_TF_KEYS_GLOBAL));
    }
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

/* Every number and every category column is a field. */
static mst_status tf_layout_settle_fields(const mst_tf_layout *l, mst_parse_context *context,
                                          const mst_block *block)
{
    uint32_t n_categories = 0;
    for (size_t i = 0; i < l->n_names; i++)
        n_categories += l->names[i].role == MST_TF_CATEGORY;
    bool fits = l->columns && (uint64_t)l->n_dense + n_categories <= MST_FIELDS_MAX;
    if (context->vocabulary != NULL && (!fits || n_categories == 0) && block->size > 0)
        return mst_fail(MST_EUSAGE,
                        "%s: a vocabulary is for columns of categories, and the records have none",
                        block->path);
    context->n_fields = fits ? l->n_dense + n_categories : 0;
    context->n_numbers = l->n_dense;
    return MST_OK;
}

mst_status mst_tf_layout_new(mst_parse_context *context, const mst_block *first, mst_tf_layout **out)
{
    const mst_data_options *o = context->options;
    const char *index = or_default(o->tf_index, "index"), *given = or_default(o->tf_columns, "");
    mst_status st = MST_OK;
    mst_tf_survey s = {.names = mst_tf_layout_alloc(),
                       .findings = mst_calloc(MST_TFRECORD_NAMES, sizeof(mst_tf_finding))};
    mst_tf_layout *l = mst_tf_layout_alloc();
    if (l == NULL || s.names == NULL || s.findings == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    l->hash_seed = (uint64_t)o->hash_seed;
    l->bare = mst_zalloc(sizeof *l->bare);
    if (l->bare == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    if (first->size > 0)
        TRY_OUT(st, mst_format_advise(context, mst_tf_take_survey(first, o->skip_bad_rows, &s)));
    const mst_tf_name *image =
        *given != '\0' || mst_tf_find_text(s.names, index, strlen(index)) == s.names->n_names
            ? find_image(&s, *given != '\0' ? given : NULL)
            : NULL;
    const char *label = label_name(o, &s, image != NULL);
    TRY_OUT(st, add_wanted(l, label, strlen(label), MST_TF_LABEL, NULL)); /* names[0]: parse counts on it */
    if (o->tf_weight != NULL && *o->tf_weight != '\0')
        TRY_OUT(st, add_wanted(l, o->tf_weight, strlen(o->tf_weight), MST_TF_WEIGHT, NULL));
    TRY_OUT(st, tf_layout_settle_rows(l, &s, image, context, first));
    TRY_OUT(st, tf_layout_settle_fields(l, context, first));
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
    char width[24] = "";
    if (name->role == MST_TF_DENSE && name->width != 1)
        snprintf(width, sizeof width, "[%u]", name->width);
    char *clean = mst_utf8_clean(name->text);
    json_t *json = clean != NULL ? json_sprintf("%s %s%s", clean, kind_names[name->kind], width) : NULL;
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
