/* Any bytes to a listener or a dialer, split anywhere: neither accepts without the secret, and their answers
 * stay within bounds. Bit 1 of the first byte makes the bytes follow a valid HELLO or CHALLENGE; bits 3 to 5
 * are the seal and the need of TLS. */
#include <stdlib.h>
#include <string.h>

#include "net/handshake.h"

static void check(const mst_shake *h)
{
    if (h->state == MST_SHAKE_DONE || h->n_out > sizeof h->out || h->n_in > sizeof h->in)
        abort();
    if (memchr(h->text, 0, sizeof h->text) == NULL || (h->state == MST_SHAKE_FAILED && h->text[0] == '\0'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const mst_identity self = {.role = MST_ROLE_SERVER, .index = 3, .incarnation = 5, .job = "job"};
    mst_shake_options options = {.self = &self,
                                 .secret = "the secret",
                                 .version = "0.1.0",
                                 .address = "10.0.0.1:7000",
                                 .wire = MST_WIRE_VERSION};
    mst_shake h, friend;
    if (size < 2)
        return 0;
    bool dialer = data[0] & 1;
    size_t part = 1 + data[1] % 64;
    options.seal = (mst_seal_kind)((data[0] >> 3 & 3) % 3);
    options.needs_tls = !dialer && data[0] & 32;
    if (mst_shake_init(&h, &options, dialer) != MST_OK)
        return 0;
    if (data[0] & 2) {
        options.needs_tls = false;
        if (mst_shake_init(&friend, &options, !dialer) != MST_OK)
            return 0;
        if (dialer)
            mst_shake_take(&friend, h.out, h.n_out);
        mst_shake_take(&h, friend.out, friend.n_out);
        if (h.state != (h.needs_tls ? MST_SHAKE_FAILED : MST_SHAKE_RUNNING) || h.n_out == 0)
            abort();
    }
    for (size_t at = 2; at < size && h.state == MST_SHAKE_RUNNING;) {
        size_t n = part < size - at ? part : size - at;
        size_t used = mst_shake_take(&h, data + at, n);
        if (used > n || (used < n && h.state == MST_SHAKE_RUNNING))
            abort();
        at += used;
        check(&h);
        if (data[0] & 4)
            h.n_out = 0;
    }
    return 0;
}
