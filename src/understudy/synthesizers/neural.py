"""What neural methods have in common outside: `fit` and `trajectory`, given their training."""

import abc
import dataclasses
from collections.abc import Callable

from jaxtyping import PRNGKeyArray

from understudy.models.generator import GeneratorModel
from understudy.privacy.ledger import Ledger, Plan
from understudy.privacy.rows import PrivateRows, PublicRows
from understudy.progress import Progress
from understudy.training.loop import RunOptions, TrainingCheckpoint, TrainingState
from understudy.training.trajectory import Trajectory, score_by_critics


@dataclasses.dataclass(frozen=True)
class Trained:
    """The end of a training, its trajectory, and what makes a model of one of its states."""

    state: TrainingState
    checkpoints: list[TrainingCheckpoint]
    model_of: Callable[[TrainingState], GeneratorModel]


class NeuralMethod(abc.ABC):
    """A method that trains a generator, perhaps from a public table on."""

    @abc.abstractmethod
    def _train(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        options: RunOptions,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None,
    ) -> Trained:
        """Make the plan's queries. `options` are those of the training that the trajectory is taken of."""

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> GeneratorModel:
        """Formal guarantee: the cost of the plan's queries; generators, averages and clip bounds are post-processing.

        Rows of a `public` table train the networks first, and may set clip bounds. They are not protected.
        """
        trained = self._train(rows, plan, ledger, RunOptions(progress=progress), key=key, public=public)
        return trained.model_of(trained.state)

    def trajectory(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        checkpoints: int,
        every: int,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Generators, averaged, and critics of the last `checkpoints` states. Formal guarantee: that of `fit`."""
        options = RunOptions(keep_every=every, keep_last=checkpoints, progress=progress)
        trained = self._train(rows, plan, ledger, options, key=key, public=public)
        models = tuple(trained.model_of(state) for state in trained.checkpoints)
        blocks, layout, is_conditional = models[0].blocks, models[0].layout, models[0].marginal is not None
        wanted = None if layout is None else [column is not None for column in layout.discrete]
        networks = [state.critic for state in trained.checkpoints]
        return Trajectory(models, score_by_critics(networks, blocks, conditional=is_conditional, wanted=wanted), layout)
