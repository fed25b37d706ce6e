// Drives the console in Chromium for a program that writes one JSON object a line, and answers each with one: {"ok": true, ...}, or
// {"ok": false, "why": ...}. Waits are for what the page shows, never for a time.
//   node page.mjs NODE_MODULES CHROMIUM
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { readFileSync } from "node:fs";

const [modules, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "x.js"))("playwright-core");
const axe = readFileSync(join(modules, "axe-core", "axe.min.js"), "utf8");
const kLimitMs = 60_000;

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
let page;
const problems = []; // what the page's scripts or its policy complain about

/** Waits until the element's text matches; the moment, as this machine's clock has it. */
async function awaitText({ selector, matches }) {
  const at = await page.waitForFunction(([selector, matches]) => {
    for (const one of document.querySelectorAll(selector)) if (new RegExp(matches).test(one.textContent)) return Date.now();
    return 0;
  }, [selector, matches], { timeout: kLimitMs, polling: "raf" });
  return { at_ms: await at.jsonValue() };
}

const commands = {
  async open({ url, dark = false, still = false, width = 1400, height = 900 }) {
    await page?.context().close();
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: still ? "reduce" : "no-preference" });
    page = await context.newPage();
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => { if (message.type() === "error") problems.push(message.text()); });
    await page.goto(url);
    await awaitText({ selector: "#connection", matches: "^Live" });
    return {};
  },
  await: awaitText,
  async click({ selector, text }) {
    await page.locator(selector, text === undefined ? {} : { hasText: text }).first().click({ timeout: kLimitMs });
    return {};
  },
  async fill({ selector, text }) {
    await page.fill(selector, text);
    return {};
  },
  async choose({ selector, value }) {
    await page.selectOption(selector, value);
    return {};
  },
  async press({ key, selector }) {
    await page.press(selector, key);
    return {};
  },
  async text({ selector }) {
    return { text: await page.textContent(selector) };
  },
  /** What axe finds. It runs apart from the page's own scripts, whose policy forbids others. */
  async axe() {
    const session = await page.context().newCDPSession(page);
    const { frameTree } = await session.send("Page.getFrameTree");
    const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
    const evaluate = async (expression) => {
      const { result, exceptionDetails } = await session.send("Runtime.evaluate", { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
      if (exceptionDetails !== undefined) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    };
    await evaluate(`${axe}; undefined`);
    const found = JSON.parse(await evaluate("axe.run(document, {resultTypes: ['violations']}).then((r) => JSON.stringify({passes: r.passes.length, violations: r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary)}))}))"));
    await session.detach();
    return found;
  },
  async shot({ path, selector }) {
    await page.evaluate(() => window.scrollTo(0, 0));
    await (selector === undefined ? page.screenshot({ path }) : page.locator(selector).first().screenshot({ path }));
    return {};
  },
  async problems() {
    return { problems: problems.splice(0) };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { ok: true, ...(await commands[command.do](command)) };
  } catch (error) {
    const events = await page?.locator("#events").textContent({ timeout: 1000 }).catch(() => "");
    answer = { ok: false, why: `${JSON.stringify(command)}: ${error.message}; events: ${events}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
