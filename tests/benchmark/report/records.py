"""Made-up result records."""

from collections.abc import Callable, Iterable, Mapping

from understudy.benchmark.report.statistics import Summary

METRICS = {
    "f1": ("F1", True),
    "auc": ("ROC AUC", True),
    "pmse_ratio": ("pMSE ratio", False),
    "sra": ("Synthetic ranking agreement", True),
}
TABLES = {"adult": 32_561, "bank": 36_168, "car": 1_382, "mushroom": 6_499, "shopping": 9_864}
EPSILONS = (0.01, 0.1, 0.5, 1.0, 3.0, 6.0, 9.0)
PLAIN = ("mwem", "dpgan", "pategan", "dpctgan", "patectgan")
WRAPPED = ("quail(mwem)", "quail(dpgan)", "quail(pategan)", "quail(dpctgan)", "quail(patectgan)")

Scores = Mapping[str, float]


def make_record(
    table: str = "car",
    method: str = "mst",
    epsilon: float | None = 1.0,
    seed: int = 0,
    *,
    failure: str | None = None,
    inner: str | None = None,
    peer: str | None = None,
    expression: str | None = None,
    seconds: float = 2.0,
    scores: Scores | None = None,
    **metrics: float,
) -> dict[str, object]:
    """One line of `results.jsonl`; with `failure`, the reason why the cell failed."""
    return {
        "key": f"{table}/{method}/{epsilon}/{seed}/{peer}",
        "suite": "made-up",
        "table": table,
        "method": method,
        "expression": expression or method,
        "peer": peer,
        "peer_version": "1.0" if peer else None,
        "wrapper": "quail" if inner else None,
        "inner": inner,
        "epsilon": epsilon,
        "delta": None if epsilon is None else 1e-5,
        "seed": seed,
        "status": "failed" if failure else "done",
        "failure": {"reason": failure, "message": "Stopped <early> & | loudly."} if failure else None,
        "metrics": {} if failure else {**metrics, **(scores or {})},
        "details": {},
        "seconds": {} if failure else {"fit": seconds - 0.5, "sample": 0.5, "score": 9.0},
        "peak_mb": 100.0,
        "rows": {"train": TABLES.get(table, 1000), "test": 100, "synthetic": 100, "scored": 100},
        "data": "0",
        "version": "1.0",
        "machine": "x86_64, 2 cores",
        "engine": "local",
        "date": "2026-11-17",
    }


def make_suite(
    score: Callable[[str, str, float], Scores],
    *,
    seconds: Callable[[str, str], float] = lambda table, method: 2.0,
    methods: Iterable[str] = (*PLAIN, *WRAPPED),
    tables: Iterable[str] = tuple(TABLES),
    epsilons: Iterable[float] = EPSILONS,
    jitter: float = 0.001,
) -> list[dict[str, object]]:
    """Two seeds of every cell, `jitter` below and above what `score` gives; real data and a baseline beside them."""
    records = []
    for table in tables:
        records.append(make_record(table, "real data", None, f1=0.95, auc=0.97, pmse_ratio=1.0, sra=1.0))
        for epsilon in epsilons:
            for seed, sign in enumerate((-1, 1)):
                baseline = {"f1": 0.3, "auc": 0.5, "pmse_ratio": 90.0, "sra": 0.5}
                records.append(make_record(table, "independent", epsilon, seed, scores=baseline))
                for method in methods:
                    found = {key: value + sign * jitter for key, value in score(table, method, epsilon).items()}
                    inner = method.removeprefix("quail(").removesuffix(")") if method.startswith("quail") else None
                    spent = seconds(table, method)
                    records.append(make_record(table, method, epsilon, seed, inner=inner, seconds=spent, scores=found))
    return records


def summarise(values: Iterable[float], *, num_failed: int = 0, num_undefined: int = 0) -> Summary:
    return Summary(tuple(values), num_failed, num_undefined)
