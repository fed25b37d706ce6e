// The page: one state, one drawing a frame of what has changed in it.
import { byId, input, setText } from "./dom.mjs";
import { count, percent } from "./format.mjs";
import { Charts } from "./charts.mjs";
import { ClusterView } from "./view_cluster.mjs";
import { Operator } from "./operator.mjs";
import { PromptBox } from "./prompt.mjs";
import { RequestView } from "./view_request.mjs";
import { State, totals } from "./state.mjs";
import { kSilentMs, listen } from "./stream.mjs";
import { InstanceTable, drawEvents, drawGone, drawJobs, drawRequests } from "./view_tables.mjs";

const state = new State();
const operator = new Operator();
const request = new RequestView();
const choose = (/** @type {string} */ key) => {
  operator.select(key);
  cluster.selected = key;
  again("instances");
};
const cluster = new ClusterView(choose);
const table = new InstanceTable(choose);
const charts = new Charts((name) => cluster.colour(name));
const prompt = new PromptBox((name) => request.show(name));
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const dark = window.matchMedia("(prefers-color-scheme: dark)");

let scheduled = false;
let open = false;

/** Draws with the next frame. */
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(frame);
}

/** @param {string} member of the view, which is to be drawn anew */
function again(member) {
  state.changed.add(member);
  schedule();
}

/** @param {ReturnType<typeof totals>} sums */
function drawTiles(sums) {
  const all = sums.prefill + sums.decode;
  const values = { serving: `${sums.serving} of ${all}`, streams: count(sums.running), waiting: count(sums.waiting), kv: percent(sums.held, sums.blocks), rate: count(sums.tokensPerS), handoffs: count(sums.handoffs) };
  for (const [name, value] of Object.entries(values)) setText(byId(`tile-${name}`), value);
}

function drawConnection() {
  const at = Date.now();
  const silent = !open || at - state.heardAt > kSilentMs;
  const cells = Object.values(state.view.cells);
  const missing = cells.filter((cell) => !cell.reached);
  const text = silent ? "Not connected to the router; what is shown may be old."
    : missing.length > 0 ? `The orchestrator does not answer: ${missing[0].problem ?? ""}`
    : `Live, ${cells.map((cell) => `${cell.name} generation ${cell.generation}`).join("; ")}`;
  const element = byId("connection");
  setText(element, text);
  element.classList.toggle("bad", silent || missing.length > 0);
}

const kBudgetMs = 8; // of scripts in a frame; a part that is begun is ended
const element = (/** @type {string} */ id) => /** @type {HTMLDetailsElement} */ (byId(id));

/** The parts of the page, and the members of the view that each one shows. @type {{of: string[], draw: (nowMs: number) => void}[]} */
const parts = [
  { of: ["self"], draw: drawSelf },
  { of: ["instances", "requests"], draw: () => drawTiles(totals(state.view)) },
  { of: ["events"], draw: () => drawEvents(state.view) },
  { of: ["instances", "groups"], draw: () => operator.draw(state.view) },
  { of: ["instances", "requests"], draw: (nowMs) => { if (state.heardAt > 0) charts.draw(nowMs, totals(state.view)); } },
  { of: ["requests"], draw: (nowMs) => drawRequests(state.view, nowMs, showRequest) },
  { of: ["instances", "groups"], draw: () => { if (element("instances-table").open) table.draw(state.view); } },
  { of: ["jobs"], draw: () => drawJobs(state.view) },
  { of: ["gone"], draw: () => drawGone(state.view) },
];
/** Those that are to be drawn. @type {Set<number>} */
const waiting = new Set();

/** @param {string} key */
function showRequest(key) {
  request.show(state.view.requests[key].id, state.view.requests[key].cell);
}

function drawSelf() {
  prompt.configure(state.view.self);
  operator.configure(state.view);
  setText(byId("version"), state.view.self.version);
}

/** Draws the cluster, and as many of the parts that have changed as there is time for; the others with the next frame. */
function frame() {
  scheduled = false;
  const began = performance.now();
  const at = Date.now();
  const nowMs = state.now(at);
  const changed = state.takeChanged();
  parts.forEach((part, i) => { if (part.of.some((name) => changed.has(name))) waiting.add(i); });
  const moves = cluster.draw(state.view, at, still.matches);
  for (const i of [...waiting]) {
    if (performance.now() - began > kBudgetMs) break;
    waiting.delete(i);
    parts[i].draw(nowMs);
  }
  drawConnection();
  void request.refresh(at);
  if (moves || waiting.size > 0) schedule();
  drawn.push(performance.now() - began);
  if (drawn.length > 1000) drawn.shift();
}

/** What the latest frames took, in milliseconds; bench/console reads it. @type {number[]} */
const drawn = [];
Object.assign(window, { skeinConsole: { drawn, state } });

function retheme() {
  cluster.forgetColours();
  charts.remake();
  again("instances");
}

/** The theme that a person chose, beside the system's. */
function setUpTheme() {
  const choice = /** @type {HTMLSelectElement} */ (byId("theme"));
  const apply = () => {
    if (choice.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice.value;
    retheme();
  };
  try {
    choice.value = localStorage.getItem("skein-theme") ?? "system";
  } catch { /* it is not kept */ }
  choice.addEventListener("change", () => {
    apply();
    try {
      localStorage.setItem("skein-theme", choice.value);
    } catch { /* it is not kept */ }
  });
  dark.addEventListener("change", retheme);
  apply();
}

setUpTheme();
still.addEventListener("change", schedule);
window.addEventListener("resize", schedule);
table.turned = () => again("instances");
byId("instances-table").addEventListener("toggle", () => again("instances"));
byId("requests-shown").addEventListener("change", () => again("requests"));
byId("operator-form").addEventListener("submit", () => again("instances"));
input("operator-token").autocomplete = "off";
setInterval(() => again("requests"), 1000); // ages, and whether the router is heard
listen(state, schedule, (heard) => { open = heard; schedule(); });
