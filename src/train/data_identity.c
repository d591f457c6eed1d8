/* The training data of a run; contract in data_identity.h. */
#include "train/data_identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "data/fingerprint.h"
#include "data/stream.h"

mst_status mst_data_identity_of(const mst_text_list *files, bool own, json_t **out)
{
    mst_fingerprint f = {0};
    char size[48], checksum[16];
    bool once = false;
    if (!own)
        TRY(mst_fingerprint_files(files, &f));
    for (size_t i = 0; i < files->n; i++)
        once |= mst_path_reads_once(files->items[i]);
    json_t *source = json_object();
    bool fine = json_object_set_new(source, "files", mst_json_texts(files->items, files->n)) == 0;
    if (f.known) {
        snprintf(size, sizeof size, "%" PRIu64 " %s", f.rows > 0 ? f.rows : f.bytes,
                 f.rows > 0 ? "rows" : "bytes");
        snprintf(checksum, sizeof checksum, "%08" PRIx32, f.checksum);
        fine = fine && json_object_set_new(source, "size", json_string(size)) == 0 &&
               json_object_set_new(source, "checksum", json_string(checksum)) == 0;
    }
    if (once)
        fine = fine && json_object_set_new(source, "once", json_true()) == 0;
    if (!fine) {
        json_decref(source);
        return mst_fail_memory();
    }
    *out = source;
    return MST_OK;
}

bool mst_data_identity_reads_once(const json_t *source)
{
    return json_is_true(json_object_get(source, "once"));
}

bool mst_data_identity_same(const json_t *then, const json_t *now)
{
    json_t *was = json_object_get(then, "checksum"), *is = json_object_get(now, "checksum");
    if (then == NULL || now == NULL)
        return true;
    if (mst_data_identity_reads_once(now))
        return false;
    if (was != NULL && is != NULL)
        return json_equal(was, is) && json_equal(json_object_get(then, "size"), json_object_get(now, "size"));
    return json_equal(json_object_get(then, "files"), json_object_get(now, "files"));
}

const char *mst_data_identity_name(const json_t *source, char *out, size_t size)
{
    const json_t *files = json_object_get(source, "files");
    const char *first = json_string_value(json_array_get(files, 0));
    size_t n = json_array_size(files);
    first = first == NULL ? "other data" : strcmp(first, "-") == 0 ? "standard input" : first;
    if (n > 1)
        snprintf(out, size, "%s and %zu more", first, n - 1);
    else
        snprintf(out, size, "%s", first);
    return out;
}
