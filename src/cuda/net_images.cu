/* Images of a dataset on the GPU: crop, mirror and normalise on the way to the rows of a step; images that stay.
 * Contract in cuda_net.h, layout of a slot in net.cuh. */
#include "cuda/net_lines.cuh"

#include <algorithm>

#define KEEP_SHARE 4                  /* of the free memory, one part in so many stays free ... */
#define KEEP_FREE  ((size_t)4 << 30)  /* ... and at least these bytes */

/* Output pixels of one line: four at a time where lines allow it. */
template <typename OUT, int V>
static __global__ void augment_kernel(mst_cuda_images images, uint32_t n, uint64_t pitch, const mst_cuda_pick *picks,
                                      const uint8_t *from, bool by_number, OUT *out)
{
    mst_cuda_dims to = {images.channels, images.out_height, images.out_width};
    uint32_t groups = to.w / V, items = to.c * to.h * groups;
    EACH_ROW(r, n)
    EACH_ITEM(i, items)
    {
        mst_cuda_pick pick = picks[r];
        uint32_t x = i % groups * V, y = i / groups % to.h, c = i / groups / to.h;
        int sy = (int)y + pick.y;
        bool inside = sy >= 0 && sy < (int)images.height;
        const uint8_t *line = from + (by_number ? pick.number : r) * pitch +
                              ((uint64_t)c * images.height + (inside ? sy : 0)) * images.width;
        OUT v[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            int sx = (int)(pick.mirror ? to.w - 1 - (x + k) : x + k) + pick.x;
            uint8_t byte = inside && sx >= 0 && sx < (int)images.width ? line[sx] : 0;
            /* two roundings, as on the CPU */
            if constexpr (sizeof(OUT) == 4)
                v[k] = __fadd_rn(__fmul_rn((float)byte, images.scale[c]), images.shift[c]);
            else
                v[k] = byte;
        }
        OUT *at = out + (uint64_t)r * to.c * to.h * to.w + ((uint64_t)c * to.h + y) * to.w + x;
        if constexpr (V == 4 && sizeof(OUT) == 4)
            *(float4 *)at = make_float4(v[0], v[1], v[2], v[3]);
        else if constexpr (V == 4)
            *(uchar4 *)at = make_uchar4(v[0], v[1], v[2], v[3]);
        else
            at[0] = v[0];
    }
}

/* Row r of the slot becomes row picks[r].number of those that stay. */
static __global__ void keep_kernel(uint32_t n, uint64_t pitch, uint32_t max_rows, const mst_cuda_pick *picks,
                                   const uint8_t *from, const float *labels, uint8_t *kept, float *kept_labels)
{
    EACH_ROW(r, n)
    {
        uint64_t number = picks[r].number;
        EACH_ITEM(i, pitch / 16)
            ((uint4 *)(kept + number * pitch))[i] = ((const uint4 *)(from + r * pitch))[i];
        if (blockIdx.x == 0 && threadIdx.x < 2)
            kept_labels[2 * number + threadIdx.x] = labels[threadIdx.x * max_rows + r];
    }
}

static __global__ void labels_kernel(uint32_t n, uint32_t max_rows, const mst_cuda_pick *picks,
                                     const float *kept_labels, float *labels)
{
    for (uint32_t r = blockIdx.x * THREADS + threadIdx.x; r < n; r += gridDim.x * THREADS) {
        uint64_t number = picks[r].number;
        labels[r] = kept_labels[2 * number];
        labels[max_rows + r] = kept_labels[2 * number + 1];
    }
}

mst_status net_augment(mst_cuda_net *net, uint32_t n, mst_cuda_source source, net_slot *slot)
{
    const mst_cuda_pick *picks = (const mst_cuda_pick *)slot->images_device;
    const uint8_t *images = (const uint8_t *)slot->images_device + net_images_at(net);
    float *labels = (float *)(slot->device + net_labels_at());
    uint32_t max_rows = net->spec.max_rows;
    bool four = net->images.out_width % 4 == 0, kept = source == MST_CUDA_KEPT;
    dim3 grid = net_grid(n, net->row_size / (four ? 4 : 1));
    if (kept)
        labels_kernel<<<mst_cuda_blocks(n, THREADS, 1024), THREADS, 0, net->stream>>>(n, max_rows, picks,
                                                                                      net->kept_labels, labels);
    else if (net->kept != NULL)
        keep_kernel<<<net_grid(n, net->pitch / 16), THREADS, 0, net->stream>>>(
            n, net->pitch, max_rows, picks, images, labels, net->kept, net->kept_labels);
    CUDA_LAUNCHED("rows that stay");
#define CALL(OUT, V)                                                                                         \
    augment_kernel<OUT, V><<<grid, THREADS, 0, net->stream>>>(net->images, n, net->pitch, picks,             \
                                                              kept ? net->kept : images, kept,               \
                                                              (OUT *)(slot->device + net_rows_at(net)))
    if (net->images.normalise && four)
        CALL(float, 4);
    else if (net->images.normalise)
        CALL(float, 1);
    else if (four)
        CALL(uint8_t, 4);
    else
        CALL(uint8_t, 1);
#undef CALL
    CUDA_LAUNCHED("the augmentation");
    return MST_OK;
}

/* Memory for the images that stay; none where they do not fit. */
static mst_status images_keep(mst_cuda_net *net, bool *keeps)
{
    size_t available, total, bytes = net->images.n_rows * (net->pitch + 2 * sizeof(float));
    void *at;
    *keeps = false;
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    if (net->images.n_rows == 0 || available < KEEP_FREE ||
        bytes > available - std::max(KEEP_FREE, available / KEEP_SHARE))
        return MST_OK;
    NET_TRY(net_alloc(net, net->images.n_rows * net->pitch, &at));
    net->kept = (uint8_t *)at;
    NET_TRY(net_alloc(net, net->images.n_rows * 2 * sizeof(float), &at));
    net->kept_labels = (float *)at;
    *keeps = true;
    return MST_OK;
}

mst_status nets_images(mst_cuda_net *net, const mst_cuda_images *images, bool *keeps)
{
    *keeps = false;
    if (net->images.channels != 0 || images->channels > MST_CUDA_CHANNELS ||
        (uint64_t)images->channels * images->out_height * images->out_width != net->row_size)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED,
                                          "a net on a GPU takes images of one size, of up to %d channels",
                                          MST_CUDA_CHANNELS);
    CUDA_TRY(cudaSetDevice((int)net->spec.device));
    net->pitch = ((uint64_t)images->channels * images->height * images->width + 15) / 16 * 16;
    size_t bytes = net_images_at(net) + net->spec.max_rows * net->pitch;
    for (net_slot &slot : net->slots) {
        void *at;
        CUDA_TRY(cudaHostAlloc(&at, bytes, cudaHostAllocPortable));
        slot.images = (char *)at;
        NET_TRY(net_alloc(net, bytes, &at));
        slot.images_device = (char *)at;
    }
    net->images = *images;
    return images_keep(net, keeps);
}
