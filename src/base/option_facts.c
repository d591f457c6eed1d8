/* Facts about options: rows by name, and the needs of a row; contract in option.h. */
#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "base/option_impl.h"

const mst_option *mst_option_row(const mst_option *table, const char *name)
{
    for (const mst_option *row = table; row->name != NULL; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

const char *mst_options_set_with(const mst_option_group *groups, size_t n, unsigned fact)
{
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; groups[g].table[i].name != NULL; i++)
            if ((groups[g].set >> i & 1) != 0 && (groups[g].table[i].facts & fact) != 0)
                return groups[g].table[i].name;
    return NULL;
}

const char *mst_options_word(const mst_option_group *groups, size_t n, const char *name, size_t *length)
{
    mst_option_place place;
    if (!mst_option_find((mst_option_group *)groups, n, name, &place))
        return NULL;
    const void *field = (const char *)place.group->base + place.row->offset;
    if (place.row->type == MST_OPTION_CHOICE)
        return mst_option_choice(place.row->choices, *(const int *)field, length);
    if (place.row->type != MST_OPTION_FLAG)
        return NULL;
    const char *word = *(const bool *)field ? "true" : "false";
    *length = strlen(word);
    return word;
}

static bool option_need_has_value(const mst_option_need *need, const char *word, size_t length)
{
    const char *value;
    size_t n;
    for (int i = 0; (value = mst_option_choice(need->values, i, &n)) != NULL; i++)
        if (n == length && memcmp(value, word, n) == 0)
            return true;
    return false;
}

const mst_option_need *mst_options_unmet(const mst_option_group *groups, size_t n, const mst_option *row,
                                         mst_need_check check, const char *only)
{
    for (size_t i = 0; i < MST_OPTION_NEEDS_MAX && row->needs[i].option != NULL; i++) {
        const mst_option_need *need = &row->needs[i];
        size_t length;
        if (need->check > check || (only != NULL && strcmp(need->option, only) != 0))
            continue;
        const char *word = mst_options_word(groups, n, need->option, &length);
        bool met = word == NULL || option_need_has_value(need, word, length);
        if (!met && need->or_option != NULL) {
            word = mst_options_word(groups, n, need->or_option, &length);
            met = word != NULL && option_need_has_value(need, word, length);
        }
        if (!met)
            return need;
    }
    return NULL;
}

const char *mst_option_need_text(const mst_option_need *need, char *out, size_t size)
{
    const char *value;
    size_t n, used;
    if (strcmp(need->values, "true") == 0 || strcmp(need->values, "false") == 0) {
        snprintf(out, size, "%s--%s", need->values[0] == 't' ? "" : "no ", need->option);
        return out;
    }
    used = (size_t)snprintf(out, size, "--%s ", need->option);
    for (int i = 0; used < size && (value = mst_option_choice(need->values, i, &n)) != NULL; i++) {
        const char *join = i == 0 ? "" : value[n] == '\0' ? " or " : ", ";
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", join, (int)n, value);
    }
    if (need->or_option != NULL && used < size)
        snprintf(out + used, size - used, " (or --%s)", need->or_option);
    return out;
}
