/* Shared by the option_*.c files; not for other files. */
#ifndef MST_BASE_OPTION_IMPL_H
#define MST_BASE_OPTION_IMPL_H

#include "base/option.h"

/* A row of a table and the group it belongs to. */
typedef struct mst_option_place {
    mst_option_group *group;
    const mst_option *row;
    size_t index; /* of the row: its bit in group->set */
} mst_option_place;

static inline bool mst_option_place_is_set(const mst_option_place *place)
{
    return place->group->set >> place->index & 1;
}

static inline void mst_option_place_mark(const mst_option_place *place)
{
    place->group->set |= (uint64_t)1 << place->index;
}

/* The first row of that name in the order of the groups; false when there is none. */
bool mst_option_find(mst_option_group *groups, size_t n, const char *name, mst_option_place *out);

/* Parses, checks and stores a value. A LIST is emptied first unless `append`. Errors start with prefix and
 * name: prefix is "--" on the command line and "FILE:LINE: " in a file. */
mst_status mst_option_assign(const mst_option_place *place, const char *prefix, const char *value,
                             bool append);

/* MST_EUSAGE: "<prefix>unknown option <dashes><name>", with the nearest name when there is a near one. */
mst_status mst_option_unknown(const mst_option_group *groups, size_t n, const char *prefix,
                              const char *dashes, const char *name);

/* Text of choice i of "a|b|c": its start, and its length in *length; NULL when there are fewer. */
const char *mst_option_choice(const char *choices, int i, size_t *length);

#endif
