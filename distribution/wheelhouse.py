"""Builds the wheel and the source archive, or gathers a wheelhouse: all that an installation without a network needs.

    python distribution/wheelhouse.py dist                          # the wheel and the source archive
    python distribution/wheelhouse.py wheelhouse --extras pandas    # the wheel, its dependencies, and their hashes

Wheels are gathered for the system and the version of Python that this script runs with.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE_NAME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"].replace("-", "_")
"""How the names of the wheel and the source archive begin."""
REQUIREMENTS, CHECKSUMS = "requirements.txt", "SHA256SUMS"


def copy_sources(folder: Path) -> None:
    """Copies what git tracks. Building in place would pack what earlier builds left in `build/`."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def build_wheel(sources: Path, out: Path) -> Path:
    """Builds the wheel of a source folder, with the setuptools of this environment."""
    _pip("wheel", "--no-deps", "--no-build-isolation", str(sources), "--wheel-dir", str(out))
    (wheel,) = out.glob(f"{FILE_NAME}-*.whl")
    return wheel


def build_archive(sources: Path, out: Path) -> Path:
    """Builds the source archive of a source folder."""
    program = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", program, str(out.absolute())]
    subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL)
    (archive,) = out.glob(f"{FILE_NAME}-*.tar.gz")
    return archive


def gather(wheel: Path, folder: Path, extras: Iterable[str] = ()) -> None:
    """Gathers a wheel and its dependencies, at the tested versions, with `requirements.txt` and `SHA256SUMS`."""
    asked = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    _pip("wheel", "--constraint", str(ROOT / "constraints.txt"), "--wheel-dir", str(folder), asked)
    write_hashes(folder)


def write_hashes(folder: Path) -> None:
    """Writes what `pip install --require-hashes` and `sha256sum --check` read."""
    pinned, sums = [], []
    for wheel in sorted(folder.glob("*.whl")):
        name, version, _ = wheel.name.split("-", 2)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        pinned.append(f"{name}=={version} --hash=sha256:{digest}\n")
        sums.append(f"{digest}  {wheel.name}\n")
    (folder / REQUIREMENTS).write_text("".join(pinned))
    sums.append(f"{hashlib.sha256((folder / REQUIREMENTS).read_bytes()).hexdigest()}  {REQUIREMENTS}\n")
    (folder / CHECKSUMS).write_text("".join(sums))


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="A new or empty folder.")
    parser.add_argument("--extras", help="Gather a wheelhouse with these extras, separated by commas ('': none).")
    options = parser.parse_args()
    if options.folder.exists() and any(options.folder.iterdir()):
        sys.exit(f"{options.folder} is not empty. Delete it, or name another folder.")
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as inside:
        sources, built = Path(inside) / "sources", Path(inside) / "built"
        copy_sources(sources)
        built.mkdir()
        if options.extras is None:
            build_archive(sources, options.folder)
            build_wheel(sources, options.folder)
        else:
            gather(build_wheel(sources, built), options.folder, [name for name in options.extras.split(",") if name])


if __name__ == "__main__":
    main()
