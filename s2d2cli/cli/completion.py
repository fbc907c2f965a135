"""`s2d2 completion`: scripts for bash, zsh and fish, and the words that they offer.

The scripts ask `s2d2 completion words -- WORD...`, the words typed so far behind `s2d2`, the last one perhaps begun. An
answer that ends in a space is complete; the others go on (`router=`). Everything is read from source and from folders:
no torch, no Hydra, an answer in a fraction of a second.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.words import KEYS, key_of
from s2d2cli.errors import ConfigError

if TYPE_CHECKING:
    from typer.core import TyperCommand

SETTING_COMMANDS = ("generate", "eval", "sweep", "search", "arness")
FOLDER_COMMANDS = ("report", "compare", "score", "reproduce", "arness", "status")
ANYWHERE = ("--quiet", "--verbose", "--no-color", "--debug")

BASH = r"""# s2d2 completion for bash; in ~/.bashrc: source <(s2d2 completion bash)
_s2d2() {
    local line=${COMP_LINE:0:COMP_POINT} word break reply
    word=${line##*[[:space:]]}
    break=${word%"${COMP_WORDS[COMP_CWORD]}"}  # bash cuts words at = and :, and replaces only what is behind
    [[ ${COMP_WORDS[COMP_CWORD]} == [=:] ]] && break=$word
    COMPREPLY=()
    while IFS= read -r reply; do
        COMPREPLY+=("${reply#"$break"}")
    done < <(s2d2 completion words --line -- "$line" 2>/dev/null)
}
complete -o default -o nospace -F _s2d2 s2d2
"""
ZSH = r"""#compdef s2d2
# s2d2 completion for zsh; in ~/.zshrc, behind compinit: source <(s2d2 completion zsh)
_s2d2() {
    local -a found complete open
    found=("${(@f)$(s2d2 completion words -- "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
    complete=("${(@M)found:#* }")
    open=("${(@)found:#(* |)}")
    (( $#complete )) && compadd -Q -- "${(@)complete% }"
    (( $#open )) && compadd -Q -S '' -- "${(@)open}"
    (( $#complete + $#open )) || _files
}
compdef _s2d2 s2d2
"""
FISH = r"""# s2d2 completion for fish: s2d2 completion fish > ~/.config/fish/completions/s2d2.fish
function __s2d2_words
    set -l typed (commandline -opc)
    set -l found (s2d2 completion words -- $typed[2..] (commandline -ct) 2>/dev/null | string trim --right)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c s2d2 -f -a '(__s2d2_words)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell that the script is for.")],
    typed: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    line: Annotated[bool, typer.Option("--line", hidden=True)] = False,
) -> None:
    """Print a script that completes commands, options, settings and their values, models, sweeps and run folders."""
    if shell == "words":
        for answer in offered(split_line(typed) if line else typed or [""]):
            typer.echo(answer)
    elif shell in SCRIPTS:
        typer.echo(SCRIPTS[shell], nl=False)
    else:
        raise ConfigError(f"there is a completion script for {', '.join(SCRIPTS)}; got {shell!r}")


def split_line(typed: Sequence[str] | None) -> list[str]:
    """The words behind the command of an unfinished line, as a shell reads them; an open quote is closed."""
    text = " ".join(typed or [])
    for closing in ("", "'", '"', "\\"):
        try:
            words = shlex.split(text + closing)
            break
        except ValueError:
            continue
    else:
        return [""]
    return [*words[1:], ""] if text[-1:].isspace() or len(words) < 2 else words[1:]


def offered(typed: Sequence[str]) -> list[str]:
    """What can stand where the last of these words does."""
    *before, last = typed
    commands = tree()
    at = next((place for place, word in enumerate(before) if word in commands), None)
    if at is None:
        return begins(last, [f"{word} " for word in (*commands, *ANYWHERE)])
    words, command = before[at + 1 :], commands[before[at]]
    option, equals, value = last.partition("=")
    if last.startswith("-") and equals:
        return [f"{option}={answer}" for answer in of_option(command, option, value, words) or []]
    if last.startswith("-"):
        names = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
        return begins(last, [f"{name} " for name in (*names, *ANYWHERE)])
    answers = of_option(command, words[-1], last, words) if words else None
    return of_word(before[at], words, last) if answers is None else answers


def tree() -> dict[str, TyperCommand]:
    from typer.main import get_command

    from s2d2cli.cli import app

    return get_command(app).commands  # type: ignore[attr-defined, no-any-return]


def of_option(command: TyperCommand, name: str, value: str, words: Sequence[str]) -> list[str] | None:
    """The values of an option; none where the shell is to offer files, None when the word before is no option."""
    parameters = [p for p in command.params if name in p.opts and not getattr(p, "is_flag", False)]
    if not name.startswith("-") or not parameters:
        return None
    field = parameters[0].name or ""
    return of_key(KEYS.get(field, field), value, plugins_in(words))


def of_word(name: str, words: Sequence[str], last: str) -> list[str]:
    """An argument: a setting, a sweep, a folder of runs, or something to list."""
    from s2d2cli.cli.listing import KINDS
    from s2d2cli.folders import files

    plain = [word for word in words if not word.startswith("-") and "=" not in word]
    answers = []
    if name == "list":
        return begins(last, [f"{kind} " for kind in KINDS]) if not plain else names(plain[0], last)
    if name == "completion":
        return begins(last, [f"{shell} " for shell in SCRIPTS])
    if name in FOLDER_COMMANDS:
        answers += folders(last)
    if name in ("sweep", "search") and not plain:
        answers += begins(last, [f"{sweep} " for sweep in files("sweeps")])
    return answers + (of_setting(words, last) if name in SETTING_COMMANDS else [])


def names(kind: str, last: str) -> list[str]:
    from s2d2cli.cli.listing import entries

    return begins(last, [f"{entry.name} " for entry in entries(kind, [])])


def of_setting(words: Sequence[str], last: str) -> list[str]:
    """`rout` -> `router=`, `router=hy` -> `router=hysteresis`, `router=never,hy` -> `router=never,hysteresis`."""
    from s2d2cli.catalog import keys

    key, equals, value = last.partition("=")
    if equals:
        return [f"{key}={answer}" for answer in of_key(key, value, plugins_in(words))]
    chosen = {key_of(word): word.partition("=")[2] for word in words if "=" in word}
    known = keys(chosen, plugins_in(words))
    if "." not in last:  # `router=` alone, so that it is completed at once; its settings once the dot is typed
        known = [key for key in known if "." not in key]
        return begins(last, [*(f"{key}=" for key in known), "decode."])
    return begins(last, [f"{key}=" for key in known])


def of_key(key: str, value: str, plugins: Sequence[Path]) -> list[str]:
    """The values of a setting, the last one of a list being completed."""
    from s2d2cli.catalog import GROUPS, choices, kinds
    from s2d2cli.values import VALUES

    group = "model" if key == "draft_model" else key
    if group in GROUPS:
        known: Sequence[str] = [choice.name for choice in choices(group, tuple(plugins))]
    else:
        known = ("true", "false") if kinds(tuple(plugins)).get(key) == "bool" else VALUES.get(key, ())
    done, comma, last = value.rpartition(",")
    return [f"{done}{comma}{answer}" for answer in begins(last, [f"{name} " for name in known])]


def plugins_in(words: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(word) for before, word in zip(words, words[1:], strict=False) if before == "--plugins")


def folders(last: str) -> list[str]:
    """Folders of runs and of sweeps, and the folders that lead to them."""
    parent = Path(last if last.endswith("/") else Path(last).parent)
    found = []
    for path in sorted((parent if last else Path("results")).glob("*/")):
        end = " " if any((path / name).is_file() for name in ("run.json", "manifest.json")) else "/"
        found += [f"{path}{end}"] if path.is_dir() else []
    return begins(last.removeprefix("./"), found)


def begins(start: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith(start)]
