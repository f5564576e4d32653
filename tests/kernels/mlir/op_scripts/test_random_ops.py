"""Random ops of modules with random schedules: the script proves itself on the op as it stands."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kernels.mlir.frontend.generics import Generic
from tests.kernels.mlir.op_scripts.ops import contraction, convolution, drawn, read
from tilewise.kernels.mlir.op_scripts.prove import prove_lone
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("draw", "count"), [(contraction, 16), (convolution, 10)])
def test_scripts_of_random_ops_prove(
    host: Target, draw: Callable[[random.Random], Generic], count: int
) -> None:
    def proven(seed: int) -> tuple[Generic, Schedule, ScriptProof]:
        rng = random.Random(seed)
        case = draw(rng)
        lone = read(case)
        schedule = drawn(lone, host, rng)
        return case, schedule, prove_lone(lone, schedule, seed=seed)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(proven, range(count)))
    for case, schedule, proof in found:
        assert proof.ok, (case, str(schedule), proof.failure, proof.message)
    packed = ["transform.structured.pack %" in proof.script for _, _, proof in found]
    assert any(packed)
