// The view of the cluster in this page: a snapshot of the router's, and then its patches (RFC 7396).
/** @typedef {import("../view").View} View */

/**
 * Applies a JSON Merge Patch to `target`, which is changed.
 * @param {Record<string, any>} target
 * @param {Record<string, any>} patch
 */
export function applyPatch(target, patch) {
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) {
      delete target[name];
    } else if (typeof value === "object" && !Array.isArray(value)) {
      const old = target[name];
      const inner = typeof old === "object" && old !== null && !Array.isArray(old) ? old : {};
      applyPatch(inner, value);
      target[name] = inner;
    } else {
      target[name] = value;
    }
  }
}

/** @returns {View} */
export function emptyView() {
  return {
    cells: {}, routers: {}, instances: {}, groups: {}, requests: {}, jobs: {}, gone: {}, refused: {}, events: {},
    self: { version: "", models: [], router: "", orders: false, needs_api_key: false },
  };
}

/** Holds the view, and says which of its members have changed since they were last drawn. */
export class State {
  constructor() {
    this.view = emptyView();
    this.nowMs = 0; // the router's clock, at the last message
    this.heardAt = 0; // this page's clock, then; 0: nothing was heard yet
    /** @type {Set<string>} */
    this.changed = new Set();
  }

  /**
   * @param {"state" | "patch"} kind
   * @param {{now_ms: number, state?: any, patch?: any}} message
   * @param {number} at this page's clock
   */
  take(kind, message, at) {
    this.nowMs = message.now_ms;
    this.heardAt = at;
    if (kind === "state") {
      this.view = Object.assign(emptyView(), message.state);
      for (const name of Object.keys(this.view)) this.changed.add(name);
      return;
    }
    applyPatch(this.view, message.patch);
    for (const name of Object.keys(message.patch)) this.changed.add(name);
  }

  /**
   * The router's clock now.
   * @param {number} at this page's clock
   */
  now(at) {
    return this.heardAt === 0 ? at : this.nowMs + (at - this.heardAt);
  }

  /** What has changed since the call before. */
  takeChanged() {
    const changed = this.changed;
    this.changed = new Set();
    return changed;
  }
}

/**
 * What the tiles and charts show.
 * @param {View} view
 */
export function totals(view) {
  const sums = { prefill: 0, decode: 0, serving: 0, running: 0, waiting: 0, held: 0, cached: 0, blocks: 0, tokensPerS: 0, handoffs: 0 };
  for (const one of Object.values(view.instances)) {
    if (one.role === "prefill") sums.prefill += 1;
    if (one.state === "serving") sums.serving += 1;
    sums.waiting += one.waiting;
    if (one.role !== "decode") continue;
    sums.decode += 1;
    sums.running += one.running;
    if (one.running > 0) sums.tokensPerS += one.tokens_per_s; // it is the rate of its latest steps
    sums.held += one.held;
    sums.cached += one.cached;
    sums.blocks += one.blocks;
  }
  sums.handoffs = handoffs(view).length;
  return sums;
}

/**
 * The handoffs in flight: between which instances, by their keys.
 * @param {View} view
 * @returns {{request: string, from: string, to: string}[]}
 */
export function handoffs(view) {
  const found = [];
  for (const [key, request] of Object.entries(view.requests)) {
    const plan = request.plan;
    if (request.ended || request.prefilled_s !== undefined || !plan || plan.decode === undefined || plan.lost) continue;
    const to = `${request.cell}:${plan.decode}`;
    const last = plan.chunks[plan.chunks.length - 1]; // has all instances of those before
    for (const id of last ? last.instances : []) found.push({ request: key, from: `${request.cell}:${id}`, to });
  }
  return found;
}
