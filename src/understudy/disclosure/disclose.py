"""`disclose`: what a synthetic table discloses about the rows it was made from, compared with held-out rows.

Not private: it reads all real rows. It needs no generator, so the table may come from anywhere.
"""

import dataclasses
import datetime
import enum
import os
from collections.abc import Sequence
from typing import Protocol

from understudy._version import __version__
from understudy.disclosure import sentences
from understudy.disclosure.attributes import SecretColumn, has_values, measure_attributes
from understudy.disclosure.combinations import MIN_CELL, Combinations, measure_combinations
from understudy.disclosure.inputs import DisclosureTables, find_columns, read_tables
from understudy.disclosure.membership import Ceiling, Membership, measure_membership
from understudy.disclosure.rates import CONFIDENCE
from understudy.errors import ConfigError, TableError
from understudy.evaluation.evaluate import check_seed
from understudy.evaluation.inputs import Source, name_of
from understudy.evaluation.scorecard import Scorecard, write_confidential
from understudy.evaluation.scores import Json, plain
from understudy.privacy.accounting.ledger import Statement
from understudy.progress import ShowProgress, open_progress, stretch_progress
from understudy.run.atomic import json_bytes
from understudy.schema import SchemaSource, as_schema
from understudy.summary import Summarized, Summary
from understudy.tables import ReadOptions

FORMAT, VERSION = "understudy-disclosure", 1
WARNING = "This report contains statistics of the real data. Do not share it."
FALSE_ALARM_RATE = 0.01
"""The largest probability of any finding, for a table that does not depend on which rows were held out."""
PRIVATE = 0o600
"""The mode of a file with a report."""
CHECKS = 4
"""Copies, attacks, attribute inference and combinations: each gets an equal fraction of the false-alarm rate."""
DRIFT_ALARM = 1e-3
"""The probability of a warning that held-out rows differ from the training rows, if they were held out at random."""


class Finding(enum.StrEnum):
    """What a report can find."""

    COPIES = "copies"
    MEMBERSHIP = "membership"
    CEILING = "ceiling"
    """More than the guarantee allows."""
    ATTRIBUTES = "attributes"
    COMBINATIONS = "combinations"


class HasStatement(Protocol):
    @property
    def statement(self) -> Statement: ...


@dataclasses.dataclass(frozen=True, repr=False)
class Disclosure(Summarized):
    """A disclosure report: figures, and sentences that say what they show.

    Not private: it contains statistics of the real data.

    >>> import numpy as np, pyarrow as pa, understudy as us
    >>> train, held = (pa.table({"x": part}) for part in np.random.default_rng(0).uniform(size=(2, 200)))
    >>> report = us.disclose(train, train, holdout=held)
    >>> report.sentences["Copies"][:42], report.membership.copies.training.value
    ('The synthetic table repeats training rows.', 1.0)
    """

    synthetic: str
    """The name of the synthetic table."""
    table_sizes: Json
    """Numbers of rows by table."""
    seed: int
    """The seed of subsamples, splits and models."""
    membership: Membership
    """Whether an attacker can tell who was in the table."""
    attributes: tuple[SecretColumn, ...]
    """How well each secret column can be guessed."""
    combinations: Combinations | None
    """Rare combinations of the quasi-identifiers. None: none were named."""
    notes: tuple[str, ...]
    """What was not computed, and why."""
    table_warnings: tuple[str, ...] = ()
    """What may make the tables misleading."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found beyond chance.

        If the table does not depend on which rows were held out, the probability of any finding is at most
        `FALSE_ALARM_RATE`. `CEILING` compares intervals with a bound that holds on average over releases, and has no
        false-alarm rate of its own; it is not reported if the held-out rows are from another population.
        """
        allowed = FALSE_ALARM_RATE / CHECKS
        points, copies = self.membership.points, self.membership.copies
        found = {
            Finding.COPIES: copies.p_value <= allowed,
            Finding.MEMBERSHIP: min(point.p_value for point in points) * len(points) <= allowed,
            Finding.CEILING: bool(self.membership.beyond_ceiling) and not self.has_drifted,
            Finding.ATTRIBUTES: any(each.p_value * len(self.attributes) <= allowed for each in self.attributes),
            Finding.COMBINATIONS: self.combinations is not None and self.combinations.once.p_value <= allowed,
        }
        return tuple(finding for finding, is_found in found.items() if is_found)

    @property
    def has_drifted(self) -> bool:
        """Whether the held-out rows seem to be from another population."""
        return self.membership.drift_p_value <= DRIFT_ALARM

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may make the figures misleading."""
        if not self.has_drifted:
            return self.table_warnings
        return (
            *self.table_warnings,
            "The held-out rows differ from the training rows more than a random split explains. Differences below may "
            "be due to that and not to disclosure. Hold out rows at random.",
        )

    @property
    def sentences(self) -> dict[str, str]:
        """What the figures show, one paragraph for each part."""
        findings = self.findings
        paragraphs = {
            "Membership": sentences.membership(
                self.membership, is_found=Finding.MEMBERSHIP in findings, is_beyond=Finding.CEILING in findings
            ),
            "Copies": sentences.copies(self.membership.copies, is_found=Finding.COPIES in findings),
            "Attributes": sentences.attributes(self.attributes, is_found=Finding.ATTRIBUTES in findings),
        }
        if self.combinations is not None:
            is_found = Finding.COMBINATIONS in findings
            paragraphs["Combinations"] = sentences.combinations(self.combinations, is_found=is_found)
        return paragraphs

    def to_json(self) -> Json:
        """The whole report."""
        figures = {name: plain(getattr(self, name)) for name in ("membership", "attributes", "combinations")}
        return {
            "format": FORMAT,
            "version": VERSION,
            "warning": WARNING,
            "understudy": __version__,
            "created": datetime.date.today().isoformat(),
            "synthetic": self.synthetic,
            "rows": dict(self.table_sizes),
            "seed": self.seed,
            "confidence": CONFIDENCE,
            "false_alarm_rate": FALSE_ALARM_RATE,
            "findings": [finding.value for finding in self.findings],
            "sentences": self.sentences,
            "warnings": list(self.warnings),
            "notes": [*self.notes, *sentences.limits()],
            **figures,
        }

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the report as JSON, atomically, for its owner alone; never into a release, which may be shared."""
        write_confidential(path, json_bytes(self.to_json()), force=force, mode=PRIVATE)

    def add_to(self, scorecard: Scorecard) -> Scorecard:
        """The scorecard of the same synthetic table with this report, for `write_report`."""
        if self.synthetic not in scorecard.methods:
            raise ConfigError(
                f"The scorecard has no table {self.synthetic!r}, only {', '.join(map(repr, scorecard.methods))}."
            )
        content = scorecard.to_json()
        others = [each for each in content.get("disclosure", ()) if each["synthetic"] != self.synthetic]
        return Scorecard({**content, "disclosure": [*others, self.to_json()]})

    def summary(self) -> Summary:
        """Its sentences, below the warning."""
        rows = [
            (point.aim, sentences.ATTACK_NAMES[point.attack], *sentences.percents(point))
            for point in self.membership.points
        ]
        head = ("attack chosen for", "attack", "true positives", "false positives")
        return Summary(WARNING, {}, head, rows, (*self.warnings, *self.sentences.values()))


def disclose(
    real: Source,
    synthetic: Source,
    *,
    holdout: Source,
    schema: SchemaSource | None = None,
    quasi_identifiers: Sequence[str] = (),
    secrets: Sequence[str] | None = None,
    min_cell: int = MIN_CELL,
    statement: Statement | HasStatement | None = None,
    holdout_from_split: bool = False,
    reading: ReadOptions | None = None,
    seed: int = 0,
    progress: ShowProgress = None,
) -> Disclosure:
    """Attack a synthetic table from any generator, and compare with real rows that it was not made from.

    Not private: it reads all real rows. A report without findings is not proof of privacy: other attacks may find
    more. The guarantee of a certificate holds against every attack.

    Args:
        real: The rows that the synthetic table was made from; a frame or a path.
        synthetic: The synthetic table.
        holdout: At least 200 real rows from the same population, held out at random and not fitted.
        schema: Kinds, categories and ranges; what it does not declare is taken from the real rows.
        quasi_identifiers: Columns that an attacker may know about a person. Rare combinations of them are counted, and
            secrets are guessed from them.
        secrets: Columns to guess; default: all.
        min_cell: Combinations with fewer training rows than this count as small cells.
        statement: A release or its statement; the attacks are compared with what its guarantee allows.
        holdout_from_split: Whether `synth --split` wrote the holdout: its rows are then removed from `real`.
        reading: How to read text files and workbooks.
        seed: Seed of subsamples, splits and models, from 0 to 2^32 - 1.
        progress: True for a progress bar, or a function of the fraction done and what is being computed.

    Returns:
        The report, with its findings.

    Raises:
        TableError: A table cannot be read, or is too small.
        SchemaError: The schema is malformed, or does not match the columns of the tables.
        ConfigError: An argument names no column, or is out of range.

    >>> import numpy as np, pyarrow as pa
    >>> draw = np.random.default_rng(0).uniform(size=(3, 400))
    >>> train, held, other = ({"x": part[:200], "y": part[200:]} for part in draw)
    >>> report = disclose(pa.table(train), pa.table(train), holdout=pa.table(held))
    >>> [finding.value for finding in report.findings]
    ['copies', 'membership', 'attributes']
    >>> disclose(pa.table(train), pa.table(other), holdout=pa.table(held)).findings
    ()
    """
    check_seed(seed)
    if isinstance(min_cell, bool) or not isinstance(min_cell, int) or min_cell < 2:
        raise ConfigError(f"min_cell (--min-cell) must be a whole number of at least 2, found {min_cell!r}.")
    declared = None if schema is None else as_schema(schema)
    ceiling = Ceiling.of(statement_of(statement))
    with open_progress(progress, "attacking") as shown:
        report = stretch_progress(shown, 0.0, 1.0)
        report(0.0, "reading the tables")
        tables = read_tables(
            real,
            synthetic,
            holdout,
            schema=declared,
            from_split=holdout_from_split,
            reading=reading or ReadOptions(),
            seed=int(seed),
        )
        known = find_columns(tables.layout, quasi_identifiers, "quasi-identifiers (--quasi-identifiers)")
        chosen = _find_secrets(tables, secrets, known)
        parts = (tables.real, tables.holdout, tables.synthetic)
        report(0.1, "membership")
        membership = measure_membership(*parts, ceiling, seed=int(seed))
        report(0.6, "attribute inference")
        attributes = measure_attributes(*parts, chosen, known or tables.layout.names, seed=int(seed))
        combinations = measure_combinations(*parts, known, min_cell) if known else None
        report(1.0, "attacked")
    rows = {name: getattr(tables, name).num_rows for name in ("real", "holdout", "synthetic")}
    name = name_of(synthetic, "synthetic")
    return Disclosure(name, rows, int(seed), membership, attributes, combinations, tables.notes, tables.warnings)


def statement_of(given: Statement | HasStatement | None) -> Statement | None:
    """The statement of a release, or itself; None: there is none."""
    statement = given if given is None or isinstance(given, Statement) else getattr(given, "statement", None)
    if given is not None and not isinstance(statement, Statement):
        raise ConfigError(
            f"statement must be a release or its statement, found {type(given).__name__}.", setting="statement"
        )
    return statement


def _find_secrets(tables: DisclosureTables, secrets: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """The columns to guess. Named ones must have values, and a column to guess them from."""
    if secrets is None:
        return tuple(name for name in tables.layout.names if name not in known) or tables.layout.names
    names = find_columns(tables.layout, secrets, "secret columns (--target)")
    for name in names:
        if not has_values(tables.real, name).any() or not has_values(tables.holdout, name).any():
            raise TableError(f"The secret column {name!r} has only nulls. Name a column with values.", column=name)
        if not [other for other in known or tables.layout.names if other != name]:
            raise ConfigError(f"There is no column to guess {name!r} from. Name another quasi-identifier.")
    return names
