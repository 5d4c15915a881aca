"""The wheel and the source archive: what is in them, and that an empty environment without a network can use them.

Run with `make package-test`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from distribution import wheelhouse
from tests.conftest import ROOT

pytestmark = pytest.mark.package

OUTSIDE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UNDERSTUDY_DATA", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
"""Variables that would lend an installation something of this one."""


def tracked(folder: str) -> set[str]:
    """The files of a folder that git tracks, relative to it."""
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        str(Path(name).relative_to(folder)) for name in listed.stdout.split("\0") if name and (ROOT / name).exists()
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the clone."""
    folder = tmp_path_factory.mktemp("distribution")
    assert ROOT not in folder.parents
    return folder


@pytest.fixture(scope="module")
def archive(place: Path) -> Path:
    wheelhouse.copy_sources(place / "sources")
    (place / "archive").mkdir()
    return wheelhouse.build_archive(place / "sources", place / "archive")


@pytest.fixture(scope="module")
def wheel(archive: Path, place: Path) -> Path:
    (place / "wheel").mkdir()
    return wheelhouse.build_wheel(place / "sources", place / "wheel")


@pytest.fixture(scope="module")
def gathered(wheel: Path, place: Path) -> Path:
    """A wheelhouse without extras."""
    wheelhouse.gather(wheel, place / "wheelhouse")
    return place / "wheelhouse"


def offline() -> list[str]:
    """The beginning of a command without a network; empty where the system does not allow that."""
    begin = ["unshare", "--net", "--map-root-user"]
    allowed = shutil.which("unshare") and subprocess.run([*begin, "true"], capture_output=True).returncode == 0
    return begin if allowed else []


@pytest.fixture(scope="module")
def installed(gathered: Path, place: Path) -> Callable[..., str]:
    """Installs the wheelhouse in an empty environment, without a network; runs commands there, in another folder."""
    subprocess.run([sys.executable, "-m", "venv", str(place / "env")], check=True)
    (place / "work").mkdir()
    (place / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in OUTSIDE and "PIP_" not in name}
    environment |= {"HOME": str(place / "home"), "PIP_CONFIG_FILE": os.devnull}

    def execute(program: str, *arguments: str, code: int = 0) -> str:
        command = [*offline(), str(place / "env/bin" / program), *arguments]
        done = subprocess.run(command, cwd=place / "work", env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{program} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    requirements = str(gathered / wheelhouse.REQUIREMENTS)
    execute(
        "pip", "install", "--quiet", "--no-index", "--find-links", str(gathered), "--require-hashes", "-r", requirements
    )
    return execute


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == tracked("src")
    assert {Path(name).name for name in metadata} == {
        *("METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt", "top_level.txt")
    }


def test_the_archive_has_the_package_and_builds_the_same_wheel(archive: Path, wheel: Path, place: Path) -> None:
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames() if opened.getmember(name).isfile()}
        opened.extractall(place / "unpacked", filter="data")
    package = {f"src/{name}" for name in tracked("src")}
    written = {"PKG-INFO", "setup.cfg"} | {name for name in names if ".egg-info/" in name}
    kept = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "constraints.txt"}
    assert names == package | written | kept | {"pyproject.toml", "MANIFEST.in"}
    (unpacked,) = (place / "unpacked").iterdir()
    (place / "again").mkdir()
    again = zipfile.ZipFile(wheelhouse.build_wheel(unpacked, place / "again"))
    with zipfile.ZipFile(wheel) as first:
        assert {name: again.read(name) for name in again.namelist()} == {
            name: first.read(name) for name in first.namelist()
        }


def test_an_index_would_take_both(archive: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(archive), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metadata_names_every_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("METADATA"))
        metadata = opened.read(name).decode()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"^Provides-Extra: (.*)$", metadata, flags=re.MULTILINE)) == set(declared)


def test_a_changed_wheel_is_refused(gathered: Path, place: Path) -> None:
    """Both checks of the how-to page see one changed byte: that of the sums, and that of pip."""
    shutil.copytree(gathered, place / "changed")
    (victim,) = (place / "changed").glob("narwhals-*.whl")
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    sums = ["sha256sum", "--check", "--quiet", wheelhouse.CHECKSUMS]
    assert subprocess.run(sums, cwd=gathered, capture_output=True).returncode == 0
    assert subprocess.run(sums, cwd=place / "changed", capture_output=True).returncode != 0
    install = [sys.executable, "-m", "pip", "download", "--quiet", "--no-index", "--no-deps", "--require-hashes"]
    install += ["--find-links", ".", "-r", wheelhouse.REQUIREMENTS, "-d", str(place / "taken")]
    done = subprocess.run(install, cwd=place / "changed", capture_output=True, text=True)
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr


def test_versions_are_the_tested_ones(gathered: Path, installed: Callable[..., str]) -> None:
    listed = installed("pip", "list", "--format", "json")
    found = {_canonical(each["name"]): each["version"] for each in json.loads(listed)}
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    tested = {_canonical(name): version for name, version in pins}
    assert {name: version for name, version in found.items() if name not in ("pip", "setuptools", "understudy-dp")} == {
        name: tested[name] for name in found if name not in ("pip", "setuptools", "understudy-dp")
    }
    installed("pip", "check")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_python_imports_the_installed_package(installed: Callable[..., str], place: Path) -> None:
    program = "import understudy as us; print(us.__file__, us.MST().__class__.__name__, *sorted(us.__all__)[:1])"
    found = installed("python", "-c", program)
    assert found.startswith(str(place / "env"))


def test_the_demo_and_a_table_of_ones_own(installed: Callable[..., str], place: Path) -> None:
    """Without a network, another package or a file of the clone."""
    checks = installed("understudy", "doctor")
    assert "Private runs are possible." in checks
    assert re.search(r"ok +understudy-dp +\S+ \(not 'understudy', which is another project's\)", checks)
    installed("understudy", "demo", "--quiet")
    work = place / "work"
    assert {"synthetic.csv", "report.html", "schema.toml"} <= {
        path.name for path in (work / "understudy-demo").iterdir()
    }
    (work / "people.csv").write_text("smokes,age\n" + "yes,30\nno,50\n" * 100)
    installed(
        "understudy", "synth", "people.csv", "--epsilon", "1", "--method", "independent", "-o", "fake.csv", "-n", "50"
    )
    assert len((work / "fake.csv").read_text().splitlines()) == 51
    assert "fake.release" in {path.name for path in work.iterdir()}
    certificate = json.loads(
        installed("understudy", "certificate", "fake.release", "--json", "-", "--html", "page.html")
    )
    assert certificate["guarantee"]["epsilon"] <= 1
    assert "smoke" in installed("understudy", "benchmark", "suites")
    assert "independent" in installed("understudy", "audit", "--table")


def test_the_doctor_names_what_is_missing(installed: Callable[..., str]) -> None:
    """Even if the package itself cannot be imported any more. The last test: it breaks the environment."""
    installed("pip", "uninstall", "--quiet", "--yes", "narwhals")
    found = installed("understudy", "doctor", code=1)
    assert re.search(r"problem +narwhals +not installed\. Install Understudy again with pip\.", found)
    assert re.search(r"problem +trial run +failed \(ModuleNotFoundError\)", found)
