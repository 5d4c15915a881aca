"""Who may talk to the studio, and what it sends: asked without a browser."""

import asyncio
import dataclasses
import hashlib
import itertools
import json
import re
import stat
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.accounting.budget import default_delta
from understudy.studio import server
from understudy.studio.desk import Desk, first_rows
from understudy.studio.forms import form_of, read_form
from understudy.studio.guard import COOKIE, Door
from understudy.studio.jobs import State, StudioError, write_json
from understudy.studio.plan_page import Request
from understudy.studio.server import listen, make_app
from understudy.studio.supervise import environment
from understudy.tables import Origin, write_table

DOOR = Door(8765, token="right-token", path="/studio")
ORIGIN = {"origin": DOOR.origin, "sec-fetch-site": "same-origin"}
SCHEMA = """
[table]
rows = 100
[columns.age]
kind = "integer"
bounds = [0, 100]
[columns.city]
kind = "categorical"
categories = ["Bern", "Basel"]
"""
READ = ("api/state", "api/schema", "api/runs", "api/book", "")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "people.csv").write_text("age,city\n41,Bern\n52,Basel\n")
    (tmp_path / "people.toml").write_text(SCHEMA)
    return Desk.open(str(tmp_path / "people.csv"), schema=tmp_path / "people.toml")


class Client:
    """Asks the application as a browser would that has the cookie of the page."""

    def __init__(self, desk: Desk, token: str | None) -> None:
        self._app = make_app(desk, DOOR)
        self._cookies = {} if token is None else {COOKIE: token}

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self._ask("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self._ask("POST", path, **given)

    def _ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
            at = f"{DOOR.origin}{DOOR.path}/"
            async with httpx.AsyncClient(transport=transport, base_url=at, cookies=self._cookies) as client:
                return await client.request(method, path, **given)

        answer = asyncio.run(ask())
        self._cookies |= dict(answer.cookies)
        return answer


def client_of(desk: Desk, *, token: str | None = DOOR.token) -> Client:
    return Client(desk, token)


@pytest.fixture
def client(desk: Desk) -> Client:
    return client_of(desk)


# Who may ask


@pytest.mark.parametrize("token", [None, "", "wrong-token", "right-toke", "right-token2"])
def test_without_the_token_nothing_is_sent(desk: Desk, token: str | None) -> None:
    client = client_of(desk, token=token)
    assert {client.get(path).status_code for path in READ} == {403}
    assert client.post("api/plan", json={}, headers=ORIGIN).status_code == 403
    assert client.get("", params={"token": token or "x"}).status_code == 403
    assert client.get("", params={"token": "Ünsinn"}).status_code == 403


def test_the_token_in_the_address_becomes_a_cookie_for_this_path_that_no_script_reads(desk: Desk) -> None:
    client = client_of(desk, token=None)
    entered = client.get("", params={"token": DOOR.token}, headers={"sec-fetch-site": "cross-site"})
    assert entered.status_code == 200
    given = entered.headers["set-cookie"].lower()
    assert "httponly" in given
    assert "samesite=strict" in given
    assert "path=/studio/" in given
    assert "people" not in entered.text  # a page of another site may lead here, and learns nothing
    assert client.get("api/state").status_code == 200


def test_a_cookie_of_another_server_of_this_machine_locks_nobody_out(desk: Desk) -> None:
    own, other = f"{COOKIE}={DOOR.token}", f"{COOKIE}=other"
    client = client_of(desk, token=None)
    for cookies in (own, f"{own}; {other}", f"{other}; {own}", f'a="b;{own}'):
        assert client.get("api/state", headers={"cookie": cookies}).status_code == 200
    for cookies in (other, f"x{own}", f"{COOKIE}", f"a={own}", "\xff=;;="):
        assert client.get("api/state", headers={"cookie": cookies.encode("latin-1")}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8765", "evil.example:8765", "127.0.0.1:1", "127.0.0.1"])
def test_another_name_of_the_server_is_refused(client: Client, host: str) -> None:
    assert client.get("api/state", headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": DOOR.origin, "sec-fetch-site": "same-site"},
        {"origin": DOOR.origin, "sec-fetch-site": "none"},
    ],
)
def test_only_the_page_itself_changes_anything(client: Client, desk: Desk, headers: dict[str, str]) -> None:
    before = (desk.folder / "schema.toml").read_bytes()
    posts = ["api/schema", "api/plan", "api/runs", *(f"api/runs/1/{act}" for act in ("cancel", "resume", "discard"))]
    for path in [*posts, "api/runs/1/report/evaluate"]:
        assert client.post(path, json={}, headers=headers).status_code == 403
    assert (desk.folder / "schema.toml").read_bytes() == before
    assert not (desk.folder / "runs").exists()


def test_other_sites_read_nothing(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        assert {client.get(path, headers={"sec-fetch-site": site}).status_code for path in READ} == {403}


def test_nothing_is_cached_framed_or_loaded_from_elsewhere(client: Client, desk: Desk) -> None:
    refused = client_of(desk, token=None)
    for answer in (client.get(""), client.get("main.js"), client.get("api/state"), refused.get("api/state")):
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_has_no_script_style_or_address_inside() -> None:
    folder = Path(us.__file__).parent / "studio" / "page"
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "http://" not in text
        assert "https://" not in text
        if file.suffix == ".html":
            assert text.count("<script") == text.count('<script type="module" src=') == 1
            assert "style=" not in text
            assert "onclick=" not in text
        if file.suffix == ".js":
            assert "innerHTML" not in text


# What it sends


def test_before_a_run_nothing_that_is_sent_depends_on_the_values(tmp_path: Path) -> None:
    """Two files with the same header and kinds give equal bytes at every endpoint."""
    file, request = tmp_path / "people.csv", {"epsilon": "0.7", "method": "independent"}
    tables = [
        "age,city,income,since\n41,Bern,1.5,2020-01-31\n52,Basel,2.5,2021-02-28\n",
        "age,city,income,since\n" + "7,Zug,99.5,1999-12-31\n" * 3000 + ",,,\n",
    ]
    answers = []
    for number, content in enumerate(tables):
        file.write_text(content)
        desk = Desk.open(str(file), tmp_path / "studio")
        client = client_of(desk)
        sent = [client.get(path).content for path in READ]
        version = client.get("api/schema").json()["version"]
        form = client.get("api/schema").json()["form"]
        for body in (
            {"form": form, "base": version, "save": False},
            {"form": {**form, "rules": ["age >= income", "nonsense ("]}, "base": version, "save": True},
            {"toml": "[table", "base": version},
        ):
            sent.append(client.post("api/schema", json=body, headers=ORIGIN).content)
        sent.append(client.post("api/plan", json=request, headers=ORIGIN).content)
        sent.append(client.post("api/runs", json={**request, "epsilon": "-1"}, headers=ORIGIN).content)
        sent += [client.get(f"api/runs/1{path}").content for path in ("", "/preview", "/files/synthetic.csv")]
        answers.append(sent)
        (tmp_path / "studio").rename(tmp_path / f"studio-{number}")
    assert answers[0] == answers[1]
    joined = b"".join(answers[0])
    assert b'"drafted":true' in joined  # kinds were drafted from the values, and the page says so
    assert not any(value in joined for value in (b"Bern", b"Basel", b"99.5"))


def test_the_page_states_the_default_of_delta() -> None:
    page = (Path(server.__file__).parent / "page" / "index.html").read_text()
    hint = page.split('id="delta-hint">')[1].split("<")[0]
    assert "declared rows to the power −3/2" in hint
    assert default_delta(40_000) == pytest.approx(40_000**-1.5, rel=0.1)
    stated = [float(each) for each in re.findall(r"1e-\d+", hint)]
    assert stated == [default_delta(10**9), default_delta(100), default_delta(None)]


def test_the_page_and_the_plan_command_agree(client: Client, desk: Desk) -> None:
    sent = client.post("api/plan", json={"epsilon": 1, "method": "independent"}, headers=ORIGIN).json()
    made = us.plan(SCHEMA_DICT, "independent", epsilon=1)
    assert [query["what"] for query in sent["queries"]] == [query.label for query in made]
    assert sent["expected"][0]["rows"] == f"{made.expected[0].stddev:.3g}"
    assert sent["strength"] == "strong"
    assert "10% likely" in sent["meaning"]["sentences"][0]
    assert float(sent["epsilon"]) <= 1


SCHEMA_DICT = {
    "table": {"rows": 100},
    "columns": {
        "age": {"kind": "integer", "bounds": [0, 100]},
        "city": {"kind": "categorical", "categories": ["Bern", "Basel"]},
    },
}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "Set epsilon"),
        ({"epsilon": "much", "method": "mst"}, "Epsilon must be a number"),
        ({"epsilon": "nan", "method": "mst"}, "finite"),
        ({"epsilon": -1, "method": "mst"}, "positive"),
        ({"epsilon": 1, "method": "mts"}, "Did you mean 'mst'"),
        ({"epsilon": 1, "method": ["mst"]}, "Choose a method"),
        ({"epsilon": 1, "method": "mst", "rows": "2.5"}, "whole number"),
        ({"epsilon": 10**400, "method": "mst"}, "must be a number"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(client: Client, given: dict, reason: str) -> None:
    answer = client.post("api/plan", json=given, headers=ORIGIN)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]


def test_requests_that_are_no_json_are_refused(client: Client) -> None:
    as_form = {**ORIGIN, "content-type": "text/plain"}
    assert client.post("api/plan", content="{}", headers=as_form).status_code == 415
    as_json = {**ORIGIN, "content-type": "application/json"}
    for body in (b"{", b"[]", b"\xff", b"[" * 100_000):
        assert client.post("api/plan", content=body, headers=as_json).status_code == 400
    assert client.post("api/plan", content=b" " * 5_000_000, headers=as_json).status_code == 413
    assert client.get("api/nothing").status_code == 404
    assert client.get("../../../etc/passwd").status_code in (403, 404)


# The schema


def test_a_valid_form_is_kept_and_another_tab_is_not_overwritten(client: Client, desk: Desk) -> None:
    first = client.get("api/schema").json()
    form = json.loads(json.dumps(first["form"]))
    form["columns"][1] |= {"categories": ["Bern", "Basel"], "closed": True}
    form["rules"] = ["age >= 18", '{when = "city = \'Bern\'", then = "age < 90"}']
    kept = client.post("api/schema", json={"form": form, "base": first["version"], "save": True}, headers=ORIGIN).json()
    assert kept["problems"] == []
    assert us.Schema.read(desk.folder / "schema.toml").to_dict() == us.Schema.from_toml(kept["toml"]).to_dict()
    assert kept["form"]["rules"] == form["rules"]
    late = client.post("api/schema", json={"form": form, "base": first["version"], "save": True}, headers=ORIGIN)
    assert late.status_code == 400
    assert "another tab" in late.json()["error"]


@pytest.mark.parametrize(
    ("change", "column", "key"),
    [
        ({"bounds": ["9", "1"]}, "age", "bounds"),
        ({"bounds": ["1", ""]}, "age", "bounds"),
        ({"bounds": ["low", "high"]}, "age", "bounds"),
        ({"kind": "nothing"}, "age", "kind"),
        ({"categories": []}, "age", "categories"),
        ({"surprise": 1}, "age", "surprise"),
    ],
)
def test_problems_name_the_field(client: Client, desk: Desk, change: dict, column: str, key: str) -> None:
    first = client.get("api/schema").json()
    form = first["form"]
    form["columns"][0] |= change
    sent = client.post("api/schema", json={"form": form, "base": first["version"], "save": True}, headers=ORIGIN).json()
    assert [(each["column"], each["key"]) for each in sent["problems"]] == [(column, key)]
    assert client.get("api/schema").json()["version"] == first["version"]


def test_problems_of_the_table_and_of_rules(client: Client) -> None:
    first = client.get("api/schema").json()

    def problem(**change: object) -> dict:
        form = {**first["form"], **change}
        answer = client.post("api/schema", json={"form": form, "base": first["version"]}, headers=ORIGIN)
        return answer.json()["problems"][0]

    assert problem(table={"rows": "many"})["key"] == "rows"
    assert problem(table={"target": "absent"})["key"] == "target"
    assert problem(rules=["age > 3", "agee > 3"])["rule"] == 1
    assert problem(rules=["", "{when"])["rule"] == 1
    assert problem(rules=["{a = " * 3000])["rule"] == 0
    assert problem(columns=[1])["message"]
    assert problem(columns=[{"name": "a", "kind": "categorical", "categories": 5, "numbers": True}])["key"]


@pytest.mark.parametrize(
    ("column", "text", "positive"),
    [
        ({"kind": "boolean"}, "True", True),
        ({"kind": "categorical", "categories": ["1", "2"], "numbers": True}, "2", 2),
        ({"kind": "categorical", "categories": ["1", "2"]}, "2", "2"),
    ],
)
def test_the_positive_class_has_the_type_of_the_target(column: dict, text: str, positive: object) -> None:
    table = {"target": "y", "positive": text}
    schema, problems = read_form({"table": table, "columns": [{"name": "y", **column}], "rules": []})
    assert problems == []
    assert schema is not None
    assert schema.positive == positive
    assert type(schema.positive) is type(positive)


def test_a_form_shows_a_schema_without_loss() -> None:
    columns = {
        "start": {"kind": "date", "bounds": ["2020-01-01", "2020-12-31"], "parts": ["month"], "format": "%d.%m.%Y"},
        "hour": {"kind": "integer", "bounds": [0, 24], "cyclic": True, "missing": [99]},
        "grade": {"kind": "categorical", "categories": [1, 2, 3], "ordinal": True},
        "place": {"kind": "location", "latitude": "lat", "longitude": "lon", "box": [46, 6, 48, 10]},
    }
    rules = [
        {"when": "hour > 3", "then": "grade = 1"},
        "hour < 23",
        {"combinations": ["grade", "hour"], "allowed": [[1, 2], [2, 3]]},
    ]
    schema = us.schema.as_schema({"table": {"rows": 9}, "columns": columns, "rules": rules})
    again, problems = read_form(json.loads(json.dumps(form_of(schema), default=str)))
    assert problems == []
    assert again is not None
    assert again.to_dict() == schema.to_dict()


# Runs


def test_a_second_run_is_refused_while_one_goes_on(desk: Desk, client: Client) -> None:
    given = {"epsilon": 1, "method": "independent", "schema": client.get("api/schema").json()["version"]}
    with desk.jobs._locked():  # as held by the process of a run
        answer = client.post("api/runs", json=given, headers=ORIGIN)
        assert answer.status_code == 400
        assert "in progress" in answer.json()["error"]
        with pytest.raises(StudioError, match="in progress"):
            desk.jobs.start(desk.folder / "runs" / "0001", ["methods"], {})
    assert client.get("api/runs").json() == []


def test_a_studio_with_another_folder_does_not_run_on_the_same_table(desk: Desk, tmp_path: Path) -> None:
    other = Desk.open(desk.source, tmp_path / "other", schema=tmp_path / "people.toml")
    given = {"epsilon": 1, "method": "independent", "schema": other.describe_schema()["version"]}
    with desk.jobs._locked_source(), pytest.raises(StudioError, match="another folder"):
        other.start(given)
    assert other.runs() == []
    assert not list((tmp_path / "other").glob("runs/*"))


def test_a_run_that_holds_rows_out_has_the_delta_that_its_plan_shows(desk: Desk) -> None:
    given = {"epsilon": 1, "method": "independent", "holdout": "0.2"}
    command = desk._synth(Request.of(given).at_planned_delta(100), Path("run"))
    planned = us.Guarantee(1.0).with_delta_for(100).delta
    assert command[command.index("--delta") + 1] == repr(planned)
    assert "--delta" not in desk._synth(Request.of({**given, "holdout": ""}).at_planned_delta(100), Path("run"))


def test_a_run_of_a_changed_schema_is_refused(client: Client) -> None:
    given = {"epsilon": 1, "method": "independent", "schema": "older"}
    assert "since this plan was made" in client.post("api/runs", json=given, headers=ORIGIN).json()["error"]


def test_a_run_uses_the_schema_of_its_plan_even_if_another_tab_keeps_one_meanwhile(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = iter([SCHEMA, SCHEMA.replace("100", "200")])  # another schema from the second reading on
    monkeypatch.setattr(Desk, "_toml", lambda self: next(texts))
    monkeypatch.setattr(desk.jobs, "start", lambda *_: None)
    version = hashlib.sha256(SCHEMA.encode()).hexdigest()
    desk.start({"epsilon": 1, "method": "independent", "schema": version})
    assert us.Schema.read(desk.folder / "runs" / "0001" / "schema.toml").rows == 100


def test_a_table_that_is_gone_is_one_clear_line(desk: Desk, client: Client) -> None:
    Path(desk.source).unlink()
    given = {"epsilon": 1, "method": "independent", "schema": client.get("api/schema").json()["version"]}
    answer = client.post("api/runs", json=given, headers=ORIGIN)
    assert (answer.status_code, "cannot be opened" in answer.json()["error"]) == (400, True)
    assert client.get("api/runs").json() == []


def test_a_run_is_not_discarded_while_another_tab_resumes_it(
    desk: Desk, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = desk.folder / "runs" / "0001" / "synthetic.release.checkpoint"
    checkpoint.mkdir(parents=True)
    monkeypatch.setattr(desk.jobs, "state", lambda job: State.CANCELLED)  # as it was just before
    with desk.jobs._locked():
        assert "in progress" in client.post("api/runs/1/discard", json={}, headers=ORIGIN).json()["error"]
    assert checkpoint.exists()
    assert client.post("api/runs/1/discard", json={}, headers=ORIGIN).status_code == 200
    assert not checkpoint.exists()


def test_a_run_that_left_no_outcome_was_interrupted_and_has_cost_its_plan(desk: Desk, client: Client) -> None:
    run = desk.folder / "runs" / "0001"
    run.mkdir(parents=True)
    facts = {"request": {"method": "mst", "epsilon": 1.0, "delta": None}, "planned": {"epsilon": "1", "delta": "1e-6"}}
    write_json(run / "job.json", {"command": ["synth"], "started": "2026-01-01T00:00:00+00:00", **facts})
    assert client.get("api/runs/1").json()["state"] == "interrupted"
    assert client.get("api/runs/1").json()["resumable"] is False
    assert "nothing to resume" in client.post("api/runs/1/resume", json={}, headers=ORIGIN).json()["error"]
    (run / "log.txt").write_text("Note: a note.\nunderstudy: The book is empty.\n")
    write_json(run / "outcome.json", {"code": 2})
    failed = client.get("api/runs/1").json()
    assert (failed["state"], failed["message"]) == ("failed", "The book is empty.")
    assert failed["notes"] == ["Note: a note."]
    for path in ("preview", "files/certificate.html", "files/../job.json"):
        assert client.get(f"api/runs/1/{path}").status_code in (400, 404)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_preview_shows_the_first_rows_of_the_file(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"a;b": [None if at % 2 else f'"{at}; x' for at in range(30)], "n": list(range(30))})
    origin = Origin.of(table.schema.with_metadata({"delimiter": ";"}), "file")
    write_table(table, tmp_path / f"fake{suffix}", origin=origin)
    write_json(tmp_path / "release.json", {"origin": origin.to_dict()})
    shown = first_rows(tmp_path / f"fake{suffix}", tmp_path)
    assert shown["columns"] == table.column_names
    assert shown["rows"] == [["" if at % 2 else f'"{at}; x', str(at)] for at in range(20)]


def test_a_report_is_made_only_after_the_warning_was_confirmed(desk: Desk, client: Client) -> None:
    run = desk.folder / "runs" / "0001"
    run.mkdir(parents=True)
    write_json(run / "job.json", {"command": [], "request": {}})
    write_json(run / "outcome.json", {"code": 0})
    for given in ({}, {"confirmed": "yes"}, {"confirmed": 1}):
        answer = client.post("api/runs/1/report/evaluate", json=given, headers=ORIGIN)
        assert "Confirm first" in answer.json()["error"]
    assert not (run / "evaluate").exists()


def test_a_book_that_has_too_little_left_refuses_the_run(desk: Desk, tmp_path: Path) -> None:
    book = us.BudgetBook.create(tmp_path / "people.book", epsilon=0.5, delta=1e-3)
    client = client_of(dataclasses.replace(desk, book=book.path))
    version = client.get("api/schema").json()["version"]
    request = {"epsilon": 1, "method": "independent", "schema": version}
    plan = client.post("api/plan", json=request, headers=ORIGIN).json()["book"]
    assert plan["fits"] is False
    assert plan["delta_fits"] is True
    assert "of the limit" in client.post("api/runs", json=request, headers=ORIGIN).json()["error"]
    assert client.get("api/book").json()["fraction_left"] == 1
    assert client.get("api/runs").json() == []


# The folder


def test_the_folder_is_private_and_belongs_to_one_table(desk: Desk, tmp_path: Path) -> None:
    assert stat.S_IMODE(desk.folder.stat().st_mode) == 0o700
    (tmp_path / "other.csv").write_text("a\n1\n")
    with raises(ConfigError, setting="folder"):
        Desk.open(str(tmp_path / "other.csv"), desk.folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with raises(ConfigError, setting="folder"):
        Desk.open(str(tmp_path / "people.csv"), tmp_path / "full")
    assert sorted(each.name for each in (tmp_path / "full").iterdir()) == ["mine.txt"]
    with pytest.raises(us.TableError):
        Desk.open(str(tmp_path / "absent.csv"))
    with pytest.raises(us.BookError):
        Desk.open(str(tmp_path / "other.csv"), book=tmp_path / "absent.book")
    assert not (tmp_path / "other.studio").exists()


def test_the_options_of_the_command_reach_the_run(desk: Desk) -> None:
    read = us.ReadOptions(header=False, separator="tab", decimal=",")
    options = dataclasses.replace(desk, reading=read)._reading_options()
    assert options == ["--no-header", "--separator", "tab", "--decimal", ","]


def test_a_port_in_use_is_one_clear_line() -> None:
    with listen(0) as taken, raises(ConfigError, setting="port"):
        listen(taken.getsockname()[1])


def test_tokens_differ() -> None:
    doors = [Door(1) for _ in range(3)]
    assert all(a.token != b.token and a.path != b.path for a, b in itertools.combinations(doors, 2))
    assert len(doors[0].token) >= 43


def test_runs_print_no_tracebacks_whatever_the_server_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_DEBUG", "1")
    assert "UNDERSTUDY_DEBUG" not in environment(tmp_path)
