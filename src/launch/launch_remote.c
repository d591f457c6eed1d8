/* Scripts for the other side; contract in launch_remote.h. */
#include "launch/launch_remote.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

#define COPY_MAX ((size_t)256 << 20)
#define LINE_IN  57 /* bytes that make a line of 76 letters in base64 */

void mst_script_fini(mst_script *s)
{
    if (s->data != NULL)
        explicit_bzero(s->data, s->n);
    mst_free(s->data);
    *s = (mst_script){0};
}

static mst_status script_add(mst_script *s, const char *text, size_t n)
{
    if (!mst_grow(&s->data, &s->capacity, s->n + n + 1, 1))
        return mst_fail_memory();
    memcpy(s->data + s->n, text, n);
    s->n += n;
    s->data[s->n] = '\0';
    return MST_OK;
}

static mst_status script_add_text(mst_script *s, const char *text)
{
    return script_add(s, text, strlen(text));
}

/* One word for sh, whatever is in it. */
static mst_status script_add_quoted(mst_script *s, const char *text)
{
    TRY(script_add_text(s, "'"));
    for (const char *p = text; *p != '\0'; p++)
        TRY(*p == '\'' ? script_add_text(s, "'\\''") : script_add(s, p, 1));
    return script_add_text(s, "'");
}

/* ---- this process ---- */

mst_status mst_own_program(char *out, size_t size)
{
    const char *given = getenv("MUSTER_LAUNCH_BINARY");
    if (given != NULL && *given != '\0') {
        snprintf(out, size, "%s", given);
        return MST_OK;
    }
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return mst_fail(MST_EIO, "the path of this program cannot be read from /proc/self/exe");
    out[n] = '\0';
    return MST_OK;
}

mst_status mst_random_hex(size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte;
        if (getrandom(&byte, 1, 0) != 1)
            return mst_fail(MST_EIO, "the system returned no random bytes for a secret");
        snprintf(out + 2 * i, 3, "%02x", byte);
    }
    return MST_OK;
}

/* ---- words ---- */

mst_status mst_text_list_end(mst_text_list *list)
{
    TRY(mst_text_list_add(list, ""));
    list->n--;
    mst_free(list->items[list->n]);
    list->items[list->n] = NULL;
    return MST_OK;
}

mst_status mst_remote_argv(const char *command, const char *host, mst_text_list *out)
{
    mst_status st = MST_OK;
    char *rest = NULL, *words = mst_strdup(command);
    if (words == NULL)
        return mst_fail_memory();
    for (char *word = strtok_r(words, " \t\n", &rest); word != NULL && st == MST_OK;
         word = strtok_r(NULL, " \t\n", &rest))
        st = mst_text_list_add(out, word);
    mst_free(words);
    TRY(st);
    if (out->n == 0)
        return mst_fail(MST_EUSAGE, "--ssh: the command is empty");
    TRY(mst_text_list_add(out, host));
    TRY(mst_text_list_add(out, "sh"));
    return mst_text_list_end(out);
}

static bool env_names(const char *assignment, const char *name)
{
    size_t n = strlen(name);
    return strncmp(assignment, name, n) == 0 && assignment[n] == '=';
}

mst_status mst_local_env(const mst_variable *variables, mst_text_list *out)
{
    for (char **e = environ; *e != NULL; e++) {
        bool replaced = false;
        for (const mst_variable *v = variables; v->name != NULL; v++)
            replaced = replaced || env_names(*e, v->name);
        if (!replaced)
            TRY(mst_text_list_add(out, *e));
    }
    for (const mst_variable *v = variables; v->name != NULL; v++) {
        if (v->value == NULL)
            continue;
        char *text = mst_sprintf("%s=%s", v->name, v->value);
        mst_status st = text != NULL ? mst_text_list_add(out, text) : mst_fail_memory();
        mst_free(text);
        TRY(st);
    }
    return mst_text_list_end(out);
}

/* ---- scripts ---- */

/* Sets the variables, goes to this process's folder where there is one of that name, and becomes the program
 * argv[0]; where that is no program, `muster` along PATH. */
static mst_status script_make(const mst_variable *variables, const char *const *argv, mst_script *out)
{
    char folder[4096];
    for (const mst_variable *v = variables; v->name != NULL; v++) {
        if (v->value == NULL)
            continue;
        TRY(script_add_text(out, v->name));
        TRY(script_add_text(out, "="));
        TRY(script_add_quoted(out, v->value));
        TRY(script_add_text(out, "; export "));
        TRY(script_add_text(out, v->name));
        TRY(script_add_text(out, "\n"));
    }
    if (getcwd(folder, sizeof folder) != NULL) {
        TRY(script_add_text(out, "cd "));
        TRY(script_add_quoted(out, folder));
        TRY(script_add_text(out, " 2>/dev/null || :\n"));
    }
    TRY(script_add_text(out, "p="));
    TRY(script_add_quoted(out, argv[0]));
    TRY(script_add_text(
        out,
        "\n[ -x \"$p\" ] || p=$(command -v muster) || { echo 'muster: this host has neither '\"$p\"' nor "
        "muster on its PATH; --copy copies it' >&2; exit 1; }\n"
        "echo '" MST_REMOTE_STARTED "' >&2\nexec \"$p\""));
    for (size_t i = 1; argv[i] != NULL; i++) {
        TRY(script_add_text(out, " "));
        TRY(script_add_quoted(out, argv[i]));
    }
    return script_add_text(out, "\n");
}

/* The bytes in base64, in lines. */
static mst_status script_add_base64(mst_script *s, const unsigned char *data, size_t n)
{
    unsigned char line[80];
    if (!mst_grow(&s->data, &s->capacity, s->n + n / 3 * 4 + n / LINE_IN + 256, 1))
        return mst_fail_memory();
    for (size_t i = 0; i < n; i += LINE_IN) {
        size_t part = n - i < LINE_IN ? n - i : LINE_IN;
        int length = EVP_EncodeBlock(line, data + i, (int)part);
        line[length] = '\n';
        TRY(script_add(s, (char *)line, (size_t)length + 1));
    }
    return MST_OK;
}

mst_status mst_remote_copy_script(const char *program, const char *folder, mst_script *out)
{
    mst_status st;
    mst_map map = {0};
    TRY(mst_map_open(program, &map));
    if (map.size > COPY_MAX)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: larger than %zu bytes; it is not copied", program, COPY_MAX));
    /* mkdir fails if the folder exists, so that no other user can have prepared it. */
    TRY_OUT(st, script_add_text(out, "umask 077\nd="));
    TRY_OUT(st, script_add_quoted(out, folder));
    TRY_OUT(st, script_add_text(
                    out, "\nmkdir \"$d\" || exit 1\ntrap 'rm -rf \"$d\"' EXIT\ntrap 'exit 1' HUP INT TERM\n"
                         "base64 -d >\"$d/muster\" <<'MUSTER_END' || exit 1\n"));
    TRY_OUT(st, script_add_base64(out, map.data, map.size));
    TRY_OUT(st, script_add_text(out, "MUSTER_END\nchmod 700 \"$d/muster\" || exit 1\necho '" MST_REMOTE_COPIED
                                     "'\ncat >/dev/null\nexit 0\n"));
out:
    mst_map_close(&map);
    return st;
}

mst_status mst_start_anywhere(mst_child *child, const char *ssh, const char *host,
                              const mst_variable *variables, const char *const *words)
{
    mst_status st;
    mst_text_list argv = {0}, env = {0};
    mst_script script = {0};
    mst_process_start start = {.argv = words};
    if (ssh != NULL) {
        TRY_OUT(st, mst_remote_argv(ssh, host, &argv));
        TRY_OUT(st, script_make(variables, words, &script));
        start = (mst_process_start){.argv = (const char *const *)argv.items,
                                    .input = script.data,
                                    .n_input = script.n,
                                    .by_channel = true};
    } else {
        TRY_OUT(st, mst_local_env(variables, &env));
        start.env = (const char *const *)env.items;
    }
    st = mst_child_start(child, &start);
out:
    mst_text_list_fini(&argv);
    mst_text_list_fini(&env);
    mst_script_fini(&script);
    return st;
}
