/* Fuzzes the decoders of JPEG and PNG and the resizing: a decoded image always has its stated sides and fits
 * into a row. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEIGHT = 11, WIDTH = 7 };
    static uint8_t planes[3 * HEIGHT * WIDTH];
    if (size < 2 || size > 1 << 16)
        return 0;
    uint32_t channels = data[0] & 1 ? 1 : 3, enough = data[0] >> 1, shorter = data[1] % 32;
    mst_image image = {0};
    if (mst_image_decode("fuzz", data + 2, size - 2, channels, enough, &image) == MST_OK) {
        volatile uint8_t sum = 0;
        if (image.pixels == NULL || image.channels != channels || image.height == 0 || image.width == 0)
            abort();
        for (size_t i = 0; i < (size_t)image.height * image.width * channels; i++)
            sum = (uint8_t)(sum + image.pixels[i]);
        if (mst_image_fit(&image, shorter, HEIGHT, WIDTH, planes) != MST_OK)
            abort();
        mst_free(image.pixels);
    } else if (image.pixels != NULL) {
        abort();
    }
    return 0;
}
