// Step 2: the plan. Every figure comes from the server, which reads the schema alone.

import { $, Refused, ask, changed, debounce, make, onChange, show, studio, table, withCode } from "./page.js";

let asked = null;

export function openPlan() {
  const { methods } = studio.about;
  $("method").replaceChildren(...methods.map(({ name }) => make("option", { value: name }, name)));
  restore();
  showMethod();
  $("plan-form").addEventListener("submit", (event) => event.preventDefault());
  $("epsilon-slider").addEventListener("input", () => {
    $("epsilon").value = round(10 ** Number($("epsilon-slider").value));
    describeSlider();
  });
  $("epsilon").addEventListener("input", () => {
    const epsilon = Number($("epsilon").value);
    if (epsilon > 0) $("epsilon-slider").value = Math.log10(epsilon);
    describeSlider();
  });
  $("method").addEventListener("change", showMethod);
  $("plan-form").addEventListener("input", debounce(update));
  onChange((what) => { if (what === "schema" || what === "book") update(); });
  update();
}

/** Two digits, as people write them: 0.013, 0.5, 12. */
const round = (value) => String(Number(value.toPrecision(2)));

function describeSlider() {
  $("epsilon-slider").setAttribute("aria-valuetext", `epsilon ${$("epsilon").value}`);
}

function showMethod() {
  const found = studio.about.methods.find(({ name }) => name === $("method").value);
  $("method-line").textContent = found?.line ?? "";
}

function restore() {
  let kept = {};
  try { kept = JSON.parse(sessionStorage.getItem("plan") ?? "{}"); } catch { /* a fresh start */ }
  $("epsilon").value = kept.epsilon ?? "1";
  $("delta").value = kept.delta ?? "";
  $("settings").value = kept.settings ?? "";
  $("method").value = kept.name ?? studio.about.method;
  $("epsilon-slider").value = Math.log10(Number($("epsilon").value) || 1);
  describeSlider();
}

function request() {
  const settings = $("settings").value.trim();
  const name = $("method").value;
  return {
    epsilon: $("epsilon").value.trim(), delta: $("delta").value.trim(), name, settings,
    method: settings ? `${name}(${settings})` : name,
  };
}

async function update() {
  const wanted = request();
  sessionStorage.setItem("plan", JSON.stringify(wanted));
  asked?.abort();
  if (studio.problems.length) {
    studio.plan = null;
    show($("plan-error"), "Correct the schema first.");
    $("plan-body").replaceChildren();
    return changed("plan");
  }
  const schema = studio.schema.version;
  const mine = new AbortController();
  asked = mine;
  $("plan-status").textContent = "Planning…";
  $("plan-body").classList.add("old");
  try {
    const plan = await ask("plan", wanted, mine.signal);
    studio.plan = { ...plan, request: wanted, schema };
    show($("plan-error"), null);
    $("plan-body").replaceChildren(...body(plan));
    $("plan-status").textContent = `Planned: epsilon ${plan.epsilon} at delta ${plan.delta}. Only the schema was read.`;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Refused)) throw error;
    studio.plan = null;
    show($("plan-error"), error.message);
    $("plan-status").textContent = "";
    $("plan-body").replaceChildren();
  }
  $("plan-body").classList.remove("old");
  changed("plan");
}

function body(plan) {
  const parts = [seal(plan)];
  if (plan.meaning) {
    const [sentence, ...more] = plan.meaning.sentences;
    parts.push(make("p", { class: "lead" }, ...withCode(sentence)));
    if (more.length) parts.push(make("p", { class: "small" }, ...withCode(more.join(" "))));
  }
  if (plan.book) parts.push(bookUse(plan.book));
  parts.push(make("h3", {}, "Expected error"), ...expected(plan.expected));
  parts.push(make("h3", {}, "What epsilon means"));
  if (plan.meaning) {
    const [heads, ...rows] = plan.meaning.beliefs;
    const [testHeads, ...tests] = plan.meaning.tests;
    parts.push(
      make("p", {}, ...withCode(`Someone may think it this likely that ${plan.meaning.claim}, before the release and at most after it:`)),
      scrolled("Beliefs before and after", table(heads, rows, { right: 1 })),
      make("p", {}, "How often a test of this can be right:"),
      scrolled("Tests of presence", table(testHeads, tests, { right: 1 })));
  } else {
    parts.push(make("p", {}, "There is no guarantee."));
  }
  parts.push(make("h3", {}, "Queries"),
    scrolled("Queries", table(["query", "mechanism", "epsilon alone", "added delta"],
      plan.queries.map((query) => [query.what, query.mechanism, query.epsilon, query.delta]), { right: 2 })),
    make("p", { class: "small" }, "Epsilons of single queries do not add up. The total is the figure above."));
  if (plan.notes.length) parts.push(make("h3", {}, "Notes"), make("ul", {}, ...plan.notes.map((note) => make("li", {}, note))));
  return parts;
}

const scrolled = (name, element) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, element);

function seal(plan) {
  const word = plan.strength ? `${plan.strength[0].toUpperCase()}${plan.strength.slice(1)} guarantee` : "No guarantee";
  return make("p", { class: `seal ${plan.strength ?? "none"}` }, make("strong", {}, word),
    make("span", {}, `epsilon ${plan.epsilon} (requested: ${plan.requested}), delta ${plan.delta}`));
}

function expected(noises) {
  if (!noises.length) return [make("p", {}, "For this method, the noise in counts is not known in advance.")];
  const heads = ["counts over", "marginals", "noise in a typical count (rows)", "of all rows"];
  const rows = noises.map((each) => [`${each.marginals.replace("-way", "")} column${each.marginals === "1-way" ? "" : "s"}`, each.number, `± ${each.rows}`, each.percent ?? "–"]);
  return [
    scrolled("Expected error", table(heads, rows, { right: 1 })),
    make("p", { class: "small" }, noises.some((each) => each.percent) ? "Plus or minus one standard deviation."
      : "Plus or minus one standard deviation. Declare the number of rows to see percentages."),
  ];
}

function bookUse(book) {
  if (book.refused) return make("p", { class: "note-box bad" }, `Budget book: ${book.refused}`);
  const use = `Budget book: this run needs ${book.needed} of the limit; ${book.left} is left.`;
  if (book.fits) {
    return make("div", { class: "note-box" }, make("p", {}, use),
      make("p", { class: "small" }, "Plan hash, for a second person who approves it: ", make("code", {}, book.hash)));
  }
  const lower = book.delta_fits ? "epsilon" : "delta";
  return make("p", { class: "note-box bad" }, `${use} It does not fit: lower ${lower}.`);
}
