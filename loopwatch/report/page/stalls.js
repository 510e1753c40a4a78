"use strict";
// The list of stalls: sortable, and so many rows at a time that it stays quick.

const stallList = (() => {
  const ROWS = 100;
  const COLUMNS = [
    { title: "When (UTC)", value: (stall) => stall.at, cell: (stall) => clock(stall.at) },
    { title: "Length", value: (stall) => stall.duration, number: true, cell: length },
    { title: "Cause", value: (stall) => stall.verdict, cell: (stall) => cause(stall.verdict) },
    { title: "Where", value: where, long: true, cell: (stall) => named(where(stall)) },
    { title: "Task", value: task, wide: true, long: true, cell: (stall) => named(task(stall)) },
  ];
  const order = { column: 1, falling: true };
  let rows = [];
  let body = null;

  function length(stall) {
    return seconds(stall.duration) + (stall.ongoing ? " …" : "");
  }

  function where(stall) {
    return place(stall.culprit);
  }

  function task(stall) {
    return stall.task === null ? "" : stall.task[0];
  }

  function draw() {
    const { chosen } = state;
    const shown = state.shown();
    const all = counted(report.stalls.length, "stall");
    byId("stalls-count").textContent =
      shown.length === report.stalls.length ? all : `${shown.length.toLocaleString("en")} of ${all}`;
    byId("clear").hidden = chosen.site === null && chosen.causes.size === 0;
    if (shown.length === 0) {
      const none = "No stalls: no turn of a watched loop reached its threshold.";
      byId("stalls").replaceChildren(empty(report.stalls.length === 0 ? none : "No stall matches."));
      rows = [];
      body = null;
      return;
    }
    rows = tables.sorted(shown, (index) => COLUMNS[order.column].value(report.stalls[index]), order.falling);
    body = tables.body(rows.slice(0, ROWS).map(row));
    const table = make("table", { attributes: { "aria-label": "Stalls" } }, tables.head(COLUMNS, order, draw), body);
    byId("stalls").replaceChildren(table);
    offerMore();
  }

  function more() {
    const from = body.rows.length;
    body.append(...rows.slice(from, from + ROWS).map(row));
    offerMore();
  }

  function offerMore() {
    byId("stalls").querySelector(".more")?.remove();
    const left = rows.length - body.rows.length;
    if (left === 0) return;
    const textContent = `Show ${Math.min(ROWS, left)} more`;
    const button = make("button", { type: "button", className: "more", textContent });
    button.addEventListener("click", () => {
      const next = body.rows.length;
      more();
      body.rows[next].focus();
    });
    byId("stalls").append(button);
  }

  function row(index) {
    const made = tables.row(COLUMNS, report.stalls[index], () => state.select(index, "list"));
    made.dataset.stall = index;
    made.setAttribute("aria-selected", String(index === state.chosen.stall));
    return made;
  }

  function mark(index, from) {
    const list = byId("stalls");
    list.querySelector('tr[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    if (index === null || body === null) return;
    while (rows.indexOf(index) >= body.rows.length && body.rows.length < rows.length) more();
    const chosen = list.querySelector(`tr[data-stall="${index}"]`);
    chosen?.setAttribute("aria-selected", "true");
    if (from !== "list" && chosen) list.scrollTop = chosen.offsetTop - list.clientHeight / 2;
  }

  function start() {
    draw();
    state.onFilter(draw);
    state.onSelect(mark);
    byId("clear").addEventListener("click", () => state.filter((chosen) => {
      chosen.site = null;
      chosen.causes.clear();
    }));
  }

  return { start };
})();
