/* `muster completion bash`: a completion script made from the command and option tables.
 *
 * The script finds the words that name the command ("data gen criteo"), and for each such path knows the
 * words that may follow, the options, and what kind of value each option takes. */
#include <string.h>

#include "base/version.h"
#include "cli/cli.h"
#include "data/format.h"
#include "data/write.h"

/* Words separated by '|' as words separated by blanks. */
static void print_words(const char *words)
{
    for (; *words != '\0'; words++)
        putchar(*words == '|' ? ' ' : *words);
}

static void print_options(const mst_option *const *tables)
{
    for (; tables != NULL && *tables != NULL; tables++) {
        for (const mst_option *row = *tables; row->name != NULL; row++) {
            bool on =
                row->type == MST_OPTION_FLAG && row->fallback != NULL && strcmp(row->fallback, "true") == 0;
            printf(" --%s%s", on ? "no-" : "", row->name);
        }
    }
}

/* Lines "PATH") words=... options=... ;; for every command. */
static void print_paths(const char *path, const mst_command *const *commands)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        const mst_command *c = commands[i];
        char name[128];
        snprintf(name, sizeof name, "%s%s", path, c->name);
        printf("    '%s') words='", name);
        for (size_t k = 0; c->commands != NULL && c->commands[k] != NULL; k++)
            printf("%s%s", k ? " " : "", c->commands[k]->name);
        if (c->words != NULL)
            print_words(c->words);
        printf("' options='--help");
        print_options(c->tables);
        printf("' ;;\n");
        if (c->commands != NULL) {
            strncat(name, " ", sizeof name - strlen(name) - 1);
            print_paths(name, c->commands);
        }
    }
}

static void print_format_names(void)
{
    printf("auto");
    for (size_t i = 0; mst_formats[i] != NULL; i++)
        printf(" %s", mst_formats[i]->name);
    printf(" idx cache");
}

static void print_writer_names(void)
{
    for (size_t i = 0; mst_row_writers[i] != NULL; i++)
        printf("%s%s", i ? " " : "", mst_row_writers[i]->name);
}

/* Lines 'PATH --option') values=... ;; for options with a known set of values; flags, which take none, are
 * listed so that the word after them is not taken for a value. */
static void print_values(const char *path, const mst_command *const *commands)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        const mst_command *c = commands[i];
        char name[128];
        snprintf(name, sizeof name, "%s%s", path, c->name);
        for (const mst_option *const *table = c->tables; table != NULL && *table != NULL; table++) {
            for (const mst_option *row = *table; row->name != NULL; row++) {
                if (row->type == MST_OPTION_FLAG) {
                    printf("    '%s --%s' | '%s --no-%s') return 1 ;;\n", name, row->name, name, row->name);
                    continue;
                }
                printf("    '%s --%s') ", name, row->name);
                if (row->type == MST_OPTION_CHOICE) {
                    printf("values='");
                    print_words(row->choices);
                } else if (strcmp(row->name, "format") == 0) {
                    printf("values='");
                    print_format_names();
                } else if (strcmp(row->name, "to") == 0) {
                    printf("values='");
                    print_writer_names();
                } else if (row->type == MST_OPTION_TEXT || row->type == MST_OPTION_LIST) {
                    printf("values='<file>");
                } else {
                    printf("values='");
                }
                printf("' ;;\n");
            }
        }
        if (c->commands != NULL) {
            strncat(name, " ", sizeof name - strlen(name) - 1);
            print_values(name, c->commands);
        }
    }
}

static void print_bash(void)
{
    printf("# bash completion for muster %s; made by 'muster completion bash'.\n\n", mst_version());
    printf("# Sets words (what may follow) and options for the command path $1; fails when there is no such "
           "path.\n"
           "_muster_path() {\n"
           "  case $1 in\n"
           "    '') words='");
    for (size_t i = 0; mst_commands[i] != NULL; i++)
        printf("%s%s", i ? " " : "", mst_commands[i]->name);
    printf("' options='--help --version --log' ;;\n");
    print_paths("", mst_commands);
    printf("    *) return 1 ;;\n"
           "  esac\n"
           "}\n\n");
    printf("# Sets values for the option in $1 (\"PATH --option\"); fails when it takes none.\n"
           "_muster_values() {\n"
           "  case $1 in\n"
           "    ' --log') values='error warn info debug' ;;\n");
    print_values("", mst_commands);
    printf("    *) return 1 ;;\n"
           "  esac\n"
           "}\n\n");
    printf("_muster() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "  local path='' words='' options='' values='' i word skip=0\n"
           "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "    word=${COMP_WORDS[i]}\n"
           "    if ((skip)); then skip=0; continue; fi\n"
           "    case $word in\n"
           "      -*) values=''; _muster_values \"$path $word\" && skip=1 ;;\n"
           "      *) _muster_path \"${path:+$path }$word\" && path=${path:+$path }$word ;;\n"
           "    esac\n"
           "  done\n"
           "  _muster_path \"$path\"\n"
           "  values=''\n"
           "  COMPREPLY=()\n"
           "  if [[ $prev == -* ]] && _muster_values \"$path $prev\"; then\n"
           "    if [[ $values == '<file>' ]]; then\n"
           "      compopt -o filenames 2>/dev/null\n"
           "      COMPREPLY=($(compgen -f -- \"$cur\"))\n"
           "    else\n"
           "      COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
           "    fi\n"
           "  elif [[ $cur == -* ]]; then\n"
           "    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
           "  elif [[ -n $words ]]; then\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "  else\n"
           "    compopt -o filenames 2>/dev/null\n"
           "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
           "  fi\n"
           "}\n"
           "complete -F _muster muster\n");
}

static const mst_option table[] = {{.name = NULL}};

static mst_status run(int argc, char **argv)
{
    mst_option_group groups[] = {{.title = "Options", .table = table, .base = &groups}};
    mst_text_list shells = {0};
    bool helped;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_completion, groups, 1, argc, argv, &shells, &helped));
    if (helped)
        goto out;
    if (shells.n != 1 || strcmp(shells.items[0], "bash") != 0)
        st = mst_fail(MST_EUSAGE, "completion%s%s: name the shell; there is bash", shells.n > 0 ? " " : "",
                      shells.n > 0 ? shells.items[0] : "");
    else
        print_bash();
out:
    mst_text_list_fini(&shells);
    mst_options_fini(groups, 1);
    return st;
}

const mst_command mst_cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for bash",
    .run = run,
    .usage = "completion bash",
    .details = "Example: source <(muster completion bash)\n",
    .words = "bash",
};
