"""The description of a peer: its packages, methods and known privacy defects."""

import ast
import dataclasses
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from understudy.benchmark.peers import PeerResult
from understudy.errors import ConfigError, did_you_mean
from understudy.schema import Schema

Argument = bool | int | float | str


@dataclasses.dataclass(frozen=True)
class Defect:
    """A known privacy defect of a peer, for footnotes."""

    text: str
    source: str
    """The evidence: a paper, or a file in a version of the peer."""
    methods: tuple[str, ...] = ()
    """The methods that have it. Empty: all."""


@dataclasses.dataclass(frozen=True)
class PeerMethod:
    """A method of a peer."""

    name: str
    title: str
    arguments: Mapping[str, Argument] = dataclasses.field(default_factory=dict)
    """What the adapter passes on, with defaults."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another package, as its file describes it."""

    name: str
    title: str
    packages: tuple[str, ...]
    """Requirements for pip, names and versions only. Empty: nothing is installed."""
    python: str
    """The Python versions that the packages run on, such as "3.11" or ">=3.11,<3.13"."""
    homepage: str
    licence: str
    methods: tuple[PeerMethod, ...]
    adapter: Path
    without_dependencies: tuple[str, ...] = ()
    """Requirements that are installed without their dependencies, where these conflict."""
    distribution: str | None = None
    """The package whose version is that of the peer."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures should know, apart from defects."""
    defects: tuple[Defect, ...] = ()

    @property
    def footnotes(self) -> list[str]:
        """What readers of its figures should know, and its defects."""
        notes = [f"{self.title}: {note}" for note in self.notes]
        for defect in self.defects:
            which = f" ({', '.join(defect.methods)})" if defect.methods else ""
            notes.append(f"{self.title}{which}: {defect.text} Source: {defect.source}.")
        return notes

    def check(self, method: str) -> None:
        """An error if the peer does not have this method and its arguments."""
        self.require(method)

    def prepare(self, root: Path) -> None:
        """Builds its environment in a folder, unless it is there."""
        from benchmarks.peers.environment import build_environment

        build_environment(self, root)

    def synthesize(self, method: str, train: pa.Table, schema: Schema, **options: Any) -> PeerResult:
        """Synthetic rows; the options are those of `run_peer`."""
        from benchmarks.peers.run import run_peer

        return run_peer(self, method, train, schema, **options)

    @property
    def digest(self) -> str:
        """A hash of everything that its rows depend on: packages, arguments and adapter, but not notes or defects."""
        methods = [[method.name, dict(method.arguments)] for method in self.methods]
        content = (
            json.dumps([self.python, self.packages, self.without_dependencies, methods]).encode()
            + self.adapter.read_bytes()
        )
        return hashlib.sha256(content).hexdigest()[:12]

    def require(self, expression: str) -> tuple[PeerMethod, dict[str, Argument]]:
        """The method that an expression names, and all of its arguments; an error if the peer does not have them."""
        name, given = _read_expression(expression)
        known = {method.name: method for method in self.methods}
        if name not in known:
            raise ConfigError(
                f"Peer {self.name!r} has no method {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}.",
                setting=name,
            )
        for argument in given:
            if argument not in known[name].arguments:
                raise ConfigError(
                    f"Method {name!r} of {self.name} has no argument {argument!r}."
                    f"{did_you_mean(argument, known[name].arguments)} "
                    f"Its arguments: {', '.join(known[name].arguments) or 'none'}.",
                    setting=argument,
                )
        return known[name], {**known[name].arguments, **given}


def read_peer(file: str | os.PathLike[str]) -> Peer:
    """Reads the description `NAME.toml`; its adapter is `adapters/NAME.py` beside it."""
    path = Path(file)
    if not path.is_file():
        others = sorted(other.stem for other in path.parent.glob("*.toml"))
        raise ConfigError(
            f"There is no peer {path}: expected the path of its description.{did_you_mean(path.stem, others)} "
            f"Described in that folder: {', '.join(others) or 'none'}.",
            setting=str(file),
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}.") from None
    methods, defects = content.pop("methods", {}), content.pop("defects", [])
    fields = _read_fields(Peer, content, path.name, given=("name", "methods", "adapter", "defects"))
    peer = Peer(
        name=path.stem,
        methods=tuple(PeerMethod(name=key, **_read_fields(PeerMethod, methods[key], path.name, ("name",)))
                      for key in methods),
        adapter=path.parent / "adapters" / f"{path.stem}.py",
        defects=tuple(Defect(**_read_fields(Defect, entry, path.name)) for entry in defects),
        **fields,
    )  # fmt: skip
    _check_peer(peer, path)
    return peer


def _read_fields(kind: type, content: Mapping[str, object], file: str, given: Sequence[str] = ()) -> dict[str, Any]:
    """The entries of a TOML table as fields of a dataclass; lists become tuples."""
    known = {field.name: field for field in dataclasses.fields(kind) if field.name not in given}
    for key in content:
        if key not in known:
            raise ConfigError(f"{file}: there is no key {key!r}.{did_you_mean(key, known)}", setting=key)
    for name, field in known.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in content and not has_default:
            raise ConfigError(f"{file}: {name!r} is missing. Add it.", setting=name)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def _check_peer(peer: Peer, path: Path) -> None:
    accepts_python(peer.python, (3, 11))  # raises if it cannot be read
    if not peer.methods:
        raise ConfigError(f"{path.name} has no [methods.NAME] section. Add one for each method of the peer.")
    if not peer.adapter.is_file():
        raise ConfigError(
            f"{path.name} needs the adapter adapters/{peer.adapter.name}, which does not exist. Write it.",
            setting="adapter",
        )
    for defect in peer.defects:
        for name in defect.methods:
            peer.require(name)


def _read_expression(expression: str) -> tuple[str, dict[str, Argument]]:
    """`mst` or `aim(degree=3)` as a name and its arguments."""
    given: dict[str, Argument] = {}
    try:
        node = ast.parse(expression.strip(), mode="eval").body
        if isinstance(node, ast.Call) and not node.args:
            given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
            node = node.func
        if isinstance(node, ast.Name) and all(isinstance(value, Argument) for value in given.values()):
            return node.id, given
    except (SyntaxError, ValueError):
        pass
    raise ConfigError(
        f"A method of a peer is written as mst or aim(degree=3), found {expression!r}.", setting="expression"
    )


def accepts_python(wanted: str, version: tuple[int, ...]) -> bool:
    """Whether a version of Python meets a requirement; an empty version meets none.

    >>> accepts_python(">=3.11,<3.13", (3, 12)), accepts_python("3.11", (3, 12))
    (True, False)
    """
    for clause in wanted.split(","):
        text = clause.strip().lstrip("<>=")
        sign = clause.strip().removesuffix(text)
        try:
            bound = tuple(int(part) for part in text.split("."))
        except ValueError:
            bound = ()
        if len(bound) != 2 or sign not in ("", "==", ">=", "<=", ">", "<"):
            raise ConfigError(
                f'python must be a version or a range such as "3.11" or ">=3.11,<3.13", found {wanted!r}.',
                setting="python",
            )
        is_met = {">=": version >= bound, "<=": version <= bound, ">": version > bound, "<": version < bound}
        if not version or not is_met.get(sign, version == bound):
            return False
    return True
