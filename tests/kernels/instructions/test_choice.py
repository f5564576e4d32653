"""The instruction for a type is the fastest by what was measured, else by the table of cores."""

from dataclasses import replace
from pathlib import Path

import pytest

from tilewise.kernels.instructions import Form, chosen, usable
from tilewise.kernels.native.measured_rates import lacks_rates, with_rates
from tilewise.kernels.target import Target, detect
from tilewise.kernels.target.machine import keep_rates, kept_rates

FMA, PRODUCT = "x86.avx512.fma.f32", "x86.avx512.mul.i32"
VDPBF16PS, VPDPBUSD = "x86.avx512.vdpbf16ps", "x86.avx512.vpdpbusd"
VPMADDWD = "x86.avx512.vpmaddwd"
EVERYTHING = frozenset(("fma", "avx2", "avx512f", "avx512bw", "avx512vnni", "avx512bf16"))


def target(cpu: str, features: frozenset[str] = EVERYTHING, **rates: float) -> Target:
    measured = tuple(sorted((f"x86.avx512.{name}", rate) for name, rate in rates.items()))
    return Target(cpu, features=features, vector_bytes=64, vector_registers=32, rates=measured)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("form", [Form.OUTER_PRODUCT, Form.SKINNY, Form.SPLIT])
@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        *((cpu, FMA) for cpu in ("sapphirerapids", "emeraldrapids", "graniterapids")),
        *((cpu, VDPBF16PS) for cpu in ("znver4", "znver5", "a-later-one")),
    ],
)
def test_without_measurements_the_table_of_cores_chooses(cpu: str, name: str, form: Form) -> None:
    assert chosen("bf16", target(cpu), form) == name
    assert chosen("bf16", target(cpu, EVERYTHING - {"avx512bf16"}), form) == FMA


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5", "skylake-avx512"])
def test_bytes_are_multiplied_by_dot_products_where_there_are_some(cpu: str) -> None:
    assert chosen("i8", target(cpu)) == VPDPBUSD
    assert chosen("i8", target(cpu), Form.SPLIT) == VPMADDWD
    assert chosen("i8", target(cpu, EVERYTHING - {"avx512vnni"})) == PRODUCT


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5"])
def test_measured_rates_go_before_the_table(cpu: str) -> None:
    dot_first = {"vdpbf16ps": 164.0, "fma.f32": 163.0, "vpdpbusd": 9.0, "mul.i32": 10.0}
    fast, slow = target(cpu, **dot_first), target(cpu, **dot_first | {"vdpbf16ps": 82.0})
    assert (chosen("bf16", fast), chosen("bf16", slow)) == (VDPBF16PS, FMA)
    assert chosen("bf16", slow, Form.SPLIT) == FMA
    assert chosen("i8", fast) == PRODUCT
    assert chosen("i8", fast, Form.SPLIT) == VPMADDWD, "of which nothing was measured"


def test_what_was_measured_is_kept_between_processes(cache: Path) -> None:
    assert kept_rates() == ()
    keep_rates({VDPBF16PS: 82.0, FMA: 163.0})
    assert kept_rates() == detect().rates == ((FMA, 163.0), (VDPBF16PS, 82.0))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"processor": "another", "rates": {"x86.avx512.fma.f32": 1.0}}']
)
def test_rates_of_another_processor_and_damaged_ones_are_none(cache: Path, text: str) -> None:
    keep_rates({FMA: 163.0})
    (cache / "instruction_rates.json").write_text(text)
    assert kept_rates() == ()


def test_this_machine_is_measured_where_it_has_a_choice(cache: Path) -> None:
    here = replace(detect(), rates=())
    found = with_rates(here, "i8")
    assert found == here if len(usable("i8", here)) == 1 else not lacks_rates("i8", found)
    assert with_rates(here, "f32") == here
    assert with_rates(target("another"), "bf16") == target("another")
