"""A search through IREE: the same loop, samplers and finals; its code is IREE's."""

from dataclasses import replace

import pytest

from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.store import MemoryStore

pytest.importorskip("iree.runtime", reason="IREE's runtime, which runs the code, is not installed")

PROBLEM = parse_problem("matmul:m=64,n=96,k=40,dtype=f32")
TARGET = replace(detect(), kind="iree")


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["surrogate", "tpe"])
def test_a_search_times_right_code_and_iree_alone_beside_it(sampler: str) -> None:
    store = MemoryStore()
    result = tune(PROBLEM, TARGET, TuneRequest(trials=4, sampler=sampler), store)
    assert len(store.trials()) == 4
    assert result.best is not None and isinstance(result.best.schedule, Configuration)
    assert set(result.peers) == {"iree", "iree-dt"}
    assert {trial.failure for trial in result.trials} <= {None, "compile"}


def test_steps_of_our_own_kernels_are_refused() -> None:
    steps = [
        {"step": "level", "at": "distribution", "dim": "m", "size": 64},
        {"step": "level", "at": "vector_common_parallel", "dim": "m", "size": 64},
        {"step": "level", "at": "vector_common_parallel", "dim": "n", "size": 96},
        {"step": "level", "at": "vector_reduction", "dim": "k", "size": 40},
        {"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"},
    ]
    with Runner(PROBLEM, TARGET.canonical) as runner:
        with pytest.raises(CandidateFailureError) as failed:
            runner.trial([*steps, {"step": "unroll", "factor": 4}], None)
        assert failed.value.kind == "constraint"
