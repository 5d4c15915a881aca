"""What a studio works on: one table, one folder, and what the page may know of them.

Until a run has ended, nothing that the page is sent depends on the rows, except the kinds of a drafted schema; the page
says so. Everything a run writes is below the folder, which only its owner can open.
"""

import contextlib
import csv
import dataclasses
import hashlib
import itertools
import json
import os
import shlex
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from understudy.errors import ConfigError, SchemaError, TableError
from understudy.institution.bundle import write_bundle
from understudy.release import RELEASE_FILES
from understudy.run.atomic import read_object, write_file
from understudy.run.checkpoint import is_unfinished
from understudy.run.plan import synthesizer_of
from understudy.schema import Schema
from understudy.schema.column import KINDS
from understudy.studio.forms import Problem, form_of, read_form
from understudy.studio.jobs import Jobs, State, StudioError, failure_of, notes_of, write_json
from understudy.studio.plan_page import Request, describe_book, describe_plan
from understudy.synthesizers.registry import AUTO, describe_methods, name_of
from understudy.tables import Origin, ReadOptions, draft_table
from understudy.tables.path import table_stem

REPORTS = {"evaluate": "scores.json", "disclose": "disclosure.json"}
"""The in-house reports by the command that makes them, with the file that it writes beside its page."""
_FORMAT = "understudy-studio"
PREVIEW_ROWS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Desk:
    """One table and the folder of its studio."""

    source: str
    folder: Path
    book: Path | None = None
    policy: Path | None = None
    reading: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    jobs: Jobs
    _guard: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @classmethod
    def open(
        cls,
        source: str,
        folder: Path | None = None,
        *,
        schema: Path | None = None,
        book: Path | None = None,
        policy: Path | None = None,
        reading: ReadOptions | None = None,
    ) -> "Desk":
        """Opens the folder of a table, or makes it. Refuses the folder of another table."""
        path = source.partition("::")[0]
        if "://" in source or not os.path.exists(path):
            raise TableError(
                f"{path} does not exist. The studio works on a file, a folder or a database on this machine."
            )
        if book is not None:
            describe_book(book)  # refused here rather than at the first run
        source = os.path.realpath(path) + source[len(path) :]
        usual = Path(os.path.abspath(path))
        place = Path(os.path.realpath(folder or usual.with_name(f"{table_stem(usual.name)}.studio")))
        reading = ReadOptions() if reading is None else reading
        declared = None if schema is None else Schema.read(schema)
        written = place / "schema.toml"
        is_newer = schema is not None and written.exists() and schema.stat().st_mtime > written.stat().st_mtime
        if declared is None and not written.exists():
            declared = Schema.draft(draft_table(source, reading=reading).types)
        _claim_folder(place, source)
        if declared is not None and (is_newer or not written.exists()):
            write_file(written, declared.to_toml().encode(), force=True)
        paths = [None if each is None else Path(os.path.realpath(each)) for each in (book, policy)]
        return cls(
            source=source, folder=place, book=paths[0], policy=paths[1], reading=reading, jobs=Jobs(place, source)
        )

    # What the page shows

    def describe(self) -> dict[str, object]:
        """Everything about the table that does not change while the page is open."""
        return {
            "file": Path(self.source).name,
            "folder": str(self.folder),
            "book": None if self.book is None else self.book.name,
            "policy": None if self.policy is None else self.policy.name,
            "kinds": KINDS,
            "methods": [{"name": name, "line": line} for name, line in describe_methods()],
            "method": name_of(synthesizer_of(AUTO)),
        }

    def describe_schema(self) -> dict[str, object]:
        """The schema as a form and as TOML, or why the file is none."""
        toml = self._toml()
        try:
            schema = Schema.from_toml(toml, source="schema.toml", folder=self.folder)
        except SchemaError as error:
            return {"version": _version(toml), "toml": toml, "form": None, "error": str(error)}
        return self._shown(schema, toml)

    def check_form(self, form: Mapping[str, Any], base: str, *, save: bool) -> dict[str, object]:
        """Checks a form, and keeps it if it is without problems and nobody else has changed the schema since."""
        schema, problems = read_form(form)
        return self._keep(schema, problems, base, save=save)

    def check_toml(self, text: str, base: str) -> dict[str, object]:
        """The same for the text of a schema file."""
        try:
            schema = Schema.from_toml(text, source="The schema", folder=self.folder)
        except SchemaError as error:
            problem = Problem(column=error.column, key=error.key, rule=None, message=str(error))
            return self._keep(None, [problem], base, save=True)
        return self._keep(schema, [], base, save=True)

    def _keep(self, schema: Schema | None, problems: list[Problem], base: str, *, save: bool) -> dict[str, object]:
        if schema is None:
            return {"problems": problems}
        toml = schema.to_toml()
        with self._guard:
            if save and base != _version(self._toml()):
                raise StudioError("The schema was changed in another tab. Reload the page to see it.")
            if save:
                write_file(self.folder / "schema.toml", toml.encode(), force=True)
        return {"problems": [], **self._shown(schema, toml)}

    def _shown(self, schema: Schema, toml: str) -> dict[str, object]:
        estimated = {column.name: column.estimated for column in schema.modelled if column.estimated is not None}
        return {
            "version": _version(toml),
            "toml": toml,
            "form": form_of(schema),
            "estimated": estimated,
            "modelled": [column.name for column in schema.modelled],
        }

    def plan(self, given: Mapping[str, Any]) -> dict[str, object]:
        """The plan of a run with these settings. Reads no data."""
        request = Request.of(dict(given))
        return {
            **describe_plan(self._schema(), request, self.book),
            "command": shlex.join(self._synth(request, Path("run"))),
        }

    def describe_book(self) -> dict[str, object] | None:
        return None if self.book is None else describe_book(self.book)

    # Runs

    def runs(self) -> list[dict[str, object]]:
        """Every run of this folder, the newest first."""
        numbers = [each for each in self._numbers() if (self._run_folder(each) / "job.json").exists()]
        return [self.run(number) for number in sorted(numbers, reverse=True)]

    def start(self, given: Mapping[str, Any]) -> dict[str, object]:
        """Starts a run with the schema that is kept now; refused while another job runs."""
        toml = self._toml()  # read once: another tab may keep a schema in the meantime
        if given.get("schema") != _version(toml):
            raise StudioError("The schema has changed since this plan was made. Reload the page and look at the plan.")
        schema = self._schema(toml)
        request = Request.of(dict(given)).at_planned_delta(schema.rows)
        plan = describe_plan(schema, request, self.book)
        _require_room(plan["book"])
        if self.jobs.running() is not None:
            raise StudioError("A run is already in progress. Wait for it, or cancel it first.")
        with self._guard:
            number = max(self._numbers(), default=0) + 1
            run = self._run_folder(number)
            run.mkdir(mode=0o700, parents=True)
        schema.write(run / "schema.toml")
        planned = {"epsilon": plan["epsilon"], "delta": plan["delta"]}
        facts = {"request": request._asdict(), "planned": planned, "book": self.book is not None}
        try:
            self.jobs.start(run, self._synth(request, run), facts)
        except StudioError:
            shutil.rmtree(run)  # another tab was quicker
            raise
        return self.run(number)

    def resume(self, number: int) -> dict[str, object]:
        """Continues a run that was cancelled or killed, from its checkpoint. It spends nothing more."""
        run = self._require_run(number)
        if not self._can_resume(run):
            raise StudioError("There is nothing to resume: this run has no checkpoint.")
        job = read_object(run / "job.json")
        request = Request(**job["request"])
        released = (run / "synthetic.release" / "release.json").exists()
        is_open = is_unfinished(self._checkpoint(run))
        if released and not is_open:  # killed after the release was saved: its table costs nothing to sample
            rows = [] if request.rows is None else ["-n", str(request.rows)]
            command = ["sample", str(run / "synthetic.release"), "-o", str(self._table(run)), *rows, "--force"]
        else:
            command = [*self._synth(request, run), "--resume"]
        self.jobs.start(run, command, {key: job[key] for key in ("request", "planned", "book")})
        return self.run(number)

    def cancel(self, number: int) -> dict[str, object]:
        """Ends a run, or a report on it. The planned cost of a run stays spent."""
        run = self._require_run(number)
        running = self.jobs.running()
        if running is not None and (running == run or running.parent == run):
            self.jobs.cancel(running)
        return self.run(number)

    def discard(self, number: int) -> dict[str, object]:
        """Deletes the checkpoint of an unfinished run, which holds its secret. What it spent stays spent."""
        run = self._require_run(number)
        if self.jobs.state(run) in (State.RUNNING, State.FINISHED):
            raise StudioError("Only a run that was cancelled, interrupted or failed can be discarded.")
        with self.jobs.paused():  # another tab may be about to resume it
            for place in (self._checkpoint(run), *run.glob("synthetic.holdout.csv*")):
                shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        return self.run(number)

    def run(self, number: int) -> dict[str, object]:
        """One run, for the page."""
        run = self._require_run(number)
        job, progress = read_object(run / "job.json"), self._progress(run) or {}
        is_finished = progress["state"] is State.FINISHED
        return {
            "number": number,
            **progress,
            "started": job.get("started"),
            "request": job.get("request"),
            "planned": job.get("planned"),
            "book": job.get("book"),
            "folder": str(run),
            "command": shlex.join(["understudy", *job.get("command", [])]),
            "notes": notes_of(run),
            "resumable": self._can_resume(run),
            "table": self._table(run).name if is_finished else None,
            "reports": {kind: self._progress(run / kind) for kind in REPORTS} if is_finished else {},
            "holdout": (run / "synthetic.holdout.csv").exists(),
        }

    def preview(self, number: int) -> dict[str, object]:
        """The first rows of the synthetic table."""
        table = self._finished(number)
        return first_rows(table, table.parent / "synthetic.release")

    def file(self, number: int, name: str) -> Path:
        """A file of a finished run that the page may offer."""
        table = self._finished(number)
        release = table.parent / "synthetic.release"
        if name == "bundle.zip":
            with self._guard:
                write_bundle(release, table.parent / name, tables=[table], force=True)
            return table.parent / name
        offered = {table.name: table} | {each: release / each for each in RELEASE_FILES}
        offered |= {f"{kind}.html": table.parent / kind / "report.html" for kind in REPORTS}
        content = offered.get(name)
        if content is None or not content.is_file():
            raise StudioError(f"There is no file {name!r} of run {number}.")
        return content

    def report(self, number: int, kind: str, given: Mapping[str, Any]) -> dict[str, object]:
        """Starts an in-house report, which reads real rows: only after a person has confirmed that."""
        table = self._finished(number)
        if kind not in REPORTS:
            raise StudioError(f"There is no report {kind!r}.")
        if given.get("confirmed") is not True:
            raise StudioError("Confirm first that the report reads real rows and is not for publication.")
        job = table.parent / kind
        job.mkdir(mode=0o700, exist_ok=True)
        quick = ["--quick"] if kind == "evaluate" and given.get("quick") is True else []
        command = [kind, self.source, str(table), *self._reading_options(), *quick]
        written = ["--report", str(job / "report.html"), "--json", str(job / REPORTS[kind]), "--force"]
        self.jobs.start(job, [*command, *written], {})
        return self.run(number)

    # Places

    def _schema(self, toml: str | None = None) -> Schema:
        return Schema.from_toml(self._toml() if toml is None else toml, source="schema.toml", folder=self.folder)

    def _toml(self) -> str:
        return (self.folder / "schema.toml").read_text(encoding="utf-8")

    def _numbers(self) -> Iterator[int]:
        with contextlib.suppress(FileNotFoundError):
            yield from (int(each.name) for each in (self.folder / "runs").iterdir() if each.name.isdecimal())

    def _run_folder(self, number: int) -> Path:
        return self.folder / "runs" / f"{number:04}"

    def _require_run(self, number: int) -> Path:
        run = self._run_folder(number)
        if not run.is_dir():
            raise StudioError(f"There is no run {number}.")
        return run

    def _finished(self, number: int) -> Path:
        run = self._require_run(number)
        if self.jobs.state(run) is not State.FINISHED:
            raise StudioError(f"Run {number} has no result.")
        return self._table(run)

    def _table(self, run: Path) -> Path:
        return run / f"synthetic{'.parquet' if Path(self.source).suffix.lower() == '.parquet' else '.csv'}"

    def _checkpoint(self, run: Path) -> Path:
        return run / "synthetic.release.checkpoint"

    def _can_resume(self, run: Path) -> bool:
        if self.jobs.state(run) in (State.RUNNING, State.FINISHED):
            return False
        return is_unfinished(self._checkpoint(run)) or (run / "synthetic.release" / "release.json").exists()

    def _progress(self, job: Path) -> dict[str, object] | None:
        """How far a run or a report is; None for a report that was not requested."""
        if not job.is_dir():
            return None
        state = self.jobs.state(job)
        return {
            "state": state,
            "progress": read_object(job / "progress.json") if state is State.RUNNING else None,
            "message": failure_of(job) if state is State.FAILED else None,
        }

    # Commands

    def _synth(self, request: Request, run: Path) -> list[str]:
        """The command of a run, as a person would type it."""
        options = {
            "--schema": run / "schema.toml",
            "--epsilon": repr(request.epsilon),
            "--delta": None if request.delta is None else repr(request.delta),
            "--method": request.method,
            "-n": request.rows,
            "--split": request.holdout,
            "--book": self.book,
            "--policy": self.policy,
            "-o": self._table(run),
        }
        given = [text for option, value in options.items() if value is not None for text in (option, str(value))]
        return ["synth", self.source, *given, *self._reading_options()]

    def _reading_options(self) -> list[str]:
        usual, options = ReadOptions(), list[str]()
        for field in dataclasses.fields(ReadOptions):
            value = getattr(self.reading, field.name)
            if value == getattr(usual, field.name):
                continue
            if isinstance(value, bool):
                options.append("--header" if value else "--no-header")
            else:
                options += [f"--{field.name}", "tab" if value == "\t" else str(value)]
        return options


def _version(toml: str) -> str:
    return hashlib.sha256(toml.encode()).hexdigest()


def _claim_folder(place: Path, source: str) -> None:
    """Makes the folder, or checks that it is that of this table."""
    about = read_object(place / "studio.json")
    if place.exists() and (not place.is_dir() or (any(place.iterdir()) and about.get("format") != _FORMAT)):
        raise ConfigError(
            f"{place} exists and is not the folder of a studio. Choose another one with --folder.", setting="folder"
        )
    if about and about.get("source") != source:
        raise ConfigError(
            f"{place} belongs to the studio of {about.get('source')}. Choose another folder with --folder.",
            setting="folder",
        )
    if not place.parent.is_dir():
        raise ConfigError(f"The folder {place.parent} does not exist. Create it first, or choose another --folder.")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        place.chmod(0o700)  # real rows that were held out, reports and checkpoints will be in it
    except OSError as error:
        raise ConfigError(f"{place} cannot be used: {error.strerror}. Choose another folder with --folder.") from None
    if not about:
        write_json(place / "studio.json", {"format": _FORMAT, "source": source})


def _require_room(book: object) -> None:
    """Refuses a run that its budget book would refuse."""
    if not isinstance(book, dict):
        return
    if "refused" in book:
        raise StudioError(book["refused"])
    if not book["fits"]:
        raise StudioError(
            f"This run needs {book['needed']} of the limit of the budget book, which has {book['left']} left. "
            f"Lower {'epsilon' if book['delta_fits'] else 'delta'} until the plan fits."
        )


def first_rows(table: Path, release: Path) -> dict[str, object]:
    """Column names and the first rows, as strings, of a table that `synth` wrote with this release folder."""
    if table.suffix == ".parquet":
        file = pq.ParquetFile(table)
        batch = next(file.iter_batches(PREVIEW_ROWS), None)
        names = file.schema_arrow.names
        rows = [] if batch is None else [list(map(_text, row.values())) for row in batch.to_pylist()]
        return {"columns": names, "rows": rows}
    origin = Origin.from_dict(json.loads((release / "release.json").read_bytes())["origin"])
    with table.open(encoding="utf-8", newline="") as lines:
        names, *rows = itertools.islice(csv.reader(lines, delimiter=origin.delimiter), PREVIEW_ROWS + 1)
    return {"columns": names, "rows": rows}


def _text(value: object) -> str:
    return "" if value is None else str(value)
