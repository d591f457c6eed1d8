/* Lists of texts; contract in text_list.h. */
#include "base/text_list.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void mst_text_list_fini(mst_text_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        mst_free(list->items[i]);
    mst_free(list->items);
    *list = (mst_text_list){0};
}

mst_status mst_text_list_take(mst_text_list *list, char *text)
{
    char **items = text != NULL ? mst_realloc(list->items, (list->n + 1) * sizeof *items) : NULL;
    if (items == NULL) {
        mst_free(text);
        return mst_fail_memory();
    }
    list->items = items;
    list->items[list->n++] = text;
    return MST_OK;
}

mst_status mst_text_list_add(mst_text_list *list, const char *text)
{
    return mst_text_list_take(list, mst_strdup(text));
}

mst_status mst_text_list_format(mst_text_list *list, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mst_vsprintf(format, args);
    va_end(args);
    return mst_text_list_take(list, text);
}

mst_status mst_text_list_end(mst_text_list *list)
{
    TRY(mst_text_list_add(list, ""));
    list->n--;
    mst_free(list->items[list->n]);
    list->items[list->n] = NULL;
    return MST_OK;
}

mst_status mst_text_list_add_all(mst_text_list *list, const char *const *words)
{
    for (; *words != NULL; words++)
        TRY(mst_text_list_add(list, *words));
    return MST_OK;
}

mst_status mst_text_list_add_split(mst_text_list *list, const char *text)
{
    mst_status st = MST_OK;
    char *rest = NULL, *words = mst_strdup(text);
    if (words == NULL)
        return mst_fail_memory();
    for (char *word = strtok_r(words, " \t\n", &rest); word != NULL && st == MST_OK;
         word = strtok_r(NULL, " \t\n", &rest))
        st = mst_text_list_add(list, word);
    mst_free(words);
    return st;
}

static int text_list_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void mst_text_list_sort(mst_text_list *list, size_t from)
{
    if (from < list->n)
        qsort(list->items + from, list->n - from, sizeof *list->items, text_list_compare);
}
