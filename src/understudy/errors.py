"""What can go wrong, named by cause. Every message says what was expected, what was found and what to do."""


class UnderstudyError(Exception):
    """Anything that is the caller's to mend: the command line prints it as one line and exits with code 2."""


class SchemaError(UnderstudyError):
    """The schema is malformed, or does not fit the table's columns."""


class TableError(UnderstudyError):
    """A table cannot be read or written. Never names a value of a row."""


class ConfigError(UnderstudyError):
    """A guarantee, method or setting that cannot be honoured."""


class TrainingError(ConfigError):
    """A fit that cannot be completed after its first query: training diverged, or memory ran out.

    Its text contains no size, count or value, estimated or exact, since it is shown after queries were answered.
    """


class BudgetExceeded(UnderstudyError):
    """A query would cost more than is left of the budget, and was not made."""

    def __init__(
        self, message: str, *, query: str | None = None, needed: float | None = None, left: float | None = None
    ):
        super().__init__(message)
        self.query = query
        """What was to be queried."""
        self.needed = needed
        """By how much the query would raise the epsilon of the run."""
        self.left = left
        """By how much it may rise."""


class ReleaseError(UnderstudyError):
    """A release folder is incomplete, altered, or of another version."""


class CheckpointError(UnderstudyError):
    """A checkpoint is in the way, missing, damaged, or of another run."""


class ConditionError(UnderstudyError):
    """A condition on sampled rows cannot be read, or is met too seldom."""
