/* Key lists; contract in key_list.h. */
#include "tensor/key_list.h"

#include "base/alloc.h"

void mst_key_list_fini(mst_key_list *list)
{
    if (list->key_capacity != 0)
        mst_free(list->keys);
    list->keys = NULL;
    list->key_capacity = 0;
    list->n_ranges = list->n_keys = 0;
}

mst_status mst_key_list_room(mst_key_list *list, size_t n_keys)
{
    if (list->key_capacity == 0)
        list->keys = NULL; /* not owned */
    if (!mst_grow(&list->keys, &list->key_capacity, n_keys, sizeof *list->keys))
        return mst_fail_memory();
    return MST_OK;
}

size_t mst_keys_below(const uint32_t *keys, size_t n, uint64_t key)
{
    size_t low = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (keys[low + half] < key) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}
