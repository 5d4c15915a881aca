"""The `Model` protocol, the registry of models by kind, and how a model is written and read back."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import safetensors.numpy
from jaxtyping import Bool, Float, Int, PRNGKeyArray

Structure = Mapping[str, Any]
"""Values as JSON holds them."""
Arrays = Mapping[str, np.ndarray]
Allowed = Mapping[str, Bool[np.ndarray, " codes"]]
"""For some columns, the codes that a row may have there. A row must meet the condition of every column named."""


class Sample(NamedTuple):
    """Encoded synthetic rows."""

    codes: Int[np.ndarray, "rows columns"]
    positions: Float[np.ndarray, "rows columns"] | None
    """Of numbers between their bounds, NaN where a value follows from its code; None: all values do."""

    def take(self, chosen: np.ndarray) -> "Sample":
        """These rows: indices, a mask or a slice of indices."""
        return Sample(self.codes[chosen], None if self.positions is None else self.positions[chosen])


def concatenate(samples: Sequence[Sample], num_rows: int) -> Sample:
    """The first `num_rows` rows of several samples."""
    codes, positions = zip(*samples, strict=True)
    return Sample(
        np.concatenate(codes)[:num_rows], None if positions[0] is None else np.concatenate(positions)[:num_rows]
    )


@runtime_checkable
class Model(Protocol):
    """A distribution over encoded rows, as a release holds it.

    >>> import pyarrow as pa
    >>> import understudy as us
    >>> schema = us.Schema(columns=(us.Column(name="member", kind="boolean", nullable=False),))
    >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
    >>> isinstance(release.model, us.Model), release.model.names
    (True, ('member',))
    """

    kind: ClassVar[str]
    """Its name in a release."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in the order of the codes."""

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. With `allowed`, rows that meet it, distributed as the model's rows that do."""

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """The structure, as JSON holds it, and the arrays by name."""

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "Model":
        """The model that `to_arrays` described; raises ValueError or LookupError where the two do not fit."""


AnyModel = TypeVar("AnyModel", bound=Model)

MODELS: dict[str, type[Model]] = {}
"""Every kind of model that a release can hold."""


def register(cls: type[AnyModel]) -> type[AnyModel]:
    """A class decorator: adds a model to the registry."""
    MODELS[cls.kind] = cls
    return cls


def pack(model: Model) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """A model as JSON values that name its kind, and arrays."""
    structure, arrays = model.to_arrays()
    return {"kind": model.kind, "structure": structure}, arrays


def unpack(content: Structure, arrays: Arrays) -> Model:
    """The model that `pack` described."""
    return MODELS[content["kind"]].from_arrays(content["structure"], arrays)


def nest(parts: Mapping[str, Arrays]) -> dict[str, np.ndarray]:
    """The arrays of several parts in one mapping, each under `part/name`."""
    return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def unnest(arrays: Arrays, part: str) -> dict[str, np.ndarray]:
    """The arrays of one part, under their own names."""
    start = f"{part}/"
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def save_model(model: Model) -> tuple[dict[str, object], bytes]:
    """A model as JSON values and the bytes of a safetensors file."""
    content, arrays = pack(model)
    return content, safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def load_model(content: Structure, data: bytes) -> Model:
    """The model that `save_model` wrote. Runs no code from the file."""
    return unpack(content, safetensors.numpy.load(data))
