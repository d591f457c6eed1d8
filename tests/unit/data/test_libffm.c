/* libffm text: fields in order, refusals, recognition, reading back what is written. */
#include "data/dataset.h"
#include "data/guess.h"
#include "data/write.h"
#include "unit/data/text_helpers.h"

extern const mst_format mst_format_libffm;
#define F (&mst_format_libffm)

/* "field:key:value ..." of a row. */
static const char *entries(const mst_chunk_builder *b, size_t row)
{
    static char text[4096];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = b->row_start[row]; i < b->row_start[row + 1]; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%u:%u:%g", n ? " " : "", b->fields[i], b->keys[i],
                              (double)b->values[i]);
    return text;
}

static void rows_are_in_the_order_of_fields(void **state)
{
    (void)state;
    mst_data_options o = {0};
    parsed p = parse_text(F, &o,
                          "1 2:7:1 0:3:0.5 1:9:1e-2 0:1:1\n"
                          "# a comment\n\n"
                          "-1 65535:4294967294:-2.5 # 3:4:5\r\n"
                          "0\n"
                          "0.5\t3:1:1 \n");
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_rows, 4);
    assert_string_equal(entries(&p.b, 0), "0:3:0.5 0:1:1 1:9:0.01 2:7:1");
    assert_string_equal(entries(&p.b, 1), "65535:4294967294:-2.5");
    assert_string_equal(entries(&p.b, 2), "");
    assert_string_equal(entries(&p.b, 3), "3:1:1");
    assert_true(p.b.labels[0] == 1 && p.b.labels[1] == -1 && p.b.labels[2] == 0 && p.b.labels[3] == 0.5f);
    mst_chunk_builder_fini(&p.b);
}

static void refusals(void **state)
{
    (void)state;
    mst_data_options o = {0}, bounded = {.features = 10, .fields = 3};
    assert_refused(F, &o, "1 0:1:1\n0 1:2\n", "data.txt:2: \"1:2\" is not field:index:value");
    assert_refused(F, &o, "1 a:1:1\n", "data.txt:1: \"a:1:1\" is not field:index:value");
    assert_refused(F, &o, "1 0:-1:1\n", "data.txt:1: \"0:-1:1\" is not field:index:value");
    assert_refused(F, &o, "1 65536:1:1\n", "data.txt:1: field 65536 is not below 65536");
    assert_refused(F, &o, "1 0:4294967295:1\n", "data.txt:1: index 4294967295 is not below 4294967295");
    assert_refused(F, &o, "1 0:1:nan\n", "data.txt:1: value \"nan\" is not a finite number");
    assert_refused(F, &o, "1 0:1:1:1\n", "data.txt:1: value \"1:1\" is not a finite number");
    assert_refused(F, &o, "x 0:1:1\n", "data.txt:1: label \"x\" is not a finite number");
    assert_refused(F, &o, "0:1:1\n", "data.txt:1: the row has no label, and only predict takes such rows");
    assert_refused(F, &bounded, "1 3:1:1\n", "data.txt:1: field 3 is not below --fields 3");
    assert_refused(F, &bounded, "1 0:10:1\n", "data.txt:1: index 10 is not below --features 10");
    o.unlabelled = true;
    parsed p = parse_text(F, &o, "0:1:1 1:2:1\n? 2:3:1\n1 0:5:1\n");
    assert_int_equal(p.st, MST_OK);
    assert_string_equal(entries(&p.b, 0), "0:1:1 1:2:1");
    assert_string_equal(entries(&p.b, 1), "2:3:1");
    mst_chunk_builder_fini(&p.b);
}

static const char *guessed(const char *text)
{
    const mst_data_kind *kind = mst_data_guess((const uint8_t *)text, strlen(text), strlen(text));
    return kind != NULL ? kind->name : "";
}

static void recognition(void **state)
{
    (void)state;
    assert_string_equal(guessed("1 0:3:1 1:7:0.5\n0 0:2:1\n"), "libffm");
    assert_string_equal(guessed("0:3:1 1:7:0.5\n"), "libffm");
    assert_string_equal(guessed("1 3:1 7:0.5\n"), "libsvm");
    assert_string_equal(guessed("1\n0\n"), "libsvm");
}

static mst_status add_to(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    assert_true(chunk->fielded);
    return mst_row_writer_add(arg, chunk);
}

/* Through a cache and back to text; a scan finds the fields. */
static void rows_come_back(void **state)
{
    (void)state;
    static const char text[] = "1 0:3:1 1:7:0.5 5:9:1\n0 1:8:1\n1\n0 0:3:2 0:4:1 2:9:1\n";
    const char *source = write_file("a.ffm", text, sizeof text - 1);
    char cache[128], back[128], got[256];
    snprintf(cache, sizeof cache, "%s/a.cache", folder);
    snprintf(back, sizeof back, "%s/back.ffm", folder);
    const char *steps[][2] = {{source, cache}, {cache, back}};
    mst_data_options o = {0};
    for (int i = 0; i < 2; i++) {
        mst_dataset *d = NULL;
        const mst_row_writer_ops *ops = NULL;
        mst_row_writer *w = NULL;
        char *items[1] = {(char *)steps[i][0]};
        assert_int_equal(mst_dataset_open(&(mst_text_list){.items = items, .n = 1}, &o, &d), MST_OK);
        assert_int_equal(mst_dataset_scan(d, 1), MST_OK);
        assert_int_equal(d->info.n_fields, 6);
        assert_int_equal(d->info.n_features, 10);
        assert_int_equal(mst_row_writer_find(NULL, steps[i][1], &ops), MST_OK);
        assert_int_equal(mst_row_writer_new(ops, steps[i][1], NULL, &w), MST_OK);
        assert_int_equal(mst_dataset_each(d, 1, add_to, w), MST_OK);
        assert_int_equal(mst_row_writer_commit(w, &d->info), MST_OK);
        mst_row_writer_destroy(w);
        mst_dataset_destroy(d);
    }
    FILE *file = fopen(back, "rb");
    size_t n = fread(got, 1, sizeof got - 1, file);
    fclose(file);
    got[n] = '\0';
    assert_string_equal(got, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_the_order_of_fields),
        cmocka_unit_test(refusals),
        cmocka_unit_test(recognition),
        cmocka_unit_test(rows_come_back),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
