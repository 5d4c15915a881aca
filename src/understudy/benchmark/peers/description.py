"""The description of a peer: its packages, methods and known privacy defects."""

import ast
import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from understudy.errors import ConfigError, UnderstudyError, did_you_mean

PEERS = Path(__file__).parent
"""The peers that come with the package."""

Argument = bool | int | float | str
Reason = Literal["time", "memory", "died", "error", "install"]


class PeerError(UnderstudyError):
    """A peer failed to produce synthetic rows.

    >>> PeerError("The method of the peer ran out of time.", reason="time").reason
    'time'
    """

    def __init__(self, message: str, *, reason: Reason) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        """The reason in the `failure` of a result."""


class PeerUnavailable(PeerError):
    """The environment of a peer cannot be built on this machine.

    >>> PeerUnavailable("There is no Python 3.9 on this machine.").reason
    'install'
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="install")


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
    """Another package, as its file describes it.

    >>> read_peer("diffprivlib").licence
    'MIT'
    """

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
    def digest(self) -> str:
        """A hash of everything that its rows depend on: packages, arguments and adapter, but not notes or defects."""
        methods = [[method.name, dict(method.arguments)] for method in self.methods]
        content = (
            json.dumps([self.python, self.packages, self.without_dependencies, methods]).encode()
            + self.adapter.read_bytes()
        )
        return hashlib.sha256(content).hexdigest()[:12]

    def require(self, expression: str) -> tuple[PeerMethod, dict[str, Argument]]:
        """The method that an expression names, and all of its arguments; an error if the peer does not have them.

        >>> read_peer("smartnoise").require("aim(degree=3)")[1]
        {'max_model_size': 80, 'degree': 3}
        """
        name, given = _read_expression(expression)
        known = {method.name: method for method in self.methods}
        if name not in known:
            raise ConfigError(
                f"Peer {self.name!r} has no method {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}."
            )
        for argument in given:
            if argument not in known[name].arguments:
                raise ConfigError(
                    f"Method {name!r} of {self.name} has no argument {argument!r}."
                    f"{did_you_mean(argument, known[name].arguments)} "
                    f"Its arguments: {', '.join(known[name].arguments) or 'none'}."
                )
        return known[name], {**known[name].arguments, **given}

    def defects_of(self, method: str) -> tuple[Defect, ...]:
        """The known privacy defects of a method."""
        return tuple(defect for defect in self.defects if not defect.methods or method in defect.methods)


def peer_names(folder: Path = PEERS) -> tuple[str, ...]:
    """The peers that a folder describes.

    >>> peer_names()
    ('diffprivlib', 'dpmm', 'mbi', 'opendp', 'smartnoise', 'synthcity')
    """
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def read_peer(name: str, folder: Path = PEERS) -> Peer:
    """Reads `NAME.toml` of a folder.

    >>> [method.name for method in read_peer("dpmm").methods]
    ['mst', 'aim', 'privbayes']
    """
    known = peer_names(folder)
    if name not in known:
        raise ConfigError(f"There is no peer {name!r}.{did_you_mean(name, known)} The peers are: {', '.join(known)}.")
    path = folder / f"{name}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}.") from None
    methods, defects = content.pop("methods", {}), content.pop("defects", [])
    fields = _read_fields(Peer, content, path.name, given=("name", "methods", "adapter", "defects"))
    peer = Peer(
        name=name,
        methods=tuple(PeerMethod(name=key, **_read_fields(PeerMethod, methods[key], path.name, ("name",)))
                      for key in methods),
        adapter=folder / "adapters" / f"{name}.py",
        defects=tuple(Defect(**_read_fields(Defect, entry, path.name)) for entry in defects),
        **fields,
    )  # fmt: skip
    _check_peer(peer, path)
    return peer


def _read_fields(kind: type, content: Mapping[str, object], file: str, given: Sequence[str] = ()) -> dict:
    """The entries of a TOML table as fields of a dataclass; lists become tuples."""
    known = {field.name: field for field in dataclasses.fields(kind) if field.name not in given}
    for key in content:
        if key not in known:
            raise ConfigError(f"{file}: there is no key {key!r}.{did_you_mean(key, known)}")
    for name, field in known.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in content and not has_default:
            raise ConfigError(f"{file}: {name!r} is missing. Add it.")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def _check_peer(peer: Peer, path: Path) -> None:
    accepts_python(peer.python, (3, 11))  # raises if it cannot be read
    if not peer.methods:
        raise ConfigError(f"{path.name} has no [methods.NAME] section. Add one for each method of the peer.")
    if not peer.adapter.is_file():
        raise ConfigError(
            f"{path.name} needs the adapter adapters/{peer.adapter.name}, which does not exist. Write it."
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
    raise ConfigError(f"A method of a peer is written as mst or aim(degree=3), found {expression!r}.")


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
                f'python must be a version or a range such as "3.11" or ">=3.11,<3.13", found {wanted!r}.'
            )
        is_met = {">=": version >= bound, "<=": version <= bound, ">": version > bound, "<": version < bound}
        if not version or not is_met.get(sign, version == bound):
            return False
    return True
