"""Result records as typed values, and what a report says about the suite as a whole."""

import dataclasses
from collections.abc import Iterable, Mapping

from understudy.errors import ConfigError
from understudy.report.text import finite

REAL, BASELINE = "real data", "independent"
"""Methods that every figure marks: the training rows scored as if they were synthetic, and the weakest method."""

Record = Mapping[str, object]
"""One line of `results.jsonl`."""
Metrics = Mapping[str, tuple[str, bool]]
"""By name: the title of a metric, and whether higher values are better."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportInfo:
    """What the records do not say about their suite."""

    suite: str
    title: str
    description: str = ""
    command: str = ""
    """The command that produced the records."""
    date: str = ""
    footnotes: tuple[str, ...] = ()
    """Such as the known privacy defects of other packages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A record with types: the outcome of one cell."""

    table: str
    method: str
    """The label; followed by the name of the package if the method is another package's."""
    epsilon: float | None
    seed: int
    failure: tuple[str, str] | None = None
    """Reason and message; None: the cell is done."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seconds: float | None = None
    """To fit and sample; None for a member of a population."""
    peer: str | None = None
    wrapper: str | None = None
    inner: str | None = None
    expression: str = ""
    num_train: int | None = None
    machine: str = ""
    version: str = ""
    delta: float | None = None

    @property
    def is_failed(self) -> bool:
        return self.failure is not None


def read_records(records: Iterable[Record]) -> list[Result]:
    """Typed results, one per cell: where a cell was run again, its last record counts."""
    last: dict[tuple[str, str, str, float | None, int], Result] = {}
    for number, record in enumerate(records, start=1):
        result = _read_record(record, number)
        cell = (result.table, result.method, result.expression, result.epsilon, result.seed)
        last.pop(cell, None)
        last[cell] = result
    return _name_apart(list(last.values()))


def _name_apart(results: list[Result]) -> list[Result]:
    """Methods with the same label and different settings on one table are named by their expressions."""
    expressions: dict[tuple[str, str, float | None, int], set[str]] = {}
    for result in results:
        expressions.setdefault((result.table, result.method, result.epsilon, result.seed), set()).add(result.expression)
    doubtful = {cell[1] for cell, found in expressions.items() if len(found) > 1}
    return [
        dataclasses.replace(result, method=_with_peer(result.expression, result.peer))
        if result.method in doubtful
        else result
        for result in results
    ]


def _read_record(record: Record, number: int) -> Result:
    for key in ("table", "method", "status"):
        if not isinstance(record.get(key), str):
            raise ConfigError(
                f"Record {number}: expected text under {key!r}, found {record.get(key)!r}. Check the file."
            )
    status, failure = record["status"], record.get("failure")
    if status not in ("done", "failed"):
        raise ConfigError(f"Record {number}: expected the status done or failed, found {status!r}. Check the file.")
    peer, seconds = _text(record, "peer"), finite_numbers(record.get("seconds"))
    # Fits of a population share their time, and usually another device: no time to compare with that of single fits.
    parts = () if record.get("population") else ("fit", "sample")
    spent = [seconds[part] for part in parts if part in seconds]
    return Result(
        table=str(record["table"]),
        method=_with_peer(str(record["method"]), peer),
        epsilon=finite(record.get("epsilon")),
        seed=int(finite(record.get("seed")) or 0),
        failure=_failure(failure) if status == "failed" else None,
        metrics=finite_numbers(record.get("metrics")),
        seconds=sum(spent) if spent else None,
        peer=peer,
        wrapper=_text(record, "wrapper"),
        inner=_text(record, "inner"),
        expression=_text(record, "expression") or str(record["method"]),
        num_train=int(rows["train"]) if "train" in (rows := finite_numbers(record.get("rows"))) else None,
        machine=_text(record, "machine") or "",
        version=_text(record, "version") or "",
        delta=finite(record.get("delta")),
    )


def _failure(failure: object) -> tuple[str, str]:
    if not isinstance(failure, Mapping):
        return "error", "no message"
    return str(failure.get("reason") or "error"), str(failure.get("message") or "no message")


def _with_peer(label: str, peer: str | None) -> str:
    return label if peer is None or peer.lower() in label.lower() else f"{label} ({peer})"


def _text(record: Record, key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) and value else None


def finite_numbers(found: object) -> dict[str, float]:
    """The entries that are finite numbers; the rest is undefined."""
    if not isinstance(found, Mapping):
        return {}
    values = {str(key): finite(value) for key, value in found.items()}
    return {key: value for key, value in values.items() if value is not None}


def method_order(results: Iterable[Result]) -> list[str]:
    """Labels in the order of every table and legend: real data, the baseline, plain methods, wrapped ones."""
    first: dict[str, tuple[int, int]] = {}
    for index, result in enumerate(results):
        kind = 2 if result.wrapper is None and result.peer is None else 3 if result.peer is None else 4
        first.setdefault(result.method, ({REAL: 0, BASELINE: 1}.get(result.method, kind), index))
    return sorted(first, key=lambda method: first[method])


def table_order(results: Iterable[Result]) -> list[str]:
    """Tables in the order of the records."""
    return list(dict.fromkeys(result.table for result in results))


def epsilon_order(results: Iterable[Result]) -> list[float]:
    """Every epsilon, ascending; real data has none."""
    return sorted({result.epsilon for result in results if result.epsilon is not None})


def metric_order(results: Iterable[Result], metrics: Metrics) -> list[str]:
    """The metrics that at least one cell has, in the order of their mapping."""
    computed = {name for result in results for name in result.metrics}
    return [name for name in metrics if name in computed]
