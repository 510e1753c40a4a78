"use strict";
// The data, how it is said, and the one way to make elements: text is only ever set as text.

const report = JSON.parse(document.getElementById("data").textContent);

function byId(id) {
  return document.getElementById(id);
}

/** An element. `properties` are set as they are; those under `attributes` as attributes. */
function make(tag, properties = {}, ...children) {
  const { attributes = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Text that somebody else chose: its direction stays its own. */
function named(text) {
  return make("bdi", { textContent: text });
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 100) return `${value.toFixed(0)} s`;
  if (value >= 0.9995) return `${value.toFixed(2)} s`;
  if (value >= 0.0995) return `${(value * 1e3).toFixed(0)} ms`;
  if (value >= 0.0009995) return `${(value * 1e3).toPrecision(3)} ms`;
  return value === 0 ? "0" : `${(value * 1e6).toPrecision(3)} µs`;
}

function percent(value) {
  return value === null ? "–" : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
}

function counted(number, noun, plural = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

/** Of milliseconds since 1970: 09:15:02.123; with the day where asked. */
function clock(at, day = false) {
  const text = new Date(at).toISOString();
  return day ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : text.slice(11, 23);
}

function fileName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** What frames are made of. */
const FILE = 0, LINE = 1, FUNCTION = 2, SOURCE = 3, OWN = 4;

/** load (app.py:12) */
function place(index) {
  if (index === null) return "nobody to blame";
  const frame = report.frames[index];
  return `${frame[FUNCTION]} (${fileName(frame[FILE])}:${frame[LINE]})`;
}

function causeVariable(verdict) {
  return report.verdicts.includes(verdict) ? `var(--${verdict})` : "var(--unknown)";
}

function dot(verdict) {
  const mark = make("span", { className: "dot", attributes: { "aria-hidden": "true" } });
  mark.style.background = causeVariable(verdict);
  return mark;
}

function cause(verdict) {
  return make("span", { className: "cause-name" }, dot(verdict), verdict);
}

function empty(text) {
  return make("p", { className: "empty", textContent: text });
}
