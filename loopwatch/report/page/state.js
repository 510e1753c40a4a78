"use strict";
// What is chosen: a stall, a loop, causes, a site. Who shows it subscribes, and is called after each change.

const state = (() => {
  const chosen = { stall: null, lane: null, causes: new Set(), site: null };
  const subscribers = { filter: [], select: [] };
  let shown = report.stalls.map((_, index) => index);

  function passes(stall) {
    return (
      (chosen.lane === null || stall.lane === chosen.lane) &&
      (chosen.causes.size === 0 || chosen.causes.has(stall.verdict)) &&
      (chosen.site === null || stall.fingerprint === chosen.site)
    );
  }

  function filter(change) {
    change(chosen);
    shown = report.stalls.map((_, index) => index).filter((index) => passes(report.stalls[index]));
    for (const call of subscribers.filter) call();
    if (chosen.stall !== null && !passes(report.stalls[chosen.stall])) select(null);
  }

  /** `from`: who did it, so that it does not move what the user looks at. */
  function select(index, from = "") {
    chosen.stall = index;
    for (const call of subscribers.select) call(index, from);
  }

  /** To the next stall that is shown (by = 1) or the one before (by = -1), in time. */
  function step(by, from) {
    if (shown.length === 0) return;
    const here = chosen.stall === null ? -1 : shown.indexOf(chosen.stall);
    const next = here === -1 ? (by > 0 ? 0 : shown.length - 1) : here + by;
    select(shown[Math.max(0, Math.min(shown.length - 1, next))], from);
  }

  return {
    chosen, filter, select, step,
    shown: () => shown,
    onFilter: (call) => subscribers.filter.push(call),
    onSelect: (call) => subscribers.select.push(call),
  };
})();
