// Elements, and lists of them that are updated by key.

/**
 * @param {string} tag
 * @param {Record<string, string | EventListener>} [attributes] functions are listeners: {onclick: f}
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value);
    }
  }
  element.append(...children);
  return element;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * The element of that id, which index.html has.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`index.html has no #${id}`);
  return element;
}

/** @param {string} id */
export function input(id) {
  return /** @type {HTMLInputElement} */ (byId(id));
}

/**
 * Sets a text, if it differs: what does not change costs no layout.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes the children of `parent` those of `keys`, in this order. Elements of keys that stay are kept,
 * so that the focus and what a reader selected stay, too.
 * @param {Element} parent
 * @param {string[]} keys
 * @param {(key: string) => HTMLElement} create
 * @param {(element: HTMLElement, key: string) => void} update
 */
export function keyed(parent, keys, create, update) {
  /** @type {Map<string, HTMLElement>} */
  const old = new Map();
  for (const child of /** @type {HTMLElement[]} */ ([...parent.children])) old.set(child.dataset.key ?? "", child);
  const wanted = new Set(keys);
  for (const [key, child] of old) {
    if (!wanted.has(key)) child.remove();
  }
  let at = parent.firstElementChild;
  for (const key of keys) {
    let element = old.get(key);
    if (element === undefined) {
      element = create(key);
      element.dataset.key = key;
    }
    if (element === at) {
      at = at.nextElementSibling;
    } else {
      parent.insertBefore(element, at);
    }
    update(element, key);
  }
}

/**
 * A row of a table: the first cell is its heading.
 * @param {number} cells
 */
export function row(cells) {
  const element = h("tr");
  for (let i = 0; i < cells; ++i) element.append(i === 0 ? h("th", { scope: "row" }) : h("td"));
  return element;
}

/**
 * @param {HTMLElement} element a row
 * @param {string[]} texts
 */
export function setCells(element, texts) {
  texts.forEach((text, i) => setText(element.children[i], text));
}
