"""The environment of a peer: an interpreter of its own, with the packages that the peer's file names."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.description import Peer, accepts_python
from understudy.benchmark.peers import PeerError

try:
    import fcntl
except ImportError:  # Windows: builds are not locked
    fcntl = None  # type: ignore[assignment]

STAMP = "environment.json"
"""Written last: an environment without it is incomplete."""

BUILD_SECONDS = 3600.0

VERSIONS = (
    "import importlib.metadata as m, json, sys; print(json.dumps({'python': sys.version.split()[0], 'packages': "
    "dict(sorted((d.metadata['Name'], d.version) for d in m.distributions()))}))"
)
"""A program that lists what an environment contains."""


def build_environment(peer: Peer, root: Path, *, timeout: float = BUILD_SECONDS) -> Path:
    """The folder of the peer's environment, which is built if it does not exist.

    Its name contains a hash of what is installed, so changing the peer's packages makes a new one. Processes that
    need the same environment wait for the one that builds it. A failed build leaves nothing.
    """
    root = root.resolve()  # adapters run in another folder
    folder = root / f"{peer.name}-{_environment_hash(peer)}"
    if (folder / STAMP).exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with _lock_file(root / f".{folder.name}.lock"):
        if (folder / STAMP).exists():  # another process built it first
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _fill_environment(peer, folder, timeout)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder


def peer_version(peer: Peer, environment: Path) -> str | None:
    """The installed version of the peer; None if it installs nothing."""
    if peer.distribution is None:
        return None
    packages = json.loads((environment / STAMP).read_text())["packages"]
    wanted = _plain_name(peer.distribution)
    return next((version for name, version in packages.items() if _plain_name(name) == wanted), None)


def _fill_environment(peer: Peer, folder: Path, timeout: float) -> None:
    pip = [] if peer.packages else ["--without-pip"]
    _run_step(peer, [find_interpreter(peer.python), "-m", "venv", *pip, str(folder)], timeout)
    python = str(environment_python(folder))
    if peer.packages:
        install = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        _run_step(peer, [*install, *peer.packages], timeout)
        if peer.without_dependencies:
            _run_step(peer, [*install, "--no-deps", *peer.without_dependencies], timeout)
    stamp = json.loads(_run_step(peer, [python, "-c", VERSIONS], timeout))
    part = folder / f"{STAMP}.part"
    part.write_text(
        json.dumps({**stamp, "requirements": [*peer.packages, *peer.without_dependencies]}, indent=1) + "\n"
    )
    part.replace(folder / STAMP)


def _run_step(peer: Peer, command: Sequence[str], timeout: float) -> str:
    """Runs one step of a build and returns what it wrote."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment_variables())
    except subprocess.TimeoutExpired:
        raise PeerError(f"{peer.title} was not installed within {timeout:g} s.", reason="install") from None
    except OSError as error:
        raise PeerError(f"{peer.title} cannot be installed: {error.strerror}.", reason="install") from None
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        said = errors[-1].removeprefix("ERROR:").strip() if errors else last_line(done.stderr or done.stdout)
        raise PeerError(f"{peer.title} cannot be installed: {said}", reason="install")
    return done.stdout


def environment_python(environment: Path) -> Path:
    """The interpreter of an environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def find_interpreter(wanted: str) -> str:
    """A Python of the wanted version on this machine: the running one, one on the PATH, or one from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = [shutil.which(f"python3.{minor}") for minor in range(20, 7, -1)]
    for command in (sys.executable, *on_path, *map(str, sorted(pyenv.glob("versions/3.*/bin/python")))):
        if command is not None and accepts_python(wanted, _version_of(command)):
            return command
    raise PeerError(
        f"There is no Python {wanted} on this machine. Install one, or add it to the PATH.", reason="install"
    )


def _version_of(command: str) -> tuple[int, ...]:
    """The first two numbers of an interpreter's version; none if it does not start."""
    program = "import sys; print(*sys.version_info[:2])"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run([command, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        return tuple(int(part) for part in found.stdout.split())
    return ()


def _environment_hash(peer: Peer) -> str:
    content = json.dumps([peer.python, *peer.packages, *peer.without_dependencies]).encode()
    return hashlib.sha256(content).hexdigest()[:12]


def _plain_name(distribution: str) -> str:
    return distribution.lower().replace("-", "_").replace(".", "_")


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Waits for a lock that is released however the process ends."""
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment_variables() -> dict[str, str]:
    """Those of this process, without what would change the peer's Python or its JAX."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX_", "VIRTUAL_ENV"))}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def last_line(text: str) -> str:
    """The last line that contains words, as the reason for a failure: nested messages end in lines of brackets."""
    lines = [line.strip() for line in text.splitlines() if any(character.isalpha() for character in line)]
    return lines[-1][:300] if lines else "it gave no reason."
