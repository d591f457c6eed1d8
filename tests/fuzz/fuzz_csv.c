/* Any bytes as a table of text, with given, found and wrong lists of columns. The ends of records that
 * find_end, record and parse see must agree: parsing a block in two parts gives the rows of the whole, also
 * without its malformed rows. */
#include "base/alloc.h"
#include "data/csv_table.h"
#include "fuzz_text.h"

/* The rows of the bytes [from, to), which are whole records; good: without the malformed ones. */
static mst_status parse_part(const mst_parse_context *context, const uint8_t *data, size_t from, size_t to,
                             bool good, mst_chunk_builder *out)
{
    mst_block block = {
        .path = "fuzz", .data = data + from, .size = to - from, .offset = from, .line = from > 0 ? 2 : 1};
    return good ? mst_format_parse_good(&mst_format_csv, context, &block, NULL, out)
                : mst_format_csv.parse(context, &block, out);
}

static void check_parts(const mst_data_options *options, const uint8_t *data, size_t n)
{
    mst_parse_context context = {.options = options, .features = (uint64_t)options->features};
    mst_block block = {.path = "fuzz", .data = data, .size = n, .line = 1};
    mst_chunk_builder whole, parts;
    size_t end = 0, at = 0, rows = 0, half = n / 2;
    mst_chunk_builder_init(&whole);
    mst_chunk_builder_init(&parts);
    if (mst_format_csv.prepare(&context, &block) != MST_OK)
        goto out;
    block.size = half;
    FUZZ_CHECK(mst_format_csv.find_end(&context, &block, &end) == MST_OK && end <= half);
    if (end > 3 && parse_part(&context, data, 0, n, true, &whole) == MST_OK) {
        FUZZ_CHECK(parse_part(&context, data, 0, end, true, &parts) == MST_OK);
        FUZZ_CHECK(parse_part(&context, data, end, n, true, &parts) == MST_OK);
        FUZZ_CHECK(parts.n_rows == whole.n_rows);
        fuzz_same_rows(&parts, &whole);
    }
    mst_chunk_builder_clear(&whole);
    mst_chunk_builder_clear(&parts);
    if (parse_part(&context, data, 0, n, false, &whole) == MST_OK) {
        FUZZ_CHECK(end <= 3 || parse_part(&context, data, 0, end, false, &parts) == MST_OK);
        FUZZ_CHECK(end <= 3 || parse_part(&context, data, end, n, false, &parts) == MST_OK);
        FUZZ_CHECK(end <= 3 || parts.n_rows == whole.n_rows);
        while (at < n) {
            size_t length = 0;
            bool row = false;
            block =
                (mst_block){.path = "fuzz", .data = data + at, .size = n - at, .offset = at, .line = 1 + at};
            FUZZ_CHECK(mst_format_csv.record(&context, &block, &length, &row) == MST_OK && length > 0);
            at += length;
            rows += row;
        }
        FUZZ_CHECK(rows == whole.n_rows);
    }
    mst_format_csv.unprepare(context.prepared);
out:
    mst_chunk_builder_fini(&whole);
    mst_chunk_builder_fini(&parts);
}

/* Any bytes as a list of columns; what is written of one without open kinds is read as the same list. */
static void check_list(const uint8_t *data, size_t n)
{
    char list[256];
    mst_csv_list read = {0}, again = {0};
    bool settled = true;
    n = n < sizeof list ? n : sizeof list - 1;
    memcpy(list, data, n);
    list[n] = '\0';
    if (mst_csv_list_read(&read, list) == MST_OK) {
        for (uint32_t i = 0; i < read.n; i++)
            settled &= read.items[i].settled;
        char *text = settled ? mst_csv_list_text(read.items, read.n) : NULL;
        FUZZ_CHECK(!settled ||
                   (text != NULL && mst_csv_list_read(&again, text) == MST_OK && again.n == read.n));
        for (uint32_t i = 0; i < again.n; i++)
            FUZZ_CHECK(strcmp(read.items[i].name, again.items[i].name) == 0 &&
                       read.items[i].kind == again.items[i].kind && again.items[i].settled);
        mst_free(text);
    }
    mst_csv_list_fini(&read);
    mst_csv_list_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const lists[] = {NULL,
                                        "1:label,*:number",
                                        "a:standard(1;2),b:bucket(1;2;3),*:ignore",
                                        "*:bucket",
                                        "y:label(a;b),C1..C3:category",
                                        "\"a,b\":log,*:category"};
    static const int64_t features[] = {0, 3, 1000, 4294967295};
    if (size < 2)
        return 0;
    mst_data_options options = {.csv_columns = (char *)lists[data[0] % 6],
                                .csv_delimiter = (char *)(data[0] / 6 % 3 == 0   ? "auto"
                                                          : data[0] / 6 % 3 == 1 ? ","
                                                                                 : "tab"),
                                .csv_header = data[0] / 18 % 3,
                                .csv_quote = data[0] / 54 % 2,
                                .csv_numeric = data[1] % 4,
                                .features = features[data[1] / 4 % 4],
                                .unlabelled = data[1] / 16 % 2};
    fuzz_format(&mst_format_csv, &options, data + 2, size - 2);
    check_parts(&options, data + 2, size - 2);
    if (data[1] / 32 % 2)
        check_list(data + 2, size - 2);
    return 0;
}
