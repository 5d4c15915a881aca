"""The studio in a real browser: from a file to its certificate, and what may go wrong on it."""

import contextlib
import functools
import http.server
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from understudy.studio.guard import Door
from understudy.studio.server import _opening_page

pytestmark = pytest.mark.studio
playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SLOW = 120_000
"""Milliseconds after which an expected change of the page is missing."""
LONG_RUN = "steps=200000"
"""Settings with which dpgan trains for longer than any test."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(SLOW)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    if folder := os.environ.get("STUDIO_SCREENSHOTS"):  # to look at, where a test failed
        opened.screenshot(path=f"{folder}/last.png")
    context.close()
    assert not problems


class Server:
    """The command `understudy studio` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "understudy", "studio", *arguments, "--no-browser"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        lines = iter(self.process.stderr.readline, "")
        self.url = next(line.strip() for line in lines if line.startswith("http://"))

    @property
    def base(self) -> str:
        return self.url.partition("?")[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a table, its schema, and no run left behind."""
    draw = random.Random(0)
    lines = [f"{draw.randint(18, 80)},{draw.choice(['Bern', 'Basel'])},{draw.random():.2f}" for _ in range(600)]
    (tmp_path / "people.csv").write_text("\n".join(["age,city,income", *lines, ""]))
    (tmp_path / "people.toml").write_text(
        '[table]\nrows = 600\n[columns.age]\nkind = "integer"\nbounds = [18, 80]\n[columns.city]\n'
        'kind = "categorical"\ncategories = ["Bern", "Basel"]\n[columns.income]\nkind = "real"\nbounds = [0, 1]\n'
    )
    yield tmp_path
    for job in tmp_path.glob("*.studio/runs/*/process.json"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            group = int(re.findall(r"\d+", job.read_text())[0])
            if not (job.parent / "outcome.json").exists():
                os.killpg(group, signal.SIGKILL)


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*options: str, schema: bool = True) -> Server:
        declared = ["--schema", str(folder / "people.toml")] if schema else []
        servers.append(Server(str(folder / "people.csv"), *declared, *options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def open_studio(page: Any, server: Server, step: str = "") -> None:
    page.goto(server.url)
    page.wait_for_selector("body[data-ready]")
    if step:
        page.click(f"nav a[href='#{step}']")


def tab_to(page: Any, name: str, *, limit: int = 120) -> None:
    """Moves the focus by the Tab key alone to the control with this accessible name."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
              const at = document.activeElement;
              const of = [...(at.labels ?? [])].map((each) => each.textContent);
              return (at.getAttribute("aria-label") ?? (of.join(" ") || at.textContent)).trim();
            }"""
        )
        if name in " ".join(focused.split()):
            return
    raise AssertionError(f"The Tab key does not reach {name!r}.")


def start_run(page: Any, *, method: str = "independent", settings: str = "") -> None:
    page.click("nav a[href='#plan']")
    page.select_option("#method", method)
    page.fill("#settings", settings)
    page.wait_for_function("() => document.querySelector('#plan-status').textContent.startsWith('Planned')")
    page.wait_for_timeout(600)
    page.wait_for_function("() => !document.querySelector('#plan-body').classList.contains('old')")
    page.click("nav a[href='#run']")
    page.click("#start:enabled")


def test_the_whole_way_by_keyboard_from_a_file_to_its_certificate(
    page: Any, folder: Path, serve: Callable[..., Server]
) -> None:
    open_studio(page, serve(schema=False))
    assert "one row can change them" in page.inner_text("#drafted-text")
    tab_to(page, "I have checked names")
    page.keyboard.press("Space")
    page.wait_for_selector("#drafted", state="hidden")
    tab_to(page, "Number of rows")
    page.keyboard.type("600")
    tab_to(page, "estimated privately")
    page.keyboard.press("ArrowLeft")  # from estimated to declared, as radio buttons do
    tab_to(page, "Lower bound of age")
    page.keyboard.type("18")
    tab_to(page, "Upper bound of age")
    page.keyboard.type("80")
    page.wait_for_function("() => document.querySelector('#schema-status').textContent.startsWith('Saved. 2 columns')")
    tab_to(page, "Continue to the plan")
    page.keyboard.press("Enter")
    page.wait_for_selector("#plan-body .seal")
    assert page.evaluate("document.activeElement.id") == "title-plan"
    tab_to(page, "Epsilon: smaller")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#epsilon-slider", "aria-valuetext") == "epsilon 0.98"
    tab_to(page, "Epsilon as a number")
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    page.select_option("#method", "independent")
    page.wait_for_function("() => document.querySelector('#plan-body .seal')?.textContent.includes('requested: 2')")
    tab_to(page, "Continue to the run")
    page.keyboard.press("Enter")
    page.wait_for_selector("#start:enabled")
    tab_to(page, "Start the run")
    page.keyboard.press("Enter")
    page.wait_for_selector("#run-now")
    page.wait_for_selector("#step-results:not([hidden])")
    certificate = page.frame_locator("#certificate")
    assert certificate.locator(".kind").text_content() == "Privacy certificate"
    page.wait_for_selector("#preview td")
    assert page.locator("#preview tbody tr").count() == 20
    run = folder / "people.studio" / "runs" / "0001"
    with page.expect_download() as downloaded:
        page.click("text=Synthetic table")
    assert Path(downloaded.value.path()).read_bytes() == (run / "synthetic.csv").read_bytes()
    with page.expect_download() as downloaded:
        page.click("text=Evidence bundle")
    assert us.verify_bundle(downloaded.value.path()).is_intact
    release = us.Release.load(run / "synthetic.release")
    assert release.statement.epsilon_target == 2
    assert not release.schema.drafted
    _make_report(page)


def _make_report(page: Any) -> None:
    """The report stays behind its warning."""
    page.click("nav a[href='#report']")
    assert page.is_disabled("#make-evaluate")
    assert page.locator("#make-disclose").count() == 0  # no rows were held out
    page.check("#confirm")
    page.click("#make-evaluate")
    page.wait_for_selector("text=Open the report")
    with page.context.expect_page() as opened:
        page.click("text=Open the report")
    opened.value.wait_for_load_state()
    assert "real" in opened.value.inner_text("body")
    assert opened.value.evaluate("self.origin") == "null"  # it can ask the server for nothing


def test_the_privacy_unit_is_shown_as_what_it_is(page: Any, serve: Callable[..., Server]) -> None:
    open_studio(page, serve())
    unit = page.locator("fieldset", has_text="age").first
    assert unit.get_by_label("declared", exact=True).is_visible()
    page.select_option("#table-unit", "age")
    page.wait_for_function("() => document.querySelector('#schema-status').textContent.startsWith('Saved.')")
    assert unit.get_by_text("The privacy unit is never modelled").is_visible()
    assert not unit.get_by_label("declared", exact=True).is_visible()  # bounds of a unit have no effect
    assert page.inner_text("#schema-status") == "Saved. All bounds and categories are declared."
    page.click("nav a[href='#plan']")
    page.wait_for_selector("#plan-body .lead code")
    assert page.inner_text("#plan-body .lead code") == "age"
    assert "`" not in page.inner_text("#step-plan")


def test_every_control_has_a_name_for_screen_readers(page: Any, folder: Path, serve: Callable[..., Server]) -> None:
    us.BudgetBook.create(folder / "people.book", epsilon=3, delta=1e-3)
    open_studio(page, serve("--book", str(folder / "people.book")))
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    session = page.context.new_cdp_session(page)
    controls = {
        "textbox",
        "button",
        "link",
        "combobox",
        "checkbox",
        "radio",
        "slider",
        "meter",
        "progressbar",
        "region",
    }
    seen = set[str]()
    for step in ("schema", "plan", "run", "results", "report"):
        page.click(f"nav a[href='#{step}']")
        page.wait_for_timeout(1000)
        tree = session.send("Accessibility.getFullAXTree")["nodes"]
        found = [
            (n["role"]["value"], n["name"]["value"])
            for n in tree
            if not n["ignored"] and n.get("role", {}).get("value") in controls
        ]
        assert found
        assert not [role for role, name in found if not name.strip()]
        texts = [name for role, name in found if role in ("textbox", "combobox", "slider")]
        assert len(texts) == len(set(texts))  # each can be told from the others
        seen |= {role for role, _ in found}
        assert page.locator("h2:visible").count() >= 1
    assert {"textbox", "button", "link", "combobox", "checkbox", "radio", "slider", "meter"} <= seen
    for live in ("#schema-status", "#plan-status", "#run-text"):
        assert page.get_attribute(live, "role") == "status"
    for alert in ("#alert", "#plan-error", "#run-error", "#rules-error"):
        assert page.get_attribute(alert, "role") == "alert"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_is_legible(browser: Any, serve: Callable[..., Server], scheme: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    open_studio(page, serve())
    for step in ("schema", "plan", "run", "results", "report"):
        page.click(f"nav a[href='#{step}']")
        page.wait_for_timeout(800)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("nav a:visible").count() == 5
        assert page.evaluate(_LOWEST_CONTRAST) >= 4.5
    context.close()


_LOWEST_CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let lowest = 21;
  for (const node of document.querySelectorAll("main *, nav *, header *")) {
    const shows = [...node.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    if (!shows || !node.checkVisibility() || node.disabled || node.closest(".hidden, option")) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    lowest = Math.min(lowest, (a + 0.05) / (b + 0.05));
  }
  return lowest;
}"""


def test_a_wrong_token_is_refused(page: Any, serve: Callable[..., Server]) -> None:
    server = serve()
    for url in (server.base, f"{server.base}?token=wrong", f"{server.base}api/state", f"{server.base}main.js"):
        answer = page.goto(url)
        assert answer.status == 403
        assert "people" not in answer.text()


def test_the_opening_page_leads_into_the_studio(page: Any, folder: Path, serve: Callable[..., Server]) -> None:
    """The browser starts from a file that only the user reads, so that no command line shows the token."""
    found = re.fullmatch(r"http://127.0.0.1:(\d+)(/\w+)/\?token=(.*)", serve().url)
    assert found is not None
    opening = _opening_page(folder, Door(int(found[1]), token=found[3], path=found[2]))
    assert stat.S_IMODE(opening.stat().st_mode) == 0o600
    page.goto(opening.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert "token" not in page.url


class _Evil(http.server.BaseHTTPRequestHandler):
    """A page of another server on this machine, which the browser counts to the same site."""

    def __init__(self, target: str, *given: Any) -> None:
        self._target = target
        super().__init__(*given)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        form = f"<form id=f method=post enctype=text/plain action={self._target}api/runs><input name=a value=b></form>"
        self.wfile.write(form.encode())

    def log_message(self, *given: object) -> None:
        pass


def test_requests_of_another_page_are_refused(page: Any, folder: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    open_studio(page, server)
    before = (folder / "people.studio" / "schema.toml").read_bytes()
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Evil, server.base))
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    for name in ("127.0.0.1", "localhost"):
        other = page.context.new_page()
        other.goto(f"http://{name}:{evil.server_port}/")
        for path, kind in (("api/schema", "text/plain"), ("api/runs", "text/plain"), ("api/runs", "application/json")):
            other.evaluate(
                """async ([url, type]) => {
                  const headers = {"content-type": type}, body = '{"toml": "", "epsilon": 1}';
                  const how = {method: "POST", credentials: "include", mode: "no-cors", headers, body};
                  try { await fetch(url, how) } catch { }
                }""",
                [f"{server.base}{path}", kind],
            )
        readable = other.evaluate(
            """async (url) => {
              try { return await (await fetch(url, {credentials: 'include'})).text() } catch { return null }
            }""",
            f"{server.base}api/state",
        )
        assert readable is None
        with other.expect_navigation() as navigation:
            other.evaluate("document.getElementById('f').submit()")
        assert navigation.value.status == 403
        other.close()
    evil.shutdown()
    evil.server_close()
    assert (folder / "people.studio" / "schema.toml").read_bytes() == before
    assert not (folder / "people.studio" / "runs").exists()


def test_a_schema_with_an_error_is_shown_beside_the_field_and_not_kept(
    page: Any, folder: Path, serve: Callable[..., Server]
) -> None:
    open_studio(page, serve())
    before = (folder / "people.studio" / "schema.toml").read_bytes()
    page.get_by_label("Lower bound of age").fill("90")
    error = page.locator("#column-0-bounds-error")
    error.wait_for()
    assert "bounds" in error.inner_text()
    assert page.get_by_label("Lower bound of age").get_attribute("aria-invalid") == "true"
    assert "Not saved" in page.inner_text("#schema-status")
    page.click("nav a[href='#plan']")
    assert page.inner_text("#plan-error") == "Correct the schema first."
    page.click("nav a[href='#run']")
    assert page.is_disabled("#start")
    assert (folder / "people.studio" / "schema.toml").read_bytes() == before
    page.click("nav a[href='#schema']")
    page.get_by_label("Lower bound of age").press_sequentially("0123456789", delay=100)  # faster than answers come
    page.get_by_label("Lower bound of age").fill("10")
    page.fill("#rules", "age >= 12\nagee > 3")
    page.wait_for_selector("#rules-error:has-text('agee')")
    page.fill("#rules", "age >= 12")
    page.wait_for_function("() => document.querySelector('#schema-status').textContent.startsWith('Saved')")
    assert us.Schema.read(folder / "people.studio" / "schema.toml").rules
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#rules") == "age >= 12"


def test_a_book_that_has_too_little_left_refuses(page: Any, folder: Path, serve: Callable[..., Server]) -> None:
    us.BudgetBook.create(folder / "people.book", epsilon=1, delta=1e-3)
    open_studio(page, serve("--book", str(folder / "people.book")))
    start_run(page)
    page.wait_for_selector("#step-results:not([hidden])")
    page.click("nav a[href='#run']")
    page.wait_for_selector("#entries td:has-text('released')")
    assert us.BudgetBook.open(folder / "people.book").fraction_left < 1
    page.click("nav a[href='#plan']")
    page.fill("#epsilon", "3")
    page.wait_for_selector("#plan-body .note-box.bad:has-text('does not fit')")
    page.click("nav a[href='#run']")
    page.click("#start")
    page.wait_for_selector("#run-error:has-text('of the limit of the budget book')")
    assert len(us.BudgetBook.open(folder / "people.book").reservations) == 1


def test_two_tabs_see_the_same_run_and_cancelling_costs_the_plan(
    page: Any, folder: Path, serve: Callable[..., Server]
) -> None:
    us.BudgetBook.create(folder / "people.book", epsilon=3, delta=1e-3)
    server = serve("--book", str(folder / "people.book"))
    open_studio(page, server)
    second = page.context.new_page()
    open_studio(second, server, "run")
    second.wait_for_selector("#start:enabled")
    started: list[str] = []

    def hide_run(route: Any) -> None:
        """The second tab does not notice the run of the first one before it asks for a run itself."""
        if route.request.method == "POST":
            started.append(route.request.url)
        if started:
            route.continue_()
        else:
            route.abort()

    second.route("**/api/runs", hide_run)
    start_run(page, method="dpgan", settings=LONG_RUN)
    page.wait_for_selector("#run-now:visible")
    second.click("#start")
    second.wait_for_selector("#run-now:visible")
    assert "Run 1 is in progress" in second.inner_text("#run-title")
    assert [each.name for each in (folder / "people.studio" / "runs").iterdir()] == ["0001"]
    page.reload()
    page.wait_for_selector("#run-now:visible")
    _wait_for(lambda: bool(us.BudgetBook.open(folder / "people.book").reservations))
    second.click("#cancel")
    assert "costs the planned amount" in second.inner_text("#dialog-text")
    second.keyboard.press("Escape")
    assert second.is_visible("#run-now")
    second.click("#cancel")
    second.click("#dialog-yes")
    page.wait_for_selector("#run-ended:has-text('was cancelled')")
    assert "counts as spent" in page.inner_text("#run-ended")
    book = us.BudgetBook.open(folder / "people.book")
    assert [each.outcome.value for each in book.reservations] == ["open"]
    assert book.fraction_left < 1


def test_a_run_outlives_its_server_and_can_be_resumed(page: Any, folder: Path, serve: Callable[..., Server]) -> None:
    first = serve()
    open_studio(page, first)
    start_run(page, method="dpgan", settings=LONG_RUN)
    run = folder / "people.studio" / "runs" / "0001"
    _wait_for(lambda: any(run.glob("*.checkpoint/*")))
    first.kill()
    page.wait_for_selector("#alert:has-text('does not answer')")

    open_studio(page, serve(), "run")
    page.wait_for_selector("#run-now:visible")
    assert "Run 1 is in progress" in page.inner_text("#run-title")
    os.killpg(int(re.findall(r"\d+", (run / "process.json").read_text())[0]), signal.SIGKILL)
    page.wait_for_selector("#run-ended:has-text('was interrupted')")
    assert "counts as spent" in page.inner_text("#run-ended")
    page.click("#run-ended >> text=Resume run 1")
    page.wait_for_selector("#run-now:visible")
    page.click("#cancel")
    page.click("#dialog-yes")
    page.wait_for_selector("#run-ended:has-text('was cancelled')")
    page.click("#run-ended >> text=Discard run 1")
    page.click("#dialog-yes")
    page.wait_for_selector("#run-ended:has-text('cannot be resumed')")
    assert not list(run.glob("*.checkpoint"))


def test_a_port_in_use_ends_the_command_with_one_line(folder: Path, serve: Callable[..., Server]) -> None:
    port = serve().base.split(":")[2].partition("/")[0]
    command = [sys.executable, "-m", "understudy", "studio", str(folder / "people.csv"), "--port", port, "--no-browser"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"understudy: Port {port} is in use. Choose another with --port, or leave it out for a free one."
    ]


@pytest.mark.usefixtures("can_interrupt")
def test_ctrl_c_stops_the_server_quietly(serve: Callable[..., Server], folder: Path) -> None:
    server = serve()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=60) == 0
    assert server.process.stderr is not None
    assert server.process.stderr.read() == ""


def _wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SLOW / 1000
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)
