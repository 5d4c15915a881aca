// The page: steps, the budget book, and the state that all steps share.

import { $, ask, changed, make, onChange, say, show, studio, table } from "./page.js";
import { openPlan } from "./plan.js";
import { openResults } from "./results.js";
import { openRuns } from "./run.js";
import { openSchema } from "./schema.js";

const STEPS = ["schema", "plan", "run", "results", "report"];

function showStep(focus) {
  const asked = location.hash.slice(1);
  if (asked === "main") return;
  const step = STEPS.includes(asked) ? asked : "schema";
  for (const each of STEPS) {
    $(`step-${each}`).hidden = each !== step;
    const link = document.querySelector(`nav a[href="#${each}"]`);
    if (each === step) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  }
  if (focus) {
    $(`title-${step}`).focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  changed(`step:${step}`);
}

async function showBook() {
  if (!studio.about.book) return;
  $("book").hidden = false;
  try {
    const book = await ask("book");
    if (JSON.stringify(book) === JSON.stringify(studio.book)) return;
    studio.book = book;
    $("book-left").textContent = `${book.left} left`;
    $("book-meter").value = book.fraction_left;
    $("book-body").hidden = false;
    $("book-used").textContent = `Limit: ${book.facts.limit}. Used: ${book.facts.used}. Privacy unit: ${book.facts["privacy unit"]}.`;
    $("entries").replaceChildren(book.rows.length ? table(book.head, book.rows) : make("p", {}, "There are none yet."));
    show($("book-facts"), `${book.facts.limit}. ${book.rows.length === 1 ? "1 entry" : `${book.rows.length} entries`}.`);
  } catch (error) {
    $("book-left").textContent = error.message;
  }
  changed("book");
}

function showStatus() {
  const problems = studio.problems.length;
  $("status-schema").textContent = problems ? "to correct" : studio.schema?.form.table.drafted ? "draft" : "valid";
  $("status-plan").textContent = studio.plan ? `ε ${studio.plan.epsilon}` : "";
  const [latest] = studio.runs;
  $("status-run").textContent = latest ? latest.state : "";
  const finished = studio.runs.filter((run) => run.state === "finished").length;
  $("status-results").textContent = finished ? `${finished}` : "";
  const reports = studio.runs.flatMap((run) => Object.values(run.reports)).filter((each) => each?.state === "finished");
  $("status-report").textContent = reports.length ? `${reports.length}` : "";
}

async function open() {
  studio.about = await ask("state");
  document.title = `${studio.about.file} · Understudy studio`;
  $("file").textContent = studio.about.file;
  $("place").textContent = `Everything is written to ${studio.about.folder}`;
  onChange(showStatus);
  let looked = 0;
  onChange((what) => {
    if (what === "run-ended" || what === "run-started") showBook();
    const goesOn = what === "runs" && studio.runs[0]?.state === "running";
    if (goesOn && looked++ % 5 === 0) showBook();  // its entry appears when the process has started
  });
  await openSchema();
  openPlan();
  await openRuns();
  openResults();
  await showBook();
  window.addEventListener("hashchange", () => showStep(true));
  showStep(false);
  document.body.dataset.ready = "yes";
}

open().catch((error) => say(error.message));
