"""Settings of each Python that starts with `tests.short_timings.python_path`: shorter timings."""

import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder

from tests.short_timings import CHANGES


class Briefly:
    """Finds modules that say how long or how large something is, and changes that once loaded."""

    def find_spec(self, name: str, path=None, _target=None) -> ModuleSpec | None:
        if name not in CHANGES:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def changed(module) -> None:
            load(module)
            for changing, value in CHANGES[name].items():
                assert hasattr(module, changing)
                setattr(module, changing, value)

        spec.loader.exec_module = changed
        return spec


sys.meta_path.insert(0, Briefly())
gc.set_threshold(100_000, 20, 100)  # as `tests/gc_settings` does, which this file hides
