"""A bundle that was changed fails, also if every checksum was computed again, and what cannot be known is said."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import understudy as us
from tests.builders import raises
from tests.institution.bundle.archive_edits import forge, read, reseal, write
from understudy.cli import run
from understudy.errors import BundleError, ConfigError
from understudy.institution.bundle.archive import measure
from understudy.institution.bundle.manifest import MANIFEST, SIGNATURE, SUMS, make_sums
from understudy.institution.bundle.verify import same_figures, same_text


def test_an_intact_bundle(made: Path) -> None:
    found = us.verify_bundle(made / "public.zip", tables=[made / "fake.csv"])
    assert found.is_intact
    assert found.facts["Data set"] == "visits | <b>"
    assert found.facts["Guarantee"].startswith("epsilon ")
    said = " ".join(found.checked)
    for part in ("checksums of the manifest", "computed again", "plan.json", "as JSON, as text", "schema.toml"):
        assert part in said
    assert "not signed" in found.not_checked[0]
    assert found.not_checked[-1].startswith("Whether the run was made as the certificate says")
    assert json.loads(json.dumps(found.to_json()))["intact"] is True
    assert "intact" in repr(found)


def flip(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def check_changed_bytes(bundle: Path, place: Path, number: int) -> None:
    """Any changed bit, and any cut, is found."""
    whole, draw = bundle.read_bytes(), random.Random(0)
    for _ in range(number):
        at = draw.randrange(len(whole))
        place.write_bytes(flip(whole, at, draw.randrange(8)) if draw.random() < 0.8 else whole[:at])
        if place.read_bytes()[:2] == b"PK":
            assert us.verify_bundle(place).faults
        else:
            with raises(BundleError, reason="unknown kind"):
                us.verify_bundle(place)


def test_a_changed_byte_is_found_wherever_it_is(made: Path, tmp_path: Path) -> None:
    check_changed_bytes(made / "public.zip", tmp_path / "b.zip", 200)


@pytest.mark.long
def test_ten_thousand_changed_bytes_are_found(made: Path, tmp_path: Path) -> None:
    check_changed_bytes(made / "public.zip", tmp_path / "b.zip", 10_000)


@pytest.mark.parametrize("name", ["public.zip", "signed.zip"])
def test_a_changed_file_is_found_though_the_zip_file_is_whole(copied: Path, name: str) -> None:
    """The manifest alone has the old checksum, and a signature still belongs to it."""
    if not (copied / name).exists():
        pytest.skip("ssh-keygen is not installed")
    us.write_bundle(copied / "release", copied / "public.zip", force=True)
    contents = read(copied / name)
    changed = {**contents, "versions.json": b"{}"}
    sums = {each: measure(data).sha256 for each, data in changed.items() if each not in (SUMS, SIGNATURE)}
    write(copied / name, {**changed, SUMS: make_sums(sums)})
    assert us.verify_bundle(copied / name).faults == (
        "versions.json was changed: it does not have the checksum of the manifest.",
    )


# ------------------------------------------------------------------------------------------------- missing and added


def without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda contents: {each: data for each, data in contents.items() if each != name}


def added(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda contents: {**contents, name: b"{}"}


@pytest.mark.parametrize(
    ("change", "sealed", "fault"),
    [
        (without("schema.toml"), False, "schema.toml is missing."),
        (without("schema.toml"), True, "schema.toml is missing."),
        (without(SUMS), False, "SHA256SUMS is missing."),
        (without(MANIFEST), False, "There is no manifest.json, so this is not an evidence bundle."),
        (lambda _: {SIGNATURE: b""}, False, "There is no manifest.json, so this is not an evidence bundle."),
        (added("people.csv"), False, "'people.csv' is not listed in the manifest."),
        (added("people.csv"), True, "'people.csv' does not belong in a bundle."),
        (added("in-house/scores.json"), True, "'in-house/scores.json' does not belong in a bundle."),
        (added("in-house/people.csv"), True, "'in-house/people.csv' does not belong in a bundle."),
        (added("tables/people.csv"), True, "'tables/people.csv' does not belong in a bundle."),
        (added("readme.md"), False, "Two file names differ in upper and lower case alone."),
        (lambda contents: {**contents, SUMS: b""}, False, "SHA256SUMS does not have the checksums of the manifest."),
    ],
)
def test_missing_and_added_files_are_found(
    copied: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], sealed: bool, fault: str
) -> None:
    us.write_bundle(copied / "release", copied / "b.zip")
    contents = change(read(copied / "b.zip"))
    write(copied / "b.zip", reseal(contents) if sealed else contents)
    assert fault in us.verify_bundle(copied / "b.zip").faults


# ------------------------------------------------------------------------------------------------------ consistency


def swap(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def understate(text: str) -> str:
    """A certificate that states less than its queries cost."""
    content = json.loads(text)
    content["guarantee"]["epsilon"] /= 2
    return json.dumps(content)


def weaken(text: str) -> str:
    """A certificate of queries that cost so much that no accountant could state it in time."""
    content = json.loads(text)
    content["queries"][0]["event"]["count"] = 10**7
    return json.dumps(content)


def enlarge(text: str) -> str:
    """A certificate that would keep whoever verifies it busy for hours."""
    content = json.loads(text)
    content["queries"][0]["event"]["count"] = 10**12
    return json.dumps(content)


FORGED: dict[str, tuple[dict[str, Callable[[str], str]], str]] = {
    "text": ({"CERTIFICATE_md": swap("Strong guarantee", "Perfect guarantee")}, "CERTIFICATE.md does not say"),
    "figure": ({"CERTIFICATE_md": swap("epsilon = 0.", "epsilon = 0.1")}, "CERTIFICATE.md does not say"),
    "page": ({"certificate_html": swap("</main>", "<p>approved</p></main>")}, "certificate.html does not say"),
    "schema": ({"schema_toml": swap("rows = 60", "rows = 61")}, "schema.toml does not declare"),
    "schema gone": ({"schema_toml": lambda text: "not TOML ["}, "schema.toml is not a schema"),
    "schema with a remark": ({"schema_toml": lambda text: f"{text}# 20 rows of a\n"}, "schema.toml is not as"),
    "schema with a file": (
        {"schema_toml": lambda text: f'{text}[[rules]]\ncombinations = ["ward", "member"]\nallowed = "/dev/zero"\n'},
        "schema.toml names other files.",
    ),
    "versions": ({"versions_json": swap('"numpy": "', '"numpy": "mean 41.3, ')}, "versions.json does not have"),
    "versions gone": ({"versions_json": lambda text: '{"rows": [41, 17]}'}, "versions.json does not have"),
    "plan": ({"plan_json": swap('"expected": []', '"expected": [1]')}, "plan.json does not have"),
    "audit": ({"audit_json": swap("canary", "parrot")}, "audit.json is not what this version writes"),
    "readme": ({"README_md": swap("# Evidence", "# Approved evidence")}, "README.md is not what this version"),
    "sign-off": ({"sign_off_html": swap("Prepared by", "Signed by A. Weber")}, "sign-off.html is not what"),
    "cost": ({"certificate_json": understate}, "but its queries cost"),
    "noise": ({"certificate_json": weaken}, "another epsilon by Renyi divergence"),
    "certificate": (
        {"certificate_json": swap('"strength": "strong"', '"strength": "weak"')},
        "contradicts itself: guarantee.strength is 'weak', but the other fields give 'strong'",
    ),
    "size": ({"certificate_json": enlarge}, "count must be a whole number from 1 to 10,000,000"),
    "mark": ({"certificate_json": swap('"seeded": false', '"seeded": true')}, "contradicts the certificate: 'marks'"),
    "key twice": (
        {"certificate_json": swap('"guarantee": {', '"guarantee": {"epsilon": 0.01, ')},
        "not a certificate that can be read",
    ),
    "no certificate": ({"certificate_json": lambda text: "{}"}, "not a certificate that can be read"),
    "no number": ({"certificate_json": swap('"delta": ', '"delta": NaN, "x": ')}, "not a certificate that can be read"),
    "failed run": ({"certificate_json": swap('"released": true', '"released": false')}, "nothing was released"),
}


@pytest.mark.made_up_figures
@pytest.mark.parametrize("case", FORGED)
def test_a_forged_document_contradicts_the_others(copied: Path, case: str) -> None:
    """Every checksum is right here: the contents do not fit together."""
    edits, fault = FORGED[case]
    us.write_bundle(copied / "release", copied / "b.zip")
    forge(copied / "b.zip", **edits)
    found = us.verify_bundle(copied / "b.zip")
    assert any(fault in each for each in found.faults), found.faults


@pytest.mark.parametrize("field", ["stddev", "count", "sensitivity"])
@pytest.mark.parametrize("value", ["5e-324", "1e-200", "1e-30", "1e30", "1e308", "1e300", "1" + "0" * 400, "true"])
def test_extreme_noise_is_a_fault_and_no_error(copied: Path, field: str, value: str) -> None:
    us.write_bundle(copied / "release", copied / "b.zip")
    forge(copied / "b.zip", certificate_json=lambda text: re.sub(rf'"{field}": [^,}}\s]+', f'"{field}": {value}', text))
    found = us.verify_bundle(copied / "b.zip")
    assert found.faults
    assert all(len(fault) < 300 for fault in found.faults)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("marks", ["approved"]),
        ("private", False),
        ("in_house", True),
        ("signed", True),
        ("release", {"sha256": "0" * 64, "epsilon": 0.1}),
        ("release", "none"),
        ("tables", [{"name": ["x"], "sha256": {}, "bytes": "x", "included": 1}]),
        ("files", []),
        ("approved_by", "A. Weber"),
        ("format", "zip"),
        ("understudy_version", ["\ud800\x1b[31m"]),
    ],
)
def test_a_forged_manifest_contradicts_the_certificate(copied: Path, key: str, value: object) -> None:
    us.write_bundle(copied / "release", copied / "b.zip")
    sealed = reseal(read(copied / "b.zip"), lambda manifest: manifest.update({key: value}))
    write(copied / "b.zip", sealed)
    found = us.verify_bundle(copied / "b.zip")
    assert found.faults or key == "understudy_version"
    assert all(text.isprintable() for text in (*found.faults, *found.marks, *found.not_checked))


OLDER = swap('"understudy_version": "', '"understudy_version": "0.0.')


def test_the_wording_of_another_version_is_not_compared(copied: Path) -> None:
    """The privacy cost is computed again all the same; the wording is not, and that is said."""
    us.write_bundle(copied / "release", copied / "b.zip")
    texts = {"CERTIFICATE_md": swap("Strong", "Other"), "schema_toml": swap("rows", "# as older versions do\nrows")}
    forge(copied / "b.zip", certificate_json=OLDER, plan_json=OLDER, **texts)
    write(
        copied / "b.zip", reseal(read(copied / "b.zip"), lambda manifest: manifest.update(understudy_version="0.0.1"))
    )
    found = us.verify_bundle(copied / "b.zip")
    assert found.is_intact, found.faults
    assert any("computed again" in text for text in found.checked)
    assert any(text.startswith("schema.toml declares the certificate's unit") for text in found.checked)
    assert any(text.startswith("The wording of the certificate, and lists") for text in found.not_checked)
    assert any(text.startswith("README.md, sign-off.html and audit.json") for text in found.not_checked)


@pytest.mark.parametrize("case", ["schema", "schema gone", "schema with a file"])
def test_the_schema_of_another_version_must_fit_its_certificate(copied: Path, case: str) -> None:
    edits, fault = FORGED[case]
    us.write_bundle(copied / "release", copied / "b.zip")
    forge(copied / "b.zip", certificate_json=OLDER, plan_json=OLDER, **edits)
    found = us.verify_bundle(copied / "b.zip")
    assert any(fault in each for each in found.faults), found.faults


def test_a_newer_format_is_refused(copied: Path) -> None:
    us.write_bundle(copied / "release", copied / "b.zip")
    write(copied / "b.zip", reseal(read(copied / "b.zip"), lambda manifest: manifest.update(format_version=2)))
    with raises(BundleError, reason="newer"):
        us.verify_bundle(copied / "b.zip")


def test_last_digits_may_differ_and_nothing_else() -> None:
    """Another machine computes other last digits, and a figure may be rounded the other way."""
    assert same_figures({"a": [1.0, None, "x"]}, {"a": [1.0 + 1e-9, None, "x"]})
    others: list[object] = [
        {"a": [1.0, None, "y"]},
        {"a": [1.01, None, "x"]},
        {"a": [1.0, None]},
        {"b": []},
        {"a": True},
    ]
    for other in others:
        assert not same_figures({"a": [1.0, None, "x"]}, other)
    assert same_text(b"epsilon 1 at 3.01e-05", b"epsilon 1.001 at 3.01e-05")
    for other_text in (b"epsilon 2 at 3.01e-05", b"epsilon 1 at 3.01e-06", b"Epsilon 1 at 3.01e-05", b"epsilon 1"):
        assert not same_text(b"epsilon 1 at 3.01e-05", other_text)
    assert not same_text(b"epsilon 0.9981", b"epsilon 0.9882")
    assert not same_text(b"60 rows", b"61 rows")
    assert not same_text(b"2026-11-17", b"2026-11-18")


# -------------------------------------------------------------------------------------------------------- the command


def test_a_table_that_is_only_named_can_be_compared(copied: Path) -> None:
    us.write_bundle(copied / "release", copied / "b.zip", tables=[copied / "fake.csv"], hash_only=True)
    assert any("only its checksum" in text for text in us.verify_bundle(copied / "b.zip").not_checked)
    found = us.verify_bundle(copied / "b.zip", tables=[copied / "fake.csv"])
    assert any("is the synthetic table fake.csv" in text for text in found.checked)
    (copied / "fake.csv").write_text("ward\na\n")
    (fault,) = us.verify_bundle(copied / "b.zip", tables=[copied / "fake.csv"]).faults
    assert "none of the synthetic tables" in fault


def test_exit_codes_and_json(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0: intact; 1: it fails; 2: it cannot be verified. One line on standard error."""
    assert run(["verify", str(made / "public.zip"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == []
    (tmp_path / "cut.zip").write_bytes((made / "public.zip").read_bytes()[:-30])
    assert run(["verify", str(tmp_path / "cut.zip")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"understudy: {tmp_path / 'cut.zip'} fails verification: The zip file is not as")
    assert said.err.count("\n") == 1
    (tmp_path / "table.zip").write_text("ward,member\n")
    for path in ("table.zip", "absent.zip", "."):
        assert run(["verify", str(tmp_path / path)]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)


def test_an_identity_needs_a_list(made: Path) -> None:
    with raises(ConfigError, setting="identity"):
        us.verify_bundle(made / "public.zip", identity="a@b")
