"""What neural methods have in common outside: `fit` and `trajectory`, given their training."""

import abc
import dataclasses
import functools
from collections.abc import Callable

import jax

from understudy.errors import ConfigError
from understudy.models.generator import GeneratorModel
from understudy.models.neural import GeneratorNetwork
from understudy.synthesizers.run import Run
from understudy.synthesizers.settings import check_settings
from understudy.training.critics import Conditions
from understudy.training.loop import RunOptions, TrainingCheckpoint, TrainingState
from understudy.training.prepare import Prepared
from understudy.training.trajectory import Trajectory, score_by_critics


@dataclasses.dataclass(frozen=True)
class Trained:
    """The final state of a training, its trajectory, and the function that makes a model of a generator."""

    state: TrainingState
    checkpoints: list[TrainingCheckpoint]
    model_of: Callable[[GeneratorNetwork], GeneratorModel]


class NeuralMethod(abc.ABC):
    """A method that trains a generator, perhaps from a public table on."""

    @abc.abstractmethod
    def _train(self, run: Run, options: RunOptions) -> Trained:
        """Make the plan's queries. `options` are those of the training that the trajectory is taken of."""

    def fit(self, run: Run) -> GeneratorModel:
        """Formal guarantee: the cost of the plan's queries; generators, averages and clip bounds are post-processing.

        Rows of a public table train the networks first, and may set clip bounds. They are not protected.
        """
        trained = self._train(run, RunOptions(progress=run.progress))
        return trained.model_of(jax.device_get(trained.state.average))

    def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
        """Generators, averaged, and critics of the last `checkpoints` states. Formal guarantee: that of `fit`."""
        trained = self._train(run, RunOptions(keep_every=every, keep_last=checkpoints, progress=run.progress))
        models = tuple(trained.model_of(jax.device_get(state.average)) for state in trained.checkpoints)
        blocks, layout, is_conditional = models[0].blocks, models[0].layout, models[0].marginal is not None
        wanted = None if layout is None else [column is not None for column in layout.discrete]
        networks = [state.critic for state in trained.checkpoints]
        score = functools.partial(score_by_critics, networks, blocks, conditional=is_conditional, wanted=wanted)
        accelerator = next((device for device in jax.devices() if device.platform != "cpu"), None)
        return Trajectory(models, score(), layout, None if accelerator is None else score(device=accelerator))


class TargetMethod(NeuralMethod):
    """A neural method whose generator may take a condition, and may be held to noisy marginals with the target.

    For a class that has these settings among its own: which come first is said there.
    """

    features: str
    marginals_fraction: float
    target_fraction: float

    def __post_init__(self) -> None:
        check_settings(self)
        if self.marginals_fraction + self.target_fraction >= 1:
            raise ConfigError(
                "marginals_fraction and target_fraction together leave no budget for training. Lower them.",
                setting="marginals_fraction",
            )

    @property
    def _holds_target(self) -> bool:
        """Whether marginals with the target are measured, if there is one."""
        return self.marginals_fraction > 0 and self.target_fraction > 0 and self.features == "binned"

    def _conditions(self, prepared: Prepared, num_rows: int) -> Conditions | None:
        """None: the generator takes no condition."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConditionalMethod(TargetMethod):
    """A neural method whose generator takes a category of a column as its condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.marginals_fraction:
            raise ConfigError(
                "marginals_fraction must be positive: conditions are drawn from noisy marginals.",
                setting="marginals_fraction",
            )

    def _conditions(self, prepared: Prepared, num_rows: int) -> Conditions | None:
        return prepared.conditions(num_rows)
