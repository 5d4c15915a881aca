"""What a release holds and samples from. Every model is post-processing of released answers: free to sample and share.

`Model` is the protocol, `MODELS` the registry by `kind`, and `save_model` and `load_model` the way to a file and back.
A new model is a class with these methods, decorated with `@register`, and imported here.
"""

from understudy.models.generator import GeneratorModel, PosteriorModel
from understudy.models.graphical import GraphicalModel
from understudy.models.mixture import MixtureOfProducts
from understudy.models.network import BayesianNetwork
from understudy.models.pool import Mixture, Pool
from understudy.models.protocol import MODELS, Model, Sample, load_model, register, save_model
from understudy.models.quail import QuailModel

__all__ = [
    "MODELS",
    "BayesianNetwork",
    "GeneratorModel",
    "GraphicalModel",
    "Mixture",
    "MixtureOfProducts",
    "Model",
    "Pool",
    "PosteriorModel",
    "QuailModel",
    "Sample",
    "load_model",
    "register",
    "save_model",
]
