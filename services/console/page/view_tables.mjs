// The tables: instances, requests, jobs, who has gone; and the list of events.
import { byId, h, input, keyed, row, setCells, setText } from "./dom.mjs";
import { clock, count, percent, seconds } from "./format.mjs";
import { byNumber } from "./layout.mjs";
import { shortName } from "./view_cluster.mjs";
/** @typedef {import("../view").View} View */

const kRows = 50; // of a page of instances

/** @param {View} view @param {number} nowMs @param {(key: string) => void} open */
export function drawRequests(view, nowMs, open) {
  const only = /** @type {HTMLSelectElement} */ (byId("requests-shown")).value;
  const keys = Object.keys(view.requests)
    .filter((key) => only === "all" || !view.requests[key].ended)
    .sort((a, b) => view.requests[b].submitted_at_ms - view.requests[a].submitted_at_ms || byNumber(b, a));
  keyed(byId("requests"), keys, (key) => {
    const made = row(9);
    const button = h("button", { type: "button", class: "link", onclick: () => open(key) });
    made.children[0].append(button);
    return made;
  }, (element, key) => {
    const one = view.requests[key];
    const plan = one.plan;
    setText(element.children[0].children[0], one.name);
    const total = one.ended_s ?? Math.max(0, (nowMs - one.submitted_at_ms) / 1e3);
    ["", one.model, count(one.prompt_tokens), count(one.output_tokens), planWords(plan), seconds(one.first_token_s),
      one.ended ? seconds(total) : `${Math.floor(total)} s`, one.state, troubles(one.degraded)].forEach((text, i) => {
      if (i > 0) setText(element.children[i], text);
    });
    element.classList.toggle("ended", one.ended);
  });
  setText(byId("requests-count"), keys.length === 0 ? "none" : String(keys.length));
}

/** @param {import("../view").Plan | undefined} plan */
function planWords(plan) {
  if (plan === undefined) return "–";
  const chunks = plan.chunks.map((chunk) => `${count(chunk.tokens)} on ${chunk.instances.length === 1 ? shortName({ role: "prefill", id: chunk.instances[0] }) : `${chunk.instances.length} instances`}`).join(", ");
  return `${chunks || "no chunk"}${plan.decode === undefined ? "" : ` → ${shortName({ role: "decode", id: plan.decode })}`}${plan.group > 1 ? ` ×${plan.group}` : ""}`;
}

/** @param {Record<string, number>} degraded */
function troubles(degraded) {
  return Object.entries(degraded).map(([why, times]) => (times > 1 ? `${why} ×${times}` : why)).join(", ");
}

/** The instances as a table, page by page. */
export class InstanceTable {
  /** @param {(key: string) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.page = 0;
    const turn = (/** @type {number} */ by) => () => { this.page += by; this.turned(); };
    byId("instances-previous").addEventListener("click", turn(-1));
    byId("instances-next").addEventListener("click", turn(1));
    input("instances-filter").addEventListener("input", () => { this.page = 0; this.turned(); });
    /** @type {() => void} */
    this.turned = () => {};
  }

  /** @param {View} view */
  draw(view) {
    const wanted = input("instances-filter").value.trim().toLowerCase();
    const names = formationNames(view);
    const keys = Object.keys(view.instances).filter((key) => {
      const one = view.instances[key];
      return wanted === "" || `${one.role} ${one.id} ${one.node} ${one.model} ${one.state} ${names.get(key) ?? ""}`.toLowerCase().includes(wanted);
    }).sort(byNumber);
    const pages = Math.max(1, Math.ceil(keys.length / kRows));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const shown = keys.slice(this.page * kRows, (this.page + 1) * kRows);
    setText(byId("instances-page"), keys.length === 0 ? "none" : `${this.page * kRows + 1} to ${this.page * kRows + shown.length} of ${keys.length}`);
    /** @type {HTMLButtonElement} */ (byId("instances-previous")).disabled = this.page === 0;
    /** @type {HTMLButtonElement} */ (byId("instances-next")).disabled = this.page === pages - 1;
    keyed(byId("instances"), shown, (key) => {
      const made = row(9);
      made.children[0].append(h("button", { type: "button", class: "link", onclick: () => this.choose(key) }));
      return made;
    }, (element, key) => {
      const one = view.instances[key];
      setText(element.children[0].children[0], `${one.role} ${one.id}`);
      ["", one.state, one.node, one.device, names.get(key) ?? "–", percent(one.held, one.blocks), String(one.running), String(one.waiting),
        count(one.tokens_per_s)].forEach((text, i) => { if (i > 0) setText(element.children[i], text); });
    });
  }
}

/** @param {View} view @returns {Map<string, string>} by the instances' keys */
export function formationNames(view) {
  const names = new Map();
  for (const group of Object.values(view.groups)) {
    for (const one of group.formations) {
      for (const id of one.members) names.set(`${group.cell}:${id}`, one.stage === "stands" ? one.name : `${one.name} (${one.stage})`);
    }
  }
  return names;
}

/** @param {View} view */
export function drawJobs(view) {
  const keys = Object.keys(view.jobs).sort((a, b) => view.jobs[b].created_at_ms - view.jobs[a].created_at_ms);
  byId("jobs-none").hidden = keys.length > 0;
  byId("jobs-table").hidden = keys.length === 0;
  keyed(byId("jobs"), keys, () => {
    const made = row(6);
    made.children[2].append(h("progress", { max: "1" }), h("span"));
    return made;
  }, (element, key) => {
    const one = view.jobs[key];
    const done = one.completed + one.failed;
    const bar = /** @type {HTMLProgressElement} */ (element.children[2].children[0]);
    const part = one.lines > 0 ? done / one.lines : 0;
    if (bar.value !== part) bar.value = part;
    bar.setAttribute("aria-label", `lines of ${key} that are done`);
    setText(element.children[2].children[1], ` ${done} of ${one.lines}`);
    setText(element.children[0], key);
    setText(element.children[1], one.state);
    setText(element.children[3], String(one.failed));
    setText(element.children[4], count(one.tokens_per_s));
    setText(element.children[5], one.left_s > 0 ? `${seconds(one.left_s)}${one.late ? ", late" : ""}` : "–");
  });
}

/** @param {View} view */
export function drawGone(view) {
  const keys = Object.keys(view.gone).sort((a, b) => view.gone[b].gone_at_ms - view.gone[a].gone_at_ms);
  byId("gone-none").hidden = keys.length > 0;
  byId("gone-table").hidden = keys.length === 0;
  keyed(byId("gone"), keys, () => row(4), (element, key) => {
    const one = view.gone[key];
    setCells(element, [one.instance === "" ? `router ${one.endpoint}` : `${one.role} ${one.instance}`, clock(one.gone_at_ms),
      `${one.left ? "left" : "lost"}${one.replaced ? ", replaced" : ""}`, one.why]);
  });
}

const kShownEvents = 60;

/** @param {View} view */
export function drawEvents(view) {
  // With its time, because a router that has started again numbers its events anew.
  const keys = Object.keys(view.events).sort((a, b) => Number(b) - Number(a)).slice(0, kShownEvents).map((number) => `${number} ${view.events[number].at_ms}`);
  byId("events-none").hidden = keys.length > 0;
  keyed(byId("events"), keys, (key) => {
    const one = view.events[key.split(" ")[0]];
    return h("li", { class: `event ${one.level}` }, h("time", {}, clock(one.at_ms)), " ", h("span", { class: "mark" }, markOf(one.level)), ` ${one.text}`);
  }, () => {});
}

/** What a colour says, also without it. @param {string} level */
function markOf(level) {
  return { good: "✓", bad: "✗", warning: "!" }[level] ?? "·";
}
