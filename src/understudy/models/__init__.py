"""What a release holds and samples from. Every model is post-processing of released answers: free to sample and share.

`Model` is the protocol, `MODELS` the registry by `kind`, and `save_model` and `load_model` the way to a file and back.
A new model is a class with these methods, decorated with `@register`, and imported here.
"""

from understudy.models.bayesian_network import BayesianNetwork as BayesianNetwork
from understudy.models.generator import GeneratorModel as GeneratorModel
from understudy.models.generator import PosteriorModel as PosteriorModel
from understudy.models.graphical import GraphicalModel as GraphicalModel
from understudy.models.mixture import MixtureOfProducts as MixtureOfProducts
from understudy.models.pool import Mixture as Mixture
from understudy.models.pool import Pool as Pool
from understudy.models.protocol import MODELS as MODELS
from understudy.models.protocol import Model as Model
from understudy.models.protocol import Sample as Sample
from understudy.models.protocol import load_model as load_model
from understudy.models.protocol import save_model as save_model
from understudy.models.quail import QuailModel as QuailModel
