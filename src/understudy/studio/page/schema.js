// Step 1: the editor of the schema. It knows names and kinds, and what the person types: nothing of the rows.

import { $, Refused, ask, changed, debounce, make, show, studio } from "./page.js";

const BOUNDED = ["integer", "real", "datetime", "date"];
const NOT_MODELLED = {
  text: "Free text is never modelled: it is left out or empty.",
  id: "Identifiers are never modelled: synthetic rows get new ones.",
};
const UNIT_NOTE = "The privacy unit is never modelled: it groups rows, and synthetic units get new numbers.";
const TABLE = [
  ["name", "Name of the data set", "text", "For the certificate and the budget book."],
  ["rows", "Number of rows", "count", "Empty: a noisy count, estimated privately."],
  ["unit", "Privacy unit", "column", "The column that identifies a person. None: each row is one person."],
  ["max_rows_per_unit", "Rows per unit, at most", "count", "Only with a privacy unit. Empty: 1."],
  ["target", "Target", "column", "The column that matters most. None: all matter equally."],
  ["positive", "Positive class of the target", "text", "For scores. Empty: none."],
];
const OWN = ["name", "kind", "bounds", "categories", "numbers", "unknown", "closed", "ordinal", "nullable", "drop", "per_unit"];

let rows = [];

export async function openSchema() {
  const form = $("schema-form");
  form.addEventListener("input", debounce(check));
  form.addEventListener("submit", (event) => event.preventDefault());
  $("reviewed").addEventListener("change", check);
  $("toml-apply").addEventListener("click", () => useToml($("toml").value));
  $("toml-open").addEventListener("change", openFile);
  $("toml-save").addEventListener("click", download);
  take(await ask("schema"));
}

/** Shows a schema that the server sent. */
function take(sent) {
  studio.schema = sent;
  studio.problems = sent.form ? [] : [{ message: sent.error, column: null, key: null, rule: null }];
  $("toml").value = sent.toml;
  show($("toml-error"), sent.error);
  if (sent.error) $("toml").closest("details").open = true;
  if (sent.form) build(sent.form);
  showConditions(sent);
  showStatus(sent.form ? "This is the schema that runs will use." : "The schema file has an error.");
  changed("schema");
}

function showConditions(sent) {
  const drafted = Boolean(sent.form?.table.drafted);
  $("drafted").hidden = !drafted;
  $("reviewed").checked = false;
  $("drafted-text").textContent = drafted
    ? "The kinds below, and the formats of dates, numbers and booleans, were drafted from the file. They depend on its values, so "
      + "one row can change them. Until you confirm them, the certificate states this as a condition of the guarantee."
    : "";
}

function showStatus(text) {
  $("schema-status").textContent = text;
  $("to-plan").classList.toggle("off", studio.problems.length > 0);
}

function build(form) {
  const names = form.columns.map((column) => column.name);
  $("table-fields").replaceChildren(...TABLE.map((field) => tableField(field, form.table, names)));
  rows = form.columns.map((column, at) => columnRow(column, at));
  $("columns").replaceChildren(...rows.map((row) => row.element));
  $("columns-hint").textContent = `${names.length} columns. Kinds decide how values are read.`;
  $("rules").value = form.rules.join("\n");
  $("table-unit").addEventListener("change", showUnit);
  showUnit();
}

/** What is about units is shown once there is one. */
function showUnit() {
  const unit = $("table-unit").value;
  $("columns").classList.toggle("without-unit", !unit);
  for (const row of rows) row.element.classList.toggle("is-unit", row.name === unit);
}

function tableField([key, label, type, hint], table, names) {
  const id = `table-${key}`;
  const value = table[key] ?? "";
  const common = { id, "aria-describedby": `${id}-hint ${id}-error` };
  const input = type === "column"
    ? select(common, [["", "none"], ...names.map((name) => [name, name])], value)
    : make("input", { ...common, type: "text", inputmode: type === "count" ? "numeric" : "text", autocomplete: "off" });
  if (type !== "column") input.value = value;
  return make("div", { class: "field" }, make("label", { for: id }, label), input,
    make("p", { class: "small", id: `${id}-hint` }, hint), errorOf(id));
}

function select(attributes, options, value) {
  const made = make("select", attributes, ...options.map(([of, text]) => make("option", { value: of }, text)));
  made.value = value;
  return made;
}

const errorOf = (id) => make("p", { class: "error", id: `${id}-error`, role: "alert", hidden: true });

/** A label whose end, which the heading of the column shows already, is for screen readers. */
const labelOf = (id, text, end) => make("label", { for: id }, text, make("span", { class: "hidden" }, end));

/** One column: the fields that its kind has, and a function that reads them. */
function columnRow(column, at) {
  const id = (key) => `column-${at}-${key}`;
  const rest = Object.fromEntries(Object.entries(column).filter(([key]) => !OWN.includes(key)));
  const body = make("div", { class: "column-body" });
  const kind = select({ id: id("kind"), "aria-describedby": `${id("kind")}-error` },
    studio.about.kinds.map((each) => [each, each]), column.kind);
  const checks = make("div", { class: "checks" });
  const flag = (key, text, value) => {
    const input = make("input", { type: "checkbox", id: id(key), checked: value });
    checks.append(make("label", { class: "check" }, input, ` ${text}`));
    return input;
  };
  const nullable = flag("nullable", "may be null", column.nullable ?? true);
  const drop = flag("drop", "leave out", column.drop ?? false);
  const perUnit = flag("per_unit", "one value per unit", column.per_unit ?? false);
  perUnit.closest("label").classList.toggle("per-unit", !perUnit.checked);
  let read = () => ({});

  const showKind = () => {
    const shown = domainFields(column, kind.value, id);
    read = shown.read;
    body.replaceChildren(...shown.elements);
  };
  kind.addEventListener("change", showKind);
  showKind();
  const element = make("fieldset", { class: "column", id: `column-${at}` },
    make("legend", {}, column.name),
    make("div", { class: "field kind-field" }, labelOf(id("kind"), "Kind", ` of ${column.name}`), kind, errorOf(id("kind"))),
    make("div", {}, make("p", { class: "small unit-note" }, UNIT_NOTE), body), checks, errorOf(`column-${at}`));
  const keep = (only) => Object.fromEntries(Object.entries(rest).filter(([key]) => only(key)));
  return {
    element, name: column.name, at,
    read: () => ({
      ...(kind.value === column.kind ? rest : keep((key) => key === "missing")),
      name: column.name, kind: kind.value, ...read(),
      ...(nullable.checked ? {} : { nullable: false }),
      ...(drop.checked ? { drop: true } : {}),
      ...(perUnit.checked ? { per_unit: true } : {}),
    }),
  };
}

/** The fields for bounds or categories, with the switch between declared and estimated. */
function domainFields(column, kind, id) {
  if (NOT_MODELLED[kind]) return { elements: [make("p", { class: "small" }, NOT_MODELLED[kind])], read: () => ({}) };
  if (kind === "boolean") return { elements: [make("p", { class: "small" }, "False or true: nothing to declare.")], read: () => ({}) };
  if (kind === "location") {
    const text = "A location needs a public region. Edit it in the schema file below.";
    return { elements: [make("p", { class: "small" }, text)], read: () => ({}) };
  }
  const key = BOUNDED.includes(kind) ? "bounds" : "categories";
  const fields = key === "bounds" ? boundFields(column, kind, id) : categoryFields(column, id);
  const declared = column[key] !== undefined && column[key] !== null;
  const choice = (value, text, checked) => make("label", { class: "choice" },
    make("input", { type: "radio", name: id("source"), value, checked, onchange: update }), ` ${text}`);
  const group = make("div", { class: "switch", role: "radiogroup", "aria-label": `${key} of ${column.name}` },
    choice("declared", "declared", declared), choice("estimated", "estimated privately", !declared));
  const isDeclared = () => group.querySelector("input:checked").value === "declared";
  const hint = make("p", { class: "small" }, key === "bounds"
    ? "Lower and upper bounds will be estimated with part of the budget."
    : "Frequent categories will be estimated with part of the budget. Rare ones become “other”.");
  function update() {
    fields.element.hidden = !isDeclared();
    hint.hidden = isDeclared();
  }
  update();
  return {
    elements: [group, fields.element, hint],
    read: () => (isDeclared() ? fields.read() : fields.open()),
  };
}

function boundFields(column, kind, id) {
  const value = column.kind === kind ? column.bounds ?? ["", ""] : ["", ""];
  const like = { integer: ["0", "120"], real: ["0.0", "1.0"], date: ["2000-01-01", "2030-12-31"],
    datetime: ["2000-01-01T00:00:00", "2030-12-31T23:59:59"] }[kind];
  const bound = (at, text) => {
    const input = make("input", { type: "text", id: id(`bound-${at}`), autocomplete: "off", placeholder: `like ${like[at]}`,
      "aria-describedby": `${id("bounds")}-error` });
    input.value = value[at];
    return make("div", { class: "field" }, labelOf(id(`bound-${at}`), text, ` of ${column.name}`), input);
  };
  const element = make("div", { class: "pair" }, bound(0, "Lower bound"), bound(1, "Upper bound"), errorOf(id("bounds")));
  const inputs = () => [...element.querySelectorAll("input")].map((input) => input.value.trim());
  return { element, read: () => ({ bounds: inputs() }), open: () => ({}) };
}

function categoryFields(column, id) {
  const listed = column.categories ?? [];
  const text = make("textarea", { id: id("categories"), rows: String(Math.min(Math.max(listed.length, 2), 8)), spellcheck: "false",
    "aria-describedby": `${id("categories")}-error` });
  text.value = listed.join("\n");
  const box = (key, words, checked) => {
    const input = make("input", { type: "checkbox", id: id(key), checked });
    return [input, make("label", { class: "check" }, input, ` ${words}`)];
  };
  const [numbers, numbersLabel] = box("numbers", "the categories are numbers", listed.length > 0 && listed.every((each) => typeof each === "number"));
  const [closed, closedLabel] = box("closed", "the list is complete", column.closed ?? false);
  const [ordinal, ordinalLabel] = box("ordinal", "they are listed in order", column.ordinal ?? false);
  const unknown = make("input", { type: "text", id: id("unknown"), autocomplete: "off", placeholder: "other",
    "aria-describedby": `${id("unknown")}-error` });
  unknown.value = column.unknown ?? "";
  const element = make("div", { class: "categories" },
    make("div", { class: "field" }, labelOf(id("categories"), "Categories, one per line", `: ${column.name}`), text,
      errorOf(id("categories"))),
    make("div", { class: "field" }, labelOf(id("unknown"), "Undeclared values become", `: ${column.name}`), unknown,
      errorOf(id("unknown")), make("div", { class: "checks" }, closedLabel, ordinalLabel, numbersLabel)));
  const rest = () => ({
    ...(unknown.value.trim() ? { unknown: unknown.value.trim() } : {}),
    ...(numbers.checked ? { numbers: true } : {}),
  });
  return {
    element,
    read: () => ({
      categories: text.value.split("\n").map((line) => line.trim()).filter(Boolean), ...rest(),
      ...(closed.checked ? { closed: true } : {}), ...(ordinal.checked ? { ordinal: true } : {}),
    }),
    open: () => ({}),
  };
}

function readForm() {
  const table = { ...studio.schema.form.table };
  for (const [key, , type] of TABLE) {
    const text = $(`table-${key}`).value.trim();
    table[key] = text === "" ? null : type === "count" && /^\d+$/.test(text) ? Number(text) : text;
  }
  if (table.unit === null && table.max_rows_per_unit === 1) table.max_rows_per_unit = null;
  if ($("reviewed").checked) table.drafted = null;
  return { table, columns: rows.map((row) => row.read()), rules: $("rules").value.split("\n") };
}

let checking = false;
let isStale = false;

/** Checks the form, one request after the other: each is based on the schema that the one before has kept. */
async function check() {
  isStale = true;
  if (checking) return;
  checking = true;
  try {
    while (isStale) {
      isStale = false;
      await checkNow();
    }
  } finally {
    checking = false;
  }
}

/** Has the server check the form; a form without problems is kept at once. */
async function checkNow() {
  let sent;
  try {
    sent = await ask("schema", { form: readForm(), base: studio.schema.version, save: true });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return showStatus(error.message);
  }
  studio.problems = sent.problems;
  showProblems(sent.problems);
  if (!sent.problems.length) {
    studio.schema = sent;
    $("toml").value = sent.toml;
    show($("toml-error"), null);
    if (!sent.form.table.drafted) showConditions(sent);
    const open = Object.keys(sent.estimated).length;
    const estimated = open === 1 ? "1 column is" : `${open} columns are`;
    showStatus(`Saved. ${open ? `${estimated} estimated privately.` : "All bounds and categories are declared."}`);
  } else {
    showStatus(sent.problems.length === 1 ? "Not saved: one field needs a correction." : `Not saved: ${sent.problems.length} fields need a correction.`);
  }
  changed("schema");
}

/** Shows each problem beside its field. */
function showProblems(problems) {
  for (const error of $("schema-form").querySelectorAll(".error")) show(error, null);
  for (const field of $("schema-form").querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const problem of problems) {
    const { error, fields } = placeOf(problem);
    show(error, problem.message);
    for (const field of fields) field.setAttribute("aria-invalid", "true");
  }
}

function placeOf({ column, key, rule }) {
  if (rule !== null && rule !== undefined) return { error: $("rules-error"), fields: [$("rules")] };
  const ofTable = $(`table-${key}-error`);
  if (ofTable) return { error: ofTable, fields: [$(`table-${key}`)] };
  const row = rows.find((each) => each.name === column);
  if (!row) return { error: $("rules-error"), fields: [] };
  const error = $(`column-${row.at}-${key}-error`) ?? $(`column-${row.at}-error`);
  const marked = key === "bounds" ? ["bound-0", "bound-1"] : [key];
  return { error, fields: marked.map((each) => $(`column-${row.at}-${each}`)).filter(Boolean) };
}

async function useToml(text) {
  try {
    const sent = await ask("schema", { toml: text, base: studio.schema.version });
    if (sent.problems.length) return show($("toml-error"), sent.problems[0].message);
    take(sent);
    showStatus("Saved.");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show($("toml-error"), error.message);
  }
}

async function openFile(event) {
  const [file] = event.target.files;
  if (!file) return;
  $("toml").value = await file.text();
  event.target.value = "";
  await useToml($("toml").value);
}

function download() {
  const link = make("a", { href: URL.createObjectURL(new Blob([$("toml").value], { type: "application/toml" })),
    download: `${studio.about.file.replace(/\..*$/, "")}.toml` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
