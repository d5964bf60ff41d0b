// The calendar as a sheet. What is typed is a draft: the server checks it, and shows what it
// changes and what is left; nothing is decided here. Without this file forms do the same.
"use strict";

(() => {
  const plan = document.getElementById("plan");
  if (!plan) return;
  const say = document.getElementById("say");
  document.documentElement.classList.add("has-script");

  let draft = new Map();   // of edits, by cell
  let undone = [];         // drafts before, the last one last
  let active = null;       // a cell, as [row, column] from the first cell of a pool on
  let anchor = null;       // the other corner of what is chosen
  let editor = null;       // the input in a cell
  let stale = false;       // the plan was edited while a cell was
  let checks = 0;          // the number of the last check
  let timer = 0;
  let dragging = false;
  let saving = false;      // the draft is being saved
  let pointer = "";        // the kind that was pressed last: mouse, pen or touch

  const grid = () => document.getElementById("grid");
  const rows = () => [...grid().tBodies[0].rows].filter((r) => r.cells.length > 2);
  const weeks = () => [...grid().tHead.rows[0].cells].filter((c) => c.dataset.week !== undefined);
  const cellAt = ([r, c]) => rows()[r]?.cells[c + 1];
  const placeOf = (td) => [rows().indexOf(td.parentElement), td.cellIndex - 1];
  const poolOf = (row) => ({
    project: row.dataset.project, step: row.dataset.step || "", user: row.dataset.user || "", hosts: row.dataset.hosts || "",
  });
  const keyOf = (e) => [e.project, e.step || "", e.user || "", e.hosts || "", e.week].join("\n");
  const keyAt = ([r, c]) => keyOf({ ...poolOf(rows()[r]), week: weeks()[c].dataset.week });
  const mayEdit = ([r, c]) => rows()[r]?.dataset.project !== undefined && weeks()[c]?.dataset.open !== undefined;
  const planned = (td) => td.dataset.was ?? td.textContent;

  // The table.

  function prepare() {
    for (const row of rows()) {
      for (const td of row.querySelectorAll("td:not(.total)")) {
        td.tabIndex = -1;
        td.dataset.was = td.textContent;
        if (grid().getAttribute("role") === "grid" && !mayEdit(placeOf(td))) td.setAttribute("aria-readonly", "true");
      }
      const total = row.querySelector(".total");
      total.dataset.was = total.textContent;
    }
    if (!active || !cellAt(active)) active = rows().length ? [Math.max(0, rows().findIndex((r) => r.dataset.project !== undefined)), 0] : null;
    anchor = anchor && cellAt(anchor) ? anchor : active;
    show();
  }

  // shown is the number of slots that a cell shows; 0 where it is no number, yet.
  const shown = (text) => (/^[0-9]+$/.test(text) ? Number(text) : 0);

  // sumUp shows the sums of rows, and of projects whose pools are shown, with the draft.
  function sumUp() {
    const n = weeks().length;
    const cells = (row) => [...row.cells].slice(1, n + 1);
    const more = (row) => cells(row).map((td) => shown(td.textContent) - shown(planned(td)));
    const total = (all) => all.reduce((a, b) => a + b, 0);
    const add = (td, slots) => {
      td.dataset.was ??= td.textContent;
      const text = String(shown(td.dataset.was) + slots);
      if (slots === 0) td.textContent = td.dataset.was;
      else td.textContent = text === "0" && !td.classList.contains("total") ? "" : text;
    };
    const all = rows();
    all.forEach((row, r) => {
      if (!row.classList.contains("sum")) {
        add(row.cells[n + 1], total(more(row)));
        return;
      }
      const sums = new Array(n).fill(0);
      for (let k = r + 1; all[k]?.classList.contains("pool"); k++) more(all[k]).forEach((slots, c) => { sums[c] += slots; });
      sums.forEach((slots, c) => add(row.cells[c + 1], slots));
      add(row.cells[n + 1], total(sums));
    });
  }

  // show marks what is chosen, changed and wrong.
  function show() {
    const faults = new Set([...document.querySelectorAll("#draft [data-week]")].map((li) => keyOf(li.dataset)));
    rows().forEach((row, r) => {
      const pool = row.dataset.project !== undefined;
      let more = 0; // slots than planned
      [...row.cells].slice(1, weeks().length + 1).forEach((td, c) => {
        const edit = pool ? draft.get(keyAt([r, c])) : undefined;
        if (pool && !td.contains(editor)) {
          const text = edit ? edit.slots : planned(td);
          if (td.textContent !== text) td.textContent = text;
        }
        if (edit) more += (Number(edit.slots) || 0) - (Number(planned(td)) || 0);
        td.classList.toggle("changed", edit !== undefined);
        td.classList.toggle("fault", pool && faults.has(keyAt([r, c])));
        td.classList.toggle("chosen", several() && within([r, c]));
        if (grid().getAttribute("role") === "grid") td.setAttribute("aria-selected", within([r, c]) ? "true" : "false");
        td.tabIndex = active && r === active[0] && c === active[1] ? 0 : -1;
      });
      if (pool) row.querySelector(".total").textContent = Number(row.querySelector(".total").dataset.was) + more;
    });
    sumUp();
  }

  const corner = () => [Math.min(active[0], anchor[0]), Math.min(active[1], anchor[1]), Math.max(active[0], anchor[0]), Math.max(active[1], anchor[1])];
  const several = () => active && anchor && (active[0] !== anchor[0] || active[1] !== anchor[1]);
  function within([r, c]) {
    if (!active || !anchor) return false;
    const [top, left, bottom, right] = corner();
    return r >= top && r <= bottom && c >= left && c <= right;
  }
  function chosen() {
    const all = [];
    if (!active) return all;
    const [top, left, bottom, right] = corner();
    for (let r = top; r <= bottom; r++) for (let c = left; c <= right; c++) all.push([r, c]);
    return all;
  }

  function move([r, c], extend) {
    active = [Math.max(0, Math.min(rows().length - 1, r)), Math.max(0, Math.min(weeks().length - 1, c))];
    if (!extend) anchor = active;
    show();
    const td = cellAt(active);
    td.focus({ preventScroll: true });
    reveal(td);
  }

  // reveal scrolls a cell into what the sticky rows and column leave of the box.
  function reveal(td) {
    const box = td.closest(".sheet");
    const b = box.getBoundingClientRect();
    const t = td.getBoundingClientRect();
    const top = b.top + grid().tHead.offsetHeight;
    const left = b.left + td.parentElement.cells[0].offsetWidth;
    if (t.top < top) box.scrollTop -= top - t.top;
    if (t.bottom > b.top + box.clientHeight) box.scrollTop += t.bottom - b.top - box.clientHeight;
    if (t.left < left) box.scrollLeft -= left - t.left;
    if (t.right > b.left + box.clientWidth) box.scrollLeft += t.right - b.left - box.clientWidth;
    td.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // The draft.

  function remember() {
    undone.push(new Map(draft));
    if (undone.length > 100) undone.shift();
  }

  // set puts texts into cells that may be edited, and returns the number of the others.
  function set(places, textOf) {
    let refused = 0;
    remember();
    for (const at of places) {
      if (!mayEdit(at)) { refused++; continue; }
      const key = keyAt(at);
      const text = textOf(at).trim();
      const old = draft.get(key);
      if (text === planned(cellAt(at)) || text === "0" && planned(cellAt(at)) === "") {
        draft.delete(key);
        continue;
      }
      draft.set(key, {
        ...poolOf(rows()[at[0]]), week: weeks()[at[1]].dataset.week, slots: text,
        since: old ? old.since : Number(plan.dataset.revision),
      });
    }
    show();
    check();
    return refused;
  }

  function readDraft() {
    const cells = document.querySelector("#draft input[name=cells]");
    const all = cells ? JSON.parse(cells.value) || [] : [];
    draft = new Map(all.map((e) => [keyOf(e), e]));
  }

  function body(form, button) {
    const data = new URLSearchParams(new FormData(form || document.querySelector("#draft form") || undefined, button || undefined));
    data.set("cells", JSON.stringify([...draft.values()]));
    return data;
  }

  // check asks the server what the draft changes, a moment after the last change of it. What
  // was asked before that change is no longer of use.
  function check() {
    checks++;
    clearTimeout(timer);
    timer = setTimeout(() => send(body(), true), 120);
  }

  async function send(data, part) {
    const number = ++checks;
    const sent = new Map(draft);
    const section = document.getElementById("draft");
    section.classList.add("busy");
    section.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(plan.dataset.draft, {
        method: "POST", body: data, headers: part ? { "X-Part": "draft" } : {}, redirect: "follow",
      });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.redirected && !part) return saved(page, sent);
      if (number !== checks) return;
      if (!page.getElementById("draft")) throw new Error(page.querySelector("main .wrong")?.textContent || answer.statusText);
      takeOver(page, ["heads", "draft"]);
      readDraft();
      show();
      announceDraft();
    } catch (e) {
      if (number === checks) announce("Not checked: " + e.message, true);
    } finally {
      if (!part) saving = false;
      const now = document.getElementById("draft");
      now.classList.remove("busy");
      now.removeAttribute("aria-busy");
    }
  }

  // saved shows the page after a draft was saved, and keeps what was typed since then.
  function saved(page, sent) {
    clearTimeout(timer);
    checks++; // what was asked meanwhile was about that draft
    for (const [key, edit] of sent) if (draft.get(key)?.slots === edit.slots) draft.delete(key);
    undone = [];
    refreshFrom(page);
    for (const edit of draft.values()) edit.since = Number(plan.dataset.revision);
    takeOver(page, ["message"]);
    announce(document.getElementById("message").textContent.trim() || "Saved.");
    if (active) cellAt(active)?.focus({ preventScroll: true });
  }

  function announce(text, wrong) {
    say.textContent = text;
    if (!wrong) return;
    const p = document.createElement("p");
    p.className = "wrong";
    p.setAttribute("role", "alert");
    p.textContent = text;
    document.getElementById("message").replaceChildren(p);
  }

  function announceDraft() {
    const summary = document.querySelector("#draft strong");
    const fault = document.querySelector("#draft .faults li span");
    announce([summary?.textContent, fault?.textContent].filter(Boolean).join(". "));
  }

  // takeOver replaces elements by those of another page, and keeps which details are open.
  function takeOver(page, ids) {
    for (const id of ids) {
      const old = document.getElementById(id);
      const fresh = page.getElementById(id);
      if (!old || !fresh) continue;
      const typed = old.querySelector("input[name=comment]");
      const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
      const open = [...old.querySelectorAll("details")].map((d) => d.open);
      [...fresh.querySelectorAll("details")].forEach((d, i) => { if (i < open.length) d.open = open[i]; });
      old.replaceWith(document.importNode(fresh, true));
      const now = document.getElementById(id);
      const comment = now.querySelector("input[name=comment]");
      if (typed && comment && typed.value) comment.value = typed.value;
      if (focused) document.getElementById(focused)?.focus();
    }
  }

  // refreshFrom takes the plan of another page under the draft.
  function refreshFrom(page) {
    const box = plan.querySelector(".sheet");
    const at = [box.scrollTop, box.scrollLeft];
    const focused = grid().contains(document.activeElement);
    const body = page.querySelector("#grid tbody");
    if (!body) return;
    grid().tBodies[0].replaceWith(document.importNode(body, true));
    plan.dataset.revision = page.getElementById("plan").dataset.revision;
    for (const since of document.querySelectorAll("#set [name=since]")) since.value = plan.dataset.revision;
    takeOver(page, draft.size ? ["log", "requests"] : ["heads", "draft", "log", "requests"]);
    prepare();
    [box.scrollTop, box.scrollLeft] = at;
    if (focused && active) cellAt(active)?.focus({ preventScroll: true });
    if (draft.size) check();
  }

  async function refresh() {
    if (editor) { stale = true; return; }
    const field = document.activeElement;
    if (field && field.closest("#requests")) return; // an answer is being typed
    stale = false;
    try {
      const answer = await fetch(plan.dataset.here);
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (editor) { stale = true; return; }
      refreshFrom(page);
    } catch { /* the next event asks again */ }
  }

  // Editing a cell.

  function edit(text) {
    if (!active || !mayEdit(active)) {
      announce("You can't change this cell.");
      return;
    }
    const td = cellAt(active);
    const input = document.createElement("input");
    input.value = text ?? td.textContent;
    input.inputMode = "numeric";
    input.maxLength = 20;
    input.setAttribute("aria-label", "Slots of " + td.parentElement.cells[0].textContent.trim() + " in " + weeks()[active[1]].dataset.week);
    td.textContent = "";
    td.classList.add("edited");
    td.append(input);
    editor = input;
    input.focus();
    if (text === undefined) input.select();
    input.addEventListener("blur", () => { if (editor === input) finish(true); });
  }

  function finish(keep) {
    const input = editor;
    if (!input) return;
    const td = input.parentElement;
    editor = null;
    td.classList.remove("edited");
    td.textContent = planned(td);
    if (keep) set(chosen(), () => input.value);
    else show();
    if (stale) refresh();
  }

  plan.addEventListener("keydown", (e) => {
    if (editor && e.target === editor) {
      const to = { Enter: [e.shiftKey ? -1 : 1, 0], Tab: [0, e.shiftKey ? -1 : 1] }[e.key];
      if (e.key === "Escape") finish(false);
      else if (to) finish(true);
      else return;
      e.preventDefault();
      e.stopPropagation();
      move(to ? [active[0] + to[0], active[1] + to[1]] : active);
      return;
    }
    if (e.target.tagName !== "TD" || !active) return;
    const [r, c] = active;
    const command = e.ctrlKey || e.metaKey;
    const page = Math.max(1, Math.floor(plan.querySelector(".sheet").clientHeight / cellAt(active).offsetHeight) - 3);
    const to = {
      ArrowUp: [command ? 0 : r - 1, c], ArrowDown: [command ? rows().length : r + 1, c],
      ArrowLeft: [r, command ? 0 : c - 1], ArrowRight: [r, command ? weeks().length : c + 1],
      Home: [command ? 0 : r, 0], End: [command ? rows().length : r, weeks().length], PageUp: [r - page, c], PageDown: [r + page, c],
    }[e.key];
    if (to) move(to, e.shiftKey);
    else if (command && e.key.toLowerCase() === "a") { anchor = [0, 0]; active = [rows().length - 1, weeks().length - 1]; show(); }
    else if (command || e.altKey) return;
    else if (e.key === "Enter" || e.key === "F2") edit();
    else if (e.key === "Escape") move(active);
    else if (e.key === "Delete" || e.key === "Backspace") set(chosen(), () => "");
    else if (/^[0-9]$/.test(e.key)) { edit(""); return; } // the browser puts the digit into it
    else return;
    e.preventDefault();
  });
  document.addEventListener("keydown", (e) => { // after a button was pressed, too
    if (e.defaultPrevented || !(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== "z" || e.target.closest("input, textarea, select")) return;
    e.preventDefault();
    takeBack();
  });

  function takeBack() {
    if (!undone.length) { announce("Nothing to take back in the draft."); return; }
    draft = undone.pop();
    show();
    check();
  }

  plan.addEventListener("pointerdown", (e) => {
    pointer = e.pointerType;
    const td = e.target.closest("#grid tbody td:not(.total)");
    if (!td || e.button !== 0 || td.contains(editor)) return;
    if (editor) finish(true);
    const at = placeOf(td);
    if (at[0] < 0) return;
    if (e.pointerType === "touch") return; // it may be to scroll
    e.preventDefault();
    move(at, e.shiftKey);
    dragging = true;
  });
  document.addEventListener("pointermove", (e) => {
    if (!dragging) return;
    const td = document.elementFromPoint(e.clientX, e.clientY)?.closest("#grid tbody td:not(.total)");
    if (!td) return;
    const at = placeOf(td);
    if (at[0] !== active[0] || at[1] !== active[1]) move(at, true);
  });
  document.addEventListener("pointerup", () => { dragging = false; });
  document.addEventListener("pointercancel", () => { dragging = false; });
  plan.addEventListener("click", (e) => {
    const td = e.target.closest("#grid tbody td:not(.total)");
    if (!td || pointer !== "touch" || td.contains(editor)) return;
    const at = placeOf(td);
    const again = active && at[0] === active[0] && at[1] === active[1];
    move(at);
    if (again) edit();
  });
  plan.addEventListener("dblclick", (e) => {
    if (e.target.closest("#grid tbody td:not(.total)") && !editor) edit();
  });
  plan.addEventListener("focusin", (e) => {
    if (e.target.tagName === "TD" && !dragging && !editor) {
      const at = placeOf(e.target);
      if (at[0] >= 0 && (!active || at[0] !== active[0] || at[1] !== active[1])) { active = at; anchor = at; show(); }
    }
  });

  // From and to a spreadsheet.

  const onCell = () => document.activeElement?.tagName === "TD" && grid().contains(document.activeElement);
  document.addEventListener("copy", (e) => {
    if (!onCell() || !active) return;
    const [top, left, bottom, right] = corner();
    const lines = [];
    for (let r = top; r <= bottom; r++) {
      const line = [];
      for (let c = left; c <= right; c++) line.push(cellAt([r, c]).textContent);
      lines.push(line.join("\t"));
    }
    e.clipboardData.setData("text/plain", lines.join("\n"));
    e.preventDefault();
    announce("Copied.");
  });
  document.addEventListener("paste", (e) => {
    if (!onCell() || !active) return;
    e.preventDefault();
    const text = e.clipboardData.getData("text/plain").replace(/\r\n?/g, "\n").replace(/\n$/, "");
    const lines = text.split("\n").slice(0, 5000).map((l) => l.split("\t"));
    const places = [];
    const texts = new Map();
    const put = (at, value) => {
      if (!cellAt(at) || at[1] >= weeks().length) return false;
      places.push(at);
      texts.set(at.join(), value);
      return true;
    };
    const [top, left] = corner();
    let outside = 0;
    if (lines.length === 1 && lines[0].length === 1) for (const at of chosen()) put(at, lines[0][0]);
    else lines.forEach((line, i) => line.forEach((value, k) => { if (!put([top + i, left + k], value)) outside++; }));
    const refused = set(places, (at) => texts.get(at.join()));
    if (lines.length > 1 || lines[0].length > 1) {
      anchor = [top, left];
      active = [Math.min(rows().length - 1, top + lines.length - 1), Math.min(weeks().length - 1, left + Math.max(...lines.map((l) => l.length)) - 1)];
      show();
    }
    if (refused + outside) announce(refused + outside + " pasted cells are not yours to change, or outside the calendar: they are left out.", true);
  });

  // Forms.

  document.addEventListener("submit", (e) => {
    const form = e.target;
    if (form.matches("[data-draft]")) {
      e.preventDefault();
      clearTimeout(timer);
      if (saving) return;
      const save = saving = e.submitter?.value === "save";
      if (e.submitter?.value === "effect") announce("Simulating…");
      const data = body(form);
      if (e.submitter?.name) data.set(e.submitter.name, e.submitter.value);
      send(data, !save);
    } else if (form.matches("[data-set]")) {
      e.preventDefault();
      remember();
      const data = body(form);
      data.set("do", "check");
      const comment = document.getElementById("comment");
      if (comment) data.set("comment", comment.value);
      send(data, true);
    }
  });
  document.addEventListener("click", (e) => {
    if (!e.target.closest("[data-discard]")) return;
    e.preventDefault();
    remember();
    draft = new Map();
    show();
    check();
  });
  document.getElementById("set")?.addEventListener("toggle", (e) => {
    if (!e.target.open || !active) return;
    const [top, left, , right] = corner();
    const row = rows()[top];
    if (row?.dataset.project === undefined) return;
    const form = e.target.querySelector("form");
    const pool = poolOf(row);
    for (const name of ["project", "step", "user", "hosts"]) if (form.elements[name]) form.elements[name].value = pool[name];
    form.elements.from.value = weeks()[left].dataset.week;
    form.elements.to.value = right > left ? weeks()[right].dataset.week : "";
    form.elements.slots.value = cellAt([top, left]).textContent;
  });

  document.body.addEventListener("plan", refresh);
  window.addEventListener("beforeunload", (e) => { if (draft.size) e.preventDefault(); });

  readDraft();
  prepare();
})();
