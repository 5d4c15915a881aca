"""Suites: which methods run on which tables, with which budgets, seeds and metrics. Written in TOML.

A suite is read and checked completely before its first cell runs: an unknown table, method, metric or setting is
refused, with the closest known name and the line in the file.
"""

import dataclasses
import difflib
import importlib.resources
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy.errors import ConfigError, UnderstudyError, did_you_mean

REAL = "real data"
"""The training rows scored as if they were synthetic: the ceiling for every metric. Has no epsilon."""
PROFILES = ("smoke", "quick", "paper")
"""The usual names, shortest run first; a suite may define others."""
SUITES = importlib.resources.files("understudy.benchmark").joinpath("suites")


class SuiteError(ConfigError):
    """A suite that cannot be run as written."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """The line at fault, counted from 1; None: no single line is."""


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
            raise ConfigError(f"A table's name has letters, digits, spaces, dots and hyphens, found {self.name!r}.")
        if self.file is None:
            given = {"schema": None, "target": None, "test_file": None, "test_fraction": 0.2, "split_seed": 0}
            extra = [key for key, default in given.items() if getattr(self, key) != default]
            if extra:
                raise ConfigError(
                    f"Table {self.name!r} has {extra[0]} but no file. Tables of the catalogue have their own target "
                    f"and split. Remove {extra[0]}, or add file = the path of a table."
                )
        elif self.schema is None:
            raise ConfigError(f"Table {self.name!r} has a file but no schema. Add schema = the path of its schema.")
        if not 0 < self.test_fraction < 1:
            raise ConfigError(f"test_fraction must be between 0 and 1, found {self.test_fraction}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """A method expression, of Understudy or of a peer."""

    expression: str
    name: str = ""
    """The label in reports; default: the expression."""
    peer: str | None = None
    """The peer that runs it; None: Understudy itself."""
    wrapper: str | None = None
    """The method around the inner one, if this entry came from `wrappers`."""
    inner: str | None = None
    """The label of the wrapped method."""

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
        for name in ("minutes", "memory_gb"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ConfigError(f"limits: {name} must be a positive number, found {value!r}.")


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
        _check_numbers(self)


def _check_numbers(suite: Suite) -> None:
    if not suite.epsilons or any(not _is_number(value) or not 0 < value < math.inf for value in suite.epsilons):
        raise ConfigError(f"epsilons must be a list of positive numbers, found {list(suite.epsilons)}.")
    if len({float(value) for value in suite.epsilons}) < len(suite.epsilons):
        raise ConfigError(f"epsilons has a value twice: {list(suite.epsilons)}. Remove one of them.")
    if not _is_number(suite.delta) or not 0 < suite.delta < 1:
        raise ConfigError(f"delta must be between 0 and 1, found {suite.delta!r}.")
    for key in ("seeds", "synthetic_rows"):
        value = getattr(suite, key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{key} must be a positive whole number, found {value!r}.")
    for kind, names in {
        "table": [table.name for table in suite.tables],
        "method": [method.label for method in suite.methods],
    }.items():
        if not names:
            raise ConfigError(f"The suite has no {kind}s. Add a [[{kind}s]] section.")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"The suite lists the {kind} {twice[0]!r} twice. Give one of them another name.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ------------------------------------------------------------------------------------------------------------- reading


def suite_names() -> list[str]:
    """The suites that come with Understudy.

    >>> "smoke" in suite_names()
    True
    """
    return sorted(entry.name.removesuffix(".toml") for entry in SUITES.iterdir() if entry.name.endswith(".toml"))


def read_suite(source: str | os.PathLike[str], *, profile: str | None = None) -> Suite:
    """A suite from a TOML file, or by the name of one that comes with Understudy.

    >>> read_suite("smoke").epsilons
    (1.0,)
    """
    name, path = str(source), Path(source)
    if not path.suffix and name in suite_names():
        return _Reader(SUITES.joinpath(f"{name}.toml").read_text(encoding="utf-8"), name, Path()).read(profile)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        known = suite_names()
        raise SuiteError(
            f"There is no suite file {name!r}, and no such suite comes with Understudy.{did_you_mean(name, known)} "
            f"The suites are: {', '.join(known)}."
        ) from None
    except UnicodeDecodeError:
        raise SuiteError(f"{name} is not UTF-8 text. A suite is a TOML file.") from None
    except OSError as error:
        raise SuiteError(f"Cannot read {name}: {error.strerror}.") from None
    return _Reader(text, path.stem, path.parent).read(profile)


IN_PROFILE = (
    *("tables", "methods", "epsilons", "delta", "seeds", "metrics", "classifiers", "max_rows"),
    *("limits", "synthetic_rows", "bins", "real_data"),
)
TOP = ("name", "title", "description", *IN_PROFILE, "profiles")


class _Reader:
    """One suite file."""

    def __init__(self, text: str, name: str, folder: Path) -> None:
        self.text, self.name, self.folder = text, name, folder

    def read(self, profile: str | None) -> Suite:
        try:
            content: Mapping[str, object] = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise SuiteError(f"{self.name} is not valid TOML: {str(error).rstrip('.')}. Correct that line.") from None
        except RecursionError:
            raise SuiteError(f"{self.name} is nested too deeply to be a suite.") from None
        self._check_keys(content, TOP, "The suite")
        profiles = content.get("profiles", {})
        if not isinstance(profiles, dict) or not all(isinstance(entry, dict) for entry in profiles.values()):
            raise SuiteError("profiles must be sections, written as [profiles.smoke].")
        chosen: Mapping[str, object] = {}
        if profile is not None:
            if profile not in profiles:
                raise SuiteError(
                    f"The suite {self.name} has no profile {profile!r}.{did_you_mean(profile, profiles)} "
                    f"Its profiles: {', '.join(profiles) or 'none'}."
                )
            chosen = profiles[profile]
            self._check_keys(chosen, IN_PROFILE, f"[profiles.{profile}]")
        try:
            return self._suite({**content, **chosen}, content, profile)
        except SuiteError:
            raise
        except UnderstudyError as error:
            raise SuiteError(f"{self.name}: {error}") from None

    def _suite(self, content: Mapping[str, object], whole: Mapping[str, object], profile: str | None) -> Suite:
        for key in ("tables", "methods", "epsilons", "metrics"):
            if key not in content:
                raise SuiteError(f"The suite {self.name} has no {key}. Add them.")
        limits = content.get("limits", {})
        if not isinstance(limits, dict):
            raise SuiteError("limits must be a section, written as [limits].", line=self.line_of("limits"))
        self._check_keys(limits, ("minutes", "memory_gb"), "[limits]")
        scoring = Scoring(
            metrics=self._words(content, "metrics"),
            classifiers=self._words(content, "classifiers"),
            **self._given(content, "max_rows"),  # type: ignore[arg-type]
        )
        self._check_metrics(scoring)
        return Suite(
            name=str(content.get("name", self.name)),
            title=str(content.get("title", "")),
            description=str(content.get("description", "")).strip(),
            tables=self._tables(content["tables"], whole.get("tables")),
            methods=self._methods(content["methods"], whole.get("methods")),
            epsilons=tuple(self._list(content, "epsilons")),  # type: ignore[arg-type]
            scoring=scoring,
            limits=Limits(**limits),
            profile=profile or "paper",
            **self._given(content, "delta", "seeds", "synthetic_rows", "bins", "real_data"),  # type: ignore[arg-type]
        )

    def _given(self, content: Mapping[str, object], *keys: str) -> dict[str, object]:
        return {key: content[key] for key in keys if key in content}

    def _list(self, content: Mapping[str, object], key: str) -> Sequence[object]:
        found = content.get(key, [])
        if not isinstance(found, list):
            raise SuiteError(f"{key} must be a list, found {found!r}.{self._at(key)}", line=self.line_of(key))
        return found

    def _words(self, content: Mapping[str, object], key: str) -> tuple[str, ...]:
        found = self._list(content, key)
        if not all(isinstance(word, str) for word in found):
            raise SuiteError(f"{key} must be a list of names.{self._at(key)}", line=self.line_of(key))
        return tuple(map(str, found))

    # A profile may name tables and methods of the suite, or define its own.

    def _tables(self, found: object, whole: object) -> tuple[TableSpec, ...]:
        known = {table.name: table for table in map(self._table, self._entries(whole, "tables"))}
        return tuple(
            known[entry] if isinstance(entry, str) and entry in known else self._table(entry)
            for entry in self._entries(found, "tables")
        )

    def _entries(self, found: object, key: str) -> list[object]:
        if found is None:
            return []
        if not isinstance(found, list):
            raise SuiteError(f"{key} must be a list of names or [[{key}]] sections.", line=self.line_of(key))
        return found

    def _table(self, entry: object) -> TableSpec:
        from understudy.benchmark.tables import table_names

        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise SuiteError("Each table needs a name.", line=self.line_of("[[tables]]"))
        fields = tuple(field.name for field in dataclasses.fields(TableSpec))
        self._check_keys(entry, fields, f"Table {entry['name']!r}")
        spec = TableSpec(**{**entry, **self._paths(entry)})
        if spec.file is None and spec.name not in table_names():
            known = table_names()
            raise SuiteError(
                f"There is no table {spec.name!r}.{did_you_mean(spec.name, known)}{self._at(spec.name)} For a file of "
                "your own, give file and schema. 'understudy benchmark tables' lists the known tables.",
                line=self.line_of(spec.name),
            )
        return spec

    def _paths(self, entry: Mapping[str, object]) -> dict[str, str]:
        """Paths in a suite file are relative to it."""
        return {key: str(self.folder / str(entry[key])) for key in ("file", "schema", "test_file") if entry.get(key)}

    def _methods(self, found: object, whole: object) -> tuple[MethodSpec, ...]:
        known = {method.label: method for entry in self._entries(whole, "methods") for method in self._method(entry)}
        methods: list[MethodSpec] = []
        for entry in self._entries(found, "methods"):
            if isinstance(entry, str) and entry in known:
                methods.append(known[entry])
            else:
                methods += self._method(entry)
        return tuple(methods)

    def _method(self, entry: object) -> list[MethodSpec]:
        if isinstance(entry, str):
            entry = {"method": entry}
        if not isinstance(entry, dict) or not isinstance(entry.get("method"), str):
            raise SuiteError('Each method needs a line such as method = "mst".', line=self.line_of("[[methods]]"))
        self._check_keys(entry, ("method", "name", "peer", "wrappers"), f"Method {entry['method']!r}")
        expression, peer = entry["method"], entry.get("peer")
        plain = MethodSpec(expression=expression, name=str(entry.get("name", "")), peer=peer)
        self._check_method(plain)
        found = [plain]
        for wrapper in self._words(entry, "wrappers"):
            found.append(self._wrap(plain, wrapper))
            self._check_method(found[-1])
        return found

    def _wrap(self, inner: MethodSpec, wrapper: str) -> MethodSpec:
        """`quail` or `boosted(rounds=100)` around a method."""
        outer, _, settings = wrapper.partition("(")
        more = f", {settings.rstrip().removesuffix(')')}" if settings else ""
        expression = f"{outer.strip()}({inner.expression}{more})"
        name = f"{outer.strip()}({inner.label})"
        return MethodSpec(expression=expression, name=name, wrapper=outer.strip(), inner=inner.label)

    def _check_method(self, method: MethodSpec) -> None:
        """Checks names only, so that reading a suite loads no method; `check_methods` checks settings before a run."""
        if method.peer is not None:
            from understudy.benchmark.peers.description import read_peer

            read_peer(method.peer).require(method.expression)
            return
        from understudy.synthesizers.registry import AUTO, LEARNERS, SYNTHESIZERS

        known = [*SYNTHESIZERS, AUTO]
        outermost = re.split(r"[(,\s]", method.expression.strip(), maxsplit=1)[0]
        called = [outermost, *re.findall(r"([A-Za-z_]\w*)\s*\(", method.expression)]
        for name in called:
            if name not in known and name not in LEARNERS:
                raise SuiteError(
                    f"There is no method {name!r}.{did_you_mean(name, known)}{self._at(name)} The methods are: "
                    f"{', '.join(known)}.",
                    line=self.line_of(name),
                )

    def _check_metrics(self, scoring: Scoring) -> None:
        from understudy.benchmark.metrics import METRICS

        if not scoring.metrics:
            raise SuiteError("metrics is empty. Name at least one.", line=self.line_of("metrics"))
        for name in scoring.metrics:
            if name not in METRICS:
                raise SuiteError(
                    f"There is no metric {name!r}.{did_you_mean(name, METRICS)}{self._at(name)} The metrics are: "
                    f"{', '.join(METRICS)}.",
                    line=self.line_of(name),
                )

    def _check_keys(self, entry: Mapping[str, object], known: Sequence[str], where: str) -> None:
        for key in entry:
            if key not in known:
                raise SuiteError(
                    f"{where} has the unknown key {key!r}.{did_you_mean(key, known)}{self._at(key)} The keys are "
                    f"{', '.join(known)}.",
                    line=self.line_of(key),
                )

    def line_of(self, word: str) -> int | None:
        """The first line that contains this word; comments do not count."""
        whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        for number, line in enumerate(self.text.splitlines(), start=1):
            if whole.search(line.partition("#")[0]):
                return number
        return None

    def _at(self, word: str) -> str:
        line = self.line_of(word)
        return "" if line is None else f" (line {line} of {self.name})"


def select(
    suite: Suite,
    *,
    tables: Sequence[str] = (),
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
    seeds: int | None = None,
) -> Suite:
    """A part of a suite: tables and methods by name, other budgets, or another number of seeds.

    >>> select(read_suite("smoke"), seeds=5).seeds
    5
    """
    changes: dict[str, object] = {}
    if tables:
        changes["tables"] = tuple(
            _find("table", name, {table.name: table for table in suite.tables}) for name in tables
        )
    if methods:
        changes["methods"] = tuple(
            _find("method", name, {method.label: method for method in suite.methods}) for name in methods
        )
    if epsilons:
        changes["epsilons"] = tuple(epsilons)
    if seeds is not None:
        changes["seeds"] = seeds
    return dataclasses.replace(suite, **changes)  # type: ignore[arg-type]


def _find(kind: str, name: str, known: "Mapping[str, TableSpec | MethodSpec]") -> "TableSpec | MethodSpec":
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SuiteError(f"The suite has no {kind} {name!r}.{hint} Its {kind}s: {', '.join(known)}.")
    return known[name]
