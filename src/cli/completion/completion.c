/* gpuslice completion: what bash, zsh and fish need to know of our words, written from the tables. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/verbs.h"

/* IDs and names of sessions, and indices and UUIDs of GPUs, a line each; nothing without a daemon. */
#define LIST_SESSIONS                                                                                        \
    "gpuslice list 2>/dev/null | awk 'NR > 1 && /^[^ ]/ { print $1; if ($2 != \"-\") print $2 }'"
#define LIST_GPUS "gpuslice gpus 2>/dev/null | awk 'NR > 1 { print $1; print $2 }'"

#define PRIORITIES "low normal high critical"
#define USAGE_BY "session user gpu"

/* How the scripts call each kind. */
static const char *kind_name(enum cli_kind kind)
{
    switch (kind) {
    case CLI_SESSION:
        return "session";
    case CLI_GPU:
        return "gpu";
    case CLI_COMMAND:
        return "command";
    case CLI_PRIORITY:
        return "priority";
    case CLI_USAGE_BY:
        return "by";
    case CLI_SHELL:
        return "shell";
    case CLI_VERB:
        return "verb";
    case CLI_CONFIG:
        return "check";
    default:
        return "text";
    }
}

/* Print `text` as the inside of a single-quoted word, up to its first ';': the rest is for --help. `inner`
 * are characters that mean something within the word and take a backslash. */
static void print_quoted(const char *text, const char *quote, const char *inner)
{
    for (; *text && *text != ';'; text++) {
        if (*text == '\'')
            fputs(quote, stdout);
        else if (strchr(inner, *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_verb_names(const struct cli_verb *verb, const char *between)
{
    fputs(verb->name, stdout);
    for (size_t i = 0; verb->aliases[i]; i++)
        printf("%s%s", between, verb->aliases[i]);
}

static void print_all_verbs(const char *between)
{
    for (size_t i = 0; cli_verbs[i]; i++) {
        if (i)
            fputs(between, stdout);
        print_verb_names(cli_verbs[i], between);
    }
}

/* --- bash ------------------------------------------------------------------------------------------ */

static void print_bash_verb(const struct cli_verb *verb)
{
    fputs("    ", stdout);
    print_verb_names(verb, "|");
    fputs(")\n        options='", stdout);
    for (const struct cli_option *option = verb->options; option->name; option++)
        printf("%s--%s", option == verb->options ? "" : " ", option->name);
    printf("' operand=%s\n        case $1 in\n", verb->operands ? kind_name(verb->operand_kind) : "none");
    for (const struct cli_option *option = verb->options; option->name; option++)
        if (cli_option_takes_word(option))
            printf("        --%s) value=%s ;;\n", option->name, kind_name(option->kind));
    puts("        esac\n        ;;");
}

static void print_bash(void)
{
    puts("# bash completion of gpuslice; made by 'gpuslice completion bash'\n"
         "\n"
         "# What the words of verb $2 are; `value` is the kind of option $1's value.\n"
         "_gpuslice_tables() {\n"
         "    options='--help' operand=none value=\n"
         "    case $2 in");
    for (size_t i = 0; cli_verbs[i]; i++)
        print_bash_verb(cli_verbs[i]);
    fputs("    esac\n"
          "}\n"
          "\n"
          "_gpuslice_candidates() {\n"
          "    case $1 in\n"
          "    session) " LIST_SESSIONS " ;;\n"
          "    gpu) " LIST_GPUS " ;;\n"
          "    priority) echo " PRIORITIES " ;;\n"
          "    by) echo " USAGE_BY " ;;\n"
          "    shell) echo bash zsh fish ;;\n"
          "    check) echo check ;;\n"
          "    verb) echo ",
          stdout);
    print_all_verbs(" ");
    puts(" ;;\n"
         "    esac\n"
         "}\n"
         "\n"
         "_gpuslice() {\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} options operand value i\n"
         "    COMPREPLY=()\n"
         "    if ((COMP_CWORD == 1)); then\n"
         "        COMPREPLY=($(compgen -W \"$(_gpuslice_candidates verb) --help --version\" -- \"$word\"))\n"
         "        return\n"
         "    fi\n"
         "    _gpuslice_tables '' \"$verb\"\n"
         "    if [[ $operand == command ]]; then\n"
         "        # Behind the first word that is no option stands someone else's command line.\n"
         "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
         "            _gpuslice_tables \"${COMP_WORDS[i]}\" \"$verb\"\n"
         "            if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
         "                ((i++))\n"
         "                break\n"
         "            fi\n"
         "            [[ ${COMP_WORDS[i]} == -* ]] || break\n"
         "            if [[ $value ]]; then ((i++)); fi\n"
         "            [[ ${COMP_WORDS[i]} == = ]] && ((i++))\n"
         "        done\n"
         "        if ((i < COMP_CWORD)) || [[ $i -eq $COMP_CWORD && $word != -* ]]; then\n"
         "            if declare -F _command_offset >/dev/null; then\n"
         "                _command_offset \"$i\"\n"
         "            elif ((i == COMP_CWORD)); then\n"
         "                COMPREPLY=($(compgen -c -- \"$word\"))\n"
         "            else\n"
         "                COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "            fi\n"
         "            return\n"
         "        fi\n"
         "    fi\n"
         "    _gpuslice_tables \"${COMP_WORDS[COMP_CWORD - 1]}\" \"$verb\"\n"
         "    if [[ $value ]]; then\n"
         "        operand=$value\n"
         "    elif [[ $word == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "        return\n"
         "    fi\n"
         "    COMPREPLY=($(compgen -W \"$(_gpuslice_candidates \"$operand\")\" -- \"$word\"))\n"
         "}\n"
         "\n"
         "complete -F _gpuslice gpuslice");
}

/* --- zsh ------------------------------------------------------------------------------------------- */

static const char *zsh_action(enum cli_kind kind)
{
    switch (kind) {
    case CLI_SESSION:
        return "_gpuslice_sessions";
    case CLI_GPU:
        return "_gpuslice_gpus";
    case CLI_PRIORITY:
        return "(" PRIORITIES ")";
    case CLI_USAGE_BY:
        return "(" USAGE_BY ")";
    case CLI_SHELL:
        return "(bash zsh fish)";
    case CLI_CONFIG:
        return "(check)";
    case CLI_VERB:
        return "_gpuslice_verbs";
    default:
        return " ";
    }
}

static void print_zsh_verb(const struct cli_verb *verb)
{
    fputs("    ", stdout);
    print_verb_names(verb, "|");
    fputs(")\n        _arguments -S", stdout);
    for (const struct cli_option *option = verb->options; option->name; option++) {
        printf(" \\\n            '%s--%s[", option->kind == CLI_GPU ? "*" : "", option->name);
        print_quoted(option->help, "'\\''", "[]:");
        putchar(']');
        if (cli_option_takes_word(option))
            printf(":%s:%s", option->value, zsh_action(option->kind));
        putchar('\'');
    }
    if (verb->operand_kind == CLI_COMMAND)
        fputs(" \\\n            '*::command:_normal'", stdout);
    else if (verb->operands)
        printf(" \\\n            '%s:%s:%s'", verb->operands_max > 1 ? "*" : "1",
               kind_name(verb->operand_kind), zsh_action(verb->operand_kind));
    puts("\n        ;;");
}

static void print_zsh(void)
{
    puts("#compdef gpuslice\n"
         "# zsh completion of gpuslice; made by 'gpuslice completion zsh'\n"
         "\n"
         "_gpuslice_sessions() {\n"
         "    local -a found=(${(f)\"$(" LIST_SESSIONS ")\"})\n"
         "    compadd -a found\n"
         "}\n"
         "\n"
         "_gpuslice_gpus() {\n"
         "    local -a found=(${(f)\"$(" LIST_GPUS ")\"})\n"
         "    compadd -a found\n"
         "}\n"
         "\n"
         "_gpuslice_verbs() {\n"
         "    local -a verbs=(");
    for (size_t i = 0; cli_verbs[i]; i++) {
        printf("        '%s:", cli_verbs[i]->name);
        print_quoted(cli_verbs[i]->summary, "'\\''", ":");
        puts("'");
    }
    puts("    )\n"
         "    _describe verb verbs\n"
         "}\n"
         "\n"
         "_gpuslice() {\n"
         "    local curcontext=$curcontext state line\n"
         "    _arguments -C '1:verb:_gpuslice_verbs' '*::operand:->operands'\n"
         "    [[ $state == operands ]] || return\n"
         "    case $line[1] in");
    for (size_t i = 0; cli_verbs[i]; i++)
        print_zsh_verb(cli_verbs[i]);
    puts("    esac\n"
         "}\n"
         "\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
         "    _gpuslice \"$@\"\n"
         "else\n"
         "    compdef _gpuslice gpuslice\n"
         "fi");
}

/* --- fish ------------------------------------------------------------------------------------------ */

/* What fish runs to find values of a kind; NULL for none. */
static const char *fish_values(enum cli_kind kind)
{
    switch (kind) {
    case CLI_SESSION:
        return "(__gpuslice_sessions)";
    case CLI_GPU:
        return "(__gpuslice_gpus)";
    case CLI_PRIORITY:
        return PRIORITIES;
    case CLI_USAGE_BY:
        return USAGE_BY;
    case CLI_SHELL:
        return "bash zsh fish";
    case CLI_CONFIG:
        return "check";
    case CLI_VERB:
        return "(__gpuslice_verbs)";
    default:
        return NULL;
    }
}

static void print_fish_condition(const struct cli_verb *verb)
{
    fputs("complete -c gpuslice -n '__fish_seen_subcommand_from ", stdout);
    print_verb_names(verb, " ");
    putchar('\'');
}

/* Someone else's command line begins behind two words, not counting options and their values. fish drops
 * names of options until the first word that is none; hence the "-". */
static void print_fish_command(const struct cli_verb *verb)
{
    fputs(" -a '(__fish_complete_subcommand --fcs-skip=2 -", stdout);
    for (const struct cli_option *option = verb->options; option->name; option++)
        if (cli_option_takes_word(option))
            printf(" --%s", option->name);
    puts(")'");
}

static void print_fish_verb(const struct cli_verb *verb)
{
    printf("complete -c gpuslice -n __fish_use_subcommand -a %s -d '", verb->name);
    print_quoted(verb->summary, "\\'", "\\");
    puts("'");
    for (const struct cli_option *option = verb->options; option->name; option++) {
        print_fish_condition(verb);
        printf(" -l %s%s", option->name, cli_option_takes_word(option) ? " -x" : "");
        if (fish_values(option->kind))
            printf(" -a '%s'", fish_values(option->kind));
        fputs(" -d '", stdout);
        print_quoted(option->help, "\\'", "\\");
        puts("'");
    }
    if (!verb->operands)
        return;
    print_fish_condition(verb);
    if (verb->operand_kind == CLI_COMMAND)
        print_fish_command(verb);
    else
        printf(" -a '%s'\n", fish_values(verb->operand_kind));
}

static void print_fish(void)
{
    fputs("# fish completion of gpuslice; made by 'gpuslice completion fish'\n"
          "\n"
          "function __gpuslice_sessions\n"
          "    " LIST_SESSIONS "\n"
          "end\n"
          "\n"
          "function __gpuslice_gpus\n"
          "    " LIST_GPUS "\n"
          "end\n"
          "\n"
          "function __gpuslice_verbs\n"
          "    string split ' ' '",
          stdout);
    print_all_verbs(" ");
    puts("'\n"
         "end\n"
         "\n"
         "complete -c gpuslice -f");
    for (size_t i = 0; cli_verbs[i]; i++)
        print_fish_verb(cli_verbs[i]);
}

/* -------------------------------------------------------------------------------------------------------- */

static const struct cli_option options[] = {CLI_OPTION_HELP, CLI_OPTIONS_END};

static enum cli_status act(const struct cli_arguments *arguments)
{
    const char *shell = arguments->operands[0];
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else if (strcmp(shell, "zsh") == 0)
        print_zsh();
    else
        print_fish();
    return cli_finish_output();
}

const struct cli_verb verb_completion = {
    .name = "completion",
    .operands = "SHELL",
    .operand_kind = CLI_SHELL,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "print completion for bash, zsh or fish",
    .examples = "  source <(gpuslice completion bash)",
    .options = options,
    .act = act,
};
