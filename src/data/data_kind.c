/* The registry of kinds of data (contract: data_kind.h). */
#include "data/data_kind.h"

#include <stdio.h>
#include <string.h>

#include "data/format.h"

extern const mst_format mst_format_libsvm, mst_format_tfrecord, mst_format_criteo, mst_format_vw,
    mst_format_libffm, mst_format_csv;
extern const mst_data_kind mst_data_idx, mst_data_cifar10, mst_data_cifar100, mst_data_images, mst_data_gen,
    mst_data_numpy, mst_data_cache;

const mst_data_kind *const mst_data_kinds[] = {
    &mst_format_libsvm.kind, &mst_format_tfrecord.kind,
    &mst_format_criteo.kind, &mst_format_vw.kind,
    &mst_format_libffm.kind, &mst_format_csv.kind,
    &mst_data_idx,           &mst_data_cifar10,
    &mst_data_cifar100,      &mst_data_images,
    &mst_data_numpy,         &mst_data_gen,
    &mst_data_cache,         NULL,
};

const mst_data_kind *mst_data_kind_find(const char *name)
{
    for (size_t i = 0; name != NULL && mst_data_kinds[i] != NULL; i++)
        if (strcmp(mst_data_kinds[i]->name, name) == 0)
            return mst_data_kinds[i];
    return NULL;
}

bool mst_data_kind_reads(const mst_data_kind *self, const char *option)
{
    size_t n;
    for (const char *word = self->reads; word != NULL && *word != '\0'; word += n + (word[n] == ' ')) {
        n = strcspn(word, " ");
        if (strncmp(option, word, n) == 0 && (option[n] == '\0' || word[n - 1] == '-'))
            return true;
    }
    return false;
}

const mst_format *mst_data_kind_format(const mst_data_kind *self)
{
    return self != NULL && mst_data_kind_has(self, MST_DATA_FORMAT) ? (const mst_format *)self : NULL;
}

const char *mst_data_kind_names(char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; mst_data_kinds[i] != NULL && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", mst_data_kinds[i]->name);
    return out;
}
