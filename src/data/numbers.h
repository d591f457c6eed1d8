/* Numbers in text, parsed fast and checked: the inner loops of the text formats.
 *
 * Eight characters are looked at in one 64-bit word (little-endian): which of them are digits, and what they
 * are worth, without a loop or a branch per digit. Functions whose name ends in 8 read 8 bytes wherever they
 * are pointed; the caller has checked that they are there. The others stay within [p, end).
 *
 * Decimals: a mantissa below 2^53 and a power of ten up to 10^22 are both exact in double, so one
 * multiplication or division rounds correctly. Anything longer goes to strtod in a form that no locale
 * changes. Neither "nan" nor "inf" is a number here. */
#ifndef MST_DATA_NUMBERS_H
#define MST_DATA_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t mst_load8(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Number of leading digits in the word's characters: 0 to 8. */
static inline unsigned mst_digits_count8(uint64_t word)
{
    uint64_t t = word ^ 0x3030303030303030u;
    /* A digit leaves 0..9, which 0x76 keeps below 0x80; a carry out of a byte only disturbs characters after
     * it. */
    uint64_t others = ((t + 0x7676767676767676u) | t) & 0x8080808080808080u;
    return others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* The number that the first n (1 to 8) characters of the word spell; they are digits. */
static inline uint32_t mst_digits_value8(uint64_t word, unsigned n)
{
    uint64_t t = (word & 0x0f0f0f0f0f0f0f0fu) << (8 * (8 - n));
    t = t * 10 + (t >> 8); /* pairs, in bytes 0, 2, 4, 6 */
    return (uint32_t)((((t & 0x000000ff000000ffu) * 0x000f424000000064u) +
                       (((t >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u)) >>
                      32);
}

/* An unsigned whole number at p: returns where it ends, NULL when there is no digit or it exceeds 64 bits. */
static inline const uint8_t *mst_number_unsigned(const uint8_t *p, const uint8_t *end, uint64_t *out)
{
    const uint8_t *start = p;
    uint64_t value = 0;
    for (; p < end && (unsigned)(*p - '0') < 10; p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, *p - (uint64_t)'0', &value))
            return NULL;
    *out = value;
    return p > start ? p : NULL;
}

/* A whole number with an optional sign that fits 64 bits: returns where it ends, or NULL. */
static inline const uint8_t *mst_number_signed(const uint8_t *p, const uint8_t *end, int64_t *out)
{
    bool negative = p < end && *p == '-';
    uint64_t value;
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    p = mst_number_unsigned(p, end, &value);
    if (p == NULL || value > INT64_MAX)
        return NULL;
    *out = negative ? -(int64_t)value : (int64_t)value;
    return p;
}

static const double mst_powers_of_ten[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                             1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                             1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* A decimal number at p, as in [+-]12.5e-3: returns where it ends, NULL when there is none. Too large for
 * double: infinity, which the caller refuses like numbers too large for float. */
static inline const uint8_t *mst_number_real(const uint8_t *p, const uint8_t *end, double *out)
{
    enum { KEPT = 40 }; /* significant digits passed on; more cannot change a float */
    char digits[KEPT + 32];
    int n = 0;
    int64_t exponent = 0;
    uint64_t mantissa = 0;
    bool any = false, after_point = false, negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    for (; p < end; p++) {
        unsigned d = (unsigned)(*p - '0');
        if (d < 10) {
            any = true;
            exponent -= after_point;
            if (d == 0 && n == 0)
                continue;
            if (n == KEPT) {
                exponent++;
                continue;
            }
            if (n < 18)
                mantissa = mantissa * 10 + d;
            digits[n++] = (char)*p;
        } else if (*p == '.' && !after_point) {
            after_point = true;
        } else {
            break;
        }
    }
    if (!any)
        return NULL;
    if (p < end && (*p == 'e' || *p == 'E')) {
        const uint8_t *q = p + 1;
        bool minus = q < end && *q == '-';
        int64_t e = 0;
        if (q < end && (*q == '-' || *q == '+'))
            q++;
        if (q == end || (unsigned)(*q - '0') >= 10)
            return NULL;
        for (; q < end && (unsigned)(*q - '0') < 10; q++)
            e = e < 100000 ? e * 10 + (*q - '0') : e;
        exponent += minus ? -e : e;
        p = q;
    }
    double value;
    if (n == 0) {
        value = 0.0;
    } else if (n <= 18 && mantissa <= (1ull << 53) && exponent >= -22 && exponent <= 22) {
        value = exponent < 0 ? (double)mantissa / mst_powers_of_ten[-exponent]
                             : (double)mantissa * mst_powers_of_ten[exponent];
    } else {
        int64_t bounded = exponent > 99999 ? 99999 : exponent < -99999 ? -99999 : exponent;
        snprintf(digits + n, sizeof digits - (size_t)n, "e%d", (int)bounded);
        value = strtod(digits, NULL);
    }
    *out = negative ? -value : value;
    return p;
}

/* Exactly 8 hex digits at p, either case; false when one is not. */
static inline bool mst_number_hex8(const uint8_t *p, uint32_t *out)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t w = mst_load8(p);
    if (w & tops)
        return false;
    uint64_t lower = w | 0x20 * ones;
    /* The top bit of each byte: at least / beyond the range's ends. No byte exceeds 0x7f, so nothing carries.
     */
    uint64_t digit = (w + (0x80 - '0') * ones) & ~(w + (0x80 - '9' - 1) * ones);
    uint64_t letter = (lower + (0x80 - 'a') * ones) & ~(lower + (0x80 - 'f' - 1) * ones);
    if (((digit | letter) & tops) != tops)
        return false;
    uint64_t t = (w & 0x0f * ones) + 9 * ((letter & tops) >> 7); /* 'a' & 15 is 1: plus 9 */
    t = (t << 4 | t >> 8) & 0x00ff00ff00ff00ffu;                 /* bytes 0, 2, 4, 6 */
    t = (t << 8 | t >> 16) & 0x0000ffff0000ffffu;
    *out = (uint32_t)(t << 16 | t >> 32);
    return true;
}

/* 1 to 8 hex digits, either case, that fill [p, end); false otherwise. */
static inline bool mst_number_hex(const uint8_t *p, const uint8_t *end, uint32_t *out)
{
    uint32_t value = 0;
    if (p == end || end - p > 8)
        return false;
    for (; p < end; p++) {
        uint8_t c = *p | 0x20;
        if ((unsigned)(*p - '0') < 10)
            value = value << 4 | (uint32_t)(*p - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint32_t)(c - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

#endif
