// The prompt box: sends a chat to the router's API, writes the answer as it comes, and shows its plan.
import { byId, input, setText } from "./dom.mjs";

/**
 * Takes a stream of server-sent events apart. Pure.
 * @param {string} held what was left of the text before
 * @param {string} text
 * @returns {{events: string[], rest: string}} the data of complete events
 */
export function takeEvents(held, text) {
  const parts = (held + text).split("\n\n");
  const rest = parts.pop() ?? "";
  const events = parts.map((part) => part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n"));
  return { events: events.filter((data) => data !== ""), rest };
}

export class PromptBox {
  /** @param {(request: string) => void} planned what is called with the request's name */
  constructor(planned) {
    this.planned = planned;
    /** @type {AbortController | null} */
    this.running = null;
    this.output = byId("prompt-output");
    byId("prompt-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running !== null) this.running.abort();
      else void this.send();
    });
  }

  /** @param {import("../view").Self} self */
  configure(self) {
    const models = /** @type {HTMLSelectElement} */ (byId("prompt-model"));
    if ([...models.options].map((one) => one.value).join(" ") !== self.models.join(" ")) {
      models.replaceChildren(...self.models.map((name) => new Option(name, name)));
    }
    byId("prompt-key-row").hidden = !self.needs_api_key;
  }

  /** @param {boolean} running */
  setRunning(running) {
    setText(byId("prompt-send"), running ? "Stop" : "Send");
    this.output.setAttribute("aria-busy", String(running));
  }

  async send() {
    this.running = new AbortController();
    this.setRunning(true);
    this.output.textContent = "";
    const began = performance.now();
    try {
      const headers = new Headers({ "Content-Type": "application/json" });
      const key = input("prompt-key").value.trim();
      if (key !== "") headers.set("Authorization", `Bearer ${key}`);
      const answer = await fetch("v1/chat/completions", {
        method: "POST", headers, signal: this.running.signal,
        body: JSON.stringify({
          model: /** @type {HTMLSelectElement} */ (byId("prompt-model")).value, stream: true, max_tokens: Number(input("prompt-tokens").value),
          messages: [{ role: "user", content: /** @type {HTMLTextAreaElement} */ (byId("prompt-text")).value }],
        }),
      });
      if (!answer.ok || answer.body === null) throw new Error((await answer.json()).error?.message ?? `HTTP ${answer.status}`);
      const tokens = await this.read(answer.body);
      setText(byId("prompt-status"), `Done: ${tokens} pieces in ${((performance.now() - began) / 1e3).toFixed(2)} s.`);
    } catch (failure) {
      const stopped = this.running?.signal.aborted;
      setText(byId("prompt-status"), stopped ? "Stopped." : `Failed: ${failure instanceof Error ? failure.message : failure}`);
    } finally {
      this.running = null;
      this.setRunning(false);
    }
  }

  /**
   * How many pieces came.
   * @param {ReadableStream<Uint8Array>} body
   */
  async read(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    const written = document.createTextNode("");
    this.output.append(written);
    let held = "";
    let pieces = 0;
    setText(byId("prompt-status"), "Receiving the answer.");
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return pieces;
      const { events, rest } = takeEvents(held, decoder.decode(value, { stream: true }));
      held = rest;
      for (const data of events) {
        if (data === "[DONE]") continue;
        const event = JSON.parse(data);
        if (event.error !== undefined) throw new Error(event.error.message);
        if (pieces === 0 && typeof event.id === "string") this.planned(event.id);
        written.appendData(event.choices?.[0]?.delta?.content ?? "");
        ++pieces;
      }
    }
  }
}
