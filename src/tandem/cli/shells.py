"""The scripts of `tandem completion`: one for each shell, which walks through the words before the
cursor, and looks up in fixed tables what may follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from shlex import quote
from typing import Any

LINE = 60  # most characters of what is said of a flag

# what bash and zsh look up alike
TABLES = r"""_tandem_envs() {
    case $1 in
@ENVS@
    esac
}

_tandem_values() { # of command/algorithm/flag
    case $1 in
@VALUES@
    esac
}

_tandem_flags() { # of a command, and an algorithm
    case $1 in
@BASE@
    esac
    case $1 in
        @WITH_SETTINGS@)
            echo '@SHARED@'
            case $2 in
@SETTINGS@
            esac ;;
    esac
}

_tandem_place() { # what stands in a place of a command
    case $1/$2 in
@PLACES@
    esac
}

"""

BASH = (
    r"""# Completes tandem in bash; made by `tandem completion bash`. Source it, or put it where
# bash-completion looks: ~/.local/share/bash-completion/completions/tandem

_tandem_words() { # of these words, those that go on with what is typed
    COMPREPLY+=($(compgen -W "$1" -- "$cur"))
}

_tandem_paths() { # paths by an option of compgen
    local line
    compopt -o filenames 2>/dev/null
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$@" -- "$cur")
}

_tandem_offer() { # what stands for something, or words
    local one
    for one in $1; do
        case $one in
            @dir) _tandem_paths -d ;;
            @file) _tandem_paths -f ;;
            @run) _tandem_paths -d; _tandem_paths -f -X '!*.zip' ;;
            @algorithm) _tandem_words '@ALGORITHMS@' ;;
            @env) _tandem_words "$(_tandem_envs "$algorithm")" ;;
            @anyenv) _tandem_words "$(_tandem_envs '*')" ;;
            *) _tandem_words "$one" ;;
        esac
    done
}

"""
    + TABLES
    + r"""_tandem() {
    local cur=${COMP_WORDS[COMP_CWORD]} word i wants= command= algorithm= joins=
    local -a places
    places=()
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == = ]]; then
            continue
        elif [[ $word == : ]]; then # of module:Class, which is one word to everybody else
            joins=1
        elif [[ -n $joins ]]; then
            joins=
        elif [[ -n $wants ]]; then
            wants=
        elif [[ $word == -* ]]; then
            case ' @BARE@ ' in
                *" $word "*) ;;
                *) wants=$word ;;
            esac
        elif [[ -z $command ]]; then
            command=$word
        elif [[ $command == find ]]; then
            command=find-$word
        else
            places+=("$word")
        fi
    done
    [[ $cur == = ]] && cur=
    algorithm=${places[0]-}
    if [[ -n $wants ]]; then
        _tandem_offer "$(_tandem_values "$command/$algorithm/$wants")"
    elif [[ -z $command && $cur == -* ]]; then
        _tandem_words '--help --version'
    elif [[ $cur == -* ]]; then
        _tandem_words "$(_tandem_flags "$command" "$algorithm")"
    elif [[ -z $command ]]; then
        _tandem_words '@COMMANDS@'
    else
        _tandem_offer "$(_tandem_place "$command" "${#places[@]}")"
    fi
}

complete -F _tandem tandem
"""
)

ZSH = (
    r"""#compdef tandem
# Completes tandem in zsh; made by `tandem completion zsh`. Put it into a folder of $fpath, as
# _tandem, or source it after compinit.

"""
    + TABLES
    + r"""_tandem_about() { # adds "name:what it is" of names to `described`
    local -A about=(
@ABOUT@
    )
    local name
    for name in ${=1}; do
        described+=("${name//:/\\:}${about[$name]:+:${about[$name]}}")
    done
}

_tandem_offer() { # what stands for something, or words
    local one
    local -a plain
    for one in ${=1}; do
        case $one in
            @dir) _files -/ ;;
            @file) _files ;;
            @run) _files -g '*.zip' ;;
            @algorithm) plain+=(@ALGORITHMS@) ;;
            @env) plain+=(${=$(_tandem_envs "$algorithm")}) ;;
            @anyenv) plain+=(${=$(_tandem_envs '*')}) ;;
            *) plain+=($one) ;;
        esac
    done
    (( $#plain )) && compadd -- $plain
}

_tandem() {
    local cur=${words[CURRENT]} word wants= command= algorithm=
    local -i i
    local -a places described
    for ((i = 2; i < CURRENT; i++)); do
        word=${words[i]}
        if [[ -n $wants ]]; then
            wants=
        elif [[ $word == -* ]]; then
            [[ $word == *=* || ' @BARE@ ' == *" $word "* ]] || wants=$word
        elif [[ -z $command ]]; then
            command=$word
        elif [[ $command == find ]]; then
            command=find-$word
        else
            places+=("$word")
        fi
    done
    algorithm=${places[1]-}
    if [[ -z $wants && $cur == --*=* ]]; then
        wants=${cur%%=*}
        compset -P '*='
    fi
    if [[ -n $wants ]]; then
        _tandem_offer "$(_tandem_values "$command/$algorithm/$wants")"
    elif [[ -z $command && $cur == -* ]]; then
        compadd -- --help --version
    elif [[ $cur == -* ]]; then
        _tandem_about "$(_tandem_flags "$command" "$algorithm")"
        _describe -o option described
    elif [[ -z $command ]]; then
        _tandem_about '@COMMANDS@'
        _describe command described
    else
        _tandem_offer "$(_tandem_place "$command" "$#places")"
    fi
}

if [[ ${funcstack[1]-} == _tandem ]]; then
    _tandem "$@"
else
    compdef _tandem tandem
fi
"""
)

FISH = r"""# Completes tandem in fish; made by `tandem completion fish`. Put it into
# ~/.config/fish/completions/tandem.fish

function __tandem_envs
    switch $argv[1]
@ENVS@
    end
end

function __tandem_values # of command/algorithm/flag
    switch $argv[1]
@VALUES@
    end
end

function __tandem_flags # of a command, and an algorithm
    switch $argv[1]
@BASE@
    end
    switch $argv[1]
        case @WITH_SETTINGS@
            echo '@SHARED@'
            switch $argv[2]
@SETTINGS@
            end
    end
end

function __tandem_place # what stands in a place of a command
    switch $argv[1]
@PLACES@
    end
end

function __tandem_about # names, each with what it is
    for name in (string split -n ' ' -- $argv)
        switch $name
@ABOUT@
            case '*'
                echo $name
        end
    end
end

function __tandem_offer # what stands for something, or words; after a prefix, an algorithm
    for one in (string split -n ' ' -- $argv[3..])
        switch $one
            case @dir @file
                set -l typed (string replace -- "$argv[1]" '' (commandline -ct))
                set -l found (__fish_complete_directories "$typed" '')
                test $one = @file; and set found (__fish_complete_path "$typed" '')
                test (count $found) -gt 0; and printf '%s\n' $argv[1]$found
            case @run
                __fish_complete_directories (commandline -ct) ''
                __fish_complete_suffix .zip
            case @algorithm
                printf "$argv[1]%s\n" @ALGORITHMS@
            case @env
                printf "$argv[1]%s\n" (string split -n ' ' -- (__tandem_envs "$argv[2]"))
            case @anyenv
                printf "$argv[1]%s\n" (string split -n ' ' -- (__tandem_envs '*'))
            case '*'
                echo $argv[1]$one
        end
    end
end

function __tandem_complete
    set -l tokens (commandline -opc)
    set -l cur (commandline -ct)
    set -l wants
    set -l command
    set -l places
    for word in $tokens[2..]
        if set -q wants[1]
            set -e wants
        else if string match -q -- '-*' $word
            if not string match -q -- '*=*' $word; and not contains -- $word @BARE@
                set wants $word
            end
        else if not set -q command[1]
            set command $word
        else if test $command = find
            set command find-$word
        else
            set -a places $word
        end
    end
    set -l algorithm "$places[1]"
    set -l prefix ''
    if not set -q wants[1]; and string match -q -- '--*=*' $cur
        set wants (string split -m 1 = -- $cur)[1]
        set prefix $wants=
    end
    if set -q wants[1]
        __tandem_offer "$prefix" "$algorithm" (__tandem_values "$command/$algorithm/$wants")
    else if string match -q -- '-*' $cur
        if set -q command[1]
            __tandem_about (__tandem_flags "$command" "$algorithm")
        else
            printf '%s\n' --help --version
        end
    else if not set -q command[1]
        __tandem_about '@COMMANDS@'
    else
        __tandem_offer '' "$algorithm" (__tandem_place "$command/"(count $places))
    end
end

complete -c tandem -f -a '(__tandem_complete)'
"""


def bash(g: Any) -> str:
    """The script for bash, of a `completion.Grammar`."""
    return _filled(BASH, g, _cases)


def zsh(g: Any) -> str:
    """The script for zsh."""
    about = "\n".join(f"        {name} {quote(_short(text))}" for name, text in _told(g))
    return _filled(ZSH, g, _cases).replace("@ABOUT@", about)


def fish(g: Any) -> str:
    """The script for fish."""
    lines = (
        f"            case {name}\n                printf '%s\\t%s\\n' {name} {_fish(_short(text))}"
        for name, text in _told(g)
    )
    return _filled(FISH, g, _fish_cases, ",").replace("@ABOUT@", "\n".join(lines))


SHELLS: dict[str, Callable[[Any], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _filled(script: str, g: Any, cases: Callable[..., str], joint: str = "|") -> str:
    from tandem.cli.completion import PLACES, WITH_SETTINGS

    places = {
        f"{command}/{i if i < len(held) - 1 else '*'}": what
        for command, held in PLACES.items()
        for i, what in enumerate(held)
        if what
    }
    envs = {name: " ".join(ids) for name, ids in g.envs.items() if name != "*"}
    parts = {
        "ENVS": cases({**envs, "*": " ".join(g.envs["*"])}, 8),
        "VALUES": cases(g.values, 8),
        "BASE": cases({name: " ".join(names) for name, names in g.base.items()}, 8),
        "SETTINGS": cases({n: " ".join(names) for n, names in g.settings.items()}, 16),
        "PLACES": cases(places, 8),
        "WITH_SETTINGS": ("|" if joint == "|" else " ").join(WITH_SETTINGS),
        "SHARED": " ".join(g.shared),
        "BARE": " ".join(sorted(g.bare)),
        "COMMANDS": " ".join(name for name in g.base if "-" not in name),
        "ALGORITHMS": " ".join(g.settings),
    }
    for name, text in parts.items():
        script = script.replace(f"@{name}@", text)
    return script


def _grouped(table: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    """(neighbours that say the same, what they say)."""
    patterns: list[str] = []
    last = ""
    for pattern, words in table.items():
        if patterns and words != last:
            yield patterns, last
            patterns = []
        patterns.append(pattern)
        last = words
    if patterns:
        yield patterns, last


def _cases(table: Mapping[str, str], indent: int) -> str:
    """Branches of a `case` that print words."""
    return "\n".join(
        f"{' ' * indent}{'|'.join(patterns)}) echo '{words}' ;;"
        for patterns, words in _grouped(table)
    )


def _fish_cases(table: Mapping[str, str], indent: int) -> str:
    space = " " * indent
    return "\n".join(
        f"{space}case {' '.join(map(_fish, patterns))}\n{space}    echo '{words}'"
        for patterns, words in _grouped(table)
    )


def _told(g: Any) -> Iterable[tuple[str, str]]:
    return [(name, text) for name, text in g.about.items() if text]


def _short(text: str) -> str:
    """One line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE else line[: LINE - 1].rsplit(" ", 1)[0] + "…"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
