// Main-thread time of the console's frames in Chromium, for a cluster of any size of which every instance changes five times a second.
//   node bench/console/frames.mjs [--instances N] [--seconds S]      needs SKEIN_NPM and Chromium
// Time of a frame: all that the page's main thread did between one frame's beginning and the next one's, scripts, style, layout and paint, as
// Chromium's trace has it (RunTask). CPU time, so that other work of the machine is not counted. Prints one JSON object.
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { serve } from "../../services/console/testing/synthetic.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const option = (name, value) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? value : Number(process.argv[at + 1]);
};
const instances = option("instances", 1000);
const seconds = option("seconds", 20);
const { chromium } = createRequire(join(process.env.SKEIN_NPM ?? "", "node_modules", "x.js"))("playwright-core");
const executablePath = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find((path) => existsSync(path));

const router = await serve({ files: [join(root, "services/console/page"), join(process.env.SKEIN_NPM ?? "", "node_modules/uplot/dist")], count: instances });
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
await browser.startTracing(page, { categories: ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline", "__metadata"] });
await page.goto(`http://127.0.0.1:${router.port}/console/`);
await page.waitForFunction(() => document.querySelectorAll("#requests tr").length > 0);
await page.click("#instances-table summary");
await page.click("#requests button");
await page.waitForTimeout(seconds * 1000);
const trace = JSON.parse((await browser.stopTracing()).toString());
await browser.close();
router.close();

// The page's main thread: the one with the most frames.
const frames = trace.traceEvents.filter((event) => event.name === "FireAnimationFrame");
const byThread = new Map();
for (const { pid, tid } of frames) byThread.set(`${pid} ${tid}`, (byThread.get(`${pid} ${tid}`) ?? 0) + 1);
const thread = [...byThread].sort((a, b) => b[1] - a[1])[0][0];
const ours = (event) => `${event.pid} ${event.tid}` === thread;
const starts = frames.filter(ours).map((event) => event.ts).sort((a, b) => a - b);
const tasks = trace.traceEvents.filter((event) => ours(event) && event.ph === "X" && event.name === "RunTask");
const times = new Array(starts.length).fill(0);
let largest = 0;
for (const task of tasks) {
  let at = 0;
  let end = starts.length;
  while (at < end) { // the last frame that began before the task's end
    const middle = (at + end) >> 1;
    if (starts[middle] <= task.ts + task.dur) at = middle + 1;
    else end = middle;
  }
  if (at === 0) continue;
  const ms = (task.tdur ?? task.dur) / 1e3;
  times[at - 1] += ms;
  largest = Math.max(largest, ms);
}
const first = times.slice(0, 10);
const steady = times.slice(10).sort((a, b) => a - b);
const quantile = (part) => Number(steady[Math.min(steady.length - 1, Math.floor(part * steady.length))].toFixed(2));
console.log(JSON.stringify({
  instances, seconds, frames: times.length, clock: tasks.some((task) => task.tdur !== undefined) ? "cpu" : "wall",
  p50_ms: quantile(0.5), p99_ms: quantile(0.99), max_ms: quantile(1), over_33_ms: steady.filter((ms) => ms > 33).length,
  first_ten_ms: first.map((ms) => Number(ms.toFixed(1))), largest_task_ms: Number(largest.toFixed(1)),
}));
