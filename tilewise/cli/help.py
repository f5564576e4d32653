"""What `--help` shows beside options: commands in groups, and examples."""

from collections.abc import Iterable

from tilewise.cli.command import Command

GROUPS = {
    "search": ("tune", "show", "trials", "bench", "plot", "export-study"),
    "scripts and kernels": ("script", "kernel", "library", "asm", "fetch"),
    "MLIR modules and models": ("import", "model", "plan", "verify"),
    "service": ("serve", "top", "token", "db", "store"),
    "cluster": ("scheduler", "driver", "worker"),
    "this installation": ("doctor", "completion"),
}
"""The commands by what they are for, in the order of `tilewise --help`."""

INTRODUCTION = """\
Find the schedule that runs a matmul or a convolution fastest, and serve it as a proven script.

A first search: tilewise tune matmul:m=1024,n=512,k=2048,dtype=f32
"""


def overview(commands: Iterable[Command]) -> str:
    """Return the commands in their groups, a line each."""
    helps = {command.name: command.help for command in commands}
    width = max(map(len, helps))
    parts = [
        "\n".join([f"{group}:", *(f"  {name:<{width}}  {helps[name]}" for name in names)])
        for group, names in GROUPS.items()
    ]
    return "\n\n".join([INTRODUCTION.rstrip(), *parts])


def examples(command: Command) -> str | None:
    """Return the examples of a command, as they stand below its options."""
    if not command.examples:
        return None
    return "\n".join(["examples:", *(f"  tilewise {one}" for one in command.examples)])
