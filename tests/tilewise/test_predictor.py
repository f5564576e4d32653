"""`tilewise predictor` and `show --predict`."""

import json
from pathlib import Path

from tests.tilewise.conftest import PROBLEM, Cli

SPACES = Path(__file__).parents[2] / "benchmarks" / "data" / "spaces"
SMALL = [str(SPACES / f"{name}.json.gz") for name in ("planes-f32", "unseen-f32")]
ABSENT = "matmul:m=200,n=300,k=400,dtype=f32"


def test_a_stored_result_is_shown_as_before(cli: Cli, tuned: str) -> None:
    plain, predicted = (cli("show", PROBLEM, "--db", tuned, *more) for more in ((), ("--predict",)))
    assert plain.code == 0 and plain == predicted


def test_an_unseen_problem_has_a_predicted_schedule(cli: Cli, tuned: str) -> None:
    assert cli("show", ABSENT, "--db", tuned).code == 3
    ran = cli("show", ABSENT, "--db", tuned, "--predict")
    assert ran.code == 0 and "predicted: neither timed nor proven" in ran.out
    found = json.loads(cli("show", ABSENT, "--db", tuned, "--predict", "--json").out)
    assert found["best"]["grade"] == "predicted" and found["proof"] is None
    assert cli("show", ABSENT, "--db", tuned).code == 3, "nothing was stored"


def test_where_nothing_can_be_predicted_the_code_is_3(cli: Cli, tuned: str) -> None:
    ran = cli("show", ABSENT, "--db", tuned, "--predict", "--target", "cpu:znver1,threads=1")
    assert ran.code == 3 and "none can be predicted for cpu:znver1" in ran.err


def test_spaces_are_evaluated_and_train_a_predictor(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "made.npz"
    ran = cli("predictor", "train", *SMALL, "-o", str(file), "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and file.exists() and found["file"] == str(file)
    assert len(found["spaces"]) == 2 and 0 < found["summary"]["predicted"]["geomean"] <= 1


def test_a_store_of_one_problem_is_too_little(cli: Cli, tuned: str) -> None:
    ran = cli("predictor", "evaluate", "--db", tuned)
    assert ran.code == 2 and "at least 2 problems" in ran.err
