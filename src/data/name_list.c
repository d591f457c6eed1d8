/* Names of numbered features; contract in name_list.h. */
#include "data/name_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/feature_hash.h"
#include "data/text.h"

#define FILE_MAX  (4ull << 30)
#define LINES_MAX (UINT32_MAX - 1)

struct mst_name_list {
    char *text;       /* lines, each ended by NUL */
    size_t *starts;   /* of lines in text */
    uint32_t n;       /* lines */
    uint32_t *places; /* feature + 1 by hash, or 0: open addressing, at most half full */
    uint64_t mask;
};

/* The place of the name, or the free one where it belongs. */
static uint32_t *list_place(const mst_name_list *self, const char *name, size_t n)
{
    uint64_t at = XXH3_64bits(name, n) & self->mask;
    for (; self->places[at] != 0; at = (at + 1) & self->mask) {
        const char *other = self->text + self->starts[self->places[at] - 1];
        if (strncmp(other, name, n) == 0 && other[n] == '\0')
            break;
    }
    return &self->places[at];
}

static mst_status list_add_names(mst_name_list *self, const char *path)
{
    uint64_t size = 16;
    while (size < 2 * (uint64_t)self->n)
        size *= 2;
    self->mask = size - 1;
    self->places = mst_calloc((size_t)size, sizeof *self->places);
    if (self->places == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < self->n; i++) {
        const char *name = self->text + self->starts[i];
        size_t n = strlen(name);
        if (n == 0)
            continue;
        uint32_t *place = list_place(self, name, n);
        if (*place != 0)
            return mst_fail(MST_EINPUT, "%s:%u: \"%s\" is also the name in line %u; names of features differ",
                            path, i + 1,
                            mst_token_show((const uint8_t *)name, (const uint8_t *)name + n).text, *place);
        *place = i + 1;
    }
    return MST_OK;
}

mst_status mst_name_list_parse(const char *path, const char *text, size_t size, mst_name_list **out)
{
    mst_status st = MST_OK;
    uint64_t n = 0;
    mst_name_list *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    n += size > 0 && text[size - 1] != '\n';
    if (n == 0 || n > LINES_MAX || memchr(text, '\0', size) != NULL)
        TRY_OUT(st,
                mst_fail(MST_EINPUT, "%s: %s; a file of feature names is text with one name per line", path,
                         n == 0          ? "there are no names"
                         : n > LINES_MAX ? "there are more than 2^32 lines"
                                         : "there is a NUL byte"));
    self->text = mst_alloc(size + 1);
    self->starts = mst_calloc((size_t)n, sizeof *self->starts);
    if (self->text == NULL || self->starts == NULL)
        TRY_OUT(st, mst_fail_memory());
    memcpy(self->text, text, size);
    self->text[size] = '\0';
    for (size_t at = 0; self->n < n; self->n++) {
        char *line = self->text + at, *end = memchr(line, '\n', size - at);
        end = end != NULL ? end : self->text + size;
        self->starts[self->n] = at;
        at = (size_t)(end - self->text) + 1;
        *end = '\0';
        if (end > line && end[-1] == '\r')
            end[-1] = '\0';
    }
    TRY_OUT(st, list_add_names(self, path));
    *out = self;
    self = NULL;
out:
    mst_name_list_destroy(self);
    return st;
}

mst_status mst_name_list_load(const char *path, mst_name_list **out)
{
    char *text;
    size_t size;
    TRY(mst_file_read_all(path, FILE_MAX, &text, &size));
    mst_status st = mst_name_list_parse(path, text, size, out);
    mst_free(text);
    return st;
}

void mst_name_list_destroy(mst_name_list *self)
{
    if (self == NULL)
        return;
    mst_free(self->text);
    mst_free(self->starts);
    mst_free(self->places);
    mst_free(self);
}

uint32_t mst_name_list_size(const mst_name_list *self)
{
    return self->n;
}

const char *mst_name_list_get(const mst_name_list *self, uint64_t feature)
{
    const char *name = feature < self->n ? self->text + self->starts[feature] : "";
    return name[0] != '\0' ? name : NULL;
}

bool mst_name_list_find(const mst_name_list *self, const char *name, size_t n, uint32_t *feature)
{
    if (n == 0 || memchr(name, '\0', n) != NULL)
        return false;
    uint32_t place = *list_place(self, name, n);
    *feature = place - 1;
    return place != 0;
}
