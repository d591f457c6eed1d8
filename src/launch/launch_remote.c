/* Scripts for the other side; contract in launch_remote.h. */
#include "launch/launch_remote.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/core_dump.h"
#include "base/file.h"
#include "base/strings.h"

#define COPY_MAX ((size_t)256 << 20)
#define LINE_IN  57 /* bytes that make a line of 76 letters in base64 */

static mst_status script_status(const mst_string *script)
{
    return script->failed ? mst_fail_memory() : MST_OK;
}

/* One word for sh, whatever is in it: bytes that are not UTF-8 stay. */
static void script_add_quoted(mst_string *s, const char *text)
{
    mst_string_add(s, "'");
    for (const char *p = text; *p != '\0'; p++)
        if (*p == '\'')
            mst_string_add(s, "'\\''");
        else
            mst_string_addn(s, p, 1);
    mst_string_add(s, "'");
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

mst_status mst_random_secret(char out[MST_SECRET_DIGITS + 1])
{
    mst_core_dump_disable();
    return mst_random_hex(MST_SECRET_DIGITS / 2, out);
}

/* ---- words ---- */

mst_status mst_remote_argv(const char *command, const char *host, mst_text_list *out)
{
    TRY(mst_text_list_add_split(out, command));
    if (out->n == 0)
        return mst_fail(MST_EUSAGE, "--ssh: the command is empty");
    TRY(mst_text_list_add_all(out, (const char *const[]){host, "sh", NULL}));
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
static mst_status script_make(const mst_variable *variables, const char *const *argv, mst_string *out)
{
    char folder[4096];
    for (const mst_variable *v = variables; v->name != NULL; v++) {
        if (v->value == NULL)
            continue;
        mst_string_format(out, "%s=", v->name);
        script_add_quoted(out, v->value);
        mst_string_format(out, "; export %s\n", v->name);
    }
    if (getcwd(folder, sizeof folder) != NULL) {
        mst_string_add(out, "cd ");
        script_add_quoted(out, folder);
        mst_string_add(out, " 2>/dev/null || :\n");
    }
    mst_string_add(out, "p=");
    script_add_quoted(out, argv[0]);
    mst_string_add(
        out,
        "\n[ -x \"$p\" ] || p=$(command -v muster) || { echo 'muster: this host has neither '\"$p\"' nor "
        "muster on its PATH; --copy copies it' >&2; exit 1; }\n"
        "{ echo '" MST_REMOTE_STARTED "' >&2; exec \"$p\"");
    for (size_t i = 1; argv[i] != NULL; i++) {
        mst_string_add(out, " ");
        script_add_quoted(out, argv[i]);
    }
    mst_string_add(out, "; }\n"); /* read as a whole: what follows on standard input is the program's */
    return script_status(out);
}

/* The bytes in base64, in lines. */
static void script_add_base64(mst_string *s, const unsigned char *data, size_t n)
{
    unsigned char line[80];
    for (size_t i = 0; i < n; i += LINE_IN) {
        size_t part = n - i < LINE_IN ? n - i : LINE_IN;
        int length = EVP_EncodeBlock(line, data + i, (int)part);
        line[length] = '\n';
        mst_string_addn(s, (char *)line, (size_t)length + 1);
    }
}

mst_status mst_remote_copy_script(const char *program, const char *folder, mst_string *out)
{
    mst_status st;
    mst_map map = {0};
    TRY(mst_map_open(program, &map));
    if (map.size > COPY_MAX)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: larger than %zu bytes; it is not copied", program, COPY_MAX));
    mst_string_add(out, "umask 077\nd=");
    script_add_quoted(out, folder);
    /* mkdir fails if the folder exists, so that no other user can have prepared it. */
    mst_string_add(out, "\nmkdir \"$d\" || exit 1\ntrap 'rm -rf \"$d\"' EXIT\ntrap 'exit 1' HUP INT TERM\n"
                        "base64 -d >\"$d/muster\" <<'MUSTER_END' || exit 1\n");
    script_add_base64(out, map.data, map.size);
    mst_string_add(out, "MUSTER_END\nchmod 700 \"$d/muster\" || exit 1\necho '" MST_REMOTE_COPIED
                        "'\ncat >/dev/null\nexit 0\n");
    st = script_status(out);
out:
    mst_map_close(&map);
    return st;
}

mst_status mst_start_anywhere(mst_child *child, const char *ssh, const char *host, const char *secret,
                              const mst_variable *variables, const char *const *words)
{
    mst_status st;
    mst_text_list argv = {0}, env = {0};
    mst_string script = {0};
    mst_process_start start = {.argv = words, .secret = secret};
    if (ssh != NULL) {
        TRY_OUT(st, mst_remote_argv(ssh, host, &argv));
        TRY_OUT(st, script_make(variables, words, &script));
        start = (mst_process_start){.argv = (const char *const *)argv.items,
                                    .input = script.text,
                                    .n_input = script.size,
                                    .secret = secret,
                                    .by_channel = true};
    } else {
        TRY_OUT(st, mst_local_env(variables, &env));
        start.env = (const char *const *)env.items;
    }
    st = mst_child_start(child, &start);
out:
    mst_text_list_fini(&argv);
    mst_text_list_fini(&env);
    mst_string_fini(&script);
    return st;
}
