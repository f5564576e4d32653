import pytest

from tests.service.api.test_http_networks import MODULE, OTHER
from tests.service.conftest import PROBLEM
from tilewise import BadInputError, Client, MissingError

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@pytest.mark.full
def test_a_model_is_tuned_to_its_end(served: str) -> None:
    with Client(served) as client:
        model = client.submit_model(MODULE, trials=2)
        assert [part.problem for part in model.problems] == [PROBLEM, OTHER]
        for part in model.problems:
            client.tune(part.problem, trials=2)
        ended = client.model(model.id)
        assert (ended.state, ended.has_ended) == ("done", True)
        assert ended.time_us is not None
        assert ended.time_us == sum(part.count * (part.time_us or 0) for part in ended.problems)
        with pytest.raises(MissingError):
            client.model(model.id + 1)
        with pytest.raises(BadInputError, match="the module has no matmul or convolution"):
            client.submit_model("module {}")
        strict = client.submit_model(MODULE, trials=2, accuracy="strict")
        assert (model.accuracy, strict.accuracy) == ("standard", "strict")
        wanted = [f"{one},accuracy=strict" for one in (PROBLEM, OTHER)]
        assert [part.problem for part in strict.problems] == wanted
        imported = client.import_module(MODULE, accuracy="strict")
        assert [one.problem for one in imported.problems] == wanted
