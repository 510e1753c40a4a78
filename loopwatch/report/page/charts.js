"use strict";
// Charts by BokehJS (BSD licence, its notice is in it). It gets numbers and our own words, never a text from the data.

const charts = (() => {
  const figures = [];
  const recolours = [];
  const LEFT = 64, RIGHT = 28; // room for the axes' texts
  Bokeh.set_log_level("error");

  /** What a variable of the style is now, in these colours of the page. */
  function colour(name) {
    const probe = byId("tip");
    probe.style.color = `var(--${name})`;
    const found = getComputedStyle(probe).color;
    probe.style.color = "";
    return found;
  }

  function figure(options) {
    const made = Bokeh.Plotting.figure({
      tools: [], toolbar_location: null, sizing_mode: "stretch_width", min_border_left: LEFT, min_border_right: RIGHT,
      min_border_top: 4, min_border_bottom: 4, outline_line_color: null, lod_threshold: null, ...options,
    });
    made.toolbar.logo = null;
    figures.push(made);
    return made;
  }

  /** Times as they are on a clock, in as much detail as there is room for. */
  function clockTicks(axis) {
    const [minute, second] = ["%H:%M", "%H:%M:%S"];
    axis.formatter = new Bokeh.DatetimeTickFormatter({
      days: "%Y-%m-%d", hours: minute, hourmin: minute, minutes: minute, minsec: second, seconds: second,
      milliseconds: "%H:%M:%S.%3N", strip_leading_zeros: false,
    });
  }

  /** Ticks at these values, each with its text: BokehJS would make texts by code that the page's policy forbids. */
  function ticks(made, axis, texts) {
    axis.ticker = new Bokeh.FixedTicker({ ticks: [...texts.keys()], minor_ticks: [] });
    axis.major_label_overrides = texts;
    const dimension = made.below.includes(axis) ? 0 : 1;
    for (const grid of made.center) if (grid.dimension === dimension) grid.ticker = axis.ticker;
  }

  /** 1, 10, 100 ms … for an axis of times that are powers of ten; where it is short also 2 and 5. */
  function timeTicks(least, most) {
    const texts = new Map();
    const narrow = innerWidth < 600 && most / least > 1e4;
    for (let exponent = -6; exponent <= 5; exponent += narrow ? 2 : 1) {
      for (const digit of most / least > 200 ? [1] : [1, 2, 5]) {
        const value = Number(`${digit}e${exponent}`);
        if (value < least * 0.999 || value > most * 1.001) continue;
        const [unit, scale] = exponent < -3 ? ["µs", 1e6] : exponent < 0 ? ["ms", 1e3] : ["s", 1];
        texts.set(value, `${Math.round(value * scale)} ${unit}`);
      }
    }
    return texts;
  }

  function paint(made) {
    made.background_fill_color = colour("card");
    made.border_fill_color = colour("card");
    for (const axis of [...made.below, ...made.left]) {
      axis.axis_line_color = colour("line");
      axis.major_tick_line_color = colour("line");
      axis.minor_tick_line_color = null;
      axis.major_label_text_color = colour("quiet");
      axis.major_label_text_font_size = "11px";
    }
    for (const grid of made.center) grid.grid_line_color = colour("grid");
  }

  /** Where it looks the same chosen or not: what is chosen is marked by us. */
  function plain(renderer) {
    renderer.selection_glyph = renderer.glyph;
    renderer.nonselection_glyph = renderer.glyph;
    return renderer;
  }

  function repaint() {
    figures.forEach(paint);
    for (const call of recolours) call();
  }

  /** Pairs of a figure and the id of its place. */
  async function embed(drawn) {
    repaint();
    const all = new Bokeh.Document();
    for (const [made] of drawn) all.add_root(made);
    const places = drawn.map(([, id]) => byId(id));
    await Bokeh.embed.add_document_standalone(all, document.body, places);
  }

  const onRepaint = (call) => recolours.push(call);

  return { LEFT, RIGHT, embed, figure, ticks, timeTicks, clockTicks, colour, plain, repaint, onRepaint };
})();
