"""Buffers that live at the same time are placed apart, and dead ones give their memory back."""

from random import Random

from tilewise.search.networks.lowering.memory import Lifetime, placed


def test_no_two_live_buffers_overlap() -> None:
    for seed in range(60):
        random = Random(seed)
        lifetimes = []
        for _ in range(random.randint(1, 24)):
            first = random.randint(-1, 20)
            lifetimes.append(Lifetime(random.randint(0, 700), first, first + random.randint(0, 8)))
        made = placed(lifetimes)
        used = {}
        for number, (one, at) in enumerate(zip(lifetimes, made.offsets, strict=True)):
            assert at % 64 == 0
            assert at + one.size <= made.size <= made.apart
            for step in range(one.first, one.last + 1):
                for byte in range(at, at + one.size):
                    assert used.setdefault((step, byte), number) == number


def test_memory_is_used_again() -> None:
    chain = [Lifetime(1000, step, step + 1) for step in range(10)]
    assert placed(chain).size == 2 * 1024
    assert placed([]).size == 0
