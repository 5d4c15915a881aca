"use strict";
// A mark names a row of its figure's table; that row is the tooltip, for the mouse, for touch and for the keyboard.
(() => {
  const tip = document.getElementById("tip");
  let current = null;

  const hide = () => {
    tip.hidden = true;
    if (current) current.classList.remove("on");
    current = null;
  };

  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
    tip.style.left = Math.max(4, Math.min(left, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, top) + "px";
  };

  const element = (name, words, kind) => {
    const made = document.createElement(name);
    made.textContent = words;
    if (kind) made.className = kind;
    return made;
  };

  const describe = (mark) => {
    const table = mark.closest("figure").querySelector("table");
    const cells = [...table.tBodies[0].rows[+mark.dataset.r].cells];
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const names = heads.indexOf("real") < 0 ? 1 : heads.indexOf("real");
    const list = document.createElement("dl");
    cells.slice(names).forEach((cell, i) => {
      const kind = mark.dataset.c === String(names + i) ? "this" : "";
      list.append(element("dt", heads[names + i], kind), element("dd", cell.textContent, kind));
    });
    const title = cells.slice(0, names).map((cell) => cell.textContent).join(" · ");
    tip.replaceChildren(element("strong", title), list);
  };

  const show = (mark, x, y) => {
    if (mark !== current) {
      hide();
      current = mark;
      mark.classList.add("on");
      describe(mark);
    }
    tip.hidden = false;
    place(x, y);
  };

  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };

  const nearest = (svg, x, y) => {
    let best = null;
    let least = 18 * 18;
    for (const mark of svg.querySelectorAll(".m")) {
      const [a, b] = middle(mark);
      const far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) [best, least] = [mark, far];
    }
    return best;
  };

  const point = (event) => {
    const svg = event.target.closest(".panel > svg");
    if (svg) {
      const mark = event.target.closest(".m") || nearest(svg, event.clientX, event.clientY);
      return mark ? show(mark, event.clientX, event.clientY) : hide();
    }
    const card = event.target.closest("[data-tip]");
    return card ? explain(card, event.clientX, event.clientY) : hide();
  };

  const explain = (card, x, y) => {
    if (current !== card) {
      hide();
      current = card;
      tip.replaceChildren(element("span", card.dataset.tip));
    }
    tip.hidden = false;
    place(x, y);
  };

  // Marks in the order in which the eye meets them: by row of the table.
  const marksOf = (svg) => [...svg.querySelectorAll(".m")].sort((a, b) => a.dataset.r - b.dataset.r);

  const step = (svg, move) => {
    const marks = marksOf(svg);
    if (!marks.length) return;
    const now = Math.max(0, Math.min(marks.length - 1, move(marks.indexOf(current), marks.length)));
    show(marks[now], ...middle(marks[now]));
  };

  const MOVES = {
    ArrowRight: (i) => i + 1, ArrowDown: (i) => i + 1, ArrowLeft: (i) => i - 1, ArrowUp: (i) => i - 1,
    Home: () => 0, End: (_, count) => count - 1, PageDown: (i) => i + 10, PageUp: (i) => i - 10,
  };

  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", () => { if (!document.activeElement.matches(".panel > svg")) hide(); }, { passive: true });
  document.addEventListener("focusin", (event) => {
    if (!event.target.matches(":focus-visible")) return;
    if (event.target.matches(".panel > svg")) step(event.target, () => 0);
    else if (event.target.matches("[data-tip]")) explain(event.target, ...middle(event.target));
    else hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    if (event.target.matches(".panel > svg") && MOVES[event.key]) {
      event.preventDefault();
      step(event.target, MOVES[event.key]);
    }
  });
})();
