"""The state that a resumed run needs: the secret of its noise and the state of its training, in a private folder.

All noise of a run is expanded from the secret, and everything else follows from the table, the settings and the noise:
wherever it was killed, and from any copy of the folder, a run resumes to the same release. The folder holds what no
release may contain, so only its owner can read it, it never lies inside a release, and it is deleted when the release
is saved. It belongs to one run: the same secret with another table or other settings would add the same noise to two
answers, and their difference would be exact. A keyed hash of the table, and the settings as text, identify the run.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from understudy.errors import CheckpointError, ConfigError
from understudy.run.atomic import explain_failure, require_free, sync

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]  # no module, so no lock

FORMAT = "understudy-checkpoint"
FORMAT_VERSION = 2
SECRET_BYTES = 32
RUN, RELEASED, SPENT, RESULT = "run.json", "released.txt", "spent.txt", "release.json"
BOOK = "book.json"
RESULTS = (r"model\.safetensors", r"certificate\.json", r"release\.json")
OWN = re.compile(
    rf"(run\.json|released\.txt|spent\.txt|book\.json|{'|'.join(RESULTS)}|training-\d+(-kept-\d+)?\.safetensors)(\.part)?"
)
"""The files that a checkpoint consists of."""

SECONDS = "UNDERSTUDY_CHECKPOINT_SECONDS"
"""Environment variable: how long a training's state may be only in memory. Default: a minute."""

Digest = Callable[[bytes], str]
"""From a key to the keyed hash of a table, by which a resumed run recognises it."""

Tree = TypeVar("Tree")
Part = TypeVar("Part")


def is_unfinished(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a run that can be resumed."""
    return (Path(folder) / RUN).exists()


def require_place(folder: str | os.PathLike[str], *, resume: bool) -> None:
    """Raises early, before anything is read, what `Checkpoint.open` would raise about the folder."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, expected a checkpoint folder. Move it.", reason="exists")
    if (folder.absolute().parent / RESULT).exists():
        raise CheckpointError(
            f"{folder} is inside a release, which is meant to be shared. Name a folder beside it.", reason="name"
        )
    if not folder.exists():
        require_free(folder, force=False)
    elif any(not OWN.fullmatch(name) for name in os.listdir(folder)):
        raise CheckpointError(
            f"{folder} contains files that are not part of a checkpoint, so it is not used. Move it.", reason="exists"
        )
    unfinished = is_unfinished(folder)
    if unfinished and not resume and (folder / SPENT).exists():
        raise CheckpointError(
            f"{folder} holds a run that failed and has spent its budget. --resume (resume=True) repeats it with the "
            "same noise. To start a new run, delete that folder. A new run spends a budget of its own.",
            reason="spent",
        )
    if resume and not unfinished:
        raise CheckpointError(
            f"There is nothing to resume: {folder} holds no unfinished run. Run without --resume.", reason="missing"
        )
    if unfinished and not resume:
        raise CheckpointError(
            f"{folder} holds an unfinished run. Continue it with --resume (resume=True), or delete that folder to "
            "start a new run. If anyone has seen the folder or rows of its release, count its budget as spent.",
            reason="exists",
        )
    if unfinished:
        _require_own(folder)


def _require_own(folder: Path) -> None:
    """Refuses a folder that others can read or write: noise that they know protects nothing."""
    status = folder.stat()
    foreign = hasattr(os, "geteuid") and status.st_uid != os.geteuid()
    if foreign or (os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077):
        raise CheckpointError(
            f"Other users can read or write {folder}, so the noise of its run is not secret. Delete it and start a "
            "new run; or, if no one else has had access, 'chmod 700' it and resume.",
            reason="open",
        )


class Checkpoint:
    """The folder of one unfinished run. `with` closes it; it is deleted if the run failed before its first charge."""

    def __init__(self, folder: Path, secret: bytes, lock: int | None, *, resumed: bool):
        self.folder, self._secret, self._lock = folder, secret, lock
        self._slots, self._seconds = 0, _seconds()
        self.is_charged = resumed
        """Whether a query was charged, in this process or an earlier one: then a failed run keeps its secret."""

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        tables: Mapping[str, Digest],
        facts: Mapping[str, str],
        *,
        resume: bool = False,
    ) -> "Checkpoint":
        """A new checkpoint for this run, or with `resume` the one that it left, if it is the same run.

        `tables` are compared by keyed hashes, `facts` (everything else that the result follows from) as strings.
        """
        folder = Path(os.path.realpath(folder))
        _seconds()
        require_place(folder, resume=resume)
        with explain_failure(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not os.listdir(folder):
                folder.chmod(0o700)  # an empty folder holds no secret yet
            sync(folder.parent)
        lock = _lock(folder)
        try:
            require_place(folder, resume=resume)  # again: another process may have been quicker
            _require_own(folder)
            secret = _secret_of(folder, tables, facts) if resume else _start_run(folder, tables, facts)
            return cls(folder, secret, lock, resumed=resume)
        except BaseException:
            _unlock(lock)
            raise

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        # An interrupted training can continue, also without a guarantee; where nothing was spent, a failed one is over.
        was_interrupted = not isinstance(error, Exception) and any(self.folder.glob("training-*"))
        if error is not None and not self.is_charged and not was_interrupted:
            self.delete()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Copied and pickled releases have no checkpoint."""
        return type(None), ()

    def close(self) -> None:
        """Releases the lock, so that another process can resume the run."""
        _unlock(self._lock)
        self._lock = None

    @property
    def secret(self) -> bytes:
        """The secret that all noise of the run is expanded from: the same in every process that runs or resumes it.

        It is on disk before this can be read, so no noise is lost when a process dies.
        """
        return self._secret

    def slot(self) -> "Slot":
        """Storage for the state of one training; slots are numbered in the order in which trainings start."""
        self._slots += 1
        return Slot(self.folder, self._slots, self._seconds)

    @property
    def is_finished(self) -> bool:
        """Whether the run has finished: its result is in the folder."""
        return (self.folder / RESULT).exists()

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Writes the files of the run's result: from here on, resuming returns it and computes nothing."""
        for name in sorted(files, key=lambda name: name == RESULT):  # that one last: it marks the others as complete
            _write(self.folder / name, files[name])

    def note_release(self, digest: str) -> None:
        """Records the digest of the release, just before the release is moved into place."""
        if self._is_mine():
            _write(self.folder / RELEASED, digest.encode())

    @property
    def spent_record(self) -> Path | None:
        """The folder that records what this run spent, if it has failed before; else None."""
        noted = _noted(self.folder / SPENT)
        return Path(noted.decode()) if noted and Path(noted.decode()).is_dir() else None

    def note_spent(self, record: Path) -> None:
        """Records that the run failed after its first charge, and the folder of its statement."""
        _write(self.folder / SPENT, str(record).encode())

    def note_reservation(self, entry: bytes) -> None:
        """Records the entry of the budget book that covers this run, before its first query."""
        _write(self.folder / BOOK, entry)

    def delete(self) -> None:
        """Deletes the checkpoint, its first file first, so that an interrupted deletion leaves nothing to resume."""
        if self._is_mine():
            with explain_failure(self.folder):
                (self.folder / RUN).unlink()
                sync(self.folder)
                shutil.rmtree(self.folder)

    def _is_mine(self) -> bool:
        """Whether the folder still holds this run, and not a later one of the same name."""
        try:
            return bool(json.loads((self.folder / RUN).read_bytes())["secret"] == self._secret.hex())
        except (OSError, ValueError, LookupError, TypeError):
            return False


def release_of(folder: str | os.PathLike[str]) -> str | None:
    """The digest of the release that the run in this folder was about to move into place; None before that."""
    noted = _noted(Path(folder) / RELEASED)
    return None if noted is None else noted.decode()


def reservation_of(folder: str | os.PathLike[str]) -> bytes | None:
    """The entry of the budget book that covers the run in this folder; None: there is none."""
    return _noted(Path(folder) / BOOK)


def _noted(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


class Slot:
    """The saved state of one training: written at most once a minute, atomically."""

    def __init__(self, folder: Path, number: int, seconds: float):
        self._folder, self._name, self._seconds = folder, f"training-{number}", seconds
        self._saved, self._num_kept = time.monotonic(), 0

    def offer(self, state: object, kept: Sequence[object] = (), *, now: bool = False) -> None:
        """Writes the state if it is due, and the new entries of `kept`, a list that only grows."""
        if time.monotonic() - self._saved < self._seconds and not now:
            return
        for number in range(self._num_kept, len(kept)):
            self._write(f"{self._name}-kept-{number}", kept[number], {})
        self._num_kept = len(kept)
        self._write(self._name, state, {"kept": str(len(kept))})  # last: it marks the others as complete
        self._saved = time.monotonic()

    def load(self, like: Tree, like_kept: Part | None = None) -> tuple[Tree, list[Part]] | None:
        """The last state and what was kept until then, in the forms of `like` and `like_kept`; None: nothing saved."""
        found = self._read(self._name, like)
        if found is None:
            return None
        state, metadata = found
        kept = [self._read(f"{self._name}-kept-{number}", like_kept) for number in range(int(metadata["kept"]))]
        if None in kept:
            raise self._damage_error()
        self._num_kept = len(kept)
        return state, [jax.device_get(each[0]) for each in kept if each is not None]

    def _write(self, name: str, tree: object, metadata: dict[str, str]) -> None:
        leaves = jax.device_get(jax.tree_util.tree_leaves(eqx.filter(tree, eqx.is_array)))
        arrays = {str(number): np.asarray(leaf, order="C") for number, leaf in enumerate(leaves)}
        metadata = {**metadata, "digest": _digest_of(list(arrays.values()), metadata)}
        _write(self._folder / f"{name}.safetensors", safetensors.numpy.save(arrays, metadata=metadata))

    def _read(self, name: str, like: Tree) -> tuple[Tree, dict[str, str]] | None:
        path = self._folder / f"{name}.safetensors"
        if not path.exists():
            return None
        arrays, rest = eqx.partition(like, eqx.is_array)
        leaves, form = jax.tree_util.tree_flatten(arrays)
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                metadata = dict(file.metadata() or {})
                tensors = [file.get_tensor(str(number)) for number in range(len(leaves))]
        except (OSError, safetensors.SafetensorError) as error:
            raise self._damage_error() from error
        if metadata.pop("digest", None) != _digest_of(tensors, metadata):  # it would give another release
            raise self._damage_error()
        if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(tensors, leaves, strict=True)):
            raise self._damage_error()
        return eqx.combine(jax.tree_util.tree_unflatten(form, list(map(jnp.asarray, tensors))), rest), metadata

    def _damage_error(self) -> CheckpointError:
        return CheckpointError(
            f"The state of the training in {self._folder} cannot be read. Delete the files {self._name}* in it; the "
            "run then repeats the training from its first step.",
            reason="edited",
        )


def _digest_of(arrays: Sequence[np.ndarray], metadata: Mapping[str, str]) -> str:
    digest = hashlib.blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=32)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _start_run(folder: Path, tables: Mapping[str, Digest], facts: Mapping[str, str]) -> bytes:
    """Writes the facts that identify the run, and returns its secret."""
    for leftover in folder.iterdir():  # of a run that was killed while it started or ended
        leftover.unlink()
    secret = secrets.token_bytes(SECRET_BYTES)
    run = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "secret": secret.hex(),
        "check": _derive_key(secret, "check").hex(),
        "tables": {name: digest(_derive_key(secret, "tables")) for name, digest in tables.items()},
        "facts": dict(facts),
    }
    _write(folder / RUN, json.dumps(run, indent=1, ensure_ascii=False).encode())
    return secret


def _derive_key(secret: bytes, purpose: str) -> bytes:
    """A separate key for each purpose, so that the secret itself is used only for noise."""
    return hashlib.blake2b(purpose.encode(), key=secret, digest_size=32).digest()


def _secret_of(folder: Path, tables: Mapping[str, Digest], facts: Mapping[str, str]) -> bytes:
    """The secret of the run in this folder, if it is the same run."""
    try:
        run = json.loads((folder / RUN).read_bytes())
        if (run["format"], run["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError("another format")
        secret, old_tables, old_facts = bytes.fromhex(run["secret"]), dict(run["tables"]), dict(run["facts"])
        # A damaged secret would give other noise: a second answer to a query that may already have been answered.
        if len(secret) != SECRET_BYTES or not hmac.compare_digest(run["check"], _derive_key(secret, "check").hex()):
            raise ValueError("damaged")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{folder} cannot be read ({type(error).__name__}), so its run cannot be resumed. Delete it and start a "
            "new run.",
            reason="edited",
        ) from error
    for name in sorted({*old_facts, *facts}):
        old, new = old_facts.get(name, "none"), facts.get(name, "none")
        if old != new:
            short = len(old) + len(new) <= 160 and "\n" not in old + new
            raise _other_run(folder, f"the {name}", f" (was {old}, is now {new})" if short else "")
    for name in sorted({*old_tables, *tables}):
        if name not in tables or old_tables.get(name) != tables[name](_derive_key(secret, "tables")):
            raise _other_run(folder, f"the {name}")
    return secret


def _other_run(folder: Path, what: str, details: str = "") -> CheckpointError:
    return CheckpointError(
        f"{folder.name} is the checkpoint of another run: {what} differs{details}. It is not resumed, because the "
        "same noise on two answers reveals their difference. Resume with the original table and settings, or delete "
        "the folder to start a new run.",
        reason="other run",
    )


def _seconds() -> float:
    text = os.environ.get(SECONDS, "60")
    with contextlib.suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise ConfigError(f"{SECONDS} must be a number of seconds, at least 0, found {text!r}.")


def _lock(folder: Path) -> int | None:
    """A lock that is released when the process ends in any way."""
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CheckpointError(
            f"The run in {folder} is still running in another process. Wait for it to finish.", reason="in use"
        ) from None
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _write(path: Path, data: bytes) -> None:
    """Writes atomically, readable by the owner alone."""
    part = path.with_name(f"{path.name}.part")
    with explain_failure(path):
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
        sync(part)
        os.replace(part, path)
        sync(path.parent)
