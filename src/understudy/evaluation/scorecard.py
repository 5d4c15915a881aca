"""The scorecard: all scores of one real table and any number of synthetic ones, as one JSON document.

Each score comes with its direction, range, meaning, status and the score of real rows. A scorecard contains statistics
of the real rows and is not covered by any guarantee: its first line says so.
"""

import difflib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import ConfigError
from understudy.evaluation.scores import Direction, Json
from understudy.run.atomic import write_file
from understudy.summary import Summarized, Summary

if TYPE_CHECKING:
    import pandas as pd

    from understudy.evaluation.plot import Plot

FORMAT = "understudy-scorecard"
VERSION = 2
WARNING = "Contains statistics of the real rows. Not covered by the privacy guarantee: do not publish."
REAL = "real"
"""The name of real rows beside the synthetic tables."""
_PARTS = {"real": Mapping, "holdout": Mapping, "synthetic": Sequence, "metrics": Sequence, "details": Mapping}


class Scorecard(Summarized, Mapping[str, object]):
    """A finished scorecard: the JSON document, and ways to read it.

    `scorecard["tv1"]` is a number if one synthetic table was evaluated, otherwise a dict with a number for each.

    Args:
        content: The JSON document, as `evaluate` makes and `to_json` returns it.

    >>> import pyarrow as pa, understudy as us
    >>> table = pa.table({"member": ["yes", "no"] * 50})
    >>> scorecard = us.evaluate(table, table, holdout=table, metrics=["tv1"], effort="quick")
    >>> scorecard["tv1"], scorecard.reference("tv1"), list(scorecard)
    (0.0, 0.0, ['tv1'])
    """

    def __init__(self, content: object) -> None:
        self._content = check_document(content)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the synthetic tables."""
        return tuple(table["name"] for table in self._content["synthetic"])

    def __getitem__(self, key: str) -> object:
        entry = self._entry(key)
        values = {name: _number(score) for name, score in entry["values"].items()}
        return values if len(values) > 1 else next(iter(values.values()))

    def __iter__(self) -> Iterator[str]:
        return (entry["key"] for entry in self._content["metrics"])

    def __len__(self) -> int:
        return len(self._content["metrics"])

    def reference(self, key: str) -> float:
        """The score of real rows; NaN if there is none."""
        reference = self._entry(key)["reference"]
        return math.nan if reference is None else _number(reference)

    def status(self, key: str, method: str | None = None) -> str:
        """Whether there is a number, and if not, the kind of reason: a value of `scores.Status`."""
        return str(self._entry(key)["values"][self.methods[0] if method is None else method]["status"])

    def why(self, key: str, method: str | None = None) -> str:
        """Why there is no number, as a sentence; empty if there is one."""
        return str(self._entry(key)["values"][self.methods[0] if method is None else method]["why"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before trusting the scores, one sentence each."""
        return tuple(self._content.get("warnings", ()))

    def to_json(self) -> Json:
        """The whole document."""
        return self._content

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the document as JSON, atomically.

        Args:
            path: The file; never in a release, which may be shared.
            force: Replace an existing file.

        Raises:
            ConfigError: The file is in a release.
            TableError: The file exists, or cannot be written.
        """
        text = json.dumps(self._content, ensure_ascii=False, allow_nan=False)
        write_confidential(path, f"{text}\n".encode(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Scorecard":
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The scorecard.

        Raises:
            ConfigError: The file cannot be read, or holds no scorecard.
        """
        try:
            content = json.loads(Path(path).read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"There is no file {path}.") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError):
            raise ConfigError(f"{path} is not JSON. Expected a scorecard, from 'understudy evaluate --json'.") from None
        return cls(content)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per metric: key, title, a number for each table, that of real rows, and the direction."""
        import pandas as pd

        rows = [
            {
                "key": entry["key"],
                "title": entry["title"],
                **{name: _number(entry["values"][name]) for name in self.methods},
                REAL: self.reference(entry["key"]),
                "direction": Direction(entry["direction"]).text,
            }
            for entry in self._content["metrics"]
        ]
        return pd.DataFrame(rows)

    def plot(self) -> "Plot":
        """The key scores beside those of real rows, as a drawing: shown by a notebook, or saved as SVG.

        The drawing needs no other library, and its file opens in browsers, word processors and vector editors.
        """
        from understudy.evaluation.plot import plot_scores

        shown = self._shown_entries()
        rows = [(entry["title"], entry["direction"], self._numbers(entry)) for entry in shown]
        return plot_scores((*self.methods, REAL), rows)

    def summary(self) -> Summary:
        """The key scores, below the warning."""
        rows = []
        for entry in self._shown_entries():
            cells = ["-" if math.isnan(number) else f"{number:.4g}" for number in self._numbers(entry)]
            rows.append((entry["key"], *cells, Direction(entry["direction"]).text))
        more = f"{len(self)} scores in all: scorecard.to_pandas(). As a plot: scorecard.plot()."
        return Summary(WARNING, {}, ("score", *self.methods, REAL, ""), rows, (*self.warnings, more))

    def _shown_entries(self) -> list[Json]:
        """The key scores that were computed; if there are none, all that were."""
        entries = [entry for entry in self._content["metrics"] if not all(map(math.isnan, self._numbers(entry)[:-1]))]
        return [entry for entry in entries if entry.get("key_score")] or entries

    def _numbers(self, entry: Json) -> list[float]:
        """The score of each table, and that of real rows."""
        return [*(_number(entry["values"][name]) for name in self.methods), self.reference(entry["key"])]

    def _entry(self, key: str) -> Json:
        entry: Json
        for entry in self._content["metrics"]:
            if entry["key"] == key:
                return entry
        keys = list(self)
        group = [entry["key"] for entry in self._content["metrics"] if entry["group"] == key]
        close = group or difflib.get_close_matches(str(key), keys, n=3) or [k for k in keys if str(key) in k][:5]
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise KeyError(f"{key!r} is not in this scorecard.{hint}")


def _number(score: Json) -> float:
    return math.nan if score["value"] is None else score["value"]


def check_document(content: object) -> Json:
    """The document, if it is a scorecard of this version with all its parts."""
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise ConfigError("This is not a scorecard. Expected JSON as written by 'understudy evaluate --json'.")
    if content.get("version") != VERSION:
        raise ConfigError(
            f"This scorecard has version {repr(content.get('version'))[:20]}; this version of Understudy reads version"
            f" {VERSION}. Evaluate again, or use the version of Understudy that wrote it."
        )
    wrong = next((key for key, kind in _PARTS.items() if not isinstance(content.get(key), kind)), None)
    if wrong is not None or not content["synthetic"]:
        raise ConfigError(
            f"This scorecard is damaged: {wrong or 'synthetic'!r} is missing or malformed. Evaluate again."
        )
    try:
        names = {table["name"] for table in content["synthetic"]}
        absent = next((metric["key"] for metric in content["metrics"] if not names <= set(metric["values"])), None)
    except (TypeError, LookupError):
        raise ConfigError("This scorecard is damaged: a table or metric is malformed. Evaluate again.") from None
    if absent is not None:
        raise ConfigError(f"This scorecard is damaged: {absent!r} has no value for one of the tables. Evaluate again.")
    return dict(content)


def refuse_release(path: str | os.PathLike[str]) -> None:
    """Refuse to write into a release folder: it may be shared, and scores of real rows are not private."""
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / "release.json").is_file():
            raise ConfigError(
                f"{path} is inside the release {folder}, which may be shared, and scores computed from real rows are"
                " not private. Choose another folder.",
                setting="path",
            )


def write_confidential(path: str | os.PathLike[str], content: bytes, *, force: bool, mode: int | None = None) -> None:
    """Write statistics of real rows, whole or not at all, and outside of releases. `mode`: who may read the file."""
    refuse_release(path)
    write_file(path, content, force=force, mode=mode)
