/* CSV files that grow (csv.h).
 *
 * Invariants
 * 1. offset is the end of a line, or within one that is skipped: every byte before it has been taken or
 *    counted as bad.
 * 2. values holds n_rows * n_columns doubles; an index into texts is below texts_size.
 * 3. Nothing in the file can make the tables larger than the limits below. */
#include "report/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define BLOCK       ((size_t)1 << 20)    /* read at a time; a longer line is skipped */
#define UPDATE_MAX  ((uint64_t)32 << 20) /* bytes read by one update */
#define FILE_MAX    ((uint64_t)1 << 30)  /* bytes read of a file; all limits of the table are within */
#define COLUMNS_MAX 1024
#define VALUES_MAX  ((size_t)48 << 20) /* doubles */
#define TEXTS_MAX   ((size_t)64 << 20) /* bytes */
#define NUMBER_MAX  64                 /* characters of a number */

mst_status mst_csv_init(mst_csv *self, const char *path, const char *const *text_columns)
{
    *self = (mst_csv){.text_columns = text_columns};
    self->path = mst_strdup(path);
    return self->path != NULL ? MST_OK : mst_fail_memory();
}

/* Back to before the first line. */
static void csv_forget(mst_csv *self)
{
    for (size_t i = 0; i < self->n_columns; i++)
        mst_free(self->names[i]);
    mst_free(self->names);
    mst_free(self->is_text);
    self->names = NULL;
    self->is_text = NULL;
    self->n_columns = self->n_rows = self->texts_size = self->n_bad = 0;
    self->offset = 0;
    self->full = self->skipping = self->behind = false;
}

void mst_csv_fini(mst_csv *self)
{
    csv_forget(self);
    mst_free(self->values);
    mst_free(self->texts);
    mst_free(self->path);
    *self = (mst_csv){0};
}

/* ---- lines ---- */

typedef struct field {
    const char *at;
    size_t n;
    bool quoted; /* "" stands for one quote in it */
} field;

/* The next field of the line [*p, end); *p moves past its comma, or to NULL after the last field, and
 * later fields are empty. */
static field csv_next_field(const char **p, const char *end)
{
    field f = {.at = *p != NULL ? *p : ""};
    const char *q = *p;
    if (q == NULL)
        return f;
    if (q < end && *q == '"') {
        f.at = ++q;
        f.quoted = true;
        while (q < end && (*q != '"' || (q + 1 < end && q[1] == '"')))
            q += *q == '"' ? 2 : 1;
        q = q < end ? q : end;
        f.n = (size_t)(q - f.at);
        q += q < end;
        while (q < end && *q != ',')
            q++;
    } else {
        const char *comma = q < end ? memchr(q, ',', (size_t)(end - q)) : NULL;
        q = comma != NULL ? comma : end;
        f.n = (size_t)(q - f.at);
    }
    *p = q < end ? q + 1 : NULL;
    return f;
}

static double csv_parse_number(const field *f)
{
    char text[NUMBER_MAX + 1];
    char *end;
    if (f->n == 0 || f->n > NUMBER_MAX)
        return NAN;
    memcpy(text, f->at, f->n);
    text[f->n] = '\0';
    double value = strtod(text, &end);
    return *end == '\0' ? value : NAN;
}

static bool csv_add_text(mst_csv *self, const field *f, double *out)
{
    if (!mst_grow(&self->texts, &self->texts_capacity, self->texts_size + f->n + 1, 1))
        return false;
    *out = (double)self->texts_size;
    for (size_t i = 0; i < f->n; i++) {
        self->texts[self->texts_size++] = f->at[i] != '\0' ? f->at[i] : ' ';
        i += f->quoted && f->at[i] == '"' && i + 1 < f->n && f->at[i + 1] == '"';
    }
    self->texts[self->texts_size++] = '\0';
    return true;
}

static bool csv_names_text(const mst_csv *self, const char *name)
{
    for (size_t i = 0; self->text_columns != NULL && self->text_columns[i] != NULL; i++)
        if (strcmp(self->text_columns[i], name) == 0)
            return true;
    return false;
}

static size_t csv_count_fields(const char *line, const char *end)
{
    size_t n = 0;
    for (const char *p = line; p != NULL && n <= COLUMNS_MAX; n++)
        csv_next_field(&p, end);
    return n;
}

static mst_status csv_take_header(mst_csv *self, const char *line, const char *end)
{
    size_t n = csv_count_fields(line, end);
    if (n > COLUMNS_MAX)
        return mst_fail(MST_EINPUT, "%s:1: more than %d columns", self->path, COLUMNS_MAX);
    char **names = mst_calloc(n, sizeof *names);
    bool *is_text = mst_calloc(n, sizeof *is_text);
    bool fine = names != NULL && is_text != NULL;
    const char *p = line;
    for (size_t i = 0; fine && i < n; i++) {
        field f = csv_next_field(&p, end);
        fine = (names[i] = mst_strndup(f.at, f.n)) != NULL;
        is_text[i] = fine && csv_names_text(self, names[i]);
    }
    if (fine) {
        self->names = names;
        self->is_text = is_text;
        self->n_columns = n;
        return MST_OK;
    }
    for (size_t i = 0; names != NULL && i < n; i++)
        mst_free(names[i]);
    mst_free(names);
    mst_free(is_text);
    return mst_fail_memory();
}

static mst_status csv_take_line(mst_csv *self, const char *line, const char *end)
{
    if (end > line && end[-1] == '\r')
        end--;
    if (self->n_columns == 0)
        return csv_take_header(self, line, end);
    if (end == line || self->full)
        return MST_OK;
    if (csv_count_fields(line, end) != self->n_columns) {
        self->n_bad++;
        return MST_OK;
    }
    size_t need = (self->n_rows + 1) * self->n_columns;
    if (need > VALUES_MAX || self->texts_size + (size_t)(end - line) + self->n_columns > TEXTS_MAX) {
        self->full = true;
        return MST_OK;
    }
    if (!mst_grow(&self->values, &self->values_capacity, need, sizeof *self->values))
        return mst_fail_memory();
    double *row = self->values + self->n_rows * self->n_columns;
    const char *p = line;
    for (size_t i = 0; i < self->n_columns; i++) {
        field f = csv_next_field(&p, end);
        if (!self->is_text[i])
            row[i] = csv_parse_number(&f);
        else if (!csv_add_text(self, &f, &row[i]))
            return mst_fail_memory();
    }
    self->n_rows++;
    return MST_OK;
}

mst_status mst_csv_take(mst_csv *self, const char *data, size_t size, size_t *used)
{
    const char *line = data, *end;
    mst_status st = MST_OK;
    while (st == MST_OK && line < data + size &&
           (end = memchr(line, '\n', (size_t)(data + size - line))) != NULL) {
        st = csv_take_line(self, line, end);
        line = end + 1;
    }
    *used = (size_t)(line - data);
    return st;
}

/* ---- the file ---- */

/* Reads the complete lines of [offset, size) of the file by blocks, as far as one update does. */
static mst_status csv_read_grown(mst_csv *self, int fd, uint64_t size, char *block)
{
    uint64_t stop = self->offset + UPDATE_MAX;
    while (self->offset < size && !self->full) {
        self->full = self->offset >= FILE_MAX;
        self->behind = !self->full && self->offset >= stop;
        if (self->full || self->behind)
            break;
        size_t used, want = size - self->offset < BLOCK ? (size_t)(size - self->offset) : BLOCK;
        ssize_t got = pread(fd, block, want, (off_t)self->offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mst_fail(MST_EIO, "%s: cannot read at byte %llu: %s", self->path,
                            (unsigned long long)self->offset, strerror(errno));
        if (got == 0)
            break; /* truncated in the meantime: the next update handles it */
        if (self->skipping) {
            const char *end = memchr(block, '\n', (size_t)got);
            self->offset += end != NULL ? (size_t)(end - block) + 1 : (size_t)got;
            self->skipping = end == NULL;
            continue;
        }
        mst_status st = mst_csv_take(self, block, (size_t)got, &used);
        self->offset += used;
        TRY(st);
        if (used == 0 && (size_t)got < BLOCK)
            break;       /* an incomplete line */
        if (used == 0) { /* no newline: muster writes no line of that length */
            self->n_bad++;
            self->skipping = true;
            self->offset += (size_t)got;
        }
    }
    return MST_OK;
}

mst_status mst_csv_update(mst_csv *self, bool *changed)
{
    mst_status st = MST_OK;
    struct stat info;
    size_t rows = self->n_rows;
    char *block = NULL;
    int fd = open(self->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
        return mst_fail(MST_EIO, "%s: cannot be opened: %s", self->path, strerror(errno));
    self->present = fd >= 0;
    if (fd < 0)
        return MST_OK; /* the rows already read stay */
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        TRY_OUT(st, mst_fail(MST_EIO, "%s: is not a plain file", self->path));
    if (info.st_dev != self->device || info.st_ino != self->inode || (uint64_t)info.st_size < self->offset) {
        csv_forget(self);
        self->device = info.st_dev;
        self->inode = info.st_ino;
        if (changed != NULL && rows > 0)
            *changed = true;
    }
    self->behind = false;
    if ((uint64_t)info.st_size > self->offset && !self->full) {
        block = mst_alloc(BLOCK);
        if (block == NULL)
            TRY_OUT(st, mst_fail_memory());
        st = csv_read_grown(self, fd, (uint64_t)info.st_size, block);
    }
    if (changed != NULL && self->n_rows != rows)
        *changed = true;
out:
    mst_free(block);
    close(fd);
    return st;
}

/* ---- access ---- */

size_t mst_csv_column(const mst_csv *self, const char *name)
{
    for (size_t i = 0; i < self->n_columns; i++)
        if (strcmp(self->names[i], name) == 0)
            return i;
    return MST_CSV_NONE;
}

double mst_csv_value(const mst_csv *self, size_t row, size_t column)
{
    double value = mst_csv_any_value(self, row, column);
    return isfinite(value) ? value : NAN;
}

double mst_csv_any_value(const mst_csv *self, size_t row, size_t column)
{
    if (column >= self->n_columns || row >= self->n_rows || self->is_text[column])
        return NAN;
    return self->values[row * self->n_columns + column];
}

double mst_csv_last(const mst_csv *self, const char *column)
{
    size_t c = mst_csv_column(self, column);
    for (size_t i = self->n_rows; i > 0; i--)
        if (!isnan(mst_csv_value(self, i - 1, c)))
            return mst_csv_value(self, i - 1, c);
    return NAN;
}

const char *mst_csv_text(const mst_csv *self, size_t row, size_t column)
{
    if (column >= self->n_columns || row >= self->n_rows || !self->is_text[column])
        return "";
    return self->texts + (size_t)self->values[row * self->n_columns + column];
}
