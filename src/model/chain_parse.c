/* Parses net files (layer.h describes the format).
 *
 *   input 3x32x32                    the input, where the data does not give it
 *   defaults init=glorot             default options of the layers below that have them
 *   conv1: conv 6 kernel=5 pad=2     a layer: its name, kind, main option, other options
 *   linear classes                   as many as the data has classes
 *   concat from=conv1,linear1        reads these layers instead of the one above
 *   mlp 400,400                      several layers: read_mlp
 *
 * Every layer is made, gets its options and computes its shape when its line is read, so an error names the
 * line that causes it. Allocations are bounded by the size of the file. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
    const mst_net_data *data;
    mst_chain *chain;
    mst_dims rows;  /* c 0: unknown */
    uint32_t above; /* the layer of the line above */
    char *from;     /* of the line: names of layers; NULL: the line above */
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
    mst_dims declared, *at = &p->rows;
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
    char number[16];
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
        if (p->data->n_classes == 0)
            return chain_fail_line(p, "the number of classes is not known here: give --classes N");
        snprintf(number, sizeof number, "%u", p->data->n_classes);
        value = number;
    }
    if (strcmp(value, "embedding") == 0) {
        if (p->chain->table.factors == 0)
            return chain_fail_line(p, "%s=embedding, but there is no embedding above", key);
        snprintf(number, sizeof number, "%u", p->chain->table.factors);
        value = number;
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
        const mst_layer_ops *const *const sets[] = {mst_layers, mst_input_layers, p->data->kinds};
        for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
            for (const mst_layer_ops *const *kind = sets[k]; kind != NULL && *kind != NULL; kind++)
                known |= chain_find_option(*kind, d->key) != NULL;
        known |= chain_find_option(&mst_layer_mlp, d->key) != NULL;
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

/* The layer of that name; MST_INPUT_ROWS: there is none. */
static uint32_t find_layer(const mst_chain *chain, const char *name)
{
    for (uint32_t i = 0; i < chain->n_layers; i++)
        if (strcmp(chain->layers[i]->name, name) == 0)
            return i;
    return MST_INPUT_ROWS;
}

static bool name_taken(const mst_chain *chain, const char *name)
{
    return find_layer(chain, name) != MST_INPUT_ROWS;
}

/* The name a line gives, or KIND and the first number that is free. There is one of each kind of input, which
 * has the name of its kind. */
static mst_status name_layer(const chain_parser *p, const char *given, mst_layer *layer)
{
    if (given == NULL && find_kind(mst_input_layers, layer->ops->name) != NULL)
        given = layer->ops->name;
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

static mst_status set_options(chain_parser *p, mst_layer *layer, char **words, size_t n)
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
        if (strcmp(option.key, "from") == 0)
            p->from = option.value;
        else
            TRY(set_option(p, layer, option.key, option.value));
    }
    for (size_t i = first; i < n; i++)
        words[i][strlen(words[i])] = '='; /* read_cross reads them again */
    return MST_OK;
}

/* ---- inputs of layers ---- */

static mst_status add_input(const chain_parser *p, mst_layer *layer, uint32_t input)
{
    if (layer->n_inputs == MST_LAYER_INPUTS)
        return chain_fail_line(p, "a layer reads at most %d others", MST_LAYER_INPUTS);
    if (input == MST_INPUT_ROWS && p->chain->table.n_keys != 0)
        return chain_fail_line(p, "a net over embeddings reads its rows as embedding, numbers and wide");
    if (input == MST_INPUT_ROWS && p->rows.c == 0)
        return p->data->n_keys > MST_SIZE_MAX
                   ? chain_fail_line(p,
                                     "rows of %" PRIu64 " features are too long for a net: at most 2^28 are "
                                     "possible, except with an embedding",
                                     p->data->n_keys)
                   : chain_fail_line(p, "the input is not known: put a line \"input CxHxW\" before the first "
                                        "layer, or give --input CxHxW");
    layer->inputs[layer->n_inputs] = input;
    layer->parts[layer->n_inputs++] = input == MST_INPUT_ROWS ? p->rows : p->chain->layers[input]->out;
    return MST_OK;
}

/* The layers that the line names, or the one above. */
static mst_status connect(chain_parser *p, mst_layer *layer)
{
    uint64_t size = 0;
    char *rest;
    if (p->from == NULL)
        TRY(add_input(p, layer, p->above));
    for (char *name = p->from != NULL ? strtok_r(p->from, ",", &rest) : NULL; name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        uint32_t input = find_layer(p->chain, name);
        if (input == MST_INPUT_ROWS && strcmp(name, "rows") != 0)
            return chain_fail_line(p, "from=%s: there is no such layer above", name);
        TRY(add_input(p, layer, input));
    }
    if (layer->n_inputs == 0)
        return chain_fail_line(p, "from= takes names of layers above, separated by commas");
    if (layer->n_inputs > 1 && !layer->ops->many)
        return chain_fail_line(p, "%s reads one layer: put a concat before it", layer->ops->name);
    for (uint32_t i = 0; i < layer->n_inputs; i++)
        size += mst_dims_size(&layer->parts[i]);
    if (size > MST_SIZE_MAX)
        return chain_fail_line(p, "%s: it reads %" PRIu64 " numbers; at most 2^28 are possible", layer->name,
                               size);
    layer->in = layer->n_inputs == 1 ? layer->parts[0] : (mst_dims){(uint32_t)size, 1, 1};
    return MST_OK;
}

/* An input of the net: its shape is that of the data. */
static mst_status join_input(chain_parser *p, mst_layer *layer)
{
    const mst_net_data *data = p->data;
    mst_net_table *table = &p->chain->table;
    uint32_t *place = layer->ops == &mst_layer_embedding ? &table->embedding
                      : layer->ops == &mst_layer_numbers ? &table->numbers
                                                         : &table->wide;
    if (p->from != NULL)
        return chain_fail_line(p, "%s reads the rows: it takes no from=", layer->ops->name);
    for (uint32_t i = 0; i < p->chain->n_layers; i++)
        for (uint32_t j = 0; j < p->chain->layers[i]->n_inputs; j++)
            if (p->chain->layers[i]->inputs[j] == MST_INPUT_ROWS)
                return chain_fail_line(p, "%s cannot be used together with %s, which reads whole rows",
                                       layer->ops->name, p->chain->layers[i]->name);
    if (data->n_keys == 0)
        return chain_fail_line(p, "the features are not known here: give --features N");
    if (*place != MST_INPUT_ROWS)
        return chain_fail_line(p, "%s is given twice", layer->ops->name);
    *place = p->chain->n_layers;
    table->n_keys = data->n_keys;
    table->n_dense = data->n_dense;
    table->by_field = data->n_fields > data->n_dense;
    table->n_fields = table->by_field ? data->n_fields - data->n_dense : 1;
    if (layer->ops == &mst_layer_embedding) {
        const mst_embedding *embedding = (const mst_embedding *)layer;
        table->factors = (uint32_t)embedding->options.width;
        table->init_scale = embedding->options.init_scale;
        if ((uint64_t)table->factors * table->n_fields > MST_SIZE_MAX)
            return chain_fail_line(p, "%u fields of %u numbers are too many: at most 2^28 are possible",
                                   table->n_fields, table->factors);
        layer->out = (mst_dims){table->n_fields, 1, table->factors};
    } else if (layer->ops == &mst_layer_numbers) {
        layer->out = (mst_dims){data->n_dense, 1, 1};
    } else {
        table->linear = true;
        layer->out = (mst_dims){1, 1, 1};
    }
    table->width = table->factors + table->linear;
    return MST_OK;
}

/* Connects the layer and asks it for its shape. A layer whose input has no numbers (data without a dense
 * prefix) has none either. */
static mst_status chain_join(chain_parser *p, mst_layer *layer)
{
    if (find_kind(mst_input_layers, layer->ops->name) != NULL)
        return join_input(p, layer);
    TRY(connect(p, layer));
    if (mst_dims_size(&layer->in) == 0) {
        layer->out = (mst_dims){0, 1, 1};
        return MST_OK;
    }
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
    return MST_OK;
}

/* ---- mlp ---- */

static mst_status chain_read_line(chain_parser *p, char *line);

/* A line of mlp, as a file might have it. */
static mst_status mlp_line(chain_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static mst_status mlp_line(chain_parser *p, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return chain_read_line(p, line);
}

/* One hidden layer of mlp NAME: NAME-1, its norm, activation and dropout, of which the last of the last
 * hidden layer is called NAME. */
static mst_status mlp_block(chain_parser *p, const mst_mlp *mlp, const char *from, unsigned number,
                            uint32_t size, bool last)
{
    static const char *const activations[] = {"relu", "tanh", "sigmoid"};
    const char *name = mlp->base.name, *activation = activations[mlp->options.activation];
    bool drops = mlp->options.dropout > 0.0;
    char label[64];
    TRY(mlp_line(p, "%s-%u: linear %u%s%s", name, number, size, from != NULL ? " from=" : "",
                 from != NULL ? from : ""));
    if (mlp->options.batchnorm)
        TRY(mlp_line(p, "%s-%u-norm: batchnorm", name, number));
    snprintf(label, sizeof label, "%s-%u-%s", name, number, activation);
    TRY(mlp_line(p, "%s: %s", last && !drops ? name : label, activation));
    snprintf(label, sizeof label, "%s-%u-dropout", name, number);
    if (drops)
        TRY(mlp_line(p, "%s: dropout %.9g", last ? name : label, mlp->options.dropout));
    return MST_OK;
}

/* "mlp 400,400": linear layers, each with an activation, and batchnorm and dropout where wanted. */
static mst_status read_mlp(chain_parser *p, const char *name, char **words, size_t n_words)
{
    char from[256];
    mst_layer *layer;
    mst_status st;
    TRY(mst_layer_new(&mst_layer_mlp, &layer));
    const mst_mlp *mlp = (const mst_mlp *)layer;
    TRY_OUT(st, name_layer(p, name, layer));
    TRY_OUT(st, set_options(p, layer, words, n_words));
    if (p->from != NULL && strlen(p->from) >= sizeof from) {
        st = chain_fail_line(p, "from=: more than %zu characters", sizeof from - 1);
        goto out;
    }
    const char *sources = p->from != NULL ? memcpy(from, p->from, strlen(p->from) + 1) : NULL,
               *at = mlp->options.hidden;
    p->from = NULL;
    for (unsigned number = 1; at != NULL; number++) {
        uint32_t size;
        if (!mst_hidden_next(&at, &size)) {
            st = chain_fail_line(p, "hidden=%s: sizes of hidden layers separated by commas, such as 400,400",
                                 mlp->options.hidden);
            goto out;
        }
        TRY_OUT(st, mlp_block(p, mlp, sources, number, size, at == NULL));
        sources = NULL;
    }
out:
    mst_layer_destroy(layer);
    return st;
}

bool mst_hidden_next(const char **at, uint32_t *size)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    unsigned long n = strtoul(*at, &end, 10);
    if ((*end != ',' && *end != '\0') || n < 1 || n > MST_WIDTH_MAX)
        return false;
    *size = (uint32_t)n;
    *at = *end == ',' ? end + 1 : NULL;
    return true;
}

/* Makes a layer of a line and appends it. from: in place of the line's own; or NULL. */
static mst_status add_layer(chain_parser *p, const mst_layer_ops *ops, const char *name, char **words,
                            size_t n_words, char *from)
{
    mst_layer *layer;
    if (p->chain->n_layers == MST_NET_LAYERS)
        return chain_fail_line(p, "a net has at most %d layers", MST_NET_LAYERS);
    TRY(mst_layer_new(ops, &layer));
    layer->line = p->line;
    mst_status st = name_layer(p, name, layer);
    if (st == MST_OK)
        st = set_options(p, layer, words, n_words);
    if (from != NULL)
        p->from = from;
    if (st == MST_OK)
        st = chain_join(p, layer);
    p->from = NULL; /* is used, and may be on the stack of a caller */
    if (st != MST_OK) {
        mst_layer_destroy(layer);
        return st;
    }
    p->above = p->chain->n_layers;
    p->chain->layers[p->chain->n_layers++] = layer;
    return MST_OK;
}

/* "cross 3": layers NAME-1, NAME-2 and NAME; all read the input of the first as x0. */
static mst_status read_cross(chain_parser *p, const char *name, char **words, size_t n_words)
{
    mst_layer *layer;
    char own[sizeof layer->name], label[sizeof own + 16], from[256], before[sizeof own];
    TRY(mst_layer_new(&mst_layer_cross, &layer));
    mst_status st = name_layer(p, name, layer);
    if (st == MST_OK)
        st = set_options(p, layer, words, n_words);
    int64_t n = ((const mst_cross *)layer)->options.layers;
    memcpy(own, layer->name, sizeof own);
    mst_layer_destroy(layer);
    TRY(st);
    if (n == 1)
        return add_layer(p, &mst_layer_cross, own, words, n_words, NULL);
    snprintf(before, sizeof before, "%s",
             p->above == MST_INPUT_ROWS ? "rows" : p->chain->layers[p->above]->name);
    if (p->from != NULL && strlen(p->from) >= sizeof before)
        return chain_fail_line(p, "cross %lld reads one layer", (long long)n);
    if (p->from != NULL)
        memcpy(before, p->from, strlen(p->from) + 1);
    for (int64_t l = 1; l <= n; l++) {
        snprintf(from, sizeof from, l == 1 ? "%s" : "%s,%s-%lld", before, own, (long long)l - 1);
        snprintf(label, sizeof label, l < n ? "%s-%lld" : "%s", own, (long long)l);
        TRY(add_layer(p, &mst_layer_cross, label, words, n_words, from));
    }
    return MST_OK;
}

static mst_status read_layer(chain_parser *p)
{
    size_t at = 0, length = strlen(p->words[0]);
    char *name = NULL;
    p->from = NULL;
    if (p->words[0][length - 1] == ':') {
        p->words[0][length - 1] = '\0';
        name = p->words[at++];
    }
    if (at == p->n_words)
        return chain_fail_line(p, "\"%s:\" is followed by no layer", name);
    char **words = p->words + at + 1;
    size_t n_words = p->n_words - at - 1;
    if (strcmp(p->words[at], mst_layer_mlp.name) == 0)
        return read_mlp(p, name, words, n_words);
    if (strcmp(p->words[at], mst_layer_cross.name) == 0)
        return read_cross(p, name, words, n_words);
    const mst_layer_ops *ops = find_kind(mst_layers, p->words[at]);
    if (ops == NULL)
        ops = find_kind(mst_input_layers, p->words[at]);
    if (ops == NULL)
        ops = find_kind(p->data->kinds, p->words[at]);
    if (ops == NULL)
        return chain_fail_line(p, "\"%s\" is not a kind of layer: see `muster list layers`", p->words[at]);
    return add_layer(p, ops, name, words, n_words, NULL);
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

/* Numbers the ranges, in the order of the layers; a table is first. Finds out what the net is. */
static mst_status number_ranges(const chain_parser *p)
{
    mst_chain *chain = p->chain;
    bool used[MST_NET_LAYERS] = {false};
    chain->n_ranges = chain->table.width != 0;
    chain->graph = p->chain->table.n_keys != 0;
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        mst_layer *layer = chain->layers[i];
        if (chain->n_ranges + layer->n_params > MST_RANGE_MAX)
            return mst_fail(MST_EINPUT, "%s:%u: a net has at most %d weights and biases", p->source,
                            layer->line, MST_RANGE_MAX);
        layer->first_range = chain->n_ranges;
        chain->n_ranges += layer->n_params;
        chain->graph |= layer->n_inputs != 1 || layer->inputs[0] != (i == 0 ? MST_INPUT_ROWS : i - 1);
        for (uint32_t j = 0; j < layer->n_inputs; j++)
            if (layer->inputs[j] != MST_INPUT_ROWS)
                used[layer->inputs[j]] = true;
    }
    for (uint32_t i = 0; i + 1 < chain->n_layers; i++)
        if (!used[i])
            return mst_fail(MST_EINPUT, "%s:%u: no layer reads %s", p->source, chain->layers[i]->line,
                            chain->layers[i]->name);
    if (chain->table.n_keys == 0)
        chain->in = p->rows;
    return MST_OK;
}

static mst_status check_end(const chain_parser *p)
{
    const mst_chain *chain = p->chain;
    if (chain->n_layers == 0)
        return mst_fail(MST_EINPUT, "%s: a net without layers", p->source);
    const mst_layer *last = chain->layers[chain->n_layers - 1];
    uint64_t size = mst_dims_size(&last->out);
    uint32_t classes = p->data->n_classes;
    if (size == 0)
        return mst_fail(MST_EINPUT, "%s:%u: %s has no input: the data has no dense numbers", p->source,
                        last->line, last->name);
    if (classes != 0 && size != classes && !(classes == 2 && size == 1))
        return mst_fail(MST_EINPUT,
                        "%s:%u: the net has %llu outputs, but there are %u classes: end it with "
                        "\"linear classes\"%s",
                        p->source, last->line, (unsigned long long)size, classes,
                        classes == 2 ? " or \"linear 1\"" : "");
    return MST_OK;
}

mst_status mst_chain_parse(const char *text, const char *source, const mst_dims *in, uint32_t n_classes,
                           mst_chain **out)
{
    return mst_chain_parse_with(text, source, &(mst_net_data){.in = *in, .n_classes = n_classes}, out);
}

mst_status mst_chain_parse_with(const char *text, const char *source, const mst_net_data *data,
                                mst_chain **out)
{
    mst_status st = MST_OK;
    chain_parser p = {.source = source, .data = data, .rows = data->in, .above = MST_INPUT_ROWS};
    char *copy = NULL;
    if (strlen(text) > TEXT_MAX)
        return mst_fail(MST_EINPUT, "%s: larger than 1 MB: not a net file", source);
    p.chain = mst_zalloc(sizeof *p.chain);
    copy = mst_strdup(text);
    if (p.chain == NULL || copy == NULL || (p.chain->text = mst_strdup(text)) == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    p.chain->table.embedding = p.chain->table.numbers = p.chain->table.wide = MST_INPUT_ROWS;
    size_t mark = strncmp(copy, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* that some editors begin UTF-8 with */
    for (char *line = copy + mark, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        p.line++;
        TRY_OUT(st, chain_read_line(&p, line));
    }
    TRY_OUT(st, check_end(&p));
    TRY_OUT(st, number_ranges(&p));
    *out = p.chain;
    p.chain = NULL;
out:
    mst_free(copy);
    mst_chain_destroy(p.chain);
    return st;
}
