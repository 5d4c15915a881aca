"""The real side of a benchmark table: what all its cells are scored against, computed once.

Not private: it reads all real rows. Benchmarks are for public tables.
"""

import dataclasses
import hashlib
import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import sklearn

from understudy.errors import ConfigError
from understudy.evaluation import learning
from understudy.evaluation.inputs import find_positive, find_target
from understudy.evaluation.parallel import limit_workers
from understudy.evaluation.scores import Json, Result
from understudy.evaluation.table import REAL_TABLE, ColumnSpec, EncodedTable, Layout
from understudy.schema import Schema

MAX_ROWS = 10_000
"""The default limit on the rows of each table that are scored."""
MLP_ROWS = 2_500
"""The default limit on the training rows of the multilayer perceptron: with 10,000 rows it takes 5 s, longer than the
other four classifiers of the QUAIL paper together."""
SAMPLE_SEED = 0
"""Chooses the rows of every table, so that a copy of the training rows stays a copy."""
FORMAT = "understudy-benchmark-reference"

ModelScores = Mapping[str, Mapping[str, float | None]]
"""By classifier, its scores by name; None: undefined."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """Which classifiers are trained, and on how many rows."""

    classifiers: tuple[str, ...] = learning.QUAIL
    max_rows: int = MAX_ROWS
    mlp_rows: int | None = MLP_ROWS
    """The most training rows of the classifier "mlp"; None: as many as the others have."""

    def __post_init__(self) -> None:
        if not self.classifiers:
            raise ConfigError("classifiers is empty, expected at least one name. Add one, or omit it for the default.")
        learning.check_models(self.classifiers, learning.CLASSIFIERS)
        if learning.OPTIONAL in self.classifiers and not importlib.util.find_spec(learning.OPTIONAL):
            name = learning.OPTIONAL
            raise ConfigError(f"The classifier {name!r} needs the package {name}, which is not installed. Install it.")
        for name in ("max_rows", "mlp_rows"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ConfigError(f"{name} must be at least 1, found {limit}. Give a larger number.")

    @property
    def row_limits(self) -> dict[str, int | None]:
        """The most training rows of each classifier."""
        return {name: self.mlp_rows if name == "mlp" else None for name in self.classifiers}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """The encoded training and test rows of one table, and the scores of classifiers trained on real rows.

    Depends on the real table and the settings alone, so all cells of a table share one. The scores are computed when
    they are first asked for. `to_json` and `from_json` keep them between processes.

    >>> table = pa.table({"a": ["x", "y"] * 20, "b": ["u", "v"] * 20})
    >>> real = Reference.of(table, table, schema=Schema.draft(table.schema), target="b", classifiers=("logistic",))
    >>> real.model_scores["logistic"]["f1"]
    1.0
    """

    train: EncodedTable
    test: EncodedTable | None
    target: ColumnSpec | None
    positive: object
    """The class whose F1 and AUC count; None: the target does not have two classes."""
    settings: LearningSettings
    rows: Mapping[str, int]
    """The number of rows of the whole training and test tables."""
    saved: ModelScores | None = None
    """The scores from an earlier process."""

    @classmethod
    def of(
        cls,
        train: pa.Table,
        test: pa.Table | None,
        *,
        schema: Schema,
        target: str | None = None,
        classifiers: Sequence[str] = learning.QUAIL,
        max_rows: int = MAX_ROWS,
        mlp_rows: int | None = MLP_ROWS,
    ) -> "Reference":
        """Encode the real rows. `target`: None for that of the schema, if it has one."""
        settings = LearningSettings(
            classifiers=tuple(classifiers) or learning.QUAIL, max_rows=max_rows, mlp_rows=mlp_rows
        )
        layout = Layout.of(train, schema, *([] if test is None else [test]))
        # Synthetic tables are then read with the kinds of the real one, whatever their own types.
        layout = dataclasses.replace(layout, schema=dataclasses.replace(layout.schema, drafted=False))
        real = layout.read(train, REAL_TABLE)
        held_out = None if test is None else layout.read(test, "test table")
        column = find_target(layout, target)
        return cls(
            train=real.at_most(max_rows, seed=SAMPLE_SEED),
            test=None if held_out is None else held_out.at_most(max_rows, seed=SAMPLE_SEED),
            target=column,
            positive=find_positive(layout, column, real),
            settings=settings,
            rows={"train": train.num_rows, "test": 0 if test is None else test.num_rows},
        )

    def read(self, synthetic: pa.Table) -> EncodedTable:
        """A synthetic table on the layout of the real one, with no more rows than the training table here."""
        return self.train.layout.read(synthetic, "synthetic table").at_most(self.train.num_rows, seed=SAMPLE_SEED)

    def learn(self, table: EncodedTable, seed: int) -> Result:
        """Classifiers of the target, trained on this table and scored on the test rows."""
        assert self.target is not None
        assert self.test is not None
        return learning.learn(
            table,
            self.test,
            target=self.target.name,
            positive=self.positive,
            models=self.settings.classifiers,
            max_rows=self.settings.row_limits,
            seed=seed,
        )

    @cached_property
    def model_scores(self) -> ModelScores:
        """The scores of classifiers trained on the real rows, with seed 0; empty if there is no categorical target."""
        if self.saved is not None:
            return self.saved
        if self.target is None or self.target.is_numeric or self.test is None:
            return {}
        with limit_workers(1):
            return plain_scores(self.learn(self.train, SAMPLE_SEED).details["models"])

    @cached_property
    def key(self) -> str:
        """A hash of everything that the scores depend on: rows, settings and the version of scikit-learn."""
        digest = hashlib.blake2b(digest_size=16)
        column = None if self.target is None else self.target.name
        facts = [dataclasses.asdict(self.settings), column, str(self.positive), sklearn.__version__]
        digest.update(json.dumps(facts, sort_keys=True).encode())
        for table in (self.train, *([] if self.test is None else [self.test])):
            for spec in table.layout.columns:
                digest.update(repr(spec).encode())
                digest.update(np.ascontiguousarray(table[spec.name]).tobytes())
        return digest.hexdigest()

    def to_json(self) -> dict[str, object]:
        """The scores of the classifiers, computed if necessary; JSON-safe."""
        return {"format": FORMAT, "key": self.key, "models": {name: dict(s) for name, s in self.model_scores.items()}}

    @classmethod
    def from_json(
        cls,
        content: Json,
        train: pa.Table,
        test: pa.Table | None,
        *,
        schema: Schema,
        target: str | None = None,
        classifiers: Sequence[str] = learning.QUAIL,
        max_rows: int = MAX_ROWS,
        mlp_rows: int | None = MLP_ROWS,
    ) -> "Reference":
        """A reference with the scores that `to_json` gave; refuses those of other rows, settings or versions."""
        found = cls.of(
            train, test, schema=schema, target=target, classifiers=classifiers, max_rows=max_rows, mlp_rows=mlp_rows
        )
        if content.get("format") != FORMAT or not isinstance(content.get("models"), Mapping):
            raise ConfigError(f"Expected scores in the format {FORMAT!r}, found another one. Compute them again.")
        if content.get("key") != found.key:
            raise ConfigError(
                f"Expected scores of classifiers for these real rows, settings and this version of scikit-learn (key "
                f"{found.key}), found those for others (key {content.get('key')}). Compute them again."
            )
        return dataclasses.replace(found, saved=content["models"])


def plain_scores(scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """The scores, with None for those that are undefined, as JSON requires.

    >>> plain_scores({"logistic": {"f1": 0.5, "auc": math.nan}})
    {'logistic': {'f1': 0.5, 'auc': None}}
    """
    return {
        name: {key: float(value) if math.isfinite(value) else None for key, value in each.items()}
        for name, each in scores.items()
    }
