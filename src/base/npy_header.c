/* Headers of .npy files; contract in npy_header.h.
 *
 * A file is the magic "\x93NUMPY", two bytes of version, the header's length (2 bytes in version 1, else 4),
 * the header, which is a Python dictionary in text with the keys descr, fortran_order and shape, and the
 * elements. The parser accepts only those three keys. The cursor never passes its end: every access goes
 * through peek. */
#include "base/npy_header.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 40
#define SIDE_MAX ((uint64_t)1 << 40)

typedef struct cursor {
    const char *path;
    const char *at, *end;
} cursor;

static mst_status npy_broken(const cursor *c, const char *what)
{
    return mst_fail(MST_EINPUT, "%s: the header of the .npy file %s; write it again with numpy.save", c->path,
                    what);
}

/* The next character that is not a blank, without taking it; '\0' at the end. */
static char npy_peek(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
    return c->at < c->end ? *c->at : '\0';
}

static bool npy_take(cursor *c, char wanted)
{
    if (wanted == '\0' || npy_peek(c) != wanted)
        return false;
    c->at++;
    return true;
}

/* 'text' or "text". */
static bool npy_take_text(cursor *c, char out[WORD_MAX])
{
    char quote = npy_peek(c);
    size_t n = 0;
    if (quote != '\'' && quote != '"')
        return false;
    for (c->at++; c->at < c->end && *c->at != quote; c->at++) {
        if (n + 1 >= WORD_MAX || !isprint((unsigned char)*c->at))
            return false;
        out[n++] = *c->at;
    }
    out[n] = '\0';
    return npy_take(c, quote);
}

/* True, False. */
static bool take_word(cursor *c, char out[WORD_MAX])
{
    size_t n = 0;
    npy_peek(c);
    for (; c->at < c->end && isalpha((unsigned char)*c->at); c->at++) {
        if (n + 1 >= WORD_MAX)
            return false;
        out[n++] = *c->at;
    }
    out[n] = '\0';
    return n > 0;
}

static bool take_number(cursor *c, uint64_t *out)
{
    uint64_t value = 0;
    if (!isdigit((unsigned char)npy_peek(c)))
        return false;
    for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++) {
        value = value * 10 + (uint64_t)(*c->at - '0');
        if (value > SIDE_MAX)
            return false;
    }
    *out = value;
    return true;
}

/* (3, 4), (3,), () */
static mst_status read_shape(cursor *c, mst_npy_shape *out)
{
    if (!npy_take(c, '('))
        return npy_broken(c, "has no shape in parentheses");
    for (out->n_dims = 0; !npy_take(c, ')'); out->n_dims++) {
        uint64_t side;
        if (!take_number(c, &side))
            return npy_broken(c, "has a shape that is not a list of numbers below 2^40");
        if (out->n_dims < MST_NPY_DIMS)
            out->dims[out->n_dims] = side;
        if (!npy_take(c, ',') && npy_peek(c) != ')')
            return npy_broken(c, "has a shape that does not end");
    }
    return MST_OK;
}

static mst_status read_dtype(cursor *c, mst_npy_shape *out)
{
    if (npy_peek(c) == '[')
        return mst_fail(MST_EINPUT, "%s: holds records, not numbers; save one field as float32", c->path);
    if (!npy_take_text(c, out->descr))
        return npy_broken(c, "has no dtype in quotes");
    const char *type = out->descr + (strchr("<>|=", out->descr[0]) != NULL && out->descr[0] != '\0');
    static const char *const known[] = {"f4", "f8", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i]) == 0) {
            snprintf(out->type, sizeof out->type, "%s", type);
            out->item = (uint32_t)(type[1] - '0');
        }
    out->little = out->descr[0] != '>' || out->item == 1;
    return MST_OK;
}

static mst_status read_order(cursor *c, mst_npy_shape *out)
{
    char word[WORD_MAX];
    if (!take_word(c, word) || (strcmp(word, "True") != 0 && strcmp(word, "False") != 0))
        return npy_broken(c, "has neither True nor False for fortran_order");
    out->fortran = word[0] == 'T';
    return MST_OK;
}

static mst_status read_dictionary(cursor *c, mst_npy_shape *out)
{
    unsigned seen = 0;
    if (!npy_take(c, '{'))
        return npy_broken(c, "does not begin with {");
    while (!npy_take(c, '}')) {
        char key[WORD_MAX];
        unsigned bit;
        if (!npy_take_text(c, key) || !npy_take(c, ':'))
            return npy_broken(c, "is not a dictionary of descr, fortran_order and shape");
        if (strcmp(key, "descr") == 0)
            bit = 1;
        else if (strcmp(key, "fortran_order") == 0)
            bit = 2;
        else if (strcmp(key, "shape") == 0)
            bit = 4;
        else
            return npy_broken(c, "has a key beside descr, fortran_order and shape");
        if ((seen & bit) != 0)
            return npy_broken(c, "has a key twice");
        seen |= bit;
        TRY(bit == 1 ? read_dtype(c, out) : bit == 2 ? read_order(c, out) : read_shape(c, out));
        if (!npy_take(c, ',') && npy_peek(c) != '}')
            return npy_broken(c, "is cut off");
    }
    if (seen != 7)
        return npy_broken(c, "lacks descr, fortran_order or shape");
    return npy_peek(c) == '\0' && c->at == c->end ? MST_OK : npy_broken(c, "continues after its dictionary");
}

mst_status mst_npy_shape_parse(const char *path, const uint8_t *data, size_t n, size_t most,
                               mst_npy_shape *out)
{
    mst_npy_shape header = {0};
    cursor c = {.path = path};
    if (n < MST_NPY_MAGIC_SIZE + 4 || memcmp(data, MST_NPY_MAGIC, MST_NPY_MAGIC_SIZE) != 0)
        return mst_fail(MST_EINPUT, "%s: is not a .npy file: it does not begin with the magic of numpy.save",
                        path);
    unsigned version = data[MST_NPY_MAGIC_SIZE];
    if (version < 1 || version > 3)
        return mst_fail(MST_EINPUT, "%s: is a .npy file of version %u; versions 1 to 3 are supported", path,
                        version);
    size_t begin = version == 1 ? MST_NPY_MAGIC_SIZE + 4 : MST_NPY_MAGIC_SIZE + 6;
    if (n < begin)
        return npy_broken(&c, "is cut off");
    uint64_t length = (uint64_t)data[8] | (uint64_t)data[9] << 8;
    if (version > 1)
        length |= (uint64_t)data[10] << 16 | (uint64_t)data[11] << 24;
    if (length > n - begin)
        return npy_broken(&c, n >= most ? "is too long" : "is cut off");
    c.at = (const char *)data + begin;
    c.end = c.at + length;
    TRY(read_dictionary(&c, &header));
    header.at = begin + length;
    *out = header;
    return MST_OK;
}
