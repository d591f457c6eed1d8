/* Who may look: addresses to listen at, Host headers, tokens; and what requests are answered with. */
#include "http/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "dash/routes.h"

static void test_address(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port; /* -1: refused */
    } cases[] = {
        {"127.0.0.1:80", "127.0.0.1", 80},
        {"0", "127.0.0.1", 0},
        {"8450", "127.0.0.1", 8450},
        {":9000", "", 9000},
        {"*:9000", "", 9000},
        {"[::1]:5", "::1", 5},
        {"node7.lab:65535", "node7.lab", 65535},
        {"", NULL, -1},
        {"host", NULL, -1},
        {"host:", NULL, -1},
        {"host:65536", NULL, -1},
        {"host:-1", NULL, -1},
        {"::1:5", NULL, -1},
        {"[::1]", NULL, -1},
        {"[::1:5", NULL, -1},
        {"host:8a", NULL, -1},
        {"a]:5", NULL, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_address a;
        mst_status st = mst_address_parse(cases[i].text, &a);
        if (cases[i].port < 0) {
            assert_int_equal(st, MST_EUSAGE);
            assert_non_null(strstr(mst_error_text(), "must be HOST:PORT, [IPV6]:PORT or a port"));
            continue;
        }
        assert_int_equal(st, MST_OK);
        assert_string_equal(a.host, cases[i].host);
        assert_int_equal(a.port, cases[i].port);
    }
    char long_name[400];
    mst_address a;
    memset(long_name, 'a', 300);
    strcpy(long_name + 300, ":1");
    assert_int_equal(mst_address_parse(long_name, &a), MST_EUSAGE);
}

static void test_listen(void **state)
{
    (void)state;
    mst_address here = {.host = "127.0.0.1"}, everywhere = {.host = ""};
    int fd = -1, second = -1;
    uint16_t port = 0;
    bool loopback = false;
    assert_int_equal(mst_listen(&here, &fd, &port, &loopback), MST_OK);
    assert_true(port > 0 && loopback);
    here.port = port;
    assert_int_equal(mst_listen(&here, &second, &port, &loopback), MST_EIO);
    assert_non_null(strstr(mst_error_text(), "is in use; choose another, or 0 for any that is free"));
    close(fd);
    assert_int_equal(mst_listen(&everywhere, &fd, &port, &loopback), MST_OK);
    assert_false(loopback);
    close(fd);
    mst_address nowhere = {.host = "no-such-host.invalid"};
    assert_int_equal(mst_listen(&nowhere, &fd, &port, &loopback), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "no such address"));
}

static void test_hosts(void **state)
{
    (void)state;
    mst_text_list names = {0};
    char own[256] = "";
    assert_int_equal(mst_text_list_add(&names, "proxy.example"), MST_OK);
    static const char *const good[] = {
        "127.0.0.1",  "127.0.0.1:8450", "localhost",     "LocalHost:1",       "localhost.:80", "[::1]",
        "[::1]:8450", "10.1.2.3:5",     "proxy.example", "PROXY.example:443", "[fe80::1]"};
    static const char *const bad[] = {"evil.example",
                                      "127.0.0.1.evil.example",
                                      "localhost.evil.example",
                                      "",
                                      ":80",
                                      "[::1",
                                      "[localhost]",
                                      "127.0.0.1:80:80",
                                      "127.0.0.1:x",
                                      "localhost/",
                                      "localhost@evil",
                                      "evil.example#localhost",
                                      "127.0.0.1 ",
                                      "[::1]x",
                                      "a b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!mst_host_allowed(good[i], &names))
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (mst_host_allowed(bad[i], &names))
            fail_msg("%s is allowed", bad[i]);
    assert_false(mst_host_allowed(NULL, &names));
    assert_false(mst_host_allowed("proxy.example", NULL));
    if (gethostname(own, sizeof own - 1) == 0 && strpbrk(own, " /") == NULL)
        assert_true(mst_host_allowed(own, NULL));
    mst_text_list_fini(&names);
}

static void test_tokens(void **state)
{
    (void)state;
    char a[33], b[33];
    assert_int_equal(mst_token_make(a), MST_OK);
    assert_int_equal(mst_token_make(b), MST_OK);
    assert_int_equal(strlen(a), 32);
    assert_string_not_equal(a, b);
    assert_int_equal(strspn(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), 32);
    assert_true(mst_token_equals(a, a));
    assert_false(mst_token_equals(a, b));
    assert_false(mst_token_equals(a, ""));
    assert_false(mst_token_equals(a, NULL));
    memcpy(b, a, 31);
    b[31] = '\0';
    assert_false(mst_token_equals(a, b));
    assert_string_equal(mst_bearer("Bearer xyz"), "xyz");
    assert_string_equal(mst_bearer("bearer   xyz"), "xyz");
    assert_null(mst_bearer("Basic eHl6"));
    assert_null(mst_bearer("Bearer"));
    assert_null(mst_bearer(NULL));
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_token_file(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-token-XXXXXX", *token = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_file(path, "0123456789abcdef-_.\nmore\n");
    assert_int_equal(mst_token_read(path, &token), MST_OK);
    assert_string_equal(token, "0123456789abcdef-_.");
    mst_free(token);
    static const char *const bad[] = {"short\n", "", "0123456789abcdef with spaces\n",
                                      "0123456789abcdef\x01\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(path, bad[i]);
        assert_int_equal(mst_token_read(path, &token), MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), "its first line must be a token of 16 to 256"));
    }
    unlink(path);
    assert_int_not_equal(mst_token_read(path, &token), MST_OK);
}

/* ---- routes ---- */

static mst_decision ask(const char *token, const char *path, const char *query, const char *cookie,
                        const char *authorization)
{
    mst_guard guard = {.token = token};
    mst_request r = {.method = "GET",
                     .path = path,
                     .host = "127.0.0.1:8450",
                     .token = query,
                     .cookie = cookie,
                     .authorization = authorization};
    return mst_route_request(&guard, &r);
}

static void test_routes(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        mst_route route;
        int status;
    } cases[] = {
        {"/", MST_ROUTE_ASSET, 200},          {"/page.js", MST_ROUTE_ASSET, 200},
        {"/plot.js", MST_ROUTE_ASSET, 200},   {"/page.css", MST_ROUTE_ASSET, 200},
        {"/uplot.js", MST_ROUTE_ASSET, 200},  {"/uplot.css", MST_ROUTE_ASSET, 200},
        {"/icon.svg", MST_ROUTE_ASSET, 200},  {"/events", MST_ROUTE_EVENTS, 200},
        {"/metrics", MST_ROUTE_METRICS, 200}, {"/state.json", MST_ROUTE_STATE, 200},
        {"", MST_ROUTE_REFUSED, 404},         {"/../../etc/passwd", MST_ROUTE_REFUSED, 404},
        {"/events/", MST_ROUTE_REFUSED, 404}, {"//", MST_ROUTE_REFUSED, 404},
        {"/PAGE.js", MST_ROUTE_REFUSED, 404}, {"/manifest.json", MST_ROUTE_REFUSED, 404},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_decision d = ask(NULL, cases[i].path, NULL, NULL, NULL);
        assert_int_equal(d.route, cases[i].route);
        assert_int_equal(d.status, cases[i].status);
        assert_true((d.route == MST_ROUTE_ASSET) == (d.asset != NULL));
        assert_true((d.route == MST_ROUTE_REFUSED) == (d.message != NULL));
    }
    for (const mst_asset *a = mst_assets; a->path != NULL; a++) {
        assert_true(a->size > 10);
        assert_int_equal(a->path[0], '/');
    }
}

static void test_methods_and_hosts(void **state)
{
    (void)state;
    mst_guard guard = {0};
    mst_request r = {.method = "POST", .path = "/", .host = "localhost"};
    assert_int_equal(mst_route_request(&guard, &r).status, 405);
    r.method = "HEAD";
    assert_int_equal(mst_route_request(&guard, &r).status, 405);
    r.method = "GET";
    assert_int_equal(mst_route_request(&guard, &r).status, 200);
    r.host = "evil.example";
    assert_int_equal(mst_route_request(&guard, &r).status, 421);
    assert_non_null(strstr(mst_route_request(&guard, &r).message, "--allow-host"));
    r.host = NULL;
    assert_int_equal(mst_route_request(&guard, &r).status, 421);
    static const struct {
        const char *origin, *host;
        int status;
    } origins[] = {
        {"http://localhost:8450", "localhost:8450", 200},
        {"https://127.0.0.1", "127.0.0.1", 200},
        {"http://localhost:8451", "localhost:8450", 403},
        {"http://evil.example", "localhost", 403},
        {"null", "localhost", 403},
        {"", "localhost", 403},
        {"file://localhost", "localhost", 403},
    };
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        r.origin = origins[i].origin;
        r.host = origins[i].host;
        assert_int_equal(mst_route_request(&guard, &r).status, origins[i].status);
    }
}

static void test_guarded(void **state)
{
    (void)state;
    const char *token = "0123456789abcdef0123456789abcdef", *wrong = "0123456789abcdef0123456789abcdeg";
    static const char *const paths[] = {"/", "/page.js", "/events", "/metrics", "/state.json", "/nothing"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(ask(token, paths[i], NULL, NULL, NULL).status, 401);
        assert_int_equal(ask(token, paths[i], wrong, NULL, NULL).status, 401);
        assert_int_equal(ask(token, paths[i], NULL, wrong, NULL).status, 401);
        assert_int_equal(ask(token, paths[i], NULL, NULL, "Bearer x").status, 401);
        assert_int_not_equal(ask(token, paths[i], token, NULL, NULL).status, 401);
        assert_int_not_equal(ask(token, paths[i], NULL, token, NULL).status, 401);
        assert_int_not_equal(
            ask(token, paths[i], NULL, NULL, "Bearer 0123456789abcdef0123456789abcdef").status, 401);
    }
    assert_int_equal(ask(token, "/", token, NULL, NULL).route, MST_ROUTE_WELCOME);
    assert_int_equal(ask(token, "/", NULL, token, NULL).route, MST_ROUTE_ASSET);
    assert_int_equal(ask(token, "/metrics", token, NULL, NULL).route, MST_ROUTE_METRICS);
    assert_int_equal(ask(NULL, "/", token, NULL, NULL).route, MST_ROUTE_ASSET);
    assert_non_null(strstr(ask(token, "/", NULL, NULL, NULL).message, "A token is needed"));
}

static void test_policy(void **state)
{
    (void)state;
    assert_int_equal(strncmp(mst_content_policy, "default-src 'none';", 19), 0);
    assert_null(strstr(mst_content_policy, "unsafe"));
    assert_null(strstr(mst_content_policy, "http"));
    assert_null(strchr(mst_content_policy, '*'));
    for (const mst_asset *a = mst_assets; a->path != NULL; a++) {
        if (strncmp(a->path, "/uplot", 6) == 0)
            continue;
        /* nothing inline, nothing from elsewhere */
        assert_null(memmem(a->data, a->size, "src=\"http", 9));
        assert_null(memmem(a->data, a->size, "href=\"http", 10));
        assert_null(memmem(a->data, a->size, "@import", 7));
        assert_null(memmem(a->data, a->size, "innerHTML", 9));
        assert_null(memmem(a->data, a->size, " style=\"", 8));
        assert_null(memmem(a->data, a->size, " onclick", 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_listen),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_token_file),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_methods_and_hosts),
        cmocka_unit_test(test_guarded),
        cmocka_unit_test(test_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
