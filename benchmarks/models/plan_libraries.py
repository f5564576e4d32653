"""A model compiled by IREE alone, and with libraries of plans of it, timed in turn.

    python -m benchmarks.models.plan_libraries MODEL.mlir model/plan.json all/plan.json

Each library has all kernels of its plan, whether IREE alone is faster at one of them or not. A plan
of `--layouts model` makes the library that `tilewise script --flavor iree MODEL.mlir` makes. A
ratio is IREE's median alone over another's, both of the same rounds.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tilewise.kernels.dispatches.compilation import calls_in, preprocessed
from tilewise.kernels.dispatches.executable import compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import FLAG, text_of
from tilewise.kernels.mlir.iree.compiler import DATA_TILING, compile_file
from tilewise.kernels.target import resolve
from tilewise.model.libraries import chosen
from tilewise.model.measuring import measure
from tilewise.search.networks.plan import Plan

COMPILE_S = 900.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.plan_libraries")
    parser.add_argument("model", type=Path, metavar="MODEL.mlir")
    parser.add_argument("plans", type=Path, nargs="+", metavar="PLAN.json")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    module = options.model.read_bytes()
    cuts = [one for one in cut_module(module) if one.problem]
    with tempfile.TemporaryDirectory() as name:
        folder, told = Path(name), dict[str, str]()
        codes = {"IREE": folder / "alone.vmfb", "IREE, data tiling": folder / "tiled.vmfb"}
        compile_file(options.model, codes["IREE"], (), COMPILE_S)
        compile_file(options.model, codes["IREE, data tiling"], (DATA_TILING,), COMPILE_S)
        for number, path in enumerate(options.plans):
            plan = Plan.from_json(json.loads(path.read_text()))
            target = resolve(plan.target)
            kernels = [compiled(one.entry, target) for one in chosen(plan).wanted]
            library = text_of(kernels, target, cuts=patterns_of(cuts))
            after = preprocessed(module, library)
            codes[str(path)], given = folder / f"{number}.vmfb", folder / f"{number}.mlir"
            given.write_text(library)
            compile_file(options.model, codes[str(path)], (f"{FLAG}={given}",), COMPILE_S)
            transpositions, pads = after.count("= linalg.transpose"), after.count("= tensor.pad")
            told[str(path)] = (
                f"{len(calls_in(after))} of {len(cuts)} ops call a kernel, "
                f"{transpositions} transpositions, {pads} pads"
            )
        found = measure(codes, None, target.threads, rounds=options.rounds)
    alone = found.forms["IREE"].time_ms
    print(f"{options.model.name}, {target.canonical}")
    for way, form in found.forms.items():
        print(f"  {way:<40} {form.time_ms:9.3f} ms  {alone / form.time_ms:6.3f}  "
              f"deviation {form.deviation:.1e}  {told.get(way, '')}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
