"use strict";
// One stall: its sentence, what to do, where its time went, the stack with source, who held the GIL, the evidence.

const details = (() => {
  const TIMES = {
    cpu_time: "CPU time", gil_wait: "waited for the GIL", run_queue_wait: "waited for a CPU",
    throttled_time: "throttled by the cgroup", gc_time: "garbage collection", watchdog_late: "watchdog late by",
  };
  const FACTS = {
    callbacks: "callbacks in the turn", gc_generation: "generation collected", major_faults: "major page faults",
    syscall: "system call", target: "waited for",
  };

  function draw(index) {
    const panel = byId("details");
    if (index === null) {
      const none = "Nothing to show: there was no stall.";
      panel.replaceChildren(empty(report.stalls.length === 0 ? none : "Choose a stall in the timeline or in the list."));
      return;
    }
    const stall = report.stalls[index];
    panel.replaceChildren(
      make("p", { className: "sentence" }, named(stall.sentence)),
      ...(stall.hint ? [make("p", { className: "hint" }, named(stall.hint))] : []),
      ...breakdown(stall), ...stack(stall), ...holder(stall), ...pairs("Steps", stall.steps, seconds),
      ...pairs("Labels", stall.labels, String), ...evidence(stall), ...rest(stall),
    );
    panel.scrollTop = 0;
    byId("said").textContent = stall.summary;
  }

  function title(text) {
    return make("h3", { textContent: text });
  }

  function quiet(text) {
    return make("p", { className: "quiet", textContent: text });
  }

  function breakdown(stall) {
    const parts = Object.entries(stall.breakdown).filter(([, part]) => part > 0).sort(([, a], [, b]) => b - a);
    const said = parts.map(([verdict, part]) => `${verdict} ${percent(part / stall.duration)}`).join(", ");
    const bar = make("div", { className: "bar", attributes: { role: "img", "aria-label": said } });
    for (const [verdict, part] of parts) {
      const piece = make("span");
      piece.style.background = causeVariable(verdict);
      piece.style.width = `${(part / stall.duration) * 100}%`;
      bar.append(piece);
    }
    const legend = parts.map(([verdict, part]) =>
      make("span", {}, dot(verdict), `${verdict} ${seconds(part)} (${percent(part / stall.duration)})`));
    return [title("Why"), bar, make("div", { className: "parts" }, ...legend)];
  }

  function frameItem(index, culprit) {
    const frame = report.frames[index];
    const place = make("span", { className: "place" }, "  ", named(`${frame[FILE]}:${frame[LINE]}`));
    const item = make("li", { className: frame[OWN] ? "" : "library" }, named(frame[FUNCTION]), place);
    if (frame[SOURCE]) item.append(make("code", {}, named(frame[SOURCE])));
    if (index === culprit) {
      item.className = "culprit";
      item.setAttribute("aria-label", "The line to look at first");
    }
    return item;
  }

  function frames(stack, culprit) {
    return make("ol", { className: "stack" }, ...stack.map((index) => frameItem(index, culprit)));
  }

  /** What started and runs the loop says nothing of the stall, and is folded. */
  function stack(stall) {
    const all = report.stacks[stall.stack];
    if (all.length === 0) return [title("Stack"), quiet("No frame could be read.")];
    const outer = all.slice(0, stall.outer);
    const summary = make("summary", { textContent: `${counted(outer.length, "frame")} that started and run the loop` });
    const parts = [make("h3", {}, named(stall.stack_title))];
    if (outer.length > 0) parts.push(make("details", { className: "outer" }, summary, frames(outer, null)));
    if (stall.truncated > 0) parts.push(quiet(`${counted(stall.truncated, "frame")} left out`));
    return [...parts, frames(all.slice(stall.outer), stall.culprit)];
  }

  function holder(stall) {
    if (!stall.holder) return [];
    return [make("h3", {}, named(stall.holder.title)), frames(report.stacks[stall.holder.stack], stall.culprit)];
  }

  function list(rows) {
    const pair = ([name, value]) => [make("dt", {}, named(name)), make("dd", {}, named(value))];
    return make("dl", {}, ...rows.flatMap(pair));
  }

  function pairs(heading, mapping, say) {
    const rows = Object.entries(mapping).map(([name, value]) => [name, say(value)]);
    return rows.length === 0 ? [] : [title(heading), list(rows)];
  }

  function evidence(stall) {
    const known = stall.evidence;
    const times = Object.keys(TIMES).filter((name) => known[name]).map((name) => [TIMES[name], seconds(known[name])]);
    const facts = Object.keys(FACTS).filter((name) => name in known).map((name) => [FACTS[name], String(known[name])]);
    const rows = [...times, ...facts];
    return rows.length === 0 ? [] : [title("Evidence"), list(rows)];
  }

  function rest(stall) {
    const rows = [["began", `${clock(stall.at, true)} UTC`], ["loop", report.lanes[stall.lane].name]];
    if (report.lanes[stall.lane].origin) rows.push(["file", report.lanes[stall.lane].origin]);
    if (stall.task) rows.push(["task", `${stall.task[0]} (${stall.task[1]})`]);
    rows.push(["stall", `${stall.id}, ${counted(stall.samples, "sample")}`], ["fingerprint", stall.fingerprint]);
    return [title("This stall"), list(rows)];
  }

  function start() {
    draw(state.chosen.stall);
    state.onSelect(draw);
    byId("details").addEventListener("keydown", (event) => {
      if (event.key === "Escape") byId("timeline").focus();
    });
  }

  return { start };
})();
