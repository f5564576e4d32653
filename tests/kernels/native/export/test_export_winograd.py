"""Exported modules of convolutions by minimal filtering."""

from pathlib import Path

import pytest

from kernels.native.export.module import export
from kernels.problem import parse_problem
from kernels.schedule import Pack, Register, Schedule, Step, Tile, Winograd
from kernels.target import Target
from tests.kernels.native.export.test_export import run_alone

TEXT = "conv2d:n=2,h=9,w=11,ci=5,co=40,kh={kh},kw={kw},{rest},dtype=f32,bias,weights={weights}"


@pytest.mark.parametrize(("kh", "kw", "output"), [(3, 3, 2), (3, 3, 4), (5, 5, 3), (7, 1, 2)])
@pytest.mark.parametrize("weights", ["variable", "constant"])
@pytest.mark.parametrize("rest", ["pad=0", "pad=3,layout=nchw_fchw"])
def test_a_module_checks_itself(
    kh: int, kw: int, output: int, weights: str, rest: str, host: Target, tmp_path: Path
) -> None:
    """With three pixels of padding some outputs see zeros alone, and have rounding of others."""
    problem = parse_problem(TEXT.format(kh=kh, kw=kw, rest=rest, weights=weights))
    cols = 2 * host.lanes("f32")
    steps: tuple[Step, ...] = (Winograd(output), Tile("co", cols), Pack("B"))
    steps += (Tile("t", 4), Pack("A"), Register(2, cols))
    text = export(problem, Schedule(steps), host)
    done = run_alone(text, tmp_path)
    assert done.returncode == 0, done.stderr
    wrong = text.replace("c_tile = a_panels", "c_tile = 64 + a_panels")
    assert wrong != text
    assert "WRONG" in run_alone(wrong, tmp_path).stderr
