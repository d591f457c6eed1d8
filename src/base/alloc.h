/* Memory: every allocation of the library goes through here, is counted, and can be made to fail by a test.
 *
 * Blocks are plain malloc blocks. mst_pages_* reserve large zeroed regions that cost nothing until touched
 * (the parameter store), backed by huge pages where the kernel offers them. All functions are thread-safe. */
#ifndef MST_BASE_ALLOC_H
#define MST_BASE_ALLOC_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL on failure (or a failure injected by a test); the caller returns mst_fail_memory() (base/status.h),
 * which states the size. */
void *mst_alloc(size_t size);
void *mst_zalloc(size_t size);
void *mst_calloc(size_t count, size_t size); /* zeroed; NULL also when count * size overflows */
void *mst_realloc(void *block, size_t size); /* on failure the old block stays valid */
void *mst_alloc_lines(size_t size);          /* 64-byte aligned, not zeroed; freed with mst_free */
char *mst_strdup(const char *text);
char *mst_strndup(const char *text, size_t n);
char *mst_sprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *mst_vsprintf(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
void mst_free(void *block); /* NULL is fine */

/* Grows *block, an array of elements of size `size`, to hold at least `need`; *capacity counts elements.
 * Returns false, with everything unchanged, when memory is short. */
bool mst_grow(void *block, size_t *capacity, size_t need, size_t size);

/* Returns whether all bits of n bytes are zero; -0.0 is not. */
bool mst_is_zero(const void *data, size_t n);

/* Zeroed pages, reserved lazily; NULL on failure. huge: with huge pages. */
void *mst_pages_reserve(size_t size, bool huge);
/* Same, with address space without access behind the pages, up to `reach` bytes from the start. Released with
 * mst_pages_release(pages, reach). */
void *mst_pages_reserve_guarded(size_t size, size_t reach, bool huge);
void mst_pages_release(void *pages, size_t size);
/* Makes the pages present now instead of at first touch; best effort: old kernels ignore it. */
void mst_pages_populate(void *pages, size_t size);

typedef struct mst_alloc_stats {
    uint64_t bytes, peak_bytes, blocks, calls;
} mst_alloc_stats;
void mst_alloc_stats_get(mst_alloc_stats *out);

/* Test hook: the k-th allocation from now (1-based) fails, once; 0 turns it off. */
void mst_alloc_fail_at(uint64_t k);

#endif
