"""Rules that contradict each other or the declared columns, found where that can be decided from public facts."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa

from understudy.errors import SchemaError
from understudy.schema.column import Column
from understudy.schema.conditions import Part, parts
from understudy.schema.rule_cells import check_cells
from understudy.schema.rule_values import as_text
from understudy.schema.rules import TOLERANCE, Combinations, Determines, Keep, Rule, Skip, Sum, rule_title
from understudy.schema.values import Bound

_DAY = timedelta(days=1)


def check_conflicts(rules: Sequence[Rule], columns: Mapping[str, Column], types: pa.Schema) -> None:
    """Raises SchemaError for rules that no row can keep, alone, within the declared bounds or in pairs.

    A null leaves a rule unknown, so a row of nulls breaks none. That is not enough: values must be able to keep a rule.
    """
    numbered = [(rule, rule_title(rule, number)) for number, rule in enumerate(rules, start=1)]
    assigned = {title: parts(rule.keep, types) for rule, title in numbered if isinstance(rule, Keep)}
    givers = [giver for rule, title in numbered for giver in _givers(rule, title, assigned.get(title, ()))]
    _check_dependencies(numbered, givers)
    _check_skips(numbered)
    _check_sums(numbered, columns)
    _check_orders(assigned, columns, types)
    _check_lists(numbered)
    check_cells(numbered, columns, types, {giver.column for giver in givers})


# -------------------------------------------------------------------------------------------------------- determination


class _Giver(NamedTuple):
    """A rule that gives a column its value."""

    title: str
    rule: Rule
    column: str
    inputs: tuple[str, ...]


def _check_dependencies(numbered: Sequence[tuple[Rule, str]], givers: Sequence[_Giver]) -> None:
    """At most one lookup table or formula gives a column, and no column depends on itself."""
    for one, two in itertools.combinations(givers, 2):
        if one.column == two.column and one.rule != two.rule and not isinstance(two.rule, Sum):
            raise SchemaError(
                f"{one.title} and {_inner(two.title)} both give column {one.column!r}. Remove one of them.",
                column=one.column,
            )
    cycle = _find_cycle(givers)
    if cycle:
        used = {giver.title for giver in cycle}
        titles = [title for _, title in numbered if title in used]
        chain = ", ".join(
            f"{' and '.join(giver.inputs)} {'gives' if len(giver.inputs) == 1 else 'give'} {giver.column}"
            for giver in cycle
        )
        raise SchemaError(
            f"{_join(titles)} {'is' if len(titles) == 1 else 'are'} circular: {chain}. Remove one, or list the"
            " combinations that are allowed.",
            column=cycle[0].column,
        )


def _givers(rule: Rule, title: str, assigned: Sequence[Part]) -> Iterator[_Giver]:
    """Sums come last: a total may be that of several sums, or be given by a table."""
    if isinstance(rule, Determines):
        yield from (_Giver(title, rule, name, rule.determines) for name in rule.gives)
    for part in assigned:
        if part.assignment is not None:
            yield _Giver(title, rule, part.assignment.column, part.assignment.inputs)
    if isinstance(rule, Sum) and rule.at_most is None and isinstance(rule.total, str):
        yield _Giver(title, rule, rule.total, rule.sum)


def _find_cycle(givers: Sequence[_Giver]) -> list[_Giver]:
    """The givers of columns that depend on each other in a cycle, in order; empty if there is none."""
    done: set[str] = set()

    def visit(column: str, path: list[_Giver]) -> list[_Giver]:
        given = [giver.column for giver in path]
        if column in given:
            return path[given.index(column) :][::-1]
        if column not in done:
            for giver in givers:
                if giver.column == column:
                    for name in giver.inputs:
                        if cycle := visit(name, [*path, giver]):
                            return cycle
            done.add(column)
        return []

    return next((cycle for giver in givers if (cycle := visit(giver.column, []))), [])


# -------------------------------------------------------------------------------------------------- skip patterns, sums


def _check_skips(numbered: Sequence[tuple[Rule, str]]) -> None:
    skips = [(rule, title) for rule, title in numbered if isinstance(rule, Skip)]
    for (one, title), (two, other) in itertools.combinations(skips, 2):
        if one.skip == two.skip and one != two:
            raise SchemaError(
                f"{title} and {_inner(other)} both say when {one.skip!r} is null. Combine them with OR in one rule.",
                column=one.skip,
            )


def _check_sums(numbered: Sequence[tuple[Rule, str]], columns: Mapping[str, Column]) -> None:
    """The declared bounds of the columns of a sum must leave room for its total."""
    for rule, title in numbered:
        if not isinstance(rule, Sum):
            continue
        bounds = [columns[name].bounds for name in rule.sum]
        total = columns[rule.total].bounds if isinstance(rule.total, str) else (rule.total, rule.total)
        if total is None or None in bounds:
            continue
        lowers, uppers = ([_number(each[end]) for each in bounds if each] for end in (0, 1))
        lowest, highest = map(_number, total)
        names = ", ".join(rule.sum)
        if sum(lowers) > highest + _tolerated(rule, [*lowers, highest]):
            problem = f"lower bounds of {names} add up to {float(sum(lowers)):g}, above {float(highest):g}"
        elif rule.at_most is None and sum(uppers) < lowest - _tolerated(rule, [*uppers, lowest]):
            problem = f"upper bounds of {names} add up to {float(sum(uppers)):g}, below {float(lowest):g}"
        else:
            continue
        raise SchemaError(f"{title}: the {problem}. Correct the bounds, or remove the rule.", column=rule.sum[0])


def _tolerated(rule: Sum, numbers: Sequence[Fraction]) -> Fraction:
    """How far the sum may be from its total, or a little more."""
    if rule.decimals is not None:
        return Fraction(1, 2 * 10**rule.decimals)
    return Fraction(TOLERANCE) * max(Fraction(1), sum((abs(number) for number in numbers), Fraction(0)))


# --------------------------------------------------------------------------------------------------------------- orders


class _Gap(NamedTuple):
    """How far one column is above another: by at least an offset, or by more if a comparison is strict."""

    offset: Fraction
    strict: int
    path: tuple["_Edge", ...]

    def __add__(self, other: "_Gap") -> "_Gap":  # type: ignore[override]
        return _Gap(self.offset + other.offset, self.strict + other.strict, self.path + other.path)

    @property
    def size(self) -> tuple[Fraction, int]:
        return self.offset, min(self.strict, 1)


class _Edge(NamedTuple):
    greater: str | None
    lesser: str | None
    offset: Fraction
    strict: bool
    title: str | None
    """The rule that says so; None for a declared bound, which has a column on one side only."""


def _check_orders(assigned: Mapping[str, Sequence[Part]], columns: Mapping[str, Column], types: pa.Schema) -> None:
    """Orders of columns must not form a cycle, and must leave room within the bounds.

    These are difference constraints: they contradict each other exactly if a cycle of them adds up to more than zero.
    """
    orders = [
        edge
        for title, each in assigned.items()
        for part in each
        if (edge := _order_edge(part, title, columns, types)) is not None
    ]
    for cycle in _cycles(orders):
        titles, edge = _titles(cycle, assigned), cycle.path[0]
        if cycle.size > (0, 0):
            names = " > ".join([*(str(e.greater) for e in cycle.path), str(edge.greater)])
            says = "contradicts itself" if len(titles) == 1 else "contradict each other"
            raise SchemaError(f"{_join(titles)} {says}: {names}. Remove one.", column=edge.greater)
        if cycle.size == (0, 0):
            equal = f"{edge.greater} = {edge.lesser}{_signed(edge.offset)}"
            raise SchemaError(
                f"{_join(titles)} together say that {equal}. Write that as one rule, or remove one of the columns.",
                column=edge.greater,
            )
    used = {name for edge in orders for name in (edge.greater, edge.lesser) if name is not None}
    bounds = [edge for name in sorted(used) for edge in _bound_edges(columns[name])]
    for cycle in _cycles([*orders, *bounds]):
        is_real = any(columns[name].kind == "real" for edge in cycle.path if (name := edge.greater) is not None)
        scale = max(abs(edge.offset) for edge in cycle.path)
        if cycle.size > (scale * Fraction(1, 10**9) if is_real else 0, 0):  # sums of reals may be rounded
            titles = _titles(cycle, assigned)
            ends = [edge.greater or edge.lesser for edge in cycle.path if edge.title is None]
            shown = " and ".join(
                f"{name} from {b[0]} to {b[1]}" for name in reversed(ends) if name and (b := columns[name].bounds)
            )
            raise SchemaError(
                f"{_join(titles)} cannot be kept within the declared bounds: {shown}. Correct the bounds, or remove"
                f" {'the rule' if len(titles) == 1 else 'one of the rules'}.",
                column=ends[-1],
            )


def _titles(cycle: _Gap, assigned: Iterable[str]) -> list[str]:
    """The rules of a cycle, in the order of the schema."""
    used = {edge.title for edge in cycle.path}
    return [title for title in assigned if title in used]


def _order_edge(part: Part, title: str, columns: Mapping[str, Column], types: pa.Schema) -> _Edge | None:
    if part.order is None:
        return None
    greater, lesser, strict, offset = part.order
    kinds = {columns[greater].kind, columns[lesser].kind}
    whole = kinds == {"integer"} or kinds == {"date"}
    if not (whole or kinds <= {"integer", "real"} or kinds <= {"date", "datetime"}):
        same = types.field(greater).type == types.field(lesser).type
        return _Edge(greater, lesser, Fraction(0), strict, title) if same and not offset else None
    gap = _number(offset)
    if whole and strict:  # more than 2 is at least 3
        return _Edge(greater, lesser, Fraction(gap.__floor__() + 1), False, title)
    return _Edge(greater, lesser, Fraction(gap.__ceil__()) if whole else gap, strict, title)


def _bound_edges(column: Column) -> list[_Edge]:
    if column.bounds is None:
        return []
    lower, upper = map(_number, column.bounds)
    return [_Edge(column.name, None, lower, False, None), _Edge(None, column.name, -upper, False, None)]


def _cycles(edges: Sequence[_Edge]) -> Iterator[_Gap]:
    """The widest cycle of comparisons through each column (Floyd and Warshall), up to the first above zero."""
    gaps: dict[tuple[str | None, str | None], _Gap] = {}
    for edge in edges:
        gap = _Gap(edge.offset, int(edge.strict), (edge,))
        known = gaps.get((edge.greater, edge.lesser))
        if known is None or gap.size > known.size:
            gaps[edge.greater, edge.lesser] = gap
    names = list(dict.fromkeys(name for edge in edges for name in (edge.greater, edge.lesser)))
    for middle in names:
        for greater in names:
            if (greater, middle) not in gaps:
                continue
            for lesser in names:
                if (middle, lesser) not in gaps:
                    continue
                gap = gaps[greater, middle] + gaps[middle, lesser]
                if (greater, lesser) not in gaps or gap.size > gaps[greater, lesser].size:
                    gaps[greater, lesser] = gap
                    if greater == lesser and gap.size > (0, 0):
                        yield gap
                        return
    yield from (gaps[name, name] for name in names if (name, name) in gaps)


def _number(value: Bound | timedelta) -> Fraction:
    """A number; dates, times and lengths of time in days."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return _number(moment - datetime(1970, 1, 1))
    if isinstance(value, date):
        return Fraction(value.toordinal() - date(1970, 1, 1).toordinal())
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), _DAY // timedelta(microseconds=1))
    return Fraction(value)


def _signed(offset: Fraction) -> str:
    return "" if offset == 0 else f" {'+' if offset > 0 else '-'} {float(abs(offset)):g}"


# ---------------------------------------------------------------------------------------------------------------- lists


def _check_lists(numbered: Sequence[tuple[Rule, str]]) -> None:
    """Two lists of allowed values must have a common value in the columns that they share."""
    lists = [(rule, title) for rule, title in numbered if isinstance(rule, Combinations | Determines)]
    for (one, title), (two, other) in itertools.combinations(lists, 2):
        shared = [name for name in one.columns if name in two.columns]
        if not shared or one == two:
            continue
        if _are_disjoint(one, two, shared):
            raise SchemaError(
                f"{title} and {_inner(other)} contradict each other: no values of {', '.join(shared)} are allowed by"
                " both. Correct one of the lists.",
                column=shared[0],
            )


def _are_disjoint(one: Combinations | Determines, two: Combinations | Determines, shared: Sequence[str]) -> bool:
    first, second = _projection(one, shared), _projection(two, shared)
    if first is None or second is None:
        return False
    forbidding = [rule for rule in (one, two) if _is_forbidding(rule)]
    if not forbidding:
        return first.isdisjoint(second)
    if len(forbidding) == 2 or len(forbidding[0].columns) > len(shared):
        return False
    return first <= second if forbidding[0] is two else second <= first


def _is_forbidding(rule: Combinations | Determines) -> bool:
    return isinstance(rule, Combinations) and rule.allowed is None


def _projection(rule: Combinations | Determines, names: Sequence[str]) -> set[tuple[str | None, ...]] | None:
    """The listed values of some of the columns, as texts; None if a table leaves one of them open."""
    at = [rule.columns.index(name) for name in names]
    rows = rule.listed if isinstance(rule, Combinations) else rule.table
    found = {tuple(as_text(row[index]) for index in at) for row in rows}
    return None if any(None in row for row in found) else found


def _join(titles: Sequence[str]) -> str:
    *first, last = [titles[0], *map(_inner, titles[1:])]
    return f"{', '.join(first)} and {last}" if first else last


def _inner(title: str) -> str:
    """A title inside a sentence."""
    return title[0].lower() + title[1:]
