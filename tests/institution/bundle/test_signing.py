"""A signature is right only for the manifest that was signed, in our namespace, by a key on the list."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as us
from tests.builders import raises
from tests.institution.bundle.archive_edits import forge, read, write
from tests.institution.bundle.conftest import new_key
from understudy.cli import run
from understudy.errors import BundleError
from understudy.institution.bundle import signing
from understudy.institution.bundle.manifest import MANIFEST, SIGNATURE

pytestmark = pytest.mark.skipif(not signing.is_available(), reason="ssh-keygen is not installed")


def allow(folder: Path, **keys: str) -> Path:
    """A list of allowed signers: names, each with the name of a key in the folder."""
    path = folder / "allowed_signers"
    path.write_text("".join(f"{name} {(folder / f'{key}.pub').read_text()}" for name, key in keys.items()))
    return path


def test_a_signature_names_its_key_and_the_list_names_its_owner(copied: Path) -> None:
    unknown = us.verify_bundle(copied / "signed.zip")
    assert unknown.is_intact
    assert unknown.identity is None
    assert unknown.signed_by is not None
    assert any("nobody vouches for that key" in text for text in unknown.not_checked)
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", str(copied / "key.pub")], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert unknown.signed_by == f"ED25519 {fingerprint}"
    signers = allow(copied, weber="key")
    for identity in (None, "weber"):
        known = us.verify_bundle(copied / "signed.zip", signers=signers, identity=identity)
        assert (known.is_intact, known.identity) == (True, "weber")


def test_other_signers_do_not_count(copied: Path) -> None:
    new_key(copied / "other")
    others = allow(copied, weber="other")
    assert "is not a key in" in us.verify_bundle(copied / "signed.zip", signers=others).faults[0]
    assert (
        "is not the key of 'weber'"
        in us.verify_bundle(copied / "signed.zip", signers=others, identity="weber").faults[0]
    )
    both = allow(copied, weber="key", smith="other")
    assert us.verify_bundle(copied / "signed.zip", signers=both, identity="smith").faults
    assert us.verify_bundle(copied / "public.zip", signers=both).faults == ("It is not signed.",)


def test_a_changed_bundle_does_not_keep_its_signature(copied: Path) -> None:
    """Also if every checksum is computed again; and a removed signature is missed, since the manifest names it."""
    forge(copied / "signed.zip", versions_json=lambda text: text.replace("numpy", "numPy"))
    assert "The signature does not belong to this manifest." in us.verify_bundle(copied / "signed.zip").faults
    contents = read(copied / "signed.zip")
    write(copied / "signed.zip", {name: data for name, data in contents.items() if name != SIGNATURE})
    assert "It is not signed." in us.verify_bundle(copied / "signed.zip").faults


def test_another_namespace_and_other_text_around_a_signature_do_not_count(copied: Path) -> None:
    contents = read(copied / "signed.zip")
    (copied / "message").write_bytes(contents[MANIFEST])
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(copied / "key"), "-n", "file", str(copied / "message")],
        check=True,
        capture_output=True,
    )
    for signature in (
        (copied / "message.sig").read_bytes(),
        contents[SIGNATURE] + b"hidden",
        b"",
        b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n",
    ):
        write(copied / "b.zip", {**contents, SIGNATURE: signature})
        (fault,) = us.verify_bundle(copied / "b.zip").faults
        assert "signature" in fault


def test_keys_that_cannot_sign_are_refused_in_one_line(copied: Path) -> None:
    """A passphrase is not asked for without a terminal; the command ends by itself."""
    new_key(copied / "locked", passphrase="secret words")
    (copied / "no_key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n")
    (copied / "no_key").chmod(0o600)
    shutil.copy(copied / "key", copied / "open_key")
    (copied / "open_key").chmod(0o644)
    for key, reason in {
        "locked": "needs a passphrase, which was not given",
        "no_key": "is not a private SSH key",
        "open_key": "others can read the key file",
        "fake.csv": "is not a private SSH key",
    }.items():
        with pytest.raises(BundleError, match=reason) as refused:
            signing.sign(b"text", copied / key)
        assert "secret words" not in str(refused.value)
    with raises(BundleError, reason="key"):
        us.write_bundle(copied / "release", copied / "b.zip", sign=copied / "locked")
    assert not (copied / "b.zip").exists()


def test_without_ssh_keygen(copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    if signing.is_available():
        pytest.skip("ssh-keygen is beside the interpreter")
    found = us.verify_bundle(copied / "signed.zip")
    assert (found.is_intact, found.signed_by) == (True, None)
    assert any("no ssh-keygen" in text for text in found.not_checked)
    command = ["bundle", str(copied / "release"), "-o", str(copied / "b.zip"), "--sign", str(copied / "key")]
    assert run(command) == 2
    assert "Install OpenSSH" in capsys.readouterr().err
    signers = allow(copied, weber="key")
    assert run(["verify", str(copied / "signed.zip"), "--signers", str(signers)]) == 2


def test_a_list_that_is_missing_is_an_error(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(made / "signed.zip"), "--signers", str(made / "absent")]) == 2
    assert "Expected a list of allowed signers" in capsys.readouterr().err
