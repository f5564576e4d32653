"""Sizes of a model's dynamic dims, and the problems of a model over a range of one."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.errors import DimError, ProblemError
from tilewise.kernels.problem import ProblemRange, parse_problem, parse_range
from tilewise.kernels.quoting import quoted

_DIM = re.compile(r"(.+)=(\d{1,9})(?:\.\.(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII | re.DOTALL)
_MOST_SHOWN = 12
Sizes = dict[str, int]
"""Sizes by the names of dims; 0 for a dim that stays dynamic."""
Json = dict[str, Any]


@dataclass(frozen=True)
class DimRange:
    """The sizes of dynamic dims that are always equal."""

    names: tuple[str, ...]
    first: int
    last: int
    step: int

    @property
    def within(self) -> range:
        """All sizes."""
        return range(self.first, self.last + 1, self.step)

    @property
    def samples(self) -> tuple[int, ...]:
        """Both ends and up to two sizes between, at which problems are read."""
        count = len(self.within)
        return tuple(self.within[i] for i in sorted({0, count // 3, count // 2, count - 1}))

    @property
    def tested(self) -> tuple[int, ...]:
        """Both ends and a size between, odd if there is one: a model is run at these."""
        between = self.within[len(self.within) // 2 :]
        middle = next((size for size in between if size % 2), between[0])
        return tuple(sorted({self.within[0], middle, self.within[-1]}))

    @property
    def outside(self) -> int:
        """A size that is not in the range."""
        return self.first - 1 or self.within[-1] + 1

    def at(self, size: int) -> Sizes:
        """Return one size for each of the dims."""
        return dict.fromkeys(self.names, size)


def check_names(given: Collection[str], dims: Collection[str]) -> None:
    """Raise DimError for a name that no dynamic dim has, and for a dim without a size."""
    shown = [*dims][:_MOST_SHOWN] + ["..."] * (len(dims) > _MOST_SHOWN)
    for name in given:
        if name not in dims:
            has = f"it has {', '.join(shown)}" if dims else "all its dims are static"
            raise DimError(f"dim={quoted(name)}: the model has no such dynamic dim; {has}")
    for name in dims:
        if name not in given:
            raise DimError(f"dim {name} is left dynamic; give --dim {name}=SIZE, too")


def parse_dims(texts: Sequence[str]) -> tuple[Sizes, DimRange | None]:
    """Read `NAME[,NAME...]=SIZE`, one of which may be a range `A..B[:STEP]`.

    Raise DimError for what cannot be read.
    """
    sizes: Sizes = {}
    varied = None
    for text in texts:
        found = _DIM.fullmatch(text)
        if found is None or not int(found[2]):
            raise DimError(f"dim={quoted(text)}: give NAME=SIZE, as batch=8, or NAME=1..32")
        names = tuple(found[1].split(","))
        known = {*sizes, *(varied.names if varied else ())}
        if repeated := [one for one in names if one in known]:
            raise DimError(f"dim={quoted(text)}: {repeated[0]} has a size already")
        if found[3] is None:
            sizes |= dict.fromkeys(names, int(found[2]))
            continue
        if varied:
            first = varied.names[0]
            raise DimError(f"dim={quoted(text)}: {first} has a range already; dims that share "
                           f"it are written {first},{names[0]}=...")  # fmt: skip
        step = int(found[4] or 1)
        varied = DimRange(names, -(-int(found[2]) // (step or 1)) * step, int(found[3]), step or 1)
        if not step or len(varied.within) < 2:
            raise DimError(f"dim={quoted(text)} holds no two sizes; give the smaller one first")
    return sizes, varied


def exact_dims(texts: Sequence[str]) -> Sizes:
    """Read `NAME[,NAME...]=SIZE`; raise DimError for others."""
    sizes, varied = parse_dims(texts)
    if varied:
        raise DimError(f"dim {varied.names[0]} has a range; give one size, or make an IREE library "
                       "by tilewise model --as iree --dim")  # fmt: skip
    return sizes


def problems_over(texts: Sequence[str], read: Callable[[Sizes], Json]) -> Json:
    """Return what `read` finds in a model, with ranges of problems if a dim has a range.

    `read` returns the object of `tilewise import --json` at some sizes. Ranges are fitted to the
    problems at both ends and at two sizes between.
    """
    sizes, varied = parse_dims(texts)
    if varied is None:
        return read(sizes)
    found = [read(sizes | varied.at(size)) for size in varied.samples]
    places = [_by_place(one) for one in found]
    problems: dict[str, list[str]] = {}
    skipped = list(found[-1]["skipped"])
    known = {one["where"] for one in skipped}
    for where in dict.fromkeys(where for one in places for where in one):
        alike = [one.get(where, []) for one in places]
        for number in range(max(map(len, alike))):
            try:
                problem = problem_over([one[number] for one in alike], varied)
                problems.setdefault(problem, []).append(where)
            except IndexError:
                reason = f"is no problem at each size of {varied.names[0]}; give it exact sizes"
            except ProblemError as error:
                reason = str(error)
            else:
                continue
            if where not in known:
                skipped.append({"op": where.rpartition(" ")[2], "reason": reason, "where": where})
    listed = [{"problem": problem, "count": len(where), "where": where}
              for problem, where in problems.items()]  # fmt: skip
    return {"problems": listed, "skipped": skipped}


def _by_place(found: Json) -> dict[str, list[str]]:
    """Return the problems at each place of a model."""
    places: dict[str, list[str]] = {}
    for one in found["problems"]:
        for where in one["where"]:
            places.setdefault(where, []).append(one["problem"])
    return places


def problem_over(texts: Sequence[str], dim: DimRange) -> str:
    """Return the problem or the range of problems that has each problem at its sample of a dim.

    Raises ProblemError if no range has them.
    """
    sampled, name = dim.samples, dim.names[0]
    problems = [parse_problem(text) for text in texts]
    first = problems[0]
    keys = dict.fromkeys(key for one in problems for key in one.to_json())
    changed = [key for key in keys if len({getattr(one, key, 0) for one in problems}) > 1]
    if not changed:
        return texts[0]
    if len(changed) != 1 or changed[0] not in ProblemRange.DIMS.get(first.op, ()):
        raise ProblemError(f"changes {' and '.join(changed)} with {name}; give {name} exact sizes")
    key = changed[0]
    sizes = [getattr(one, key) for one in problems]
    slope = (sizes[-1] - sizes[0]) // (sampled[-1] - sampled[0])
    step = slope * dim.step
    is_fitted = step > 0 and sizes[0] % step == 0 and sizes == [
        sizes[0] + slope * (size - sampled[0]) for size in sampled
    ]  # fmt: skip
    if is_fitted:
        made = parse_range({**first.to_json(), key: f"{sizes[0]}..{sizes[-1]}:{step}"})
        if all(map(made.holds, problems)):
            return made.canonical
    shown = ", ".join(f"{key}={got} at {size}" for got, size in zip(sizes, sampled, strict=True))
    raise ProblemError(f"has {shown} of {name}, which no range expresses; give {name} exact sizes")
