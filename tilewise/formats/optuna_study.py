"""Trials as an Optuna study, for Optuna's plots and optuna-dashboard.

Every parameter is categorical with the same choices in every trial: 0 means "not cut", so most have
no numeric axis, and Optuna's importances require one distribution per parameter.
"""

import re
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.quoting import quoted, without_password
from tilewise.search.timing.samples import running_medians

Json = dict[str, Any]
Choice = bool | int | float | str | None

METRIC = "time (us)"
_OWN_TABLE = "toolchains"  # of this project's database, and of no storage of Optuna's
_STATES = {"timed": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def export(rows: Sequence[Json], storage: str, name: str | None = None) -> Json:
    """Write trials of one problem and target into a new Optuna study that minimises the time.

    Timed trials are complete, trials stopped early are pruned with what was seen of them. `name`
    defaults to the problem and target. Returns the name, the storage without its password, and
    counts by state.

    Raises BadInputError if the storage is unusable, is Tilewise's own database, or has the study.
    """
    first = rows[0]
    name = name or f"{first['problem']} on {first['target']}"
    if not name.isprintable():
        raise BadInputError(f"name={quoted(name)} holds characters that cannot be printed")
    shown = _shown(storage)
    _require_storage(storage, shown)
    distributions = _distributions(row["params"] for row in rows)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(study_name=name, storage=storage, direction="minimize")
        try:
            _describe(study, first)
            study.add_trials(_trial(row, distributions) for row in rows)
        except BaseException:
            optuna.delete_study(study_name=name, storage=storage)  # half a study misleads
            raise
    except optuna.exceptions.DuplicatedStudyError as error:
        raise BadInputError(
            f"the study {quoted(name)} exists in {shown}; give another --name, or another --storage"
        ) from error
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise TilewiseError(f"storage {shown} failed: {error}") from error
    counts = {state: sum(row["state"] == state for row in rows) for state in _STATES}
    return {"study": name, "storage": shown, "trials": counts}


def _shown(url: str) -> str:
    """Return the URL without its password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return without_password(url)
    return url if parsed.password is None else parsed.render_as_string()


def _require_storage(url: str, shown: str) -> None:
    """Raise BadInputError unless `url` is a database that may hold Optuna's tables.

    Tilewise and Optuna both keep their schema's version in a table `alembic_version`.
    """
    try:
        url.encode()
        engine = create_engine(url)
    except (ArgumentError, ModuleNotFoundError, ValueError) as error:
        raise BadInputError(
            f"storage {quoted(shown)} is not the URL of a database; give one as sqlite:///study.db"
        ) from error
    try:
        is_ours = inspect(engine).has_table(_OWN_TABLE)
    except (SQLAlchemyError, ValueError) as error:
        raise BadInputError(f"storage {quoted(shown)} cannot be opened: {error}") from error
    finally:
        engine.dispose()
    if is_ours:
        raise BadInputError(
            f"storage {quoted(shown)} holds Tilewise's own tables, which Optuna's would break; "
            "give another"
        )


def _describe(study: optuna.Study, row: Json) -> None:
    for key in ("problem", "target"):
        study.set_user_attr(key, row[key])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([METRIC])


def _distributions(points: Iterable[Json]) -> dict[str, CategoricalDistribution]:
    """Return the values of each parameter in any trial; None where a trial lacks it.

    Trials of other versions may have other parameters, and importances need one common space.
    """
    seen: dict[str, set[Choice]] = {}
    taken = list(points)
    for name in dict.fromkeys(name for point in taken for name in point):
        seen[name] = {point.get(name) for point in taken}
    return {
        name: CategoricalDistribution(sorted(values, key=_natural)) for name, values in seen.items()
    }


def _natural(value: Choice) -> tuple[int, list[int], str]:
    """Sort numbers by size with 0 last, texts by the numbers in them, and None last."""
    if value is None:
        return 2, [], ""
    if isinstance(value, str):
        return 0, [int(digits) for digits in re.findall(r"\d+", value)], value
    return int(value == 0 and not isinstance(value, bool)), [int(value)], str(value)


def _trial(row: Json, distributions: dict[str, CategoricalDistribution]) -> FrozenTrial:
    """Return one trial; its start is derived from compile and sample times."""
    end = datetime.fromisoformat(row["created"]).astimezone().replace(tzinfo=None)
    spent = row["compile_s"] + sum(row["samples_us"]) / 1e6
    state = _STATES[row["state"]]
    seen = running_medians([t / (row.get("pace") or 1.0) for t in row["samples_us"]])
    value = seen[max(seen)] if state is TrialState.PRUNED and seen else None
    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=state,
        value=row["time_us"] if state is TrialState.COMPLETE else value,
        datetime_start=end - timedelta(seconds=spent),
        datetime_complete=end,
        params={name: row["params"].get(name) for name in distributions},
        distributions={**distributions},
        user_attrs=_attributes(row),
        system_attrs={},
        intermediate_values=seen,
    )


def _attributes(row: Json) -> Json:
    """Return further known facts of a trial."""
    names = ("job", "number", "hash", "origin", "gflops", "compile_s", "rejected", "pace",
             "max_error", "failure", "message", "toolchain")  # fmt: skip
    return {name: row[name] for name in names if row.get(name) not in (None, "")}
