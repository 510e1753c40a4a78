"use strict";
// Where stalled time went, as a tree of functions: as wide as it took long, callers above what they called. Boxes are
// elements, not a drawing, so that the keyboard and a screen reader reach each.

const flame = (() => {
  const ROW = 22;
  const LEAST = 0.0015; // of the width: a box below it could not be hit
  const [FRAME, TIME, CAUSE, CHILDREN] = [0, 1, 2, 3];
  const parents = new Map();
  const root = grow();
  let top = root;
  let current = top;
  let matches = null;

  /** The tree, of rows that have the index of their parent in place of children. */
  function grow() {
    const nodes = report.flame.map(([frame, time, verdict]) => [frame, time, verdict, []]);
    nodes.forEach((node, index) => {
      const parent = nodes[report.flame[index][CHILDREN]];
      if (parent === undefined) return;
      parent[CHILDREN].push(node);
      parents.set(node, parent);
    });
    return nodes[0];
  }

  function label(node) {
    return node[FRAME] === null ? "all stalls" : report.frames[node[FRAME]][FUNCTION];
  }

  function where(node) {
    return node[FRAME] === null ? "" : report.frames[node[FRAME]][FILE];
  }

  function said(node) {
    const share = percent(node[TIME] / root[TIME]);
    const file = where(node) && `, ${where(node)}`;
    const mostly = report.verdicts[node[CAUSE]];
    return `${label(node)}${file}: ${seconds(node[TIME])}, ${share} of stalled time, mostly ${mostly}`;
  }

  function draw() {
    const panel = byId("flame");
    if (root[TIME] <= 0) {
      panel.replaceChildren(empty("No stalls, so no stalled time."));
      return;
    }
    const boxes = [];
    const above = [];
    for (let node = parents.get(top); node !== undefined; node = parents.get(node)) above.unshift(node);
    above.forEach((node, depth) => boxes.push(box(node, depth, 0, 1)));
    let deepest = above.length;
    const put = (node, depth, left) => {
      const width = node[TIME] / top[TIME];
      if (width < LEAST) return;
      deepest = Math.max(deepest, depth);
      boxes.push(box(node, depth, left, width));
      let from = left;
      for (const child of node[CHILDREN]) {
        put(child, depth + 1, from);
        from += child[TIME] / top[TIME];
      }
    };
    put(top, above.length, 0);
    const tree = make("div", { attributes: { role: "tree", "aria-label": "Stalled time by function" } }, ...boxes);
    tree.style.height = `${(deepest + 1) * ROW}px`;
    panel.replaceChildren(tree);
    byId("flame-up").hidden = top === root;
  }

  function box(node, depth, left, width) {
    const library = node[FRAME] !== null && !report.frames[node[FRAME]][OWN];
    const made = make("div", {
      className: `node${library ? " library" : ""}${matches && !matches(node) ? " other" : ""}`,
      tabIndex: node === current ? 0 : -1,
      attributes: { role: "treeitem", "aria-level": String(depth + 1), "aria-label": said(node) },
    }, named(label(node)));
    made.node = node;
    made.style.setProperty("--cause", causeVariable(report.verdicts[node[CAUSE]]));
    made.style.left = `${left * 100}%`;
    made.style.width = `${width * 100}%`;
    made.style.top = `${depth * ROW}px`;
    return made;
  }

  function zoom(node) {
    top = node;
    current = node;
    draw();
    focus(node);
  }

  function focus(node) {
    const boxes = [...byId("flame").querySelectorAll(".node")];
    const found = boxes.find((made) => made.node === node);
    if (!found) return;
    boxes.forEach((made) => { made.tabIndex = -1; });
    found.tabIndex = 0;
    current = node;
    found.focus();
  }

  function press(event) {
    const node = event.target.node;
    if (node === undefined) return;
    const siblings = parents.get(node)?.[CHILDREN] ?? [node];
    const beside = (by) => siblings[siblings.indexOf(node) + by];
    const act = {
      ArrowDown: () => focus(node[CHILDREN][0]),
      ArrowUp: () => focus(parents.get(node)),
      ArrowRight: () => focus(beside(1)),
      ArrowLeft: () => focus(beside(-1)),
      Enter: () => zoom(node),
      Escape: () => zoom(parents.get(top) ?? top),
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  /** `wanted` says whether a text matches; boxes that do not are faint. */
  function highlight(wanted) {
    const searching = byId("search").value.trim() !== "";
    matches = searching ? (node) => wanted(`${label(node)} ${where(node)} ${report.verdicts[node[CAUSE]]}`) : null;
    draw();
  }

  function start() {
    draw();
    const panel = byId("flame"), info = byId("flame-info");
    const hint = "Click or Enter zooms in, Escape out; the arrow keys go from box to box.";
    info.textContent = root[TIME] > 0 ? hint : "";
    const hit = (event) => event.target.closest(".node");
    const tell = (event) => { if (hit(event)) info.textContent = said(hit(event).node); };
    panel.addEventListener("mouseover", tell);
    panel.addEventListener("focusin", tell);
    panel.addEventListener("keydown", press);
    panel.addEventListener("click", (event) => { if (hit(event)) zoom(hit(event).node); });
    byId("flame-up").addEventListener("click", () => zoom(parents.get(top) ?? top));
  }

  return { start, highlight };
})();
