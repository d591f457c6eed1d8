/* Images: which decoder, and resizing (contract: image.h).
 *
 * Resizing is separable: rows are filtered along x for the columns wanted, as floats, then along y. The
 * weights of an output pixel are those of a triangle around its place in the source, normalised; only source
 * rows and columns that the cut-out needs are looked at. */
#include "data/image.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"

mst_status mst_image_check_sides(const char *path, uint64_t height, uint64_t width)
{
    if (height == 0 || width == 0 || height > MST_IMAGE_SIDE_MAX || width > MST_IMAGE_SIDE_MAX ||
        height * width > MST_IMAGE_AREA_MAX)
        return mst_fail(MST_EINPUT,
                        "%s: an image of %" PRIu64 " x %" PRIu64
                        " pixels; up to %u along a side and 2^26 in all are read",
                        path, height, width, MST_IMAGE_SIDE_MAX);
    return MST_OK;
}

static bool is_jpeg(const uint8_t *data, size_t size)
{
    return size >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0;
}

static bool is_png(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

bool mst_image_sniff(const uint8_t *data, size_t size)
{
    return is_jpeg(data, size) || is_png(data, size);
}

mst_status mst_image_decode(const char *path, const uint8_t *data, size_t size, uint32_t channels,
                            uint32_t enough, mst_image *out)
{
    if (is_jpeg(data, size))
        return mst_image_jpeg(path, data, size, channels, enough, out);
    if (is_png(data, size))
        return mst_image_png(path, data, size, channels, out);
    return mst_fail(MST_EINPUT, "%s: neither a JPEG nor a PNG image; remove it from the folder", path);
}

/* ---- resizing ---- */

/* Output pixel i is the sum over j < n of weights[i * most + j] * source[first[i] + j]. */
typedef struct filter {
    uint32_t most;
    uint32_t *first, *n;
    float *weights;
} filter;

static void filter_fini(filter *f)
{
    mst_free(f->first);
    mst_free(f->n);
    mst_free(f->weights);
}

/* Weights for outputs [from, from + n) of `total`, made from `source` pixels. */
static mst_status filter_init(filter *f, uint32_t source, uint32_t total, uint32_t from, uint32_t n)
{
    double scale = (double)source / total, support = scale > 1.0 ? scale : 1.0;
    *f = (filter){.most = (uint32_t)ceil(2.0 * support) + 2};
    f->first = mst_calloc(n, sizeof *f->first);
    f->n = mst_calloc(n, sizeof *f->n);
    f->weights = mst_calloc((size_t)n * f->most, sizeof *f->weights);
    if (f->first == NULL || f->n == NULL || f->weights == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < n; i++) {
        double centre = (from + i + 0.5) * scale, sum = 0.0;
        double low = floor(centre - support), high = ceil(centre + support);
        uint32_t first = low < 0.0 ? 0 : (uint32_t)low, end = high > source ? source : (uint32_t)high;
        first = first < source ? first : source - 1;
        float *w = f->weights + (size_t)i * f->most;
        for (uint32_t j = first; j < end && j - first < f->most; j++) {
            double distance = fabs(j + 0.5 - centre) / support,
                   weight = distance < 1.0 ? 1.0 - distance : 0.0;
            w[j - first] = (float)weight;
            sum += weight;
            f->n[i] = j - first + 1;
        }
        if (!(sum > 0.0)) {
            w[0] = 1.0f;
            sum = 1.0;
            f->n[i] = 1;
        }
        for (uint32_t j = 0; j < f->n[i]; j++)
            w[j] = (float)(w[j] / sum);
        f->first[i] = first;
    }
    return MST_OK;
}

/* One source row to `width` pixels of floats, plane after plane. */
static void along_x(const filter *f, const uint8_t *pixels, uint32_t channels, uint32_t width, float *out)
{
    for (uint32_t x = 0; x < width; x++) {
        const float *w = f->weights + (size_t)x * f->most;
        const uint8_t *p = pixels + (size_t)f->first[x] * channels;
        for (uint32_t c = 0; c < channels; c++) {
            float sum = 0.0f;
            for (uint32_t j = 0; j < f->n[x]; j++)
                sum += w[j] * (float)p[(size_t)j * channels + c];
            out[(size_t)c * width + x] = sum;
        }
    }
}

/* rows: filtered source rows from `first_row` on, each channels x width. */
static void along_y(const filter *f, const float *rows, uint32_t first_row, uint32_t channels,
                    uint32_t height, uint32_t width, float *line, uint8_t *planes)
{
    size_t row_size = (size_t)channels * width;
    for (uint32_t y = 0; y < height; y++) {
        const float *w = f->weights + (size_t)y * f->most;
        const float *from = rows + (f->first[y] - first_row) * row_size;
        for (uint32_t c = 0; c < channels; c++) {
            for (uint32_t x = 0; x < width; x++)
                line[x] = 0.5f;
            for (uint32_t j = 0; j < f->n[y]; j++) {
                const float *in = from + j * row_size + (size_t)c * width;
                for (uint32_t x = 0; x < width; x++)
                    line[x] += w[j] * in[x];
            }
            uint8_t *out = planes + ((size_t)c * height + y) * width;
            for (uint32_t x = 0; x < width; x++)
                out[x] = line[x] < 0.0f ? 0 : line[x] > 255.0f ? 255 : (uint8_t)line[x];
        }
    }
}

mst_status mst_image_fit(const mst_image *image, uint32_t shorter, uint32_t height, uint32_t width,
                         uint8_t *planes)
{
    mst_status st;
    filter fx = {0}, fy = {0};
    float *rows = NULL;
    uint32_t least = image->height < image->width ? image->height : image->width, channels = image->channels;
    double scale = (double)shorter / least;
    scale = fmax(scale, fmax((double)height / image->height, (double)width / image->width));
    uint32_t full_height = (uint32_t)llround(image->height * scale),
             full_width = (uint32_t)llround(image->width * scale);
    full_height = full_height > height ? full_height : height;
    full_width = full_width > width ? full_width : width;
    TRY_OUT(st, filter_init(&fx, image->width, full_width, (full_width - width) / 2, width));
    TRY_OUT(st, filter_init(&fy, image->height, full_height, (full_height - height) / 2, height));
    uint32_t first = fy.first[0], end = fy.first[height - 1] + fy.n[height - 1];
    size_t row_size = (size_t)channels * width;
    rows = mst_alloc(((end - first) * row_size + width) * sizeof *rows);
    if (rows == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (uint32_t y = first; y < end; y++)
        along_x(&fx, image->pixels + (size_t)y * image->width * channels, channels, width,
                rows + (y - first) * row_size);
    along_y(&fy, rows, first, channels, height, width, rows + (end - first) * row_size, planes);
out:
    filter_fini(&fx);
    filter_fini(&fy);
    mst_free(rows);
    return st;
}
