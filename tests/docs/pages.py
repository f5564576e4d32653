"""What a test changes before it runs the commands of pages, and which it does not run, and why."""

from dataclasses import dataclass, field

SMALL = "matmul:m=64,n=48,k=32,dtype=f32"

NOT_RUN = {
    "make ": "sets up an environment of its own, or runs for minutes",
    "pip install": "installs",
    "tvm/bin/pip install": "installs",
    "python -m venv": "makes an environment for TVM",
    "python -m pytest": "runs other tests",
    "python -m benchmarks.": "measures, from minutes to hours",
    "python examples/pytorch/": "needs PyTorch; tests/examples/test_programs.py runs it",
    "python -m examples.models": "writes hundreds of MB; tests/examples/test_models.py makes them",
    "tilewise model mlp.mlir": "measures for minutes; tests/tilewise/model runs a small one",
    "tilewise model model.mlir  ": "the same",
    "tilewise model model.mlir --as iree": "needs stored results; test_iree.py has them",
    "tilewise model model.mlir --as native": "measures for minutes; tests/tilewise/plan runs it "
    "on a small model",
    "tilewise import model.onnx --dim": "a model of the reader's; test_dims.py makes such models",
    "tilewise model module.mlir": "the same",
    "tilewise model bert.onnx": "the same; test_dynamic.py makes such a block",
    "tilewise bench benchmarks/data/suites/": "measures for minutes",
    "psql -d tilewise ": "tests of the views run this file on a server of their own",
    "export DASK_DISTRIBUTED": "there are no such certificates; "
    "tests/service/cluster/certificates.py makes some",
    "docker run ": "there need be no Docker engine; tests ask the dashboard's queries themselves",
    "curl http://127.0.0.1:8000/v1/jobs": "needs a stale result; test_rechecks.py has one",
    "sqlite3 ": "a program of others; tests ask the views the same through SQLAlchemy",
    "iree-compile ": "compiles a model of the reader's; tests of libraries compile theirs",
    "cmake ": "there need be no CMake; tests/examples/test_programs.py runs these where it is",
    "tilewise tune matmul:m=128,n=3072,k=768,dtype=f32 --target iree:host": "needs IREE's runtime; "
    "tests/tilewise/test_iree.py does the same",
    "tilewise script --flavor iree-spec ": "whether IREE alone is faster says the machine; "
    "tests/tilewise/test_iree.py does the same",
}
"""Beginnings of commands that no test runs, with the reason. Each has to occur on some page."""

EVERYWHERE = {
    "matmul:m=1024,n=512,k=2048,dtype=f32": SMALL, "matmul:m=512,n=512,k=512,dtype=f32": SMALL,
    "matmul:m=1024,n=512,k=2048,dtype=i32": "matmul:m=64,n=64,k=64,dtype=i32",
    "cpu:znver5,threads=1": "host", "http://tilewise.example:8000": "http://127.0.0.1:$PORT",
    "https://tilewise.example": "http://127.0.0.1:$PORT",
    "http://localhost:8000": "http://127.0.0.1:$PORT", "localhost:8000": "127.0.0.1:$PORT",
    "--port 8000": "--port $PORT",
    "postgresql+psycopg://tilewise:PASSWORD@db.example/tilewise": "$POSTGRESQL",
}  # fmt: skip
"""Texts of commands, and what a test puts in their place; the longer ones come first."""


@dataclass(frozen=True)
class Page:
    """What a page needs beyond a database with a tuned problem."""

    before: str = ""
    replaced: dict[str, str] = field(default_factory=dict)
    is_empty: bool = False
    needs_postgresql: bool = False


SERVED = "tilewise serve --port $PORT &"
PAGES = {
    "README.md": Page(
        before=f"echo {SMALL} > problems.txt",
        replaced={
            "tilewise serve &": SERVED,
            "m=4,n=1024,k=1024,dtype=f32": "m=4,n=64,k=64,dtype=f32",
            '"wait": true': '"wait": true, "trials": 2',
        },
        is_empty=True,
    ),
    "docs/air.md": Page(before=SERVED, replaced={"PROBLEM": SMALL}),
    "docs/ci.md": Page(
        before=f"cp $ROOT/examples/ci/problems.txt $ROOT/examples/ci/payloads/matmul.mlir .\n"
        f"mv matmul.mlir payload.mlir\n{SERVED}",
        replaced={"SCRIPT.mlir": "scripts/matmul_m64_n48_k32_f32.cpu.mlir"},
    ),
    "docs/compare.md": Page(replaced={"before=2026-11-01": "before=2100-01-01"}),
    "docs/cluster.md": Page(
        replaced={
            "--port 8786": "--port $SECOND_PORT",
            "tcp://tilewise.example:8786": "tcp://127.0.0.1:$SECOND_PORT",
        },
        is_empty=True,
        needs_postgresql=True,
    ),
    "docs/import.md": Page(
        before=f"cp $ROOT/examples/import/*.mlir .\n{SERVED}\n"
        "python -c 'from tests.tilewise.formats.test_formats import MODEL, written; "
        'open("model.gguf", "wb").write(written(MODEL))\'\n'
        "tilewise tune matmul:batch=6,m=48,n=40,k=32,dtype=f32 --trials 2",
        replaced={" --trials 20": ""},
    ),
    "docs/iree.md": Page(
        before="python -c 'from tilewise.kernels.mlir.iree.module_text import module_text as text; "
        "from tilewise.kernels.problem import parse_problem as problem; "
        'print(text(problem("conv2d:n=1,h=14,w=14,ci=32,co=32,kh=3,kw=3,pad=1,dtype=f32")))\' '
        "> model.mlir",
        replaced={"h=56,w=56,ci=64,co=64": "h=14,w=14,ci=32,co=32", "--trials 32": "--trials 2"},
    ),
    "docs/objects.md": Page(
        before=f"echo {SMALL} > problems.txt\n"
        f"mkdir examples; cp -r $ROOT/examples/c examples/\n{SERVED}",
        replaced={"--trials 8": "--trials 2", "--trials 32": "--trials 2"},
    ),
    "docs/models.md": Page(
        before="python -c 'from examples.models.graph import Graph, Value; "
        "from examples.models.spellings import spelled; "
        'graph = Graph("few", Value("image", (1, 5, 7, 16))); '
        "x = graph.conv(graph.given, 16, 3); "
        "graph.linear(graph.mean_pool(graph.add(graph.conv(x, 16, 1), x)), 16); "
        'print(spelled(graph, "linalg"))\' > model.mlir'
    ),
    "docs/plots.md": Page(
        before=f"tilewise tune {SMALL} --trials 14",
        replaced={"tilewise plot 17": "tilewise plot 1"},
        is_empty=True,
    ),
    "docs/postgresql.md": Page(before="cp ../results.db .", needs_postgresql=True),
    "docs/predictions.md": Page(before=SERVED),
    "docs/ranges.md": Page(replaced={"m=1..64": "m=4..6", "m=40": "m=5"}),
    "docs/service.md": Page(before=SERVED, replaced={"tilewise top": "tilewise top --once"}),
    "docs/tutorial.md": Page(
        before="mkdir examples; cp -r $ROOT/examples/feed_forward examples/\n"
        "sed -i 's/= 128, 768, 3072/= 16, 64, 96/' examples/feed_forward/model.py",
        replaced={"m=128,n=3072,k=768": "m=16,n=96,k=64", "m=128,n=768,k=3072": "m=16,n=64,k=96"},
        is_empty=True,
    ),
    "docs/verify.md": Page(
        before=f"cp $ROOT/examples/ci/payloads/matmul.mlir payload.mlir\n"
        f"tilewise script {SMALL} -o script.mlir"
    ),
}
