/* Part of mm_kernels_impl.h: the product of packed panels.
 *
 * A tile of PANEL_ROWS x PANEL_COLS sums stays in registers over the whole depth. Per step of the depth it
 * takes two vectors of B and PANEL_ROWS numbers of A, each broadcast once and used twice, so that the
 * multiply-adds are the limit, not the loads. A and B are both fetched ahead: the panel of B that passes by
 * replaces that of A in the first-level cache. The rows of C are fetched one after the other meanwhile: all
 * at once, they would take the buffers through which A and B arrive from the second-level cache. */

#if LANES == 16
#define PANEL_ROWS 14 /* 28 sums, 2 of B and 1 of A in 32 registers */
#elif LANES == 8
#define PANEL_ROWS 6 /* 12 sums, 2 and 1 in 16 */
#else
#define PANEL_ROWS 4
#endif
#define PANEL_COLS (2 * LANES)
#define AHEAD_A    32 /* steps of the depth that A and B are fetched ahead */
#define AHEAD_B    16

#define UNROLL _Pragma("GCC unroll 16")

/* Keeps the compiler from broadcasting from memory once per use. */
#if defined(__AVX512F__)
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#elif defined(__AVX2__)
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define IN_REGISTER(v) (void)(v)
#endif

/* LANES steps of the depth are turned in registers. The vectors of the turned steps are longer than
 * PANEL_ROWS, so each ends in the place of the next step: the last steps are copied one by one. */
static void pack_rows(const float *a, size_t lda, size_t rows, size_t depth, float *restrict out)
{
    size_t k = 0;
    for (; rows == PANEL_ROWS && k + LANES < depth; k += LANES, out += LANES * PANEL_ROWS) {
        vec x[LANES];
        UNROLL for (size_t r = 0; r < LANES; r++) x[r] = r < PANEL_ROWS ? load(a + r * lda + k) : (vec){0};
        turn(x);
        UNROLL for (size_t i = 0; i < LANES; i++) store(out + i * PANEL_ROWS, x[i]);
    }
    for (; k < depth; k++, out += PANEL_ROWS)
        for (size_t r = 0; r < PANEL_ROWS; r++)
            out[r] = r < rows ? a[r * lda + k] : 0.0f;
}

static void pack_cols(const float *b, size_t ldb, size_t cols, size_t depth, float *restrict out)
{
    for (size_t k = 0; k < depth; k++, b += ldb, out += PANEL_COLS) {
        if (cols == PANEL_COLS) {
            store(out, load(b));
            store(out + LANES, load(b + LANES));
            continue;
        }
        for (size_t c = 0; c < PANEL_COLS; c++)
            out[c] = c < cols ? b[c] : 0.0f;
    }
}

static void multiply_panels(size_t depth, const float *a, const float *b, bool add, size_t rows, size_t cols,
                            float *restrict c, size_t ldc)
{
    vec sums[PANEL_ROWS][2];
    size_t k = 0;
    UNROLL for (size_t r = 0; r < PANEL_ROWS; r++) sums[r][0] = sums[r][1] = (vec){0};
    for (size_t row = 0; row < PANEL_ROWS; row++) {
        if (row < rows) {
            __builtin_prefetch(c + row * ldc, 1);
            __builtin_prefetch(c + row * ldc + cols - 1, 1);
        }
#pragma GCC unroll 2
        for (; k < depth * (row + 1) / PANEL_ROWS; k++, a += PANEL_ROWS, b += PANEL_COLS) {
            vec b0 = load(b), b1 = load(b + LANES);
            __builtin_prefetch(a + AHEAD_A * PANEL_ROWS);
            __builtin_prefetch(b + AHEAD_B * PANEL_COLS);
            __builtin_prefetch(b + AHEAD_B * PANEL_COLS + LANES);
            UNROLL for (size_t r = 0; r < PANEL_ROWS; r++)
            {
                vec v = a[r] - (vec){0};
                IN_REGISTER(v);
                sums[r][0] += v * b0;
                sums[r][1] += v * b1;
            }
        }
    }
    if (rows == PANEL_ROWS && cols == PANEL_COLS) {
        UNROLL for (size_t r = 0; r < PANEL_ROWS; r++)
        {
            float *at = c + r * ldc;
            store(at, add ? load(at) + sums[r][0] : sums[r][0]);
            store(at + LANES, add ? load(at + LANES) + sums[r][1] : sums[r][1]);
        }
        return;
    }
    float part[PANEL_ROWS][PANEL_COLS];
    UNROLL for (size_t r = 0; r < PANEL_ROWS; r++)
    {
        store(part[r], sums[r][0]);
        store(part[r] + LANES, sums[r][1]);
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < cols; j++)
            c[r * ldc + j] = add ? c[r * ldc + j] + part[r][j] : part[r][j];
}
