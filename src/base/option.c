/* Option tables: defaults, command line, checks; contract in option.h. YAML is in option_yaml.c, help in
 * option_help.c, JSON in option_json.c.
 *
 * All three sources of a value (table default, YAML, command line) are text and go through mst_option_assign,
 * so one check serves them all.
 *
 * Invariants
 * 1. From mst_options_init on, whether it succeeds or not, every TEXT and LIST field is either empty or owned
 * by the group; a field is replaced only after its new value was checked and copied.
 * 2. group->set changes only when a value was stored. */
#include "base/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option_impl.h"
#include "base/strings.h"

#define ROWS_MAX 64

/* ---- lists ---- */

/* Length of the part up to the next comma that no backslash precedes. */
static size_t option_part_length(const char *text)
{
    size_t n = 0;
    while (text[n] != '\0' && text[n] != ',')
        n += text[n] == '\\' && text[n + 1] == ',' ? 2 : 1;
    return n;
}

/* Adds the parts between commas; empty parts are left out, and a comma after a backslash belongs to its part.
 * On failure the list is as before. */
static mst_status option_list_add_parts(mst_text_list *list, const char *text)
{
    size_t before = list->n;
    while (*text != '\0') {
        size_t length = option_part_length(text);
        mst_status st = length ? mst_text_list_take(list, mst_strndup(text, length)) : MST_OK;
        if (st != MST_OK) {
            while (list->n > before)
                mst_free(list->items[--list->n]);
            return st;
        }
        char *item = length ? list->items[list->n - 1] : NULL;
        for (char *escape = item; item != NULL && (escape = strstr(escape, "\\,")) != NULL; escape++)
            memmove(escape, escape + 1, strlen(escape));
        text += length + (text[length] == ',');
    }
    return MST_OK;
}

/* ---- numbers ---- */

/* value * factor^power, exactly; false on overflow. */
static bool option_scale_up(unsigned __int128 *value, unsigned factor, int64_t power)
{
    const unsigned __int128 limit = (unsigned __int128)1 << 120;
    for (; power > 0 && *value != 0; power--) {
        if (*value > limit / factor)
            return false;
        *value *= factor;
    }
    return true;
}

/* Digits at *text into *value, with *n_digits counted; false on overflow. */
static bool option_read_digits(const char **text, unsigned __int128 *value, int64_t *n_digits)
{
    for (*n_digits = 0; **text >= '0' && **text <= '9'; ++*text, ++*n_digits) {
        if (*value > (unsigned __int128)UINT64_MAX * 1000)
            return false;
        *value = *value * 10 + (unsigned)(**text - '0');
    }
    return true;
}

/* k M G T: a power of ten; followed by i: a power of two. */
static bool option_read_suffix(const char **text, int64_t *tens, int64_t *twos)
{
    static const char letters[] = "kMGT";
    if (**text == '\0')
        return true;
    const char *letter = strchr(letters, **text == 'K' ? 'k' : **text);
    if (letter == NULL)
        return false;
    int64_t thousands = letter - letters + 1;
    ++*text;
    if (**text == 'i') {
        ++*text;
        *twos = 10 * thousands;
    } else {
        *tens += 3 * thousands;
    }
    return **text == '\0';
}

/* 123, 1.5e6, 64k, 1.5Gi: digits * 10^tens * 2^twos, which must be whole. */
static bool option_read_scaled(const char *text, unsigned __int128 *value)
{
    int64_t n_whole, n_fraction = 0, tens = 0, twos = 0;
    if (!option_read_digits(&text, value, &n_whole))
        return false;
    if (*text == '.') {
        text++;
        if (!option_read_digits(&text, value, &n_fraction))
            return false;
    }
    if (n_whole + n_fraction == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        bool down = *text == '-';
        text += *text == '-' || *text == '+';
        unsigned __int128 exponent = 0;
        int64_t n_exponent;
        if (!option_read_digits(&text, &exponent, &n_exponent) || n_exponent == 0 || exponent > 1000)
            return false;
        tens = down ? -(int64_t)exponent : (int64_t)exponent;
    }
    tens -= n_fraction;
    if (!option_read_suffix(&text, &tens, &twos) || !option_scale_up(value, 2, twos) ||
        !option_scale_up(value, 10, tens))
        return false;
    for (; tens < 0 && *value != 0; tens++) {
        if (*value % 10 != 0)
            return false;
        *value /= 10;
    }
    return true;
}

bool mst_parse_int(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    unsigned __int128 value = 0;
    const char *hat = strchr(text, '^');
    if (hat != NULL) {
        unsigned __int128 base = 0, power = 0;
        int64_t n_base, n_power;
        const char *right = hat + 1;
        if (!option_read_digits(&text, &base, &n_base) || n_base == 0 || text != hat ||
            !option_read_digits(&right, &power, &n_power) || n_power == 0 || *right != '\0' ||
            base > 1000000000)
            return false;
        value = 1;
        if (base < 2)
            value = power == 0 ? 1 : base;
        else if (power > 63 || !option_scale_up(&value, (unsigned)base, (int64_t)power))
            return false;
    } else if (!option_read_scaled(text, &value)) {
        return false;
    }
    if (value > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t) - (uint64_t)value : (int64_t)value;
    return true;
}

static bool option_parse_real(const char *text, double *out)
{
    char *end;
    if (*text == '\0' || strchr(" \t\n", *text) != NULL)
        return false;
    double value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value))
        return false;
    *out = value;
    return true;
}

static bool option_parse_flag(const char *text, bool *out)
{
    static const char *const words[][2] = {{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"1", "0"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int j = 0; j < 2; j++)
            if (strcmp(text, words[i][j]) == 0) {
                *out = j == 0;
                return true;
            }
    return false;
}

/* ---- storing one value ---- */

const char *mst_option_choice(const char *choices, int i, size_t *length)
{
    for (;; choices++) {
        *length = strcspn(choices, "|");
        if (i-- == 0)
            return choices;
        choices += *length;
        if (*choices == '\0')
            return NULL;
    }
}

static mst_status option_choice_assign(const mst_option *row, const char *prefix, const char *value, int *out)
{
    size_t length, used = 0;
    char names[512] = "";
    const char *choice;
    for (int i = 0; (choice = mst_option_choice(row->choices, i, &length)) != NULL; i++) {
        if (strlen(value) == length && memcmp(choice, value, length) == 0) {
            *out = i;
            return MST_OK;
        }
        int wrote = snprintf(names + used, sizeof names - used, "%s%.*s", i ? ", " : "", (int)length, choice);
        used = used + (size_t)wrote < sizeof names ? used + (size_t)wrote : sizeof names - 1;
    }
    return mst_fail(MST_EUSAGE, "%s%s %s: not one of %s", prefix, row->name, value, names);
}

static mst_status option_range_check(const mst_option *row, const char *prefix, const char *value,
                                     double number)
{
    if ((row->min == 0 && row->max == 0) || (number >= row->min && number <= row->max))
        return MST_OK;
    /* A bound at the limit of the type is not named. */
    bool top = row->max < (row->type == MST_OPTION_INT ? 0x1p62 : 1e300);
    bool bottom = row->min > (row->type == MST_OPTION_INT ? -0x1p62 : -1e300);
    if (top && bottom)
        return mst_fail(MST_EUSAGE, "%s%s %s: must be between %.15g and %.15g", prefix, row->name, value,
                        row->min, row->max);
    if (top)
        return mst_fail(MST_EUSAGE, "%s%s %s: must be at most %.15g", prefix, row->name, value, row->max);
    return mst_fail(MST_EUSAGE, "%s%s %s: must be at least %.15g", prefix, row->name, value, row->min);
}

mst_status mst_option_assign(const mst_option_place *place, const char *prefix, const char *value,
                             bool append)
{
    const mst_option *row = place->row;
    void *field = (char *)place->group->base + row->offset;
    switch (row->type) {
    case MST_OPTION_FLAG:
        if (!option_parse_flag(value, field))
            return mst_fail(MST_EUSAGE, "%s%s %s: must be true or false", prefix, row->name, value);
        return MST_OK;
    case MST_OPTION_INT: {
        int64_t number;
        if (!mst_parse_int(value, &number))
            return mst_fail(MST_EUSAGE, "%s%s %s: not an integer (such as 1000, 64k, 1e6, 2Gi or 2^20)",
                            prefix, row->name, value);
        TRY(option_range_check(row, prefix, value, (double)number));
        *(int64_t *)field = number;
        return MST_OK;
    }
    case MST_OPTION_REAL: {
        double number;
        if (!option_parse_real(value, &number))
            return mst_fail(MST_EUSAGE, "%s%s %s: not a finite number", prefix, row->name, value);
        TRY(option_range_check(row, prefix, value, number));
        *(double *)field = number;
        return MST_OK;
    }
    case MST_OPTION_TEXT: {
        char *copy = mst_strdup(value);
        if (copy == NULL)
            return mst_fail_memory();
        mst_free(*(char **)field);
        *(char **)field = copy;
        return MST_OK;
    }
    case MST_OPTION_CHOICE:
        return option_choice_assign(row, prefix, value, field);
    case MST_OPTION_LIST: {
        if (append)
            return option_list_add_parts(field, value);
        mst_text_list list = {0};
        mst_status st = option_list_add_parts(&list, value);
        if (st != MST_OK) {
            mst_text_list_fini(&list);
            return st;
        }
        mst_text_list_fini(field);
        *(mst_text_list *)field = list;
        return MST_OK;
    }
    }
    return mst_fail(MST_EUSAGE, "%s%s has an unknown type in its table", prefix, row->name);
}

/* ---- defaults ---- */

static void option_zero_field(const mst_option *row, void *base)
{
    static const size_t sizes[] = {
        [MST_OPTION_FLAG] = sizeof(bool),   [MST_OPTION_INT] = sizeof(int64_t),
        [MST_OPTION_REAL] = sizeof(double), [MST_OPTION_TEXT] = sizeof(char *),
        [MST_OPTION_CHOICE] = sizeof(int),  [MST_OPTION_LIST] = sizeof(mst_text_list),
    };
    memset((char *)base + row->offset, 0, sizes[row->type]);
}

mst_status mst_options_init(mst_option_group *groups, size_t n)
{
    for (size_t g = 0; g < n; g++) {
        groups[g].set = 0;
        for (const mst_option *row = groups[g].table; row->name != NULL; row++)
            option_zero_field(row, groups[g].base);
    }
    for (size_t g = 0; g < n; g++) {
        for (size_t i = 0; groups[g].table[i].name != NULL; i++) {
            const mst_option_place place = {&groups[g], &groups[g].table[i], i};
            if (i >= ROWS_MAX)
                return mst_fail(MST_EUSAGE, "the option table \"%s\" has more than %d rows", groups[g].title,
                                ROWS_MAX);
            if (place.row->fallback != NULL)
                TRY(mst_option_assign(&place, "default of --", place.row->fallback, false));
        }
    }
    return MST_OK;
}

void mst_options_fini(mst_option_group *groups, size_t n)
{
    for (size_t g = 0; g < n; g++) {
        groups[g].set = 0;
        for (const mst_option *row = groups[g].table; row->name != NULL; row++) {
            void *field = (char *)groups[g].base + row->offset;
            if (row->type == MST_OPTION_TEXT) {
                mst_free(*(char **)field);
                *(char **)field = NULL;
            } else if (row->type == MST_OPTION_LIST) {
                mst_text_list_fini(field);
            }
        }
    }
}

/* ---- names ---- */

bool mst_option_find(mst_option_group *groups, size_t n, const char *name, mst_option_place *out)
{
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; groups[g].table[i].name != NULL; i++)
            if (strcmp(groups[g].table[i].name, name) == 0) {
                *out = (mst_option_place){&groups[g], &groups[g].table[i], i};
                return true;
            }
    return false;
}

/* A name within a third of its letters, or one that starts with what was typed; NULL when nothing is near. */
static const char *option_nearest_name(const mst_option_group *groups, size_t n, const char *name)
{
    size_t length = strlen(name), best = 1 + length / 3;
    const char *nearest = NULL, *longer = NULL;
    if (length == 0 || length > MST_EDIT_MAX)
        return NULL;
    for (size_t g = 0; g < n; g++) {
        for (const mst_option *row = groups[g].table; row->name != NULL; row++) {
            if (strlen(row->name) > MST_EDIT_MAX)
                continue;
            if (longer == NULL && length >= 2 && strncmp(row->name, name, length) == 0)
                longer = row->name;
            size_t distance = mst_edit_distance(name, row->name);
            if (distance < strlen(row->name) && (distance < best || (distance == best && nearest == NULL))) {
                best = distance;
                nearest = row->name;
            }
        }
    }
    return longer != NULL && best > 1 ? longer : nearest;
}

mst_status mst_option_unknown(const mst_option_group *groups, size_t n, const char *prefix,
                              const char *dashes, const char *name)
{
    mst_option_place flag;
    const char *no = "", *near = option_nearest_name(groups, n, name);
    if (strncmp(name, "no-", 3) == 0) {
        const char *positive = option_nearest_name(groups, n, name + 3);
        near = positive ? positive : near;
        bool is_flag = positive != NULL && mst_option_find((mst_option_group *)groups, n, positive, &flag) &&
                       flag.row->type == MST_OPTION_FLAG;
        no = is_flag && *dashes ? "no-" : "";
    }
    if (near == NULL)
        return mst_fail(MST_EUSAGE, "%sunknown option %s%s", prefix, dashes, name);
    return mst_fail(MST_EUSAGE, "%sunknown option %s%s; did you mean %s%s%s?", prefix, dashes, name, dashes,
                    no, near);
}

/* ---- command line ---- */

/* True for a word that may follow an option as its value without "=". */
static bool option_is_value(const char *word)
{
    int64_t whole;
    double real;
    return word[0] != '-' || word[1] == '\0' || mst_parse_int(word, &whole) || option_parse_real(word, &real);
}

/* Whether an earlier word of the command line gives the flag the opposite value. */
static bool option_is_contradicted(const mst_option_place *place, const char *value, int n_words,
                                   char **words)
{
    const char *name = place->row->name;
    size_t length = strlen(name);
    bool wanted, given;
    if (place->row->type != MST_OPTION_FLAG || !option_parse_flag(value, &wanted))
        return false;
    for (int i = 0; i < n_words; i++) {
        const char *word = words[i];
        if (strncmp(word, "--no-", 5) == 0 && strcmp(word + 5, name) == 0)
            given = false;
        else if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0)
            continue;
        else if (word[2 + length] == '\0')
            given = true;
        else if (word[2 + length] != '=' || !option_parse_flag(word + 3 + length, &given))
            continue;
        if (given != wanted)
            return true;
    }
    return false;
}

/* One "--name[=value]" at argv[*i]; *i moves past a value of its own. */
static mst_status option_parse(mst_option_group *groups, size_t n, int argc, char **argv, int *i)
{
    const char *word = argv[*i] + 2;
    const char *equals = strchr(word, '=');
    char *name = mst_strndup(word, equals ? (size_t)(equals - word) : strlen(word));
    if (name == NULL)
        return mst_fail_memory();
    const char *value = equals ? equals + 1 : NULL;
    mst_option_place place;
    mst_status st = MST_OK;
    if (!mst_option_find(groups, n, name, &place)) {
        bool negated = strncmp(name, "no-", 3) == 0 && mst_option_find(groups, n, name + 3, &place) &&
                       place.row->type == MST_OPTION_FLAG;
        if (!negated)
            TRY_OUT(st, mst_option_unknown(groups, n, "", "--", name));
        if (value != NULL)
            TRY_OUT(st, mst_fail(MST_EUSAGE, "--%s takes no value", name));
        value = "false";
    } else if (place.row->type == MST_OPTION_FLAG) {
        value = value ? value : "true";
    } else if (value == NULL) {
        if (*i + 1 >= argc)
            TRY_OUT(st, mst_fail(MST_EUSAGE, "--%s needs a value", name));
        value = argv[*i + 1];
        if (!option_is_value(value))
            TRY_OUT(st,
                    mst_fail(MST_EUSAGE, "--%s needs a value; one that starts with a dash is written --%s=%s",
                             name, name, value));
        ++*i;
    }
    if (option_is_contradicted(&place, value, *i, argv))
        TRY_OUT(st, mst_fail(MST_EUSAGE, "--%s and --no-%s contradict each other; give one of them",
                             place.row->name, place.row->name));
    TRY_OUT(st, mst_option_assign(&place, "--", value, mst_option_place_is_set(&place)));
    mst_option_place_mark(&place);
out:
    mst_free(name);
    return st;
}

mst_status mst_options_parse(mst_option_group *groups, size_t n, int argc, char **argv,
                             mst_text_list *positionals)
{
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!options_ended && strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && strncmp(word, "--", 2) == 0) {
            TRY(option_parse(groups, n, argc, argv, &i));
        } else if (!options_ended && !option_is_value(word)) {
            return mst_fail(MST_EUSAGE, "unknown option %s; options are written --name", word);
        } else if (positionals == NULL) {
            return mst_fail(MST_EUSAGE, "unexpected argument \"%s\"", word);
        } else {
            TRY(mst_text_list_add(positionals, word));
        }
    }
    return MST_OK;
}

mst_status mst_options_set(mst_option_group *groups, size_t n, const char *name, const char *value)
{
    mst_option_place place;
    if (!mst_option_find(groups, n, name, &place))
        return mst_option_unknown(groups, n, "", "--", name);
    TRY(mst_option_assign(&place, "--", value, false));
    mst_option_place_mark(&place);
    return MST_OK;
}

bool mst_options_is_set(const mst_option_group *groups, size_t n, const char *name)
{
    mst_option_place place;
    return mst_option_find((mst_option_group *)groups, n, name, &place) && mst_option_place_is_set(&place);
}
