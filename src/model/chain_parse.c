/* Parses net files (layer.h describes the format).
 *
 *   input 3x32x32                    the input, where the data does not give it
 *   defaults init=glorot             default options of the layers below that have them
 *   conv1: conv 6 kernel=5 pad=2     a layer: its name, kind, main option, other options
 *   linear classes                   as many as the data has classes
 *
 * Every layer is made, gets its options and computes its shape when its line is read, so an error names the
 * line that causes it. Allocations are bounded by the size of the file. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/chain_impl.h"

#define TEXT_MAX     (1u << 20)
#define WORDS_MAX    64
#define DEFAULTS_MAX 32

typedef struct option_text {
    char *key, *value; /* in the parser's copy of the text */
} option_text;

typedef struct chain_parser {
    const char *source;
    unsigned line;
    uint32_t n_classes;
    const mst_layer_ops *const *kinds; /* besides the built-in ones; or NULL */
    mst_chain *chain;
    mst_dims at; /* the output of the layers so far; c 0: unknown */
    bool in_known;
    char *words[WORDS_MAX];
    size_t n_words;
    option_text defaults[DEFAULTS_MAX];
    size_t n_defaults;
} chain_parser;

static mst_status chain_fail_line(const chain_parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static mst_status chain_fail_line(const chain_parser *p, const char *format, ...)
{
    char text[MST_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return mst_fail(MST_EINPUT, "%s:%u: %s", p->source, p->line, text);
}

/* Adds the line to a message. */
static mst_status at_line(const chain_parser *p, mst_status st)
{
    char text[MST_ERROR_MAX];
    if (st == MST_OK || st == MST_ENOMEM)
        return st;
    snprintf(text, sizeof text, "%s", mst_error_text());
    return chain_fail_line(p, "%s", strncmp(text, "--", 2) == 0 ? text + 2 : text);
}

/* Splits a line at blanks; a # starts a comment. */
static mst_status chain_split(chain_parser *p, char *line)
{
    p->n_words = 0;
    char *rest;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word != NULL; word = strtok_r(NULL, " \t\r", &rest)) {
        if (p->n_words == WORDS_MAX)
            return chain_fail_line(p, "more than %d words", WORDS_MAX);
        p->words[p->n_words++] = word;
    }
    return MST_OK;
}

/* ---- input ---- */

bool mst_dims_parse(const char *text, mst_dims *out)
{
    uint64_t sides[3] = {0, 1, 1}, size = 1;
    size_t n = 0;
    for (;;) {
        if (n == 3 || !isdigit((unsigned char)*text))
            return false;
        sides[n] = 0;
        for (; isdigit((unsigned char)*text); text++)
            if ((sides[n] = sides[n] * 10 + (uint64_t)(*text - '0')) > MST_SIZE_MAX)
                return false;
        n++;
        if (*text != 'x')
            break;
        text++;
    }
    if (n == 2) /* of an image: which channels? */
        return false;
    for (size_t i = 0; i < 3; i++)
        if (sides[i] == 0 || (size *= sides[i]) > MST_SIZE_MAX)
            return false;
    *out = (mst_dims){.c = (uint32_t)sides[0], .h = (uint32_t)sides[1], .w = (uint32_t)sides[2]};
    return *text == '\0';
}

static mst_status read_input(chain_parser *p)
{
    mst_dims declared, *at = &p->at;
    if (p->chain->n_layers > 0)
        return chain_fail_line(p, "input must come before the first layer");
    if (p->in_known)
        return chain_fail_line(p, "the input is given twice");
    if (p->n_words != 2 || !mst_dims_parse(p->words[1], &declared))
        return chain_fail_line(
            p, "input takes channels x height x width, such as 1x28x28, or the numbers of a row, "
               "at most 2^28 together");
    bool image = at->h > 1 || at->w > 1;
    if (at->c != 0 && image && memcmp(at, &declared, sizeof declared) != 0)
        return chain_fail_line(p, "input %s, but the data has %ux%ux%u", p->words[1], at->c, at->h, at->w);
    if (at->c != 0 && mst_dims_size(&declared) < at->c)
        return chain_fail_line(p, "input %s does not match the data, whose rows have %u values", p->words[1],
                               at->c);
    *at = declared;
    p->in_known = true;
    return MST_OK;
}

/* ---- options ---- */

/* "key=value" in place; false when it is not that. */
static bool split_pair(char *word, option_text *out)
{
    char *equals = strchr(word, '=');
    if (equals == NULL || equals == word)
        return false;
    *equals = '\0';
    *out = (option_text){.key = word, .value = equals + 1};
    return true;
}

static const mst_option *chain_find_option(const mst_layer_ops *ops, const char *name)
{
    for (const mst_option *row = ops->options; row != NULL && row->name != NULL; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

static mst_status set_option(const chain_parser *p, mst_layer *layer, const char *key, const char *value)
{
    char classes[16];
    mst_option_group group = mst_layer_options(layer);
    if (chain_find_option(layer->ops, key) == NULL) {
        char known[256] = "none";
        size_t used = 0;
        for (const mst_option *row = layer->ops->options; row != NULL && row->name != NULL; row++) {
            int wrote = snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", row->name);
            used = used + (size_t)wrote < sizeof known ? used + (size_t)wrote : sizeof known - 1;
        }
        return chain_fail_line(p, "%s has no option %s; its options: %s", layer->ops->name, key, known);
    }
    if (strcmp(value, "classes") == 0) {
        if (p->n_classes == 0)
            return chain_fail_line(p, "the number of classes is not known here: give --classes N");
        snprintf(classes, sizeof classes, "%u", p->n_classes);
        value = classes;
    }
    return at_line(p, mst_options_set(&group, 1, key, value));
}

/* Refuses a key that is among the first n of keys; else puts it there. */
static mst_status chain_once(const chain_parser *p, const char **keys, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] != NULL && strcmp(keys[i], key) == 0)
            return chain_fail_line(p, "%s is given twice", key);
    keys[n] = key;
    return MST_OK;
}

static mst_status read_defaults(chain_parser *p)
{
    const char *keys[WORDS_MAX] = {NULL};
    if (p->n_words < 2)
        return chain_fail_line(p, "defaults takes option=value, such as init=glorot");
    for (size_t i = 1; i < p->n_words; i++) {
        option_text *d = &p->defaults[p->n_defaults];
        bool known = false;
        if (p->n_defaults == DEFAULTS_MAX)
            return chain_fail_line(p, "more than %d defaults", DEFAULTS_MAX);
        if (!split_pair(p->words[i], d))
            return chain_fail_line(p, "\"%s\" is not option=value", p->words[i]);
        TRY(chain_once(p, keys, i - 1, d->key));
        for (size_t k = 0; mst_layers[k] != NULL; k++)
            known |= chain_find_option(mst_layers[k], d->key) != NULL;
        for (size_t k = 0; p->kinds != NULL && p->kinds[k] != NULL; k++)
            known |= chain_find_option(p->kinds[k], d->key) != NULL;
        if (!known)
            return chain_fail_line(p, "no kind of layer has an option %s", d->key);
        p->n_defaults++;
    }
    return MST_OK;
}

/* ---- layers ---- */

static const mst_layer_ops *find_kind(const mst_layer_ops *const *kinds, const char *name)
{
    for (size_t i = 0; kinds != NULL && kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

static bool name_taken(const mst_chain *chain, const char *name)
{
    for (uint32_t i = 0; i < chain->n_layers; i++)
        if (strcmp(chain->layers[i]->name, name) == 0)
            return true;
    return false;
}

/* The name a line gives, or KIND and the first number that is free. */
static mst_status name_layer(const chain_parser *p, const char *given, mst_layer *layer)
{
    if (given == NULL) {
        unsigned n = 1;
        for (uint32_t i = 0; i < p->chain->n_layers; i++)
            n += p->chain->layers[i]->ops == layer->ops;
        do
            snprintf(layer->name, sizeof layer->name, "%s%u", layer->ops->name, n++);
        while (name_taken(p->chain, layer->name));
        return MST_OK;
    }
    size_t length = strlen(given);
    if (length == 0 || length >= sizeof layer->name || !isalpha((unsigned char)*given) ||
        strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != length)
        return chain_fail_line(
            p, "\"%s\" is not a name: a letter, then letters, digits, _ and -, at most %zu together", given,
            sizeof layer->name - 1);
    if (name_taken(p->chain, given))
        return chain_fail_line(p, "there is a layer %s already", given);
    memcpy(layer->name, given, length + 1);
    return MST_OK;
}

static mst_status set_options(const chain_parser *p, mst_layer *layer, char **words, size_t n)
{
    const char *keys[WORDS_MAX] = {NULL};
    size_t first = 0;
    for (size_t i = 0; i < p->n_defaults; i++)
        if (chain_find_option(layer->ops, p->defaults[i].key) != NULL)
            TRY(set_option(p, layer, p->defaults[i].key, p->defaults[i].value));
    if (n > 0 && strchr(words[0], '=') == NULL && layer->ops->main_option != NULL) {
        TRY(set_option(p, layer, layer->ops->main_option, words[0]));
        keys[0] = layer->ops->main_option;
        first = 1;
    }
    for (size_t i = first; i < n; i++) {
        option_text option;
        if (!split_pair(words[i], &option))
            return chain_fail_line(p, "\"%s\" is not option=value", words[i]);
        TRY(chain_once(p, keys, i, option.key));
        TRY(set_option(p, layer, option.key, option.value));
    }
    return MST_OK;
}

/* Asks the layer for its shape and numbers its ranges. */
static mst_status chain_join(chain_parser *p, mst_layer *layer)
{
    mst_chain *chain = p->chain;
    layer->in = p->at;
    TRY(at_line(p, layer->ops->shape(layer)));
    uint64_t size = (uint64_t)layer->out.c * layer->out.h; /* each below 2^32 */
    if (size > MST_SIZE_MAX || size * layer->out.w > MST_SIZE_MAX)
        return chain_fail_line(p, "%s: %ux%ux%u numbers come out of it; at most 2^28 are possible",
                               layer->name, layer->out.c, layer->out.h, layer->out.w);
    for (uint32_t i = 0; i < layer->n_params; i++) {
        const mst_layer_param *param = &layer->params[i];
        if ((param->init == MST_INIT_UNIFORM || param->init == MST_INIT_NORMAL) &&
            !(param->init_scale >= 0.0))
            return chain_fail_line(p, "init-scale=%g: a bound or deviation cannot be below 0",
                                   param->init_scale);
    }
    for (uint32_t i = 0; i < layer->n_params; i++)
        if (mst_layer_param_size(&layer->params[i]) == 0)
            return chain_fail_line(p, "%s: with an input of %ux%ux%u it has more than 2^32 - 1 parameters",
                                   layer->name, layer->in.c, layer->in.h, layer->in.w);
    if (chain->n_ranges + layer->n_params > MST_RANGE_MAX)
        return chain_fail_line(p, "a net has at most %d weights and biases", MST_RANGE_MAX);
    layer->first_range = chain->n_ranges;
    chain->n_ranges += layer->n_params;
    p->at = layer->out;
    return MST_OK;
}

static mst_status read_layer(chain_parser *p)
{
    size_t at = 0, length = strlen(p->words[0]);
    char *name = NULL;
    mst_layer *layer;
    if (p->words[0][length - 1] == ':') {
        p->words[0][length - 1] = '\0';
        name = p->words[at++];
    }
    if (at == p->n_words)
        return chain_fail_line(p, "\"%s:\" is followed by no layer", name);
    const mst_layer_ops *ops = find_kind(mst_layers, p->words[at]);
    if (ops == NULL)
        ops = find_kind(p->kinds, p->words[at]);
    if (ops == NULL)
        return chain_fail_line(p, "\"%s\" is not a kind of layer: see `muster list layers`", p->words[at]);
    if (p->at.c == 0)
        return chain_fail_line(p,
                               "the input is not known: put a line \"input CxHxW\" before the first layer, "
                               "or give --input CxHxW");
    if (p->chain->n_layers == MST_NET_LAYERS)
        return chain_fail_line(p, "a net has at most %d layers", MST_NET_LAYERS);
    TRY(mst_layer_new(ops, &layer));
    layer->line = p->line;
    mst_status st = name_layer(p, name, layer);
    if (st == MST_OK)
        st = set_options(p, layer, p->words + at + 1, p->n_words - at - 1);
    if (st == MST_OK)
        st = chain_join(p, layer);
    if (st != MST_OK) {
        mst_layer_destroy(layer);
        return st;
    }
    p->chain->layers[p->chain->n_layers++] = layer;
    if (p->chain->n_layers == 1)
        p->chain->in = layer->in;
    return MST_OK;
}

static mst_status chain_read_line(chain_parser *p, char *line)
{
    TRY(chain_split(p, line));
    if (p->n_words == 0)
        return MST_OK;
    if (strcmp(p->words[0], "input") == 0)
        return read_input(p);
    if (strcmp(p->words[0], "defaults") == 0)
        return read_defaults(p);
    return read_layer(p);
}

static mst_status check_end(const chain_parser *p)
{
    const mst_chain *chain = p->chain;
    if (chain->n_layers == 0)
        return mst_fail(MST_EINPUT, "%s: a net without layers", p->source);
    const mst_layer *last = chain->layers[chain->n_layers - 1];
    uint64_t size = mst_dims_size(&last->out);
    if (p->n_classes != 0 && size != p->n_classes)
        return mst_fail(MST_EINPUT,
                        "%s:%u: the net has %llu outputs, but there are %u classes: end it with "
                        "\"linear classes\"",
                        p->source, last->line, (unsigned long long)size, p->n_classes);
    if (size < 2)
        return mst_fail(MST_EINPUT, "%s:%u: the net has one output: a net needs at least two, one per class",
                        p->source, last->line);
    return MST_OK;
}

mst_status mst_chain_parse(const char *text, const char *source, const mst_dims *in, uint32_t n_classes,
                           mst_chain **out)
{
    return mst_chain_parse_with(text, source, in, n_classes, NULL, out);
}

mst_status mst_chain_parse_with(const char *text, const char *source, const mst_dims *in, uint32_t n_classes,
                                const mst_layer_ops *const *kinds, mst_chain **out)
{
    mst_status st = MST_OK;
    chain_parser p = {.source = source, .n_classes = n_classes, .kinds = kinds, .at = *in};
    char *copy = NULL;
    if (strlen(text) > TEXT_MAX)
        return mst_fail(MST_EINPUT, "%s: larger than 1 MB: not a net file", source);
    p.chain = mst_zalloc(sizeof *p.chain);
    copy = mst_strdup(text);
    if (p.chain == NULL || copy == NULL || (p.chain->text = mst_strdup(text)) == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    size_t mark = strncmp(copy, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* that some editors begin UTF-8 with */
    for (char *line = copy + mark, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        p.line++;
        TRY_OUT(st, chain_read_line(&p, line));
    }
    TRY_OUT(st, check_end(&p));
    *out = p.chain;
    p.chain = NULL;
out:
    mst_free(copy);
    mst_chain_destroy(p.chain);
    return st;
}
