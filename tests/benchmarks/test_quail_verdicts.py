"""Published figures are complete, and every verdict follows from the records."""

import dataclasses
from collections.abc import Callable

import pytest

from benchmarks.papers.quail.enhancement import judge_both_utilities, judge_quail
from benchmarks.papers.quail.evidence import Status, Verdict, group_seconds, judge, select_source
from benchmarks.papers.quail.published import (
    compare_agreements,
    read_agreements,
    read_hours,
    read_real_scores,
    read_times,
)
from benchmarks.papers.quail.punchlines import (
    judge_computation,
    judge_performance,
    judge_punchlines,
    judge_scale,
    judge_similarity,
)
from benchmarks.papers.quail.statements import judge_statements
from benchmarks.papers.quail.suite_page import build_quail_sections
from tests.benchmark.report.records import METRICS, PLAIN, make_record, make_suite
from understudy.benchmark.report.document import render_html, render_markdown
from understudy.benchmark.report.records import ReportInfo, Result, read_records

INFO = ReportInfo(suite="quail-paper", title="QUAIL")
FEATURES = {"adult": 14, "bank": 16, "car": 6, "mushroom": 22, "shopping": 17}
ROWS = {"adult": 32_561, "bank": 36_168, "car": 1_382, "mushroom": 6_499, "shopping": 9_864}
QUALITY = {"mwem": 0.04, "dpgan": 0.02, "pategan": 0.01, "dpctgan": 0.06, "patectgan": 0.05}


def paper_score(table: str, method: str, epsilon: float) -> dict[str, float]:
    """Scores of a world in which the paper is right."""
    name = method.removeprefix("quail(").removesuffix(")")
    gain = QUALITY[name]
    if epsilon >= 3 and name == "patectgan":
        gain = 0.08
    base = 0.9 - FEATURES[table] / 50
    if method != name:
        low = 0.02 if epsilon <= 3 else -0.02
        auc = base - 0.1 if table == "mushroom" else base + gain + 0.1
        return {"f1": base + 0.06 + gain / 10 + low, "auc": auc, "pmse_ratio": 30 - gain, "sra": 0.5}
    pmse = 5 if name == "patectgan" else 10 + 100 * gain
    return {"f1": base + gain, "auc": base + gain, "pmse_ratio": pmse, "sra": 0.7}


def paper_seconds(table: str, method: str) -> float:
    order = {"mwem": 1, "pategan": 10, "dpgan": 20, "patectgan": 50, "dpctgan": 100}
    name = method.removeprefix("quail(").removesuffix(")")
    return order[name] * (ROWS[table] / 1000) * (0.5 if method != name else 1.0)


def change(results: list[Result], edit: Callable[[Result], dict[str, float]]) -> list[Result]:
    """The same results with some scores replaced."""
    return [dataclasses.replace(result, metrics={**result.metrics, **edit(result)}) for result in results]


@pytest.fixture(scope="module")
def world() -> list[Result]:
    return select_source(read_records(make_suite(paper_score, seconds=paper_seconds)), None)


def test_all_published_values_are_there() -> None:
    agreements = read_agreements()
    assert len(agreements) == 350
    assert len({method for _, method, _ in agreements}) == 10
    assert {round(10 * value, 9) for value in agreements.values()} <= set(range(11))
    assert agreements["adult", "quail(patectgan)", 0.1] == 0.9
    assert agreements["mushroom", "dpctgan", 9.0] == 1.0
    assert agreements["shopping", "quail(dpgan)", 9.0] == 0.0
    assert len(read_times()) == 48
    assert sum(read_hours().values()) == pytest.approx(64.74)


def test_inverted_areas_are_turned() -> None:
    areas = {score.table: score for score in read_real_scores() if score.metric == "auc"}
    assert {table for table, score in areas.items() if score.is_inverted} == {"mushroom", "adult", "bank", "shopping"}
    assert areas["adult"].value == pytest.approx(0.69)
    assert all(score.value > 0.5 for score in read_real_scores())


def test_the_source_decides_which_records_count() -> None:
    records = [
        make_record(method="dpgan, tuned", expression="dpgan(steps=9)", f1=0.1),
        make_record(method="dpgan", f1=0.2),
        make_record(method="dpctgan", peer="smartnoise", f1=0.3),
        make_record(method="independent", f1=0.4),
        make_record(method="aim", f1=0.5),
    ]
    results = read_records(records)
    assert [r.method for r in select_source(results, None)] == ["dpgan, tuned", "dpgan", "independent", "aim"]
    assert [r.method for r in select_source(results, "smartnoise")] == ["dpctgan", "independent"]


def test_a_claim_holds_only_if_all_its_counted_clauses_do() -> None:
    yes, no, open_ = judge("a", True, ""), judge("b", False, ""), judge("c", None, "")
    assert Verdict("", "", (yes, dataclasses.replace(no, counts=False))).status is Status.HOLDS
    assert Verdict("", "", (yes, no, open_)).status is Status.FAILS
    assert Verdict("", "", (yes, open_)).status is Status.UNTESTED


def test_every_punchline_holds_in_a_world_where_the_paper_is_right(world: list[Result]) -> None:
    for verdict in judge_punchlines(world):
        found = [(clause.statement, clause.figures) for clause in verdict.clauses if clause.status is Status.FAILS]
        assert verdict.status is Status.HOLDS, (verdict.title, found)


def test_performance_follows_the_leaders(world: list[Result]) -> None:
    assert judge_performance(world).status is Status.HOLDS

    def mwem_best(result: Result) -> dict[str, float]:
        return {"f1": 0.99 + result.seed / 1000} if result.method == "mwem" else {}

    found = judge_performance(change(world, mwem_best))
    assert [clause.status for clause in found.clauses[:2]] == [Status.FAILS, Status.FAILS]
    assert "mwem 1.00" in found.clauses[1].figures
    some = [result for result in world if result.method in ("dpgan", "pategan", "mwem")]
    assert judge_performance(some).clauses[1].status is Status.UNTESTED


def test_computation_follows_the_times(world: list[Result]) -> None:
    assert judge_computation(world).status is Status.HOLDS
    slow = [dataclasses.replace(r, seconds=1e6) if r.method == "mwem" else r for r in world]
    found = judge_computation(slow)
    assert [clause.status for clause in found.clauses[:2]] == [Status.FAILS, Status.FAILS]
    poor = change(world, lambda r: {"f1": 0.1} if r.method == "mwem" else {})
    assert judge_computation(poor).clauses[3].status is Status.FAILS
    quick = [dataclasses.replace(r, seconds=0.1) if r.method == "dpctgan" else r for r in world]
    assert judge_computation(quick).clauses[2].status is Status.FAILS


def test_both_utilities_are_needed_only_if_they_disagree(world: list[Result]) -> None:
    assert judge_both_utilities(world).status is Status.HOLDS
    same = change(world, lambda r: {"auc": r.metrics["f1"]} if r.epsilon is not None else {})
    assert judge_both_utilities(same).clauses[2].status is Status.FAILS
    never = change(world, lambda r: {"auc": 0.999 if r.wrapper else 0.1} if r.epsilon is not None else {})
    assert judge_both_utilities(never).clauses[1].status is Status.FAILS
    plain = [result for result in world if not result.wrapper]
    assert judge_both_utilities(plain).status is Status.UNTESTED


def test_similarity_must_separate_and_not_repeat_utility(world: list[Result]) -> None:
    assert judge_similarity(world).status is Status.HOLDS
    repeat = change(world, lambda r: {"pmse_ratio": 100 * (1 - r.metrics["f1"])} if r.epsilon is not None else {})
    assert [clause.status for clause in judge_similarity(repeat).clauses[1:]] == [Status.FAILS, Status.FAILS]
    flat = change(world, lambda r: {"pmse_ratio": 5.0 + r.seed})
    assert judge_similarity(flat).clauses[0].status is Status.FAILS


def test_quail_must_help_and_level_the_synthesizers(world: list[Result]) -> None:
    assert judge_quail(world).status is Status.HOLDS
    harm = change(world, lambda r: {"f1": r.metrics["f1"] - 0.5} if r.wrapper else {})
    assert judge_quail(harm).clauses[0].status is Status.FAILS
    wide = change(world, lambda r: {"f1": 0.9 + PLAIN.index(r.inner or "mwem")} if r.wrapper else {})
    assert judge_quail(wide).clauses[1].status is Status.FAILS


def test_several_classifiers_are_compared_with_the_synthesizers() -> None:
    def cells(by_learner: float, by_inner: float) -> list[Result]:
        records = []
        for i, learner in enumerate(("logistic", "naive_bayes")):
            for j, inner in enumerate(("dpgan", "mwem")):
                expression = f"quail({inner}, learner={learner}(penalty=1))"
                score = 0.5 + by_learner * i + by_inner * j
                records.append(make_record(method=expression, expression=expression, inner=inner, f1=score))
        return select_source(read_records(records), None)

    assert judge_quail(cells(0.2, 0.1)).clauses[2].status is Status.HOLDS
    assert judge_quail(cells(0.1, 0.2)).clauses[2].status is Status.FAILS


def test_scale_must_cost_time_and_utility(world: list[Result]) -> None:
    assert judge_scale(world).status is Status.HOLDS
    perfect = change(world, lambda r: {"f1": 0.95 + r.seed / 1000} if r.epsilon is not None else {})
    assert judge_scale(perfect).clauses[1].status is Status.FAILS
    turned = [dataclasses.replace(r, num_train=1_000_000 // (r.num_train or 1)) for r in world]
    assert judge_scale(turned).clauses[0].status is Status.FAILS
    car = change(world, lambda r: {"f1": FEATURES[r.table] / 50} if r.epsilon is not None else {})
    assert judge_scale(car).clauses[2].status is Status.FAILS


def test_statements_on_figures_hold_and_fail_with_the_records(world: list[Result]) -> None:
    found = {clause.statement: clause.status for _, clause in judge_statements(world)}
    assert found["On Car, PATE-CTGAN leads by pMSE."] is Status.HOLDS
    assert found["On Car, QUAIL is best by F1 up to epsilon 0.5."] is Status.HOLDS
    assert found["On Mushroom, QUAIL has the lower AUC in most pairs of method and epsilon."] is Status.HOLDS
    assert found["On Adult, DP-CTGAN leads by F1 from epsilon 3."] is Status.FAILS
    assert Status.UNTESTED not in found.values()


def test_one_seed_leaves_claims_about_noise_open(world: list[Result]) -> None:
    single = [result for result in world if result.seed == 0]
    assert judge_performance(single).clauses[0].status is Status.UNTESTED
    assert judge_both_utilities(single).clauses[1].status is Status.UNTESTED
    assert judge_similarity(single).clauses[0].status is Status.UNTESTED


def test_failed_methods_do_not_lead(world: list[Result]) -> None:
    broken = [
        dataclasses.replace(r, failure=("time", "late"), metrics={}) if r.method == "patectgan" and r.seed else r
        for r in world
    ]
    assert judge_performance(broken).clauses[1].status is Status.FAILS


def test_published_and_our_agreement_are_compared() -> None:
    published = read_agreements()
    exact = [
        make_record(table, method, epsilon, seed, f1=0.5, sra=value,
                    inner=method[6:-1] if method.startswith("quail") else None)
        for (table, method, epsilon), value in published.items() for seed in (0, 1)
    ]  # fmt: skip
    found = compare_agreements(select_source(read_records(exact), None))
    assert len(found.pairs) == 350
    assert found.mean_difference == pytest.approx(0)
    assert found.correlation == pytest.approx(1)
    noisy = [make_record("bank", "mwem", 0.01, seed, sra=value) for seed, value in enumerate((0.4, 0.6, 0.8))]
    found = compare_agreements(read_records(noisy))
    assert found.mean_difference == pytest.approx(0.2)
    assert found.seed_std == pytest.approx(0.2)
    assert found.seed_difference == pytest.approx((0.2 + 0.2 + 0.4) / 3)
    assert found.correlation is None


def test_the_page_shows_verdicts_and_both_sets_of_figures() -> None:
    records = make_suite(paper_score, seconds=paper_seconds, tables=("adult", "car"), epsilons=(0.5, 3.0))
    page = render_html(build_quail_sections(read_records(records), INFO, METRICS), INFO)
    assert page.count("<h2>") > 10
    assert "Of the paper's six punchlines" in page.replace("&#x27;", "'")
    assert "mean absolute difference between published and our SRA" in page
    assert "0.31</td>" in page, "the inverted area as printed"
    assert "0.69</td>" in page
    sections = build_quail_sections(read_records(records), INFO, METRICS)
    text, pictures = render_markdown(sections, INFO, image_folder="images")
    assert "## Punchlines" in text
    assert pictures


def test_seconds_are_of_fit_and_sample_and_failures_have_none() -> None:
    results = read_records([make_record(seconds=3.0, f1=0.1), make_record(seed=1, failure="memory")])
    found = group_seconds(results)["car", 1.0]["mst"]
    assert (found.mean, found.num_failed) == (3.0, 1)
