"""Scorecards in the form that `understudy evaluate --json` writes, with numbers as a census table would give."""

from typing import Any

import numpy as np

from understudy.evaluation.scorecard import VERSION, WARNING
from understudy.evaluation.scores import CATALOGUE

DISCRETE = {
    "workclass": ["Private", "Self-emp-not-inc", "Local-gov", "State-gov", "Self-emp-inc", "Federal-gov"],
    "education": ["HS-grad", "Some-college", "Bachelors", "Masters", "Assoc-voc", "11th", "Assoc-acdm", "10th",
                  "7th-8th", "Prof-school", "9th", "12th", "Doctorate", "5th-6th", "1st-4th", "Preschool"],
    "marital-status": ["Married-civ-spouse", "Never-married", "Divorced", "Separated", "Widowed"],
    "occupation": [f"Occupation {letter}" for letter in "ABCDEFGHIJKLMN"],
    "relationship": ["Husband", "Not-in-family", "Own-child", "Unmarried", "Wife", "Other-relative"],
    "race": ["White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"],
    "sex": ["Male", "Female"],
    "native-country": [f"Country {i}" for i in range(41)],
    "income": ["<=50K", ">50K"],
}  # fmt: skip
NUMERIC = {
    "age": (17, 90), "fnlwgt": (12_285, 1_484_705), "education-num": (1, 16), "capital-gain": (0, 99_999),
    "capital-loss": (0, 4_356), "hours-per-week": (1, 99),
}  # fmt: skip
MODELS = ("logistic", "random_forest", "gradient_boosting", "mlp")
QUALITY = {"aim": 0.02, "mst": 0.05, "independent": 0.12}


def score(value: float | None, error: float | None = None, why: str = "") -> dict[str, Any]:
    return {"value": value, "error": error, "status": "undefined" if why else "computed", "why": why}


def skipped(why: str = "Skipped by the quick scorecard.") -> dict[str, Any]:
    return {"value": None, "error": None, "status": "skipped", "why": why}


def scorecard(
    methods: tuple[str, ...] = ("aim", "mst", "independent"),
    *,
    extra_columns: int = 0,
    renamed: dict[str, str] | None = None,
    points: int = 400,
) -> dict[str, Any]:
    """A whole scorecard; `renamed` gives columns other names, `extra_columns` adds numeric ones."""
    rng = np.random.default_rng(0)
    names = {name: (renamed or {}).get(name, name) for name in (*NUMERIC, *DISCRETE)}
    numeric = {names[name]: bounds for name, bounds in NUMERIC.items()}
    numeric |= {f"extra {i}": (0, 1) for i in range(extra_columns)}
    discrete = {names[name]: categories for name, categories in DISCRETE.items()}
    off = {method: QUALITY.get(method, 0.04 + 0.02 * i) for i, method in enumerate(methods)}
    shares = {name: _shares(rng, name, 50) for name in numeric}
    shares |= {name: np.sort(rng.dirichlet(np.ones(len(categories))))[::-1] for name, categories in discrete.items()}
    details: dict[str, dict[str, Any]] = {}

    def add(group: str, source: str, content: object) -> None:
        details.setdefault(group, {})[source] = content

    columns = [*numeric, *discrete]
    noise = rng.uniform(size=(len(columns), len(columns)))
    noise = (noise + noise.T) / 2
    association = np.clip(rng.normal(0, 0.25, noise.shape), -0.9, 0.9)
    association = (association + association.T) / 2
    importance = rng.dirichlet(np.ones(len(columns) - 1) * 0.6)
    targets = [name for name in columns if name != names["income"]]
    add("learning", "real", _learned(0.0, dict(zip(targets, importance, strict=True))))
    cloud = _cloud(rng, points, 0.0)
    for method, wrong in off.items():
        one_way = {}
        for name in columns:
            ours = shares[name] * np.exp(rng.normal(0, 4 * wrong, len(shares[name])))
            ours /= ours.sum()
            tv = 0.5 * np.abs(ours - shares[name]).sum()
            kind = (
                {"kind": "numeric", "edges": np.linspace(*numeric[name], 51).tolist(), "missing": [0, 0]}
                if (name in numeric)
                else {"kind": "discrete", "labels": discrete[name], "missing": [0, 0], "unlisted": [0, 0]}
            )
            one_way[name] = {**kind, "real": shares[name].tolist(), "synthetic": ours.tolist(), "tv": float(tv)}
        add("one_way", method, {"columns": one_way})
        tv2 = wrong * (0.5 + 4 * noise**3)
        np.fill_diagonal(tv2, 0)
        order = sorted(((i, j) for i in range(len(columns)) for j in range(i)), key=lambda p: -tv2[p])[:10]
        worst = [{"columns": [columns[j], columns[i]], "tv": float(tv2[i, j])} for i, j in order]
        add("two_way", method, {"columns": columns, "tv": tv2.tolist(), "worst": worst})
        ours = association * (1 - 4 * wrong * noise)
        add("correlations", method, {"columns": columns, "real": association.tolist(), "synthetic": ours.tolist()})
        synthetic = _cloud(rng, points, wrong)
        loadings = [[["age", 0.4], ["sex=Male", 0.3]], [["income=>50K", 0.5]]]
        add("pca", method, {"explained": [0.13, 0.09], "loadings": loadings, "real": cloud, "synthetic": synthetic})
        frequencies = [
            {"column": name, "category": category, "real": float(r), "synthetic": float(s)}
            for name in discrete
            for category, r, s in zip(discrete[name], shares[name], one_way[name]["synthetic"], strict=False)
        ]
        add("dimension_probability", method, {"points": frequencies})
        predicted = [
            {"column": name, "kind": "r2" if name in numeric else "f1", "real": float(0.3 + 0.65 * noise[i, 0]),
             "synthetic": float(0.3 + 0.65 * noise[i, 0] - 3 * wrong * noise[i, 1]), "plotted": name != names["fnlwgt"]}
            for i, name in enumerate(columns)
        ]  # fmt: skip
        add("dimension_prediction", method, {"points": predicted})
        mixed = (1 - 3 * wrong) * importance + 3 * wrong / len(importance)
        add("learning", method, _learned(wrong, dict(zip(targets, mixed.tolist(), strict=True))))
        triples = [[columns[i], columns[j], columns[k]] for i in range(5) for j in range(i) for k in range(j)]
        errors = [{"regressors": t, "real": 10 + i * 0.4, "synthetic": (10 + i * 0.4) * (1 + wrong * (1 + i % 3))}
                  for i, t in enumerate(triples)]  # fmt: skip
        add("parallel_rmse", method, {"models": errors})
    return {
        "format": "understudy-scorecard", "version": VERSION, "understudy": "0.1.0", "effort": "default", "seed": 0,
        "warning": WARNING,
        "real": {"name": "adult_train", "rows": 32_561},
        "holdout": {"name": "adult_test", "rows": 16_281, "given": True, "seen": False},
        "synthetic": [{"name": method, "rows": 32_561} for method in methods],
        "target": names["income"], "positive": ">50K",
        "notes": [{"group": None, "tables": [], "text": "Read off the real table: fnlwgt."},
                  {"group": "learning", "tables": ["mst", "aim"], "text": "The model did not converge."}],
        "metrics": _metrics(off, details),
        "settings": {"one_way": {"cells": 50, "bootstrap": 100, "real_rows": 32_561, "synthetic_rows": 32_561},
                     "learning": {"models": list(MODELS), "max_rows": 20_000, "bootstrap": 100, "seed": 0}},
        "seconds": {"one_way": 0.41, "two_way": 2.2, "learning": 48.1},
        "details": details,
    }  # fmt: skip


def _shares(rng: np.random.Generator, name: str, cells: int) -> np.ndarray:
    at = np.linspace(0, 1, cells)
    if name.startswith("capital"):
        shape = np.where(at == 0, 12.0, 0.3 * rng.random(cells) * (at < 0.4))
    elif name == "hours-per-week":
        shape = np.exp(-(((at - 0.4) / 0.12) ** 2)) + 4 * (np.abs(at - 0.4) < 0.012)
    else:
        shape = at**1.2 * np.exp(-5 * at) + 0.002
    return shape / shape.sum()


def _cloud(rng: np.random.Generator, points: int, wrong: float) -> list[list[float]]:
    which = rng.integers(3, size=points)
    centres = np.array([[-2.0, -0.5], [1.4, 1.8], [1.6, -1.6]]) * (1 - 3 * wrong)
    return (centres[which] + rng.normal(0, 0.6 + 3 * wrong, (points, 2))).round(3).tolist()


def _learned(wrong: float, importance: dict[str, float]) -> dict[str, Any]:
    rates = np.linspace(0, 1, 101)
    found = {}
    for i, model in enumerate(MODELS):
        power = (9 - i) / (1 + 18 * wrong)
        found[model] = {"fpr": rates.tolist(), "tpr": (1 - (1 - rates) ** power).round(4).tolist()}
    models = {
        model: {"auc": 0.91 - wrong - 0.01 * i, "f1": 0.68 - 2 * wrong, "accuracy": 0.86 - wrong}
        for i, model in enumerate(MODELS)
    }
    return {"models": models, "roc": found, "importance": importance}


def _metrics(off: dict[str, float], details: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    lower, higher, one, near = "lower", "higher", "near_one", "near_real"
    held, trained = "held-out real rows", "trained on real rows"
    mean1 = {m: float(np.mean([c["tv"] for c in details["one_way"][m]["columns"].values()])) for m in off}
    mean2 = {m: float(np.mean([v for row in details["two_way"][m]["tv"] for v in row])) for m in off}
    nothing = dict.fromkeys(off)

    def by(slope: float, start: float) -> dict[str, float]:
        return {m: start + slope * wrong for m, wrong in off.items()}

    # key, group, title, direction, high, value of real rows, what these are, values, standard error, why there is none
    rows: list[tuple[str, str, str, str, float | None, float | None, str, dict[str, Any], float | None, str]] = [
        ("tv1", "one_way", "Total variation, 1-way marginals", lower, 1, 0.008, held, mean1, 0.001, ""),
        ("ks", "one_way", "Kolmogorov-Smirnov distance", lower, 1, 0.007, held, by(0.8, 0), None, ""),
        ("tv2", "two_way", "Total variation, 2-way marginals", lower, 1, 0.02, held, mean2, None, ""),
        ("invalid_cells", "validity", "Invalid cells", lower, 1, 0.0, held, by(0, 0), None, ""),
        (
            "impossible_pairs",
            "validity",
            "Rows with an unseen pair of values",
            near,
            1,
            0.03,
            held,
            by(1, 0.03),
            None,
            "",
        ),
        (
            "constraint_violations",
            "constraints",
            "Rows that break a rule",
            lower,
            1,
            None,
            "",
            nothing,
            None,
            "No rule.",
        ),
        ("pmse_logit_ratio", "pmse_logit", "pMSE ratio, logistic", one, None, 1.04, held, by(40, 1), None, ""),
        ("tstr_pr_auc", "learning", "Precision-recall AUC", higher, 1, 0.8, trained, by(-2, 0.8), 0.006, ""),
        (
            "tstr_auc",
            "learning",
            "ROC AUC, trained on synthetic",
            higher,
            1,
            0.912,
            trained,
            by(-1.4, 0.912),
            0.003,
            "",
        ),
        ("sra", "learning", "Synthetic ranking agreement", higher, 1, None, "", by(-1, 0.9), None, ""),
        ("tstr_r2", "learning", "R², trained on synthetic", higher, 1, None, "", nothing, None, "Target is no number."),
        ("pca_wasserstein_score", "pca", "Wasserstein score", higher, 1, 0.99, held, by(-6, 0.4), None, ""),
        ("dcr_ratio", "closest_record", "Distance to the closest row", one, None, 1.0, held, by(2, 1), 0.02, ""),
        ("rmse_ratio_mean", "parallel_rmse", "Mean ratio of errors", one, None, None, "", by(2, 1), None, ""),
        ("new", "a_group_of_tomorrow", "A score of a later version", higher, None, 3.0, held, by(-1, 2e7), None, ""),
    ]
    return [
        {
            "key": key, "group": group, "title": title, "direction": direction, "low": 0, "high": high,
            "meaning": f"What {title} means, in plain words.",
            "fraction": key in CATALOGUE and CATALOGUE[key].fraction,
            "key_score": key in CATALOGUE and CATALOGUE[key].key_score,
            "reference": None if real is None else {**score(real, error), "what": what},
            "values": {method: score(value, error, why) for method, value in values.items()},
        }
        for key, group, title, direction, high, real, what, values, error, why in rows
    ]  # fmt: skip
