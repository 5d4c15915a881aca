"""The scikit-learn face of the private learners: `fit`, `predict`, `predict_proba`, `score`.

An estimator encodes its table by public facts, opens a ledger for its guarantee, and hands both to a learner of
`methods.py`. Its parameters are the settings of that learner and the public facts of the data. Facts about the inputs
that the schema leaves open are estimated privately, as by `understudy.fit`; the classes or bounds of the target must be
declared.
"""

import abc
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from understudy import certificate
from understudy._version import __version__
from understudy.certificate.agreement import Contradiction, codec_contradictions
from understudy.encoding import CategoricalCodec, Codec, NumericCodec
from understudy.errors import ConfigError
from understudy.institution.book.book import BudgetBook
from understudy.institution.book.policy import Policy
from understudy.institution.book.proposal import table_run
from understudy.learners import methods, targets
from understudy.learners.arrays import (
    as_bounds,
    as_cells,
    as_floats,
    column_names,
    count_columns,
    read_frame,
    require_equal_lengths,
)
from understudy.learners.parameters import estimator
from understudy.models.predictors import (
    Classifier,
    LogitModel,
    NumberModel,
    OneVersusRest,
    Predictor,
    Regression,
    predictor_from_arrays,
)
from understudy.models.protocol import Arrays, Structure
from understudy.privacy.accounting.ledger import Guarantee, Statement
from understudy.privacy.mechanisms.discovery import Binning
from understudy.release import check_seed
from understudy.run.plan import plan_run
from understudy.run.run import encode_table, open_run
from understudy.run.sources import read_private_table
from understudy.schema import Category, Column, Schema, SchemaSource, as_schema
from understudy.synthesizers.run import Run
from understudy.tables import conform, read_column

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Data: TypeAlias = object
"""What scikit-learn passes as X or y: a frame, an array, or anything that becomes one. Checked when it is read."""

ClassWeight = Mapping[Category, float] | Sequence[float] | str | None
LABEL = "y"
"""The name of the target beside a plain array."""


@estimator()
class Estimator(BaseEstimator, abc.ABC):
    """From a table and a schema, or an array and declared bounds, to a fitted model.

    `fit` sets `model_` (on codes; may be shared), `codec_`, `statement_` (the privacy cost, its queries and the
    guarantee), `certificate_` (the statement as text) and `spent_` (epsilon of this fit; earlier fits cost theirs).
    """

    guarantee: Guarantee | None = None
    """The privacy guarantee. Required by `fit`."""
    schema: SchemaSource | None = None
    """The public facts of a table: kinds, categories, bounds, number of rows, target. A `Schema`, a dict of its
    sections, or the path of its file."""
    target: str | None = None
    """The column to predict. None: the target of the schema."""
    bounds: "ArrayLike | None" = None
    """Without a schema: the public bounds of the inputs, one pair (low, high) for all columns or a pair for each."""
    num_rows: int | None = None
    """Without a schema: the public number of rows. None: it is estimated privately."""
    binning: Binning | None = None
    """How numeric columns are binned. None: into bins of equal width."""
    seed: int | None = None
    """Makes a run repeatable. Its certificate then claims no privacy: whoever knows the seed can subtract the noise."""
    book: "BudgetBook | str | os.PathLike[str] | None" = None
    """The budget book of the data set, or its path: every `fit` reserves its cost there before its first query."""
    policy: "Policy | str | os.PathLike[str] | None" = None
    """With a book: refuses what the institution does not allow. A `Policy`, or the path of its file."""
    checkpoint: "str | os.PathLike[str] | None" = None
    """A folder for the secret of the noise and the state of the training, which `fit` deletes when it is done. A record
    of a run that failed after its first query is written beside it."""
    resume: bool = False
    """Continues the run that was interrupted in the folder `checkpoint`."""

    _learner: ClassVar[type[methods.Learner]]
    _name: ClassVar[str]

    if TYPE_CHECKING:

        def __init__(self, **settings: object) -> None: ...

    def fit(self, X: Data, y: Data = None) -> Self:
        """Learns from a table that holds the target, or from inputs and labels.

        Formal guarantee: (epsilon, delta)-differential privacy of everything that is kept, under add-or-remove of one
        privacy unit, as `statement_` says, provided that no seed was given. A fit that fails after its first charge
        raises `SpentError`, whose `statement` has the whole planned cost; any other error spends nothing. Not
        covered: what was declared, timing and memory, scores.
        """
        if not isinstance(self.guarantee, Guarantee):
            raise ConfigError(
                "Set the guarantee: guarantee=us.Guarantee(epsilon=1.0), or us.Guarantee.not_private(), found "
                f"{self.guarantee!r}.",
                setting="guarantee",
            )
        check_seed(self.seed)
        schema = self._declared_schema(X, y)
        assert schema.target is not None
        self._check_target(schema[schema.target])
        guarantee, binning = self.guarantee.with_delta_for(schema.rows), self.binning or Binning(bins="uniform")
        learner = self._method(schema[schema.target])
        with open_run(
            seed=self.seed,
            book=self.book,
            policy=self.policy,
            proposed=None if self.book is None else table_run(schema, learner, guarantee, binning),
            checkpoint=self.checkpoint,
            resume=self.resume,
        ) as run:
            table = read_private_table(self._read(X, y, schema), schema).table
            planned = plan_run(schema, learner, guarantee, binning)
            run.start(
                self._name,
                guarantee,
                planned.queries,
                certificate.public_facts(schema),
                max_rows_per_unit=schema.max_rows_per_unit,
                tables={"table": table},
                identity={"learner": repr(learner), **planned.identity},
            )
            encoded = encode_table(run, planned, table)
            model = learner.fit(Run(encoded.rows, planned.training, run.ledger, key=run.key()))
            return self._set_fitted(model, encoded.codec, run.finish(encoded.statement()))

    def _set_fitted(self, model: Predictor, codec: Codec, statement: Statement) -> Self:
        self.model_, self.codec_, self.statement_ = model, codec, statement
        self.certificate_, self.spent_ = certificate.to_markdown(statement), statement.epsilon
        self.n_features_in_ = len(codec.columns) - 1
        if isinstance(model, LogitModel | OneVersusRest | NumberModel) and len(model.layers.weights) == 1:
            at = 0 if isinstance(model, NumberModel) else slice(None)
            self.input_names_ = model.inputs.input_names
            self.coef_ = model.layers.weights[0][at] * model.inputs.scale
            self.intercept_ = model.layers.biases[0][at]
        return self

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """The shareable content of a fitted learner, as JSON-safe facts and plain arrays."""
        check_is_fitted(self, "model_")
        structure, arrays = self.model_.to_arrays()
        facts = {"codec": self.codec_.to_dict(), "certificate": certificate.to_json(self.statement_)}
        return {"learner": self._name, "model": structure, **facts}, arrays

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> Self:
        """The fitted learner that `to_arrays` wrote, with default settings."""
        if structure["learner"] != cls._name:
            raise ConfigError(f"Expected a {cls._name} learner, found {structure['learner']!r}.", setting="learner")
        model, codec = predictor_from_arrays(structure["model"], arrays), Codec.from_dict(structure["codec"])
        certified = structure["certificate"]
        statement, same_version = certificate.from_json(certified), certified["understudy_version"] == __version__
        for fault in codec_contradictions(codec, cls._name, statement, same_version=same_version):
            raise Contradiction(f"The {cls._name} learner contradicts itself: {fault}. Ask for the original.")
        return cls()._set_fitted(model, codec, statement)

    def _method(self, target: Column) -> methods.Learner:
        """The learner on encoded rows, with these settings; the target is that of the schema."""
        learner: Callable[..., methods.Learner] = self._learner
        return learner(**self._settings(target))

    def _settings(self, target: Column) -> dict[str, object]:
        """The settings of the learner, with tuples for lists."""
        names = [field.name for field in dataclasses.fields(self._learner) if field.name != "target"]
        given = {name: getattr(self, name) for name in names}
        return {name: tuple(value) if _is_list(value) else value for name, value in given.items()}

    # What each kind of learner defines.

    @abc.abstractmethod
    def _check_target(self, target: Column) -> None:
        """Refuses a target of another kind."""

    @abc.abstractmethod
    def _target_column(self, name: str) -> Column:
        """The target beside a plain array, as declared in the settings."""

    # From X and y to a table.

    def _declared_schema(self, X: Data, y: Data) -> Schema:
        """The public facts of the table: as declared, or from the settings, the number of columns and their names."""
        if self.schema is None:
            return self._array_schema(X, y)
        declared = as_schema(self.schema)
        target = self.target or declared.target
        if target is None:
            raise ConfigError(
                "There is no target. Name the column to predict: target=..., or target in the schema.", setting="target"
            )
        # Rules are for synthetic rows; a learner makes none, and reads every real row as it is.
        return dataclasses.replace(declared.with_target(target), rules=())

    def _array_schema(self, X: Data, y: Data) -> Schema:
        """A schema from the settings: real columns between declared bounds, and the target."""
        if self.bounds is None and (hasattr(X, "columns") or hasattr(X, "column_names")):
            raise ConfigError("A table needs its public facts: schema=us.Schema.read(...), or bounds=... for numbers.")
        if y is None:
            raise ConfigError("Without a schema, fit requires y to be passed: fit(X, y).")
        if self.bounds is None:
            raise ConfigError(
                "The bounds of the inputs are not declared, and they are never read off the rows. Give bounds=(low, "
                "high) or a pair for each column, or a table with schema=...",
                setting="bounds",
            )
        own_names, width = column_names(X), count_columns(X)
        names = own_names or tuple(f"x{number}" for number in range(width))
        target = self.target or LABEL
        if target in names:
            raise ConfigError(f"The target {target!r} is among the inputs. Rename one of them.", setting="target")
        columns = [
            Column(name=name, kind="real", nullable=False, bounds=pair)
            for name, pair in zip(names, as_bounds(self.bounds, width), strict=True)
        ]
        if own_names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return Schema(columns=(*columns, self._target_column(target)), rows=self.num_rows, target=target)

    def _read(self, X: Data, y: Data, schema: Schema) -> pa.Table:
        """The rows with their target."""
        assert schema.target is not None
        target = schema[schema.target]
        if self.schema is None:
            array, labels = as_floats(X), as_cells(y)
            require_equal_lengths(len(array), labels)
            names = [column.name for column in schema.columns if column.name != target.name]
            return pa.table({**dict(zip(names, array.T, strict=True)), target.name: read_column(labels, target)})
        arrow = read_frame(X, schema)
        if y is None:
            return arrow
        if target.name in arrow.column_names:
            raise ConfigError(
                f"The target {target.name!r} is among the inputs, and y is given as well. Pass only one of them.",
                setting="y",
            )
        labels = as_cells(y)
        require_equal_lengths(arrow.num_rows, labels)
        return arrow.append_column(target.name, read_column(labels, target))

    def _encode(self, X: Data) -> tuple[np.ndarray, np.ndarray]:
        """Codes and positions of the inputs, by the same public rules as in `fit`."""
        check_is_fitted(self, "model_")
        columns = tuple(column for column in self.codec_.columns if column.name != self.codec_.schema.target)
        inputs = dataclasses.replace(self.codec_, columns=columns)
        table = self._input_table(X, tuple(column.name for column in columns))
        return inputs.encode_modelled(table), inputs.positions_modelled(table)

    def _input_table(self, X: Data, names: tuple[str, ...]) -> pa.Table:
        """The inputs as a table. A learner fitted on an array takes arrays, and frames of other names as arrays."""
        if any(name in self.codec_.schema for name in column_names(X) or ()):
            arrow = read_frame(X, self.codec_.schema)
            absent = [name for name in names if name not in arrow.column_names]
            if absent:
                raise ConfigError(f"The table lacks columns that were learned from: {', '.join(absent)}.", setting="X")
            return conform(arrow.select(names), self.codec_.schema)
        array = as_floats(X)
        if array.shape[1] != len(names):  # scikit-learn's checks require this message
            raise ValueError(
                f"X has {array.shape[1]} features, but {type(self).__name__} is expecting {len(names)} features as "
                "input"
            )
        return pa.table(dict(zip(names, array.T, strict=True)))

    def _true_labels(self, X: Data, y: Data) -> np.ndarray:
        """Labels to score against: y, or the target's column of a table."""
        if y is not None:
            return np.asarray(y)
        target = self.codec_.schema.target
        assert target is not None
        if target not in (column_names(X) or ()):
            raise ConfigError(
                f"There are no labels to score against. Give y, or a table with the column {target!r}.", setting="y"
            )
        return np.asarray(read_frame(X, self.codec_.schema).column(target).to_pylist())

    def _target_codec(self) -> CategoricalCodec | NumericCodec:
        (column,) = (each for each in self.codec_.columns if each.name == self.codec_.schema.target)
        return column

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # an error about a value would reveal it
        tags.non_deterministic = self.seed is None
        return tags


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


@estimator()
class PrivateClassifier(ClassifierMixin, Estimator):
    """A learner of categories. `fit` sets `classes_`: all declared classes in order, whether or not a row has them."""

    classes: Sequence[Category] | None = None
    """Without a schema: the public classes of the labels, at least two."""

    def predict_proba(self, X: Data) -> np.ndarray:
        """The probability of each of `classes_`."""
        codes, positions = self._encode(X)
        assert isinstance(self.model_, Classifier)
        # A missing or undeclared label has its own code, and is not a class.
        probabilities = self.model_.predict_proba(codes, positions)[:, self._order]
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Data) -> np.ndarray:
        """The likeliest class."""
        check_is_fitted(self, "model_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_log_proba(self, X: Data) -> np.ndarray:
        """The logarithm of the probability of each of `classes_`."""
        return np.log(self.predict_proba(X))

    def score(self, X: Data, y: Data = None, sample_weight: Data = None) -> float:
        """Accuracy. It reads true labels: on private rows it is outside the guarantee."""
        return accuracy_score(self._true_labels(X, y), self.predict(X), sample_weight=sample_weight)

    def _check_target(self, target: Column) -> None:
        if target.kind == "boolean":
            return
        if target.kind != "categorical":
            raise ConfigError(
                f"A classifier predicts categories, and {target.name!r} is of kind {target.kind}. Use a regression, or "
                "declare categories.",
                setting="target",
            )
        if target.categories is None:
            raise ConfigError(
                f"The classes of {target.name!r} are not declared, and they are never read off the rows. List them as "
                "categories in the schema.",
                setting="classes",
            )
        if len(target.categories) < 2:
            raise ConfigError(
                f"The target {target.name!r} has only one class. Declare at least two.", setting="classes"
            )

    def _target_column(self, name: str) -> Column:
        if self.classes is None:
            raise ConfigError(
                "The classes are not declared, and they are never read off the rows. Give classes=[...], or a table "
                "with schema=...",
                setting="classes",
            )
        listed = tuple(each.item() if isinstance(each, np.generic) else each for each in self.classes)
        if len(listed) < 2:
            raise ConfigError("There is only one class. Declare at least two.", setting="classes")
        return Column(name=name, kind="categorical", nullable=False, categories=listed, closed=True)

    def _set_fitted(self, model: Predictor, codec: Codec, statement: Statement) -> Self:
        super()._set_fitted(model, codec, statement)
        column = self._target_codec()
        assert isinstance(column, CategoricalCodec)
        listed = self.codec_.schema[column.name].categories  # without "other", which is not a class
        classes = np.asarray(column.categories if listed is None else listed)  # declared, so all of one type
        self._order = np.argsort(classes, kind="stable")
        self.classes_ = classes[self._order]
        return self

    def _settings(self, target: Column) -> dict[str, object]:
        settings = super()._settings(target)
        if "class_weight" in settings:
            settings["class_weight"] = _weights_by_code(getattr(self, "class_weight", None), target)
        return settings


def _weights_by_code(class_weight: ClassWeight, target: Column) -> targets.ClassWeight:
    """Weights given by class name, or in the declared order, as one weight per code; other labels weigh one."""
    if class_weight is None or isinstance(class_weight, str):
        return class_weight
    classes = (False, True) if target.kind == "boolean" else target.categories
    assert classes is not None
    if isinstance(class_weight, Mapping):
        unknown = [name for name in class_weight if name not in classes]
        if unknown:
            raise ConfigError(
                f"class_weight names {unknown[0]!r}, which is not a class of {target.name!r}.", setting="class_weight"
            )
        weights = [float(class_weight.get(name, 1.0)) for name in classes]
    else:
        weights = [float(each) for each in class_weight]
        if len(weights) != len(classes):
            raise ConfigError(
                f"class_weight needs one number for each of the {len(classes)} classes, found {len(weights)}.",
                setting="class_weight",
            )
    num_codes = len(target.listed or classes) + target.nullable
    return (*weights, *[1.0] * (num_codes - len(weights)))


@estimator()
class PrivateRegression(RegressorMixin, Estimator):
    """A learner of numbers."""

    target_bounds: Sequence[float] | None = None
    """Without a schema: the public bounds of the labels, (low, high)."""

    def predict(self, X: Data) -> np.ndarray:
        """The target, in its own units."""
        codes, positions = self._encode(X)
        column = self._target_codec()
        assert isinstance(self.model_, Regression)
        assert isinstance(column, NumericCodec)
        grid, predicted = column.histogram.grid, self.model_.predict(codes, positions)
        if grid.integral:  # an integer is the middle of an interval of length one
            return float(grid.lower) - 0.5 + predicted * (float(grid.upper) - float(grid.lower) + 1)
        return grid.lower * (1 - predicted) + grid.upper * predicted

    def score(self, X: Data, y: Data = None, sample_weight: Data = None) -> float:
        """R squared. It reads true labels: on private rows it is outside the guarantee."""
        return r2_score(self._true_labels(X, y), self.predict(X), sample_weight=sample_weight)

    def _check_target(self, target: Column) -> None:
        if target.kind not in ("integer", "real"):
            raise ConfigError(
                f"A regression predicts a number, and {target.name!r} is of kind {target.kind}. Use a classifier.",
                setting="target",
            )
        if target.bounds is None:
            raise ConfigError(
                f"The bounds of {target.name!r} are not declared, and they are never read off the rows. Write bounds "
                "in the schema.",
                setting="target_bounds",
            )

    def _target_column(self, name: str) -> Column:
        if self.target_bounds is None:
            raise ConfigError(
                "The bounds of the target are not declared, and they are never read off the rows. Give "
                "target_bounds=(low, high), or a table with schema=..."
            )
        (pair,) = as_bounds(self.target_bounds, 1)
        return Column(name=name, kind="real", nullable=False, bounds=pair)


# ---------------------------------------------------------------------------------------------------------- estimators


@estimator(methods.Logistic, "logistic")
class LogisticRegression(PrivateClassifier):
    """Logistic regression over all classes, by DP-SGD (method="sgd") or objective perturbation ("objective")."""

    penalty: float | None = None
    """Half of this times the squared weights is added to the mean loss. None: 1e-5, or 3e-4 with method="objective"."""
    class_weight: ClassWeight = None
    """Public weights by class, as a mapping or in the declared order; "private": the inverse of noisy class counts,
    which costs budget. None: one for each class."""

    def _settings(self, target: Column) -> dict[str, object]:
        settings = super()._settings(target)
        if self.penalty is None:
            del settings["penalty"]
        return settings


@estimator(methods.NaiveBayes, "naive_bayes")
class NaiveBayes(PrivateClassifier):
    """Naive Bayes from noisy counts and sums by class: categories by counts, numbers by bins or as normal."""


@estimator(methods.Perceptron, "mlp")
class MLPClassifier(PrivateClassifier):
    """A small network over all classes, by DP-SGD."""

    class_weight: ClassWeight = None


@estimator(methods.Prior, "prior")
class ClassPrior(PrivateClassifier):
    """Class probabilities from noisy class counts alone, whatever the inputs: the baseline to beat."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


@estimator(methods.Linear, "linear")
class LinearRegression(PrivateRegression):
    """Least squares from noisy moments, with a ridge that follows from the noise (AdaSSP)."""


@estimator(methods.NumberPerceptron, "mlp_regression")
class MLPRegressor(PrivateRegression):
    """A small network for a number, by DP-SGD on the squared error."""
