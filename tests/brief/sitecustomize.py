"""What Python imports when it starts with `tests.brief.python_path`: finals become brief."""

import sys
from importlib.machinery import ModuleSpec, PathFinder


class Briefly:
    """Finds the module that plans finals, and changes their length once it is loaded."""

    def find_spec(self, name: str, path=None, _target=None) -> ModuleSpec | None:
        if name != "search.finals.plan":
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def changed(module) -> None:
            from tests.brief import FINALS_S

            load(module)
            assert hasattr(module, "FINALS_S")
            module.FINALS_S = FINALS_S

        spec.loader.exec_module = changed
        return spec


sys.meta_path.insert(0, Briefly())
