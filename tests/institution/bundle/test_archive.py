"""The zip file of a bundle: the same files give the same bytes, and no other bytes are accepted."""

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import raises
from tests.examples import scaled
from understudy.errors import BundleError
from understudy.institution.bundle.archive import Malformed, is_plain, measure, read_archive, write_archive

FILES = {"README.md": b"one\n", "in-house/a.json": b"", "tables/fake.csv": b"a,b\n1,2\n" * 50}
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(is_plain)


def pack(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    write_archive(out, files, {name: measure(data) for name, data in files.items()})
    return out.getvalue()


@settings(max_examples=scaled(25))
@given(st.dictionaries(NAMES, st.binary(max_size=40), max_size=5))
def test_what_is_written_is_read_and_other_programs_read_it_too(files: dict[str, bytes]) -> None:
    packed = pack(dict(reversed(files.items())))
    assert packed == pack(files)
    assert {name: member.data for name, member in read_archive(io.BytesIO(packed)).items()} == files
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == files
        assert opened.testzip() is None


def test_no_byte_is_without_effect() -> None:
    """Each byte changed in each of its bits, every cut, and bytes before and after: all refused."""
    packed = pack(FILES)
    for at in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[at] ^= 1 << bit
            with pytest.raises(Malformed):
                read_archive(io.BytesIO(bytes(changed)))
        with pytest.raises(Malformed):
            read_archive(io.BytesIO(packed[:at]))
    for changed_file in (packed + b"\0", b"\0" + packed, packed + packed):
        with pytest.raises(Malformed):
            read_archive(io.BytesIO(changed_file))


def test_the_bytes_are_always_the_same() -> None:
    packed = pack({**FILES, "tables/grün.csv": b"x"})
    assert measure(packed).sha256 == "0a5e57ba9c5389ea3e4503b19c827ee0b546d4da31925c2b1721f97a8815029f"


def test_large_tables_are_read_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 2 GiB on, the zip file has another form."""
    monkeypatch.setattr("zipfile.ZIP64_LIMIT", 100)
    packed = pack(FILES)
    assert read_archive(io.BytesIO(packed))["tables/fake.csv"].size == 400
    for at in range(len(packed)):
        with pytest.raises(Malformed):
            read_archive(io.BytesIO(packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]))


def zipped(names: list[str], **options: int) -> bytes:
    """A zip file of another program."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.create_system, info.flag_bits = 0o100644 << 16, 3, 0x800
            for key, value in options.items():
                setattr(info, key, value)
            opened.writestr(info, b"0" * 1000)
    return out.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "options", "reason"),
    [
        (["a", "a"], {}, "twice"),
        (["b", "a"], {}, "not in order"),
        (["../a"], {}, "not a plain name"),
        (["/etc/passwd"], {}, "not a plain name"),
        (["a\\b"], {}, "not a plain name"),
        (["a"], {"compress_type": zipfile.ZIP_DEFLATED}, "is compressed"),
        (["a/"], {}, "not a plain name"),
        (["link"], {"external_attr": 0o120777 << 16}, "list of files"),
    ],
)
def test_tricks_with_names_compression_and_links_are_refused(
    names: list[str], options: dict[str, int], reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        read_archive(io.BytesIO(zipped(names, **options)))


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stated size is never believed: what is read is counted, and documents and files are limited."""
    monkeypatch.setattr("understudy.institution.bundle.archive.MAX_DOCUMENT", 300)
    assert read_archive(io.BytesIO(pack(FILES)))["tables/fake.csv"].data is None
    with pytest.raises(Malformed, match="larger than any document"):
        read_archive(io.BytesIO(pack({"a.json": bytes(301)})))
    monkeypatch.setattr("understudy.institution.bundle.archive.MAX_FILES", 2)
    with pytest.raises(Malformed, match="more than 2 files"):
        read_archive(io.BytesIO(pack(FILES)))


def test_a_long_list_of_files_is_not_read() -> None:
    with pytest.raises(Malformed, match=r"its list of files is longer than 1,048,576 bytes"):
        read_archive(io.BytesIO(zipped([f"{number:060}" for number in range(10_000)])))


def test_a_file_that_changes_while_it_is_copied_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "fake.csv"
    table.write_text("a\n1\n")
    measured = {"tables/fake.csv": measure(table)}
    table.write_text("a\n2\n")
    with raises(BundleError, reason="changed"):
        write_archive(io.BytesIO(), {"tables/fake.csv": table}, measured)
