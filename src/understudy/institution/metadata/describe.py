"""Writes the description of a release in the format of a catalogue or registry."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from understudy.errors import ConfigError, did_you_mean
from understudy.institution.metadata.about import About
from understudy.institution.metadata.croissant import croissant
from understudy.institution.metadata.dcat import dcat, healthdcat
from understudy.institution.metadata.facts import DescribedRelease
from understudy.institution.metadata.registry import registry, to_yaml
from understudy.institution.metadata.table_schema import JsonObject
from understudy.release import Release
from understudy.run.atomic import json_bytes


class _Format(NamedTuple):
    title: str
    describe: Callable[[DescribedRelease], JsonObject]
    encode: Callable[[JsonObject], bytes] = json_bytes


FORMATS = {
    "croissant": _Format("Croissant 1.1 for machine learning, JSON-LD", croissant),
    "dcat": _Format("DCAT-AP 3 for data portals, JSON-LD", dcat),
    "healthdcat": _Format("HealthDCAT-AP for the European Health Data Space, JSON-LD", healthdcat),
    "table-schema": _Format("Frictionless Table Schema of the synthetic table, JSON", lambda each: each.table_schema),
    "registry": _Format(
        "entry for the Differential Privacy Deployments Registry, YAML", registry, lambda each: to_yaml(each).encode()
    ),
}
"""The formats that `describe_release` writes."""


def describe_release(
    release: Release | str | os.PathLike[str],
    format: str,
    *,
    about: About | str | os.PathLike[str] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
) -> bytes:
    """Describe a release in a format of `FORMATS`, for a catalogue or a registry.

    It is made from the schema and the certificate; no row is read.

    Args:
        release: A release, or the path of its folder.
        format: The name of the format, such as "croissant" or "table-schema".
        about: What schema and certificate do not say: title, licence, publisher and so on. An `About`, or the path of a
            TOML file with these keys.
        files: Synthetic tables of the release, whose name, size and checksum are stated.

    Returns:
        The content of the file.

    Raises:
        ConfigError: There is no such format, or a key of `about` is wrong.
        ReleaseError: The folder holds no release.

    >>> import json, pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> release = us.fit(pa.table({"member": [True, False] * 50}), "independent", epsilon=1, schema=schema)
    >>> json.loads(us.describe_release(release, "table-schema"))["fields"][0]["type"]
    'boolean'
    """
    if format not in FORMATS:
        raise ConfigError(
            f"There is no format {format!r}.{did_you_mean(format, FORMATS)} The formats are {', '.join(FORMATS)}."
        )
    loaded = release if isinstance(release, Release) else Release.load(release)
    said = About() if about is None else about if isinstance(about, About) else About.read(about)
    chosen = FORMATS[format]
    return chosen.encode(chosen.describe(DescribedRelease.of(loaded, said, files)))
