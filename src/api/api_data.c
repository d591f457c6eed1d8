/* Rows in arrays of the program (data/array_rows.h); contract in muster/muster.h. */
#include <string.h>
#include <unistd.h>

#include "api/api_impl.h"
#include "base/alloc.h"

#define SAME(name) _Static_assert((int)MUSTER_##name == (int)MST_ARRAY_##name, #name)
SAME(NONE);
SAME(FLOAT32);
SAME(FLOAT64);
SAME(UINT8);
SAME(INT32);
SAME(UINT32);
SAME(INT64);

static mst_array data_array(muster_array a)
{
    return (mst_array){.data = a.data, .type = (mst_array_type)a.type};
}

unsigned mst_api_threads(uint32_t n)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : cores > 0 ? (unsigned)cores : 1;
}

mst_status mst_api_arrays(const muster_arrays *from, mst_array_spec *out)
{
    muster_arrays a = {0};
    if (from->size == 0 || from->size > sizeof a)
        return mst_fail(MST_EUSAGE, "muster_arrays has size %zu; the program needs libmuster %s or later",
                        from->size, muster_version());
    memcpy(&a, from, from->size);
    *out = (mst_array_spec){
        .name = a.name != NULL ? a.name : "X",
        .n_rows = a.n_rows,
        .n_features = a.n_features,
        .dense = data_array(a.dense),
        .n_dense = a.n_dense,
        .stride = a.row_stride,
        .starts = data_array(a.starts),
        .keys = data_array(a.columns),
        .values = data_array(a.values),
        .n_entries = a.n_entries,
        .fields = a.fields,
        .n_fields = a.n_fields,
        .labels = data_array(a.labels),
        .weights = data_array(a.weights),
        .n_classes = a.n_classes > 0 ? a.n_classes : 2,
        .channels = a.channels,
        .height = a.height,
        .width = a.width,
    };
    return MST_OK;
}

muster_status muster_data_new(const muster_arrays *from, uint32_t n_threads, muster_data **out)
{
    mst_array_spec spec;
    muster_data *self = mst_zalloc(sizeof *self);
    mst_status st = self != NULL ? mst_api_arrays(from, &spec) : mst_fail_memory();
    if (st == MST_OK)
        st = mst_array_rows_new(&spec, mst_api_threads(n_threads), &self->rows);
    if (st != MST_OK) {
        mst_free(self);
        return (muster_status)st;
    }
    *out = self;
    return MUSTER_OK;
}

void muster_data_free(muster_data *self)
{
    if (self == NULL)
        return;
    mst_array_rows_release(self->rows);
    mst_free(self);
}

uint64_t muster_data_rows(const muster_data *self)
{
    return mst_array_rows_info(self->rows)->n_rows;
}
