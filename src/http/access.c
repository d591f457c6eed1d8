/* Access to a web server (access.h). */
#include "http/access.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

#define BACKLOG 4096 /* a client beyond it tries again after a second; the system may have a lower limit */

/* ---- addresses ---- */

static bool access_parse_port(const char *text, uint16_t *out)
{
    unsigned value = 0;
    size_t n = strlen(text);
    if (n == 0 || n > 5)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    *out = (uint16_t)value;
    return value <= 65535;
}

mst_status mst_address_parse(const char *text, mst_address *out)
{
    mst_address a = {.host = "127.0.0.1"};
    const char *colon = strrchr(text, ':'), *from = text;
    size_t n;
    if (colon == NULL) {
        if (!access_parse_port(text, &a.port))
            goto bad;
        *out = a;
        return MST_OK;
    }
    n = (size_t)(colon - text);
    if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
        from++;
        n -= 2;
    } else if (memchr(text, ':', n) != NULL) {
        goto bad; /* ambiguous: which colon precedes the port? */
    }
    if (!access_parse_port(colon + 1, &a.port) || n >= sizeof a.host || memchr(from, '[', n) != NULL ||
        memchr(from, ']', n) != NULL)
        goto bad;
    memcpy(a.host, from, n);
    a.host[n] = '\0';
    if (strcmp(a.host, "*") == 0)
        a.host[0] = '\0';
    *out = a;
    return MST_OK;
bad:
    return mst_fail(MST_EUSAGE, "--listen %.100s: must be HOST:PORT, [IPV6]:PORT or a port", text);
}

typedef union bound_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} bound_address;

static bool access_is_loopback(const bound_address *a)
{
    return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr)
                                        : ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

static mst_status access_open_socket(const struct addrinfo *info, const mst_address *address, int *out)
{
    int on = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
        *out = fd;
        return MST_OK;
    }
    int reason = errno;
    if (fd >= 0)
        close(fd);
    if (reason == EADDRINUSE)
        return mst_fail(MST_EIO, "port %u is in use; choose another, or 0 for any that is free",
                        address->port);
    return mst_fail(MST_EIO, "cannot listen at %s:%u: %s", address->host, address->port, strerror(reason));
}

mst_status mst_listen(const mst_address *address, int *fd, uint16_t *port, bool *loopback)
{
    mst_status st = MST_OK;
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    bound_address got = {0};
    socklen_t size = sizeof got;
    int one = -1;
    snprintf(service, sizeof service, "%u", address->port);
    if (*address->host == '\0')
        hints.ai_family = AF_INET;
    int rc = getaddrinfo(*address->host != '\0' ? address->host : NULL, service, &hints, &found);
    if (rc != 0)
        return mst_fail(MST_EINPUT, "cannot listen at %s: no such address: %s", address->host,
                        gai_strerror(rc));
    TRY_OUT(st, access_open_socket(found, address, &one));
    if (getsockname(one, &got.any, &size) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "cannot listen at port %u: %s", address->port, strerror(errno)));
    *port = ntohs(got.any.sa_family == AF_INET6 ? got.v6.sin6_port : got.v4.sin_port);
    *loopback = access_is_loopback(&got);
    *fd = one;
    one = -1;
out:
    if (one >= 0)
        close(one);
    freeaddrinfo(found);
    return st;
}

char *mst_address_url(const mst_address *address, uint16_t port)
{
    char own[256] = "";
    const char *host = address->host;
    if (*host == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
        gethostname(own, sizeof own - 1); /* it listens on every interface: use the name of this host */
        host = own;
    }
    bool v6 = strchr(host, ':') != NULL;
    return mst_sprintf("http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

/* ---- names ---- */

/* The host of HOST, HOST:PORT, [V6] or [V6]:PORT; false: not such a text. */
static bool access_host_of(const char *header, char *out, size_t size, bool *v6)
{
    const char *from = header, *end;
    uint16_t ignored;
    *v6 = header[0] == '[';
    if (*v6) {
        from++;
        end = strchr(from, ']');
        if (end == NULL)
            return false;
    } else {
        end = from + strcspn(from, ":");
    }
    const char *rest = *v6 ? end + 1 : end;
    size_t n = (size_t)(end - from);
    if (n == 0 || n >= size || (*rest != '\0' && (*rest != ':' || !access_parse_port(rest + 1, &ignored))))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)from[i]) && strchr(*v6 ? ":." : ".-_", from[i]) == NULL)
            return false;
    memcpy(out, from, n);
    if (n > 1 && out[n - 1] == '.') /* a trailing dot has no meaning */
        n--;
    out[n] = '\0';
    return true;
}

bool mst_host_allowed(const char *header, const mst_text_list *names)
{
    char host[256], own[256] = "";
    unsigned char address[16];
    bool v6;
    if (header == NULL || !access_host_of(header, host, sizeof host, &v6))
        return false;
    if (inet_pton(v6 ? AF_INET6 : AF_INET, host, address) == 1)
        return true;
    if (v6)
        return false;
    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (gethostname(own, sizeof own - 1) == 0 && *own != '\0' && strcasecmp(host, own) == 0)
        return true;
    for (size_t i = 0; names != NULL && i < names->n; i++)
        if (strcasecmp(host, names->items[i]) == 0)
            return true;
    return false;
}

bool mst_origin_allowed(const char *origin, const char *host)
{
    if (origin == NULL)
        return true;
    const char *name = strncmp(origin, "http://", 7) == 0    ? origin + 7
                       : strncmp(origin, "https://", 8) == 0 ? origin + 8 /* of a TLS proxy */
                                                             : NULL;
    return name != NULL && host != NULL && strcasecmp(name, host) == 0;
}

/* ---- tokens ---- */

mst_status mst_token_make(char out[33])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t bytes[32];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return mst_fail(MST_EIO, "cannot generate a token: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        out[i] = digits[bytes[i] & 63];
    out[32] = '\0';
    return MST_OK;
}

mst_status mst_token_read(const char *path, char **out)
{
    char *text = NULL;
    size_t size;
    struct stat info;
    TRY(mst_file_read_all(path, 64 << 10, &text, &size));
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        mst_warn("%s: the token can be read by others; run chmod 600 on the file", path);
    size_t n = strcspn(text, "\r\n"), good = 0;
    while (good < n && (isalnum((unsigned char)text[good]) || strchr("-_.", text[good]) != NULL))
        good++;
    if (n < MST_TOKEN_MIN || n > MST_TOKEN_MAX || good < n) {
        mst_free(text);
        return mst_fail(MST_EINPUT,
                        "%s: its first line must be a token of %d to %d letters, digits, '-', '_' or '.'",
                        path, MST_TOKEN_MIN, MST_TOKEN_MAX);
    }
    text[n] = '\0';
    *out = text;
    return MST_OK;
}

mst_status mst_token_require(const char *given, bool loopback, char **out)
{
    char made[33];
    *out = NULL;
    if (given == NULL && loopback)
        return MST_OK;
    if (given == NULL)
        TRY(mst_token_make(made));
    *out = mst_strdup(given != NULL ? given : made);
    return *out != NULL ? MST_OK : mst_fail_memory();
}

bool mst_token_equals(const char *token, const char *given)
{
    size_t n = strlen(token);
    return given != NULL && strlen(given) == n && CRYPTO_memcmp(token, given, n) == 0;
}

const char *mst_bearer(const char *header)
{
    if (header == NULL || strncasecmp(header, "Bearer ", 7) != 0)
        return NULL;
    header += 7;
    while (*header == ' ')
        header++;
    return header;
}

bool mst_token_admits(const char *token, const char *query, const char *cookie, const char *authorization)
{
    if (token == NULL)
        return true;
    bool by_query = mst_token_equals(token, query), by_cookie = mst_token_equals(token, cookie),
         by_header = mst_token_equals(token, mst_bearer(authorization));
    return by_query || by_cookie || by_header;
}

mst_access mst_guard_check(const mst_guard *guard, const mst_request *r)
{
    if (!mst_host_allowed(r->host, guard->names))
        return MST_ACCESS_HOST;
    if (!mst_origin_allowed(r->origin, r->host))
        return MST_ACCESS_ORIGIN;
    return mst_token_admits(guard->token, r->token, r->cookie, r->authorization) ? MST_ACCESS_OK
                                                                                 : MST_ACCESS_TOKEN;
}
