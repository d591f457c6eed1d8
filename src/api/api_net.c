/* Nets of the public interface: lines of a net file, and kinds of layers of the program, each with a table of
 * layer.h whose functions call those of the program.
 *
 * Invariants
 * 1. A kind begins with its table, so that a layer finds its kind.
 * 2. The options of such a kind are real numbers, in an array after the layer. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"
#include "model/layer.h"

_Static_assert(MUSTER_LAYER_PARAMS == MST_LAYER_PARAMS, "parameters of a layer");
_Static_assert((int)MUSTER_INIT_GLOROT == (int)MST_INIT_GLOROT &&
                   (int)MUSTER_INIT_CONSTANT == (int)MST_INIT_CONSTANT,
               "first values");

typedef struct own_kind {
    mst_layer_ops ops;
    muster_layer user;
    char *name;                                   /* and its options, split into words */
    mst_option options[MUSTER_LAYER_OPTIONS + 1]; /* names and defaults point into the copy */
    char *words;
} own_kind;

typedef struct own_layer {
    mst_layer base;
    double options[MUSTER_LAYER_OPTIONS];
    uint64_t flops;
} own_layer;

/* ---- a layer's functions ---- */

static const own_kind *kind_of(const mst_layer *layer)
{
    return (const own_kind *)layer->ops;
}

static muster_layer_info info_of(const mst_layer *layer)
{
    return (muster_layer_info){
        .arg = kind_of(layer)->user.arg,
        .name = layer->name,
        .in = {layer->in.c, layer->in.h, layer->in.w},
        .out = {layer->out.c, layer->out.h, layer->out.w},
        .options = ((const own_layer *)layer)->options,
    };
}

static muster_pass pass_of(const mst_pass *pass)
{
    return (muster_pass){
        .training = pass->training, .seed = pass->seed, .step = pass->step, .first_row = pass->first_row};
}

static mst_status take_param(mst_layer *self, const muster_layer_param *from, mst_layer_param *to)
{
    if (from->name == NULL || from->n_dims < 1 || from->n_dims > MST_VIEW_NDIM ||
        (unsigned)from->init > MUSTER_INIT_CONSTANT)
        return mst_fail(MST_EINPUT, "%s: a parameter needs a name, 1 to %d dimensions and first values",
                        self->name, MST_VIEW_NDIM);
    *to = (mst_layer_param){
        .name = from->name,
        .kind = from->is_state ? MST_VIEW_STATE : MST_VIEW_TRAINABLE,
        .n_dims = from->n_dims,
        .init = (mst_init)from->init,
        .init_scale = from->scale,
        .fan_in = from->fan_in > 0 ? from->fan_in : 1,
        .fan_out = from->fan_out > 0 ? from->fan_out : 1,
    };
    memcpy(to->dims, from->dims, from->n_dims * sizeof *to->dims);
    return MST_OK;
}

static mst_status own_shape(mst_layer *self)
{
    const own_kind *kind = kind_of(self);
    muster_layer_info info = info_of(self);
    muster_layer_shape shape = {0};
    mst_api_forget();
    TRY(mst_api_answer(kind->user.shape(&info, &shape), self->name));
    if (shape.out.c == 0 || shape.out.h == 0 || shape.out.w == 0 || shape.n_params > MST_LAYER_PARAMS)
        return mst_fail(MST_EINPUT,
                        "%s: its shape function must set the output shape and at most %d parameters",
                        self->name, MST_LAYER_PARAMS);
    self->out = (mst_dims){shape.out.c, shape.out.h, shape.out.w};
    self->n_params = shape.n_params;
    for (uint32_t i = 0; i < shape.n_params; i++)
        TRY(take_param(self, &shape.params[i], &self->params[i]));
    ((own_layer *)self)->flops = shape.flops;
    return MST_OK;
}

static uint64_t own_flops(const mst_layer *self)
{
    return ((const own_layer *)self)->flops;
}

static size_t own_state_size(const mst_layer *self, uint32_t n)
{
    muster_layer_info info = info_of(self);
    return kind_of(self)->user.state_size(&info, n);
}

static void own_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                        float *const *w, float *y)
{
    muster_layer_info info = info_of(self);
    muster_pass as = pass_of(pass);
    kind_of(self)->user.forward(&info, state, &as, n, x, w, y);
}

static void own_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                         const float *y, const float *dy, float *const *w, float *dx, float *const *g)
{
    muster_layer_info info = info_of(self);
    muster_pass as = pass_of(pass);
    kind_of(self)->user.backward(&info, state, &as, n, x, y, dy, w, dx, g);
}

/* ---- kinds ---- */

static void kind_free(own_kind *kind)
{
    if (kind == NULL)
        return;
    mst_free(kind->name);
    mst_free(kind->words);
    mst_free(kind);
}

/* "slope=0.01 size=3" as a table. */
static mst_status read_options(own_kind *kind)
{
    size_t n = 0;
    char *rest;
    for (char *word = strtok_r(kind->words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '='), *end;
        if (n == MUSTER_LAYER_OPTIONS)
            return mst_fail(MST_EUSAGE, "layer %s: more than %d options", kind->name, MUSTER_LAYER_OPTIONS);
        if (equals == NULL || equals == word || equals[1] == '\0' || (strtod(equals + 1, &end), *end != '\0'))
            return mst_fail(MST_EUSAGE, "layer %s: option \"%s\" is not name=number", kind->name, word);
        *equals = '\0';
        kind->options[n] = (mst_option){.name = word,
                                        .type = MST_OPTION_REAL,
                                        .offset = n * sizeof(double),
                                        .fallback = equals + 1,
                                        .help = ""};
        n++;
    }
    if (n > 0) {
        kind->ops.options = kind->options;
        kind->ops.main_option = kind->options[0].name;
    }
    return MST_OK;
}

static mst_status kind_new(const muster_layer *user, own_kind **out)
{
    mst_status st = MST_OK;
    own_kind *kind = mst_zalloc(sizeof *kind);
    if (kind == NULL)
        return mst_fail_memory();
    kind->user = *user;
    kind->name = mst_strdup(user->kind);
    kind->words = mst_strdup(user->options != NULL ? user->options : "");
    if (kind->name == NULL || kind->words == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    kind->user.kind = kind->name;
    kind->user.options = NULL;
    kind->ops = (mst_layer_ops){
        .name = kind->name,
        .help = "",
        .size = sizeof(own_layer),
        .options_at = offsetof(own_layer, options),
        .shape = own_shape,
        .flops = own_flops,
        .state_size = user->state_size != NULL ? own_state_size : NULL,
        .forward = own_forward,
        .backward = own_backward,
    };
    TRY_OUT(st, read_options(kind));
    *out = kind;
    kind = NULL;
out:
    kind_free(kind);
    return st;
}

static bool kind_known(const mst_layer_ops *const *kinds, const char *name)
{
    for (size_t i = 0; kinds != NULL && kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return true;
    return false;
}

static bool is_name(const char *text)
{
    return isalpha((unsigned char)*text) &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] == '\0' &&
           strlen(text) < 24; /* a number after it makes the name of a layer */
}

static mst_status check_open(const muster_net *net)
{
    return net->fixed ? mst_fail(MST_EUSAGE, "the net is in use by options or a model and cannot change")
                      : MST_OK;
}

muster_status muster_net_add_kind(muster_net *net, const muster_layer *user)
{
    own_kind *kind = NULL;
    mst_status st = check_open(net);
    if (st != MST_OK)
        return (muster_status)st;
    if (user == NULL)
        return muster_fail(MUSTER_EUSAGE, "no kind of layer is given");
    if (user->kind == NULL || !is_name(user->kind))
        return muster_fail(MUSTER_EUSAGE,
                           "\"%s\" is no name for a kind of layer: a letter, then letters, digits, _ and -, "
                           "at most 23 together",
                           user->kind != NULL ? user->kind : "");
    if (user->shape == NULL || user->forward == NULL || user->backward == NULL)
        return muster_fail(MUSTER_EUSAGE, "layer %s needs shape, forward and backward", user->kind);
    if (kind_known(mst_layers, user->kind) || kind_known(net->kinds, user->kind) ||
        strcmp(user->kind, "input") == 0 || strcmp(user->kind, "defaults") == 0)
        return muster_fail(MUSTER_EUSAGE, "there is a kind of layer %s already", user->kind);
    if (!mst_grow(&net->kinds, &net->kind_capacity, net->n_kinds + 2, sizeof(const mst_layer_ops *)))
        return muster_fail(MUSTER_ENOMEM, "no memory for layer %s", user->kind);
    net->kinds[net->n_kinds] = NULL;
    st = kind_new(user, &kind);
    if (st != MST_OK)
        return (muster_status)st;
    net->kinds[net->n_kinds++] = &kind->ops;
    net->kinds[net->n_kinds] = NULL;
    return MUSTER_OK;
}

/* ---- nets ---- */

muster_status muster_net_new(muster_net **out)
{
    muster_net *net = mst_zalloc(sizeof *net);
    char *text = mst_strdup("");
    if (net == NULL || text == NULL) {
        mst_free(net);
        mst_free(text);
        return muster_fail(MUSTER_ENOMEM, "no memory for a net");
    }
    atomic_init(&net->references, 1);
    net->text = text;
    *out = net;
    return MUSTER_OK;
}

muster_net *mst_api_net_hold(muster_net *net)
{
    if (net == NULL)
        return NULL;
    if (!net->fixed) /* else several threads would write it */
        net->fixed = true;
    atomic_fetch_add_explicit(&net->references, 1, memory_order_relaxed);
    return net;
}

void muster_net_free(muster_net *net)
{
    if (net == NULL || atomic_fetch_sub_explicit(&net->references, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < net->n_kinds; i++)
        kind_free((own_kind *)net->kinds[i]);
    mst_free(net->kinds);
    mst_free(net->text);
    mst_free(net);
}

muster_status muster_net_add(muster_net *net, const char *lines)
{
    mst_status st = check_open(net);
    if (st != MST_OK)
        return (muster_status)st;
    size_t length = strlen(lines);
    char *longer =
        mst_sprintf("%s%s%s", net->text, lines, length > 0 && lines[length - 1] == '\n' ? "" : "\n");
    if (longer == NULL)
        return muster_fail(MUSTER_ENOMEM, "no memory for a net");
    mst_free(net->text);
    net->text = longer;
    return MUSTER_OK;
}

const char *muster_net_text(const muster_net *net)
{
    return net->text;
}

muster_status muster_net_check(const muster_net *net, muster_dims in, uint32_t n_classes,
                               uint64_t *n_parameters)
{
    mst_chain *chain;
    mst_dims dims = {in.c, in.h, in.w};
    uint64_t n = 0;
    mst_status st = mst_chain_parse_with(
        net->text, "net", &(mst_net_data){.in = dims, .n_classes = n_classes, .kinds = net->kinds}, &chain);
    if (st != MST_OK)
        return (muster_status)st;
    for (uint32_t i = 0; i < chain->n_layers; i++)
        for (uint32_t j = 0; j < chain->layers[i]->n_params; j++)
            n += mst_layer_param_size(&chain->layers[i]->params[j]);
    mst_chain_destroy(chain);
    if (n_parameters != NULL)
        *n_parameters = n;
    return MUSTER_OK;
}
