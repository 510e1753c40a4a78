"use strict";
// Stalls by fingerprint: one cause in one function, in whatever process. A click shows only these stalls.

const sites = (() => {
  const COLUMNS = [
    { title: "Function", value: name, long: true, cell: (site) => named(name(site)) },
    { title: "File", value: file, long: true, wide: true, cell: (site) => named(file(site)) },
    { title: "Cause", value: (site) => site.verdict, cell: (site) => cause(site.verdict) },
    { title: "Stalls", value: (site) => site.count, number: true, cell: (site) => site.count.toLocaleString("en") },
    { title: "Total", value: (site) => site.seconds, number: true, cell: (site) => seconds(site.seconds) },
    { title: "Longest", value: (site) => site.worst, number: true, cell: (site) => seconds(site.worst) },
    { title: "Processes", value: (site) => site.processes, number: true, wide: true, cell: (site) => site.processes },
  ];
  const order = { column: 4, falling: true };

  function name(site) {
    return site.culprit === null ? "nobody to blame" : report.frames[site.culprit][FUNCTION];
  }

  function file(site) {
    return site.culprit === null ? "" : `${report.frames[site.culprit][FILE]}:${report.frames[site.culprit][LINE]}`;
  }

  function wanted() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    return (text) => words.every((word) => text.toLowerCase().includes(word));
  }

  function draw() {
    const matches = wanted();
    const found = report.sites.filter((site) => matches(`${name(site)} ${file(site)} ${site.verdict}`));
    byId("sites-count").textContent = found.length === report.sites.length
      ? counted(found.length, "site") : `${found.length} of ${counted(report.sites.length, "site")}`;
    if (found.length === 0) {
      byId("sites").replaceChildren(empty(report.sites.length === 0 ? "No stalls, so no sites." : "No site matches."));
      return;
    }
    const rows = tables.sorted(found, COLUMNS[order.column].value, order.falling).map((site) => {
      const chosen = site.fingerprint === state.chosen.site;
      const choose = () => state.filter((all) => { all.site = chosen ? null : site.fingerprint; });
      const row = tables.row(COLUMNS, site, choose);
      row.setAttribute("aria-selected", String(chosen));
      return row;
    });
    const parts = [tables.head(COLUMNS, order, draw), tables.body(rows)];
    byId("sites").replaceChildren(make("table", { attributes: { "aria-label": "Sites" } }, ...parts));
  }

  function start() {
    draw();
    state.onFilter(() => {
      const focused = [...byId("sites").querySelectorAll("tbody tr")].indexOf(document.activeElement);
      draw();
      if (focused !== -1) byId("sites").querySelectorAll("tbody tr")[focused]?.focus();
    });
    byId("search").addEventListener("input", () => { draw(); flame.highlight(wanted()); });
  }

  return { start };
})();
