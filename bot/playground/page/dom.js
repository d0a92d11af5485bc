/* Building and patching the page.
 *
 * Every view is a pure function from the state to a fresh tree, and `morph` carries the difference over to
 * the tree on the screen: nodes stay the same nodes, so focus, selection, scrolling and open <details> survive
 * an update of a card. Text becomes text nodes, never markup: this file is the only door to the document, and
 * it has no innerHTML in it.
 */

const SVG = "http://www.w3.org/2000/svg";
const SAFE_URL = /^(https?:|mailto:)/i;

/** `h("p.note", {role: "status", key: "a"}, "text", child, [more])` */
export function h(spec, props = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(props ?? {})) setProp(node, name, value);
  node.append(...flat(children));
  return node;
}

function setProp(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "key") node.dataset.key = value;
  else if (name === "class") node.className = `${node.className} ${value}`.trim();
  else if (name === "data") Object.assign(node.dataset, defined(value));
  else if (name === "vars") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
  else node.setAttribute(name, value === true ? "" : String(value));
}

function defined(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && value !== undefined));
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");
}

export function svg(path, className = "icon") {
  const root = document.createElementNS(SVG, "svg");
  root.setAttribute("viewBox", "0 0 20 20");
  root.setAttribute("aria-hidden", "true");
  root.setAttribute("class", className);
  const shape = document.createElementNS(SVG, "path");
  shape.setAttribute("d", path);
  root.append(shape);
  return root;
}

/** A link to somewhere else; what is not http, https or mailto stays text. */
export function link(url, label) {
  const text = label?.length ? label : [url];
  if (!SAFE_URL.test(url)) return h("span", {}, text);
  return h("a.link", { href: url, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** Make the children of `target` look like `nodes`. */
export function fill(target, ...nodes) {
  const wanted = document.createElement("div");
  wanted.append(...flat(nodes));
  morphChildren(target, wanted);
}

export function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  syncAttributes(from, to);
  if (!from.hasAttribute("data-keep")) morphChildren(from, to);
}

/* `open` belongs to the reader and roving `tabindex` to the keyboard; `style` goes through the object model
 * because the content security policy forbids the attribute. */
const HANDS_OFF = { DETAILS: ["open"], ARTICLE: ["tabindex"] };

function syncAttributes(from, to) {
  const kept = HANDS_OFF[from.nodeName] ?? [];
  for (const { name, value } of [...to.attributes]) {
    if (kept.includes(name) || from.getAttribute(name) === value) continue;
    if (name === "style") from.style.cssText = to.style.cssText;
    else from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (!kept.includes(name) && !to.hasAttribute(name)) from.removeAttribute(name);
  }
}

const keyOf = (node) => node?.dataset?.key;

function morphChildren(from, to) {
  const wanted = new Set([...to.children].map(keyOf).filter(Boolean));
  const known = new Map([...from.children].filter(keyOf).map((node) => [keyOf(node), node]));
  let cursor = from.firstChild;
  const skipGone = () => {
    while (cursor && keyOf(cursor) && !wanted.has(keyOf(cursor))) {
      const gone = cursor;
      cursor = cursor.nextSibling;
      gone.remove();
    }
  };
  for (const next of [...to.childNodes]) {
    skipGone();
    const match = keyOf(next) ? known.get(keyOf(next)) : sameKind(cursor, next);
    known.delete(keyOf(next));
    if (!match) from.insertBefore(next, cursor);
    else {
      if (match === cursor) cursor = cursor.nextSibling;
      else from.insertBefore(match, cursor);
      morph(match, next);
    }
  }
  while (cursor) {
    const gone = cursor;
    cursor = cursor.nextSibling;
    gone.remove();
  }
}

function sameKind(cursor, next) {
  return cursor && !keyOf(cursor) && cursor.nodeName === next.nodeName ? cursor : null;
}
