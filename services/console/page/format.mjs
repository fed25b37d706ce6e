// Numbers and times as people read them.

/** @param {number | undefined} seconds */
export function seconds(seconds) {
  if (seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

/** @param {number | undefined} value */
export function count(value) {
  if (value === undefined) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(value < 1e5 ? 1 : 0)} k`;
  return `${Math.round(value * 10) / 10}`;
}

/**
 * @param {number} part
 * @param {number} whole
 */
export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

/** @param {number} ms since 1970 */
export function clock(ms) {
  const date = new Date(ms);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/**
 * "1 node", "2 nodes".
 * @param {number} number
 * @param {string} noun
 */
export function plural(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
