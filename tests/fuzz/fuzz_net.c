/* libFuzzer: any text as a net file; the first bytes give the input and the number of classes. An accepted
 * net satisfies the contract of layer.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "model/layer.h"
#include "tensor/grad.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            abort();                                                                                         \
    } while (0)

static void check_chain(const mst_chain *chain, const char *text, uint32_t n_classes)
{
    mst_dims at = chain->in;
    uint32_t ranges = 0;
    CHECK(strcmp(chain->text, text) == 0);
    CHECK(chain->n_layers > 0 && chain->n_layers <= MST_NET_LAYERS && chain->n_ranges <= MST_RANGE_MAX);
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        CHECK(memcmp(&layer->in, &at, sizeof at) == 0 && layer->name[0] != '\0' && layer->line > 0);
        CHECK(mst_dims_size(&layer->out) > 0 && mst_dims_size(&layer->out) <= 1 << 28);
        CHECK(layer->n_params <= MST_LAYER_PARAMS && layer->first_range == ranges);
        for (uint32_t j = 0; j < i; j++)
            CHECK(strcmp(chain->layers[j]->name, layer->name) != 0);
        ranges += layer->n_params;
        at = layer->out;
    }
    CHECK(ranges == chain->n_ranges && mst_dims_size(&at) >= 2);
    CHECK(n_classes == 0 || mst_dims_size(&at) == n_classes);
    CHECK(mst_chain_flops(chain) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || memchr(data + 4, '\0', size - 4) != NULL)
        return 0;
    mst_dims in = {data[0], data[1] % 64 + 1u, data[2] % 64 + 1u};
    uint32_t n_classes = data[3] % 16;
    char *text = malloc(size - 3);
    mst_chain *chain = NULL;
    CHECK(text != NULL);
    memcpy(text, data + 4, size - 4);
    text[size - 4] = '\0';
    mst_status st = mst_chain_parse(text, "fuzz.net", &in, n_classes, &chain);
    CHECK((st == MST_OK) == (chain != NULL));
    if (st == MST_OK) {
        mst_params params = {0};
        check_chain(chain, text, n_classes);
        if (mst_chain_declare(chain, &params) == MST_OK)
            CHECK(params.n_views == chain->n_ranges);
        mst_params_fini(&params);
    } else {
        CHECK(mst_error_text()[0] != '\0');
    }
    mst_chain_destroy(chain);
    free(text);
    return 0;
}
