"""The choice is the best of all, by trying all of them, and by another solver."""

import random
from itertools import product

import pytest

from benchmarks.models.flows import priced
from tilewise.search.errors import ChoiceError
from tilewise.search.networks.choice import Alternative, Flow, FlowStep, choose, conversions


def random_flow(rng: random.Random) -> Flow:
    """A few steps that read what any of those before has made, and leave some of it."""
    layouts = range(rng.randint(1, 3))
    steps: list[FlowStep] = []
    tensors = 1 + rng.randint(0, 1)
    given = {tensor: rng.choice(layouts) for tensor in range(tensors)}
    for _ in range(rng.randint(1, 6)):
        reads = tuple(rng.randrange(tensors) for _ in range(rng.randint(1, 3)))
        makes = tuple(range(tensors, tensors + rng.choice((1, 1, 1, 2))))
        tensors += len(makes)
        ways = []
        for _ in range(rng.randint(1, 4)):
            chosen = [tuple(rng.choice(layouts) for _ in of) for of in (reads, makes)]
            ways.append(Alternative(rng.randint(0, 9), *chosen))
        steps.append(FlowStep(reads, makes, tuple(ways)))
    costs = {key: rng.randint(0, 9) for key in product(range(tensors), layouts, layouts)}
    wanted = {tensor: rng.choice(layouts) for tensor in range(tensors) if rng.random() < 0.3}
    return Flow(tuple(steps), lambda *key: costs[key], given, wanted)


def cost_of(flow: Flow, picks: tuple[int, ...]) -> float:
    """The definition, tensor by tensor."""
    ways = [step.alternatives[pick] for step, pick in zip(flow.steps, picks, strict=True)]
    total = sum(way.cost for way in ways)
    for tensor in {*flow.given, *(one for step in flow.steps for one in step.makes)}:
        made, had = flow.given.get(tensor), set()
        for step, way in zip(flow.steps, ways, strict=True):
            for one, layout in zip(step.makes, way.makes, strict=True):
                made = layout if one == tensor else made
            had |= {way.reads[i] for i, one in enumerate(step.reads) if one == tensor}
        if tensor in flow.wanted:
            had.add(flow.wanted[tensor])
        total += sum(flow.conversion(tensor, made, layout) for layout in had - {made})
    return total


def test_the_choice_is_the_best_of_all() -> None:
    rng = random.Random(27)
    kinds = set()
    for _ in range(100):
        flow = random_flow(rng)
        every = product(*(range(len(step.alternatives)) for step in flow.steps))
        costs = {picks: cost_of(flow, picks) for picks in every}
        chosen = choose(flow)
        assert chosen.cost == min(costs.values()) == costs[chosen.picks]
        assert all(priced(flow, picks) == cost for picks, cost in costs.items())
        kinds.add((chosen.cost < max(costs.values()), bool(conversions(flow, chosen.picks))))
    assert kinds == {(True, True), (True, False), (False, True), (False, False)}


def chain(readers: int, layouts: int) -> Flow:
    """A tensor that many read, each in any layout, and each for a result that all read again."""
    ways = tuple(Alternative(1.0, (i,), (i,)) for i in range(layouts))
    last = tuple(Alternative(1.0, pick, (0,)) for pick in product(range(layouts), repeat=2))
    steps = [FlowStep((0,), (number + 1,), ways) for number in range(readers)]
    pairs = product(range(1, readers + 1), repeat=2)
    steps += [FlowStep(pair, (readers + 1 + i,), last) for i, pair in enumerate(pairs)]
    return Flow(tuple(steps), lambda *_: 1.0, {0: 0}, {})


def test_a_choice_of_many_states_keeps_the_cheapest() -> None:
    narrow, wide = choose(chain(4, 2)), choose(chain(6, 3), most_states=100)
    assert (narrow.cost, narrow.is_exact) == (4 + 16, True)
    assert (wide.cost, wide.is_exact) == (6 + 36, False)


def test_layouts_that_do_not_fit_together_are_refused() -> None:
    step = FlowStep((0,), (), (Alternative(0.0, ("blocks",), ()),))
    with pytest.raises(ChoiceError, match="no choice of layouts fits"):
        choose(Flow((step,), lambda *_: float("inf"), {0: "plain"}, {}))


def test_a_tensor_with_a_hundred_readers_of_one_layout_is_no_wide_choice() -> None:
    ways = (Alternative(1.0, ("plain",), ("plain",)),)
    steps = tuple(FlowStep((0,), (i,), ways) for i in range(1, 101))
    assert choose(Flow(steps, lambda *_: 1.0, {0: "plain"}, {})).cost == 100
