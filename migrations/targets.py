"""How a machine differs from what its processor's name implies, as of revision 0019.

A copy of `tilewise.kernels.target.features`'s. It must not follow changes there: targets that were
rewritten with this table stay as they are.
"""

from collections.abc import Collection

ARM = ("fp-armv8", "neon")
ARM_NAMES = ("ampere", "apple-", "a64fx", "carmel", "cortex-", "exynos", "falkor", "grace",
              "kryo", "neoverse-", "oryon", "saphira", "thunderx", "tsv110")  # fmt: skip

# Names of processors, the name that they add to, and what they add.
FAMILIES = (
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


def implied_by_name() -> dict[str, frozenset[str]]:
    """Return what each name implies."""
    found: dict[str, frozenset[str]] = {"": frozenset()}
    for names, parent, added in FAMILIES:
        features = found[parent] | set(added.split())
        found |= dict.fromkeys(names.split(), features)
    return found


IMPLIED = implied_by_name()
EXTENSIONS = frozenset(ARM).union(*IMPLIED.values())


def ending(cpu: str, features: Collection[str]) -> str:
    """Return what a target of a machine ends with: its differences, or nothing."""
    has = EXTENSIONS & set(features)
    wanted = IMPLIED.get(cpu, frozenset(ARM if cpu.startswith(ARM_NAMES) else ()))
    differing = [("+" if name in has else "-") + name for name in sorted(has ^ wanted)]
    return f",features={':'.join(differing)}" if differing else ""
