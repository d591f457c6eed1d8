/* Lists of texts: files, words of a command, values of an option. A zeroed list is empty. */
#ifndef MST_BASE_TEXT_LIST_H
#define MST_BASE_TEXT_LIST_H

#include <stddef.h>

#include "base/status.h"

typedef struct mst_text_list {
    char **items;
    size_t n;
} mst_text_list;

void mst_text_list_fini(mst_text_list *list); /* leaves an empty list */

mst_status mst_text_list_add(mst_text_list *list, const char *text);
mst_status mst_text_list_format(mst_text_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes ownership of the text, which is of base/alloc.h; NULL is MST_ENOMEM. */
mst_status mst_text_list_take(mst_text_list *list, char *text);
/* Adds the words, which end with NULL; or those of a text, split at blanks. */
mst_status mst_text_list_add_all(mst_text_list *list, const char *const *words);
mst_status mst_text_list_add_split(mst_text_list *list, const char *text);
/* Adds NULL after the items, so that items can be used as an argv. */
mst_status mst_text_list_end(mst_text_list *list);

/* Sorts items from..n-1 by name. */
void mst_text_list_sort(mst_text_list *list, size_t from);

#endif
