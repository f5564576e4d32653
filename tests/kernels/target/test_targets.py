"""Targets as they are written, what is read of the machine, and facts of its core."""

import re
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewise.kernels.errors import TargetError
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.native.objects.features import CHECKED
from tilewise.kernels.target import Target, TargetName, machine, parse_target
from tilewise.kernels.target.cores import DEFAULT, ceiling_gflops, core_of
from tilewise.kernels.target.costs import CASCADE_LAKE, ZEN5
from tilewise.kernels.target.features import EXTENSIONS, IMPLIED, can_run, differences, implied
from tilewise.kernels.target.machine import Processor, facts_text, this_processor, vector_unit
from tilewise.kernels.target.model import LONGEST_TARGET, check_processor

HIDDEN = ("amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16")
MASKED = f"cpu:emeraldrapids,threads=1,features={':'.join(f'-{name}' for name in HIDDEN)}"


@pytest.mark.parametrize(("text", "parsed"), [
    ("host", TargetName("host")),
    ("cpu:znver4", TargetName("znver4")),
    ("iree:znver4,threads=12", TargetName("znver4", 12, "iree")),
    ("cpu:skylake-avx512,threads=1024", TargetName("skylake-avx512", 1024)),
    ("cpu:x86-64-v3,threads=01", TargetName("x86-64-v3")),
    ("cpu:host,threads=2", TargetName("host", 2)),
    ("cpu:znver4,features=unknown", TargetName("znver4", differences=("unknown",))),
    ("iree:znver4,threads=2,features=-avx512vnni:-avx512bf16:+amx-tile",
     TargetName("znver4", 2, "iree", ("+amx-tile", "-avx512bf16", "-avx512vnni"))),
    ("cpu:znver4,features=+avx2:-amx-tile", TargetName("znver4")),  # which it is like
    # As a URL's query gives it back.
    ("cpu:znver4,features= amx-tile", TargetName("znver4", differences=("+amx-tile",))),
])  # fmt: skip
def test_a_target_is_a_name_and_threads_and_features(text: str, parsed: TargetName) -> None:
    assert parse_target(text) == parsed
    assert parse_target(parsed.canonical) == parsed or parsed.cpu == "host"


@pytest.mark.parametrize(("text", "why"), [
    ("cpu:znver4,features=-avx512foo", "no kernel uses 'avx512foo'; leave it out"),
    ("cpu:znver4,features=-avx2:-avx2", "avx2 is named twice; keep one"),
    ("cpu:znver4,features=-avx2:+avx2", "avx2 is named twice; keep one"),
    *((f"cpu:znver4,features={text}", "is not an entry; join")
      for text in ("avx2", "-avx2:", "-", ":", "unknown:-fma")),
    ("cpu:host,features=-avx2", "host has its own features; leave them out"),
    *((f"cpu:znver4,threads={n}", f"threads={n} is out of range; give 1 to 1024")
      for n in ("0", "1025", "999999999")),
])  # fmt: skip
def test_features_and_threads_that_make_no_sense_are_refused(text: str, why: str) -> None:
    with pytest.raises(TargetError, match=re.escape(why)) as caught:
        parse_target(text)
    assert "\n" not in str(caught.value)


def test_a_machine_that_hides_features_is_another_target() -> None:
    whole = Target("emeraldrapids", features=implied("emeraldrapids") | {"sha"})
    masked = replace(whole, features=whole.features - set(HIDDEN))
    assert whole.canonical == "cpu:emeraldrapids,threads=1"
    assert masked.canonical == MASKED
    assert parse_target(MASKED).features == masked.features - {"sha"}
    assert not masked.named.is_of(whole.named) and masked.named.is_of(parse_target(MASKED))


def test_every_feature_of_a_name_that_is_not_known_is_named() -> None:
    assert differences("z80", ("avx2", "fma", "sha")) == ("+avx2", "+fma")
    assert differences("z80", ()) == (), "nothing was recorded"
    assert differences("neoverse-v2", ("neon", "fp-armv8", "sve")) == ()
    most = Target("x" * 64, 1024, EXTENSIONS, kind="iree").canonical
    assert parse_target(most).canonical == most and len(most) < LONGEST_TARGET


@pytest.mark.parametrize(("wanted", "here", "why"), [
    ("cpu:emeraldrapids", MASKED, f"which lacks {', '.join(HIDDEN)}; use host"),
    (MASKED, "cpu:emeraldrapids,threads=1", f"which has {', '.join(HIDDEN)}; use host"),
    ("cpu:znver4,features=-fma", "cpu:znver4,threads=1,features=-f16c", "lacks f16c and has"),
    ("cpu:znver4", "cpu:znver5,threads=1", "; use host"),
])  # fmt: skip
def test_another_machine_says_what_it_is(wanted: str, here: str, why: str) -> None:
    machine = parse_target(here)
    check_processor(here, machine, machine)
    with pytest.raises(TargetError, match=f"this machine is {re.escape(here)}") as caught:
        check_processor(wanted, parse_target(wanted), machine)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_features_only_name_stored_results() -> None:
    with pytest.raises(TargetError, match="only names results that are stored; use host"):
        check_processor("cpu:a,features=unknown", parse_target("cpu:a,features=unknown"),
                        TargetName("a"))  # fmt: skip


def test_kernels_run_where_all_their_features_are() -> None:
    older, newer = implied("znver4"), implied("znver5")
    assert can_run(older, newer) and not can_run(newer, older)
    assert not can_run(implied("haswell"), newer), "vectors are of another width"


def test_targets_name_all_that_code_may_use() -> None:
    assert EXTENSIONS.issuperset({*CHECKED, *(name for one in DECLARED for name in one.features)})


@pytest.mark.full
@pytest.mark.parametrize("cpu", sorted(IMPLIED.keys() - {""}))
def test_a_name_implies_what_llvm_says(cpu: str) -> None:
    pytest.importorskip("iree.compiler")
    flags = (f"--iree-llvmcpu-target-cpu={cpu}", "--iree-llvmcpu-target-triple=x86_64-linux-gnu")
    text = compiled_text("module { util.func public @f() { util.return } }", "preprocessing", flags)
    features = re.findall(r'cpu_features = "([^"]*)"', text)
    assert features, text
    assert EXTENSIONS & {entry.removeprefix("+") for entry in features[0].split(",")} == implied(
        cpu
    )


@pytest.mark.parametrize("text", [
    *("", "gpu", "cpu:", "cpu:,threads=1", "host,threads=2", "cpu:a,threads=", "CPU:a"),
    *("cpu:a,threads=-1", "cpu:a,threads=1e3", "cpu:a,threads=1,threads=2", "cpu:a,cores=1"),
    *("cpu:a,threads=٣", "cpu:a,threads=²", f"cpu:a,threads={'9' * 5000}"),
    *("cpu:\0", "cpu:a\0b", "cpu:\ud800", "cpu:\udcff", "cpu:a\nb", "cpu:a b", "cpu:\u202e"),
    *("cpu:a,features=", "cpu:a,features=+A", "cpu:a,features=é", "host,features=-fma"),
    *("cpu:é", "cpu:-a", "cpu:" + "x" * 65, "x" * 100_000, "host\n", "cpu:a,threads=1\n"),
], ids=lambda text: ascii(text)[:30])  # fmt: skip
def test_any_other_text_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(TargetError, match="is neither 'host' nor cpu:NAME,threads=N") as caught:
        parse_target(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def cache(root: Path, index: int, kind: str, level: str, size: str) -> None:
    folder = root / f"index{index}"
    folder.mkdir()
    for name, text in (("type", kind), ("level", level), ("size", size)):
        (folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize("size", ["", "many", "K"])
def test_caches_are_those_for_data_of_known_sizes(size, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(machine, "CACHE_ROOT", tmp_path)
    assert machine._cache_sizes() == {}
    cache(tmp_path, 0, "Data", "1", "48K")
    cache(tmp_path, 1, "Instruction", "1", "32K")
    cache(tmp_path, 2, "Unified", "2", "1M")
    cache(tmp_path, 3, "Unified", "3", "98304K")
    cache(tmp_path, 4, "Unified", "4", "2G")
    cache(tmp_path, 5, "Data", "5", size)
    (tmp_path / "index6").mkdir()
    assert machine._cache_sizes() == {1: 48 << 10, 2: 1 << 20, 3: 96 << 20, 4: 2 << 30}


@pytest.mark.parametrize(("features", "unit"), [
    ({"avx512f", "avx2", "fma"}, (64, 32)), ({"avx2", "fma"}, (32, 16)), ({"neon"}, (16, 32)),
    ({"sse4.2"}, (16, 16)), (set(), (16, 16)),
])  # fmt: skip
def test_vectors_are_as_wide_as_the_features_say(features: set[str], unit: tuple[int, int]) -> None:
    assert vector_unit(frozenset(features)) == unit


CPUINFO = "processor : 0\nvendor_id : A\nmodel : 7\ncpu MHz : {mhz}\nflags : x y\n\nprocessor : 1\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names that LLVM gave, on a processor of the tests."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(mhz=3000))
    names: list[str] = []

    def name() -> str:
        names.append(f"cpu{len(names) + 1}")
        return names[-1]

    monkeypatch.setattr(llvm, "get_host_cpu_name", name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"avx2": True, "avx512f": False})
    return names


def test_llvm_is_asked_once(asked: list[str], tmp_path: Path) -> None:
    first = this_processor()
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(mhz=1200))  # which changes by the second
    assert this_processor() == first == Processor(first.key, "cpu1", ("avx2",))
    assert len(asked) == 1


@pytest.mark.parametrize("change", ["model : 8", "flags : x", "llvm"])
def test_another_processor_or_llvm_is_asked_for_anew(asked, tmp_path, change, monkeypatch) -> None:
    this_processor()
    if change == "llvm":
        monkeypatch.setattr(machine.metadata, "version", lambda _name: "99")
    name, text = change.partition(" ")[0], CPUINFO.format(mhz=3000)
    lines = (change if line.startswith(f"{name} ") else line for line in text.splitlines())
    (tmp_path / "cpuinfo").write_text("\n".join(lines) + "\n")
    assert this_processor().name == "cpu2"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "k", "name": 3, "features": []}'])
def test_what_is_damaged_is_asked_for_anew(asked: list[str], tmp_path: Path, text: str) -> None:
    this_processor()
    (tmp_path / "cache" / "processor.json").write_text(text)
    assert this_processor().name == "cpu2"
    assert this_processor().name == "cpu2"


def test_without_a_cache_it_is_asked_every_time(asked, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert [this_processor().name, this_processor().name] == ["cpu1", "cpu2"]
    (tmp_path / "cpuinfo").unlink()
    assert this_processor().key == ""


WHOLE = {
    "cpu": "emeraldrapids", "cores": 2, "caches": {"l3": 260 << 20, "l1": 48 << 10, "l2": 2 << 20},
    "peaks": {"f32": 230.4, "i8": 3000.0, "f64": 100.0}, "bandwidth_gbs": 12.3,
}  # fmt: skip


def test_facts_are_what_is_known() -> None:
    assert facts_text(WHOLE) == (
        "emeraldrapids, 2 cores, L1 48 KiB, L2 2 MiB, L3 260 MiB; one thread: f32 230 GFLOP/s, "
        "i8 3000 GFLOP/s, memory 12 GB/s"
    )
    assert facts_text({**WHOLE, "cores": 1, "caches": {"l3": 0}, "peaks": None,
                       "bandwidth_gbs": None}) == "emeraldrapids, 1 core"  # fmt: skip
    assert facts_text({"cpu": "znver5", "host": "of an older service"}) == "znver5"


@pytest.mark.parametrize(("cpu", "costs", "is_far"), [
    *((cpu, CASCADE_LAKE, True) for cpu in ("sapphirerapids", "emeraldrapids")),
    *((cpu, CASCADE_LAKE, False) for cpu in ("skylake-avx512", "cascadelake", "alderlake")),
    *((cpu, ZEN5, False) for cpu in ("znver4", "znver5", "generic", "unheard-of")),
])  # fmt: skip
def test_the_last_cache_is_far_where_it_was_measured(cpu: str, costs: object, is_far: bool) -> None:
    core, _ = core_of(cpu)
    assert (core.costs, core.far_l3 is not None) == (costs, is_far)
    assert core.transforms.are_cheap == is_far
    assert (core == DEFAULT) == (cpu in ("generic", "unheard-of"))
    assert core_of(cpu, {"amx-tile"}) == core_of("sapphirerapids")


@pytest.mark.parametrize(("dtype", "operations"), [("bf16", 1024), ("i8", 2048), ("f32", 64)])
def test_matrix_tiles_raise_the_ceiling(dtype: str, operations: int) -> None:
    vectors = ceiling_gflops("emeraldrapids", (), dtype, 2)
    tiles = ceiling_gflops("emeraldrapids", ("amx-tile",), dtype, 2)
    assert tiles == operations * 5.5 * 2
    assert tiles > vectors or dtype == "f32"
