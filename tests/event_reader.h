/* Event files read back record by record, with protobuf-c's code for unit/observe/event.proto, for tests. */
#ifndef MST_TESTS_EVENT_READER_H
#define MST_TESTS_EVENT_READER_H

#include "base/crc.h"
#include "event.pb-c.h"
#include "observe/bytes.h"

typedef MusterTest__Event event_message;
typedef MusterTest__Summary__Value value_message;

static inline uint64_t little(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The next event of `bytes` from *at on; NULL at the end. CRCs are checked. */
static inline event_message *next_event(const mst_bytes *bytes, size_t *at)
{
    if (*at == bytes->n)
        return NULL;
    const uint8_t *p = bytes->data + *at;
    assert_true(bytes->n - *at > 16);
    size_t n = little(p, 8);
    assert_true(n <= bytes->n - *at - 16);
    assert_int_equal(little(p + 8, 4), mst_crc_mask(mst_crc32c(0, p, 8)));
    assert_int_equal(little(p + 12 + n, 4), mst_crc_mask(mst_crc32c(0, p + 12, n)));
    *at += n + 16;
    event_message *e = muster_test__event__unpack(NULL, n, p + 12);
    assert_non_null(e);
    return e;
}

#endif
