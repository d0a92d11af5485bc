/* What a person would see of the page, as plain HTML, with its first links and controls. Runs in a world of its own,
   so that nothing the page has replaced is used. Its value is {title, html, controls: [[kind, name, address]]}. */
(() => {
  const MOST_CHARS = 300000, MOST_NODES = 60000, MOST_CONTROLS = 30;
  const SKIPPED = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "SVG", "HEAD", "IFRAME", "OBJECT", "CANVAS", "VIDEO", "AUDIO"]);
  const KEPT = new Set(("MAIN ARTICLE SECTION NAV ASIDE FOOTER HEADER H1 H2 H3 H4 H5 H6 P UL OL LI DL DT DD TABLE THEAD "
    + "TBODY TFOOT TR TH TD CAPTION PRE CODE BLOCKQUOTE STRONG B EM I DEL S BR HR").split(" "));
  const TYPED = new Set(["INPUT", "TEXTAREA", "SELECT"]);
  const parts = [], controls = [];
  let chars = 0, nodes = 0;

  const write = (text) => { parts.push(text); chars += text.length; };
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
  const line = (text, most) => (text || "").slice(0, most * 4).replace(/\s+/g, " ").trim().slice(0, most);
  const web = (address) => /^https?:/i.test(address || "") ? address.slice(0, 500) : "";

  const kindOf = (element) => {
    const role = element.getAttribute("role");
    if (element.tagName === "A" && element.hasAttribute("href")) return "link";
    if (element.tagName === "BUTTON" || element.tagName === "SUMMARY") return "button";
    if (element.tagName === "INPUT") return ["button", "submit", "reset", "checkbox", "radio"].includes(element.type) ? element.type : "field";
    if (element.tagName === "TEXTAREA") return "field";
    if (element.tagName === "SELECT") return "choice";
    return ["button", "link", "tab", "checkbox", "switch", "menuitem"].includes(role) ? role : null;
  };
  const nameOf = (element) => {
    const label = element.labels && element.labels.length ? element.labels[0].innerText : "";
    const value = ["button", "submit", "reset"].includes(element.type) ? element.value : "";
    return line(element.getAttribute("aria-label") || label || (TYPED.has(element.tagName) ? "" : element.innerText) || value
      || element.getAttribute("placeholder") || element.getAttribute("title") || element.getAttribute("name"), 80);
  };

  const seen = (text) => {
    const range = document.createRange();
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
  const ofElement = (element) => {
    if (SKIPPED.has(element.tagName.toUpperCase())) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || (style.display !== "contents" && !element.checkVisibility({ opacityProperty: true }))) return;
    if (style.display !== "contents" && clipped(element, style)) return;
    const kind = element.type === "hidden" ? null : kindOf(element);
    if (kind && style.visibility === "visible" && controls.length < MOST_CONTROLS) {
      controls.push([kind, nameOf(element), kind === "link" ? web(element.href) : ""]);
    }
    if (element.tagName === "IMG") return write(element.alt ? ` [picture: ${escaped(line(element.alt, 200))}] ` : "");
    if (element.tagName === "INPUT" && element.type === "password") return;
    if (TYPED.has(element.tagName)) {
      const chosen = element.tagName === "SELECT" ? element.selectedOptions[0]?.text : ["hidden", "checkbox", "radio", "button", "submit", "reset"].includes(element.type) ? "" : element.value;
      return write(` ${escaped(line(chosen, 200))} `);
    }
    const link = element.tagName === "A" ? web(element.href) : "";
    const tag = tagOf(element, style);
    write(link ? `<a href="${escaped(link)}">` : `<${tag}>`);
    for (const child of childrenOf(element)) walk(child, style);
    write(link ? "</a>" : `</${tag}>`);
  };
  const walk = (node, style) => {
    if (chars > MOST_CHARS || ++nodes > MOST_NODES) return;
    if (node.nodeType === Node.TEXT_NODE) textOf(node, style);
    else if (node.nodeType === Node.ELEMENT_NODE) ofElement(node);
  };

  if (document.body) ofElement(document.body);
  return { title: line(document.title, 200), html: parts.join("").slice(0, MOST_CHARS * 2), controls };
})()
