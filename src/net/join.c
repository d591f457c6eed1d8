/* Contract in join.h. */
#include "net/join.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

mst_status mst_join_init(mst_join *j, const mst_shake_options *options, bool dialer, mst_tls_keys *keys,
                         int fd)
{
    memset(j, 0, sizeof *j);
    TRY(mst_shake_init(&j->shake, options, dialer));
    j->keys = keys;
    j->fd = fd;
    return dialer && keys != NULL ? mst_tls_new(keys, fd, true, NULL, 0, &j->tls) : MST_OK;
}

void mst_join_fini(mst_join *j)
{
    mst_tls_destroy(j->tls);
    j->tls = NULL;
}

/* ---- the stream of the handshake ---- */

static ssize_t join_read(mst_join *j)
{
    struct iovec room = {.iov_base = j->bytes, .iov_len = sizeof j->bytes};
    return j->tls != NULL ? mst_tls_readv(j->tls, &room, 1)
                          : recv(j->fd, j->bytes, sizeof j->bytes, MSG_DONTWAIT);
}

/* A new socket takes these few bytes; one that does not is not worth waiting for. */
static bool join_answer(mst_join *j)
{
    struct iovec out = {.iov_base = j->shake.out, .iov_len = j->shake.n_out};
    size_t n = j->shake.n_out;
    j->shake.n_out = 0;
    if (n == 0)
        return true;
    if (j->tls != NULL)
        return mst_tls_writev(j->tls, &out, 1) == (ssize_t)n && !mst_tls_has_unsent(j->tls);
    return send(j->fd, j->shake.out, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

static mst_join_state join_take(mst_join *j, const void *bytes, size_t n)
{
    j->at = mst_shake_take(&j->shake, bytes, n);
    j->left = n - j->at;
    bool answered = join_answer(j);
    if (j->shake.state == MST_SHAKE_FAILED)
        return MST_JOIN_FAILED;
    if (!answered)
        return MST_JOIN_CLOSED;
    return j->shake.state == MST_SHAKE_DONE ? MST_JOIN_DONE : MST_JOIN_RUNNING;
}

/* ---- TLS ---- */

/* The handshake runs inside TLS, which makes the seals of frames unnecessary. */
static mst_join_state join_begin_inside(mst_join *j)
{
    j->shaken = true;
    return join_answer(j) ? MST_JOIN_RUNNING : MST_JOIN_CLOSED;
}

static mst_join_state join_shake_tls(mst_join *j)
{
    switch (mst_tls_shake(j->tls)) {
    case MST_TLS_RUNNING:
        return MST_JOIN_RUNNING;
    case MST_TLS_DONE:
        return join_begin_inside(j);
    case MST_TLS_REFUSED:
        mst_shake_fail_secret(&j->shake);
        return MST_JOIN_FAILED;
    case MST_TLS_BROKEN:
        mst_shake_fail_tls(&j->shake);
        return MST_JOIN_FAILED;
    default:
        return MST_JOIN_CLOSED;
    }
}

/* A listener's first bytes: j->n_first of them wait for the rest of a ClientHello. *n is 0 when they are
 * TLS. */
static mst_join_state join_take_first(mst_join *j, const uint8_t *bytes, size_t n)
{
    size_t take = n < sizeof j->first - j->n_first ? n : sizeof j->first - j->n_first;
    memcpy(j->first + j->n_first, bytes, take);
    j->n_first += take;
    int length = take == n ? mst_tls_hello_length(j->first, j->n_first) : -1;
    if (length < 0)
        return join_take(j, j->first, j->n_first); /* not a handshake either */
    if (length == 0)
        return MST_JOIN_RUNNING;
    mst_shake_inside_tls(&j->shake);
    if (mst_tls_new(j->keys, j->fd, false, j->first, j->n_first, &j->tls) != MST_OK) {
        errno = ENOMEM;
        return MST_JOIN_CLOSED;
    }
    return join_shake_tls(j);
}

static bool join_may_be_tls(const mst_join *j, const uint8_t *bytes, size_t n)
{
    return !j->shake.dialer && j->keys != NULL && j->tls == NULL &&
           (j->n_first > 0 || (j->shake.n_in == 0 && !j->shake.named && mst_tls_hello_length(bytes, n) >= 0));
}

mst_join_state mst_join_step(mst_join *j)
{
    mst_join_state state = MST_JOIN_RUNNING;
    if (j->tls != NULL && !j->shaken)
        state = join_shake_tls(j);
    else if (j->shake.dialer && j->tls == NULL && j->shake.n_out > 0)
        return join_answer(j) ? MST_JOIN_RUNNING : MST_JOIN_CLOSED;
    while (state == MST_JOIN_RUNNING && (j->tls == NULL || j->shaken)) {
        ssize_t n = join_read(j);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            errno = n == 0 ? 0 : errno;
            return MST_JOIN_CLOSED;
        }
        state = join_may_be_tls(j, j->bytes, (size_t)n) ? join_take_first(j, j->bytes, (size_t)n)
                                                        : join_take(j, j->bytes, (size_t)n);
        if (j->tls == NULL)
            break;
    }
    return state;
}
