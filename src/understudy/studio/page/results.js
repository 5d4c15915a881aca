// Steps 4 and 5: what a finished run may publish, and the reports that stay in-house.

import { $, Refused, ask, make, onChange, show, studio, table } from "./page.js";
import { refresh } from "./run.js";

const REPORTS = [
  ["evaluate", "Compare with the real rows", "How well the synthetic table keeps counts, associations and predictions of the real one."],
  ["disclose", "Attack the release", "What attacks learn about people in the table. Needs rows that were held out of the run."],
];
let shown = null;
let shownReports = "";

export function openResults() {
  $("which").addEventListener("change", () => showRun($("which").value));
  $("which-report").addEventListener("change", showReports);
  $("confirm").addEventListener("change", showReports);
  onChange((what) => { if (what === "runs") update(); });
  update();
}

const finished = () => studio.runs.filter((run) => run.state === "finished");

function update() {
  const runs = finished();
  $("no-results").hidden = $("no-report").hidden = runs.length > 0;
  $("results-body").hidden = $("report-body").hidden = runs.length === 0;
  if (!runs.length) return;
  for (const select of [$("which"), $("which-report")]) {
    const newest = String(runs[0].number);
    const isNew = select.options[0]?.value !== newest;
    const chosen = isNew ? newest : select.value;
    if (isNew || select.options.length !== runs.length) select.replaceChildren(...runs.map(option));
    select.value = chosen;
  }
  showRun($("which").value);
  showReports();
}

const option = (run) => make("option", { value: String(run.number) },
  `Run ${run.number}: ${run.request.method}, epsilon ${run.request.epsilon}`);

async function showRun(number) {
  const run = finished().find((each) => String(each.number) === number);
  if (!run || shown === number) return;
  shown = number;
  const file = (name) => `api/runs/${number}/files/${name}`;
  $("certificate").src = file("certificate.html");
  const downloads = [[run.table, "Synthetic table", run.table], ["certificate.html", "Certificate", "certificate.html"],
    ["certificate.json", "Certificate as JSON", "certificate.json"], ["bundle.zip", "Evidence bundle", `bundle-${number}.zip`]];
  $("downloads").replaceChildren(...downloads.map(([name, text, of]) => make("li", {},
    make("a", { class: "button", href: file(name), download: of }, text))));
  $("command").textContent = run.command;
  $("messages").hidden = !run.notes.length;
  $("notes").replaceChildren(...run.notes.map((note) => make("li", {}, note)));
  try {
    const preview = await ask(`runs/${number}/preview`);
    $("preview").replaceChildren(table(preview.columns, preview.rows));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("preview").replaceChildren(make("p", {}, error.message));
  }
}

function showReports() {
  const run = finished().find((each) => String(each.number) === $("which-report").value);
  if (!run) return;
  const agreed = $("confirm").checked;
  const busy = studio.runs.some((each) => each.state === "running" || Object.values(each.reports).some((one) => one?.state === "running"));
  const now = JSON.stringify([run.number, run.reports, agreed, busy]);
  if (now === shownReports) return;
  shownReports = now;
  const focused = document.activeElement?.id;
  $("reports").replaceChildren(...REPORTS.map(([kind, title, text]) => card(run, kind, title, text, agreed, busy)));
  if (focused?.startsWith("make-") || focused?.startsWith("stop-")) $(focused)?.focus();
}

function card(run, kind, title, text, agreed, busy) {
  const report = run.reports[kind];
  const parts = [make("h3", {}, title), make("p", {}, text)];
  if (kind === "disclose" && !run.holdout) {
    parts.push(make("p", { class: "small" }, "Run again with rows held out to make this report."));
    return make("div", { class: "card" }, ...parts);
  }
  if (report?.state === "running") {
    const bar = make("progress", { max: "1", "aria-label": `Progress of: ${title}` });
    if (typeof report.progress?.fraction === "number") bar.value = report.progress.fraction;
    parts.push(bar, make("p", { role: "status" }, report.progress?.text ?? "Starting"),
      make("p", { class: "buttons" }, make("button", { type: "button", id: `stop-${kind}`, onclick: () => act(run, "cancel", {}) }, "Stop")));
    return make("div", { class: "card" }, ...parts);
  }
  if (report?.state === "failed") parts.push(make("p", { class: "error" }, report.message));
  const buttons = make("p", { class: "buttons" },
    make("button", { type: "button", id: `make-${kind}`, disabled: !agreed || busy,
      onclick: () => act(run, `report/${kind}`, { confirmed: agreed }) }, report?.state === "finished" ? "Make it again" : "Make the report"));
  if (report?.state === "finished" && agreed) {
    buttons.prepend(make("a", { class: "button primary", href: `api/runs/${run.number}/files/${kind}.html`, target: "_blank", rel: "noopener" },
      "Open the report"));
  }
  parts.push(buttons);
  if (!agreed) parts.push(make("p", { class: "small" }, "Confirm the warning above first."));
  return make("div", { class: "card" }, ...parts);
}

async function act(run, path, given) {
  show($("report-error"), null);
  try {
    await ask(`runs/${run.number}/${path}`, given);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show($("report-error"), error.message);
  }
  await refresh();
}
