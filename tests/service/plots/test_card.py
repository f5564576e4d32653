from tests.tilewise.test_render import found
from tilewise.service.plots.nest import result_card


def test_a_noisy_result_and_a_fast_algorithm_are_named():
    plain = result_card(found(proof={"sha256": "0"}))
    assert "noisy" not in plain and "fewer" not in plain
    steps = [{"step": "strassen", "levels": 1}]
    card = result_card(found(best={"quality": "noisy", "steps": steps}, proof={"sha256": "0"}))
    assert "noisy machine: measure again" in card
    assert "strassen does fewer multiplications than GFLOP/s counts" in card
