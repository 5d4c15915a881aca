"""One small release, and bundles of it: made once, and copied by tests that change them."""

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from understudy.release import sample_record
from understudy.run.atomic import json_bytes

SCHEMA = """
[table]
rows = 60
name = "visits | <b>"
responsible = "Dr A. Weber"
[columns.ward]
kind = "categorical"
categories = ["a", "b"]
[columns.member]
kind = "boolean"
"""
REAL = pa.table({"ward": ["a", "b", "b"] * 20, "member": [True, False] * 30})


def write_sample(release: us.Release, folder: Path, name: str) -> Path:
    """A synthetic table beside the release, with the record that `understudy sample` leaves."""
    path = folder / name
    pyarrow.csv.write_csv(release.sample_arrow(20), path)
    record = sample_record(release, folder / "release", path, 20, None)
    path.with_name(f"{name}.certificate.json").write_bytes(json_bytes(record))
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release, a synthetic table, a key, and a public bundle with and without a signature."""
    folder = tmp_path_factory.mktemp("bundles")
    release = us.fit(REAL, "independent", epsilon=1, schema=us.Schema.from_toml(SCHEMA))
    release.save(folder / "release")
    write_sample(us.Release.load(folder / "release"), folder, "fake.csv")
    us.write_bundle(folder / "release", folder / "public.zip", tables=[folder / "fake.csv"])
    if shutil.which("ssh-keygen"):
        new_key(folder / "key")
        us.write_bundle(folder / "release", folder / "signed.zip", sign=folder / "key")
    return folder


def new_key(path: Path, *, passphrase: str = "") -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The same folder for a test that changes it."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"
