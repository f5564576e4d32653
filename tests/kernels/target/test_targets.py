"""Targets as they are written."""

import re
from dataclasses import replace

import pytest

from tilewise.kernels.errors import TargetError
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.native.objects.features import CHECKED
from tilewise.kernels.target import Target, TargetName, parse_target
from tilewise.kernels.target.features import EXTENSIONS, IMPLIED, can_run, differences, implied
from tilewise.kernels.target.model import LONGEST_TARGET, check_processor

HIDDEN = ("amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16")
MASKED = f"cpu:emeraldrapids,threads=1,features={':'.join(f'-{name}' for name in HIDDEN)}"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("host", TargetName("host")),
        ("cpu:znver4", TargetName("znver4")),
        ("iree:znver4,threads=12", TargetName("znver4", 12, "iree")),
        ("cpu:skylake-avx512,threads=1024", TargetName("skylake-avx512", 1024)),
        ("cpu:x86-64-v3,threads=01", TargetName("x86-64-v3")),
        ("cpu:host,threads=2", TargetName("host", 2)),
        ("cpu:znver4,features=unknown", TargetName("znver4", differences=("unknown",))),
        (
            "iree:znver4,threads=2,features=-avx512vnni:-avx512bf16:+amx-tile",
            TargetName("znver4", 2, "iree", ("+amx-tile", "-avx512bf16", "-avx512vnni")),
        ),
        ("cpu:znver4,features=+avx2:-amx-tile", TargetName("znver4")),  # which it is like
        # As a URL's query gives it back.
        ("cpu:znver4,features= amx-tile", TargetName("znver4", differences=("+amx-tile",))),
    ],
)
def test_a_target_is_a_name_and_threads_and_features(text: str, parsed: TargetName) -> None:
    assert parse_target(text) == parsed
    assert parse_target(parsed.canonical) == parsed or parsed.cpu == "host"


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ("-avx512foo", "no kernel uses 'avx512foo'; leave it out"),
        ("-avx2:-avx2", "avx2 is named twice; keep one"),
        ("-avx2:+avx2", "avx2 is named twice; keep one"),
        *((text, "is not an entry; join") for text in ("avx2", "-avx2:", "-", ":", "unknown:-fma")),
    ],
)
def test_features_that_make_no_sense_are_refused(features: str, why: str) -> None:
    with pytest.raises(TargetError, match=re.escape(why)) as caught:
        parse_target(f"cpu:znver4,features={features}")
    assert "\n" not in str(caught.value)


def test_the_host_has_its_own_features() -> None:
    with pytest.raises(TargetError, match="host has its own features; leave them out"):
        parse_target("cpu:host,features=-avx2")


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


@pytest.mark.parametrize(
    ("wanted", "here", "why"),
    [
        ("cpu:emeraldrapids", MASKED, f"which lacks {', '.join(HIDDEN)}; use host"),
        (MASKED, "cpu:emeraldrapids,threads=1", f"which has {', '.join(HIDDEN)}; use host"),
        ("cpu:znver4,features=-fma", "cpu:znver4,threads=1,features=-f16c", "lacks f16c and has"),
        ("cpu:znver4", "cpu:znver5,threads=1", "; use host"),
    ],
)
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


@pytest.mark.parametrize("threads", ["0", "1025", "999999999"])
def test_threads_have_a_range(threads: str) -> None:
    with pytest.raises(TargetError, match=f"threads={threads} is out of range; give 1 to 1024"):
        parse_target(f"cpu:znver4,threads={threads}")


@pytest.mark.parametrize(
    "text",
    [
        *("", "gpu", "cpu:", "cpu:,threads=1", "host,threads=2", "cpu:a,threads=", "CPU:a"),
        *("cpu:a,threads=-1", "cpu:a,threads=1e3", "cpu:a,threads=1,threads=2", "cpu:a,cores=1"),
        *("cpu:a,threads=٣", "cpu:a,threads=²", f"cpu:a,threads={'9' * 5000}"),
        *("cpu:\0", "cpu:a\0b", "cpu:\ud800", "cpu:\udcff", "cpu:a\nb", "cpu:a b", "cpu:\u202e"),
        *("cpu:a,features=", "cpu:a,features=+A", "cpu:a,features=é", "host,features=-fma"),
        *("cpu:é", "cpu:-a", "cpu:" + "x" * 65, "x" * 100_000, "host\n", "cpu:a,threads=1\n"),
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_any_other_text_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(TargetError, match="is neither 'host' nor cpu:NAME,threads=N") as caught:
        parse_target(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
