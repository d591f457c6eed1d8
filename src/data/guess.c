/* Recognises files by their first bytes (contract: guess.h). */
#include "data/guess.h"

#include <stdio.h>
#include <string.h>

#include "data/csv_table.h"
#include "data/image.h"
#include "data/text.h"

size_t mst_text_mark(const uint8_t *head, size_t n)
{
    return n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* ---- known kinds ---- */

enum { TAR_MAGIC = 257 }; /* the offset of a tar archive's magic */

/* Whether at least half of the first rows could be the format's, and one is. */
static bool most_lines(const mst_format *format, const uint8_t *head, size_t n)
{
    const uint8_t *p = head, *end = head + n, *line, *line_end;
    unsigned rows = 0, possible = 0, sure = 0;
    while (rows < MST_SNIFF_LINES &&
           mst_sniff_line(&p, end, n < MST_SNIFF_BYTES, rows == 0, &line, &line_end)) {
        int score = format->kind.sniff(line, (size_t)(line_end - line), 0);
        rows++;
        possible += score > 0;
        sure += score > 1;
    }
    return sure > 0 && 2 * possible >= rows;
}

int mst_data_sniff(const mst_data_kind *kind, const uint8_t *head, size_t n, uint64_t file_size)
{
    const mst_format *format = mst_data_kind_format(kind);
    size_t mark = format != NULL && format->text ? mst_text_mark(head, n) : 0;
    return kind->sniff != NULL ? kind->sniff(head + mark, n - mark, file_size) : 0;
}

const mst_data_kind *mst_data_guess(const uint8_t *head, size_t n, uint64_t file_size)
{
    const mst_data_kind *best = NULL;
    int best_score = 0;
    for (size_t i = 0; mst_data_kinds[i] != NULL; i++) {
        int score = mst_data_sniff(mst_data_kinds[i], head, n, file_size);
        if (score > best_score) {
            best = mst_data_kinds[i];
            best_score = score;
        }
    }
    if (best_score < MST_SNIFF_BINARY && n > TAR_MAGIC + 5 && memcmp(head + TAR_MAGIC, "ustar", 5) == 0)
        return NULL; /* the text in it may begin like rows */
    size_t mark = mst_text_mark(head, n);
    for (size_t i = 0; best == NULL && mst_data_kinds[i] != NULL; i++) {
        const mst_format *format = mst_data_kind_format(mst_data_kinds[i]);
        if (format != NULL && format->text && most_lines(format, head + mark, n - mark))
            best = mst_data_kinds[i];
    }
    return best == NULL && mst_csv_is_damaged(head + mark, n - mark) ? &mst_format_csv.kind : best;
}

bool mst_data_no_rows(const uint8_t *head, size_t n)
{
    const uint8_t *p = head + mst_text_mark(head, n), *end = head + n, *line, *line_end;
    return n < MST_SNIFF_BYTES && mst_looks_like_text(p, (size_t)(end - p)) &&
           !mst_sniff_line(&p, end, true, true, &line, &line_end);
}

/* ---- unknown files ---- */

static const char rewrite[] = "write its rows as \"LABEL INDEX:VALUE ...\" (libsvm), in Python with "
                              "sklearn.datasets.dump_svmlight_file(X, y, FILE)";
#define PANDAS(kind) "pandas.read_" kind "(FILE).to_csv(\"data.csv\", index=False)"
static const char unpack[] = "unpack it and give the files in it";
static const char not_data[] = "check that this is the file you meant";
static const char twice[] = "unpack it once and give the result";

/* Files with magic numbers. */
static const struct {
    const char *bytes;
    unsigned offset, n;
    const char *what, *advice;
} magics[] = {
    {"PAR1", 0, 4, "a Parquet file", "write it as CSV, in Python with " PANDAS("parquet")},
    {"\x89HDF\r\n\x1a\n", 0, 8, "an HDF5 file", rewrite},
    {"ORC", 0, 3, "an ORC file", "write it as CSV, in Python with " PANDAS("orc")},
    {"Obj\x01", 0, 4, "an Avro file", rewrite},
    {"ARROW1", 0, 6, "an Arrow or Feather file", "write it as CSV, in Python with " PANDAS("feather")},
    {"FEA1", 0, 4, "a Feather file", "write it as CSV, in Python with " PANDAS("feather")},
    {"MATLAB 5.0", 0, 10, "a MATLAB file", rewrite},
    {"SQLite format 3", 0, 15, "an SQLite database", rewrite},
    {"BZh", 0, 3, "a file compressed with bzip2", "pipe it: bzcat FILE | muster COMMAND -"},
    {"\xfd"
     "7zXZ",
     0, 5, "a file compressed with xz", "pipe it: xzcat FILE | muster COMMAND -"},
    {"\x04\x22\x4d\x18", 0, 4, "a file compressed with lz4", "pipe it: lz4cat FILE | muster COMMAND -"},
    {"7z\xbc\xaf\x27\x1c", 0, 6, "a 7z archive", unpack},
    {"PK\3\4", 0, 4, "a zip archive", unpack},
    {"Rar!\x1a", 0, 5, "a RAR archive", unpack},
    {"ustar", TAR_MAGIC, 5, "a tar archive", unpack},
    {"\x1f\x8b", 0, 2, "a file that is compressed twice", twice},
    {"\x28\xb5\x2f\xfd", 0, 4, "a file that is compressed twice", twice},
    {"\x7f"
     "ELF",
     0, 4, "a program or library", not_data},
    {"%PDF-", 0, 5, "a PDF document", not_data},
    {"version https://git-lfs", 0, 23, "a Git LFS pointer", "fetch the file with git lfs pull"},
    {"@relation", 0, 9, "an ARFF file", rewrite},
    {"@RELATION", 0, 9, "an ARFF file", rewrite},
};

/* Text in units of 2 or 4 bytes, with a byte order mark or of ASCII characters; NULL: none. */
static const char *wide_text(const uint8_t *head, size_t n, const char **advice)
{
    static const struct {
        const char *mark;
        unsigned n, zeros; /* bit i: byte i of 4 is zero in ASCII characters */
        const char *what, *advice;
    } kinds[] = {
        {"\xff\xfe\0\0", 4, 0xe, "text in UTF-32", "convert it: iconv -f UTF-32LE -t UTF-8 FILE"},
        {"\0\0\xfe\xff", 4, 0x7, "text in UTF-32", "convert it: iconv -f UTF-32BE -t UTF-8 FILE"},
        {"\xff\xfe", 2, 0xa, "text in UTF-16", "convert it: iconv -f UTF-16LE -t UTF-8 FILE"},
        {"\xfe\xff", 2, 0x5, "text in UTF-16", "convert it: iconv -f UTF-16BE -t UTF-8 FILE"},
    };
    size_t quarter = n / 4 < 16 ? n / 4 : 16;
    unsigned zeros = 0xf, some = 0; /* zero in all units, in some */
    for (size_t i = 0; i < 4 * quarter; i++) {
        zeros &= head[i] == 0 ? ~0u : ~(1u << i % 4);
        some |= (unsigned)(head[i] == 0) << i % 4;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((n >= kinds[i].n && memcmp(head, kinds[i].mark, kinds[i].n) == 0) ||
            (quarter >= 2 && zeros == kinds[i].zeros && some == zeros)) {
            *advice = kinds[i].advice;
            return kinds[i].what;
        }
    return NULL;
}

/* The kind of file that binary bytes look like; NULL: unknown. */
static const char *binary_kind(const uint8_t *head, size_t n, const char **advice)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (n >= magics[i].offset + magics[i].n &&
            memcmp(head + magics[i].offset, magics[i].bytes, magics[i].n) == 0) {
            *advice = magics[i].advice;
            return magics[i].what;
        }
    if (mst_image_sniff(head, n)) {
        *advice = "give the folder of a folder per class: FOLDER/CLASS/NAME.jpg or .png";
        return "a single image";
    }
    const char *wide = wide_text(head, n, advice);
    if (wide != NULL)
        return wide;
    if (n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5) {
        *advice = rewrite;
        return "a Python pickle";
    }
    return NULL;
}

/* Columns of a table with blanks between numbers or words; 0: it is none. */
static unsigned blank_columns(const uint8_t *head, size_t n)
{
    const uint8_t *p = head, *end = head + n, *line, *line_end;
    unsigned columns = 0, rows = 0;
    for (;
         rows < MST_SNIFF_LINES && mst_sniff_line(&p, end, n < MST_SNIFF_BYTES, rows == 0, &line, &line_end);
         rows++) {
        unsigned fields = 0;
        if (memchr(line, ':', (size_t)(line_end - line)) != NULL)
            return 0;
        while ((line = mst_skip_blanks(line, line_end)) < line_end) {
            line = mst_token_end(line, line_end);
            fields++;
        }
        if (fields < 3 || (columns != 0 && fields != columns))
            return 0;
        columns = fields;
    }
    return rows > 1 ? columns : 0;
}

/* Text that is a table or JSON; false: it is neither. */
static bool text_kind(const uint8_t *head, size_t n, char *what, size_t size, const char **advice)
{
    const uint8_t *p = head, *end = head + n, *line, *line_end;
    if (!mst_sniff_line(&p, end, true, true, &line, &line_end))
        return false;
    line = mst_skip_blanks(line, line_end);
    if (*line == '{' || *line == '[') {
        snprintf(what, size, "%s", *line == '{' && p < end && *p == '{' ? "JSON lines" : "JSON");
        *advice = "write its rows as \"LABEL |f NAME:VALUE ...\" (vw), for example with jq";
        return true;
    }
    if (*line == '<') {
        snprintf(what, size, "a web page or XML");
        *advice = "check where it was downloaded from";
        return true;
    }
    *advice = "write it as CSV, for example with awk '{$1 = $1; print}' OFS=, FILE";
    unsigned columns = blank_columns(head, n);
    if (columns > 0)
        snprintf(what, size, "a table with blanks (%u columns)", columns);
    return columns > 0;
}

bool mst_data_may_be_table(const uint8_t *head, size_t n)
{
    char what[64];
    const char *advice;
    size_t mark = mst_text_mark(head, n);
    return binary_kind(head, n, &advice) == NULL && mst_looks_like_text(head + mark, n - mark) &&
           !mst_data_no_rows(head, n) && !text_kind(head + mark, n - mark, what, sizeof what, &advice);
}

mst_status mst_data_unknown(const char *path, const uint8_t *head, size_t n)
{
    char names[128], what[64];
    const char *advice = NULL, *kind = binary_kind(head, n, &advice);
    size_t mark = mst_text_mark(head, n);
    bool text = mst_looks_like_text(head + mark, n - mark);
    mst_data_kind_names(names, sizeof names);
    if (mst_data_no_rows(head, n))
        return mst_fail(MST_EINPUT, "%s has no rows: every line is blank or a comment", path);
    if (kind == NULL && text && text_kind(head + mark, n - mark, what, sizeof what, &advice))
        kind = what;
    if (kind != NULL)
        return mst_fail(MST_EINPUT, "%s looks like %s, which muster does not read; %s", path, kind, advice);
    if (!text && strstr(path, "tfrecord") != NULL)
        return mst_fail(MST_EINPUT,
                        "%s is named like a TFRecord file, but the checksum of its first record's length is "
                        "wrong: it is damaged, or not a TFRecord file",
                        path);
    if (!text)
        return mst_fail(MST_EINPUT, "%s is in none of the known formats (%s); name one with --format", path,
                        names);
    const uint8_t *p = head + mark, *line = p, *line_end = head + n;
    mst_sniff_line(&p, head + n, true, true, &line, &line_end);
    return mst_fail(MST_EINPUT,
                    "%s:%llu: \"%s\" is not a row of a known format (%s); name the format with --format",
                    path, (unsigned long long)(1 + mst_count_newlines(head, (size_t)(line - head))),
                    mst_token_show(line, line_end).text, names);
}
