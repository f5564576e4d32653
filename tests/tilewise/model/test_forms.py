from pathlib import Path

import pytest

from tilewise.errors import TilewiseError
from tilewise.kernels.errors import CompilerError
from tilewise.model import examine
from tilewise.model.examine import FILES, LIBRARY, compile_forms
from tilewise.model.report import DATA_TILING, DEFAULT, WITH


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({DATA_TILING, WITH[1]}, None),
        ({WITH[0]}, None),
        ({DEFAULT}, "m.mlir, default: no stack left"),
        (set(WITH), "m.mlir, library: no stack left"),
    ],
)
def test_what_compiles_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: set[str], message: str | None
) -> None:
    def compile_file(_source: Path, code: Path, _flags: tuple[str, ...], _limit: float) -> None:
        name = next(name for name, file in FILES.items() if file == code.name)
        if name in broken:
            raise CompilerError("no stack left")
        code.write_bytes(b"code")

    monkeypatch.setattr(examine, "compile_file", compile_file)
    monkeypatch.setattr(examine, "preprocessed", lambda *_: "")
    source = tmp_path / "m.mlir"
    source.write_text("")
    (tmp_path / LIBRARY).write_text("")
    for file in FILES.values():  # of an earlier run
        (tmp_path / file).write_bytes(b"old")
    if message is not None:
        with pytest.raises(TilewiseError, match=message):
            compile_forms(source, tmp_path)
        return
    found = compile_forms(source, tmp_path)
    assert found.codes.keys() == FILES.keys() - broken
    assert dict(found.refused) == dict.fromkeys(broken, "no stack left")
    assert {file for file in FILES.values() if (tmp_path / file).exists()} == {
        path.name for path in found.codes.values()
    }
