"""Private learners with the interface of scikit-learn: `fit`, `predict`, `predict_proba`, `score`.

What all estimators share is here; the learners themselves are in `estimators.py`. A shell turns a table or an array
into encoded rows by public facts, opens a ledger for its guarantee, and hands both to a method of `methods.py`. What
the schema leaves open about the inputs is bought, as by `understudy.fit`; what can be predicted (classes, bounds of the
target) must be declared.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import narwhals as nw
import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from understudy import certificate
from understudy.encoding import CategoricalCodec, Codec, NumericCodec, assumed_domain, fit_codec
from understudy.errors import ConfigError
from understudy.learners import methods
from understudy.models.inputs import seen_columns
from understudy.models.predictors import (
    Classifier,
    LogitModel,
    OneVersusRest,
    Predictor,
    Regression,
    predictor_from_arrays,
)
from understudy.privacy.discovery import Binning, plan_discovery
from understudy.privacy.ledger import Guarantee, Ledger, Statement
from understudy.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from understudy.release import checked_seed
from understudy.schema import Category, Column, Schema, match_columns
from understudy.spent import accountable
from understudy.tables import as_arrow, conform, read_column

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Table = "Frame | ArrayLike"
LABEL = "y"
"""The name of the target beside a plain array."""


class Estimator(BaseEstimator, abc.ABC):
    """What all of them share: from a table and a schema, or an array and declared bounds, to a fitted model."""

    guarantee: Guarantee | None
    schema: Schema | None
    target: str | None
    bounds: "ArrayLike | None"
    num_rows: int | None
    binning: Binning | None
    seed: int | None

    model_: Predictor
    """The fitted model on codes; it may be shared."""
    codec_: Codec
    statement_: Statement
    """What was spent, on what, under which promise."""
    certificate_: str
    """The statement in words."""
    spent_: float
    """Epsilon of everything that was looked at by the last fit; fits before it have spent theirs too."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learns from a table that holds the target, or from inputs and labels.

        Formal guarantee: (epsilon, delta)-differential privacy of everything that is kept, under add-or-remove of one
        protected unit, as `statement_` says, provided that no seed was given. A fit that fails after its first charge
        raises `SpentError`, whose `statement` has the whole planned cost; any other error spends nothing. Not
        covered: what was declared, timing and memory, scores.
        """
        if not isinstance(self.guarantee, Guarantee):
            raise ConfigError(
                "Say what to guarantee: guarantee=us.Guarantee(epsilon=1.0), or us.Guarantee.not_private(), found "
                f"{self.guarantee!r}."
            )
        if not isinstance(self.schema, Schema | None):
            raise ConfigError(
                f"schema must be a us.Schema, found {type(self.schema).__name__}. Of a file: us.Schema.read(path)."
            )
        schema, table = self._declared_table(X, y)
        assert schema.target is not None
        self._check_target(schema[schema.target])
        guarantee = self.guarantee.with_delta_for(schema.rows)
        noise: NoiseSource = SecureNoise() if self.seed is None else SeededNoise(checked_seed(self.seed))
        ledger = Ledger(guarantee, noise=noise, max_rows_per_unit=schema.max_rows_per_unit)
        method, binning = self._method(schema[schema.target]), self.binning or Binning(bins="uniform")
        if (columns := getattr(self, "columns", None)) is not None:
            seen_columns(assumed_domain(schema, binning), schema.target, columns)  # refuses before the work of pricing
        # All prices are set before anything is bought: bought values must not move one.
        buying = plan_discovery(schema, ledger.remaining, binning)
        plan = method.plan(assumed_domain(schema, binning), ledger.remaining.after(buying.queries))
        public_facts = certificate.public_facts(schema)
        plan = plan.under(self._name)
        whole = (*buying.queries, *plan.queries)
        with accountable(ledger, lambda: ledger.statement(public_facts, method=self._name, planned=whole)):
            codec, rows = fit_codec(table, schema, buying, ledger, binning)
            model = method.fit(rows, plan, ledger, key=noise.key())
            found = dataclasses.replace(public_facts, estimated=certificate.estimated_facts(schema, codec))
            warnings = certificate.size_warnings(rows, schema)
            statement = ledger.statement(found, method=self._name, warnings=warnings)
            return self._fitted(model, codec, statement)

    def _fitted(self, model: Predictor, codec: Codec, statement: Statement) -> Self:
        self.model_, self.codec_, self.statement_ = model, codec, statement
        self.certificate_, self.spent_ = certificate.to_markdown(statement), statement.epsilon
        self.n_features_in_ = len(codec.columns) - 1
        self._describe()
        return self

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """What may be shared of a fitted learner, as JSON-safe facts and plain arrays."""
        check_is_fitted(self, "model_")
        structure, arrays = self.model_.to_arrays()
        facts = {"codec": self.codec_.to_dict(), "certificate": certificate.to_json(self.statement_)}
        return {"learner": self._name, "model": structure, **facts}, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """The reverse of `to_arrays`: a learner that predicts. Its settings are the defaults."""
        learner = cls()
        if structure["learner"] != learner._name:
            raise ConfigError(f"Expected a {learner._name} learner, found {structure['learner']!r}.")
        codec = Codec.from_dict(structure["codec"])
        return learner._fitted(
            predictor_from_arrays(structure["model"], arrays), codec, certificate.from_json(structure["certificate"])
        )

    # What each kind of learner says for itself.

    _name: str

    @abc.abstractmethod
    def _method(self, target: Column) -> Any:
        """The learner on encoded rows, with these settings."""

    @abc.abstractmethod
    def _check_target(self, target: Column) -> None:
        """Refuses a target of another kind."""

    @abc.abstractmethod
    def _target_column(self, name: str) -> Column:
        """The target beside a plain array, as declared in the settings."""

    def _describe(self) -> None:
        """Sets what follows from the fitted model."""

    # From what is given to rows.

    def _declared_table(self, X: Any, y: Any) -> tuple[Schema, pa.Table]:
        if self.schema is None:
            return self._declared_array(X, y)
        target = self.target or self.schema.target
        if target is None:
            raise ConfigError("There is no target. Name the column to predict: target=..., or target in the schema.")
        schema = self.schema.with_target(target)
        arrow, _ = as_arrow(_frame(X), schema)
        if y is not None:
            if target in arrow.column_names:
                raise ConfigError(
                    f"The target {target!r} is among the inputs, and y is given too. Leave out one of them."
                )
            _check_one_label_each(arrow.num_rows, y)
            arrow = arrow.append_column(target, read_column(_label_cells(y), schema[target]))
        match_columns(schema, arrow.column_names)
        return schema, conform(arrow, schema)

    def _declared_array(self, X: Any, y: Any) -> tuple[Schema, pa.Table]:
        """A schema from the settings: real columns between declared bounds, and the target."""
        if self.bounds is None and (hasattr(X, "columns") or hasattr(X, "column_names")):
            raise ConfigError("A table needs its public facts: schema=us.Schema.read(...), or bounds=... of numbers.")
        if y is None:
            raise ConfigError("Without a schema fit requires y to be passed: the labels of a plain array, fit(X, y).")
        if self.bounds is None:
            raise ConfigError(
                "The bounds of the inputs are not declared, and they are never read off the rows. Give bounds=(low, "
                "high) or a pair for each column, or a table with schema=..."
            )
        names = _column_names(X)
        array = _as_floats(X)
        labels = _label_cells(y)
        _check_one_label_each(len(array), labels)
        names = names or tuple(f"x{number}" for number in range(array.shape[1]))
        target = self.target or LABEL
        if target in names:
            raise ConfigError(f"The target {target!r} is among the inputs. Rename one of them.")
        bounds = _pairs(self.bounds, array.shape[1])
        columns = [
            Column(name=name, kind="real", nullable=False, bounds=pair)
            for name, pair in zip(names, bounds, strict=True)
        ]
        schema = Schema(columns=(*columns, self._target_column(target)), rows=self.num_rows, target=target)
        read = read_column(labels, schema[target])
        table = pa.table({**dict(zip(names, array.T, strict=True)), target: read})
        if _column_names(X):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return schema, conform(table, schema)

    def _encoded(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Codes and places of the inputs, by the same public rules as in `fit`."""
        check_is_fitted(self, "model_")
        inputs = [column for column in self.codec_.columns if column.name != self.codec_.schema.target]
        names = tuple(column.name for column in inputs)
        if self._is_frame(X):
            arrow, _ = as_arrow(_frame(X), self.codec_.schema)
            absent = [name for name in names if name not in arrow.column_names]
            if absent:
                raise ConfigError(f"The table lacks columns that were learned from: {', '.join(absent)}.")
            table = conform(arrow.select(names), self.codec_.schema)
        else:
            array = _as_floats(X)
            if array.shape[1] != len(names):
                raise ValueError(
                    f"X has {array.shape[1]} features, but {type(self).__name__} is expecting {len(names)} features as "
                    "input"
                )
            table = pa.table(dict(zip(names, array.T, strict=True)))
        codes = np.stack([column.encode(table.column(column.name)) for column in inputs], axis=1)
        places = np.full(codes.shape, np.nan)
        for at, column in enumerate(inputs):
            if isinstance(column, NumericCodec):
                places[:, at] = column.places(table.column(column.name))
        return codes, places

    def _is_frame(self, X: Any) -> bool:
        """Whether X has columns with names that the schema knows; what was learned from an array stays one."""
        names = _column_names(X)
        return names is not None and any(name in self.codec_.schema for name in names)

    def _labels_of(self, X: Any, y: Any) -> np.ndarray:
        """Labels to score against: y, or the target's column of a table."""
        if y is not None:
            return np.asarray(y)
        target = self.codec_.schema.target
        assert target is not None
        if target not in (_column_names(X) or ()):
            raise ConfigError(f"There are no labels to score against. Give y, or a table with the column {target!r}.")
        arrow, _ = as_arrow(_frame(X), self.codec_.schema)
        return np.asarray(arrow.column(target).to_pylist())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # to fail on a value would be a query on it
        tags.non_deterministic = self.seed is None
        return tags


class PrivateClassifier(ClassifierMixin, Estimator):
    """A learner of categories."""

    classes: "Sequence[Category] | None"
    classes_: np.ndarray
    """All declared classes, in order, whether or not a row has them."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each of `classes_`."""
        codes, places = self._encoded(X)
        assert isinstance(self.model_, Classifier)
        # A missing label has a code of its own, and is no class.
        shares = self.model_.predict_proba(codes, places)[:, self._order]
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class."""
        check_is_fitted(self, "model_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy. It reads true labels: on private rows it is outside the guarantee."""
        return accuracy_score(self._labels_of(X, y), self.predict(X), sample_weight=sample_weight)

    def _check_target(self, target: Column) -> None:
        if target.kind == "boolean":
            return
        if target.kind != "categorical":
            raise ConfigError(
                f"A classifier predicts categories, and {target.name!r} is of kind {target.kind}. Use a regression, or "
                "declare categories."
            )
        if target.categories is None:
            raise ConfigError(
                f"The classes of {target.name!r} are not declared, and they are never read off the rows. List them as "
                "categories in the schema."
            )
        if len(target.categories) < 2:
            raise ConfigError(
                f"The target {target.name!r} has one class only: there is nothing to learn. Declare at least two."
            )

    def _target_column(self, name: str) -> Column:
        if self.classes is None:
            raise ConfigError(
                "The classes are not declared, and they are never read off the rows. Give classes=[...], or a table "
                "with schema=..."
            )
        listed = tuple(each.item() if isinstance(each, np.generic) else each for each in self.classes)
        if len(listed) < 2:
            raise ConfigError("There is one class only: nothing to learn. Declare at least two.")
        return Column(name=name, kind="categorical", nullable=False, categories=listed)

    def _describe(self) -> None:
        (column,) = (each for each in self.codec_.columns if each.name == self.codec_.schema.target)
        assert isinstance(column, CategoricalCodec)
        classes = np.asarray(column.categories)  # declared, so all of one type
        self._order = np.argsort(classes, kind="stable")
        self.classes_ = classes[self._order]
        if isinstance(self.model_, LogitModel | OneVersusRest) and len(self.model_.layers.weights) == 1:
            self.input_names_ = self.model_.inputs.input_names
            self.coef_ = self.model_.layers.weights[0] * self.model_.inputs.scale
            self.intercept_ = self.model_.layers.biases[0]

    def _factors(self, target: Column, class_weight: Any) -> methods.ClassWeight:
        """Class weights by code: given for each class by name or in the declared order, a missing label as one."""
        if class_weight is None or isinstance(class_weight, str):
            return class_weight
        classes = (False, True) if target.kind == "boolean" else target.categories
        assert classes is not None
        if isinstance(class_weight, Mapping):
            strange = [name for name in class_weight if name not in classes]
            if strange:
                raise ConfigError(f"class_weight names {strange[0]!r}, which is no class of {target.name!r}.")
            factors = [float(class_weight.get(name, 1.0)) for name in classes]
        else:
            factors = [float(each) for each in class_weight]
            if len(factors) != len(classes):
                raise ConfigError(
                    f"class_weight needs one number for each of the {len(classes)} classes, found {len(factors)}."
                )
        return (*factors, *([1.0] if target.nullable else []))


class PrivateRegression(RegressorMixin, Estimator):
    """A learner of numbers."""

    target_bounds: "Sequence[float] | None"

    def predict(self, X: Any) -> np.ndarray:
        """The target, in its own units."""
        codes, places = self._encoded(X)
        assert isinstance(self.model_, Regression)
        (column,) = (each for each in self.codec_.columns if each.name == self.codec_.schema.target)
        assert isinstance(column, NumericCodec)
        grid, found = column.histogram.grid, self.model_.predict(codes, places)
        if grid.integral:  # whole numbers stand in the middle of their share of the line
            return float(grid.lower) - 0.5 + found * (float(grid.upper) - float(grid.lower) + 1)
        return grid.lower * (1 - found) + grid.upper * found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R squared. It reads true labels: on private rows it is outside the guarantee."""
        return r2_score(self._labels_of(X, y), self.predict(X), sample_weight=sample_weight)

    def _check_target(self, target: Column) -> None:
        if target.kind not in ("integer", "real"):
            raise ConfigError(
                f"A regression predicts a number, and {target.name!r} is of kind {target.kind}. Use a classifier."
            )
        if target.bounds is None:
            raise ConfigError(
                f"The bounds of {target.name!r} are not declared, and they are never read off the rows. Write bounds "
                "in the schema."
            )

    def _target_column(self, name: str) -> Column:
        if self.target_bounds is None:
            raise ConfigError(
                "The bounds of the target are not declared, and they are never read off the rows. Give "
                "target_bounds=(low, high), or a table with schema=..."
            )
        (pair,) = _pairs(self.target_bounds, 1)
        return Column(name=name, kind="real", nullable=False, bounds=pair)

    def _describe(self) -> None:
        layers = getattr(self.model_, "layers", None)
        if layers is not None and len(layers.weights) == 1:
            assert not isinstance(self.model_, Classifier)
            self.input_names_ = self.model_.inputs.input_names
            self.coef_ = layers.weights[0][0] * self.model_.inputs.scale
            self.intercept_ = layers.biases[0][0]


# ------------------------------------------------------------------------------------------------------ what was given


def _column_names(X: Any) -> tuple[str, ...] | None:
    """Of a frame; None for anything else, and for frames whose names are not texts."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None)
    names = None if names is None or callable(names) else tuple(names)
    return names if names and all(isinstance(name, str) for name in names) else None


def _check_one_label_each(num_rows: int, labels: Any) -> None:
    """How many rows there are is private: no message says it."""
    if num_rows != len(labels):
        raise ValueError("X and y have inconsistent numbers of samples. Give one label for each row.")


def _frame(X: Any) -> Any:
    if _column_names(X) is None and not isinstance(X, str) and not hasattr(X, "__fspath__"):
        raise ConfigError(
            f"With a schema, X is a pandas, polars or Arrow table with its columns; found {type(X).__name__}."
        )
    return X


def _as_floats(X: Any) -> np.ndarray:
    """An array of numbers, which may lie anywhere: to fail on a value, or to show one, would be a query on it.

    What is not an array of numbers is read cell by cell; cells that are no numbers are NaN.
    """
    if isinstance(X, pa.Table):
        X = np.stack([column.to_numpy() for column in X.columns], axis=1)
    elif _column_names(X) is not None and not hasattr(X, "__array__"):
        X = nw.from_native(X).to_numpy()
    if not sparse.issparse(X):
        X = np.asarray(X) if hasattr(X, "__array__") else np.asarray(X, dtype=object)
        if X.ndim != 2:
            X = np.zeros(X.shape)  # refused by its shape, in a message that quotes the array
        elif X.dtype.kind not in "biufc":
            number, shape = Column(name="x", kind="real"), X.T.shape
            columns = [read_column(cells, number).to_numpy() for cells in X.T]
            X = np.array(columns, dtype=np.float64).reshape(shape).T
    return check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)


def _label_cells(y: Any) -> Any:
    """Labels in one line, each with the type that it has: one type for all would follow from their values."""
    if isinstance(y, pa.Array) or nw.dependencies.is_into_series(y):
        return y
    return column_or_1d(np.asarray(y) if hasattr(y, "__array__") else np.asarray(y, dtype=object), warn=True)


def _pairs(bounds: Any, count: int) -> list[tuple[float, float]]:
    """One (low, high) for each column, from one pair for all or from one for each."""
    try:
        given = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape == (2,):
        given = np.tile(given, (count, 1))
    if given.shape != (count, 2) or not np.isfinite(given).all() or not (given[:, 0] < given[:, 1]).all():
        raise ConfigError(
            f"Bounds must be one pair (low, high) for all of the {count} columns or a pair for each, low below high."
        )
    return [(float(low), float(high)) for low, high in given]
