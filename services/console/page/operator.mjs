// What an operator may do here: drain an instance, bind and release groups. Offered once the token
// of --admin-token-file was given; it is kept in this page's memory only.
import { byId, h, input, setText } from "./dom.mjs";
import { percent, count } from "./format.mjs";
/** @typedef {import("../view").View} View */

export class Operator {
  constructor() {
    this.token = "";
    this.selected = "";
    this.shown = ""; // what the panel's buttons are for
    byId("operator-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.token = input("operator-token").value.trim();
      input("operator-token").value = "";
      this.shown = "";
      setText(byId("operator-status"), this.token === "" ? "Orders are off." : "Orders are offered beside the chosen instance.");
    });
  }

  /** @param {View} view */
  configure(view) {
    byId("operator-form").hidden = !view.self.orders;
    byId("operator-read-only").hidden = view.self.orders;
  }

  /** @param {string} key */
  select(key) {
    this.selected = key;
    this.shown = "";
  }

  /**
   * The chosen instance in words, and its orders.
   * @param {View} view
   */
  draw(view) {
    const one = view.instances[this.selected];
    if (one === undefined) {
      setText(byId("instance-words"), this.selected === "" ? "Choose an instance in the drawing (click, or arrow keys) or in the table." : "The chosen instance is gone.");
      byId("instance-orders").replaceChildren();
      this.shown = "";
      return;
    }
    const group = Object.values(view.groups).find((each) => each.cell === one.cell && each.members.includes(one.id));
    const formation = group?.formations.find((each) => each.members.includes(one.id));
    setText(byId("instance-words"), `${one.role} instance ${one.id}, ${one.state}, on ${one.node} (${one.device}), ${one.model}: KV ${percent(one.held, one.blocks)} of ${one.blocks} blocks held, ` +
      `${one.running} running, ${one.waiting} waiting, ${count(one.tokens_per_s)} tokens/s` +
      `${formation === undefined ? "" : `; formation ${formation.name}${formation.stage === "stands" ? "" : ` (${formation.stage})`}${formation.pinned ? ", pinned" : ""}${formation.why ? `: ${formation.why}` : ""}`}.`);
    const offered = this.token === "" || !view.self.orders ? "" : `${this.selected} ${one.state} ${group?.name ?? ""} ${formation?.name ?? ""}`;
    if (offered === this.shown) return;
    this.shown = offered;
    byId("instance-orders").replaceChildren(...(offered === "" ? [] : this.buttons(one, group, formation)));
  }

  /**
   * @param {import("../view").Instance} one
   * @param {import("../view").Group | undefined} group
   * @param {import("../view").Formation | undefined} formation
   */
  buttons(one, group, formation) {
    const button = (/** @type {string} */ text, /** @type {object} */ order) =>
      h("button", { type: "button", onclick: () => void this.order(text, { cell: one.cell, ...order }) }, text);
    const drains = one.state === "draining" || one.state === "drained";
    const buttons = [drains ? button(`Let instance ${one.id} serve again`, { order: "serve", instance: one.id }) : button(`Drain instance ${one.id}`, { order: "drain", instance: one.id })];
    if (group === undefined || one.role !== "decode" || group.members.length < 2) return buttons;
    const alone = formation === undefined || formation.name === "independent";
    if (alone) {
      buttons.push(button(`Bind ${group.name}`, { order: "bind", group: group.name }), button(`Share weights of ${group.name}`, { order: "share", group: group.name }));
    } else {
      buttons.push(button(`Release ${group.name}`, { order: "release", group: group.name }));
    }
    buttons.push(button(`Let the policy decide for ${group.name}`, { order: "unpin", group: group.name }));
    return buttons;
  }

  /**
   * @param {string} text
   * @param {object} order
   */
  async order(text, order) {
    setText(byId("operator-status"), `${text}: under way …`);
    try {
      const answer = await fetch("order", { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.token}` }, body: JSON.stringify(order) });
      const body = await answer.json();
      setText(byId("operator-status"), answer.ok ? `${text}: ${body.done.join("; ")}.` : `${text}: ${body.error.message}`);
    } catch (failure) {
      setText(byId("operator-status"), `${text}: ${failure}`);
    }
  }
}
