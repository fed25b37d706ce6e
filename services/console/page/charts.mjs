// Lines over the last minutes: KV fill, streams, tokens per second. Drawn by uPlot, where the router was built with it.
import { byId } from "./dom.mjs";
import { count } from "./format.mjs";
/** @typedef {import("../view").View} View */
/** @typedef {ReturnType<typeof import("./state.mjs").totals>} Totals */

const kKeptS = 300;
const kHeight = 130;
const kClockSetBackS = 5; // a clock that goes back by more was set, so earlier samples are dropped

/** The samples of the last kKeptS seconds, one a second. */
export class History {
  constructor() {
    /** @type {number[]} */
    this.times = [];
    /** @type {number[][]} */
    this.series = [[], [], [], [], []];
  }

  /**
   * True: there is a new sample.
   * @param {number} nowS
   * @param {Totals} sums
   */
  add(nowS, sums) {
    const second = Math.floor(nowS);
    let last = this.times.at(-1);
    if (last !== undefined && last - second > kClockSetBackS) {
      this.times = [];
      this.series = this.series.map(() => []);
      last = undefined;
    }
    if (last !== undefined && second <= last) return false;
    this.times.push(second);
    [sums.blocks > 0 ? (100 * sums.held) / sums.blocks : 0, sums.running, sums.waiting, sums.tokensPerS, sums.handoffs]
      .forEach((value, i) => this.series[i].push(value));
    while (this.times.length > 0 && second - this.times[0] > kKeptS) {
      this.times.shift();
      for (const one of this.series) one.shift();
    }
    return true;
  }
}

const kCharts = [
  { title: "KV held, %", lines: [{ series: 0, label: "KV held", colour: "decode-line" }], top: 100 },
  { title: "Requests", lines: [{ series: 1, label: "decoding", colour: "decode-line" }, { series: 2, label: "waiting", colour: "prefill-line" }, { series: 4, label: "handoffs", colour: "handoff" }] },
  { title: "Decoded tokens per second", lines: [{ series: 3, label: "tokens/s", colour: "decode-line" }] },
];

export class Charts {
  /** @param {(name: string) => string} colour */
  constructor(colour) {
    this.colour = colour;
    this.history = new History();
    /** @type {uPlot[]} */
    this.plots = [];
    this.width = 0;
    byId("charts-by").hidden = !("uPlot" in globalThis);
  }

  /** After a change of the theme or of the width. */
  remake() {
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
  }

  /**
   * @param {number} nowMs
   * @param {Totals} sums
   */
  draw(nowMs, sums) {
    const root = byId("charts");
    if (!("uPlot" in globalThis)) {
      if (!this.history.add(nowMs / 1e3, sums)) return;
      root.textContent = kCharts.map((chart) => `${chart.title}: ${this.now(chart)}`).join(" · ");
      return;
    }
    const width = Math.max(160, Math.floor(root.clientWidth / Math.max(1, Math.floor(root.clientWidth / 300))) - 12);
    if (width !== this.width) this.remake();
    this.width = width;
    const added = this.history.add(nowMs / 1e3, sums);
    if (this.plots.length === 0) {
      root.replaceChildren();
      this.plots = kCharts.map((chart) => this.make(chart, root));
    } else if (!added) {
      return;
    }
    kCharts.forEach((chart, i) => {
      const lines = chart.lines.map((line) => this.history.series[line.series]);
      this.plots[i].setData([this.history.times, ...lines]);
      this.plots[i].root.setAttribute("aria-label", `${chart.title} over the last ${kKeptS / 60} minutes; now ${this.now(chart)}`);
    });
  }

  /** @param {{lines: {series: number, label: string}[]}} chart */
  now(chart) {
    return chart.lines.map((line) => `${line.label} ${count(this.history.series[line.series].at(-1) ?? 0)}`).join(", ");
  }

  /**
   * @param {{title: string, lines: {series: number, label: string, colour: string}[], top?: number}} chart
   * @param {HTMLElement} root
   */
  make(chart, root) {
    const axis = { stroke: this.colour("text"), grid: { stroke: this.colour("line"), width: 1 }, ticks: { stroke: this.colour("line"), width: 1 }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot({
      title: chart.title, width: this.width, height: kHeight, cursor: { show: false }, legend: { show: chart.lines.length > 1, live: false },
      scales: { x: { time: true }, y: { range: (_, _low, high) => [0, chart.top ?? Math.max(1, high * 1.1)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1e3).toTimeString().slice(0, 8)), space: 80 }, { ...axis, size: 46, values: (_, ticks) => ticks.map(count) }],
      series: [{}, ...chart.lines.map((line) => ({ label: line.label, stroke: this.colour(line.colour), width: 2, points: { show: false } }))],
    }, [[], ...chart.lines.map(() => [])], root);
    plot.root.setAttribute("role", "img");
    return plot;
  }
}
