"""What Python imports when it starts with `tests.brief.python_path`: what is long becomes brief."""

import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder

NAMES = ("tilewise.search.final_benchmark.benchmark", "tilewise.kernels.native.microbench")


class Briefly:
    """Finds modules that say how long or how large something is, and changes that once loaded."""

    def find_spec(self, name: str, path=None, _target=None) -> ModuleSpec | None:
        if name not in NAMES:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def changed(module) -> None:
            from tests.brief import CHANGES

            load(module)
            for changing, value in CHANGES[name].items():
                assert hasattr(module, changing)
                setattr(module, changing, value)

        spec.loader.exec_module = changed
        return spec


sys.meta_path.insert(0, Briefly())
gc.set_threshold(100_000, 20, 100)  # as `tests/seldom` does, which this file hides
