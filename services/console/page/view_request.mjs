// One request with its explanation: its times, plans, and why it came as it did.
import { byId, h, setText } from "./dom.mjs";
import { count, seconds } from "./format.mjs";
import { gantt } from "./gantt.mjs";
/** @typedef {import("../view").Explanation} Explanation */
/** @typedef {import("../view").WholePlan} WholePlan */

const kEachMs = 400; // how often a request that goes on is asked for

export class RequestView {
  constructor() {
    this.root = byId("request");
    this.cell = ""; // in the query; "": any
    this.request = ""; // a name of it; "": none is shown
    this.askedAt = 0;
    this.asking = false;
    this.over = false; // it has ended, and all is known
  }

  /**
   * @param {string} request
   * @param {number} [cell] where to look for it; else in all
   */
  show(request, cell) {
    [this.cell, this.request, this.askedAt, this.over] = [cell === undefined ? "" : `&cell=${cell}`, request, 0, false];
    setText(byId("request-name"), request);
    void this.refresh(Date.now());
  }

  /**
   * Asks again, if it is time.
   * @param {number} at this page's clock
   */
  async refresh(at) {
    if (this.request === "" || this.asking || this.over || at - this.askedAt < kEachMs) return;
    [this.asking, this.askedAt] = [true, at];
    const asked = this.request;
    try {
      const answer = await fetch(`explain?request=${encodeURIComponent(asked)}${this.cell}`);
      const body = await answer.json();
      if (asked !== this.request) return;
      if (!answer.ok) return this.draw([h("p", {}, body.error?.message ?? "No explanation.")]);
      /** @type {Explanation[]} */
      const found = body.requests;
      this.draw(found.flatMap((one) => describe(one, body.now_ms)));
      this.over = found.length > 0 && found.every((one) => one.ended);
    } catch (failure) {
      this.draw([h("p", {}, `No explanation: ${failure}`)]);
    } finally {
      this.asking = false;
    }
  }

  /** @param {Node[]} children */
  draw(children) {
    const open = [...this.root.querySelectorAll("details")].map((one) => one.open);
    const held = this.root.contains(document.activeElement) && document.activeElement?.tagName === "SUMMARY"
      ? [...this.root.querySelectorAll("summary")].indexOf(/** @type {HTMLElement} */ (document.activeElement)) : -1;
    this.root.replaceChildren(...children);
    this.root.querySelectorAll("details").forEach((one, i) => { one.open = open[i] ?? false; });
    if (held >= 0) this.root.querySelectorAll("summary")[held]?.focus();
  }
}

/**
 * @param {Explanation} one
 * @param {number} nowMs
 */
function describe(one, nowMs) {
  const facts = [
    ["State", one.state], ["Model", one.model], ["Prompt", `${count(one.prompt_tokens)} tokens`],
    ["Output", one.output_tokens === undefined ? "–" : `${count(one.output_tokens)} tokens`],
    ["Placed after", seconds(one.placed_s)], ["All KV taken after", seconds(one.prefilled_s)],
    ["First token after", seconds(one.first_token_s)], ["Ended after", seconds(one.ended_s)], ["Id", one.id],
  ];
  const list = h("dl", { class: "facts" });
  for (const [name, value] of facts) list.append(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  const parts = [list];
  const degraded = Object.entries(one.degraded);
  if (degraded.length > 0) {
    parts.push(h("p", { class: "warning" }, `Came later or cost more than planned: ${degraded.map(([why, times]) => (times > 1 ? `${why} ×${times}` : why)).join(", ")}.`));
  }
  const sinceS = (nowMs - one.submitted_at_ms) / 1e3;
  one.plans.forEach((plan, i) => parts.push(...describePlan(plan, i + 1, one.plans.length, sinceS - plan.decided_s)));
  if (one.plans.length === 0) parts.push(h("p", {}, "It has no plan yet."));
  return parts;
}

/**
 * @param {WholePlan} plan
 * @param {number} number
 * @param {number} of
 * @param {number} nowS since its decision
 */
function describePlan(plan, number, of, nowS) {
  const parts = [
    h("h3", {}, of > 1 ? `Plan ${number} of ${of}` : "Plan"),
    h("p", {}, `${plan.how}. Decided ${seconds(plan.decided_s)} after submission; estimated time to first token ${seconds(plan.estimated_ttft_s)}.`),
  ];
  if (plan.lost) parts.push(h("p", { class: "warning" }, `Given up: ${plan.lost}`));
  parts.push(gantt(plan, nowS, number));
  const lines = [];
  if (plan.decode !== undefined) lines.push(`Decodes on instance ${plan.decode}${plan.group > 1 ? `, in a bound group of ${plan.group}` : ""}.`);
  for (const one of plan.handoffs) {
    lines.push(`KV of instance ${one.instance} came by ${one.path || "an unknown path"}${one.transport ? ` (${one.transport})` : ""}${one.slower ? `; no faster path: ${one.slower}` : ""}.`);
  }
  for (const one of plan.switches) {
    lines.push(`Formation of ${one.from} to ${one.to}, ${seconds(one.start_s)} to ${one.end_s === undefined ? "now" : seconds(one.end_s)}: ${one.cause} (${one.why}); ${one.outcome || "under way"}; ${one.meaning.replace("_", " ")}.`);
  }
  for (const one of plan.alternatives) lines.push(`Whole on ${one.sp}: ${seconds(one.ttft_s)} (${one.why}).`);
  if (plan.queue.length > 0) {
    const shown = plan.queue.slice(0, 16).map((one) => `${one.instance}: ${seconds(one.queue_s)}`).join(", ");
    lines.push(`Queues at the decision: ${shown}${plan.queue.length > 16 ? ", …" : ""}.`);
  }
  if (lines.length > 0) parts.push(h("ul", {}, ...lines.map((line) => h("li", {}, line))));
  return parts;
}
