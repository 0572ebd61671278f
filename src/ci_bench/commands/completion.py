"""The script for a shell's tab completion, which `ci-bench --completion` prints.

The script is made from the declared commands and flags, and starts no Python when it completes.
"""

import shlex
from collections.abc import Iterator

from ci_bench.command_line.flags import make_parser
from ci_bench.command_line.parsers import CommandWords, command_words


def completion(shell: str) -> str:
    """Return the script of a shell: bash, zsh or fish."""
    commands = list(command_words("", make_parser()))
    return _fish(commands) if shell == "fish" else _bash(commands)


_BASH = """\
# Tab completion of ci-bench in bash and zsh, made by `ci-bench --completion bash`.
if [ -n "${ZSH_VERSION-}" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_ci_bench() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= at
    for ((at = 1; at < COMP_CWORD; at++)); do
        case "$command ${COMP_WORDS[at]}" in
FOLLOWING
        esac
    done
    case "$command $before" in
VALUES
    esac
    if [ -z "$words" ]; then
        case "$command" in
WORDS
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current" || true))
}
complete -o bashdefault -o default -F _ci_bench ci-bench
"""


def _bash(commands: list[CommandWords]) -> str:
    """Return the script for bash; zsh runs it by its own emulation of bash's completion."""
    subcommands = [command for command in commands if command.name]
    filled = {
        "FOLLOWING": [
            _case(_pattern(command.name), f"command={shlex.quote(command.name)}")
            for command in subcommands
        ],
        "VALUES": list(_bash_values(commands)),
        "WORDS": [
            _case(shlex.quote(command.name), _set_words(_words(command))) for command in commands
        ],
    }
    lines = (filled.get(line.strip(), [line]) for line in _BASH.splitlines())
    return "".join("\n".join(each) + "\n" for each in lines)


def _case(pattern: str, action: str) -> str:
    return f"        {pattern}) {action} ;;"


def _set_words(words: tuple[str, ...]) -> str:
    return f"words={shlex.quote(' '.join(words))}"


def _pattern(name: str) -> str:
    """Return a command's name as it follows the command before it, as a pattern of ``case``."""
    return shlex.quote(name if " " in name else f" {name}")


def _bash_values(commands: list[CommandWords]) -> Iterator[str]:
    """Yield what follows flags with values: their choices, or files."""
    for command in commands:
        for flag in command.flags:
            if flag.names and flag.takes_value:
                pattern = "|".join(shlex.quote(f"{command.name} {name}") for name in flag.names)
                yield _case(pattern, _set_words(flag.choices) if flag.choices else "return")


def _words(command: CommandWords) -> tuple[str, ...]:
    places = (choice for flag in command.flags if not flag.names for choice in flag.choices)
    return (*command.actions, *places, *(name for flag in command.flags for name in flag.names))


def _fish(commands: list[CommandWords]) -> str:
    """Return the script for fish."""
    lines = ["# Tab completion of ci-bench in fish, made by `ci-bench --completion fish`."]
    parents = {command.name: command for command in commands}
    for command in commands:
        parent, _, last = command.name.rpartition(" ")
        if command.name:
            lines.append(f"{_complete(parents[parent])} -f -a {last} -d {_quoted(command.help)}")
        for flag in command.flags:
            long = (f"-l {name[2:]}" for name in flag.names if name.startswith("--"))
            short = (f"-s {name[1:]}" for name in flag.names if not name.startswith("--"))
            spelled = " ".join([*short, *long])
            chosen = f" -f -a {_quoted(' '.join(flag.choices))}" if flag.choices else ""
            value = (" -x" if flag.choices else " -r") if flag.takes_value and flag.names else ""
            if flag.names or flag.choices:
                words = f"{spelled}{value}{chosen} -d {_quoted(flag.help)}".strip()
                lines.append(f"{_complete(command)} {words}")
    return "\n".join(lines) + "\n"


def _complete(command: CommandWords) -> str:
    """Return the start of a line that applies after the command, before any of its actions."""
    conditions = [f"__fish_seen_subcommand_from {word}" for word in command.name.split()]
    if command.actions:
        conditions.append(f"not __fish_seen_subcommand_from {' '.join(command.actions)}")
    return f"complete -c ci-bench -n {_quoted('; and '.join(conditions))}"


def _quoted(text: str) -> str:
    """Return a text as fish quotes it."""
    line = " ".join(text.replace("%%", "%").split())
    return "'" + line.replace("\\", "\\\\").replace("'", "\\'") + "'"
