/* Memory of lists; contract in list.h. */
#include "ps/list.h"

#include "base/alloc.h"

void mst_list_fini(mst_list *list)
{
    if (list->key_capacity != 0)
        mst_free(list->keys);
    list->keys = NULL;
    list->key_capacity = 0;
    list->n_ranges = list->n_keys = 0;
}

mst_status mst_list_room(mst_list *list, size_t n_keys)
{
    if (list->key_capacity == 0)
        list->keys = NULL; /* somebody else's */
    if (!mst_grow(&list->keys, &list->key_capacity, n_keys, sizeof *list->keys))
        return mst_fail_memory();
    return MST_OK;
}
