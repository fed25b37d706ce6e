// The router's stream of server-sent events. The browser opens it again when it breaks.
/** @typedef {import("./state.mjs").State} State */

export const kSilentMs = 4000; // the router writes several times a second

const kAgainMs = 1000;

/**
 * @param {State} state
 * @param {() => void} changed
 * @param {(open: boolean) => void} told
 */
export function listen(state, changed, told) {
  const source = new EventSource("stream");
  source.addEventListener("open", () => told(true));
  source.addEventListener("error", () => {
    told(false);
    // An answer other than 200, as of a router that starts or has too many pages, ends it for good.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => listen(state, changed, told), kAgainMs);
  });
  for (const kind of /** @type {("state" | "patch")[]} */ (["state", "patch"])) {
    source.addEventListener(kind, (event) => {
      state.take(kind, JSON.parse(event.data), Date.now());
      changed();
    });
  }
}
