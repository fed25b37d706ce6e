// Where each instance is drawn: nodes as frames, in which the instances of a role follow each other,
// those of a formation side by side. Pure.
/** @typedef {import("../view").View} View */
/** @typedef {{key: string, x: number, y: number, size: number}} Box */
/** @typedef {{x: number, y: number, width: number, height: number, label: string}} Frame */
/** @typedef {{boxes: Box[], nodes: Frame[], formations: Frame[], height: number, size: number}} Layout */

const kGap = 6; // between boxes; formations are framed in it
const kPad = 10; // within a node's frame
const kHead = 20; // a node's name

/** @param {number} instances */
export function boxSize(instances) {
  return instances <= 48 ? 52 : instances <= 200 ? 34 : 18;
}

/**
 * What the layout depends on: two views of one text have the same.
 * @param {View} view
 */
export function shapeOf(view) {
  const parts = [];
  for (const [key, one] of Object.entries(view.instances)) parts.push(key, one.node, one.role);
  for (const group of Object.values(view.groups)) {
    parts.push(group.name);
    for (const one of group.formations) parts.push(one.name, one.stage, one.members.join(" "));
  }
  return parts.join("|");
}

/**
 * The rank of each instance: those of one formation follow each other.
 * @param {View} view
 * @returns {Map<string, {order: number, formation: string, label: string}>}
 */
function formationsOf(view) {
  const found = new Map();
  for (const group of Object.values(view.groups)) {
    group.formations.forEach((one, i) => {
      one.members.forEach((id, rank) => {
        const plain = one.name === "independent" && one.stage === "stands";
        found.set(`${group.cell}:${id}`, {
          order: i * 1000 + rank,
          formation: plain ? "" : `${group.cell}:${group.name}:${i}`,
          label: one.stage === "stands" ? one.name : `${one.name}: ${one.stage}`,
        });
      });
    });
  }
  return found;
}

/**
 * @param {View} view
 * @param {number} width of the drawing, in CSS pixels
 * @returns {Layout}
 */
export function layOut(view, width) {
  const formations = formationsOf(view);
  /** @type {Map<string, string[]>} */
  const nodes = new Map();
  for (const [key, one] of Object.entries(view.instances)) {
    const name = `${one.cell}:${one.node}`;
    const keys = nodes.get(name);
    if (keys === undefined) nodes.set(name, [key]);
    else keys.push(key);
  }
  const size = boxSize(Object.keys(view.instances).length);
  const step = size + kGap;
  const perRow = Math.max(1, Math.floor((width - 2 * kPad) / step));
  /** @type {Layout} */
  const layout = { boxes: [], nodes: [], formations: [], height: 0, size };
  let x = 0;
  let y = 0;
  let rowHeight = 0;
  for (const name of [...nodes.keys()].sort(byNumber)) {
    const keys = nodes.get(name) ?? [];
    const order = (/** @type {string} */ key) => formations.get(key)?.order ?? 0;
    const rows = ["prefill", "decode"].map((role) => keys.filter((key) => view.instances[key].role === role)
      .sort((a, b) => order(a) - order(b) || byNumber(a, b)));
    const columns = Math.min(perRow, Math.max(4, ...rows.map((row) => Math.min(row.length, 8))));
    const lines = rows.reduce((sum, row) => sum + Math.ceil(row.length / columns), 0);
    const labels = new Set(keys.map((key) => formations.get(key)).filter((one) => one !== undefined && one.formation !== "").map((one) => one?.label));
    const label = [name.slice(name.indexOf(":") + 1), ...labels].join(" · ");
    const frame = { x, y, width: columns * step - kGap + 2 * kPad, height: lines * step - kGap + 2 * kPad + kHead, label };
    if (x > 0 && x + frame.width > width) {
      x = frame.x = 0;
      y = frame.y = y + rowHeight + kPad;
      rowHeight = 0;
    }
    placeRows(rows, columns, frame, step, size, formations, layout);
    layout.nodes.push(frame);
    x += frame.width + kPad;
    rowHeight = Math.max(rowHeight, frame.height);
  }
  layout.height = y + rowHeight;
  return layout;
}

/**
 * @param {string[][]} rows
 * @param {number} columns
 * @param {Frame} frame
 * @param {number} step
 * @param {number} size
 * @param {Map<string, {order: number, formation: string, label: string}>} formations
 * @param {Layout} layout
 */
function placeRows(rows, columns, frame, step, size, formations, layout) {
  let line = 0;
  /** @type {Map<string, Frame>} */
  const frames = new Map();
  for (const row of rows) {
    row.forEach((key, i) => {
      const x = frame.x + kPad + (i % columns) * step;
      const y = frame.y + kPad + kHead + (line + Math.floor(i / columns)) * step;
      layout.boxes.push({ key, x, y, size });
      const formation = formations.get(key);
      if (formation === undefined || formation.formation === "") return;
      // One frame for each line of a formation.
      const id = `${formation.formation}:${y}`;
      const known = frames.get(id);
      if (known === undefined) {
        frames.set(id, { x: x - 3, y: y - 3, width: size + 6, height: size + 6, label: formation.label });
      } else {
        known.width = x + size + 3 - known.x;
      }
    });
    line += Math.ceil(row.length / columns);
  }
  layout.formations.push(...frames.values());
}

/**
 * "node-2" before "node-10".
 * @param {string} a
 * @param {string} b
 */
export function byNumber(a, b) {
  return kCollator.compare(a, b);
}
const kCollator = new Intl.Collator("en", { numeric: true });

/**
 * The box at a point, or undefined.
 * @param {Layout} layout
 * @param {number} x
 * @param {number} y
 */
export function boxAt(layout, x, y) {
  return layout.boxes.find((box) => x >= box.x && x < box.x + box.size && y >= box.y && y < box.y + box.size);
}

/**
 * The box to which an arrow key leads: the nearest in its direction.
 * @param {Layout} layout
 * @param {string} key of the present one; "" is none
 * @param {string} arrow "ArrowLeft" and so on
 */
export function neighbour(layout, key, arrow) {
  const from = layout.boxes.find((box) => box.key === key);
  if (from === undefined) return layout.boxes[0];
  let best;
  let least = Infinity;
  for (const box of layout.boxes) {
    const dx = box.x - from.x;
    const dy = box.y - from.y;
    const ahead = { ArrowLeft: -dx, ArrowRight: dx, ArrowUp: -dy, ArrowDown: dy }[arrow] ?? 0;
    if (ahead <= 0) continue;
    const aside = arrow === "ArrowLeft" || arrow === "ArrowRight" ? Math.abs(dy) : Math.abs(dx);
    const far = ahead + 4 * aside;
    if (far < least) [best, least] = [box, far];
  }
  return best ?? from;
}
