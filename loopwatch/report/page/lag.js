"use strict";
// How long turns took, and what the collector took.

const lag = (() => {
  /** The histogram, where there is one: [[figure, id of its place]]. */
  function draw() {
    const { bounds, counts } = report.histogram;
    quantiles();
    collections();
    const used = counts.map((count, index) => [count, index]).filter(([count]) => count > 0).map(([, index]) => index);
    if (used.length === 0) {
      byId("chart-lag").replaceChildren(empty("No turns are known: the sources have no lines of loops."));
      return [];
    }
    const edge = (index) => (index < 0 ? bounds[0] / 2 : index >= bounds.length ? bounds.at(-1) * 2 : bounds[index]);
    const [first, last] = [used[0], used.at(-1)];
    const all = counts.map((count, index) => ({ count, left: edge(index - 1), right: edge(index) }));
    const rows = all.slice(first, last + 1);
    const most = Math.max(...counts);
    const made = charts.figure({
      height: 220, x_axis_type: "log", y_axis_type: "log",
      x_range: new Bokeh.Range1d({ start: edge(first - 1) / 1.1, end: edge(last) * 1.1 }),
      y_range: new Bokeh.Range1d({ start: 0.5, end: most * 2 }),
    });
    const source = new Bokeh.ColumnDataSource({ data: {
      left: rows.map((row) => row.left), right: rows.map((row) => row.right),
      top: rows.map((row) => Math.max(row.count, 0.5)),
    } });
    const bars = made.quad({
      left: { field: "left" }, right: { field: "right" }, bottom: 0.5, top: { field: "top" }, source,
      fill_color: charts.colour("accent"), line_color: charts.colour("card"),
    });
    charts.onRepaint(() => {
      bars.glyph.fill_color = { value: charts.colour("accent") };
      bars.glyph.line_color = { value: charts.colour("card") };
    });
    charts.ticks(made, made.below[0], charts.timeTicks(edge(first - 1), edge(last)));
    const numbers = new Map();
    for (let value = 1; value <= most * 2; value *= 10) numbers.set(value, value.toLocaleString("en"));
    charts.ticks(made, made.left[0], numbers);
    const thresholds = new Set(report.lanes.map((lane) => lane.threshold).filter((value) => value > 0));
    for (const threshold of thresholds) drawThreshold(made, threshold);
    return [[made, "chart-lag"]];
  }

  function drawThreshold(made, at) {
    const line = new Bokeh.Span({ location: at, dimension: "height", line_dash: [4, 4], line_width: 2 });
    made.add_layout(line);
    charts.onRepaint(() => { line.line_color = charts.colour("blocking-call"); });
  }

  function quantiles() {
    const lanes = report.lanes.filter((lane) => lane.lag !== null);
    if (lanes.length === 0) return;
    const rows = lanes.map(({ name, lag: known, busy, watched }) => [
      named(name), known.turns === null ? "–" : known.turns.toLocaleString("en"),
      watched ? percent(busy / watched) : "–", seconds(known.quantiles["0.5"]), seconds(known.quantiles["0.99"]),
      seconds(known.max), seconds(known.waiting["0.99"]),
    ]);
    const titles = ["Loop", "Turns", "Busy", "Median", "p99", "Longest", "Waiting p99"];
    byId("lag").append(tables.plain("Lag by loop", titles, rows));
  }

  function collections() {
    if (report.gc.every((row) => row.count === 0)) {
      byId("gc").append(empty("No collection is known."));
      return;
    }
    const rows = report.gc.map(({ generation, count, seconds: sum, worst }) => [
      String(generation), count.toLocaleString("en"), seconds(sum), seconds(count > 0 ? sum / count : 0), seconds(worst),
    ]);
    const titles = ["Generation", "Collections", "Total", "Mean", "Longest"];
    byId("gc").append(tables.plain("Garbage collections", titles, rows));
  }

  return { draw };
})();
