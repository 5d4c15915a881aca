"""Damaged files of every kind: one line, exit code 2 and nothing left behind, or the file is read all the same.

200 files with the default suite; `make fuzz` damages 10,000 (`UNDERSTUDY_FUZZ` sets the number).
"""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.good_files import CANARY, KINDS, Kind, write_good_files
from tests.fuzz.mutations import damage_for
from understudy.cli import run

NUMBER = int(os.environ.get("UNDERSTUDY_FUZZ", "200"))
SECONDS = 30
"""More than this for a file of a few kilobytes counts as endless."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_good_files(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_files(
    kind: Kind, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    shutil.copytree(good, place)
    monkeypatch.chdir(place)
    before = contents(place)
    faults, refused, begun = [], 0, time.process_time()
    for command in dict.fromkeys(kind.commands):  # what damage is refused for must be read without it
        if command[0] != "fit" or NUMBER > 200:
            code, out, err = execute(list(command), capfd)
            assert code == 0, f"{' '.join(command)}: {err}"
            restore(place, before, contents(place))
    for number in range(-(-NUMBER // len(KINDS))):
        rng = random.Random(f"{kind.name} {number}")
        file, damaged = damage(kind, place, before, rng)
        arguments = list(rng.choice(kind.commands))
        code, out, err = execute(arguments, capfd)
        after = contents(place)
        refused += code == 2
        for fault in faults_in(kind, arguments, code, out, err, before | {file: damaged}, after):
            faults.append(f"{kind.name} {number} ({' '.join(arguments[:2])}, exit {code}): {fault}")
            if folder := os.environ.get("UNDERSTUDY_FUZZ_KEEP"):
                Path(folder, f"{number}-{Path(file).name}").write_bytes(damaged)
        restore(place, before, after)
    assert not faults, "\n".join(faults)
    print(f"{kind.name}: {refused} of {number + 1} refused, {time.process_time() - begun:.1f} s")


def damage(kind: Kind, place: Path, before: dict[str, bytes], rng: random.Random) -> tuple[str, bytes]:
    """Damages the file, or one file of the folder; gives its name and its content."""
    names = [name for name in before if name == kind.name or name.startswith(f"{kind.name}/")]
    name = rng.choice(names)
    content = damage_for(name)(before[name], rng)
    (place / name).write_bytes(content)
    return name, content


def execute(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with time_limit():
        try:
            code = run(arguments)
        except BaseException as error:  # a panic of a library in Rust is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            code = -1
            print(f"{type(error).__name__}: {error}")
    captured = capfd.readouterr()
    return code, captured.out, captured.err


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    usual = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)


def faults_in(
    kind: Kind,
    arguments: list[str],
    code: int,
    out: str,
    err: str,
    before: dict[str, bytes],
    after: dict[str, bytes],
) -> Iterator[str]:
    """What is wrong with how a command ended."""
    if code not in ((0, 1, 2) if kind.findings else (0, 2)) or "internal error" in err or "Traceback" in out + err:
        yield f"did not end well: {(out + err)[-300:]!r}"
        return
    if code == 2 and (len(err.splitlines()) != 1 or not err.startswith("understudy: ") or out):
        yield f"not one line: {(out + err)[-500:]!r}"
    if code == 2 and after != before:
        yield f"left behind: {sorted(name for name in {**before, **after} if before.get(name) != after.get(name))}"
    if code != 2:
        changed = [name for name in before if after.get(name) != before[name] and not name.startswith("people.book")]
        unknown = [name for name in after if name not in before and not name.startswith("new")]
        if changed or unknown:
            yield f"changed {changed}, wrote {unknown}"
    shown = out + err + after.get("new.toml", b"").decode(errors="replace")
    if CANARY in shown and not header_is_damaged(kind, before):
        yield f"shows a private value: {shown[-300:]!r}"


def header_is_damaged(kind: Kind, before: dict[str, bytes]) -> bool:
    """Names of columns are public: what damage moved into them may be shown."""
    content = before.get(kind.name, b"")
    good = b"name" in content.partition(b"\n")[0] and CANARY.encode() not in content.partition(b"\n")[0]
    return kind.name.endswith((".csv", ".tsv")) and not good


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def restore(place: Path, before: dict[str, bytes], after: dict[str, bytes]) -> None:
    for name in after.keys() - before.keys():
        (place / name).unlink()
    for name, content in before.items():
        if after.get(name) != content:
            (place / name).write_bytes(content)
    for folder in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
