// Step 3: one run at a time, in a process of its own. The page only watches it.

import { $, Refused, ask, changed, confirmed, costOf, make, onChange, show, studio } from "./page.js";

const EVERY = 700;
let timer = null;

export async function openRuns() {
  $("run-form").addEventListener("submit", start);
  $("cancel").addEventListener("click", cancel);
  onChange((what) => { if (what === "plan" || what === "schema") showSummary(); });
  await refresh();
  // Another tab may start a run.
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
}

const running = () => studio.runs.find((run) => run.state === "running");
const busyReport = () => studio.runs.some((run) => Object.values(run.reports).some((each) => each?.state === "running"));

export async function refresh() {
  clearTimeout(timer);
  const before = running()?.number;
  try {
    studio.runs = await ask("runs");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    timer = setTimeout(refresh, 4 * EVERY);
    return;
  }
  showRuns();
  const now = running()?.number;
  if (before !== undefined && now === undefined) {
    changed("run-ended");
    if (studio.runs[0]?.state === "finished" && location.hash === "#run") location.hash = "#results";
  }
  changed("runs");
  if (now !== undefined || busyReport()) timer = setTimeout(refresh, EVERY);
  else timer = setTimeout(refresh, 8 * EVERY);
}

function showSummary() {
  const { plan } = studio;
  const ready = plan !== null && !studio.problems.length;
  $("start").disabled = !ready;
  $("run-summary").textContent = ready
    ? `The run reads the real rows with the method ${plan.request.method} and spends ${costOf(plan)}. `
      + "Once started, this cost counts, even if the run is cancelled."
    : "There is no plan yet. Correct the schema or the settings first.";
}

function showRuns() {
  const now = running();
  $("run-now").hidden = !now;
  $("run-form").hidden = Boolean(now);
  if (now) showProgress(now);
  showSummary();
  $("run-ended").replaceChildren(...(now || !studio.runs.length ? [] : [ended(studio.runs[0])]));
  const several = studio.runs.length > 0;
  $("history-title").hidden = $("history").hidden = !several;
  const shown = JSON.stringify(studio.runs.map((run) => [run.number, run.state, run.resumable]));
  if (several && $("history").dataset.shown !== shown) {  // a focused button stays where it is
    $("history").dataset.shown = shown;
    $("history").replaceChildren(history());
  }
}

function showProgress(run) {
  $("run-title").textContent = `Run ${run.number} is in progress: ${run.request.method} at epsilon ${run.request.epsilon}`;
  const bar = $("run-progress");
  if (typeof run.progress?.fraction === "number") bar.value = run.progress.fraction;
  else bar.removeAttribute("value");
  const text = run.progress?.text ? `${Math.floor(100 * run.progress.fraction)}%: ${run.progress.text}` : "Starting";
  if ($("run-text").textContent !== text) $("run-text").textContent = text;
  $("run-note").textContent = `Started ${when(run)}. You can close this page; the run continues. Cancelling it does not save `
    + `budget: ${costOf(run.planned)} counts as spent.`;
}

const when = (run) => new Date(run.started).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

/** How the latest run ended, and what can be done now. */
function ended(run) {
  const cost = costOf(run.planned);
  const inBook = run.book ? " If it has an entry in the budget book already, that stays at this cost." : "";
  if (run.state === "finished") {
    return make("p", { class: "note-box good" }, `Run ${run.number} has finished. `, make("a", { href: "#results" }, "See its results"));
  }
  if (run.state === "failed") return make("p", { class: "note-box bad" }, `Run ${run.number} failed. ${run.message}`);
  const how = run.state === "cancelled" ? "was cancelled" : "was interrupted";
  const costs = `Its planned cost counts as spent: ${cost}.${inBook}`;
  if (!run.resumable) return make("p", { class: "note-box bad" }, `Run ${run.number} ${how}, and cannot be resumed. ${costs}`);
  return make("div", { class: "note-box bad" },
    make("p", {}, `Run ${run.number} ${how}. ${costs} Resuming it costs nothing more and gives the same release.`),
    make("p", { class: "buttons" },
      make("button", { type: "button", class: "primary", onclick: () => act(run, "resume") }, `Resume run ${run.number}`),
      make("button", { type: "button", onclick: () => discard(run) }, `Discard run ${run.number}`)));
}

function history() {
  const head = ["run", "started", "method", "epsilon", "state", ""].map((text) => make("th", { scope: "col" }, text));
  const rows = studio.runs.map((run) => make("tr", {},
    make("td", {}, String(run.number)), make("td", {}, run.started ? when(run) : ""), make("td", {}, run.request?.method ?? ""),
    make("td", {}, String(run.request?.epsilon ?? "")), make("td", {}, run.state),
    make("td", {}, run.resumable && run.state !== "finished"
      ? make("button", { type: "button", class: "quiet", onclick: () => act(run, "resume") }, `Resume run ${run.number}`) : "")));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

async function start(event) {
  event.preventDefault();
  show($("run-error"), null);
  $("start").disabled = true;
  try {
    // What runs is the plan that is shown, even if a field has just been changed.
    const given = { ...studio.plan.request, schema: studio.plan.schema, rows: $("rows").value.trim(), holdout: $("holdout").value };
    await ask("runs", given);
    changed("run-started");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show($("run-error"), error.message);
  }
  await refresh();
  if (running()) $("cancel").focus();
}

async function cancel() {
  const run = running();
  if (!run) return;
  const text = `The run may have read the real rows, so cancelling it costs the planned amount: ${costOf(run.planned)}.`
    + `${run.book ? " If it has an entry in the budget book already, that stays at this cost." : ""} You can resume it `
    + "later at no further cost, if it has a checkpoint by then.";
  if (await confirmed(`Cancel run ${run.number}?`, text, "Cancel the run", "Keep it running")) await act(run, "cancel");
}

async function discard(run) {
  const text = "Its checkpoint is deleted, and it can no longer be resumed. What it spent stays spent.";
  if (await confirmed(`Discard run ${run.number}?`, text, "Discard", "Keep it")) await act(run, "discard");
}

async function act(run, what) {
  show($("run-error"), null);
  try {
    await ask(`runs/${run.number}/${what}`, {});
    changed("run-started");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show($("run-error"), error.message);
  }
  await refresh();
}
