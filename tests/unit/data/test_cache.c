/* The cache: rows come back one by one for any division into chunks; damage of any kind is refused with an
 * error; two makers of one cache take turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/cache.h"
#include "data/cache_file.h"
#include "data/feed.h"
#include "data/gen.h"
#include "data/write.h"
#include "temp_folder.h"

/* The path of a file in the folder; lives as long as the program. */
static const char *in_folder(const char *name)
{
    static char paths[32][96];
    static size_t n;
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (size_t i = 0; i < n; i++)
        if (strcmp(paths[i], path) == 0)
            return paths[i];
    assert_true(n < 32);
    return strcpy(paths[n++], path);
}

static mst_status open_caches(mst_dataset **out, size_t n, const char *const *paths)
{
    return mst_cache_open(&(mst_text_list){.items = (char **)paths, .n = n}, out);
}

/* ---- rows of every layout, a function of their number ---- */

enum { SPARSE, DENSE, VALUED, WEIGHTED, KINDS };

static void add_row(mst_chunk_builder *b, uint64_t number, int kind)
{
    mst_rng rng;
    mst_rng_init(&rng, 5, MST_RNG_TEST, number);
    uint32_t n_dense = kind == DENSE ? 3 : kind == VALUED ? 1 : 0, n = mst_rng_below(&rng, 6);
    assert_int_equal(mst_chunk_builder_room(b, 10), MST_OK);
    for (uint32_t j = 0; j < n_dense; j++)
        mst_chunk_builder_add(b, j, (float)mst_rng_below(&rng, 100) / 8);
    for (uint32_t j = 0; j < n; j++)
        mst_chunk_builder_add(b, 5 + mst_rng_below(&rng, 1000), kind == VALUED ? (float)j + 2 : 1.0f);
    float weight = kind == WEIGHTED ? (float)(1 + number % 3) : 1.0f;
    assert_int_equal(mst_chunk_builder_end_row(b, (float)(number % 7) - 3, weight), MST_OK);
}

/* The kind changes every 10,000 rows, so chunks of 4096 mix kinds. */
static int kind_of(uint64_t number)
{
    return (int)(number / 10000 % KINDS);
}

static void write_rows(const char *path, uint64_t n_rows, uint32_t piece, const char *key)
{
    mst_row_writer *w = NULL;
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, key, &w), MST_OK);
    for (uint64_t first = 0; first < n_rows; first += piece) {
        mst_chunk *chunk;
        mst_chunk_builder_clear(&b);
        for (uint64_t i = first; i < first + piece && i < n_rows; i++)
            add_row(&b, i, kind_of(i));
        assert_int_equal(mst_chunk_builder_pack(&b, 0, b.n_rows, &chunk), MST_OK);
        assert_int_equal(mst_row_writer_add(w, chunk), MST_OK);
        mst_chunk_release(chunk);
    }
    assert_false(mst_path_exists(path));
    assert_int_equal(mst_row_writer_commit(w, &(mst_data_info){.bytes = 77, .index_base = 1}), MST_OK);
    mst_row_writer_destroy(w);
    mst_chunk_builder_fini(&b);
}

static float value_in(const mst_row *row, uint32_t key)
{
    float sum = 0;
    if (key < row->n_dense)
        sum = row->bytes != NULL ? (float)row->bytes[key] / 255.0f : row->dense[key];
    for (uint32_t j = 0; j < row->n_keys; j++)
        if (row->keys[j] == key)
            sum += row->values != NULL ? row->values[j] : 1.0f;
    return sum;
}

static void check_rows(mst_dataset *d)
{
    mst_chunk_builder b;
    uint64_t number = 0;
    mst_chunk_builder_init(&b);
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        mst_chunk *chunk, *one;
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        assert_true(chunk->n_rows == d->chunk_rows || c + 1 == d->n_chunks);
        assert_int_equal((uintptr_t)chunk->words % 64, 0);
        for (uint32_t i = 0; i < chunk->n_rows; i++, number++) {
            mst_row got, want;
            mst_chunk_builder_clear(&b);
            add_row(&b, number, kind_of(number));
            assert_int_equal(mst_chunk_builder_pack(&b, 0, 1, &one), MST_OK);
            mst_chunk_row(one, 0, &want);
            mst_chunk_row(chunk, i, &got);
            assert_true(got.label == want.label && got.weight == want.weight);
            assert_int_equal(got.n_dense + got.n_keys, want.n_dense + want.n_keys);
            for (size_t j = 0; j < b.n_entries; j++)
                assert_true(value_in(&got, b.keys[j]) == value_in(&want, b.keys[j]));
            mst_chunk_release(one);
        }
        mst_chunk_release(chunk);
    }
    assert_int_equal(number, d->info.n_rows);
    mst_chunk_builder_fini(&b);
}

static void rows_come_back_whatever_the_pieces(void **state)
{
    (void)state;
    const uint32_t pieces[] = {1000, 4096, 50000, 7};
    for (size_t p = 0; p < 4; p++) {
        const char *path = in_folder("pieces.cache");
        uint64_t n_rows = p == 3 ? 4100 : 45000;
        unlink(path);
        write_rows(path, n_rows, pieces[p], "key");
        mst_dataset *d = NULL;
        assert_int_equal(open_caches(&d, 1, &path), MST_OK);
        assert_true(d->random && d->load_is_cheap && d->info.scanned && d->info.labels_integral);
        assert_int_equal(d->chunk_rows, MST_CACHE_ROWS);
        assert_int_equal(d->n_chunks, (n_rows + MST_CACHE_ROWS - 1) / MST_CACHE_ROWS);
        assert_true(d->info.min_label == -3 && d->info.max_label == 3);
        assert_int_equal(d->info.index_base, 1);
        assert_in_range(d->info.n_features, 900, 1005);
        uint64_t positive = 0;
        for (uint64_t i = 0; i < n_rows; i++)
            positive += i % 7 > 3;
        assert_int_equal(d->info.n_positive, positive);
        check_rows(d);
        mst_chunk *chunk = NULL;
        assert_int_equal(d->ops->load(d, d->n_chunks, &chunk), MST_EUSAGE);
        d->ops->destroy(d);
    }
}

/* Rows of fields, some by position and some not: each field and the order of keys come back. */
static void fields_come_back(void **state)
{
    (void)state;
    enum { ROWS = 9000, N = 7 };
    const char *path = in_folder("fields.cache");
    for (int kind = 0; kind < 4; kind++) { /* 0: all by position; 1: some rows lack a field; 2: values too; 3:
                                              by position, ascending */
        mst_row_writer *w = NULL;
        mst_dataset *d = NULL;
        mst_chunk *chunk;
        mst_chunk_builder b;
        unlink(path);
        mst_chunk_builder_init(&b);
        assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, NULL, &w), MST_OK);
        for (uint32_t first = 0; first < ROWS; first += 1000) {
            mst_chunk_builder_clear(&b);
            b.order = MST_ORDER_FIELDS;
            for (uint32_t i = first; i < first + 1000; i++) {
                assert_int_equal(mst_chunk_builder_room(&b, N), MST_OK);
                for (uint32_t j = 0; j < N; j++)
                    if (kind == 0 || kind == 3 || j != i % 50 || first % 2000 == 0)
                        mst_chunk_builder_add_field(&b, (uint16_t)j,
                                                    kind == 3 ? 100 * j + i % 90 : (i + 31 * (N - j)) % 500,
                                                    kind == 2 && j == 3 ? (float)i : 1.0f);
                assert_int_equal(mst_chunk_builder_end_row(&b, (float)(i % 2), 1), MST_OK);
            }
            assert_int_equal(mst_chunk_builder_pack(&b, 0, b.n_rows, &chunk), MST_OK);
            assert_int_equal(mst_row_writer_add(w, chunk), MST_OK);
            mst_chunk_release(chunk);
        }
        assert_int_equal(mst_row_writer_commit(w, &(mst_data_info){.n_fields = kind == 1 ? 9 : 0}), MST_OK);
        mst_row_writer_destroy(w);
        assert_int_equal(open_caches(&d, 1, &path), MST_OK);
        assert_int_equal(d->info.n_fields, kind == 1 ? 9 : N);
        uint32_t number = 0;
        for (uint32_t c = 0; c < d->n_chunks; c++) {
            assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
            assert_true(chunk->fielded && chunk->any_order == (kind != 3));
            assert_int_equal(chunk->has_fields, (kind == 1 || kind == 2) && c < 2);
            for (uint32_t i = 0; i < chunk->n_rows; i++, number++) {
                mst_row row;
                uint32_t at = 0;
                mst_chunk_row(chunk, i, &row);
                for (uint32_t j = 0; j < N; j++)
                    if (kind == 0 || kind == 3 || j != number % 50 || number / 1000 % 2 == 0) {
                        uint32_t key = kind == 3 ? 100 * j + number % 90 : (number + 31 * (N - j)) % 500;
                        assert_true(at < row.n_keys && row.keys[at] == key && mst_row_field(&row, at) == j);
                        assert_true(kind != 2 || row.values[at] == (j == 3 ? (float)number : 1.0f));
                        at++;
                    }
                assert_int_equal(at, row.n_keys);
            }
            mst_chunk_release(chunk);
        }
        assert_int_equal(number, ROWS);
        cache_header h;
        FILE *file = fopen(path, "rb");
        assert_int_equal(fread(&h, sizeof h, 1, file), 1);
        fclose(file);
        assert_int_equal(h.version, kind == 3 ? 1 : 2); /* an older reader takes what it can read */
        mst_dataset_destroy(d);
        mst_chunk_builder_fini(&b);
    }
}

static mst_status to_writer(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    return mst_row_writer_add(arg, chunk);
}

static void images_stay_bytes_in_smaller_chunks(void **state)
{
    (void)state;
    const char *path = in_folder("digits.cache");
    mst_row_writer *w = NULL;
    mst_dataset *d = NULL;
    mst_chunk *chunk;
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, NULL, &w), MST_OK);
    mst_gen_digits_options o = {.rows = 3000, .seed = 1};
    assert_int_equal(mst_gen_digits_rows(&o, to_writer, w), MST_OK);
    assert_int_equal(mst_row_writer_commit(w, NULL), MST_OK);
    mst_row_writer_destroy(w);
    assert_int_equal(open_caches(&d, 1, &path), MST_OK);
    assert_in_range(d->chunk_rows, 1300, 1400); /* 1 MiB of 788-byte records */
    assert_int_equal(d->info.n_dense, MST_GEN_DIGIT_PIXELS);
    assert_int_equal(d->info.n_features, MST_GEN_DIGIT_PIXELS);
    assert_int_equal(d->ops->load(d, 1, &chunk), MST_OK);
    mst_row row;
    uint8_t pixels[MST_GEN_DIGIT_PIXELS];
    mst_chunk_row(chunk, 5, &row);
    unsigned label = mst_gen_digit(1, d->chunk_rows + 5, pixels);
    assert_true(row.label == (float)label);
    assert_memory_equal(row.bytes, pixels, sizeof pixels);
    mst_chunk_release(chunk);
    d->ops->destroy(d);
}

static void an_empty_cache_and_bad_names(void **state)
{
    (void)state;
    const char *path = in_folder("empty.cache");
    mst_row_writer *w = NULL;
    mst_dataset *d = NULL;
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, NULL, &w), MST_OK);
    assert_int_equal(mst_row_writer_commit(w, NULL), MST_OK);
    mst_row_writer_destroy(w);
    assert_int_equal(open_caches(&d, 1, &path), MST_OK);
    assert_int_equal(d->info.n_rows, 0);
    assert_int_equal(d->n_chunks, 0);
    d->ops->destroy(d);
    d = NULL;
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, in_folder("x.cache.gz"), NULL, &w),
                     MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "plain file"));
    path = in_folder("absent.cache");
    assert_int_equal(open_caches(&d, 1, &path), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), path));
    assert_null(d);

    /* A writer given up leaves nothing. */
    path = in_folder("given-up.cache");
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, NULL, &w), MST_OK);
    mst_row_writer_destroy(w);
    assert_false(mst_path_exists(path));
}

static void several_files_are_one_when_chunks_agree(void **state)
{
    (void)state;
    const char *paths[3] = {in_folder("a.cache"), in_folder("b.cache"), in_folder("c.cache")};
    mst_dataset *d = NULL;
    write_rows(paths[0], 2 * MST_CACHE_ROWS, 5000, "");
    write_rows(paths[1], 100, 100, "");
    write_rows(paths[2], 2 * MST_CACHE_ROWS, 5000, "");
    assert_int_equal(open_caches(&d, 2, paths), MST_OK);
    assert_int_equal(d->info.n_rows, 2 * MST_CACHE_ROWS + 100);
    assert_int_equal(d->n_chunks, 3);
    assert_non_null(strstr(d->name, "and 1 more"));
    mst_chunk *chunk;
    assert_int_equal(d->ops->load(d, 2, &chunk), MST_OK);
    assert_int_equal(chunk->n_rows, 100);
    mst_chunk_release(chunk);
    d->ops->destroy(d);
    d = NULL;
    assert_int_equal(open_caches(&d, 3, paths), MST_EINPUT); /* b ends in mid-chunk and is not last */
    assert_non_null(strstr(mst_error_text(), "b.cache"));
    assert_non_null(strstr(mst_error_text(), "convert the sources together"));
    assert_null(d);
}

/* ---- damage ---- */

static void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* Opens the bytes as a cache and reads everything in it; the first failure. */
static mst_status read_through(const char *path)
{
    mst_dataset *d = NULL;
    TRY(open_caches(&d, 1, &path));
    mst_status st = MST_OK;
    for (uint32_t c = 0; c < d->n_chunks && st == MST_OK; c++) {
        mst_chunk *chunk;
        st = d->ops->load(d, c, &chunk);
        if (st == MST_OK)
            mst_chunk_release(chunk);
    }
    d->ops->destroy(d);
    return st;
}

static void load_good(char **data, size_t *n)
{
    const char *path = in_folder("good.cache");
    if (!mst_path_exists(path))
        write_rows(path, 5000, 1000, "the key");
    assert_int_equal(mst_file_read_all(path, 1 << 26, data, n), MST_OK);
}

static void every_kind_of_damage_is_refused(void **state)
{
    (void)state;
    char *data;
    size_t n;
    const char *path = in_folder("bad.cache");
    load_good(&data, &n);
    for (size_t cut = 0; cut < n; cut += 1 + n / 40) {
        put_file(path, data, cut);
        assert_int_equal(read_through(path), MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), path));
    }
    put_file(path, data, 200);
    assert_int_equal(read_through(path), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "cut off"));
    char *longer = mst_zalloc(n + 3);
    memcpy(longer, data, n);
    put_file(path, longer, n + 3);
    mst_free(longer);
    assert_int_equal(read_through(path), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "something was added at its end; convert it again"));
    put_file(path, "0 1:1\n", 6);
    assert_int_equal(read_through(path), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "is not a muster cache"));
    /* One bit anywhere but in padding. */
    mst_rng rng;
    mst_rng_init(&rng, 9, MST_RNG_TEST, 0);
    cache_header h;
    memcpy(&h, data, sizeof h);
    for (int i = 0; i < 300; i++) {
        size_t at = i < 100 ? mst_rng_below(&rng, sizeof h) : mst_rng_below(&rng, (uint32_t)n);
        const cache_entry *t = (const cache_entry *)(data + h.table_offset);
        bool covered = at < sizeof h + h.key_size || at >= h.table_offset;
        for (uint32_t c = 0; c < h.n_chunks; c++)
            covered |= at >= t[c].offset && at < t[c].offset + cache_body_bytes(&t[c]);
        if (!covered)
            continue;
        data[at] ^= (char)(1 << mst_rng_below(&rng, 8));
        put_file(path, data, n);
        assert_int_equal(read_through(path), MST_EINPUT);
        mst_free(data);
        load_good(&data, &n);
    }
    memcpy(data + 8, &(uint32_t){9}, 4);
    put_file(path, data, n);
    assert_int_equal(read_through(path), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "version 9"));
    mst_free(data);
}

/* Recomputes all checksums, so that only the checks behind them are left. */
static void seal(char *data)
{
    cache_header *h = (cache_header *)data;
    cache_entry *t = (cache_entry *)(data + h->table_offset);
    for (uint32_t c = 0; c < h->n_chunks; c++)
        t[c].crc = mst_crc32c(0, data + t[c].offset, cache_body_bytes(&t[c]));
    h->table_crc = mst_crc32c(0, t, h->n_chunks * sizeof *t);
    h->header_crc = 0;
    h->header_crc = mst_crc32c(0, data, sizeof *h + h->key_size);
}

static void checksummed_nonsense_is_refused(void **state)
{
    (void)state;
    const char *path = in_folder("sealed.cache");
    for (int i = 0; i < 9; i++) {
        char *data;
        size_t n;
        load_good(&data, &n);
        cache_header *h = (cache_header *)data;
        cache_entry *t = (cache_entry *)(data + h->table_offset);
        uint32_t *words = (uint32_t *)(data + t[0].offset), *positions = words + t[0].n_words;
        const char *sentence = "out of range";
        assert_int_equal(t[0].stride, 0);
        uint32_t row = 0;
        while (positions[row + 1] - positions[row] < 3)
            row++;
        switch (i) {
        case 0: /* a key beyond the chunk's largest */
            words[positions[row + 1] - 1] = 0xfffffff0;
            break;
        case 1: /* keys that descend */
            words[positions[row] + 1] = t[0].max_key, words[positions[row] + 2] = 6;
            break;
        case 2: /* a label that is not a number */
            words[0] = 0x7fc00000;
            break;
        case 3:
            positions[1] = 0xffffff00, sentence = "a record reaches beyond its chunk";
            break;
        case 4:
            positions[4096] -= 1, sentence = "a record reaches beyond its chunk";
            break;
        case 5:
            h->n_rows++, sentence = "do not add up";
            break;
        case 6:
            h->n_features = 3, sentence = "features beyond";
            break;
        case 7:
            t[0].flags |= 64, sentence = "unknown flags";
            break;
        case 8:
            t[1].offset = h->table_offset, sentence = "reaches beyond the file";
            h->table_crc = 0;
            break;
        }
        if (i == 8) { /* the body's checksum cannot be computed */
            h->table_crc = mst_crc32c(0, t, h->n_chunks * sizeof *t);
            h->header_crc = 0;
            h->header_crc = mst_crc32c(0, data, sizeof *h + h->key_size);
        } else
            seal(data);
        put_file(path, data, n);
        assert_int_equal(read_through(path), MST_EINPUT);
        if (strstr(mst_error_text(), sentence) == NULL)
            fail_msg("case %d: %s", i, mst_error_text());
        mst_free(data);
    }
}

static void failures_leave_nothing_behind(void **state)
{
    (void)state;
    const char *path = in_folder("failing.cache");
    mst_chunk_builder b;
    mst_chunk *chunk;
    mst_chunk_builder_init(&b);
    for (uint64_t i = 0; i < 6000; i++)
        add_row(&b, i, DENSE);
    assert_int_equal(mst_chunk_builder_pack(&b, 0, b.n_rows, &chunk), MST_OK);
    mst_chunk_builder_fini(&b);
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (int writes = 0; writes < 2; writes++) {
        bool done = false;
        for (uint64_t k = 1; !done && k < 200; k++) {
            mst_row_writer *w = NULL;
            if (writes)
                mst_out_fail_at(k);
            else
                mst_alloc_fail_at(k);
            mst_status st = mst_row_writer_new(&mst_row_writer_cache, path, "key", &w);
            if (st == MST_OK)
                st = mst_row_writer_add(w, chunk);
            if (st == MST_OK)
                st = mst_row_writer_commit(w, NULL);
            mst_out_fail_at(0);
            mst_alloc_fail_at(0);
            done = st == MST_OK;
            mst_row_writer_destroy(w);
            assert_int_equal(mst_path_exists(path), done);
            if (!done && st != MST_EIO && (writes || st != MST_ENOMEM))
                fail_msg("failure %llu of kind %d: %s", (unsigned long long)k, writes, mst_error_text());
        }
        assert_true(done);
        for (uint64_t k = 1; !writes; k++) {
            mst_dataset *d = NULL;
            mst_alloc_fail_at(k);
            mst_status st = open_caches(&d, 1, &path);
            mst_alloc_fail_at(0);
            if (st == MST_OK) {
                d->ops->destroy(d);
                break;
            }
            assert_int_equal(st, MST_ENOMEM);
            assert_null(d);
        }
        unlink(path);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
    mst_chunk_release(chunk);
}

/* ---- mst_cache_for ---- */

static void a_held_lock_is_waited_for_until_the_deadline(void **state)
{
    (void)state;
    const char *path = in_folder("turns.lock");
    int to_child[2], to_parent[2], fd = -1;
    char byte = 0;
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) { /* holds the lock until it receives a byte, then dies without releasing it */
        int mine;
        bool ok = mst_cache_lock(path, 1000, &mine) == MST_OK && write(to_parent[1], "x", 1) == 1 &&
                  read(to_child[0], &byte, 1) == 1;
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    assert_int_equal(mst_cache_lock(path, 50, &fd), MST_EIO);
    char expected[64];
    snprintf(expected, sizeof expected, "for process %ld, which is making this cache", (long)child);
    assert_non_null(strstr(mst_error_text(), expected));
    assert_int_equal(write(to_child[1], "x", 1), 1);
    assert_int_equal(mst_cache_lock(path, 60000, &fd), MST_OK); /* comes free with the child's death */
    mst_cache_unlock(path, fd);
    assert_false(mst_path_exists(path));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(to_parent[i]);
    }
}

/* On a full disk the lock file can be made but not written. */
static void a_lock_that_cannot_be_written_is_not_left(void **state)
{
    (void)state;
    const char *path = in_folder("full.lock");
    struct rlimit before, none;
    int fd = -1;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    mst_status st = mst_cache_lock(path, 1000, &fd);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(st, MST_EIO);
    assert_non_null(strstr(mst_error_text(), "full.lock: cannot write: "));
    assert_int_equal(fd, -1);
    assert_false(mst_path_exists(path));
}

static mst_dataset *cache_of(const char *source, mst_option_group *options, const char *cache_folder)
{
    mst_dataset *d = NULL, *cache = NULL;
    mst_text_list patterns = {.items = (char *[]){(char *)source}, .n = 1};
    if (mst_dataset_open(&patterns, options->base, &d) != MST_OK ||
        mst_cache_for(d, &patterns, options->base, cache_folder, 1, &cache) != MST_OK)
        fail_msg("%s", mst_error_text());
    mst_dataset_destroy(d);
    return cache;
}

static unsigned files_like(const char *suffix)
{
    mst_text_list out = {0};
    char pattern[128];
    snprintf(pattern, sizeof pattern, "%s/made/*%s", folder, suffix);
    unsigned n = mst_glob(&(mst_text_list){.items = (char *[]){pattern}, .n = 1}, &out) == MST_OK
                     ? (unsigned)out.n
                     : 0;
    mst_text_list_fini(&out);
    return n;
}

static void a_cache_is_made_once_and_again_when_the_source_changes(void **state)
{
    (void)state;
    mst_data_options options = {0};
    mst_option_group group = {.title = "data", .table = mst_data_option_table, .base = &options};
    assert_int_equal(mst_options_init(&group, 1), MST_OK);
    char source[128], made[128];
    snprintf(source, sizeof source, "%s/source.svm", folder);
    snprintf(made, sizeof made, "%s/made", folder);
    put_file(source, "1 1:2 5:1\n0 2:1\n", 16);
    mst_dataset *d = cache_of(source, &group, made);
    assert_int_equal(d->info.n_rows, 2);
    assert_int_equal(d->info.n_features, 5);
    struct stat first, second;
    assert_int_equal(stat(d->name, &first), 0);
    mst_dataset_destroy(d);
    assert_int_equal(files_like(".lock"), 0);
    assert_int_equal(files_like(".cache"), 1);

    d = cache_of(source, &group, made);
    assert_int_equal(stat(d->name, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);
    mst_dataset_destroy(d);

    put_file(source, "1 1:2 5:1\n0 2:1\n1 9:1\n", 22);
    d = cache_of(source, &group, made);
    assert_int_equal(d->info.n_rows, 3);
    assert_int_equal(d->info.n_features, 9);
    mst_dataset_destroy(d);

    assert_int_equal(mst_options_set(&group, 1, "index-base", "0"), MST_OK);
    d = cache_of(source, &group, made);
    assert_int_equal(d->info.n_features, 10);
    char *name = mst_strdup(d->name);
    mst_dataset_destroy(d);
    put_file(name, "torn", 4); /* a damaged one is made again */
    d = cache_of(source, &group, made);
    assert_int_equal(d->info.n_rows, 3);
    mst_dataset_destroy(d);
    mst_free(name);
    assert_int_equal(files_like(".cache"), 1);

    /* Beside the source, and out of a folder's listing. */
    d = cache_of(source, &group, NULL);
    assert_non_null(strstr(d->name, "/.source.svm."));
    mst_dataset_destroy(d);
    mst_options_fini(&group, 1);
}

static void processes_that_want_one_cache_all_get_it(void **state)
{
    (void)state;
    mst_data_options options = {0};
    mst_option_group group = {.title = "data", .table = mst_data_option_table, .base = &options};
    assert_int_equal(mst_options_init(&group, 1), MST_OK);
    char source[128], made[128];
    snprintf(source, sizeof source, "%s/shared.svm", folder);
    snprintf(made, sizeof made, "%s/shared", folder);
    FILE *f = fopen(source, "w");
    assert_non_null(f);
    for (int i = 0; i < 20000; i++)
        fprintf(f, "%d 1:1 %d:1\n", i % 2, 2 + i % 100);
    fclose(f);
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            mst_dataset *d = cache_of(source, &group, made);
            bool ok = d->info.n_rows == 20000;
            mst_dataset_destroy(d);
            _exit(ok ? 0 : 1);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    mst_options_fini(&group, 1);
}

/* ---- files that change while they are mapped ---- */

/* Overwrites everything between header and end with one byte, in place. */
static void overwrite(const char *path, int byte)
{
    struct stat info;
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    size_t n = (size_t)info.st_size - sizeof(cache_header);
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    memset(bytes, byte, n);
    assert_int_equal(pwrite(fd, bytes, n, sizeof(cache_header)), n);
    free(bytes);
    close(fd);
}

/* Sets the time of the last change back: it is what tells that a file was overwritten. */
static void age(const char *path)
{
    struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void a_file_that_changes_is_named(void **state)
{
    (void)state;
    const char *path = in_folder("changing.cache");
    mst_dataset *d = NULL;
    mst_chunk *chunk;
    for (int cut = 0; cut < 2; cut++) {
        unlink(path);
        write_rows(path, 10000, 1000, "key");
        age(path);
        assert_int_equal(open_caches(&d, 1, &path), MST_OK);
        assert_int_equal(d->ops->load(d, 0, &chunk), MST_OK);
        if (cut)
            assert_int_equal(truncate(path, 4096), 0);
        else
            overwrite(path, 0xff);
        /* a chunk that was loaded is a copy */
        for (uint32_t i = 0; i < chunk->n_rows; i++) {
            mst_row row;
            mst_chunk_row(chunk, i, &row);
            assert_true(row.n_keys == 0 || row.keys[row.n_keys - 1] <= chunk->max_key);
        }
        mst_chunk_release(chunk);
        assert_int_equal(d->ops->load(d, 1, &chunk), MST_EINPUT);
        assert_non_null(
            strstr(mst_error_text(), cut ? "changing.cache was cut from" : "changing.cache was overwritten"));
        assert_int_equal(mst_dataset_intact(d), MST_EINPUT);
        d->ops->destroy(d);
    }
}

static mst_feed *feed_of(mst_dataset *d, bool any_keys)
{
    mst_feed *feed = NULL;
    mst_feed_options o = {
        .seed = 1, .shuffle_rows = 65536, .n_lanes = 1, .max_take = 2000, .any_keys = any_keys};
    assert_int_equal(mst_feed_new(d, &o, &feed), MST_OK);
    assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
    return feed;
}

/* Rows that were taken keep their keys and labels; those that are filled after the change are refused, and so
 * is the next take. */
static void rows_do_not_change_with_their_file(void **state)
{
    (void)state;
    const char *path = in_folder("rows.cache");
    mst_dataset *d = NULL;
    mst_batch batch;
    uint64_t position;
    for (int byte = 0; byte < 256; byte += 255) {
        write_rows(path, 10000, 1000, "key");
        age(path);
        assert_int_equal(open_caches(&d, 1, &path), MST_OK);
        mst_feed *feed = feed_of(d, false);
        assert_int_equal(mst_feed_claim(feed, 0, 2000, &batch, &position), MST_OK);
        assert_int_equal(mst_feed_fill(feed, 0, 0, 1000), MST_OK);
        overwrite(path, byte);
        for (uint32_t i = 0; i < 1000; i++) {
            const mst_row *row = &batch.rows[i];
            assert_true(row->label >= -3 && row->label <= 3);
            for (uint32_t j = 0; j < row->n_keys; j++)
                assert_true(row->keys[j] >= row->n_dense && row->keys[j] < 1005 &&
                            (j == 0 || row->keys[j] >= row->keys[j - 1]));
        }
        if (byte == 255) { /* zeros may be a row */
            assert_int_equal(mst_feed_fill(feed, 0, 1000, 2000), MST_EINPUT);
            assert_non_null(strstr(mst_error_text(), "rows.cache was overwritten"));
        }
        mst_feed_destroy(feed);
        feed = feed_of(d, true);
        assert_int_equal(mst_feed_take(feed, 0, 10, &batch, &position), MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), "rows.cache was overwritten"));
        mst_feed_destroy(feed);
        d->ops->destroy(d);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_whatever_the_pieces),
        cmocka_unit_test(fields_come_back),
        cmocka_unit_test(images_stay_bytes_in_smaller_chunks),
        cmocka_unit_test(an_empty_cache_and_bad_names),
        cmocka_unit_test(several_files_are_one_when_chunks_agree),
        cmocka_unit_test(every_kind_of_damage_is_refused),
        cmocka_unit_test(checksummed_nonsense_is_refused),
        cmocka_unit_test(failures_leave_nothing_behind),
        cmocka_unit_test(a_held_lock_is_waited_for_until_the_deadline),
        cmocka_unit_test(a_lock_that_cannot_be_written_is_not_left),
        cmocka_unit_test(a_cache_is_made_once_and_again_when_the_source_changes),
        cmocka_unit_test(processes_that_want_one_cache_all_get_it),
        cmocka_unit_test(a_file_that_changes_is_named),
        cmocka_unit_test(rows_do_not_change_with_their_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
