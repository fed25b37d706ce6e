// A router's console without a cluster: serves the page's files, and a view of any size that changes.
// For tests of the page in a browser, and bench/console.
import { createServer } from "node:http";
import { readFileSync, readdirSync } from "node:fs";
import { basename, extname, join } from "node:path";

const TYPES = { ".html": "text/html", ".css": "text/css", ".mjs": "text/javascript", ".js": "text/javascript" };

/** A generator of the same numbers for the same seed (mulberry32). */
export function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A view of `count` instances, eight a node: as many prefill as decode ones, half of the groups bound. */
export function makeView(count, nowMs, random = seeded(1)) {
  const view = {
    cells: { 0: { name: "127.0.0.1:7100", reached: true, version: "0", generation: 3, submitted: 10, failed: 0, refused: 0, lost: 0, planning: 0, waiting_for_decode: 0, reserving: 0, placed: 4, parked: 0, invariants: "ok", up_at_ms: nowMs - 60000 } },
    routers: {}, instances: {}, groups: {}, requests: {}, jobs: {}, gone: {}, refused: {}, events: {},
    self: { version: "0", models: ["fledgling"], router: "7", orders: true, needs_api_key: false },
  };
  for (let i = 0; i < count; ++i) {
    const node = `node-${Math.floor(i / 8)}`;
    const role = i % 8 < 4 ? "prefill" : "decode";
    view.instances[`0:${i + 1}`] = {
      cell: 0, id: `${i + 1}`, role, model: "fledgling", node, device: `cuda:${i % 8}`, endpoint: `${node}:72${i % 8}0`, version: "0", pid: 100 + i, state: i % 50 === 49 ? "draining" : "serving",
      joined_at_ms: nowMs - 50000, blocks: 4000, held: Math.floor(random() * 3000), cached: 500, running: Math.floor(random() * 40), waiting: Math.floor(random() * 4), queued_tokens: 0, tokens_per_s: 900,
    };
    if (i % 8 !== 7) continue;
    const members = [i - 2, i - 1, i, i + 1].map(String);
    const bound = Math.floor(i / 8) % 2 === 0;
    view.groups[`0:fledgling@${node}`] = {
      cell: 0, name: `fledgling@${node}`, role: "decode", model: "fledgling", node, members, rejected: [], ready: 4,
      formations: bound ? [{ members, name: "bound(4)", stage: "stands", epoch: "5", pinned: false, since_at_ms: nowMs - 4000, why: "context" }]
        : [{ members, name: "independent", stage: "stands", epoch: "0", pinned: false, since_at_ms: nowMs - 4000 }],
    };
  }
  for (let i = 0; i < 100; ++i) addRequest(view, i, nowMs - i * 300, count, random);
  for (let i = 1; i <= 40; ++i) view.events[i] = { at_ms: nowMs - 1000 * (40 - i), kind: "state", level: ["info", "good", "warning", "bad"][i % 4], text: `event ${i} of what happened`, about: "" };
  view.jobs.batch_1 = { id: "batch_1", model: "fledgling", state: "in_progress", lines: 1000, completed: 400, failed: 3, running: 64, created_at_ms: nowMs - 90000, expires_at_ms: nowMs + 86400000, tokens_per_s: 5200, left_s: 240, late: false };
  view.gone["0:instance 999"] = { cell: 0, instance: "999", role: "decode", model: "fledgling", endpoint: "node-9:7270", gone_at_ms: nowMs - 7000, why: "its address refuses connections", left: false, replaced: true };
  return view;
}

function addRequest(view, serial, submittedMs, count, random) {
  const first = 1 + 8 * Math.floor((random() * count) / 8);
  const moving = serial < 12;
  const request = {
    cell: 0, id: `7/${serial}`, name: `chatcmpl-${serial}`, model: "fledgling", prompt_tokens: 800 + serial, policy: "cdsp", state: moving ? "prefilling" : serial < 60 ? "decoding" : "finished", ended: serial >= 60, submitted_at_ms: submittedMs, degraded: serial % 17 === 5 ? { resumed: 1 } : {}, output_tokens: serial, plans: 1,
    plan: { epoch: `${serial}`, decided_s: 0.001, how: "two chunks", estimated_ttft_s: 0.4, group: 0, decode: `${first + 4}`, chunks: [{ tokens: 400, instances: [`${first}`], tp: 1, estimated_start_s: 0, estimated_end_s: 0.2 }, { tokens: 400, instances: [`${first}`, `${first + 1}`], tp: 1, estimated_start_s: 0.2, estimated_end_s: 0.4 }] },
  };
  if (!moving) Object.assign(request, { placed_s: 0.01, prefilled_s: 0.3, first_token_s: 0.32 });
  if (request.ended) request.ended_s = 2.5;
  view.requests[`0:7/${serial}`] = request;
}

/** Every instance's load changes, as a busy cluster's does between two looks; and some requests. Changes the view, and gives the patch. */
export function step(view, tick, random) {
  const patch = { instances: {}, requests: {}, events: {} };
  for (const [key, one] of Object.entries(view.instances)) {
    one.held = Math.max(0, Math.min(3400, one.held + Math.floor(random() * 200 - 100)));
    one.running = Math.max(0, one.running + Math.floor(random() * 3) - 1);
    patch.instances[key] = { held: one.held, running: one.running };
  }
  for (const [key, one] of Object.entries(view.requests)) {
    if (one.ended || random() < 0.5) continue;
    one.output_tokens += 7;
    patch.requests[key] = { output_tokens: one.output_tokens };
  }
  if (tick % 5 === 0) {
    const number = 41 + tick / 5;
    patch.events[number] = view.events[number] = { at_ms: Date.now(), kind: "state", level: "info", text: `event ${number} of what happened`, about: "" };
  }
  return patch;
}

/** What /console/explain gives. */
export function explanation(view, name) {
  const one = Object.values(view.requests).find((each) => each.id === name || each.name === name);
  if (one === undefined) return undefined;
  const chunks = one.plan.chunks.map((chunk, i) => ({ ...chunk, start_s: chunk.estimated_start_s + 0.02, ...(i === 0 ? { end_s: chunk.estimated_end_s + 0.01 } : {}) }));
  return {
    ...one, names: [one.name], plans: [{ ...one.plan, chunks, improvement_rate: 0.2, queue: [{ instance: "1", queue_s: 0.1 }], alternatives: [{ sp: 1, start_s: 0, ttft_s: 0.9, why: "slower" }],
      handoffs: [{ instance: "1", path: "put", transport: "tcp", retries: 0, slower: "another host" }], switches: [{ start_s: -1, end_s: -0.5, from: 1, to: 4, cause: "context", why: "long", meaning: "in_group", outcome: "done", reason: "" }] }],
  };
}

/**
 * Serves the page at /console/ of a free port. `files`: folders or files. Changes the view every `periodMs`; 0: never.
 * Gives {port, view, close()}.
 */
export async function serve({ files, count, periodMs = 200 }) {
  const paths = new Map(files.flatMap((path) => (extname(path) === "" && basename(path) !== "LICENSE" ? readdirSync(path).map((name) => join(path, name)) : [path])).map((path) => [basename(path), path]));
  const random = seeded(7);
  const view = makeView(count, Date.now(), random);
  const pages = new Set();
  const send = (page, kind, value) => page.write(`event: ${kind}\ndata: ${JSON.stringify({ now_ms: Date.now(), [kind]: value })}\n\n`);
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://x");
    const name = url.pathname.replace(/^\/console\//, "") || "index.html";
    if (name === "stream") {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      pages.add(response);
      response.on("close", () => pages.delete(response));
      return send(response, "state", view);
    }
    if (name === "explain") {
      const found = explanation(view, url.searchParams.get("request"));
      return response.writeHead(found ? 200 : 404, { "Content-Type": "application/json" }).end(JSON.stringify(found ? { requests: [found], now_ms: Date.now() } : { error: { message: "unknown request" } }));
    }
    const path = paths.get(name);
    if (path === undefined) return response.writeHead(404).end();
    response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "text/plain",
      "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" });
    response.end(readFileSync(path));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  let tick = 0;
  const timer = periodMs > 0 ? setInterval(() => {
    const patch = step(view, ++tick, random);
    for (const page of pages) send(page, "patch", patch);
  }, periodMs) : undefined;
  return { port: server.address().port, view, close: () => { clearInterval(timer); for (const page of pages) page.end(); server.close(); server.closeAllConnections(); } };
}
