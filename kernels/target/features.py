"""The extensions that kernels may use, and which of them the name of a processor implies.

A virtual machine can hide some of its processor's extensions. A target therefore names those that
differ from what LLVM implies for the processor, and nothing where none does.
"""

from collections.abc import Collection

from tilewise.kernels.errors import TargetError
from tilewise.kernels.quoting import quoted

UNKNOWN = "unknown"
"""Stands for the differences of a result whose machine recorded no features."""

_ARM = ("fp-armv8", "neon")
_ARM_NAMES = ("ampere", "apple-", "a64fx", "carmel", "cortex-", "exynos", "falkor", "grace",
              "kryo", "neoverse-", "oryon", "saphira", "thunderx", "tsv110")  # fmt: skip

# Names of processors, the name that they add to, and what they add.
_FAMILIES = (
    ("generic x86-64", "", ""),
    ("x86-64-v2 nehalem westmere", "generic", "popcnt sse3 sse4.1 sse4.2 ssse3"),
    ("goldmont goldmont-plus tremont silvermont", "nehalem", "movbe"),
    ("sandybridge", "nehalem", "avx"),
    ("ivybridge", "sandybridge", "f16c"),
    ("bdver1", "sandybridge", "lzcnt"),
    ("bdver2 bdver3", "bdver1", "bmi f16c fma"),
    ("bdver4", "bdver3", "avx2 bmi2 movbe"),
    ("haswell broadwell skylake x86-64-v3", "ivybridge", "avx2 bmi bmi2 fma lzcnt movbe"),
    ("znver1 znver2 znver3", "haswell", ""),
    ("alderlake raptorlake meteorlake gracemont arrowlake arrowlake-s", "haswell", "avxvnni"),
    ("lunarlake pantherlake wildcatlake sierraforest grandridge clearwaterforest", "alderlake", ""),
    ("knl knm", "haswell", "avx512cd avx512f"),
    ("skylake-avx512 cannonlake x86-64-v4", "knl", "avx512bw avx512dq avx512vl"),
    ("cascadelake icelake-client icelake-server tigerlake rocketlake", "skylake-avx512",
     "avx512vnni"),
    ("cooperlake znver4", "cascadelake", "avx512bf16"),
    ("znver5", "znver4", "avxvnni"),
    ("znver6 novalake", "znver5", "avx512fp16"),
    ("sapphirerapids emeraldrapids", "novalake", "amx-bf16 amx-int8 amx-tile"),
    ("graniterapids graniterapids-d diamondrapids", "sapphirerapids", "amx-fp16"),
)  # fmt: skip


def _implied() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {"": frozenset()}
    for names, parent, added in _FAMILIES:
        features = found[parent] | set(added.split())
        found |= dict.fromkeys(names.split(), features)
    return found


IMPLIED = _implied()
"""What LLVM implies for its names of x86 processors, of `EXTENSIONS` alone."""

EXTENSIONS = frozenset(_ARM).union(*IMPLIED.values())
"""The extensions that kernels are generated for, or that exported objects use, by LLVM's names."""


def implied(cpu: str) -> frozenset[str]:
    """Return which of `EXTENSIONS` a processor's name implies; none for an unknown name."""
    return IMPLIED.get(cpu, frozenset(_ARM if cpu.startswith(_ARM_NAMES) else ()))


def differences(cpu: str, features: Collection[str]) -> tuple[str, ...]:
    """Return how a machine differs from what its processor's name implies.

    Args:
        cpu: LLVM's name of the processor.
        features: all that it has, by LLVM's names; empty where none were recorded.

    Returns:
        `-x` for a missing extension and `+x` for an additional one, sorted by name.
    """
    if not features:
        return ()
    has, wanted = EXTENSIONS & set(features), implied(cpu)
    return tuple(("+" if name in has else "-") + name for name in sorted(has ^ wanted))


def with_differences(cpu: str, differing: Collection[str]) -> frozenset[str]:
    """Return which of `EXTENSIONS` a processor with some differences has."""
    added = {entry[1:] for entry in differing if entry[0] == "+"}
    return implied(cpu) - {entry[1:] for entry in differing} | added


def read_differences(target: str, cpu: str, text: str) -> tuple[str, ...]:
    """Return the differences that a target's text names, sorted and without those that are none.

    A space stands for `+`, which is what a URL's query makes of it.

    Args:
        target: the whole text, for messages.
        cpu: LLVM's name of the processor.
        text: what follows `features=`.

    Raises:
        TargetError: an entry is none, its extension is not known, or is named twice.
    """
    if text == UNKNOWN:
        return (UNKNOWN,)
    found: dict[str, str] = {}
    for entry in text.split(":"):
        sign, name = entry[:1].replace(" ", "+"), entry[1:]
        if sign not in ("+", "-") or not name:
            fault = f"{quoted(entry)} is not an entry; join +NAME and -NAME by ':'"
        elif name not in EXTENSIONS:
            fault = f"no kernel uses {quoted(name)}; leave it out"
        elif name in found:
            fault = f"{name} is named twice; keep one"
        else:
            found[name] = sign
            continue
        raise TargetError(f"target {quoted(target)}: features: {fault}")
    has = with_differences(cpu, [sign + name for name, sign in found.items()])
    wanted = implied(cpu)
    return tuple(("+" if name in has else "-") + name for name in sorted(has ^ wanted))


def vector_unit(features: frozenset[str]) -> tuple[int, int]:
    """Return the width in bytes and the number of vector registers that a feature set gives."""
    if "avx512f" in features:
        return 64, 32
    if "avx2" in features:
        return 32, 16
    if features & {"neon", "fp-armv8"}:
        return 16, 32
    return 16, 16


def can_run(kernels_of: Collection[str], on: Collection[str]) -> bool:
    """Return whether a processor runs the kernels that were generated for another, as they are.

    Their vector registers have to be the same in width and number, since schedules are made of
    both, and each extension that is used has to be there.

    Args:
        kernels_of: the features of the processor that kernels were generated for.
        on: those of the processor that is to run them.
    """
    same_vectors = vector_unit(frozenset(kernels_of)) == vector_unit(frozenset(on))
    return same_vectors and EXTENSIONS & set(kernels_of) <= EXTENSIONS & set(on)


def likeness(first: Collection[str], second: Collection[str]) -> float:
    """Return the shared features of two processors over all of them, 0 to 1."""
    either = set(first) | set(second)
    return len(set(first) & set(second)) / len(either) if either else 1.0
