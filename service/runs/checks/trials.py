"""Trials and candidates of a run, compared with its job."""

from collections.abc import Iterator, Sequence

from tilewise.service.runs.checks.work import LONGEST_S, PACES, Fault, JobWork, refuse
from tilewise.service.runs.wire.candidates import CandidateWire
from tilewise.service.runs.wire.trials import TrialWire


def check_trial(work: JobWork, trial: TrialWire, used: int, last: int, *, is_stored: bool) -> None:
    """Refuse a trial of another problem, an impossible one, and one beyond the budget.

    Args:
        work: of the job.
        trial: as it was sent.
        used: trials of the job, and candidates that its helpers have.
        last: the largest number of a stored trial; -1 if there is none.
        is_stored: whether the job has a trial of its number, which the store compares with it.

    Raises:
        RefusedError: names the fields.
    """
    number = None if is_stored else _number_fault(work, trial.number, used, last)
    refuse(_faults(work, trial, "trial", number))


def check_answer(work: JobWork, trial: TrialWire) -> None:
    """Refuse an impossible trial of a helper; its number is that of a candidate.

    Raises:
        RefusedError: names the fields.
    """
    refuse(_faults(work, trial, "answer", None))


def check_candidates(work: JobWork, offered: Sequence[CandidateWire], used: int) -> None:
    """Refuse candidates of another problem, and more than the budget leaves trials.

    Args:
        work: of the job.
        offered: candidates, new ones and those that are sent again.
        used: trials of the job, and its candidates, those that are offered included.

    Raises:
        RefusedError: names the fields.
    """
    refuse(_candidate_faults(work, offered, used))


def _number_fault(work: JobWork, number: int, used: int, last: int) -> str | None:
    """Return what is wrong with the number of a new trial.

    Trials that cannot be read keep their numbers, so numbers can exceed the budget by their count.
    """
    if used >= work.budget or number >= max(work.budget, last + 2):
        return f"{number} is beyond the budget of {work.budget} trials"
    return None


def _faults(work: JobWork, trial: TrialWire, at: str, number: str | None) -> Iterator[Fault]:
    if number is not None:
        yield f"{at}.number", number
    record = trial.record()
    if trial.state == "failed" and trial.failure is None:
        yield f"{at}.failure", "is missing: the trial has failed"
    if trial.state == "failed" and trial.measurement is not None:
        yield f"{at}.measurement", "a failed trial has none"
    is_refused_step = trial.state == "failed" and trial.failure == "constraint"
    fault = None if is_refused_step else work.steps_fault(record.schedule)
    if fault is not None:
        yield f"{at}.steps", fault
        return
    if trial.measurement is not None:
        most = PACES * work.most_gflops(record.schedule)
        yield from work.speed_faults(f"{at}.measurement", trial.measurement, most)
        yield from work.sample_faults(f"{at}.samples", trial.samples, record.schedule)
    if not 0 <= trial.compile_s <= LONGEST_S:
        yield f"{at}.compile_s", f"{trial.compile_s:g} is not 0 to {LONGEST_S:g} s"
    if trial.max_error is not None and trial.max_error < 0:
        yield f"{at}.max_error", f"{trial.max_error:g} is below 0"


def _candidate_faults(
    work: JobWork, offered: Sequence[CandidateWire], used: int
) -> Iterator[Fault]:
    if offered and used > work.budget:
        yield "offered", f"with trials {used} are beyond the budget of {work.budget} trials"
    for place, wire in enumerate(offered):
        candidate = wire.candidate()
        fault = work.steps_fault(candidate.schedule)
        if fault is not None:
            yield f"offered.{place}.steps", fault
        control = wire.control
        fault = None if control is None else work.steps_fault(control.schedule())
        if fault is not None:
            yield f"offered.{place}.control.steps", fault
