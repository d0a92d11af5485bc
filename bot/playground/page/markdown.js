/* Markdown as Slack's `markdown` block takes it, read into nodes: headings, paragraphs, lists, tables, fences,
 * quotes, rules, and the usual marks inside a line. Line breaks are kept, HTML is text, and Slack's own
 * tokens (<@U1>) are literal here, as in Slack.
 */
import { h, link } from "./dom.js";
import { emoji } from "./emoji.js";
import { emojiNode, unescape } from "./mrkdwn.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const ITEM = /^(\s*)([-*+•]|\d{1,9}[.)])\s+(.*)$/;
const ROW = /\|/;
const DELIMITER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** A whole document as a list of nodes. */
export function markdown(text) {
  return blocks((text ?? "").replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"));
}

/* Each reader takes the lines and an index and answers [node, next index], or null if it is not its turn. */
const READERS = [fence, heading, rule, table, quote, list];

function blocks(lines) {
  const nodes = [];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) at += 1;
    else {
      const [node, next] = firstOf(lines, at) ?? paragraph(lines, at);
      nodes.push(node);
      at = next;
    }
  }
  return nodes;
}

function firstOf(lines, at) {
  for (const reader of READERS) {
    const result = reader(lines, at);
    if (result) return result;
  }
  return null;
}

function fence(lines, at) {
  const open = FENCE.exec(lines[at]);
  if (!open) return null;
  const closing = new RegExp(`^ {0,3}${open[1][0]}{${open[1].length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  return [h("pre.code", { tabindex: "0", data: { language: open[2] || null } }, lines.slice(at + 1, end).join("\n")), end + 1];
}

function heading(lines, at) {
  const found = HEADING.exec(lines[at]);
  return found && [h(`h${Math.min(found[1].length + 2, 6)}.md-heading`, { data: { level: found[1].length } }, inline(found[2])), at + 1];
}

function rule(lines, at) {
  return RULE.test(lines[at]) ? [h("hr"), at + 1] : null;
}

function quote(lines, at) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at;
  const inner = [];
  for (; end < lines.length && QUOTE.test(lines[end]); end += 1) inner.push(QUOTE.exec(lines[end])[1]);
  return [h("blockquote", {}, blocks(inner)), end];
}

function list(lines, at) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1) {
      if (item[1].length < indent || /\d/.test(item[2]) !== ordered) break;
      items.push({ lines: [item[3]], width: line.length - item[3].length });
    } else if (!line.trim()) {
      if (!belongs(lines[end + 1], indent)) break;
      items.at(-1).lines.push("");
    } else if (belongs(line, indent) || !firstOf([line], 0)) items.at(-1).lines.push(dedent(line, items.at(-1).width));
    else break;
  }
  const start = ordered && Number.parseInt(first[2], 10) !== 1 ? Number.parseInt(first[2], 10) : null;
  return [h(ordered ? "ol" : "ul", { start }, items.map((item) => h("li", {}, blocks(task(item.lines))))), end];
}

function belongs(line, indent) {
  if (line === undefined || !line.trim()) return false;
  const item = ITEM.exec(line);
  return item ? item[1].length >= indent : line.search(/\S/) > indent;
}

function dedent(line, width) {
  return line.slice(Math.min(width, Math.max(line.search(/\S/), 0)));
}

function task([first, ...rest]) {
  return [first.replace(/^\[ \]\s/, "☐ ").replace(/^\[[xX]\]\s/, "☑ "), ...rest];
}

function table(lines, at) {
  if (!ROW.test(lines[at]) || !DELIMITER.test(lines[at + 1] ?? "") || !ROW.test(lines[at + 1])) return null;
  const align = cells(lines[at + 1]).map(alignment);
  let end = at + 2;
  while (end < lines.length && lines[end].trim() && ROW.test(lines[end])) end += 1;
  const row = (line, tag) =>
    h("tr", {}, cells(line).map((cell, index) => h(tag, { data: { align: align[index] } }, inline(cell))));
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  return [scrolling(h("table", {}, h("thead", {}, row(lines[at], "th")), h("tbody", {}, body))), end];
}

export function scrolling(node) {
  return h("div.table", { tabindex: "0", role: "region", "aria-label": "Table" }, node);
}

function alignment(cell) {
  const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
  if (left && right) return "center";
  return right ? "right" : null;
}

function cells(line) {
  const body = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return body.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !firstOf(lines, end)) end += 1;
  return [h("p", {}, inline(lines.slice(at, end).map((line) => line.trimStart()).join("\n"))), end];
}

const INLINE = new RegExp(
  [
    "\\\\(?<escaped>[\\\\`*_{}\\[\\]()#+\\-.!|~<>])",
    "(?<ticks>`+)(?<code>(?:(?!\\k<ticks>)[\\s\\S])+?)\\k<ticks>(?!`)",
    "!?\\[(?<label>(?:[^\\[\\]]|\\[[^\\[\\]]*\\])*)\\]\\(\\s*<?(?<href>[^\\s()<>]*(?:\\([^\\s()]*\\)[^\\s()<>]*)?)>?(?:\\s+\"[^\"]*\")?\\s*\\)",
    "<(?<auto>(?:https?:|mailto:)[^\\s<>]+)>",
    "(?<url>https?:\\/\\/[^\\s<>]*[^\\s<>.,;:!?)\\]'\"*_~`])",
    ":(?<emoji>[a-z0-9_+-]+):",
    "(?<strong>\\*\\*|(?<![\\p{L}\\p{N}])__)(?=\\S)(?<bold>[\\s\\S]*?\\S)\\k<strong>",
    "~~(?=\\S)(?<struck>[\\s\\S]*?\\S)~~",
    "(?<em>\\*|(?<![\\p{L}\\p{N}_])_)(?=[^\\s*_])(?<italic>(?:(?!\\k<em>)[\\s\\S])*?\\S)\\k<em>(?![\\p{L}\\p{N}])",
  ].join("|"),
  "giu",
);

function inline(text) {
  const out = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    const node = nodeOf(found.groups, found[0]);
    if (node === null) continue;
    out.push(unescape(text.slice(at, found.index)), node);
    at = found.index + found[0].length;
  }
  out.push(unescape(text.slice(at)));
  return out;
}

function nodeOf(groups, whole) {
  if (groups.escaped) return groups.escaped;
  if (groups.code) return h("code", {}, groups.code.trim());
  if (groups.label !== undefined) return link(groups.href, inline(groups.label));
  if (groups.auto) return link(groups.auto);
  if (groups.url) return link(whole);
  if (groups.bold) return h("strong", {}, inline(groups.bold));
  if (groups.struck) return h("s", {}, inline(groups.struck));
  if (groups.italic) return h("em", {}, inline(groups.italic));
  const glyph = emoji(groups.emoji);
  return glyph && emojiNode(glyph, groups.emoji);
}
