"""Trials as T4 and as CSV, and models in GGUF files."""

import csv
import io
import json
import struct
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers
from numpy.typing import NDArray
from sqlalchemy import insert

from tests.cases import cases
from tests.service import fakes
from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.errors import BadInputError
from tilewise.formats import t4, trials
from tilewise.formats.gguf import GgufFile
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.records import FailureClass, TuneRequest
from tilewise.search.space.points import TilePoint
from tilewise.service.api.schemas import StoredTrialView
from tilewise.service.db import make_engine, make_sessions, models, schema, writing
from tilewise.service.db.trials import row as trial_row
from tilewise.service.jobs import queue

NUMBER, TEXT, LIST, OBJECT = ({"type": kind} for kind in ("number", "string", "array", "object"))

TIMES = ("compilation_time", "framework", "search_algorithm", "validation")
INVALIDITY = ("timeout", "compile", "runtime", "correctness", "constraints", "correct")
MEASUREMENT = {**OBJECT, "properties": {"name": TEXT, "value": NUMBER, "unit": TEXT}}
RESULT = {
    **OBJECT,
    "required": ["configuration", "times", "invalidity", "correctness"],
    "properties": {
        "timestamp": TEXT, "configuration": OBJECT, "objectives": LIST, "correctness": NUMBER,
        "times": {**OBJECT, "properties": {**dict.fromkeys(TIMES, NUMBER), "runtimes": LIST}},
        "invalidity": {"enum": list(INVALIDITY)},
        "measurements": {**LIST, "items": MEASUREMENT},
    },
}  # fmt: skip
VERSION = {**TEXT, "pattern": r"^[0-9]{1,}.[0-9]{1,}.[0-9]{1,}$"}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **OBJECT,
    "properties": {"schema_version": VERSION, "results": {**LIST, "items": RESULT}},
}

Json = dict[str, Any]


def trial(number: int = 0, **parts: Any) -> Json:
    """A trial as the service shows it."""
    tile = TilePoint(number + 1, 2)
    params = {"tile": str(tile), "depth": (0, 256, 96)[number % 3], "pack_a": number > 2}
    made = {
        "job": 1, "problem": PROBLEM, "target": "cpu:znver4,threads=1", "toolchain": "numba 0.68.1",
        "number": number, "hash": f"{number:016x}", "steps": [{"step": "unroll", "factor": 2}],
        "params": params, "tile": {**asdict(tile), "description": tile.description},
        "state": "timed", "origin": "tpe", "failure": None, "message": "",
        "gflops": 100.0 + number, "interval": [99.0, 101.0 + number], "time_us": 1500.0 - number,
        "samples_us": [1500.0 - number, 1490.0, 1510.5], "rejected": 2, "pace": 1.0,
        "samples_taken": None,
        "compile_s": 0.25, "max_error": 0.125, "cache": "hot",
        "created": f"2026-11-20T18:25:{number:02}.118309+00:00",
    }  # fmt: skip
    return made | parts


def failed(number: int, kind: str) -> Json:
    nothing = dict.fromkeys(("gflops", "interval", "time_us", "max_error"))
    given = {"state": "failed", "failure": kind, "samples_us": [], "compile_s": 0.0, "rejected": 0}
    return trial(number, **nothing, **given, message=f"{kind} of it")


def test_these_trials_are_as_the_service_shows_them() -> None:
    for made in (trial(), failed(1, "crash")):
        StoredTrialView.model_validate(made, strict=False)
        assert made.keys() == StoredTrialView.model_fields.keys()


def test_a_timed_trial_in_t4_has_milliseconds() -> None:
    result = t4.results([trial(3)])["results"][0]
    assert result["times"]["compilation_time"] == 250.0
    assert result["times"]["runtimes"] == pytest.approx([1.497, 1.49, 1.5105])
    assert (result["invalidity"], result["correctness"]) == ("correct", 1)
    assert result["objectives"] == ["time"]
    assert result["configuration"] == trial(3)["params"]
    measured = {one["name"]: (one["value"], one["unit"]) for one in result["measurements"]}
    assert measured == {
        "time": (1.497, "ms"), "speed": (103.0, "GFLOP/s"), "speed_low": (99.0, "GFLOP/s"),
        "speed_high": (104.0, "GFLOP/s"), "max_error": (0.125, ""), "rejected_samples": (2, ""),
        "pace": (1.0, ""),
    }  # fmt: skip


@pytest.mark.parametrize("kind", get_args(FailureClass))
def test_every_class_of_failure_has_its_invalidity(kind: str) -> None:
    document = t4.results([failed(0, kind)])
    jsonschema.validate(document, SCHEMA)
    result = document["results"][0]
    assert result["invalidity"] in INVALIDITY and result["invalidity"] != "correct"
    assert (result["correctness"], result["times"]["runtimes"]) == (0, [])
    assert result["measurements"] == []


def test_t4_and_csv_as_they_are_printed() -> None:
    rows = [trial(0), trial(1, state="pruned", samples_us=[1.0, 2.0]), failed(2, "wrong")]
    printed = json.loads(trials.trials_text(rows, "t4"))
    jsonschema.validate(printed, SCHEMA)
    assert [r["invalidity"] for r in printed["results"]] == ["correct", "correct", "correctness"]
    assert printed["metadata"]["problems"] == [PROBLEM]
    rows = [trial(0), trial(1) | {"params": {"depth": 96, "prefetch": True}}, failed(2, "crash")]
    read = list(csv.DictReader(io.StringIO(trials.trials_text(rows, "csv"))))
    assert [row["param_tile"] for row in read] == ["1x2", "", "3x2"]
    assert [row["param_prefetch"] for row in read] == ["", "True", ""]
    assert read[0]["gflops"] == "100.0" and read[0]["problem"] == PROBLEM
    assert (read[2]["failure"], read[2]["message"]) == ("crash", "crash of it")


def test_t4_from_the_command(cli: Cli, database: str) -> None:
    schema.upgrade(database)
    engine, slow = make_engine(database), replace(fakes.trial(7), state="pruned")
    given = (parse_problem(PROBLEM), detect().canonical, TuneRequest(9), "tools")
    with writing(make_sessions(engine)) as session:
        job = queue.create_or_join(session, *given).job
        for one in (*map(fakes.trial, range(7)), slow, fakes.failed_trial(8)):
            session.execute(insert(models.Trial).values(trial_row(job.id, one)))
    engine.dispose()
    printed = cli("trials", PROBLEM, "--format", "t4")
    kinds = [r["invalidity"] for r in json.loads(printed.out)["results"]]
    assert kinds == ["correct"] * 8 + ["runtime"]
    assert cli("trials", PROBLEM, "--format", "t4", "--json").out == printed.out
    assert cli("trials", PROBLEM, "--format", "csv", "--json").json[8]["number"] == 8


Array = NDArray[Any]
F32, F16, Q4_0, Q8_0, Q6_K = 0, 1, 2, 8, 14
RANDOM = np.random.default_rng(7)
BYTES = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34), Q6_K: (256, 210)}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def written(tensors: dict[str, tuple[int, tuple[int, ...]]], alignment: int = 32) -> bytes:
    """A file with random tensors, given by type and shape, the reduction last."""
    values = [
        text("general.alignment") + struct.pack("<II", 4, alignment),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    ]
    records, data = b"", b""
    for name, (kind, shape) in tensors.items():
        data += b"\xff" * (-len(data) % alignment)
        records += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind,
                                            len(data))  # fmt: skip
        block, size = BYTES[kind]
        blocks = RANDOM.integers(0, 256, (int(np.prod(shape)) // block, size), np.uint8)
        if block == 32:
            scales = RANDOM.uniform(0.1, 1, len(blocks)).astype("<f2")
            blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
        data += blocks.tobytes()
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values)
    header += records
    return header + b"\xff" * (-len(header) % alignment) + data


MODEL = {
    "token_embd.weight": (F16, (50, 64)),
    "v.position_embd.weight": (F16, (9, 64)),
    **dict.fromkeys(("blk.0.ssm_conv1d.weight", "a.attn_q_norm.weight", "ssm_d"), (F32, (64, 4))),
    "blk.0.attn_norm.weight": (F32, (64,)),
    **dict.fromkeys(("blk.0.attn_q.weight", "blk.0.attn_k.weight"), (Q4_0, (48, 64))),
    "blk.0.ffn_up.weight": (Q8_0, (96, 64)),
    "blk.0.ffn_down.weight": (Q6_K, (64, 256)),
    "blk.0.experts": (Q4_0, (2, 32, 64)),
    "output.weight": (F16, (50, 64)),
}
SOURCE = written(MODEL)
WEIGHTS = "group=32,scale=f16,transpose_b,weights=constant"


def test_matrices_are_listed_with_their_products(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(SOURCE)
    ran = cli("import", str(path), "--rows", "3", "--json")
    found = ran.json
    assert {one["problem"]: one["count"] for one in found["problems"]} == {
        f"matmul:m=3,n=48,k=64,dtype=f32,b=i4,{WEIGHTS}": 2,
        f"matmul:m=3,n=96,k=64,dtype=f32,b=i8,{WEIGHTS}": 1,
        "matmul:m=3,n=50,k=64,dtype=f16,transpose_b,weights=constant": 1,
    }
    assert [one["reason"] for one in found["skipped"]] == [
        *["is a table from which rows are read"] * 2,
        *["is multiplied element by element"] * 3,
        "is of Q6_K; known are F32, F16, Q4_0, Q8_0, BF16",
        "has 3 axes, and a matrix has two",
    ]
    ((_, tied),) = GgufFile(written({"token_embd.weight": (Q8_0, (50, 64))})).problems()
    assert str(tied) == f"matmul:m=1,n=50,k=64,dtype=f32,b=i8,{WEIGHTS}", "it is the output too"
    assert cli("import", str(path)).out.splitlines()[1].startswith("2      matmul:m=1,n=48")
    assert "accuracy=strict" in cli("import", str(path), "--accuracy", "strict").out
    for option in (("--rows", "0"), ("--seconds", "9"), ("--dim", "n=1")):
        assert option[0] in cli("import", str(path), *option).error()
    (tmp_path / "module.mlir").write_text("module {}")
    assert cli("import", str(tmp_path / "module.mlir"), "--rows", "1").code == 2
    path.write_bytes(SOURCE[:-1])
    said = "tilewise: model.gguf: 'output.weight' ends behind the end of the file\n"
    assert cli("import", str(path)).error() == said


@pytest.mark.parametrize("kind", [Q4_0, Q8_0])
@pytest.mark.parametrize("alignment", [32, 8])
def test_operands_are_those_of_the_problem_and_dequantise_as_the_format_says(kind, alignment):
    source = written({"first": (F32, (3,)), "w": (kind, (5, 96))}, alignment)
    file = GgufFile(source)
    operands = file.operands("w")
    problem = {one.name: found for one, found in file.problems()}["w"]
    expected = make_operands(problem)
    for name, array in operands.items():
        assert (array.shape, array.dtype) == (expected[name].shape, expected[name].dtype)
    wide = {name: array.astype(np.float64) for name, array in operands.items()}
    weights = parse_problem(problem.canonical).quantised_weights
    assert np.array_equal(weights.dequantised(wide), decoded(source[file.tensors[1].start :], kind))


def decoded(raw: bytes, kind: int) -> Array:
    """Five rows of 96 elements, one after the other as the format describes them."""
    found, size = [], BYTES[kind][1]
    for at in range(0, 15 * size, size):
        (scale,), codes = struct.unpack("<e", raw[at : at + 2]), raw[at + 2 : at + size]
        for i in range(32):
            if kind == Q8_0:
                found.append(scale * struct.unpack("b", codes[i : i + 1])[0])
            else:
                found.append(scale * ((codes[i % 16] >> (4 if i >= 16 else 0) & 15) - 8))
    return np.array(found).reshape(5, 96)


def test_operands_are_of_quantised_matrices_alone() -> None:
    file = GgufFile(written(MODEL))
    for name, why in (("absent", "has no tensor"), ("output.weight", "but F16"),
                      ("blk.0.experts", "no matrix")):  # fmt: skip
        with pytest.raises(BadInputError, match=why):
            file.operands(name)


@cases(500)
@given(at=integers(0, 400), new=binary(min_size=1, max_size=8), length=integers(0, 1 << 16))
def test_broken_files_are_refused_or_read(at: int, new: bytes, length: int) -> None:
    source = bytearray(SOURCE)
    source[at : at + len(new)] = new
    try:
        file = GgufFile(bytes(source[:length]))
        for tensor, found in file.problems():
            if "b=i" in str(found):
                file.operands(tensor.name)
    except BadInputError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
