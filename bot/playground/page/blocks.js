/* Slack's blocks, attachments and files as Slack draws them. One reader per type; what has no reader is drawn
 * as its type, so that nothing that was sent is hidden.
 */
import { h, link } from "./dom.js";
import { icon } from "./icons.js";
import { markdown, scrolling } from "./markdown.js";
import { mrkdwn, plain, text, unescape } from "./mrkdwn.js";
import { element } from "./elements.js";
import { richText } from "./rich_text.js";

/** `message` gives the buttons their channel and ts. */
export function blocks(list, message) {
  return (list ?? []).map((block, index) => {
    const node = (BLOCKS[block.type] ?? unknown)(block, message);
    node.dataset.key = `${index}:${block.type}`;
    return node;
  });
}

const BLOCKS = {
  section: (block, message) =>
    h("div.block.section", {},
      h("div.section-main", {},
        block.text && h("div.text", {}, text(block.text)),
        block.fields && h("div.fields", {}, block.fields.map((field) => h("div.text", {}, text(field))))),
      block.accessory && h("div.accessory", {}, accessory(block.accessory, message))),
  context: (block) =>
    h("div.block.context", {}, (block.elements ?? []).map((one) =>
      one.type === "image" ? h("span.context-image", { title: one.alt_text }, icon("image")) : h("span.text", {}, text(one)))),
  header: (block) => h("h3.block.header", {}, plain(block.text)),
  divider: () => h("hr.block"),
  actions: (block, message) =>
    h("div.block.actions", { role: "group", "aria-label": "Actions" }, (block.elements ?? []).map((one) => element(one, message))),
  context_actions: (block, message) =>
    h("div.block.actions.quiet", { role: "group", "aria-label": "Feedback" }, (block.elements ?? []).map((one) => element(one, message))),
  markdown: (block) => h("div.block.markdown", {}, markdown(block.text)),
  rich_text: (block) => h("div.block.rich", {}, richText(block.elements)),
  table: (block) => h("div.block", {}, table(block)),
  image: (block) => h("figure.block.picture", {}, picture(block)),
};

function unknown(block) {
  return h("div.block.unknown", {}, `Block of type ${block.type ?? "?"}`);
}

function accessory(one, message) {
  return one.type === "image" ? picture(one) : element(one, message);
}

/* Only what the local Slack serves itself is loaded; the page asks no other host. */
function picture(one) {
  const url = one.image_url ?? one.slack_file?.url ?? "";
  const label = one.alt_text || plain(one.title).join("") || "Image";
  if (isOurs(url)) return h("img", { src: url, alt: label, loading: "lazy" });
  return h("span.placeholder", {}, icon("image"), url ? link(url, [label]) : label);
}

function isOurs(url) {
  return URL.canParse(url, location.href) && new URL(url, location.href).origin === location.origin && url !== "";
}

function table(block) {
  const rows = block.rows ?? [];
  const settings = block.column_settings ?? [];
  const cell = (one, index, tag) =>
    h(tag, { data: { align: settings[index]?.align ?? null } },
      one?.type === "rich_text" ? richText(one.elements) : unescape(one?.text ?? ""));
  const row = (cells, tag) => h("tr", {}, cells.map((one, index) => cell(one, index, tag)));
  return scrolling(h("table", {},
    rows.length > 0 && h("thead", {}, row(rows[0], "th")),
    h("tbody", {}, rows.slice(1).map((one) => row(one, "td")))));
}

const NAMED_COLOURS = { good: "#2eb67d", warning: "#daa038", danger: "#e01e5a" };

function colour(value) {
  if (NAMED_COLOURS[value]) return NAMED_COLOURS[value];
  const hex = `#${(value ?? "").replace(/^#/, "")}`;
  return /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.test(hex) ? hex : "var(--line-strong)";
}

export function attachments(list, message) {
  return (list ?? []).map((one, index) =>
    h("div.attachment", { key: `attachment:${index}`, vars: { "--bar": colour(one.color) } }, attachment(one, message)));
}

function attachment(one, message) {
  const drawn = [
    one.pretext && h("div.text", {}, mrkdwn(one.pretext)),
    one.author_name && h("div.attachment-author", {}, unescape(one.author_name)),
    one.title && h("div.attachment-title", {}, one.title_link ? link(one.title_link, [unescape(one.title)]) : unescape(one.title)),
    one.text && h("div.text", {}, mrkdwn(one.text)),
    one.fields?.length && h("dl.attachment-fields", {}, one.fields.map(field)),
    one.blocks && h("div.blocks", {}, blocks(one.blocks, message)),
    one.image_url && picture({ image_url: one.image_url, alt_text: one.fallback }),
    one.footer && h("div.attachment-footer", {}, unescape(one.footer)),
  ].filter(Boolean);
  return drawn.length ? drawn : [h("div.text", {}, mrkdwn(one.fallback ?? ""))];
}

function field(one) {
  return h("div", { class: one.short ? "short" : null }, h("dt", {}, unescape(one.title ?? "")), h("dd.text", {}, mrkdwn(String(one.value ?? ""))));
}

export function files(list) {
  return (list ?? []).map((file) => (file.mimetype === "image/png" && file.original_w ? shared(file) : attached(file)));
}

/* What the local Slack has measured it can also show. A picture keeps its place while it loads; a click shows it
 * alone, in its own size. */
function shared(file) {
  const url = `/playground/pictures/${encodeURIComponent(file.id)}`;
  return h("figure.shared", { key: `file:${file.id}` },
    h("figcaption", {}, file.title || file.name),
    h("a", { href: url, target: "_blank", rel: "noopener" },
      h("img", { src: url, alt: file.alt_txt || file.title || file.name, width: file.original_w, height: file.original_h })));
}

function attached(file) {
  return h("div.file", { key: `file:${file.id ?? file.name}` },
    icon((file.mimetype ?? "").startsWith("image/") ? "image" : "file"),
    h("div", {}, h("b", {}, file.title || file.name || "File"), h("small", {}, size(file))));
}

function size({ mimetype, size: bytes }) {
  const kilobytes = bytes ? `${Math.max(1, Math.round(bytes / 1024)).toLocaleString("en")} KB` : null;
  return [mimetype, kilobytes].filter(Boolean).join(" · ");
}
