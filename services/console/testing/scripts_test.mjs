// The page's scripts without a browser: node --test.
import assert from "node:assert/strict";
import { test } from "node:test";
import { State, applyPatch, handoffs, totals } from "../page/state.mjs";
import { barsOf } from "../page/gantt.mjs";
import { boxAt, layOut, neighbour, shapeOf } from "../page/layout.mjs";
import { count, percent, seconds } from "../page/format.mjs";
import { History } from "../page/charts.mjs";
import { takeEvents } from "../page/prompt.mjs";
import { shortName } from "../page/view_cluster.mjs";
import { makeView, seeded, step } from "./synthetic.mjs";

test("the examples of RFC 7396, appendix A, that are objects without null", () => {
  const cases = [
    [{ a: "b" }, { a: "c" }, { a: "c" }], [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }], [{ a: "b" }, { a: null }, {}],
    [{ a: "b", b: "c" }, { a: null }, { b: "c" }], [{ a: ["b"] }, { a: "c" }, { a: "c" }], [{ a: "c" }, { a: ["b"] }, { a: ["b"] }],
    [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }], [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ];
  for (const [before, patch, after] of cases) {
    applyPatch(before, patch);
    assert.deepEqual(before, after);
  }
});

/** A random object without null. */
function object(random, depth = 0) {
  const made = {};
  for (let i = Math.floor(random() * 5); i > 0; --i) {
    const kind = random();
    made[`k${Math.floor(random() * 6)}`] = kind < 0.4 ? Math.floor(random() * 5) : kind < 0.6 ? [Math.floor(random() * 3)] : depth > 2 ? "x" : object(random, depth + 1);
  }
  return made;
}

/** As MergePatchOf (merge_patch.cc). */
function patchOf(before, after) {
  const plain = (value) => typeof value === "object" && !Array.isArray(value);
  const patch = {};
  for (const [name, value] of Object.entries(after)) {
    if (!(name in before)) patch[name] = value;
    else if (plain(before[name]) && plain(value)) {
      const inner = patchOf(before[name], value);
      if (Object.keys(inner).length > 0) patch[name] = inner;
    } else if (JSON.stringify(before[name]) !== JSON.stringify(value)) patch[name] = value;
  }
  for (const name of Object.keys(before)) if (!(name in after)) patch[name] = null;
  return patch;
}

test("random histories: a snapshot and the patches since are the state", () => {
  for (let seed = 0; seed < 200; ++seed) {
    const random = seeded(seed);
    const state = new State();
    let now = { instances: object(random) };
    state.take("state", { now_ms: 1, state: structuredClone(now) }, 10);
    for (let i = 0; i < 20; ++i) {
      const next = { instances: object(random) };
      state.take("patch", { now_ms: 2, patch: structuredClone(patchOf(now, next)) }, 20);
      assert.deepEqual(state.view.instances, next.instances);
      now = next;
    }
  }
});

test("what has changed is told once, and a new snapshot changes all", () => {
  const state = new State();
  state.take("state", { now_ms: 5000, state: { cells: { 0: { name: "a" } } } }, 100);
  assert.ok(state.takeChanged().has("instances"));
  state.take("patch", { now_ms: 6000, patch: { jobs: { b: { lines: 1 } } } }, 1100);
  assert.deepEqual([...state.takeChanged()], ["jobs"]);
  assert.equal(state.takeChanged().size, 0);
  assert.equal(state.now(1350), 6250);
  state.take("state", { now_ms: 7000, state: { cells: {} } }, 2000);
  assert.deepEqual(state.view.jobs, {});
});

test("handoffs in flight are those whose KV was not all taken", () => {
  const view = makeView(16, 1000, seeded(3));
  for (const one of handoffs(view)) assert.equal(view.requests[one.request].prefilled_s, undefined);
  assert.equal(handoffs(view).length, 24); // 12 requests, each on two instances
  assert.equal(totals(view).handoffs, 24);
  assert.equal(totals(view).prefill, 8);
  const [key] = Object.keys(view.requests);
  view.requests[key].plan.lost = "a reason";
  assert.equal(handoffs(view).length, 22);
});

test("every instance has a box of its own, within the drawing and within its node's frame", () => {
  for (const [instances, width] of [[1, 300], [7, 300], [64, 900], [333, 500], [1000, 900]]) {
    const view = makeView(instances, 0, seeded(instances));
    const layout = layOut(view, width);
    assert.equal(layout.boxes.length, instances);
    const seen = new Set();
    for (const box of layout.boxes) {
      assert.ok(!seen.has(`${box.x} ${box.y}`));
      seen.add(`${box.x} ${box.y}`);
      assert.ok(box.x >= 0 && box.x + box.size <= width && box.y + box.size <= layout.height);
      assert.ok(layout.nodes.some((node) => box.x >= node.x && box.x + box.size <= node.x + node.width && box.y >= node.y && box.y + box.size <= node.y + node.height));
      assert.equal(boxAt(layout, box.x + 1, box.y + 1), box);
    }
  }
});

test("the members of a formation stand side by side in one frame", () => {
  const view = makeView(16, 0, seeded(1));
  const layout = layOut(view, 900);
  const bound = Object.values(view.groups).flatMap((group) => group.formations).filter((one) => one.name !== "independent");
  assert.equal(layout.formations.length, bound.length);
  const shape = shapeOf(view);
  view.instances["0:1"].held += 1;
  assert.equal(shapeOf(view), shape);
  view.groups["0:fledgling@node-0"].formations[0].stage = "releasing";
  assert.notEqual(shapeOf(view), shape);
});

test("arrow keys reach every instance", () => {
  const layout = layOut(makeView(40, 0, seeded(1)), 700);
  const reached = new Set([layout.boxes[0].key]);
  const open = [layout.boxes[0].key];
  while (open.length > 0) {
    const key = open.pop();
    for (const arrow of ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]) {
      const next = neighbour(layout, key, arrow).key;
      if (!reached.has(next)) open.push(next);
      reached.add(next);
    }
  }
  assert.equal(reached.size, 40);
});

test("a plan's bars: estimated, actual, and running up to now", () => {
  const chunk = (start, end, more) => ({ tokens: 10, instances: ["10", "9"], tp: 1, estimated_start_s: start, estimated_end_s: end, ...more });
  const { bars, instances, end } = barsOf({ chunks: [chunk(0, 1, { start_s: 0.1, end_s: 1.2 }), chunk(1, 2, { start_s: 1.3 })] }, 3);
  assert.deepEqual(instances, ["9", "10"]);
  assert.equal(end, 3);
  assert.deepEqual(bars.filter((bar) => bar.instance === "9").map((bar) => [bar.kind, bar.from, bar.to]),
    [["estimated", 0, 1], ["actual", 0.1, 1.2], ["estimated", 1, 2], ["running", 1.3, 3]]);
});

test("a stream of events may be cut anywhere", () => {
  const text = 'data: {"a":1}\n\n: a comment\n\ndata: {"b":2}\n\ndata: [DONE]\n\n';
  for (let cut = 0; cut <= text.length; ++cut) {
    const first = takeEvents("", text.slice(0, cut));
    const second = takeEvents(first.rest, text.slice(cut));
    assert.deepEqual([...first.events, ...second.events], ['{"a":1}', '{"b":2}', "[DONE]"]);
    assert.equal(second.rest, "");
  }
});

test("the history has a sample a second, and forgets", () => {
  const history = new History();
  const sums = totals(makeView(8, 0, seeded(1)));
  assert.ok(history.add(10.2, sums));
  assert.ok(!history.add(10.9, sums));
  for (let at = 11; at < 1000; ++at) history.add(at, sums);
  assert.equal(history.times.length, 301);
  for (const one of history.series) assert.equal(one.length, 301);
  assert.ok(!history.add(998, sums), "a message that came late");
  assert.ok(history.add(500, sums), "the router's clock was set back");
  assert.deepEqual(history.times, [500]);
});

test("the synthetic cluster's patches give its view", () => {
  const random = seeded(5);
  const view = makeView(24, 0, random);
  const state = new State();
  state.take("state", { now_ms: 0, state: structuredClone(view) }, 0);
  for (let tick = 1; tick < 30; ++tick) state.take("patch", { now_ms: tick, patch: structuredClone(step(view, tick, random)) }, tick);
  assert.deepEqual(state.view, view);
});

test("ids keep all their digits", () => {
  const [one, other] = ["9007199254740993", "9007199254740992"]; // the same as numbers of a page
  assert.equal(shortName({ role: "decode", id: one }), "D1");
  assert.equal(shortName({ role: "prefill", id: other }), "P0");
  const plan = { chunks: [{ tokens: 10, instances: [one, other], tp: 1, estimated_start_s: 0, estimated_end_s: 1 }], decode: one };
  assert.deepEqual(barsOf(plan, 1).instances, [other, one]);
  const view = { requests: { "0:7/1": { cell: 0, ended: false, plan } } };
  assert.deepEqual(handoffs(view).map((each) => [each.from, each.to]), [[`0:${one}`, `0:${one}`], [`0:${other}`, `0:${one}`]]);
});

test("numbers", () => {
  assert.equal(seconds(undefined), "–");
  assert.equal(seconds(0.0042), "4.2 ms");
  assert.equal(seconds(0.42), "420 ms");
  assert.equal(seconds(4.2), "4.20 s");
  assert.equal(seconds(600), "10 min");
  assert.equal(count(12345), "12.3 k");
  assert.equal(count(2.5e6), "2.5 M");
  assert.equal(percent(1, 0), "–");
  assert.equal(percent(1, 4), "25 %");
});
