/* `muster completion`: scripts for bash, zsh and fish, and the candidates that they offer.
 *
 * The scripts contain no names: they pass the words of the command line to `muster completion candidates`,
 * which prints candidates from the command and option tables, one per line with a tab and a description, or
 * "<file>" for file names. */
#include <string.h>

#include "base/version.h"
#include "cli/cli.h"
#include "data/format.h"
#include "data/write.h"

#define FILE_NAMES "<file>"

/* ---- candidates ---- */

/* The position after the words before the current one. */
typedef struct place {
    const mst_command *command;         /* NULL: before the first command */
    mst_call call;                      /* the options of the command */
    const mst_command *const *commands; /* that may follow; NULL: none */
    const char *value_of;               /* the option whose value the current word is, "--to"; NULL: none */
    bool launched, helping, words_only; /* after the -- of launch; after help; after another -- */
    size_t n_positionals;
} place;

static void completion_offer(const char *before, const char *name, const char *typed, const char *help)
{
    char line[256];
    snprintf(line, sizeof line, "%s%s", before, name);
    if (strncmp(line, typed, strlen(typed)) != 0)
        return;
    const char *end = help != NULL ? strstr(help, ". ") : NULL;
    int n = help == NULL ? 0 : end != NULL ? (int)(end - help) : (int)strcspn(help, "\n");
    n = n > 0 && help[n - 1] == '.' ? n - 1 : n;
    printf("%s\t%.*s\n", line, n < 100 ? n : 100, help != NULL ? help : "");
}

/* Each of the words separated by '|'. */
static void completion_offer_words(const char *words, const char *before, const char *typed)
{
    char word[128];
    for (; *words != '\0'; words += *words == '|') {
        size_t n = strcspn(words, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        completion_offer(before, word, typed, NULL);
        words += n;
    }
}

/* An option of the command by its word, with or without "=value"; NULL: none. */
static const mst_option *completion_find_option(const place *at, const char *word)
{
    size_t n = strcspn(word, "=");
    for (size_t g = 0; g < at->call.n_groups; g++)
        for (const mst_option *row = at->call.groups[g].table; row->name != NULL; row++)
            if (n == strlen(row->name) + 2 && strncmp(word + 2, row->name, n - 2) == 0)
                return row;
    return NULL;
}

static bool completion_is_option(const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2] != '\0';
}

static bool completion_takes_value(const place *at, const char *word)
{
    const mst_option *row = completion_find_option(at, word);
    if (!completion_is_option(word) || strchr(word, '=') != NULL)
        return false;
    return row != NULL ? row->type != MST_OPTION_FLAG : at->command == NULL && strcmp(word, "--log") == 0;
}

static void completion_offer_values(const place *at, const char *option, const char *before,
                                    const char *typed)
{
    const mst_option *row = completion_find_option(at, option);
    if (row == NULL && at->command == NULL)
        completion_offer_words("error|warn|info|debug", before, typed);
    if (row == NULL || row->type == MST_OPTION_FLAG)
        return;
    if (row->type == MST_OPTION_CHOICE) {
        completion_offer_words(row->choices, before, typed);
    } else if (strcmp(row->name, "format") == 0) {
        completion_offer_words("auto", before, typed);
        for (size_t i = 0; mst_data_kinds[i] != NULL; i++)
            completion_offer(before, mst_data_kinds[i]->name, typed, mst_data_kinds[i]->help);
    } else if (strcmp(row->name, "to") == 0) {
        for (size_t i = 0; mst_row_writers[i] != NULL; i++)
            completion_offer(before, mst_row_writers[i]->name, typed, NULL);
    } else if ((row->type == MST_OPTION_TEXT || row->type == MST_OPTION_LIST) &&
               (row->metavar == NULL || strstr(row->metavar, "FILE") != NULL ||
                strstr(row->metavar, "FOLDER") != NULL)) {
        puts(FILE_NAMES);
    }
}

static void completion_offer_options(const place *at, const char *typed)
{
    completion_offer("", "--help", typed, "print help and exit");
    if (at->command == NULL && !at->launched) {
        completion_offer("", "--version", typed, "print the version and exit");
        completion_offer("", "--log", typed, "how much to log");
    }
    for (size_t g = 0; g < at->call.n_groups; g++)
        for (const mst_option *row = at->call.groups[g].table; row->name != NULL; row++) {
            if (row->facts & at->call.groups[g].hidden)
                continue;
            bool on =
                row->type == MST_OPTION_FLAG && row->fallback != NULL && strcmp(row->fallback, "true") == 0;
            completion_offer(on ? "--no-" : "--", row->name, typed, row->help);
        }
}

/* Whether launch can start the command. */
static bool completion_is_launchable(const mst_command *command)
{
    return command == &mst_cmd_train || command == &mst_cmd_matmul;
}

static void completion_offer_commands(const place *at, const char *typed)
{
    for (size_t i = 0; at->commands[i] != NULL; i++)
        if (!at->launched || completion_is_launchable(at->commands[i]))
            completion_offer("", at->commands[i]->name, typed, at->commands[i]->summary);
    if (at->command == NULL && !at->launched && !at->helping)
        completion_offer("", "help", typed, "print the help of a command");
}

/* Without memory for them, the command has no options. */
static void completion_enter(place *at, const mst_command *command)
{
    mst_call_end(&at->call);
    (void)mst_call_begin(&at->call, command);
    at->command = command;
    at->commands = command->commands;
}

/* Handles a word that is neither an option nor its value. */
static void completion_follow(place *at, const char *word)
{
    if (at->command == NULL && !at->launched && !at->helping && strcmp(word, "help") == 0) {
        at->helping = true;
        return;
    }
    for (size_t i = 0; at->commands != NULL && at->commands[i] != NULL; i++)
        if (strcmp(at->commands[i]->name, word) == 0 &&
            (!at->launched || at->command != NULL || completion_is_launchable(at->commands[i]))) {
            completion_enter(at, at->commands[i]);
            return;
        }
    at->n_positionals++;
}

static void completion_read_words(place *at, int n, char **words)
{
    for (int i = 0; i < n; i++) {
        const char *word = words[i];
        if (at->words_only) {
            at->n_positionals++;
        } else if (strcmp(word, "--") == 0 && at->command == &mst_cmd_launch) {
            mst_call_end(&at->call);
            *at = (place){.commands = mst_commands, .launched = true};
        } else if (strcmp(word, "--") == 0) {
            at->words_only = true;
        } else if (i + 1 < n && completion_is_option(word) && strcmp(words[i + 1], "=") == 0) {
            at->value_of = i + 2 == n ? word : NULL; /* bash splits --to=x */
            i += 2;
        } else if (completion_takes_value(at, word)) {
            at->value_of = i + 1 == n ? word : NULL;
            i++;
        } else if (word[0] != '-') {
            completion_follow(at, word);
        }
    }
}

/* The last of the n words is the one to complete. */
static void completion_print_candidates(int n, char **words)
{
    place at = {.commands = mst_commands};
    const char *typed = n > 0 ? words[n - 1] : "";
    char option[128];
    completion_read_words(&at, n - 1, words);
    if (strcmp(typed, "=") == 0 && n > 1 && completion_is_option(words[n - 2])) {
        completion_offer_values(&at, words[n - 2], "", "");
    } else if (at.value_of != NULL) {
        completion_offer_values(&at, at.value_of, "", typed);
    } else if (!at.words_only && completion_is_option(typed) && strchr(typed, '=') != NULL) {
        snprintf(option, sizeof option, "%.*s", (int)(strchr(typed, '=') + 1 - typed), typed);
        completion_offer_values(&at, typed, option, typed);
    } else if (!at.words_only && typed[0] == '-' && !at.helping) {
        if (at.command == &mst_cmd_launch)
            completion_offer("", "--", typed, "then the train or matmul command to launch");
        completion_offer_options(&at, typed);
    } else if (at.commands != NULL && !at.words_only) {
        completion_offer_commands(&at, typed);
    } else if (at.command != NULL && at.command->words != NULL && at.n_positionals == 0) {
        completion_offer_words(at.command->words, "", typed);
    } else if (at.command == &mst_cmd_launch && !at.words_only) {
        completion_offer("", "--", typed, "then the train or matmul command to launch");
    } else if (!at.helping) {
        puts(FILE_NAMES);
    }
    mst_call_end(&at.call);
}

/* ---- scripts ---- */

static const char bash_script[] =
    "_muster() {\n"
    "  local line cur=${COMP_WORDS[COMP_CWORD]}\n"
    "  COMPREPLY=()\n"
    "  while IFS= read -r line; do\n"
    "    if [[ $line == '" FILE_NAMES "' ]]; then\n"
    "      compopt -o filenames 2>/dev/null\n"
    "      while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -f -- \"${cur#=}\")\n"
    "    else\n"
    "      COMPREPLY+=(\"${line%%$'\\t'*}\")\n"
    "    fi\n"
    "  done < <(\"${COMP_WORDS[0]/#\\~/$HOME}\" completion candidates \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
    "2>/dev/null)\n"
    "}\n"
    "complete -F _muster muster\n";

static const char zsh_script[] =
    "_muster() {\n"
    "  local line\n"
    "  local -a found\n"
    "  for line in \"${(@f)$(\"${words[1]/#\\~/$HOME}\" completion candidates \"${(@)words[2,CURRENT]}\" "
    "2>/dev/null)}\"; do\n"
    "    if [[ $line == '" FILE_NAMES "' ]]; then\n"
    "      [[ $PREFIX == --*=* ]] && compset -P '*='\n"
    "      _files && return\n"
    "    elif [[ -n $line ]]; then\n"
    "      found+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
    "    fi\n"
    "  done\n"
    "  (( $#found )) && _describe muster found\n"
    "}\n"
    "if [[ $funcstack[1] == _muster ]]; then _muster \"$@\"; else compdef _muster muster; fi\n";

static const char fish_script[] =
    "function __muster_candidates\n"
    "  set -l words (commandline -opc)\n"
    "  set -l current (commandline -ct)\n"
    "  for line in ($words[1] completion candidates $words[2..-1] \"$current\" 2>/dev/null)\n"
    "    if test \"$line\" = '" FILE_NAMES "'\n"
    "      set -l option (string match -r -- '^--[^=]*=' \"$current\")\n"
    "      for path in (__fish_complete_path (string replace -- \"$option\" '' \"$current\"))\n"
    "        echo \"$option$path\"\n"
    "      end\n"
    "    else\n"
    "      echo $line\n"
    "    end\n"
    "  end\n"
    "end\n"
    "complete -c muster -f -a '(__muster_candidates)'\n";

static const struct {
    const char *shell, *first, *script;
} scripts[] = {
    {"bash", "", bash_script}, {"zsh", "#compdef muster\n", zsh_script}, {"fish", "", fish_script}};

/* The words after `candidates` belong to another command line, and so are not parsed. */
static bool completion_before(int argc, char **argv, mst_status *st)
{
    if (argc == 0 || strcmp(argv[0], "candidates") != 0)
        return false;
    completion_print_candidates(argc - 1, argv + 1);
    *st = MST_OK;
    return true;
}

static mst_status completion_run(mst_call *call)
{
    const mst_text_list *shells = &call->words;
    size_t i = 0;
    while (shells->n == 1 && i < sizeof scripts / sizeof *scripts &&
           strcmp(scripts[i].shell, shells->items[0]) != 0)
        i++;
    if (shells->n != 1 || i == sizeof scripts / sizeof *scripts)
        return mst_fail(MST_EUSAGE, "completion%s%s: name the shell: bash, zsh or fish",
                        shells->n > 0 ? " " : "", shells->n > 0 ? shells->items[0] : "");
    printf("%s# Completion for muster in %s; made by 'muster completion %s' of muster %s.\n%s",
           scripts[i].first, scripts[i].shell, scripts[i].shell, mst_version(), scripts[i].script);
    return MST_OK;
}

const mst_command mst_cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for bash, zsh or fish",
    .before = completion_before,
    .run = completion_run,
    .usage = "completion bash|zsh|fish",
    .details = "Bash: source <(muster completion bash)\n"
               "Zsh: source <(muster completion zsh), after compinit\n"
               "Fish: muster completion fish | source\n"
               "\n"
               "'make install' installs the scripts. They call 'muster completion candidates WORD...' for "
               "the candidates of the last word.\n",
    .words = "bash|zsh|fish",
};
