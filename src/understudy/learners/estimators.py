"""The learners by their names in scikit-learn: settings, and the method of `methods.py` that they stand for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from understudy.learners import methods
from understudy.learners.shells import PrivateClassifier, PrivateRegression
from understudy.privacy.discovery import Binning
from understudy.privacy.ledger import Guarantee
from understudy.schema import Category, Column, Schema

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class LogisticRegression(PrivateClassifier):
    """Logistic regression over all classes: DP-SGD (method="sgd") or objective perturbation ("objective")."""

    _name = "logistic"

    def __init__(
        self,
        *,
        guarantee: Guarantee | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        bounds: "ArrayLike | None" = None,
        classes: Sequence[Category] | None = None,
        num_rows: int | None = None,
        method: str = "sgd",
        columns: Sequence[str] | None = None,
        numbers: str = "both",
        steps: int = methods.Logistic.steps,
        rate: float = methods.Logistic.rate,
        clip: float = methods.Logistic.clip,
        learning_rate: float = methods.Logistic.learning_rate,
        penalty: float | None = None,
        class_weight: "Mapping[Category, float] | Sequence[float] | str | None" = None,
        class_share: float = 0.05,
        binning: Binning | None = None,
        seed: int | None = None,
    ):
        self.guarantee = guarantee
        self.schema = schema
        self.target = target
        self.bounds = bounds
        self.classes = classes
        self.num_rows = num_rows
        self.method = method
        self.columns = columns
        self.numbers = numbers
        self.steps = steps
        self.rate = rate
        self.clip = clip
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.class_weight = class_weight
        self.class_share = class_share
        self.binning = binning
        self.seed = seed

    def _method(self, target: Column) -> methods.Logistic:
        return methods.Logistic(
            method=self.method,
            columns=_names(self.columns),
            numbers=self.numbers,
            steps=self.steps,
            rate=self.rate,
            clip=self.clip,
            learning_rate=self.learning_rate,
            penalty=methods.Logistic.penalty if self.penalty is None else self.penalty,
            class_weight=self._factors(target, self.class_weight),
            class_share=self.class_share,
        )


class NaiveBayes(PrivateClassifier):
    """Naive Bayes from noisy counts and sums by class: categories by counts, numbers by bins or as normal."""

    _name = "naive_bayes"

    def __init__(
        self,
        *,
        guarantee: Guarantee | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        bounds: "ArrayLike | None" = None,
        classes: Sequence[Category] | None = None,
        num_rows: int | None = None,
        columns: Sequence[str] | None = None,
        numbers: str = "bins",
        smoothing: float = 1.0,
        least_variance: float = 1e-3,
        binning: Binning | None = None,
        seed: int | None = None,
    ):
        self.guarantee = guarantee
        self.schema = schema
        self.target = target
        self.bounds = bounds
        self.classes = classes
        self.num_rows = num_rows
        self.columns = columns
        self.numbers = numbers
        self.smoothing = smoothing
        self.least_variance = least_variance
        self.binning = binning
        self.seed = seed

    def _method(self, target: Column) -> methods.NaiveBayes:
        return methods.NaiveBayes(
            columns=_names(self.columns),
            numbers=self.numbers,
            smoothing=self.smoothing,
            least_variance=self.least_variance,
        )


class MLPClassifier(PrivateClassifier):
    """A small network over all classes, by DP-SGD."""

    _name = "mlp"

    def __init__(
        self,
        *,
        guarantee: Guarantee | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        bounds: "ArrayLike | None" = None,
        classes: Sequence[Category] | None = None,
        num_rows: int | None = None,
        widths: Sequence[int] = methods.Perceptron.widths,
        columns: Sequence[str] | None = None,
        numbers: str = "both",
        steps: int = methods.Perceptron.steps,
        rate: float = methods.Perceptron.rate,
        clip: float = methods.Perceptron.clip,
        learning_rate: float = methods.Perceptron.learning_rate,
        penalty: float = methods.Perceptron.penalty,
        class_weight: "Mapping[Category, float] | Sequence[float] | str | None" = None,
        class_share: float = 0.05,
        binning: Binning | None = None,
        seed: int | None = None,
    ):
        self.guarantee = guarantee
        self.schema = schema
        self.target = target
        self.bounds = bounds
        self.classes = classes
        self.num_rows = num_rows
        self.widths = widths
        self.columns = columns
        self.numbers = numbers
        self.steps = steps
        self.rate = rate
        self.clip = clip
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.class_weight = class_weight
        self.class_share = class_share
        self.binning = binning
        self.seed = seed

    def _method(self, target: Column) -> methods.Perceptron:
        return methods.Perceptron(
            widths=tuple(self.widths),
            columns=_names(self.columns),
            numbers=self.numbers,
            steps=self.steps,
            rate=self.rate,
            clip=self.clip,
            learning_rate=self.learning_rate,
            penalty=self.penalty,
            class_weight=self._factors(target, self.class_weight),
            class_share=self.class_share,
        )


class ClassPrior(PrivateClassifier):
    """The shares of the classes alone, whatever the inputs: the learner to beat."""

    _name = "prior"

    def __init__(
        self,
        *,
        guarantee: Guarantee | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        bounds: "ArrayLike | None" = None,
        classes: Sequence[Category] | None = None,
        num_rows: int | None = None,
        smoothing: float = 1.0,
        binning: Binning | None = None,
        seed: int | None = None,
    ):
        self.guarantee = guarantee
        self.schema = schema
        self.target = target
        self.bounds = bounds
        self.classes = classes
        self.num_rows = num_rows
        self.smoothing = smoothing
        self.binning = binning
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def _method(self, target: Column) -> methods.Prior:
        return methods.Prior(smoothing=self.smoothing)


class LinearRegression(PrivateRegression):
    """Least squares from noisy moments, with a ridge that follows from the noise (AdaSSP)."""

    _name = "linear"

    def __init__(
        self,
        *,
        guarantee: Guarantee | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        bounds: "ArrayLike | None" = None,
        target_bounds: Sequence[float] | None = None,
        num_rows: int | None = None,
        columns: Sequence[str] | None = None,
        numbers: str = methods.Linear.numbers,
        residual: bool = False,
        gram_share: float = methods.Linear.gram_share,
        ridge: float = methods.Linear.ridge,
        binning: Binning | None = None,
        seed: int | None = None,
    ):
        self.guarantee = guarantee
        self.schema = schema
        self.target = target
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.num_rows = num_rows
        self.columns = columns
        self.numbers = numbers
        self.residual = residual
        self.gram_share = gram_share
        self.ridge = ridge
        self.binning = binning
        self.seed = seed

    def _method(self, target: Column) -> methods.Linear:
        return methods.Linear(
            columns=_names(self.columns),
            numbers=self.numbers,
            residual=self.residual,
            gram_share=self.gram_share,
            ridge=self.ridge,
        )


class MLPRegressor(PrivateRegression):
    """A small network for a number, by DP-SGD on the squared error."""

    _name = "mlp_regression"

    def __init__(
        self,
        *,
        guarantee: Guarantee | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        bounds: "ArrayLike | None" = None,
        target_bounds: Sequence[float] | None = None,
        num_rows: int | None = None,
        widths: Sequence[int] = methods.NumberPerceptron.widths,
        columns: Sequence[str] | None = None,
        numbers: str = "both",
        steps: int = methods.NumberPerceptron.steps,
        rate: float = methods.NumberPerceptron.rate,
        clip: float = methods.NumberPerceptron.clip,
        learning_rate: float = methods.NumberPerceptron.learning_rate,
        penalty: float = methods.NumberPerceptron.penalty,
        binning: Binning | None = None,
        seed: int | None = None,
    ):
        self.guarantee = guarantee
        self.schema = schema
        self.target = target
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.num_rows = num_rows
        self.widths = widths
        self.columns = columns
        self.numbers = numbers
        self.steps = steps
        self.rate = rate
        self.clip = clip
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.binning = binning
        self.seed = seed

    def _method(self, target: Column) -> methods.NumberPerceptron:
        return methods.NumberPerceptron(
            widths=tuple(self.widths),
            columns=_names(self.columns),
            numbers=self.numbers,
            steps=self.steps,
            rate=self.rate,
            clip=self.clip,
            learning_rate=self.learning_rate,
            penalty=self.penalty,
        )


def _names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if columns is None else tuple(columns)
