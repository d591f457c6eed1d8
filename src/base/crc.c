/* CRC-32C over ISA-L. ISA-L's function works on the raw register: the inversions before and after, and
 * lengths beyond an int, are dealt with here.
 *
 * ISA-L's AVX-512 code leaves the upper parts of the vector registers in use. SSE code that follows is slower
 * then (a request of 1,000 keys by 8%), so they are cleared here. */
#include "base/crc.h"

#include <isa-l/crc.h>
#include <string.h>

#define PIECE      ((size_t)1 << 30)
#define COPY_PIECE ((size_t)1 << 14)

static void crc_clear_registers(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper" ::: "memory");
#endif
}

uint32_t mst_crc32c(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *at = data;
    uint32_t state = ~crc;
    while (n > 0) {
        size_t piece = n < PIECE ? n : PIECE;
        state = crc32_iscsi((unsigned char *)at, (int)piece, state);
        at += piece;
        n -= piece;
    }
    crc_clear_registers();
    return ~state;
}

uint32_t mst_crc32c_copy(uint32_t crc, void *to, const void *from, size_t n)
{
    uint8_t *out = to;
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = n - at < COPY_PIECE ? n - at : COPY_PIECE;
        memcpy(out + at, (const uint8_t *)from + at, piece);
        crc = mst_crc32c(crc, out + at, piece);
    }
    return crc;
}
