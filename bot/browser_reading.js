/* What a person would see of the page, as plain HTML, with its first links and controls. Runs in a world of its own,
   so that nothing the page has replaced is used. Its value is {title, html, controls: [[kind, name, address]]}. */
(() => {
  const MOST_CHARS = 300000, MOST_NODES = 60000, MOST_CONTROLS = 30;
  const named = (names) => new Set(names.split(" "));
  const SKIPPED = named("SCRIPT STYLE NOSCRIPT TEMPLATE SVG HEAD IFRAME OBJECT CANVAS VIDEO AUDIO");
  const KEPT = named("MAIN ARTICLE SECTION NAV ASIDE FOOTER HEADER H1 H2 H3 H4 H5 H6 P UL OL LI DL DT DD TABLE THEAD "
    + "TBODY TFOOT TR TH TD CAPTION PRE CODE BLOCKQUOTE STRONG B EM I DEL S BR HR");
  const TYPED = named("INPUT TEXTAREA SELECT");
  const PRESSED = named("button submit reset");
  const TICKED = named("checkbox radio");
  const ROLES = named("button link tab checkbox switch menuitem");
  const parts = [], controls = [];
  let chars = 0, nodes = 0;

  const write = (text) => { parts.push(text); chars += text.length; };
  const escaped = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
  const line = (text, most) => (text || "").slice(0, most * 4).replace(/\s+/g, " ").trim().slice(0, most);
  const web = (address) => /^https?:/i.test(address || "") ? address.slice(0, 500) : "";

  const kindOf = (element) => {
    if (element.tagName === "FORM" || element.type === "hidden") return null;
    if (element.tagName === "A" && element.hasAttribute("href")) return "link";
    if (element.tagName === "BUTTON" || element.tagName === "SUMMARY") return "button";
    if (element.tagName === "INPUT" && PRESSED.has(element.type)) return "button";
    if (element.tagName === "INPUT" && TICKED.has(element.type)) return element.type;
    if (element.tagName === "SELECT") return "choice";
    if (TYPED.has(element.tagName)) return "field";
    const role = element.getAttribute("role");
    return ROLES.has(role) ? role : null;
  };
  const nameOf = (element) => {
    const label = element.labels?.length ? element.labels[0].innerText : "";
    const said = TYPED.has(element.tagName) ? "" : element.innerText;
    const value = PRESSED.has(element.type) ? element.value : "";
    const hints = ["placeholder", "title", "name"].map((name) => element.getAttribute(name));
    return line([element.getAttribute("aria-label"), label, said, value, ...hints].find((name) => name?.trim()), 80);
  };
  const valueOf = (element) => {
    if (element.tagName === "SELECT") return element.selectedOptions[0]?.text;
    const typed = element.type !== "password" && element.type !== "hidden";
    return typed && !PRESSED.has(element.type) && !TICKED.has(element.type) ? element.value : "";
  };

  const seen = (text) => {
    const range = new Range();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    return box.width * box.height > 1 && box.right + scrollX > 0 && box.bottom + scrollY > 0;
  };
  const clipped = (element, style) => {
    const box = element.getBoundingClientRect();
    return style.overflow !== "visible" && box.width <= 1 && box.height <= 1;
  };
  const childrenOf = (element) => {
    if (element.shadowRoot) return element.shadowRoot.childNodes;
    const assigned = element.tagName === "SLOT" ? element.assignedNodes() : [];
    return assigned.length ? assigned : element.childNodes;
  };

  const textOf = (node, style) => {
    if (!node.data.trim()) write(" ");
    else if (style.visibility === "visible" && seen(node)) write(escaped(node.data.slice(0, MOST_CHARS)));
  };
  const tagOf = (element, style) => {
    if (KEPT.has(element.tagName)) return element.tagName.toLowerCase();
    return style.display.startsWith("inline") || style.display === "contents" ? "span" : "div";
  };
  const shown = (element, style) => style.display === "contents"
    || (style.display !== "none" && element.checkVisibility({ opacityProperty: true }) && !clipped(element, style));
  const ofElement = (element) => {
    if (SKIPPED.has(element.tagName.toUpperCase())) return;
    const style = getComputedStyle(element);
    if (!shown(element, style)) return;
    const kind = style.visibility === "visible" ? kindOf(element) : null;
    const link = element.tagName === "A" ? web(element.href) : "";
    if (kind && controls.length < MOST_CONTROLS) controls.push([kind, nameOf(element), link]);
    if (element.tagName === "IMG") write(element.alt ? ` [picture: ${escaped(line(element.alt, 200))}] ` : "");
    else if (TYPED.has(element.tagName)) write(` ${escaped(line(valueOf(element), 200))} `);
    else {
      const tag = tagOf(element, style);
      write(link ? `<a href="${escaped(link)}">` : `<${tag}>`);
      for (const child of childrenOf(element)) walk(child, style);
      write(link ? "</a>" : `</${tag}>`);
    }
  };
  const walk = (node, style) => {
    if (chars > MOST_CHARS || ++nodes > MOST_NODES) return;
    if (node.nodeType === Node.TEXT_NODE) textOf(node, style);
    else if (node.nodeType === Node.ELEMENT_NODE) {
      try { ofElement(node); } catch { /* a form's fields can stand in the place of its own properties */ }
    }
  };

  const first = (name) => Document.prototype.querySelector.call(document, name);
  if (first("body")) walk(first("body"));
  return { title: line(first("head > title")?.textContent, 200), html: parts.join("").slice(0, MOST_CHARS * 2), controls };
})()
