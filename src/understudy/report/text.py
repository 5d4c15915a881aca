"""Numbers and names as text."""

import math
from collections.abc import Sequence

from understudy.evaluation.scores import Json
from understudy.notes import count_of as count_of
from understudy.notes import percent as percent
from understudy.notes import shorten as shorten


def number(value: object) -> str:
    """Three digits; no powers of ten but for astronomically large numbers."""
    figure = finite(value)
    if figure is None:
        return "–"
    size = abs(figure)
    if figure == 0:
        return "0"
    if size < 1e-4:
        return "<\N{NO-BREAK SPACE}0.0001" if figure > 0 else minus(">\N{NO-BREAK SPACE}-0.0001")
    if 0.99995 <= size < 1:  # not rounded to 1
        return ">\N{NO-BREAK SPACE}0.9999" if figure > 0 else minus("<\N{NO-BREAK SPACE}-0.9999")
    if size >= 1e15:
        mantissa, exponent = f"{figure:.1e}".split("e")
        return minus(f"{mantissa}e{int(exponent)}")
    if size >= 1e6:
        return minus(f"{figure / 1e6:,.1f}M")
    return minus(f"{figure:,.{4 if 0.9995 <= size < 1 else _decimals(size)}f}")


def _decimals(size: float) -> int:
    """How many decimals show three significant digits."""
    return max(0, 2 - math.floor(math.log10(float(f"{size:.3g}"))))


def minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def broken_rows(count: int, fraction: float) -> str:
    """How many rows break a rule."""
    return f"{count:,} ({percent(fraction)})" if count else "none"


def format_fraction(value: object) -> str:
    """In percent; a number where it is negative or missing."""
    found = finite(value)
    return number(value) if found is None or found < 0 else percent(found)


def format_score(metric: Json, value: object) -> str:
    """A value of this metric: fractions in percent, all else as a number."""
    return format_fraction(value) if metric.get("fraction") else number(value)


def finite(value: object) -> float | None:
    """The number; None for null, NaN, infinities and anything that is not a number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def listing(parts: Sequence[str]) -> str:
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def quote(name: object, max_length: int = 40) -> str:
    """A name inside a sentence, shortened if it is very long."""
    return f"“{shorten(str(name), max_length)}”"


_NAMES = {
    "adaboost": "AdaBoost", "bagging": "bagged trees", "logistic": "logistic regression", "mlp": "neural network",
    "xgboost": "XGBoost", "linear": "linear regression", "auc": "ROC AUC", "pr_auc": "precision-recall AUC", "f1": "F1",
    "r2": "R²", "rmse": "root mean squared error",
}  # fmt: skip


def model_name(key: str) -> str:
    """A model, score or group of scores as people call it."""
    return _NAMES.get(key, key.replace("_", " "))


def tick_label(value: float) -> str:
    size = abs(value)
    if size >= 1e6:
        return minus(f"{value / 1e6:.4g}M")
    if size >= 1e4:
        return minus(f"{value / 1e3:.4g}k")
    return minus(f"{round(value, 10):.4g}")
