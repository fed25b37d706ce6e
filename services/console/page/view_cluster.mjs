// The drawing of the cluster: instances with their KV fill, formations, handoffs in flight.
import { boxAt, layOut, neighbour, shapeOf } from "./layout.mjs";
import { percent, plural } from "./format.mjs";
import { byId, setText } from "./dom.mjs";
import { handoffs, totals } from "./state.mjs";
/** @typedef {import("../view").View} View */
/** @typedef {import("../view").Instance} Instance */

const kPulseMs = 1200; // of a dash along a handoff

export class ClusterView {
  /** @param {(key: string) => void} select what is called with the instance that a person chose */
  constructor(select) {
    this.canvas = /** @type {HTMLCanvasElement} */ (byId("cluster-drawing"));
    this.select = select;
    this.selected = "";
    this.shape = "";
    this.width = 0;
    this.pixels = 0;
    /** @type {import("./layout.mjs").Layout} */
    this.layout = { boxes: [], nodes: [], formations: [], height: 0, size: 0 };
    /** @type {Map<string, import("./layout.mjs").Box>} */
    this.boxes = new Map();
    /** @type {Record<string, string>} */
    this.colours = {};
    this.canvas.addEventListener("click", (event) => {
      const at = this.canvas.getBoundingClientRect();
      const box = boxAt(this.layout, event.clientX - at.left, event.clientY - at.top);
      if (box !== undefined) this.choose(box.key);
    });
    this.canvas.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow") || this.layout.boxes.length === 0) return;
      event.preventDefault();
      this.choose(neighbour(this.layout, this.selected, event.key).key);
    });
  }

  /** @param {string} key */
  choose(key) {
    this.selected = key;
    this.select(key);
  }

  /** After a change of the theme. */
  forgetColours() {
    this.colours = {};
  }

  /** @param {string} name of a custom property in console.css */
  colour(name) {
    this.colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    return this.colours[name];
  }

  /**
   * @param {View} view
   * @param {number} width
   */
  arrange(view, width) {
    const shape = shapeOf(view);
    const pixels = window.devicePixelRatio || 1;
    if (shape === this.shape && width === this.width && pixels === this.pixels) return;
    [this.shape, this.width, this.pixels] = [shape, width, pixels];
    this.layout = layOut(view, width);
    this.boxes = new Map(this.layout.boxes.map((box) => [box.key, box]));
    this.canvas.width = Math.round(width * pixels);
    this.canvas.height = Math.round(Math.max(60, this.layout.height) * pixels);
    this.canvas.style.height = `${Math.max(60, this.layout.height)}px`;
  }

  /**
   * True: it moves, and wants to be drawn again.
   * @param {View} view
   * @param {number} at this page's clock
   * @param {boolean} still nothing moves
   */
  draw(view, at, still) {
    this.arrange(view, this.canvas.clientWidth || 600);
    const context = this.canvas.getContext("2d");
    if (context === null) return false;
    context.setTransform(this.pixels, 0, 0, this.pixels, 0, 0);
    context.clearRect(0, 0, this.width, Math.max(60, this.layout.height));
    this.drawFrames(context);
    for (const box of this.layout.boxes) {
      const one = view.instances[box.key];
      if (one !== undefined) this.drawInstance(context, box, one);
    }
    const moving = this.drawHandoffs(context, view, at, still);
    this.describe(view);
    return moving && !still;
  }

  /** @param {CanvasRenderingContext2D} context */
  drawFrames(context) {
    context.lineWidth = 1;
    context.strokeStyle = this.colour("line");
    context.fillStyle = this.colour("text");
    context.font = "12px system-ui, sans-serif";
    for (const node of this.layout.nodes) {
      context.strokeRect(node.x + 0.5, node.y + 0.5, node.width - 1, node.height - 1);
      context.fillText(fit(context, node.label, node.width - 12), node.x + 8, node.y + 16);
    }
    context.lineWidth = 2;
    context.strokeStyle = this.colour("formation");
    for (const frame of this.layout.formations) context.strokeRect(frame.x, frame.y, frame.width, frame.height);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {import("./layout.mjs").Box} box
   * @param {Instance} one
   */
  drawInstance(context, box, one) {
    const { x, y, size } = box;
    context.fillStyle = this.colour("box");
    context.fillRect(x, y, size, size);
    if (one.blocks > 0) {
      const cached = (size * Math.min(1, (one.held + one.cached) / one.blocks));
      context.fillStyle = this.colour("kv-cached");
      context.fillRect(x, y + size - cached, size, cached);
      const held = size * Math.min(1, one.held / one.blocks);
      context.fillStyle = this.colour(one.role === "prefill" ? "prefill" : "decode");
      context.fillRect(x, y + size - held, size, held);
    }
    context.lineWidth = box.key === this.selected ? 3 : 1;
    context.strokeStyle = this.colour(box.key === this.selected ? "focus" : stateColour(one));
    if (one.state !== "serving") context.setLineDash([4, 3]);
    if (one.state !== "serving" && box.key !== this.selected) context.lineWidth = 2;
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    context.setLineDash([]);
    if (size < 30) return;
    context.fillStyle = this.colour("box-text");
    context.font = "11px system-ui, sans-serif";
    context.fillText(shortName(one), x + 4, y + 13, size - 8);
    if (size >= 50) context.fillText(`${one.running}${one.waiting > 0 ? `+${one.waiting}` : ""}`, x + 4, y + size - 5, size - 8);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {View} view
   * @param {number} at
   * @param {boolean} still
   */
  drawHandoffs(context, view, at, still) {
    context.strokeStyle = this.colour("handoff");
    context.lineWidth = 2;
    let drawn = 0;
    for (const one of handoffs(view)) {
      const from = this.boxes.get(one.from);
      const to = this.boxes.get(one.to);
      if (from === undefined || to === undefined) continue;
      context.setLineDash(still ? [] : [6, 6]);
      context.lineDashOffset = still ? 0 : -(12 * (at % kPulseMs)) / kPulseMs * 2;
      const [x0, y0] = [from.x + from.size / 2, from.y + from.size / 2];
      const [x1, y1] = [to.x + to.size / 2, to.y + to.size / 2];
      context.beginPath();
      context.moveTo(x0, y0);
      context.quadraticCurveTo((x0 + x1) / 2 + (y1 - y0) / 6, (y0 + y1) / 2 - (x1 - x0) / 6, x1, y1);
      context.stroke();
      ++drawn;
    }
    context.setLineDash([]);
    return drawn > 0;
  }

  /**
   * The same in words, for those who do not see it.
   * @param {View} view
   */
  describe(view) {
    const sums = totals(view);
    const bound = this.layout.formations.length;
    const text = `${sums.prefill} prefill and ${plural(sums.decode, "decode instance")} on ${plural(this.layout.nodes.length, "node")}, ` +
      `${bound === 0 ? "each alone" : `${plural(bound, "formation")} of several`}; KV ${percent(sums.held, sums.blocks)} held; ${plural(sums.handoffs, "handoff")} in flight.`;
    if (this.canvas.getAttribute("aria-label") !== text) this.canvas.setAttribute("aria-label", text);
    setText(byId("cluster-words"), text);
  }
}

/**
 * An id has the orchestrator's generation in its upper bits, for which a box has no room.
 * @param {{role: string, id: string}} one
 */
export function shortName(one) {
  return `${one.role === "prefill" ? "P" : "D"}${BigInt.asUintN(40, BigInt(one.id))}`;
}

/** @param {Instance} one */
function stateColour(one) {
  if (one.state === "serving") return one.role === "prefill" ? "prefill-line" : "decode-line";
  return one.state === "draining" || one.state === "drained" || one.state === "starting" ? "muted" : "bad";
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let shorter = text;
  while (shorter.length > 1 && context.measureText(`${shorter}…`).width > width) shorter = shorter.slice(0, -1);
  return `${shorter}…`;
}
