"""The registry of models, and models on their way to bytes and back."""

import json

import jax
import numpy as np
import pytest

from understudy.encoding.features import Block, num_features
from understudy.models import (
    MODELS,
    BayesianNetwork,
    GeneratorModel,
    GraphicalModel,
    Mixture,
    MixtureOfProducts,
    Model,
    Pool,
    PosteriorModel,
    QuailModel,
    load_model,
    save_model,
)
from understudy.models.junction import junction_tree
from understudy.models.neural import Decoded, Decoder, Generator
from understudy.models.predictors import PriorModel
from understudy.models.protocol import Sample, concatenate
from understudy.schema import Domain

DOMAIN = Domain(names=("a", "b"), sizes=(2, 3), num_rows=100)
BLOCKS = (Block("one_hot", 2), Block("one_hot", 3))
KEY = jax.random.key(0)


def generator(seed: int = 0, *, conditional: bool = False) -> GeneratorModel:
    width = num_features(BLOCKS)
    net = Generator(4, width if conditional else 0, (8,), width, key=jax.random.key(seed))
    marginal = np.asarray([0.2, 0.8, 0.1, 0.1, 0.8], np.float32) if conditional else None
    return GeneratorModel(net, "residual", DOMAIN.names, BLOCKS, 4, (8,), marginal)


def decoded() -> GeneratorModel:
    inner = Generator(4, 0, (8,), 3, key=jax.random.key(1))
    net = Decoded(inner, Decoder(3, (6,), num_features(BLOCKS), key=jax.random.key(2)))
    return GeneratorModel(net, "residual", DOMAIN.names, BLOCKS, 4, (8,), decoder=(3, 6))


def posterior() -> PosteriorModel:
    nets = [generator(seed).generator for seed in range(3)]
    stacked = jax.tree_util.tree_map(
        lambda *leaves: np.stack(leaves) if hasattr(leaves[0], "shape") else leaves[0], *nets
    )
    return PosteriorModel(GeneratorModel(stacked, "residual", DOMAIN.names, BLOCKS, 4, (8,)))


def graphical() -> GraphicalModel:
    cliques = (("a", "b"),)
    table = np.log(np.arange(1.0, 7.0)).reshape(2, 3)
    tree = junction_tree(DOMAIN, cliques)
    return GraphicalModel(domain=DOMAIN, total=1.0, cliques=cliques, potentials=(table,), tree=tree)


def products() -> MixtureOfProducts:
    return MixtureOfProducts(DOMAIN.names, DOMAIN.sizes, np.asarray([[0.5, 0.5, 0.2, 0.3, 0.5]], np.float32))


def pool() -> Pool:
    codes = np.asarray([[0, 0], [1, 1], [0, 2]], np.int32)
    return Pool(
        DOMAIN.names, codes, np.asarray([0.2, 0.3, 0.5]), np.asarray([[np.nan, 0.1], [np.nan, 0.5], [np.nan, 0.9]])
    )


def network() -> BayesianNetwork:
    given = np.asarray([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
    return BayesianNetwork(DOMAIN.names, DOMAIN.sizes, (1, 0), ((1,), ()), (given, np.asarray([0.2, 0.3, 0.5])))


def quail() -> QuailModel:
    learner = PriorModel(np.log([0.3, 0.7]))
    return QuailModel(("t", "a", "b"), ("t",), Mixture((pool(), pool())), (learner,), "sample")


EXAMPLES: dict[str, Model] = {
    "graphical": graphical(),
    "generator": generator(),
    "generator, conditional": generator(conditional=True),
    "generator, decoded": decoded(),
    "posterior": posterior(),
    "mixture_of_products": products(),
    "pool": pool(),
    "bayesian_network": network(),
    "mixture": Mixture((generator(0), generator(1))),
    "quail": quail(),
}


def test_every_kind_has_an_example() -> None:
    assert {model.kind for model in EXAMPLES.values()} == set(MODELS)
    assert all(MODELS[model.kind] is type(model) for model in EXAMPLES.values())


def same(one: Sample, two: Sample) -> bool:
    if one.positions is None or two.positions is None:
        return one.positions is two.positions and np.array_equal(one.codes, two.codes)
    return np.array_equal(one.codes, two.codes) and np.array_equal(one.positions, two.positions, equal_nan=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_saved_and_loaded_models_sample_alike(name: str) -> None:
    model = EXAMPLES[name]
    content, data = save_model(model)
    again = load_model(json.loads(json.dumps(content)), data)
    assert type(again) is type(model)
    assert again.names == model.names
    allowed = {"b": np.asarray([True, False, True])}
    for condition in (None, allowed):
        one, two = (each.sample(120, key=KEY, allowed=condition) for each in (model, again))
        assert same(one, two)
        assert one.codes.dtype == np.int32
        assert one.codes.shape == (120, len(model.names))
    assert set(one.codes[:, model.names.index("b")]) == {0, 2}


def test_an_unknown_kind_is_refused() -> None:
    content, data = save_model(pool())
    with pytest.raises(LookupError):
        load_model({**content, "kind": "oracle"}, data)


def test_samples_are_cut_and_put_together() -> None:
    first = Sample(np.arange(6).reshape(3, 2), np.arange(6.0).reshape(3, 2))
    both = concatenate([first, first.take(np.asarray([2]))], 4)
    assert both.codes[:, 0].tolist() == [0, 2, 4, 4]
    assert both.positions is not None
    assert both.positions[:, 0].tolist() == [0.0, 2.0, 4.0, 4.0]
    assert concatenate([Sample(first.codes, None)], 1).positions is None
