// A plan's chunks over time, by instance: what was estimated, and what came.
import { count, seconds } from "./format.mjs";
import { h, svg } from "./dom.mjs";
import { byNumber } from "./layout.mjs";
/** @typedef {import("../view").WholePlan} WholePlan */
/** @typedef {{instance: string, chunk: number, tokens: number, kind: "estimated" | "actual" | "running", from: number, to: number}} Bar */

/**
 * The bars, in seconds from the plan's decision. Pure.
 * @param {WholePlan} plan
 * @param {number} nowS since the decision, for a chunk that runs
 * @returns {{bars: Bar[], instances: string[], end: number}}
 */
export function barsOf(plan, nowS) {
  /** @type {Bar[]} */
  const bars = [];
  /** @type {Set<string>} */
  const instances = new Set();
  let end = 0;
  plan.chunks.forEach((chunk, i) => {
    for (const instance of chunk.instances) {
      instances.add(instance);
      const common = { instance, chunk: i, tokens: chunk.tokens };
      bars.push({ ...common, kind: "estimated", from: chunk.estimated_start_s, to: chunk.estimated_end_s });
      end = Math.max(end, chunk.estimated_end_s);
      if (chunk.start_s === undefined) continue;
      const to = chunk.end_s ?? Math.max(nowS, chunk.start_s);
      bars.push({ ...common, kind: chunk.end_s === undefined ? "running" : "actual", from: chunk.start_s, to });
      end = Math.max(end, to);
    }
  });
  return { bars, instances: [...instances].sort(byNumber), end };
}

const kRow = 30;
const kLeft = 90;
const kWidth = 640;

/**
 * @param {WholePlan} plan
 * @param {number} nowS
 * @param {number} number of the plan, in its request
 * @returns {HTMLElement}
 */
export function gantt(plan, nowS, number) {
  const { bars, instances, end } = barsOf(plan, nowS);
  if (bars.length === 0) return h("p", {}, "This plan has no chunks yet.");
  const height = instances.length * kRow + 24;
  const scale = (kWidth - kLeft - 10) / Math.max(end, 1e-6);
  const words = plan.chunks.map((chunk, i) => `chunk ${i + 1}: ${chunk.tokens} tokens on instances ${chunk.instances.join(", ")}`).join("; ");
  const drawing = svg("svg", { viewBox: `0 0 ${kWidth} ${height}`, role: "img", class: "gantt", "aria-label": `Plan ${number} over time: ${words}` });
  instances.forEach((instance, row) => {
    drawing.append(svg("line", { x1: kLeft, x2: kWidth - 10, y1: (row + 1) * kRow, y2: (row + 1) * kRow, class: "grid" }));
    drawing.append(svg("text", { x: 0, y: row * kRow + 19 }, `instance ${instance}`));
  });
  for (const bar of bars) {
    const y = instances.indexOf(bar.instance) * kRow;
    const estimated = bar.kind === "estimated";
    drawing.append(svg("rect", {
      x: kLeft + bar.from * scale, width: Math.max(1.5, (bar.to - bar.from) * scale),
      y: y + (estimated ? 3 : 8), height: estimated ? 24 : 14, class: `bar ${bar.kind}`,
    }));
    if (estimated && (bar.to - bar.from) * scale > 40) {
      drawing.append(svg("text", { x: kLeft + bar.from * scale + 3, y: y + 19, class: "on-bar" }, count(bar.tokens)));
    }
  }
  for (let i = 0; i <= 4; ++i) {
    const at = (end * i) / 4;
    drawing.append(svg("text", { x: kLeft + at * scale, y: height - 6, "text-anchor": i === 4 ? "end" : i === 0 ? "start" : "middle" }, seconds(at)));
  }
  return h("div", { class: "gantt-box" }, drawing, legend(), chunkTable(plan, number));
}

function legend() {
  return h("p", { class: "legend" }, h("span", { class: "swatch estimated" }), " estimated ", h("span", { class: "swatch actual" }), " actual ",
    h("span", { class: "swatch running" }), " running");
}

/** @param {WholePlan} plan @param {number} number */
function chunkTable(plan, number) {
  const body = h("tbody");
  plan.chunks.forEach((chunk, i) => {
    const shape = chunk.tp > 1 ? `SP ${chunk.instances.length / chunk.tp} × TP ${chunk.tp}` : `SP ${chunk.instances.length}`;
    body.append(h("tr", {}, h("th", { scope: "row" }, String(i + 1)), h("td", {}, count(chunk.tokens)), h("td", {}, shape),
      h("td", {}, chunk.instances.join(", ")), h("td", {}, `${seconds(chunk.estimated_start_s)} to ${seconds(chunk.estimated_end_s)}`),
      h("td", {}, chunk.start_s === undefined ? "–" : `${seconds(chunk.start_s)} to ${chunk.end_s === undefined ? "now" : seconds(chunk.end_s)}`)));
  });
  const head = h("tr", {}, ...["Chunk", "Tokens", "Shape", "Instances", "Estimated", "Actual"].map((name) => h("th", { scope: "col" }, name)));
  return h("details", {}, h("summary", {}, "The chunks as a table"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of the chunks of plan ${number}` },
    h("table", {}, h("thead", {}, head), body)));
}
