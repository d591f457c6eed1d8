/* Comparison of the model of a checkpoint with the model of a run: name, classes, bias, images,
 * factors and --row-norm, the lines of the net, features. */
#include <stdlib.h>
#include <string.h>

#include "run/checkpoint.h"

/* The entries of a model's description that must be the same, besides features and net. */
static const struct {
    const char *key, *before, *behind;
} model_entries[] = {{"name", "", ""},         {"classes", "", " classes"}, {"bias", "bias ", ""},
                     {"image", "images ", ""}, {"factors", "", " factors"}, {"row_norm", "row-norm ", ""}};
#define N_MODEL_ENTRIES (sizeof model_entries / sizeof *model_entries)

/* The first of them in which two models differ; N_MODEL_ENTRIES: none. */
static size_t models_difference(const json_t *a, const json_t *b)
{
    size_t i = 0;
    for (; i < N_MODEL_ENTRIES; i++) {
        const json_t *x = json_object_get(a, model_entries[i].key),
                     *y = json_object_get(b, model_entries[i].key);
        if ((x != NULL || y != NULL) && !json_equal((json_t *)x, (json_t *)y))
            break;
    }
    return i;
}

/* The next line of a net with content, without comment and surrounding blanks; its length is 0 at the end. */
static int net_next_line(const char **text, const char **line)
{
    while (**text != '\0') {
        size_t whole = strcspn(*text, "\n"), n = strcspn(*text, "#\n");
        *line = *text;
        *text += whole + ((*text)[whole] == '\n');
        for (; n > 0 && strchr(" \t\r", (*line)[0]) != NULL; n--)
            ++*line;
        while (n > 0 && strchr(" \t\r", (*line)[n - 1]) != NULL)
            n--;
        if (n > 0)
            return (int)n;
    }
    return 0;
}

/* Compares the nets of two models of one name, line by line. */
static mst_status models_same_net(const char *checkpoint, const json_t *theirs, const json_t *mine)
{
    const char *a = json_string_value(json_object_get(theirs, "net")),
               *b = json_string_value(json_object_get(mine, "net")), *x = "", *y = "";
    if (a == NULL && b == NULL)
        return MST_OK;
    a = a != NULL ? a : "";
    b = b != NULL ? b : "";
    for (;;) {
        int n = net_next_line(&a, &x), m = net_next_line(&b, &y);
        if (n == 0 && m == 0)
            return MST_OK;
        if (n != m || memcmp(x, y, (size_t)n) != 0)
            return mst_fail(MST_EINPUT, "%s holds another net: \"%.*s\" there, \"%.*s\" here", checkpoint, n,
                            x, m, y);
    }
}

/* An entry of a model's description for a message; the caller frees (jansson's allocation). */
static char *model_entry_text(const json_t *model, const char *key)
{
    const json_t *value = json_object_get(model, key);
    const char *text = json_string_value(value);
    return text != NULL ? strdup(text) : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
}

static mst_status models_differ(const char *checkpoint, const json_t *theirs, const json_t *mine, size_t i)
{
    char *was = model_entry_text(theirs, model_entries[i].key),
         *is = model_entry_text(mine, model_entries[i].key);
    mst_status st = mst_fail(MST_EINPUT, "%s holds another model: %s%s%s there, %s here", checkpoint,
                             model_entries[i].before, was != NULL ? was : "none", model_entries[i].behind,
                             is != NULL ? is : "none");
    free(was);
    free(is);
    return st;
}

mst_status mst_checkpoint_fits(const char *checkpoint, const json_t *theirs, const json_t *mine,
                               bool features_given)
{
    long long there = (long long)json_integer_value(json_object_get(theirs, "features")),
              here = (long long)json_integer_value(json_object_get(mine, "features"));
    size_t difference = models_difference(theirs, mine);
    if (difference < N_MODEL_ENTRIES)
        return models_differ(checkpoint, theirs, mine, difference);
    TRY(models_same_net(checkpoint, theirs, mine));
    long long fields_there = (long long)json_integer_value(json_object_get(theirs, "fields")),
              fields_here = (long long)json_integer_value(json_object_get(mine, "fields"));
    if (fields_there != 0 && fields_here != 0 && fields_there != fields_here)
        return mst_fail(MST_EINPUT, "%s was trained with %lld fields, the data here has %lld: %s %lld",
                        checkpoint, fields_there, fields_here,
                        fields_here < fields_there ? "give --fields" : "rows must have at most",
                        fields_there);
    if (there == here)
        return MST_OK;
    if (features_given)
        return mst_fail(MST_EINPUT, "%s was trained with %lld features: --features %lld does not fit",
                        checkpoint, there, here);
    return mst_fail(MST_EINPUT, "%s was trained with %lld features, the data here has %lld: %s %lld",
                    checkpoint, there, here, here < there ? "give --features" : "rows must have at most",
                    there);
}
