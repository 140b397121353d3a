"""Print a script that teaches your shell to complete rl-training.

Tab then completes commands, presets, options and settings (key=value) with their values. The shell asks
`rl-training completion --candidates LINE` at each Tab; torch is not imported for it. Put the line for your shell into its
start-up file:
  bash  ~/.bashrc                   eval "$(rl-training completion bash)"
  zsh   ~/.zshrc, after compinit    eval "$(rl-training completion zsh)"
  fish  ~/.config/fish/config.fish  rl-training completion fish | source
"""

from __future__ import annotations

import argparse

from rl_training.cli.parser import Parser
from rl_training.cli.tables import say
from rl_training.errors import ConfigError

USAGE = "rl-training completion (bash | zsh | fish)"
RESULT_IS_PRINTED = True
EXAMPLES = """\
  rl-training completion bash
  rl-training completion zsh > ~/.rl-training.zsh
  rl-training completion --candidates 'rl-training train ppo/'"""

# bash cuts words at = and :, so only what follows the last of them is put in place; a setting's = invites no blank
BASH = """\
_rl_training() {
    local line="${COMP_LINE:0:COMP_POINT}" cur="${COMP_WORDS[COMP_CWORD]}" word whole
    [[ "$cur" == "=" ]] && cur=""
    whole="${line##*[[:space:]]}"
    local head="${whole%"$cur"}"
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ "$word" == "@files" ]]; then
            compopt -o default 2>/dev/null
        else
            [[ "$word" == *= ]] && compopt -o nospace 2>/dev/null
            COMPREPLY+=("${word#"$head"}")
        fi
    done < <(rl-training completion --candidates "$line" 2>/dev/null)
}
complete -F _rl_training rl-training
"""
ZSH = """\
_rl_training() {
    local -a whole open
    local word files=0
    for word in "${(@f)$(rl-training completion --candidates "${LBUFFER}" 2>/dev/null)}"; do
        case "$word" in
            "") ;;
            @files) files=1 ;;
            *=) open+=("$word") ;;
            *) whole+=("$word") ;;
        esac
    done
    (( ${#open} )) && compadd -S '' -- "${open[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
    (( files )) && _files
}
compdef _rl_training rl-training
"""
FISH = """\
function __rl_training_candidates
    for word in (rl-training completion --candidates (commandline -cp) 2>/dev/null)
        if test "$word" = "@files"
            __fish_complete_path (commandline -ct)
        else
            echo $word
        end
    end
end
complete -c rl-training -f -a '(__rl_training_candidates)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add_arguments(parser: Parser) -> None:
    """Which shell; or, asked by the script itself, a line."""
    parser.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help="your shell")
    parser.add_argument("--candidates", metavar="LINE", help="print what could follow this line, as the scripts ask it")


def run(args: argparse.Namespace) -> int:
    """Print the script or the candidates, one per line."""
    if args.candidates is not None:
        from rl_training.cli.completion import FILES, candidates

        for word in candidates(args.candidates):
            say("@files" if word == FILES else word)
        return 0
    if args.shell is None:
        raise ConfigError(f"which shell? possible: {', '.join(SCRIPTS)}")
    say(SCRIPTS[args.shell].rstrip())
    return 0
