"""What a run of the command line leaves behind, without noise: equal for neighbours, or something leaks."""

import contextlib
import io
import json
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow.parquet as pq

from understudy.cli import run
from understudy.release import Release
from understudy.tables import label_metadata

SIDECAR = "fake.parquet.datapackage.json"


def without_noise(name: str, content: object) -> object:
    """A document with every noisy answer replaced by a word; what is left is public, or it is a leak."""
    if name == "certificate.json":
        assert isinstance(content, dict)
        noisy = [re.sub(r"[\d,]+", "N", line) for line in content["estimated"]]
        # The model and the table are noisy, and so are their checksums; which files have one is not.
        return {**content, "estimated": noisy, "checksums": sorted(content["checksums"])}
    if name != "release.json":
        return None
    assert isinstance(content, dict)
    codec = content["codec"]
    columns = [
        {key: type(value).__name__ if key in NOISY[column["type"]] else value for key, value in column.items()}
        for column in codec["columns"]
    ]
    for column in columns:
        if column["type"] == "categorical":  # the list may be noisy, the type of its values may not
            column["categories"] = sorted({type(value).__name__ for value in column["categories"]})
    codec = {**codec, "columns": columns, "num_rows": type(codec["num_rows"]).__name__}
    codec["rows_per_unit"] = len(codec["rows_per_unit"])  # the bins are public, what is in them is noisy
    model = {**content["model"], "structure": sorted(content["model"]["structure"])}
    return {key: value for key, value in content.items() if not key.startswith("sha256")} | {
        "codec": codec,
        "model": model,
    }


NOISY = {
    "numeric": {"starts", "stops", "masses", "first_fine_bin"},  # bins are cut from a noisy histogram
    "categorical": {"default"},  # the place of "other" behind a list that is estimated privately
}


def said(text: str) -> list[str]:
    """Lines on standard error, without times and noisy numbers."""
    return [re.sub(r"\d[\d,.]*", "N", line) for line in text.splitlines()]


def without_digests(text: str) -> object:
    """A document about the synthetic table without its size in bytes and its hash, nor that of its release."""
    return json.loads(re.sub(r"[0-9a-f]{64}", "HASH", re.sub(r'"bytes": \d+', '"bytes": 0', text)))


def outcome(folder: Path, source: str, *more: str) -> dict[str, object]:
    """All that a run of the command line leaves behind, without noise."""
    arguments = ["synth", source, "-o", "fake.parquet", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6"]
    before = {path.name for path in folder.iterdir()}
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(record=True) as warned, redirect_stdout(out), redirect_stderr(err):
        warnings.simplefilter("always")
        code = run([*arguments, "--method", "independent", "--seed", "7", "-n", "20", "--force", *more])
    found: dict[str, object] = {
        "exit code": code,
        "standard error": said(err.getvalue()),
        "standard output": out.getvalue(),
        "warnings": [str(warning.message) for warning in warned],
        "files": sorted({path.name for path in folder.iterdir()} - before),
    }
    release = folder / "fake.release"
    if release.exists():
        found["release files"] = sorted(path.name for path in release.iterdir())
        for name in ("release.json", "certificate.json"):
            found[name] = without_noise(name, json.loads((release / name).read_text()))
        found["origin"] = Release.load(release).origin.to_dict()
        written = pq.read_schema(folder / "fake.parquet")
        found["synthetic types"] = str(written.remove_metadata())
        found["label"] = without_digests(json.dumps(label_metadata(written)))
        found["sidecar"] = without_digests((folder / SIDECAR).read_text())
    for path in sorted(release.rglob("*"), reverse=True) if release.exists() else ():
        path.unlink()
    with contextlib.suppress(FileNotFoundError):
        release.rmdir()
    for name in ("fake.parquet", SIDECAR):
        (folder / name).unlink(missing_ok=True)
    return found
