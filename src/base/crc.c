/* CRC-32C over ISA-L. ISA-L's function works on the raw register: the inversions before and after, and
 * lengths beyond an int, are dealt with here. */
#include "base/crc.h"

#include <isa-l/crc.h>

#define PIECE ((size_t)1 << 30)

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
    return ~state;
}
