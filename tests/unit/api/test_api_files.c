/* The public interface on files: descriptions, and predictions of rows as the training data was read. */
#include "unit/api/api_trial.h"

static void write_file(const char *name, const char *head, unsigned n, const char *const *rows,
                       unsigned n_rows)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fputs(head, file);
    for (unsigned i = 0; i < n; i++)
        fprintf(file, "%s\n", rows[i % n_rows]);
    assert_int_equal(fclose(file), 0);
}

/* A training in memory on a file; more options are name, value, ..., NULL. */
static muster_model *train_file(const char *name, ...)
{
    muster_options *options = NULL;
    muster_trainer *trainer = NULL;
    muster_model *model = NULL;
    const char *option;
    va_list more;
    ok(muster_options_new(&options));
    ok(muster_options_add_file(options, path_of(name)));
    ok(muster_options_set_memory(options));
    ok(muster_options_set(options, "threads", "1"));
    va_start(more, name);
    while ((option = va_arg(more, const char *)) != NULL)
        ok(muster_options_set(options, option, va_arg(more, const char *)));
    va_end(more);
    ok(muster_trainer_new(options, &trainer));
    muster_options_free(options);
    ok(muster_trainer_run(trainer, 0, NULL, NULL, NULL));
    ok(muster_trainer_model(trainer, &model));
    muster_trainer_free(trainer);
    return model;
}

static const char *const people[] = {"39,Bonn,poor", "52,Trier,rich", "28,Bonn,poor", "61,Bonn,rich",
                                     "33,Trier,poor"};

static void tables(void **state)
{
    (void)state;
    write_file("people.csv", "age,city,income\n", 200000, people, 5); /* several blocks of results */
    muster_model *model = train_file("people.csv", "csv-label", "income", "epochs", "1", "batch", "1", NULL);
    assert_non_null(strstr(muster_model_text(model), "\"labels\": [\"poor\", \"rich\"]"));
    assert_non_null(strstr(muster_model_text(model), "\"field_names\": [\"age\", \"city\"]"));
    const char *files[] = {path_of("people.csv")};
    float *probabilities = NULL;
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        muster_predictions *p = NULL, *margins = NULL;
        ok(muster_model_predict_files(model, files, 1, MUSTER_CLASSES, 1, n_threads, &p));
        assert_int_equal(muster_predictions_rows(p), 200000);
        const int32_t *classes = muster_predictions_values(p);
        const float *labels = muster_predictions_labels(p);
        for (unsigned i = 0; i < 200000; i++) {
            if (classes[i] != (int32_t)labels[i] || classes[i] != (strstr(people[i % 5], "rich") != NULL))
                fail_msg("row %u: class %d, label %g", i, classes[i], (double)labels[i]);
        }
        muster_predictions_free(p);
        ok(muster_model_predict_files(model, files, 1, MUSTER_PROBABILITIES, 0, n_threads, &p));
        ok(muster_model_predict_files(model, files, 1, MUSTER_MARGINS, 0, n_threads, &margins));
        assert_null(muster_predictions_labels(p));
        const float *now = muster_predictions_values(p), *scores = muster_predictions_values(margins);
        if (probabilities == NULL) {
            probabilities = malloc(400000 * sizeof *probabilities);
            assert_non_null(probabilities);
            memcpy(probabilities, now, 400000 * sizeof *probabilities);
        }
        assert_memory_equal(now, probabilities, 400000 * sizeof *now);
        for (unsigned i = 0; i < 1000; i++)
            assert_true(fabsf(1.0f / (1.0f + expf(-scores[i])) - now[2 * i + 1]) < 1e-6f);
        muster_predictions_free(p);
        muster_predictions_free(margins);
    }
    free(probabilities);
    /* Other columns, in another order, without the label; files in their order. */
    write_file("turned.csv", "x;city;age\n", 2, (const char *[]){"1;Bonn;61", "2;Bonn;28"}, 2);
    const char *both[] = {path_of("turned.csv"), path_of("turned.csv")};
    muster_predictions *p = NULL;
    ok(muster_model_predict_files(model, both, 2, MUSTER_CLASSES, 0, 1, &p));
    assert_int_equal(muster_predictions_rows(p), 4);
    assert_memory_equal(muster_predictions_values(p), ((int32_t[]){1, 0, 1, 0}), 16);
    muster_predictions_free(p);
    refused(muster_model_predict_files(model, both, 1, MUSTER_CLASSES, 1, 1, &p), MUSTER_EINPUT,
            "no column \"income\"");
    refused(muster_model_predict_files(model, both, 0, MUSTER_CLASSES, 1, 1, &p), MUSTER_EUSAGE, "no files");
    refused(muster_model_predict_files(model, both, 1, (muster_output)9, 1, 1, &p), MUSTER_EUSAGE, "kind");
    const char *missing[] = {path_of("nowhere")};
    refused(muster_model_predict_files(model, missing, 1, MUSTER_CLASSES, 0, 1, &p), MUSTER_EINPUT,
            "nowhere");
    write_file("rows.libsvm", "", 2, (const char *[]){"0 1:1", "1 2:1"}, 2);
    const char *other[] = {path_of("rows.libsvm")};
    refused(muster_model_predict_files(model, other, 1, MUSTER_CLASSES, 0, 1, &p), MUSTER_EINPUT,
            "rows with numbered features, but the model is for rows with features hashed by csv");
    muster_predictions_free(NULL);
    muster_model_free(model);
}

static void labels_of_files(void **state)
{
    (void)state;
    write_file("signs.vw", "", 100, (const char *[]){"-1 |f a b", "1 |f c d"}, 2);
    muster_model *model = train_file("signs.vw", NULL);
    assert_non_null(strstr(muster_model_text(model), "\"labels\": [-1, 1]"));
    ok(muster_model_save(model, path_of("saved")));
    muster_model_free(model);
    ok(muster_model_load(path_of("saved"), NULL, &model)); /* checkpoints keep it */
    assert_non_null(strstr(muster_model_text(model), "\"labels\": [-1, 1]"));
    muster_model_free(model);
    write_file("digits.libsvm", "", 90, (const char *[]){"1 1:1", "2 2:1", "3 3:1"}, 3);
    model = train_file("digits.libsvm", "model", "softmax", "labels-from", "1", NULL);
    assert_non_null(strstr(muster_model_text(model), "\"labels\": [1, 2, 3]"));
    const char *files[] = {path_of("digits.libsvm")};
    muster_predictions *p = NULL;
    ok(muster_model_predict_files(model, files, 1, MUSTER_CLASSES, 1, 2, &p));
    assert_int_equal(muster_predictions_rows(p), 90);
    for (unsigned i = 0; i < 90; i++)
        assert_int_equal((int)muster_predictions_labels(p)[i], (int)(i % 3));
    muster_predictions_free(p);
    muster_model_free(model);
}

static void descriptions(void **state)
{
    (void)state;
    muster_options *options = NULL;
    const char *text = NULL;
    ok(muster_options_new(&options));
    refused(muster_options_describe(options, &text), MUSTER_EUSAGE, "no files");
    write_file("few.csv", "age,city,label\n", 5, people, 5);
    ok(muster_options_add_file(options, path_of("few.csv")));
    ok(muster_options_describe(options, &text));
    assert_non_null(strstr(text, "\"format\": \"csv\""));
    assert_non_null(strstr(text, "\"classes\": 2"));
    assert_non_null(strstr(text, "\"field_names\": [\"age\", \"city\"]"));
    ok(muster_options_set(options, "csv-label", "town"));
    refused(muster_options_describe(options, &text), MUSTER_EINPUT, "no column \"town\"");
    muster_options_free(options);
    write_file("four.libsvm", "", 8, (const char *[]){"0 1:1", "3 2:1"}, 2);
    ok(muster_options_new(&options));
    ok(muster_options_add_file(options, path_of("four.libsvm")));
    ok(muster_options_describe(options, &text));
    assert_non_null(strstr(text, "\"classes\": 4, \"labels\": [0, 1, 2, 3]"));
    muster_options_free(options);
}

/* The name of a feature, "" if it has none. */
static const char *name_of(const muster_model *model, uint64_t feature)
{
    static char out[64];
    size_t length = 99;
    ok(muster_model_feature_name(model, feature, out, sizeof out, &length));
    assert_int_equal(length, strlen(out));
    return out;
}

static uint32_t feature_of(const muster_model *model, const char *field, const char *value)
{
    uint32_t feature = 99;
    ok(muster_model_feature(model, field, strlen(field), value, strlen(value), &feature));
    return feature;
}

static void names_of_features(void **state)
{
    uint32_t feature = 7;
    char two[2] = "x";
    size_t length;
    (void)state;
    /* a list */
    write_file("names", "age\r\nheight\n\n4", 0, NULL, 1);
    write_file("numbered.libsvm", "", 40, (const char *[]){"0 1:1 2:3", "1 1:2 4:1"}, 2);
    muster_model *m = train_file("numbered.libsvm", "feature-names", path_of("names"), NULL);
    assert_int_equal(muster_model_features(m), 4);
    assert_string_equal(name_of(m, 0), "age");
    assert_string_equal(name_of(m, 2), "");
    assert_string_equal(name_of(m, 3), "4");
    ok(muster_model_feature_name(m, 1, two, sizeof two, &length));
    assert_string_equal(two, "h");
    assert_int_equal(length, 6);
    ok(muster_model_feature_name(m, 1, NULL, 0, NULL));
    refused(muster_model_feature_name(m, 4, two, sizeof two, NULL), MUSTER_EUSAGE, "the model has 4");
    assert_int_equal(feature_of(m, "", "height"), 1);
    assert_int_equal(feature_of(m, "", "3"), 2); /* an index of the file, from 1 */
    refused(muster_model_feature(m, "", 0, "weight", 6, &feature), MUSTER_EINPUT,
            "neither an index nor a name");
    refused(muster_model_feature(m, "", 0, "5", 1, &feature), MUSTER_EINPUT, "no feature 4");
    refused(muster_model_feature(m, "age", 3, "1", 1, &feature), MUSTER_EINPUT, "a row is");
    assert_int_equal(feature, 7);
    assert_non_null(strstr(muster_model_text(m), "/names\""));
    muster_model_free(m);
    /* columns and hashes */
    write_file("some.csv", "age,city,income\n", 200, people, 5);
    m = train_file("some.csv", "csv-label", "income", NULL);
    assert_string_equal(name_of(m, 0), "age");
    assert_string_equal(name_of(m, 5), "");
    assert_int_equal(feature_of(m, "age", "39"), 0);
    assert_int_equal(feature_of(m, "city", "Bonn"),
                     muster_hash_csv("city", 4, "Bonn", 4, 1, 0, muster_model_features(m)));
    assert_int_equal(feature_of(m, "city", ""),
                     muster_hash_csv("city", 4, "", 0, 1, 0, muster_model_features(m)));
    refused(muster_model_feature(m, "town", 4, "Bonn", 4, &feature), MUSTER_EINPUT, "no column \"town\"");
    muster_model_free(m);
    write_file("some.vw", "", 40, (const char *[]){"0 |user u1 |page home", "1 |user u2 |page shop"}, 2);
    m = train_file("some.vw", "hash-seed", "3", NULL);
    assert_int_equal(feature_of(m, "user", "u2"),
                     muster_hash_vw("user", 4, "u2", 2, 3, muster_model_features(m)));
    assert_string_equal(name_of(m, 5), "");
    muster_model_free(m);
    /* a vocabulary */
    m = train_file("some.vw", "cache", "true", "min-count", "2", "cache-folder", path_of("caches"), NULL);
    assert_string_equal(name_of(m, feature_of(m, "page", "home")), "page=home");
    assert_string_equal(name_of(m, feature_of(m, "page", "never")), "page="); /* the rare ones of the field */
    muster_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(labels_of_files),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(names_of_features),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
