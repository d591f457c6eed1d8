/* The page's server over loopback: its answers and headers, events as they come, tokens and cookies, clients
 * that send nonsense, hang or come in crowds; and that it ends when it is told to. Left out where
 * libmicrohttpd is missing: then it only says so. */
#include "dash/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "unit/report/run_fixture.h"

#define DEADLINE_MS 60000
#define SHORT_S                                                                                              \
    4 /* timeout of a request that tests wait for; a busy machine delays whole requests by a second */

static char folder[64];

typedef struct site {
    mst_board *board;
    mst_http *http;
    pthread_t thread;
    atomic_bool stop;
    uint16_t port;
    mst_status st;
} site;

static void *serve(void *arg)
{
    site *s = arg;
    s->st = mst_http_run(s->http, &s->stop);
    return NULL;
}

/* False: this build has no server. */
static bool site_open(site *s, const char *token, unsigned timeout_s)
{
    mst_text_list paths = {0};
    mst_http_options o = {.listen = {.host = "127.0.0.1"}, .token = token, .timeout_s = timeout_s};
    *s = (site){0};
    assert_int_equal(mst_text_list_add(&paths, folder), MST_OK);
    assert_int_equal(mst_board_new(&paths, true, &s->board), MST_OK);
    mst_text_list_fini(&paths);
    mst_status st = mst_http_new(s->board, &o, &s->http);
    if (st == MST_EUNSUPPORTED) {
        assert_non_null(strstr(mst_error_text(), "built without libmicrohttpd"));
        mst_board_destroy(s->board);
        return false;
    }
    assert_int_equal(st, MST_OK);
    const char *colon = strrchr(mst_http_url(s->http), ':');
    s->port = (uint16_t)atoi(colon + 1);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    return true;
}

static void site_close(site *s)
{
    uint64_t begun = mst_now_ns();
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    assert_int_equal(s->st, MST_OK);
    mst_http_destroy(s->http);
    mst_board_destroy(s->board);
    assert_true(mst_seconds_since(begun) < DEADLINE_MS / 1000);
}

static int dial(const site *s)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(s->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Reads until the text has come, or the end; true when it has. What was read is in out. */
static bool hear(int fd, const char *until, char *out, size_t size)
{
    size_t n = 0;
    uint64_t end = mst_now_ns() + DEADLINE_MS * MST_MS;
    out[0] = '\0';
    while (mst_now_ns() < end && n + 1 < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0)
            continue;
        ssize_t got = recv(fd, out + n, size - 1 - n, 0);
        if (got <= 0)
            return until == NULL;
        n += (size_t)got;
        out[n] = '\0';
        if (until != NULL && strstr(out, until) != NULL)
            return true;
    }
    return false;
}

static char answer[1 << 20];

/* One request on a connection of its own; the answer's status. */
static int get(const site *s, const char *path, const char *headers)
{
    char request[2048];
    int fd = dial(s), status = 0;
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n%s%sConnection: close\r\n\r\n", path,
             strstr(headers, "Host:") != NULL ? "" : "Host: localhost\r\n", headers);
    say(fd, request);
    assert_true(hear(fd, NULL, answer, sizeof answer));
    close(fd);
    assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
    return status;
}

static int make_folder(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    char path[300];
    strcpy(folder, "/tmp/muster-http-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/one", folder);
    fixture_write(path, &job);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

/* ---- tests ---- */

static void test_answers(void **state)
{
    (void)state;
    site s;
    if (!site_open(&s, NULL, 0))
        skip();
    assert_null(strstr(mst_http_url(s.http), "token"));
    assert_int_equal(get(&s, "/", ""), 200);
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none';"));
    assert_non_null(strstr(answer, "X-Content-Type-Options: nosniff"));
    assert_non_null(strstr(answer, "Cache-Control: no-store"));
    assert_non_null(strstr(answer, "<title>muster dash</title>"));
    assert_int_equal(get(&s, "/page.js", ""), 200);
    assert_non_null(strstr(answer, "text/javascript"));
    assert_int_equal(get(&s, "/metrics", ""), 200);
    assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
    assert_non_null(strstr(answer, "muster_run_steps_total{run=\"one\"} "));
    assert_int_equal(get(&s, "/state.json", ""), 200);
    json_t *json = json_loads(strstr(answer, "\r\n\r\n") + 4, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "runs")), 1);
    json_decref(json);
    assert_int_equal(get(&s, "/nothing", ""), 404);
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none';"));
    assert_int_equal(get(&s, "/../../../../etc/passwd", ""), 404);
    assert_int_equal(get(&s, "/%2e%2e/manifest.json", ""), 404);
    assert_int_equal(get(&s, "/", "Host: evil.example\r\n"), 421);
    assert_int_equal(get(&s, "/", "Content-Length: 5\r\n\r\nhello"), 200);
    site_close(&s);
}

static void test_methods(void **state)
{
    (void)state;
    static const char *const words[] = {"POST", "PUT", "DELETE", "OPTIONS", "HEAD", "CONNECT"};
    char request[256];
    site s;
    if (!site_open(&s, NULL, 0))
        skip();
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int fd = dial(&s), status = 0;
        snprintf(request, sizeof request,
                 "%s / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
                 words[i]);
        say(fd, request);
        hear(fd, NULL, answer, sizeof answer);
        close(fd);
        assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
        assert_int_equal(status, 405);
    }
    site_close(&s);
}

static void test_token(void **state)
{
    (void)state;
    site s;
    char cookie[300], header[400];
    if (!site_open(&s, "0123456789abcdefghij", 0))
        skip();
    assert_non_null(strstr(mst_http_url(s.http), "/?token=0123456789abcdefghij"));
    assert_int_equal(get(&s, "/", ""), 401);
    assert_null(strstr(answer, "muster_run"));
    assert_int_equal(get(&s, "/metrics", ""), 401);
    assert_int_equal(get(&s, "/metrics", "Authorization: Bearer 0123456789abcdefghij\r\n"), 200);
    assert_int_equal(get(&s, "/?token=wrong", ""), 401);
    assert_int_equal(get(&s, "/?token=0123456789abcdefghij", ""), 303);
    assert_non_null(strstr(answer, "Location: /\r\n"));
    const char *set = strstr(answer, "Set-Cookie: ");
    assert_non_null(set);
    assert_non_null(strstr(set, "HttpOnly; SameSite=Lax"));
    assert_int_equal(sscanf(set, "Set-Cookie: %250[^;]", cookie), 1);
    snprintf(header, sizeof header, "Cookie: other=1; %s\r\n", cookie);
    assert_int_equal(get(&s, "/", header), 200);
    assert_int_equal(get(&s, "/events.js", header), 404);
    site_close(&s);
}

static void test_events(void **state)
{
    (void)state;
    site s;
    char path[300];
    fixture_run local = fixture_local();
    if (!site_open(&s, NULL, 0))
        skip();
    int fd = dial(&s);
    say(fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(hear(fd, "\"table\":\"s/worker-2\"", answer, sizeof answer));
    assert_non_null(strstr(answer, "Content-Type: text/event-stream"));
    assert_non_null(strstr(answer, "event: begin\ndata: {}\n"));
    assert_non_null(strstr(answer, "\"name\":\"one\""));
    /* a run that begins while a page is open */
    snprintf(path, sizeof path, "%s/two", folder);
    fixture_write(path, &local);
    assert_true(hear(fd, "\"name\":\"two\"", answer, sizeof answer));
    mst_remove_tree(path);
    assert_true(hear(fd, "folder was removed", answer, sizeof answer));
    site_close(&s); /* with the listener still there */
    assert_true(hear(fd, NULL, answer, sizeof answer));
    close(fd);
}

static void test_nonsense(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET /?token=%zz&&&=%00 HTTP/1.1\r\nHost: localhost\r\nCookie: ;;;=;a\r\nConnection: close\r\n\r\n",
    };
    site s;
    if (!site_open(&s, "0123456789abcdefghij", SHORT_S))
        skip();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int fd = dial(&s);
        say(fd, texts[i]);
        shutdown(fd, SHUT_WR);
        hear(fd, NULL, answer, sizeof answer);
        assert_null(strstr(answer, " 200 "));
        close(fd);
    }
    /* headers without end */
    int fd = dial(&s);
    char line[1024];
    memset(line, 'a', sizeof line);
    memcpy(line, "X-", 2);
    memcpy(line + 1000, ": b\r\n", 6);
    send(fd, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
    for (int i = 0; i < 200; i++)
        if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0)
            break;
    close(fd);
    assert_int_equal(get(&s, "/", ""), 401);
    site_close(&s);
}

/* Those who say nothing are let go, and others are answered meanwhile. */
static void test_silence(void **state)
{
    (void)state;
    enum { SILENT = 40 };
    int silent[SILENT];
    site s;
    if (!site_open(&s, NULL, SHORT_S))
        skip();
    for (int i = 0; i < SILENT; i++)
        silent[i] = dial(&s);
    assert_int_equal(get(&s, "/metrics", ""), 200);
    for (int i = 0; i < SILENT; i++) { /* the timeout ends them */
        hear(silent[i], NULL, answer, sizeof answer);
        close(silent[i]);
    }
    site_close(&s);
}

/* Those who read nothing or are many: others are answered, and their places are free when they are gone. */
static void test_crowd(void **state)
{
    (void)state;
    enum { DEAF = 34 };
    int deaf[DEAF], refused = 0;
    site s;
    if (!site_open(&s, NULL, 3600))
        skip();
    for (int i = 0; i < DEAF; i++) {
        deaf[i] = dial(&s);
        say(deaf[i], "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    assert_int_equal(get(&s, "/metrics", ""), 200);
    for (int i = 0; i < DEAF; i++) { /* more listeners than there is room for get a sentence */
        assert_true(hear(deaf[i], "\r\n\r\n", answer, sizeof answer));
        refused += strstr(answer, "HTTP/1.1 503 ") != NULL;
    }
    assert_int_equal(refused, DEAF - 32);
    for (int i = 0; i < DEAF; i++)
        close(deaf[i]);
    /* their places are free again once the server has noticed */
    bool free_again = false;
    for (int i = 0; i < 100 && !free_again; i++) {
        int fd = dial(&s);
        say(fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_true(hear(fd, "\r\n\r\n", answer, sizeof answer));
        free_again = strstr(answer, "HTTP/1.1 200 ") != NULL;
        close(fd);
        if (!free_again)
            poll(NULL, 0, 100);
    }
    assert_true(free_again);
    site_close(&s);
}

/* Hundreds that begin a request and do not end it: others are answered before any timeout. */
static void test_slow_crowd(void **state)
{
    (void)state;
    enum { SLOW = 500 };
    static int slow[SLOW];
    site s;
    if (!site_open(&s, NULL, 3600))
        skip();
    for (int i = 0; i < SLOW; i++) {
        slow[i] = dial(&s);
        send(slow[i], "GET / HTTP/1.1\r\nHost: lo", 25, MSG_NOSIGNAL);
        if (i % 100 == 99)
            assert_int_equal(get(&s, "/metrics", ""), 200);
    }
    int fd = dial(&s);
    say(fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(hear(fd, "event: board", answer, sizeof answer));
    assert_true(hear(slow[0], NULL, answer, sizeof answer)); /* the oldest is closed */
    for (int i = 0; i < SLOW; i++)
        close(slow[i]);
    close(fd);
    site_close(&s);
}

/* A request that never ends, although bytes come all the time, is ended by the timeout. */
static void test_dribble(void **state)
{
    (void)state;
    site s;
    if (!site_open(&s, NULL, SHORT_S))
        skip();
    int fd = dial(&s);
    say(fd, "GET / HTTP/1.1\r\nX-Slow: ");
    uint64_t begun = mst_now_ns();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 100) == 0) {
        send(fd, "a", 1, MSG_NOSIGNAL);
        assert_true(mst_seconds_since(begun) < DEADLINE_MS / 1000);
    }
    close(fd);
    assert_int_equal(get(&s, "/", ""), 200);
    site_close(&s);
}

static void test_elsewhere(void **state)
{
    (void)state;
    mst_text_list paths = {0};
    mst_board *board = NULL;
    mst_http *http = NULL;
    mst_http_options o = {.listen = {.host = ""}};
    assert_int_equal(mst_text_list_add(&paths, folder), MST_OK);
    assert_int_equal(mst_board_new(&paths, true, &board), MST_OK);
    if (mst_http_new(board, &o, &http) == MST_OK) { /* a token is made where others can reach it */
        const char *token = strstr(mst_http_url(http), "?token=");
        assert_non_null(token);
        assert_int_equal(strlen(token), strlen("?token=") + 32);
    }
    mst_http_destroy(http);
    mst_board_destroy(board);
    mst_text_list_fini(&paths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),   cmocka_unit_test(test_methods),    cmocka_unit_test(test_token),
        cmocka_unit_test(test_events),    cmocka_unit_test(test_nonsense),   cmocka_unit_test(test_silence),
        cmocka_unit_test(test_crowd),     cmocka_unit_test(test_slow_crowd), cmocka_unit_test(test_dribble),
        cmocka_unit_test(test_elsewhere),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
