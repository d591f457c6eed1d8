/* Vocabularies; contract in vocabulary.h.
 *
 * Counter: categories are in SHARDS tables by their hash, each with a mutex, so that parsing threads seldom
 * wait for each other. Names are kept and compared, so different categories never count as one.
 *
 * Vocabulary: one open table by hash; names are compared here, too. The table is at most half full. */
#include "data/vocabulary.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "base/strings.h"
#include "data/dataset.h"
#include "data/origin.h"
#include "data/stream.h"

#define SHARDS     64
#define FIRST_LINE "muster vocabulary 1\n"

typedef struct category {
    uint64_t hash;
    size_t name; /* in the names of its table */
    uint32_t size;
    uint32_t field;
    uint64_t count; /* 0: the slot is free */
    uint32_t key;
} category;

typedef struct category_table {
    pthread_mutex_t mutex; /* of a counter */
    category *slots;
    size_t n, n_slots; /* a power of two, or 0 */
    char *names;
    size_t n_names, name_capacity;
} category_table;

struct mst_vocabulary {
    bool counting, started;
    atomic_bool failed; /* counting: memory was short */
    uint32_t n_dense, n_fields;
    uint64_t features;
    char *path;
    char digest[16];               /* of the file */
    json_t *facts;                 /* the second line of the file */
    const category **by_key;       /* made by the first mst_vocabulary_name; features; NULL: no category */
    uint32_t *rare;                /* n_fields: the key of rare categories; of fields of numbers: the field */
    category_table tables[SHARDS]; /* a vocabulary uses the first alone */
};

static uint64_t category_hash(uint32_t field, const void *name, size_t n)
{
    return XXH3_64bits_withSeed(name, n, field * 0x9e3779b97f4a7c15u);
}

/* The slot of a category, or the free one for it. */
static category *table_find(const category_table *t, uint64_t hash, uint32_t field, const void *name,
                            size_t n)
{
    for (size_t s = (size_t)(hash >> 8) & (t->n_slots - 1);; s = (s + 1) & (t->n_slots - 1)) {
        category *c = &t->slots[s];
        if (c->count == 0 || (c->hash == hash && c->field == field && c->size == n &&
                              (n == 0 || memcmp(t->names + c->name, name, n) == 0)))
            return c;
    }
}

static bool table_grow(category_table *t)
{
    size_t n = t->n_slots > 0 ? 2 * t->n_slots : 64;
    category_table larger = {.slots = mst_calloc(n, sizeof *larger.slots), .n_slots = n, .names = t->names};
    if (larger.slots == NULL)
        return false;
    for (size_t s = 0; s < t->n_slots; s++) {
        const category *c = &t->slots[s];
        if (c->count != 0)
            *table_find(&larger, c->hash, c->field, t->names + c->name, c->size) = *c;
    }
    mst_free(t->slots);
    t->slots = larger.slots;
    t->n_slots = n;
    return true;
}

/* The category, added with count 0 when it is new; NULL when memory is short. */
static category *table_add(category_table *t, uint64_t hash, uint32_t field, const void *name, size_t n)
{
    if (2 * t->n >= t->n_slots && !table_grow(t))
        return NULL;
    category *c = table_find(t, hash, field, name, n);
    if (c->count != 0)
        return c;
    if (n > UINT32_MAX || !mst_grow(&t->names, &t->name_capacity, t->n_names + n + 1, 1))
        return NULL;
    if (n > 0)
        memcpy(t->names + t->n_names, name, n);
    *c = (category){.hash = hash, .name = t->n_names, .size = (uint32_t)n, .field = field};
    t->n_names += n;
    t->n++;
    return c;
}

static mst_status vocabulary_new(mst_vocabulary **out)
{
    mst_vocabulary *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&self->tables[i].mutex, NULL);
    *out = self;
    return MST_OK;
}

mst_status mst_vocabulary_counter_new(mst_vocabulary **out)
{
    TRY(vocabulary_new(out));
    (*out)->counting = true;
    return MST_OK;
}

void mst_vocabulary_destroy(mst_vocabulary *self)
{
    if (self == NULL)
        return;
    for (int i = 0; i < SHARDS; i++) {
        pthread_mutex_destroy(&self->tables[i].mutex);
        mst_free(self->tables[i].slots);
        mst_free(self->tables[i].names);
    }
    json_decref(self->facts);
    mst_free(self->path);
    mst_free(self->by_key);
    mst_free(self->rare);
    mst_free(self);
}

uint32_t mst_vocabulary_key(const mst_vocabulary *self, uint32_t field, const void *name, size_t n)
{
    uint64_t hash = category_hash(field, name, n);
    if (!self->counting) {
        const category *c = table_find(&self->tables[0], hash, field, name, n);
        return c->count != 0 ? c->key : self->rare[field < self->n_fields ? field : self->n_fields - 1];
    }
    if (!self->started)
        return 0;
    mst_vocabulary *counter = (mst_vocabulary *)self;
    category_table *t = &counter->tables[hash % SHARDS];
    pthread_mutex_lock(&t->mutex);
    category *c = table_add(t, hash, field, name, n);
    if (c != NULL)
        c->count++;
    else
        atomic_store(&counter->failed, true);
    pthread_mutex_unlock(&t->mutex);
    return 0;
}

uint32_t mst_vocabulary_number_key(const mst_vocabulary *self, uint32_t field, int64_t number)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRId64, number);
    return mst_vocabulary_key(self, field, text, (size_t)n);
}

uint64_t mst_vocabulary_features(const mst_vocabulary *self)
{
    return self->features;
}

uint32_t mst_vocabulary_fields(const mst_vocabulary *self)
{
    return self->n_fields;
}

const json_t *mst_vocabulary_origin(const mst_vocabulary *self)
{
    return json_object_get(self->facts, MST_ORIGIN);
}

void mst_vocabulary_start(mst_vocabulary *self, uint32_t n_dense)
{
    self->started = true;
    self->n_dense = n_dense;
}

/* The part of an origin that a vocabulary does not replace. New reference or NULL. */
static json_t *vocabulary_source(const json_t *origin)
{
    json_t *source = json_deep_copy(origin);
    json_object_del(source, "features");
    json_object_del(source, "hash-seed");
    json_object_del(source, MST_ORIGIN_LABELS);
    return source;
}

/* Adds the keys of missing values, those without a name, to an origin: one per field, or -1. */
static mst_status vocabulary_list_missing(const mst_vocabulary *self, json_t *origin)
{
    json_t *list = json_array();
    bool any = false;
    for (uint32_t f = 0; f < self->n_fields; f++) {
        const category *c = table_find(&self->tables[0], category_hash(f, "", 0), f, "", 0);
        any |= c->count != 0;
        json_array_append_new(list, json_integer(c->count != 0 ? (json_int_t)c->key : -1));
    }
    if (list != NULL && !any) {
        json_decref(list);
        return MST_OK;
    }
    return json_object_set_new(origin, MST_ORIGIN_MISSING, list) == 0 ? MST_OK : mst_fail_memory();
}

mst_status mst_vocabulary_adopt(const mst_vocabulary *self, const char *name, json_t **origin)
{
    if (self->counting)
        return MST_OK;
    json_t *source = vocabulary_source(*origin), *keys = json_incref(json_object_get(source, "keys"));
    mst_status st = source == NULL ? mst_fail_memory() : MST_OK;
    if (st == MST_OK)
        st = mst_origin_check(mst_vocabulary_origin(self), self->path, source, name);
    if (st == MST_OK && (json_object_set_new(source, "keys", json_string("vocabulary")) != 0 ||
                         json_object_set(source, MST_ORIGIN_SOURCE, keys) != 0 ||
                         json_object_set_new(source, MST_ORIGIN_VOCABULARY, json_string(self->digest)) != 0))
        st = mst_fail_memory();
    if (st == MST_OK)
        st = vocabulary_list_missing(self, source);
    json_decref(keys);
    if (st == MST_OK) {
        json_decref(*origin);
        *origin = source;
        return MST_OK;
    }
    json_decref(source);
    return st;
}

/* ---- writing ---- */

/* A category of the counter, to be sorted. */
typedef struct counted {
    const category *c;
    const char *name;
} counted;

static int compare_counted(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    if (x->c->field != y->c->field)
        return x->c->field < y->c->field ? -1 : 1;
    if (x->c->count != y->c->count)
        return x->c->count > y->c->count ? -1 : 1;
    size_t n = x->c->size < y->c->size ? x->c->size : y->c->size;
    int order = n > 0 ? memcmp(x->name, y->name, n) : 0;
    return order != 0 ? order : (x->c->size > y->c->size) - (x->c->size < y->c->size);
}

/* All categories by field, count and name; freed with mst_free. */
static mst_status vocabulary_sort(const mst_vocabulary *self, counted **out, size_t *n)
{
    size_t total = 0, at = 0;
    for (int i = 0; i < SHARDS; i++)
        total += self->tables[i].n;
    counted *all = mst_calloc(total + 1, sizeof *all);
    if (all == NULL || atomic_load(&self->failed)) {
        mst_free(all);
        return mst_fail(MST_ENOMEM, "not enough memory for the categories of the data");
    }
    for (int i = 0; i < SHARDS; i++)
        for (size_t s = 0; s < self->tables[i].n_slots; s++) {
            const category *c = &self->tables[i].slots[s];
            if (c->count != 0)
                all[at++] = (counted){.c = c, .name = self->tables[i].names + c->name};
        }
    qsort(all, total, sizeof *all, compare_counted);
    *out = all;
    *n = total;
    return MST_OK;
}

static void write_name(mst_string *text, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)name[i];
        if (c > 0x20 && c < 0x7f && c != '\\')
            mst_string_addn(text, name + i, 1);
        else
            mst_string_format(text, "\\x%02x", c);
    }
}

mst_status mst_vocabulary_name(const mst_vocabulary *self, uint64_t key, uint32_t *field, char **name)
{
    const category_table *t = &self->tables[0];
    mst_string text = {0};
    if (key >= self->features)
        return mst_fail(MST_EUSAGE, "%s has no key %" PRIu64, self->path, key);
    if (self->by_key == NULL) {
        const category **by_key = mst_calloc(self->features, sizeof *by_key);
        if (by_key == NULL)
            return mst_fail_memory();
        for (size_t s = 0; s < t->n_slots; s++)
            if (t->slots[s].count != 0)
                by_key[t->slots[s].key] = &t->slots[s];
        ((mst_vocabulary *)self)->by_key = by_key;
    }
    const category *c = self->by_key[key];
    mst_string_add(&text, "");
    if (c != NULL) {
        *field = c->field;
        write_name(&text, t->names + c->name, c->size);
    } else { /* a number, or the first key of a field */
        uint32_t f = 0;
        while (f < self->n_fields && self->rare[f] != key)
            f++;
        *field = f;
    }
    if (text.failed) {
        mst_string_fini(&text);
        return mst_fail_memory();
    }
    *name = text.text;
    return MST_OK;
}

static mst_status vocabulary_flush(mst_string *text, mst_out *out)
{
    if (text->failed)
        return mst_fail_memory();
    mst_status st = text->size > 0 ? mst_out_write(out, text->text, text->size) : MST_OK;
    text->size = 0;
    return st;
}

/* Writes the lines of all keys; with out NULL, only finds their number. */
static mst_status write_keys(const counted *all, size_t n, uint32_t n_dense, uint32_t n_fields,
                             uint64_t min_count, mst_out *out, uint64_t *features)
{
    mst_string text = {0};
    mst_status st = MST_OK;
    uint64_t key = n_dense;
    size_t at = 0;
    for (uint32_t field = n_dense; field < n_fields && st == MST_OK; field++) {
        uint64_t rare = 0;
        size_t first = at, frequent;
        while (at < n && all[at].c->field == field && all[at].c->count >= min_count)
            at++;
        for (frequent = at; at < n && all[at].c->field == field; at++)
            rare += all[at].c->count;
        if (out != NULL)
            mst_string_format(&text, "%" PRIu64 "\t%u\t%" PRIu64 "\n", key, field, rare);
        key++;
        for (size_t i = first; i < frequent && st == MST_OK; i++, key++) {
            if (out == NULL)
                continue;
            mst_string_format(&text, "%" PRIu64 "\t%u\t%" PRIu64 "\t", key, field, all[i].c->count);
            write_name(&text, all[i].name, all[i].c->size);
            mst_string_add(&text, "\n");
            if (text.size > 1 << 16)
                st = vocabulary_flush(&text, out);
        }
    }
    if (st == MST_OK && out != NULL)
        st = vocabulary_flush(&text, out);
    mst_string_fini(&text);
    *features = key;
    return st;
}

static mst_status vocabulary_save(const mst_vocabulary *self, const mst_dataset *d, uint64_t min_count,
                                  const char *key, const char *path)
{
    mst_status st;
    counted *all = NULL;
    size_t n = 0;
    mst_out *out = NULL;
    char *facts = NULL;
    uint64_t features;
    uint32_t n_fields = d->info.n_fields;
    json_t *json = NULL;
    TRY_OUT(st, vocabulary_sort(self, &all, &n));
    if (n > 0 && all[n - 1].c->field >= n_fields)
        n_fields = all[n - 1].c->field + 1;
    TRY_OUT(st, write_keys(all, n, self->n_dense, n_fields, min_count, NULL, &features));
    if (n == 0 || features > UINT32_MAX) {
        st = n == 0 ? mst_fail(MST_EINPUT, "%s has no categories to count", d->name)
                    : mst_fail(MST_EINPUT, "%s: more than 4294967295 categories are left; raise --min-count",
                               d->name);
        goto out;
    }
    json =
        json_pack("{s:I, s:I, s:I, s:I, s:s, s:o}", "min-count", (json_int_t)min_count, "dense",
                  (json_int_t)self->n_dense, "fields", (json_int_t)n_fields, "features", (json_int_t)features,
                  "key", key != NULL ? key : "", MST_ORIGIN, vocabulary_source(d->origin));
    facts = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (facts == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, FIRST_LINE, strlen(FIRST_LINE)));
    TRY_OUT(st, mst_out_write(out, facts, strlen(facts)));
    TRY_OUT(st, mst_out_write(out, "\n", 1));
    TRY_OUT(st, write_keys(all, n, self->n_dense, n_fields, min_count, out, &features));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    free(facts); /* jansson's allocation */
    json_decref(json);
    mst_free(all);
    return st;
}

static mst_status vocabulary_pass(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)arg;
    (void)first_row;
    (void)chunk;
    return MST_OK;
}

mst_status mst_vocabulary_make(const mst_text_list *patterns, const mst_data_options *options,
                               unsigned n_threads, const char *key, const char *path)
{
    mst_status st;
    mst_vocabulary *counter = NULL;
    mst_dataset *d = NULL;
    mst_data_options counting = *options;
    TRY(mst_vocabulary_counter_new(&counter));
    counting.counter = counter;
    counting.vocabulary = NULL;
    TRY_OUT(st, mst_dataset_open(patterns, &counting, &d));
    if (mst_stream_reads_once(d) != NULL) {
        st = mst_fail(MST_EUSAGE,
                      "%s can be read only once, and --min-count reads it twice: save it to a file first",
                      mst_stream_reads_once(d));
        goto out;
    }
    d->bad.silent = true;
    mst_vocabulary_start(counter, d->info.n_numbers);
    TRY_OUT(st, mst_dataset_each(d, n_threads, vocabulary_pass, NULL));
    st = vocabulary_save(counter, d, (uint64_t)options->min_count, key, path);
out:
    mst_dataset_destroy(d);
    mst_vocabulary_destroy(counter);
    return st;
}

/* ---- reading ---- */

static mst_status vocabulary_damaged(const char *path, uint64_t line, const char *what)
{
    return mst_fail(MST_EINPUT, "%s:%" PRIu64 ": the vocabulary is damaged: %s; convert the data again", path,
                    line, what);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes write_name in place; false when it is not its result. */
static bool read_name(char *name, size_t *n)
{
    size_t to = 0;
    for (size_t i = 0; i < *n; i++) {
        if (name[i] == '\\') {
            int high, low;
            if (*n - i < 4 || name[i + 1] != 'x' || (high = hex_digit(name[i + 2])) < 0 ||
                (low = hex_digit(name[i + 3])) < 0)
                return false;
            name[to++] = (char)(high * 16 + low);
            i += 3;
        } else {
            name[to++] = name[i];
        }
    }
    *n = to;
    return true;
}

/* A number that ends with `end` at *at; steps over both. */
static bool read_count(char **at, const char *line_end, char end, uint64_t *out)
{
    char *p = *at;
    uint64_t value = 0;
    for (; p < line_end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    if (p == *at || (p < line_end ? *p != end : end != '\n'))
        return false;
    *at = p + (p < line_end);
    *out = value;
    return true;
}

/* One key: its line without the newline. */
static const char *read_line(mst_vocabulary *self, char *line, char *end, uint64_t key, uint32_t *field)
{
    uint64_t number, of, count;
    bool named = true;
    char *at = line;
    if (!read_count(&at, end, '\t', &number) || !read_count(&at, end, '\t', &of) || number != key)
        return "a line does not start with its key and field";
    char *after = at;
    if (!read_count(&at, end, '\t', &count)) {
        at = after;
        named = false;
        if (!read_count(&at, end, '\n', &count) || at != end)
            return "a line has no count";
    }
    if (!named) { /* the first key of the next field */
        uint32_t next = *field == UINT32_MAX ? self->n_dense : *field + 1;
        if (of != next || of >= self->n_fields)
            return "its fields are not in order";
        *field = next;
        self->rare[of] = (uint32_t)key;
        return NULL;
    }
    size_t n = (size_t)(end - at);
    if (of != *field)
        return "its fields are not in order";
    if (count == 0 || !read_name(at, &n))
        return "a line is not valid";
    category *c = table_add(&self->tables[0], category_hash(*field, at, n), *field, at, n);
    if (c == NULL)
        return "memory is short";
    if (c->count != 0)
        return "a category occurs twice";
    c->count = count;
    c->key = (uint32_t)key;
    return NULL;
}

static mst_status read_facts(mst_vocabulary *self, const char *path, const char *line, size_t n)
{
    json_int_t dense, fields, features;
    self->facts = json_loadb(line, n, 0, NULL);
    if (self->facts == NULL || json_unpack(self->facts, "{s:I, s:I, s:I}", "dense", &dense, "fields", &fields,
                                           "features", &features) != 0)
        return vocabulary_damaged(path, 2, "it has no facts");
    if (dense < 0 || fields <= dense || fields > MST_FIELDS_MAX || features <= dense ||
        features > UINT32_MAX || mst_vocabulary_origin(self) == NULL)
        return vocabulary_damaged(path, 2, "its facts are impossible");
    self->n_dense = (uint32_t)dense;
    self->n_fields = (uint32_t)fields;
    self->features = (uint64_t)features;
    self->rare = mst_calloc(self->n_fields, sizeof *self->rare);
    if (self->rare == NULL || !table_grow(&self->tables[0]))
        return mst_fail_memory();
    for (uint32_t f = 0; f < self->n_dense; f++)
        self->rare[f] = f;
    return MST_OK;
}

static mst_status vocabulary_read(mst_vocabulary *self, const char *path, char *text, size_t size)
{
    const size_t head = strlen(FIRST_LINE);
    char *at = text + head, *end = text + size, *newline;
    uint64_t line = 2, key;
    uint32_t field = UINT32_MAX;
    if (size < head || memcmp(text, FIRST_LINE, head) != 0)
        return mst_fail(MST_EINPUT, "%s is not a vocabulary of muster", path);
    snprintf(self->digest, sizeof self->digest, "%08x", mst_crc32c(0, text, size));
    newline = memchr(at, '\n', (size_t)(end - at));
    if (newline == NULL)
        return vocabulary_damaged(path, line, "it has no facts");
    TRY(read_facts(self, path, at, (size_t)(newline - at)));
    key = self->n_dense;
    for (at = newline + 1; at < end; at = newline + 1, key++) {
        line++;
        newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return vocabulary_damaged(path, line, "its last line is cut off");
        const char *problem = key < self->features ? read_line(self, at, newline, key, &field)
                                                   : "it has more keys than its facts state";
        if (problem != NULL)
            return vocabulary_damaged(path, line, problem);
    }
    if (key != self->features || field + 1 != self->n_fields)
        return vocabulary_damaged(path, line, "it is cut off");
    return MST_OK;
}

mst_status mst_vocabulary_parse(const char *path, const char *text, size_t size, mst_vocabulary **out)
{
    mst_vocabulary *self = NULL;
    char *copy = mst_alloc(size + 1);
    mst_status st = copy != NULL ? vocabulary_new(&self) : mst_fail_memory();
    if (st == MST_OK) {
        if (size > 0)
            memcpy(copy, text, size);
        self->path = mst_strdup(path);
        st = self->path != NULL ? vocabulary_read(self, path, copy, size) : mst_fail_memory();
    }
    mst_free(copy);
    if (st == MST_OK)
        *out = self;
    else
        mst_vocabulary_destroy(self);
    return st;
}

mst_status mst_vocabulary_load(const char *path, mst_vocabulary **out)
{
    mst_map map = {0};
    if (!mst_path_exists(path))
        return mst_fail(MST_EINPUT,
                        "%s, the vocabulary that gives categories their keys, does not exist; "
                        "--vocabulary FILE names it if it was moved",
                        path);
    TRY(mst_map_open(path, &map));
    mst_status st = mst_vocabulary_parse(path, (const char *)map.data, map.size, out);
    mst_map_close(&map);
    return st;
}

bool mst_vocabulary_fits(const char *path, const char *key)
{
    mst_vocabulary *v = NULL;
    if (!mst_path_exists(path) || mst_vocabulary_load(path, &v) != MST_OK)
        return false;
    const char *made = json_string_value(json_object_get(v->facts, "key"));
    bool fits = made != NULL && strcmp(made, key) == 0;
    mst_vocabulary_destroy(v);
    return fits;
}
