"""Exceptions by cause. Messages say what was expected, what was found and what to do; code uses the fields."""

import difflib
from collections.abc import Iterable
from typing import Literal, Never, Self

Reason = Literal[
    "missing", "exists", "unknown kind", "newer", "edited", "incomplete", "contradicts itself", "in use", "closed",
    "disk full", "disk error", "link", "name", "document", "key", "unknown table", "changed", "other run",
    "other data set", "other unit", "not approved", "settled", "withdrawn", "cost", "policy", "open", "spent",
]  # fmt: skip
"""Why a book, release, bundle or checkpoint was refused.

Of any of them: it is `missing`, or something `exists` in its place; it is of an `unknown kind`, or of a `newer`
or other version; it was `edited` or damaged, is `incomplete`, or `contradicts itself`; it is `in use`, or `closed`
to us, who may not read or write it; the disk is full (`disk full`) or reports an error (`disk error`).
Of a book: it belongs to an `other data set`, an `other unit` or an `other run`; a run is `not approved`; its entry is
`settled` or `withdrawn`, or cannot have this `cost`; its `policy` cannot be read.
Of a bundle: a file is a `link`, has a `name` that cannot be used, is not the `document` that it should be, is an
`unknown table`, which may be the real one, or has `changed`; the `key` cannot sign.
Of a checkpoint: it belongs to an `other run`, lies in a place of which it must not have the `name`, is `open` to other
users, or is that of a run that failed and has `spent` its budget.
"""


class UnderstudyError(Exception):
    """Anything the caller can fix: the command line prints the message as one line and exits with code 2.

    >>> import understudy as us
    >>> try:
    ...     us.plan({"columns": {"age": {"kind": "integer"}}}, "mts", epsilon=1)
    ... except us.UnderstudyError as error:
    ...     print(str(error)[:43])
    There is no method 'mts'. Did you mean 'mst
    """


class _Reasoned(UnderstudyError):
    """An error about a file or folder of Understudy's own."""

    def __init__(self, message: str, *, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """Why it was refused; None: another cause, which the message tells."""


class UnderstudyWarning(UserWarning):
    """What the caller of `fit`, `plan` or `evaluate` should know; the command line prints it in its own way.

    To silence or to promote these warnings alone:

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=UnderstudyWarning)
    """


class SchemaError(UnderstudyError):
    """The schema is malformed, or does not match the columns of the table.

    >>> import understudy as us
    >>> try:
    ...     us.Schema.from_toml('[columns.age]\\nkind = "integer"\\nbounds = [9, 1]')
    ... except us.SchemaError as error:
    ...     print(error.column)
    age
    """

    def __init__(self, message: str, *, column: str | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        """The column at fault; None: no single one."""
        self.key = key
        """The key of the schema file at fault, such as "bounds"."""

    def in_file(self, source: str) -> Self:
        """The same error, with the name of the file before its message."""
        return type(self)(f"{source}: {self}", column=self.column, key=self.key)


class TableError(UnderstudyError):
    """A table cannot be read or written. Never contains a value of a row.

    >>> import understudy as us
    >>> try:
    ...     us.fit("absent.csv", epsilon=1)
    ... except us.TableError as error:
    ...     print(str(error)[:25])
    absent.csv does not exist
    """

    def __init__(self, message: str, *, column: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.column = column
        """The column at fault; None: no single one."""
        self.line = line
        """The line of the text file at fault, counted from 1."""


class ClusterError(TableError):
    """A job of a cluster failed.

    Its text contains no size, count or value of the table, since it may be shown after queries were answered.
    """


class ConfigError(UnderstudyError):
    """A guarantee, method or setting that cannot be honoured.

    >>> import understudy as us
    >>> try:
    ...     us.Guarantee(epsilon=-1)
    ... except us.ConfigError as error:
    ...     print(str(error)[:44])
    epsilon must be a positive number, found -1.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting
        """The setting or argument at fault, such as "steps"; None: no single one."""


class TrainingError(ConfigError):
    """A fit cannot be completed after its first query: training diverged, or memory ran out.

    Its text contains no size, count or value, estimated or exact, since it is shown after queries were answered.
    """


class Diverged(TrainingError):
    """A trained parameter is no longer finite."""


class BudgetExceeded(UnderstudyError):
    """A query would cost more than is left of the budget, and was not made.

    >>> raise BudgetExceeded("Too expensive.", query="1-way marginals", needed=0.5, left=0.25)
    Traceback (most recent call last):
    understudy.errors.BudgetExceeded: Too expensive.
    """

    def __init__(
        self, message: str, *, query: str | None = None, needed: float | None = None, left: float | None = None
    ) -> None:
        super().__init__(message)
        self.query = query
        """What was to be queried."""
        self.needed = needed
        """Its privacy cost, in the unit of `left`."""
        self.left = left
        """What is left of the budget: an epsilon, or a rho where the budget is one of zCDP."""


class BookExceeded(BudgetExceeded):
    """The same for a budget book: a run that fits its own budget may not fit what other releases have left."""


class BookError(_Reasoned):
    """A budget book cannot be read, was edited, is in use, or belongs to another data set or privacy unit.

    >>> import understudy as us
    >>> try:
    ...     us.BudgetBook.open("absent.book")
    ... except us.BookError as error:
    ...     print(str(error)[:26])
    absent.book does not exist
    """


class ReleaseError(_Reasoned):
    """A release folder is incomplete, altered, or of another version.

    >>> import understudy as us
    >>> try:
    ...     us.Release.load("absent.release")
    ... except us.ReleaseError as error:
    ...     print(str(error)[:38])
    absent.release is not a release folder
    """


class BundleError(_Reasoned):
    """An evidence bundle cannot be made, read or signed.

    >>> import understudy as us
    >>> try:
    ...     us.verify_bundle("absent.zip")
    ... except us.BundleError as error:
    ...     print(str(error)[:25])
    absent.zip does not exist
    """


class CheckpointError(_Reasoned):
    """A checkpoint already exists, is missing or damaged, or belongs to another run.

    >>> import pyarrow as pa, understudy as us
    >>> try:
    ...     us.fit(pa.table({"a": [1]}), epsilon=1, checkpoint="absent.checkpoint", resume=True)
    ... except us.CheckpointError as error:
    ...     print(str(error)[:26])
    There is nothing to resume
    """


class ConditionError(UnderstudyError):
    """A condition on sampled rows cannot be read, or is met too rarely.

    >>> import pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> release = us.fit(pa.table({"member": [True, False]}), "independent", epsilon=1, schema=schema)
    >>> try:
    ...     release.sample(5, where="age > 3")
    ... except us.ConditionError as error:
    ...     print(error.column)
    age
    """

    def __init__(self, message: str, *, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        """The column that does not exist, or that the condition leaves without a value; None: another fault."""


def raise_alone(error: UnderstudyError, cause: Exception | None = None) -> Never:
    """Raises an error without the one that is being handled, whose message may quote a size or a value of the table.

    `from None` hides that one from tracebacks, but leaves it in `__context__`, from where it can get into a log.
    """
    try:
        raise error from cause
    except UnderstudyError:
        error.__context__ = cause
        raise


def did_you_mean(found: object, known: Iterable[object], *, cutoff: float = 0.6) -> str:
    """A hint at the known name nearest to `found`, with a space before it; empty where none is near.

    `cutoff`: how similar it must be, up to 1 for equal names.

    >>> did_you_mean("Sexx", ["age", "sex"])
    " Did you mean 'sex'?"
    """
    names = [name for name in known if isinstance(name, str)]
    if not isinstance(found, str) or not names:
        return ""
    by_lowercase = {name.lower().strip(): name for name in reversed(names)}
    near = difflib.get_close_matches(found.lower().strip(), by_lowercase, n=1, cutoff=cutoff)
    return f" Did you mean {by_lowercase[near[0]]!r}?" if near else ""
