"""Every table of results: its command, its files, and about how long it takes."""

from dataclasses import dataclass, replace

PEERS = ("torch", "iree.runtime")
README_TRIALS = 16
"""Trials of each search of `make results`: 72 problems in an hour."""


@dataclass(frozen=True)
class Table:
    """A result that is stored in a machine's folder of `benchmarks/data/results`.

    Attributes:
        name: of the table.
        command: a module and its arguments; `{results}` stands for the machine's folder.
        files: what it writes there.
        minutes: about how long it takes.
        needs: packages that it cannot do without.
        prints: whether its output is its first file.
        in_readme: whether README's table needs it; `make results` measures these alone.
    """

    name: str
    command: tuple[str, ...]
    files: tuple[str, ...]
    minutes: float
    needs: tuple[str, ...] = ()
    prints: bool = True
    in_readme: bool = False


def _readme(suite: str, minutes: float) -> Table:
    command = ("benchmarks.peers.suites", suite, "--trials", str(README_TRIALS))
    return replace(_suite(suite, minutes), command=command, in_readme=True)


def _suite(name: str, minutes: float) -> Table:
    files = f"{name}.txt", f"{name}.json"
    suite, cold, _ = name.partition("_cold")
    suite, constant, _ = suite.partition("_constant")
    weights = ("--weights", "constant") if constant else ()
    command = ("benchmarks.peers.suites", suite, *weights, *(("--cache", "cold") if cold else ()))
    return Table(name, command, files, minutes, PEERS, prints=False)


def _plain(name: str, module: str, minutes: float, *arguments: str) -> Table:
    return Table(name, (module, *arguments), (f"{name}.txt",), minutes)


TABLES = (
    _readme("square", 10),
    _readme("resnet50", 15),
    _readme("bert_base", 4),
    _readme("mobilenet_v2_depthwise", 6),
    _readme("llama7b_layers", 20),
    _suite("resnet50_constant", 30),
    _suite("llama7b", 60),
    _suite("deepbench_device", 20),
    _suite("background", 10),
    _suite("decode", 10),
    _suite("mobilenet_v2_depthwise_cold", 5),
    _plain("ranges", "benchmarks.searching.ranges", 45),
    Table(
        "main_job",
        ("benchmarks.peers.main_job", "--out", "{results}/main_job.json"),
        ("main_job.txt", "main_job.json"),
        10,
    ),
    Table(
        "limits",
        ("benchmarks.kernels.limits", "--out", "{results}/limits.json"),
        ("limits.txt", "limits.json"),
        20,
    ),
    Table(
        "threads",
        ("benchmarks.kernels.threads", "--out", "{results}/threads.json"),
        ("threads.txt", "threads.json"),
        15,
    ),
    Table(
        "winograd",
        ("benchmarks.kernels.winograd", "--out", "{results}/winograd.json"),
        ("winograd.txt", "winograd.json"),
        10,
        ("torch",),
    ),
    Table(
        "winograd_others",
        (
            "benchmarks.kernels.winograd",
            "--filters",
            "others",
            "--out",
            "{results}/winograd_others.json",
        ),
        ("winograd_others.txt", "winograd_others.json"),
        15,
        ("torch",),
    ),
    Table(
        "winograd_strided",
        (
            "benchmarks.kernels.winograd",
            "--filters",
            "strided",
            "--out",
            "{results}/winograd_strided.json",
        ),
        ("winograd_strided.txt", "winograd_strided.json"),
        10,
        ("torch",),
    ),
    Table(
        "scripts",
        ("benchmarks.kernels.scripts", "--out", "{results}"),
        ("scripts.txt", "scripts.json"),
        60,
        prints=False,
    ),
    Table(
        "script_steps",
        ("benchmarks.kernels.script_steps", "--out", "{results}"),
        ("script_steps.txt", "script_steps.json"),
        10,
        prints=False,
    ),
    Table(
        "script_times",
        ("benchmarks.kernels.script_times", "--out", "{results}"),
        ("script_times.txt", "script_times.json"),
        15,
        prints=False,
    ),
    Table(
        "objects",
        ("benchmarks.kernels.objects", "--seconds", "2", "--out", "{results}"),
        ("objects.txt", "objects.json"),
        3,
        prints=False,
    ),
    Table(
        "tuning_specs",
        ("benchmarks.peers.tuning_specs", "--out", "{results}"),
        ("tuning_specs.txt", "tuning_specs.json"),
        15,
        PEERS,
        prints=False,
    ),
    Table(
        "torch_backend",
        ("benchmarks.models.torch_backend",),
        ("torch_backend.txt",),
        60,
        ("torch",),
    ),
    _plain("intervals", "benchmarks.measuring.intervals", 25),
    _plain("winners", "benchmarks.searching.winners", 30),
    _plain("stress", "benchmarks.measuring.stress", 10),
    _plain("trial_rate", "benchmarks.measuring.trial_rate", 3),
    _plain("trial_error", "benchmarks.measuring.trial_error", 20),
    _plain("neighbour", "benchmarks.measuring.neighbour", 8),
    _plain("warm_start", "benchmarks.searching.warm_start", 60, "--seeds", "3"),
    _plain("transfer", "benchmarks.searching.transfer", 20, "--seeds", "20"),
    _plain("replay", "benchmarks.replay", 30),
)

BY_HAND = {"tuners": "python -m benchmarks.peers.peer_tuners --tvm-python PATH"}
"""Folders of results that need packages that no command here can install."""
