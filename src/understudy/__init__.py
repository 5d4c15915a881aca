"""Synthetic tables with a differential-privacy guarantee.

>>> import pyarrow as pa
>>> import understudy as us
>>> people = pa.table({"member": [True, False] * 50})

Four lines: declare what is public, fit, sample as often as needed, and keep the release with its certificate.

>>> schema = us.Schema.from_toml('[columns.member]\\nkind = "boolean"\\nnullable = false')
>>> release = us.fit(people, us.Independent(), epsilon=1, schema=schema)
>>> synthetic = release.sample(1000)
>>> release.save("people.release")  # doctest: +SKIP

Everything else is behind two protocols. A method is a `Synthesizer` (`understudy.synthesizers.protocol`), usually a
frozen dataclass of settings; what it returns is a `Model` (`understudy.models.protocol`) of encoded rows:

    class Synthesizer(Protocol):
        capabilities: Capabilities  # what other code may ask of it
        def plan(self, domain: Domain, budget: Budget) -> Plan: ...  # every query and its cost, from public facts
        def fit(self, run: Run) -> Model: ...  # charges each query of the plan before it is made

    class Model(Protocol):
        kind: ClassVar[str]  # its name in a release
        names: tuple[str, ...]  # the columns, in the order of the codes
        def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample: ...
        def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]: ...
        def from_arrays(cls, structure: Structure, arrays: Arrays) -> Model: ...  # a class method

`docs/skeleton_method.py` is a method to copy. Names load on first use, so that the command line starts quickly.
"""

import ast
import importlib
from pathlib import Path

from understudy._version import __version__
from understudy.synthesizers.registry import SYNTHESIZERS

_MODULES = ("graphs", "learners")


def _read_places() -> dict[str, str]:
    """The module of each public name: from `__init__.pyi`, and for methods from the registry."""
    stub = ast.parse(Path(f"{__file__}i").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    places = {alias.name: str(node.module) for node in imports for alias in node.names}
    methods = {name: module for module, _, name in (place.partition(":") for place in SYNTHESIZERS.values())}
    return {name: places[name] for name in places.keys() - {"__version__", *_MODULES}} | methods


_MODULE_OF = _read_places()

__all__ = ["__version__", *sorted([*_MODULE_OF, *_MODULES])]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"understudy.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'understudy' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
