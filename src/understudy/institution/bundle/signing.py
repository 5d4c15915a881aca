"""SSH signatures of a manifest, by the `ssh-keygen` of the system (OpenSSH 8.2 or newer)."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from understudy.errors import BundleError

NAMESPACE = "understudy-bundle"
"""Signatures for another purpose do not count, even by the same key."""
MAX_SIGNATURE = 2**16
_ARMOR = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n(?:[A-Za-z0-9+/=]{1,76}\n)+-----END SSH SIGNATURE-----\n")
_GOOD = re.compile(r"^Good .* with (\S+) key (\S+)\s*$", flags=re.MULTILINE)
_PROMPTED_SECONDS, _SECONDS = 600, 30


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature that belongs to the manifest, and whose it is."""

    key: str
    """The type and the fingerprint of the key."""
    identity: str | None = None
    """The name that a list of allowed signers gives to the key; None: no list was given."""


class BadSignature(Exception):
    """The signature does not belong to the manifest, or not to an allowed signer. The text says which."""


def sign(message: bytes, key: str | os.PathLike[str]) -> bytes:
    """The signature of a message by the key in this file, or by an agent that holds it."""
    path, tool = Path(key), find_ssh_keygen()
    if not path.is_file():
        raise BundleError(
            f"There is no key file {path}. Name a private SSH key, such as ~/.ssh/id_ed25519.", reason="missing"
        )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "manifest.json"
        place.write_bytes(message)
        ran = _run([tool, "-Y", "sign", "-f", str(path.absolute()), "-n", NAMESPACE, str(place)], can_prompt=True)
        signed = place.with_name("manifest.json.sig")
        if ran.returncode or not signed.is_file():
            raise BundleError(f"{path} cannot sign: {_why_not(ran.stderr)}", reason="key")
        return signed.read_bytes()


def check(
    message: bytes, signature: bytes, *, signers: str | os.PathLike[str] | None = None, identity: str | None = None
) -> Signature:
    """Whose signature this is. Without `signers` anyone may have signed; with `identity` it must be this one of them.

    Raises `BadSignature` if the signature does not belong to the message, or not to an allowed signer.
    """
    tool = find_ssh_keygen()
    if signers is not None and not Path(signers).is_file():
        raise BundleError(f"There is no file {signers}. Expected a list of allowed signers, as for 'ssh-keygen -Y'.")
    if len(signature) > MAX_SIGNATURE or not _ARMOR.fullmatch(signature):
        raise BadSignature("manifest.json.sig is not an SSH signature")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "manifest.json.sig"
        place.write_bytes(signature)
        common = ["-n", NAMESPACE, "-s", str(place)]
        ran = _run([tool, "-Y", "check-novalidate", *common], given=message)
        match = _GOOD.search(ran.stdout)
        if ran.returncode or match is None:
            raise BadSignature("the signature does not belong to this manifest")
        made_by = f"{match[1]} {match[2]}"
        if signers is None:
            return Signature(made_by)
        listed = ["-f", str(Path(signers).absolute())]
        known = _run([tool, "-Y", "find-principals", "-s", str(place), *listed]).stdout.splitlines()
        for name in known if identity is None else [identity]:
            if _run([tool, "-Y", "verify", *listed, "-I", name, *common], given=message).returncode == 0:
                return Signature(made_by, name)
        expected = f"the key of {identity!r}" if identity is not None else "a key"
        raise BadSignature(f"it is signed by the key {made_by}, which is not {expected} in {signers}")


def is_available() -> bool:
    """Whether signatures can be made and checked here."""
    return shutil.which("ssh-keygen") is not None


def find_ssh_keygen() -> str:
    """Where `ssh-keygen` is."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise BundleError("Signatures need ssh-keygen, which is not on the PATH. Install OpenSSH (8.2 or newer).")
    return program


def _run(command: list[str], *, given: bytes = b"", can_prompt: bool = False) -> "subprocess.CompletedProcess[str]":
    """Runs ssh-keygen. It may ask for a passphrase only if a person sits at the terminal; else it must fail."""
    is_attended = can_prompt and sys.stdin is not None and sys.stdin.isatty()
    try:
        ran = subprocess.run(
            command,
            input=given,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"},
            timeout=_PROMPTED_SECONDS if is_attended else _SECONDS,
            start_new_session=not is_attended,  # without a terminal of its own it cannot prompt
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BundleError(f"ssh-keygen did not finish ({type(error).__name__}). Run it by hand to see why.") from None
    out, said = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(command, ran.returncode, out, said)


def _why_not(said: str) -> str:
    """What ssh-keygen said, in one sentence with what to do."""
    if "passphrase" in said:
        return (
            "it needs a passphrase, which was not given, or was wrong. Run the command in a terminal, or add the key "
            "to ssh-agent."
        )
    if "too open" in said or "UNPROTECTED" in said:
        return "others can read the key file. Restrict it with 'chmod 600'."
    if "unknown option" in said or "illegal option" in said or "usage:" in said:
        return "this ssh-keygen cannot sign files. Install OpenSSH 8.2 or newer."
    return "it is not a private SSH key that ssh-keygen can use. Make one with 'ssh-keygen -t ed25519'."
