"use strict";
// The timeline: every stall by its length, the busy share of each loop with the stalls in it, and garbage collection.

const timeline = (() => {
  const stalls = report.stalls;
  const MARKERS = {
    python: "circle", native: "square", "blocking-call": "triangle", lock: "diamond", gil: "inverted_triangle",
    gc: "hex", "many-callbacks": "plus", "not-scheduled": "x", suspended: "asterisk", unknown: "circle_cross",
  };
  const whole = wholeRange();
  const range = new Bokeh.Range1d({ start: whole[0], end: whole[1] });
  const source = new Bokeh.ColumnDataSource({ data: {} });
  const mark = new Bokeh.ColumnDataSource({ data: { x: [], y: [] } });
  const busy = new Bokeh.ColumnDataSource({ data: {} });
  const gc = new Bokeh.ColumnDataSource({ data: {} });
  const LANES_MAX = 12;
  const laneHeight = () => (lanes.length === 1 ? 68 : 44);
  let lanes = report.lanes.map((_, index) => index);
  let busyFigure = null;
  let busyShading = null;
  let gcFigure = null;

  function wholeRange() {
    let least = Infinity, most = -Infinity;
    for (const stall of stalls) {
      least = Math.min(least, stall.at);
      most = Math.max(most, stall.at + stall.duration * 1000);
    }
    for (const { bins } of report.lanes) {
      if (bins.at.length === 0) continue;
      least = Math.min(least, bins.at[0]);
      most = Math.max(most, bins.at.at(-1) + bins.seconds.at(-1) * 1000);
    }
    if (least > most) return [Date.now() - 60_000, Date.now()];
    const border = Math.max(50, (most - least) * 0.01);
    return [least - border, most + border];
  }

  // --- zoom ---

  function show(start, end) {
    const width = Math.min(Math.max(end - start, 5), whole[1] - whole[0]);
    const begin = Math.min(Math.max((start + end - width) / 2, whole[0]), whole[1] - width);
    range.setv({ start: begin, end: begin + width });
  }

  /** The chosen stall where it is in sight, else the middle. */
  function focus() {
    const at = state.chosen.stall === null ? -1 : stalls[state.chosen.stall].at;
    return at >= range.start && at <= range.end ? at : (range.start + range.end) / 2;
  }

  /** By a factor, around a moment. */
  function zoom(factor, around = focus()) {
    show(around - (around - range.start) * factor, around + (range.end - around) * factor);
  }

  function pan(share) {
    const by = (range.end - range.start) * share;
    show(range.start + by, range.end + by);
  }

  function reveal(stall) {
    const end = stall.at + stall.duration * 1000;
    const width = range.end - range.start;
    if (stall.at < range.start || end > range.end) show(stall.at - width / 2, stall.at + width / 2);
  }

  // --- what is drawn ---

  function fillStalls() {
    const rows = state.shown().map((index) => stalls[index]);
    const row = (stall) => lanes.length - 1 - lanes.indexOf(stall.lane);
    const colours = new Map(report.verdicts.map((verdict) => [verdict, charts.colour(verdict)]));
    source.selected.indices = [];
    source.data = {
      x: rows.map((stall) => stall.at),
      right: rows.map((stall) => stall.at + stall.duration * 1000),
      y: rows.map((stall) => Math.max(stall.duration, 1e-4)),
      bottom: rows.map((stall) => row(stall) + 0.72),
      top: rows.map((stall) => row(stall) + 0.94),
      colour: rows.map((stall) => colours.get(stall.verdict)),
      marker: rows.map((stall) => MARKERS[stall.verdict] ?? "circle"),
    };
  }

  /** The chosen one, or those with the most stalled time. */
  function shownLanes() {
    byId("busy-note").textContent = "";
    if (state.chosen.lane !== null) return [state.chosen.lane];
    const stalled = report.lanes.map(() => 0);
    for (const stall of stalls) stalled[stall.lane] += stall.duration;
    const all = report.lanes.map((_, index) => index);
    const kept = all.toSorted((a, b) => stalled[b] - stalled[a]).slice(0, LANES_MAX);
    if (all.length > LANES_MAX) {
      byId("busy-note").textContent = `: the ${LANES_MAX} loops with the most stalled time, of ${all.length}`;
    }
    return kept.sort((a, b) => a - b);
  }

  function fillLanes() {
    lanes = shownLanes();
    const columns = { left: [], right: [], bottom: [], top: [] };
    const pauses = { left: [], right: [], top: [] };
    lanes.forEach((lane, row) => {
      const { bins } = report.lanes[lane];
      const floor = lanes.length - 1 - row + 0.06;
      for (let index = 0; index < bins.at.length; index += 1) {
        const right = bins.at[index] + bins.seconds[index] * 1000;
        columns.left.push(bins.at[index]);
        columns.right.push(right);
        columns.bottom.push(floor);
        columns.top.push(floor + 0.62 * Math.min(1, bins.busy[index]));
        if (bins.gc[index] > 0) {
          pauses.left.push(bins.at[index]);
          pauses.right.push(right);
          pauses.top.push(bins.gc[index] * 1000);
        }
      }
    });
    busy.data = columns;
    gc.data = pauses;
    busyFigure.y_range.setv({ start: 0, end: lanes.length });
    busyFigure.height = laneHeight() * Math.max(1, lanes.length) + 8;
    const most = pauses.top.reduce((a, b) => Math.max(a, b), 1);
    gcFigure.y_range.setv({ start: 0, end: most * 1.1 });
    const step = 10 ** Math.floor(Math.log10(most));
    const tick = most / step >= 5 ? step * 5 : most / step >= 2 ? step * 2 : step;
    byId("gc-note").textContent = pauses.top.length > 0 ? "in each second" : "none seen";
    charts.ticks(gcFigure, gcFigure.left[0], new Map([[0, "0"], [tick, seconds(tick / 1000)]]));
    nameLanes();
  }

  function nameLanes() {
    byId("lane-names").replaceChildren(...lanes.map((lane, row) => {
      const { name: text, origin } = report.lanes[lane];
      const name = make("div", { className: "lane-name", title: origin }, named(text));
      name.style.top = `${4 + (row + 0.32) * laneHeight()}px`;
      return name;
    }));
  }

  function fillMark() {
    const stall = state.chosen.stall === null ? null : stalls[state.chosen.stall];
    mark.data = stall ? { x: [stall.at], y: [Math.max(stall.duration, 1e-4)] } : { x: [], y: [] };
  }

  // --- the figures ---

  function tools() {
    return [
      new Bokeh.BoxZoomTool({ dimensions: "width" }),
      new Bokeh.TapTool({ mode: "replace" }),
      new Bokeh.HoverTool({ tooltips: null }),
    ];
  }

  function lengths() {
    const longest = stalls.reduce((most, stall) => Math.max(most, stall.duration), 0);
    const shortest = stalls.reduce((least, stall) => Math.min(least, stall.duration), longest || 0.1);
    const bottom = Math.max(shortest * 0.7, 7e-5), top = Math.max(longest * 1.5, bottom * 12);
    const made = charts.figure({
      height: 190, x_range: range, y_range: new Bokeh.Range1d({ start: bottom, end: top }), x_axis_type: "datetime",
      y_axis_type: "log", x_axis_location: null,
    });
    charts.ticks(made, made.left[0], charts.timeTicks(bottom, top));
    made.add_tools(...tools());
    const extent = made.segment({
      x0: { field: "x" }, x1: { field: "right" }, y0: { field: "y" }, y1: { field: "y" }, source,
      line_color: { field: "colour" }, line_width: 4, line_alpha: 0.55,
    });
    const dots = made.scatter({
      x: { field: "x" }, y: { field: "y" }, source, marker: { field: "marker" }, size: 8,
      fill_color: { field: "colour" }, line_color: { field: "colour" }, fill_alpha: 0.75,
    });
    charts.plain(extent);
    charts.plain(dots);
    const ring = made.scatter({
      x: { field: "x" }, y: { field: "y" }, source: mark, marker: "circle", size: 19, fill_alpha: 0, line_width: 3,
      line_color: charts.colour("text"),
    });
    charts.onRepaint(() => { ring.glyph.line_color = { value: charts.colour("text") }; });
    return made;
  }

  function shares() {
    busyFigure = charts.figure({
      height: laneHeight(), x_range: range, y_range: new Bokeh.Range1d({ start: 0, end: 1 }), x_axis_type: "datetime",
      y_axis_location: null, x_axis_location: null,
    });
    busyFigure.add_tools(...tools());
    busyShading = busyFigure.quad({
      left: { field: "left" }, right: { field: "right" }, bottom: { field: "bottom" }, top: { field: "top" },
      source: busy, fill_color: charts.colour("busy"), line_color: null,
    });
    charts.onRepaint(() => { busyShading.glyph.fill_color = { value: charts.colour("busy") }; });
    const blocks = busyFigure.quad({
      left: { field: "x" }, right: { field: "right" }, bottom: { field: "bottom" }, top: { field: "top" }, source,
      fill_color: { field: "colour" }, line_color: { field: "colour" }, line_width: 1, fill_alpha: 0.9, line_alpha: 0.6,
    });
    charts.plain(blocks);
    busyFigure.left.concat(busyFigure.center).forEach((part) => { if (part.dimension === 1) part.visible = false; });
    return busyFigure;
  }

  function pauses() {
    gcFigure = charts.figure({
      height: 84, x_range: range, y_range: new Bokeh.Range1d({ start: 0, end: 1 }), x_axis_type: "datetime",
    });
    charts.clockTicks(gcFigure.below[0]);
    gcFigure.add_tools(new Bokeh.BoxZoomTool({ dimensions: "width" }));
    const bars = gcFigure.quad({
      left: { field: "left" }, right: { field: "right" }, bottom: 0, top: { field: "top" }, source: gc,
      fill_color: charts.colour("gc"), line_color: charts.colour("gc"),
    });
    charts.onRepaint(() => {
      bars.glyph.fill_color = { value: charts.colour("gc") };
      bars.glyph.line_color = { value: charts.colour("gc") };
    });
    return gcFigure;
  }

  // --- the mouse ---

  function hover() {
    const tip = byId("tip");
    let over = null;
    source.inspect.connect(() => {
      over = source.inspected.indices[0] ?? null;
      if (over === null) tip.hidden = true;
    });
    byId("timeline").addEventListener("mousemove", (event) => {
      if (over === null || state.shown()[over] === undefined) return;
      const stall = stalls[state.shown()[over]];
      tip.replaceChildren(
        make("div", {}, make("b", { textContent: seconds(stall.duration) }), " ", cause(stall.verdict)),
        make("div", {}, named(place(stall.culprit))),
        make("div", { className: "quiet", textContent: clock(stall.at) }),
      );
      tip.hidden = false;
      const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${event.clientY + 16}px`;
    });
    byId("timeline").addEventListener("mouseleave", () => { tip.hidden = true; });
    byId("timeline").addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = byId("chart-gc").getBoundingClientRect();
      const share = (event.clientX - box.left - charts.LEFT) / Math.max(1, box.width - charts.LEFT - charts.RIGHT);
      zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, range.start + Math.min(1, Math.max(0, share)) * (range.end - range.start));
    }, { passive: false });
  }

  // --- the keyboard ---

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowRight: () => state.step(1, "timeline"),
      ArrowLeft: () => state.step(-1, "timeline"),
      Home: () => state.step(-Infinity, "timeline"),
      End: () => state.step(Infinity, "timeline"),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => show(...whole),
      Enter: () => { if (state.chosen.stall !== null) byId("details").focus(); },
      Escape: () => state.select(null, "timeline"),
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  function draw() {
    const drawn = [[lengths(), "chart-stalls"], [shares(), "chart-busy"], [pauses(), "chart-gc"]];
    fillLanes();
    fillStalls();
    source.selected.change.connect(() => {
      const [row] = source.selected.indices;
      if (row !== undefined) state.select(state.shown()[row], "chart");
    });
    hover();
    byId("timeline").addEventListener("keydown", press);
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("earlier").addEventListener("click", () => pan(-0.5));
    byId("later").addEventListener("click", () => pan(0.5));
    byId("zoom-all").addEventListener("click", () => show(...whole));
    state.onFilter(() => { fillLanes(); fillStalls(); });
    state.onSelect((index) => { fillMark(); if (index !== null) reveal(stalls[index]); });
    charts.onRepaint(fillStalls);
    return drawn;
  }

  return { draw, range, zoom };
})();
