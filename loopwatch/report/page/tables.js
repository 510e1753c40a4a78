"use strict";
// What the tables have in common: heads that sort, rows that the keyboard reaches.

const tables = (() => {
  function sorted(rows, value, falling) {
    const keyed = rows.map((row) => [value(row), row]);
    keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (falling ? -1 : 1));
    return keyed.map(([, row]) => row);
  }

  /** `order` is changed by a click, then `draw` called. */
  function head(columns, order, draw) {
    const cells = columns.map((column, index) => {
      const here = order.column === index;
      const arrow = here ? (order.falling ? " ▼" : " ▲") : "";
      const button = make("button", { type: "button", textContent: column.title + arrow });
      button.addEventListener("click", () => {
        order.falling = here ? !order.falling : Boolean(column.number);
        order.column = index;
        const around = button.closest("table").parentElement;
        draw();
        around.querySelectorAll("th button")[index]?.focus();
      });
      const sort = here ? (order.falling ? "descending" : "ascending") : "none";
      return make("th", { className: classes(column), attributes: { scope: "col", "aria-sort": sort } }, button);
    });
    return make("thead", {}, make("tr", {}, ...cells));
  }

  function classes(column) {
    return ["number", "long", "wide"].filter((name) => column[name]).join(" ");
  }

  /** A row that is chosen by a click or Enter; the arrow keys go from row to row. Tab reaches one row of a body: the
   * first, or where the focus was. */
  function row(columns, item, choose) {
    const cells = columns.map((column) => make("td", { className: classes(column) }, column.cell(item)));
    const made = make("tr", { tabIndex: -1 }, ...cells);
    made.addEventListener("click", choose);
    made.addEventListener("focus", () => {
      made.parentElement.querySelector('tr[tabindex="0"]')?.setAttribute("tabindex", "-1");
      made.tabIndex = 0;
    });
    made.addEventListener("keydown", (event) => {
      const next = { ArrowDown: made.nextElementSibling, ArrowUp: made.previousElementSibling }[event.key];
      if (event.key === "Enter" || event.key === " ") choose();
      else if (event.key === "Escape") state.select(null, "list");
      else if (next) next.focus();
      else return;
      event.preventDefault();
    });
    return made;
  }

  function body(rows) {
    if (rows.length > 0) rows[0].tabIndex = 0;
    return make("tbody", {}, ...rows);
  }

  /** Without sorting or choosing. */
  function plain(label, titles, rows) {
    const row = (tag, cells) => make("tr", {}, ...cells.map((content, index) =>
      make(tag, { className: index > 0 ? "number" : "" }, content)));
    return make("table", { attributes: { "aria-label": label } },
      make("thead", {}, row("th", titles)), make("tbody", {}, ...rows.map((cells) => row("td", cells))));
  }

  return { sorted, head, row, body, plain };
})();
