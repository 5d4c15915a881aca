"""Every method and learner by name, and where its class is. Classes are loaded on first use."""

import ast
import importlib
import importlib.resources

from understudy.errors import ConfigError, did_you_mean

SYNTHESIZERS = {
    "adaptive": "understudy.synthesizers.adaptive:Adaptive",
    "independent": "understudy.synthesizers.independent:Independent",
    "mst": "understudy.synthesizers.mst:MST",
    "aim": "understudy.synthesizers.aim:AIM",
    "privbayes": "understudy.synthesizers.privbayes:PrivBayes",
    "mwem": "understudy.synthesizers.mwem:MWEM",
    "gem": "understudy.synthesizers.gem:GEM",
    "dpgan": "understudy.synthesizers.dpgan:DPGAN",
    "dpctgan": "understudy.synthesizers.dpgan:DPCTGAN",
    "pategan": "understudy.synthesizers.pategan:PATEGAN",
    "patectgan": "understudy.synthesizers.pategan:PATECTGAN",
    "bayesgan": "understudy.synthesizers.bayesgan:BayesGAN",
    "autogan": "understudy.synthesizers.autogan:AutoGAN",
    "boosted": "understudy.synthesizers.boosted.method:Boosted",
    "drs": "understudy.synthesizers.boosted.method:DRS",
    "selected": "understudy.synthesizers.selected.method:Selected",
    "quail": "understudy.synthesizers.quail:Quail",
}
"""Methods under the names of the literature. Each class is also `understudy.NAME`."""

LEARNERS = {
    "logistic": "understudy.learners.methods:Logistic",
    "naive_bayes": "understudy.learners.methods:NaiveBayes",
    "mlp": "understudy.learners.methods:Perceptron",
    "prior": "understudy.learners.methods:Prior",
    "linear": "understudy.learners.methods:Linear",
    "mlp_regression": "understudy.learners.methods:NumberPerceptron",
}
"""Learners that are settings inside an expression: `quail(mst, learner=naive_bayes(numbers=gaussian))`."""

REVISIONS: dict[str, int] = {"independent": 2, "adaptive": 2, "aim": 2, "mst": 2, "quail": 2}
"""Raise a method's number when the same settings and seed give another result within one version of the package:
benchmark results of earlier revisions are then run again. Methods that are not listed are at 1."""

AUTO, DEFAULT = "auto", "adaptive"
"""`auto` is another name for the default method, which may be a different one in a later version."""


def synthesizer_class(name: str) -> type:
    """The class behind a name, or an error with the nearest one."""
    name = DEFAULT if name == AUTO else name
    known = [*SYNTHESIZERS, AUTO]
    if name not in SYNTHESIZERS:
        raise ConfigError(
            f"There is no method {name!r}.{did_you_mean(name, known)} The methods are: {', '.join(known)}.",
            setting="method",
        )
    return _load(SYNTHESIZERS[name])


def learner_class(name: str) -> type:
    """The class behind a learner's name, or an error with all of them."""
    if name not in LEARNERS:
        raise ConfigError(f"There is no learner {name!r}. The learners are: {', '.join(LEARNERS)}.", setting="learner")
    return _load(LEARNERS[name])


def _load(location: str) -> type:
    module, _, attribute = location.partition(":")
    found: type = getattr(importlib.import_module(module), attribute)
    return found


def name_of(part: object) -> str:
    """The name under which the class of a synthesizer, or of a learner, is registered."""
    here, known = f"{type(part).__module__}:{type(part).__name__}", {**SYNTHESIZERS, **LEARNERS}
    return next((name for name, location in known.items() if location == here), type(part).__name__.lower())


def describe_methods() -> list[tuple[str, str]]:
    """Each method's name and the first line of its documentation."""
    return [(name, _first_line(location)) for name, location in SYNTHESIZERS.items()]


def _first_line(location: str) -> str:
    """The first line of a class's documentation, read from its source: importing every method takes seconds."""
    module, _, name = location.partition(":")
    package, *parts = module.split(".")
    source = importlib.resources.files(package).joinpath(*parts[:-1], f"{parts[-1]}.py").read_text(encoding="utf-8")
    (found,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(found) or "").partition("\n")[0]
