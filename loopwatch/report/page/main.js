"use strict";
// The head of the page, and the start.

function tiles() {
  const { lanes, stalls } = report;
  const stalled = stalls.reduce((sum, stall) => sum + stall.duration, 0);
  const watched = lanes.every((lane) => lane.watched !== null) ? lanes.reduce((sum, lane) => sum + lane.watched, 0) : 0;
  const busy = lanes.reduce((sum, lane) => sum + (lane.busy ?? 0), 0);
  const worst = stalls.reduce((most, stall) => Math.max(most, stall.duration), 0);
  const waits = lanes.map((lane) => lane.lag?.waiting["0.99"] ?? null).filter((value) => value !== null);
  const facts = [
    ["Stalls", stalls.length.toLocaleString("en"), counted(report.sites.length, "site")],
    ["Stalled", seconds(stalled), watched ? `${percent(stalled / watched)} of the time` : "in all"],
    ["Longest", seconds(worst || null), worst ? "of all stalls" : "none"],
    ["Busy", watched ? percent(busy / watched) : "–", watched ? `of ${seconds(watched)} watched` : "not known"],
    ["Waiting p99", seconds(waits.length ? Math.max(...waits) : null), "an event, worst loop"],
    ["Loops", lanes.length.toLocaleString("en"), counted(report.processes, "process", "processes")],
  ];
  const full = report.saturations;
  if (full > 0) facts.push(["Full pools", full.toLocaleString("en"), "reports of executors"]);
  byId("tiles").append(...facts.map(([what, value, more]) =>
    make("div", { className: "tile", attributes: { role: "listitem" } },
      make("span", { className: "quiet", textContent: what }), make("b", { textContent: value }),
      make("span", { className: "quiet", textContent: more }))));
}

function about() {
  const times = report.stalls.map((stall) => stall.at).concat(report.lanes.flatMap((lane) => lane.bins.at));
  const least = times.reduce((a, b) => Math.min(a, b), Infinity);
  const most = times.reduce((a, b) => Math.max(a, b), -Infinity);
  byId("about").textContent =
    times.length === 0 ? "Nothing was recorded." : `${clock(least, true)} to ${clock(most, true)} UTC`;
  const made = clock(Date.parse(report.made), true);
  byId("made").textContent = `Made by loopwatch ${report.version}, ${made} UTC. Charts by BokehJS.`;
}

function problems() {
  const { count, first } = report.problems;
  if (count === 0) return;
  byId("problems").hidden = false;
  byId("problems").querySelector("summary").textContent = `${counted(count, "line")} of the sources left out`;
  byId("problems").querySelector("ul").append(...first.map((text) => make("li", {}, named(text))));
}

function causes() {
  const group = byId("causes");
  const sums = new Map();
  for (const stall of report.stalls) {
    const [number, time] = sums.get(stall.verdict) ?? [0, 0];
    sums.set(stall.verdict, [number + 1, time + stall.duration]);
  }
  for (const [verdict, [number, time]] of [...sums].sort(([, a], [, b]) => b[1] - a[1])) {
    const title = `${counted(number, "stall")}, ${seconds(time)}`;
    const many = make("small", { textContent: number.toLocaleString("en") });
    const button = make("button", { type: "button", className: "cause", title }, dot(verdict), verdict, many);
    button.addEventListener("click", () => state.filter(({ causes: chosen }) => {
      if (!chosen.delete(verdict)) chosen.add(verdict);
    }));
    const press = () => {
      button.setAttribute("aria-pressed", String(state.chosen.causes.has(verdict)));
      group.classList.toggle("chosen", state.chosen.causes.size > 0);
    };
    press();
    state.onFilter(press);
    group.append(button);
  }
}

function laneChoice() {
  const choice = byId("lane");
  byId("lane-choice").hidden = report.lanes.length < 2;
  const option = (value, textContent) => make("option", { value, textContent });
  choice.append(option("", "all"), ...report.lanes.map((lane, index) => option(String(index), lane.name)));
  choice.addEventListener("change", () => state.filter((chosen) => {
    chosen.lane = choice.value === "" ? null : Number(choice.value);
  }));
}

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let dark = system.matches;
  const apply = (style) => {
    document.documentElement.style.colorScheme = style;
    byId("theme").textContent = dark ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
  };
  apply("");
  system.addEventListener("change", () => { dark = system.matches; apply(""); charts.repaint(); });
  byId("theme").addEventListener("click", () => { dark = !dark; apply(dark ? "dark" : "light"); charts.repaint(); });
}

function longest() {
  const { stalls } = report;
  return stalls.reduce((most, stall, index) => (stall.duration > stalls[most].duration ? index : most), 0);
}

async function start() {
  theme();
  about();
  tiles();
  problems();
  causes();
  laneChoice();
  stallList.start();
  details.start();
  sites.start();
  flame.start();
  await charts.embed([...timeline.draw(), ...lag.draw()]);
  if (report.stalls.length > 0) state.select(longest(), "start");
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
