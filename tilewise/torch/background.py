"""Searches in processes of their own, while a program runs graphs of Inductor alone."""

import subprocess
import threading
from collections.abc import Callable, Sequence

from tilewise.errors import TilewiseError
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.linked.kernels import Source, target_of, warning

_one_at_a_time = threading.Lock()
"""Searches that run at once would disturb each other's timings."""
_found = dict[tuple[Source, str], bool]()
"""Whether a search of this process stored a kernel."""


def search_in_background(
    source: Source, problems: Sequence[str], when_found: Callable[[], None]
) -> threading.Thread:
    """Start to search problems one after another, each once in this process."""
    wanted = [(source, one) for one in dict.fromkeys(problems) if (source, one) not in _found]

    def run() -> None:
        with _one_at_a_time:
            for key in wanted:
                if key in _found:  # for another graph
                    continue
                is_found = False
                with warning(f"{key[1]}: not tuned"):
                    tune_apart(*key)
                    is_found = True
                _found[key] = is_found
        if any(map(_found.get, wanted)):
            when_found()

    thread = threading.Thread(target=run, name="tilewise-search", daemon=True)
    thread.start()
    return thread


def tune_apart(source: Source, problem: str) -> None:
    """Search a problem in a child process, which ends with this one at the latest.

    Raises:
        TilewiseError: the search failed; with its last line.
    """
    where = {"--server": source.server, "--db": source.store}
    options = [f"--target={target_of(source.threads)}", f"--trials={source.trials}", "--cache=cold"]
    options += [f"{name}={url}" for name, url in where.items() if url]
    command, environment = child_command("tilewise", "tune", problem, *options), child_environment()
    done = subprocess.run(
        command, env=environment, input="", capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise TilewiseError(last)
