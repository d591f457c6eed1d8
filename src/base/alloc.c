/* Counted, failable allocation; contract in alloc.h. Sizes come from malloc_usable_size, so blocks carry no
 * header. */
#include "base/alloc.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"

static struct {
    atomic_uint_fast64_t bytes, peak_bytes, blocks, calls;
    atomic_uint_fast64_t fail_at; /* call number that fails; 0: none */
} g_alloc;

static _Thread_local size_t
    g_failed_size; /* of the allocation that failed last on this thread; 0: none did */

static void *alloc_failed(size_t size)
{
    g_failed_size = size;
    return NULL;
}

/* Counts an allocation of `size` bytes; true when a test makes it fail. */
static bool alloc_begin(size_t size)
{
    uint64_t call = atomic_fetch_add_explicit(&g_alloc.calls, 1, memory_order_relaxed) + 1;
    bool fails = call == atomic_load_explicit(&g_alloc.fail_at, memory_order_relaxed);
    if (fails)
        alloc_failed(size);
    return fails;
}

static void *alloc_count(void *block, size_t asked)
{
    if (block == NULL)
        return alloc_failed(asked);
    uint64_t size = malloc_usable_size(block);
    uint64_t now = atomic_fetch_add_explicit(&g_alloc.bytes, size, memory_order_relaxed) + size;
    uint64_t peak = atomic_load_explicit(&g_alloc.peak_bytes, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak_explicit(&g_alloc.peak_bytes, &peak, now,
                                                                memory_order_relaxed, memory_order_relaxed))
        ;
    atomic_fetch_add_explicit(&g_alloc.blocks, 1, memory_order_relaxed);
    return block;
}

static void alloc_uncount(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub_explicit(&g_alloc.bytes, malloc_usable_size(block), memory_order_relaxed);
    atomic_fetch_sub_explicit(&g_alloc.blocks, 1, memory_order_relaxed);
}

void *mst_alloc(size_t size)
{
    return alloc_begin(size) ? NULL : alloc_count(malloc(size ? size : 1), size);
}

void *mst_zalloc(size_t size)
{
    return mst_calloc(1, size);
}

void *mst_calloc(size_t n, size_t size)
{
    size_t total = size != 0 && n > SIZE_MAX / size ? SIZE_MAX : n * size;
    return alloc_begin(total) ? NULL : alloc_count(calloc(n ? n : 1, size ? size : 1), total);
}

void *mst_realloc(void *block, size_t size)
{
    if (alloc_begin(size))
        return NULL;
    size_t before = block ? malloc_usable_size(block) : 0;
    void *grown = realloc(block, size ? size : 1);
    if (grown == NULL)
        return alloc_failed(size);
    if (before) {
        atomic_fetch_sub_explicit(&g_alloc.bytes, before, memory_order_relaxed);
        atomic_fetch_sub_explicit(&g_alloc.blocks, 1, memory_order_relaxed);
    }
    return alloc_count(grown, size);
}

void *mst_alloc_lines(size_t size)
{
    void *block = NULL;
    if (alloc_begin(size))
        return NULL;
    return alloc_count(posix_memalign(&block, 64, size ? size : 1) == 0 ? block : NULL, size);
}

char *mst_strndup(const char *text, size_t n)
{
    size_t length = strnlen(text, n);
    char *copy = mst_alloc(length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *mst_strdup(const char *text)
{
    return mst_strndup(text, strlen(text));
}

char *mst_vsprintf(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : mst_alloc((size_t)length + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *mst_sprintf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mst_vsprintf(format, args);
    va_end(args);
    return text;
}

void mst_free(void *block)
{
    alloc_uncount(block);
    free(block);
}

bool mst_grow(void *block, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return true;
    size_t grown = *capacity + *capacity / 2;
    if (grown < need)
        grown = need;
    if (grown > SIZE_MAX / size) {
        alloc_failed(SIZE_MAX);
        return false;
    }
    void **slot = block;
    void *bigger = mst_realloc(*slot, grown * size);
    if (bigger == NULL)
        return false;
    *slot = bigger;
    *capacity = grown;
    return true;
}

bool mst_is_zero(const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t head = n < 16 ? n : 16;
    for (size_t i = 0; i < head; i++)
        if (p[i] != 0)
            return false;
    return memcmp(p, p + head, n - head) == 0; /* each byte equals the one 16 before it */
}

void *mst_pages_reserve(size_t size, bool huge)
{
    if (alloc_begin(size))
        return NULL;
    void *pages =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return alloc_failed(size);
    if (huge)
        madvise(pages, size, MADV_HUGEPAGE); /* advice: everything works without it */
    return pages;
}

void *mst_pages_reserve_guarded(size_t size, size_t reach, bool huge)
{
    if (alloc_begin(size))
        return NULL;
    void *pages = mmap(NULL, reach, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return alloc_failed(reach);
    if (mprotect(pages, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(pages, reach);
        return alloc_failed(size);
    }
    if (huge)
        madvise(pages, size, MADV_HUGEPAGE);
    return pages;
}

void mst_pages_populate(void *pages, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    madvise(pages, size, MADV_POPULATE_WRITE);
#else
    (void)pages;
    (void)size;
#endif
}

void mst_pages_release(void *pages, size_t size)
{
    if (pages != NULL)
        munmap(pages, size);
}

void mst_alloc_stats_get(mst_alloc_stats *out)
{
    out->bytes = atomic_load(&g_alloc.bytes);
    out->peak_bytes = atomic_load(&g_alloc.peak_bytes);
    out->blocks = atomic_load(&g_alloc.blocks);
    out->calls = atomic_load(&g_alloc.calls);
}

void mst_alloc_fail_at(uint64_t k)
{
    uint64_t calls = atomic_load(&g_alloc.calls);
    atomic_store(&g_alloc.fail_at, k == 0 ? 0 : calls + k);
}

mst_status(mst_fail_memory)(void) /* a macro for the analyzer */
{
    size_t size = g_failed_size;
    double used = (double)atomic_load(&g_alloc.bytes) * 1e-6;
    g_failed_size = 0;
    if (size == 0) /* another library's allocation */
        return mst_fail(MST_ENOMEM, "out of memory, with %.1f MB allocated", used);
    return mst_fail(MST_ENOMEM, "out of memory: cannot allocate %zu bytes beside %.1f MB", size, used);
}
