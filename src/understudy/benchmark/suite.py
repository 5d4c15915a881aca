"""Suites: which methods run on which tables, with which budgets, seeds and metrics. Written in TOML.

A suite is read and checked completely before its first cell runs: an unknown table, method, metric or setting is
refused, with the closest known name and, where it is certain, the line in the file.
"""

import dataclasses
import importlib.resources
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from understudy.benchmark.metrics import check_metrics
from understudy.errors import ConfigError, did_you_mean

REAL = "real data"
"""The training rows scored as if they were synthetic: the ceiling for every metric. Has no epsilon."""
SUITES = importlib.resources.files("understudy.benchmark").joinpath("suites")


class SuiteError(ConfigError):
    """A suite that cannot be run as written."""

    def __init__(self, message: str, *, setting: str | None = None, line: int | None = None) -> None:
        super().__init__(message, setting=setting)
        self.line = line
        """The line at fault, counted from 1; None: no single line is."""


def _is_number(value: object, limit: float = math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < limit


def _is_list(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name title description bins method peer file schema target test_file": (lambda x: isinstance(x, str), "text"),
    "metrics classifiers wrappers": (lambda x: _is_list(x, str), "a list of names"),
    "tables methods": (lambda x: _is_list(x, (str, dict)), "a list of names and sections"),
    "epsilons": (lambda x: _is_list(x, (int, float)) and all(map(_is_number, x)), "a list of positive numbers"),
    "delta test_fraction": (lambda x: _is_number(x, limit=1), "a number between 0 and 1"),
    "minutes memory_gb": (_is_number, "a positive number"),
    "seeds synthetic_rows max_rows": (lambda x: type(x) is int and x > 0, "a positive whole number"),
    "split_seed": (lambda x: type(x) is int and x >= 0, "a whole number from 0 on"),
    "real_data": (lambda x: isinstance(x, bool), "true or false"),
    "limits": (lambda x: isinstance(x, dict), "a section, written as [limits]"),
    "profiles": (lambda x: isinstance(x, dict) and _is_list([*x.values()], dict), "sections such as [profiles.smoke]"),
}
"""What is accepted under each key, anywhere in a suite, and how messages say so."""


def _check_values(values: Mapping[str, object]) -> None:
    for keys, (accepts, expected) in CHECKS.items():
        for key in keys.split():
            if key in values and not accepts(values[key]):
                raise ConfigError(f"{key} must be {expected}, found {values[key]!r}.", setting=key)


def _check_entry(entry: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            raise ConfigError(
                f"{where} has the unknown key {key!r}.{did_you_mean(key, known)} The keys are {', '.join(known)}.",
                setting=key,
            )
    _check_values(entry)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSpec:
    """A table from the catalogue, by name, or a user's file with its schema."""

    name: str
    file: str | None = None
    """A table file; None: the name is in the catalogue."""
    schema: str | None = None
    target: str | None = None
    test_file: str | None = None
    """The test rows. Absent: a random `test_fraction` of the rows is held out."""
    test_fraction: float = 0.2
    split_seed: int = 0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w .-]*", self.name):
            raise ConfigError(
                f"A table's name has letters, digits, spaces, dots and hyphens, found {self.name!r}.", setting="name"
            )
        if self.file is None:
            others = [field for field in dataclasses.fields(self) if field.name not in ("name", "file")]
            if extra := [field.name for field in others if getattr(self, field.name) != field.default]:
                raise ConfigError(
                    f"Table {self.name!r} has {extra[0]} but no file. Tables of the catalogue have their own target "
                    f"and split. Remove {extra[0]}, or add file = the path of a table.",
                    setting=extra[0],
                )
        elif self.schema is None:
            raise ConfigError(
                f"Table {self.name!r} has a file but no schema. Add schema = the path of its schema.", setting="schema"
            )

    @property
    def label(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """A method expression, of Understudy or of a peer."""

    expression: str
    name: str = ""
    """The label in reports; default: the expression."""
    peer_file: str | None = None
    """The description of the peer that runs it, see `peers.description`; None: Understudy itself."""
    wrapper: str | None = None
    """The method around the inner one, if this entry came from `wrappers`."""
    inner: str | None = None
    """The label of the wrapped method."""

    @property
    def peer(self) -> str | None:
        """The name of the peer."""
        return None if self.peer_file is None else Path(self.peer_file).stem

    @property
    def label(self) -> str:
        return self.name or (f"{self.peer} {self.expression}" if self.peer else self.expression)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """How synthetic tables are scored."""

    metrics: tuple[str, ...]
    classifiers: tuple[str, ...] = ()
    """Empty: the five classifiers of the QUAIL paper."""
    max_rows: int = 10_000
    """At most this many rows of each table are scored."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one cell may use."""

    minutes: float = 15.0
    memory_gb: float = 4.0

    def __post_init__(self) -> None:
        _check_values(vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """What to run. Frozen: profiles and options make a new one."""

    name: str
    title: str = ""
    description: str = ""
    tables: tuple[TableSpec, ...]
    methods: tuple[MethodSpec, ...]
    epsilons: tuple[float, ...]
    delta: float = 1e-5
    seeds: int = 3
    scoring: Scoring
    limits: Limits = Limits()
    synthetic_rows: int = 10_000
    """The number of synthetic rows; fewer if the training table is smaller."""
    bins: str | None = None
    """The binning of numeric columns, as in --bins; None: the default of `fit`."""
    real_data: bool = True
    """Whether the training rows are scored as well."""
    profile: str = "paper"

    def __post_init__(self) -> None:
        _check_values({key: getattr(self, key) for key in ("delta", "seeds", "synthetic_rows")})
        _check_values({"epsilons": list(self.epsilons)})
        if not self.epsilons or len({*self.epsilons}) < len(self.epsilons):
            raise ConfigError(
                f"epsilons must have at least one value, and none twice, found {list(self.epsilons)}.",
                setting="epsilons",
            )
        both: dict[str, tuple[TableSpec | MethodSpec, ...]] = {"table": self.tables, "method": self.methods}
        for kind, entries in both.items():
            if not entries:
                raise ConfigError(f"The suite has no {kind}s. Add a [[{kind}s]] section.")
            names = [entry.label for entry in entries]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ConfigError(
                    f"The suite lists the {kind} {twice[0]!r} twice. Give one of them another name.", setting=twice[0]
                )


# ------------------------------------------------------------------------------------------------------------- reading

SIMPLE = ("delta", "seeds", "synthetic_rows", "bins", "real_data")
IN_PROFILE = ("tables", "methods", "epsilons", "metrics", "classifiers", "max_rows", "limits", *SIMPLE)
TOP = ("name", "title", "description", *IN_PROFILE, "profiles")
COMMENT = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')|#.*""")
"""A comment in a line of TOML. Quoted strings match too, so that a # inside them does not count."""

Entry = TypeVar("Entry", TableSpec, MethodSpec)


def suite_names() -> list[str]:
    """The suites that come with Understudy."""
    return sorted(entry.name.removesuffix(".toml") for entry in SUITES.iterdir() if entry.name.endswith(".toml"))


def read_suite(source: str | os.PathLike[str], *, profile: str | None = None) -> Suite:
    """A suite from a TOML file, or by the name of one that comes with Understudy."""
    from understudy.schema.toml import read_settings

    path, known = Path(source), suite_names()
    name, file, folder = path.stem, path, path.parent
    if not path.suffix and str(source) in known:
        file, folder = Path(str(SUITES), f"{name}.toml"), Path()
    if not file.exists():
        raise SuiteError(
            f"There is no suite file {str(path)!r}, and no such suite comes with Understudy."
            f"{did_you_mean(str(path), known)} The suites are: {', '.join(known)}.",
            setting="suite",
        )
    try:
        return _make_suite(read_settings(file), name, folder, profile)
    except ConfigError as error:
        line = None if error.setting is None else _line_of(error.setting, file.read_text(encoding="utf-8-sig"))
        where = name if line is None else f"{name}, line {line}"
        raise SuiteError(f"{where}: {error}", setting=error.setting, line=line) from None


def _line_of(word: str, text: str) -> int | None:
    """The one line that contains this word; comments do not count. None if several do: any may be meant."""
    whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if whole.search(COMMENT.sub(r"\1", line))]
    return lines[0] if len(lines) == 1 else None


def _make_suite(content: dict[str, Any], name: str, folder: Path, profile: str | None) -> Suite:
    _check_entry(content, TOP, "The suite")
    profiles, chosen = content.get("profiles", {}), content
    if profile is not None:
        if profile not in profiles:
            raise ConfigError(
                f"The suite has no profile {profile!r}.{did_you_mean(profile, profiles)} "
                f"Its profiles: {', '.join(profiles) or 'none'}."
            )
        _check_entry(profiles[profile], IN_PROFILE, f"[profiles.{profile}]")
        chosen = {**content, **profiles[profile]}
    for key in ("tables", "methods", "epsilons", "metrics"):
        if key not in chosen:
            raise ConfigError(f"The suite has no {key}. Add them.")
    check_metrics(chosen["metrics"])
    limits = chosen.get("limits", {})
    _check_entry(limits, ("minutes", "memory_gb"), "[limits]")
    rows = {"max_rows": chosen["max_rows"]} if "max_rows" in chosen else {}
    return Suite(
        name=chosen.get("name", name),
        title=chosen.get("title", ""),
        description=chosen.get("description", "").strip(),
        tables=_entries("tables", content, chosen, lambda entry: [_table(entry, folder)]),
        methods=_entries("methods", content, chosen, lambda entry: _methods(entry, folder)),
        epsilons=tuple(chosen["epsilons"]),
        scoring=Scoring(metrics=tuple(chosen["metrics"]), classifiers=tuple(chosen.get("classifiers", ())), **rows),
        limits=Limits(**limits),
        profile=profile or "paper",
        **{key: chosen[key] for key in SIMPLE if key in chosen},
    )


def _entries(
    kind: str, whole: Mapping[str, Any], chosen: Mapping[str, Any], read: Callable[[Any], Iterable[Entry]]
) -> tuple[Entry, ...]:
    """Tables or methods; a profile may name those of the whole suite, or define its own."""
    known = {entry.label: entry for item in whole.get(kind, []) for entry in read(item)}
    return tuple(
        entry
        for item in chosen[kind]
        for entry in ([known[item]] if isinstance(item, str) and item in known else read(item))
    )


def _table(entry: str | dict[str, Any], folder: Path) -> TableSpec:
    """The table of an entry. Its paths are relative to the folder of the suite."""
    from understudy.benchmark.catalogue import table_names

    content = {"name": entry} if isinstance(entry, str) else entry
    if "name" not in content:
        raise ConfigError("Each table needs a name.", setting="[[tables]]")
    _check_entry(content, [field.name for field in dataclasses.fields(TableSpec)], f"Table {content['name']!r}")
    paths = {key: str(folder / content[key]) for key in ("file", "schema", "test_file") if content.get(key)}
    spec = TableSpec(**{**content, **paths})
    if spec.file is None and spec.name not in table_names():
        raise ConfigError(
            f"There is no table {spec.name!r}.{did_you_mean(spec.name, table_names())} For a file of your own, give "
            "file and schema. 'understudy benchmark tables' lists the known tables.",
            setting=spec.name,
        )
    return spec


def _methods(entry: str | dict[str, Any], folder: Path) -> list[MethodSpec]:
    """The method of an entry, and the same in each of its wrappers: `quail` or `boosted(rounds=100)`."""
    content = {"method": entry} if isinstance(entry, str) else entry
    if "method" not in content:
        raise ConfigError('Each method needs a line such as method = "mst".', setting="[[methods]]")
    _check_entry(content, ("method", "name", "peer", "wrappers"), f"Method {content['method']!r}")
    peer_file = str(folder / content["peer"]) if "peer" in content else None
    inner = MethodSpec(expression=content["method"], name=content.get("name", ""), peer_file=peer_file)
    methods = [inner]
    for wrapper in content.get("wrappers", []):
        outer, _, settings = wrapper.partition("(")
        outer, more = outer.strip(), f", {settings.rstrip().removesuffix(')')}" if settings else ""
        expression, name = f"{outer}({inner.expression}{more})", f"{outer}({inner.label})"
        methods.append(MethodSpec(expression=expression, name=name, wrapper=outer, inner=inner.label))
    for method in methods:
        _check_method(method)
    return methods


def _check_method(method: MethodSpec) -> None:
    """Checks names only, so that reading a suite loads no method; `check_methods` checks settings before a run."""
    if method.peer_file is not None:
        from understudy.benchmark.peers import read_peer

        read_peer(method.peer_file).check(method.expression)
        return
    from understudy.synthesizers.registry import AUTO, LEARNERS, SYNTHESIZERS

    known = [*SYNTHESIZERS, AUTO]
    outermost = re.split(r"[(,\s]", method.expression.strip(), maxsplit=1)[0]
    for name in (outermost, *re.findall(r"([A-Za-z_]\w*)\s*\(", method.expression)):
        if name not in known and name not in LEARNERS:
            raise ConfigError(
                f"There is no method {name!r}.{did_you_mean(name, known)} The methods are: {', '.join(known)}.",
                setting=name,
            )


def select(
    suite: Suite,
    *,
    tables: Sequence[str] = (),
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
    seeds: int | None = None,
) -> Suite:
    """A part of a suite: tables and methods by name, other budgets, or another number of seeds."""
    changes: dict[str, Any] = {}
    for kind, names in {"tables": tables, "methods": methods}.items():
        known = {entry.label: entry for entry in getattr(suite, kind)}
        for name in names:
            if name not in known:
                raise SuiteError(
                    f"The suite has no {kind[:-1]} {name!r}.{did_you_mean(name, known)} "
                    f"Its {kind}: {', '.join(known)}.",
                    setting=kind,
                )
        if names:
            changes[kind] = tuple(known[name] for name in names)
    if epsilons:
        changes["epsilons"] = tuple(epsilons)
    if seeds is not None:
        changes["seeds"] = seeds
    return dataclasses.replace(suite, **changes)
