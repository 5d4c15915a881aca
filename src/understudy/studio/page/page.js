// Small helpers of all steps: elements, requests, messages and dialogs.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; texts are always texts, never markup. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && typeof value !== "string") element[key] = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The parts of a sentence, with what stands between backticks as code. */
export const withCode = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));

/** A table of strings; columns from `right` on are numbers. */
export function table(heads, rows, { right = Infinity, caption = null } = {}) {
  const side = (at) => (at >= right ? { class: "n" } : {});
  return make(
    "table", {},
    caption && make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads.map((head, at) => make("th", { scope: "col", ...side(at) }, head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, at) => make("td", side(at), cell ?? ""))))),
  );
}

export class Refused extends Error {}

/** Asks the server; `Refused` has the message for the reader. */
export async function ask(path, given = undefined, signal = undefined) {
  const options = { signal, headers: {}, cache: "no-store", credentials: "same-origin" };
  if (given !== undefined) {
    Object.assign(options, { method: "POST", body: JSON.stringify(given) });
    options.headers["content-type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(`api/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    say("The server does not answer. Start 'understudy studio' again and open the address that it prints. A run that was "
      + "started continues without the server.");
    throw new Refused("The server does not answer.");
  }
  if (response.status === 403) {
    say("This session has ended. Open the address that 'understudy studio' printed last.");
    throw new Refused("This session has ended.");
  }
  let content;
  try {
    content = await response.json();
  } catch (error) {  // the page is left, or the server was killed, in the middle of an answer
    if (error.name === "AbortError") throw error;
    throw new Refused("The server sent no answer.");
  }
  if (!response.ok) throw new Refused(content.error);
  if (alertIsMine) say(null);
  return content;
}

let alertIsMine = false;

/** Shows a message above the step; null removes it. */
export function say(text) {
  alertIsMine = text !== null;
  show($("alert"), text);
}

/** Shows text in an element that is hidden without one. */
export function show(element, text) {
  if (element.textContent !== (text ?? "")) element.textContent = text ?? "";
  element.hidden = !text;
}

/** A cost for a sentence; figures such as 1e-06 are not broken at their hyphen. */
export const costOf = (planned) => `epsilon ${planned?.epsilon} at delta ${planned?.delta}`.replaceAll("e-", "e\u2011");

/** A question with two answers; true if the person agrees. */
export function confirmed(title, text, yes, no) {
  const dialog = $("dialog");
  $("dialog-title").textContent = title;
  $("dialog-text").textContent = text;
  $("dialog-yes").textContent = yes;
  $("dialog-no").textContent = no;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Calls `act` once nothing has asked for it for a while. */
export function debounce(act, wait = 350) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), wait);
  };
}

/** What all steps know. */
export const studio = { about: null, schema: null, problems: [], plan: null, request: null, runs: [] };

const listeners = [];
export const onChange = (act) => listeners.push(act);
export const changed = (what) => listeners.forEach((act) => act(what));
