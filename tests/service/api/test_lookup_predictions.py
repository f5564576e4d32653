from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.service.db import reading
from tilewise.service.results import predictions

OTHER = "matmul:m=200,n=300,k=400,dtype=f32"


def look_up(client, problems, **body):
    answer = client.post("/v1/schedules/lookup", json={"problems": list(problems), **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["schedules"]


def test_what_is_stored_is_answered_as_before(client, tuned):
    before, _ = look_up(client, (PROBLEM, OTHER))
    stored, unseen = look_up(client, (PROBLEM, OTHER), predict=True)
    assert stored == before and stored["predicted"] is None
    assert unseen["schedule"] is None and unseen["predicted"]["grade"] == "predicted"


def test_a_prediction_has_steps_and_an_expected_speed(client):
    (found,) = look_up(client, [OTHER], predict=True)
    predicted = found["predicted"]
    low, high = predicted["interval"]
    assert predicted["steps"] and low < predicted["gflops"] < high and predicted["time_us"] > 0


def test_predictions_are_not_stored(client):
    look_up(client, [OTHER], predict=True)
    (found,) = look_up(client, [OTHER])
    assert found["schedule"] is None and found["predicted"] is None
    assert client.get("/v1/schedules", params={"problem": OTHER}).status_code == 404


def test_processors_that_nothing_is_known_of_have_none(client):
    (found,) = look_up(client, [OTHER], predict=True, target="cpu:znver1,threads=1")
    assert found["predicted"] is None


def test_results_of_near_problems_are_learnt_from(client, tuned, sessions, machine):
    stored = look_up(client, [PROBLEM])[0]["schedule"]["best"]
    wanted = [parse_problem(OTHER)]
    with reading(sessions) as session:
        (found,) = predictions.winners(session, wanted, machine.target)
        assert predictions.winners(session, wanted, "cpu:znver1,threads=1") == []
    assert found.problem.canonical == PROBLEM and found.points[0][1] == stored["time_us"]
