"""The experiments of DP-BayesGAN, in small: all parts run, and the page tells what was found."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers.bayesgan import montgomery


@pytest.mark.slow
def test_the_experiment_runs_and_is_written() -> None:
    profile = montgomery.PROFILES["smoke"]
    results = list(montgomery.run(profile))
    kinds = [result["kind"] for result in results]
    assert [kind for kind in kinds if not montgomery.is_reference(kind)] == ["CART", "BayesGAN", "epsilon 0.3"]
    assert kinds[3:] == ["independent columns", "independent columns, epsilon 0.3", "other tables of the recipe"]
    for result in results:
        assert 0 < result["logit"] <= 0.25
        assert 0 < result["tree"] <= 0.25
        assert len(result["points"]) == montgomery.ROWS
    told = montgomery.page(profile, results)
    assert "BayesGAN without privacy over CART" in told
    drawn = ElementTree.fromstring(montgomery.picture(results))
    said = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"real rows", "CART, not private", "BayesGAN, not private", "BayesGAN, epsilon 0.3"} < set(said)


@pytest.mark.parametrize(("tree", "words"), [([0.1, 0.2, 0.3], "grows"), ([0.1, 0.3, 0.2], "DOES NOT GROW")])
def test_a_miss_is_reported(tree: list[float], words: str) -> None:
    names = ("BayesGAN", "epsilon 10", "epsilon 1")
    results = [
        {"kind": name, "seed": 0, "logit": 0.1, "tree": value, "upper": 0.5, "lower": 0.5, "seconds": 1, "points": []}
        for name, value in zip(names, tree, strict=True)
    ]
    assert f"pMSE (tree) {words} with privacy" in montgomery.page(montgomery.PROFILES["paper"], results)
