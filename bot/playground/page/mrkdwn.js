/* Slack's own markup, read into nodes.
 *
 * *bold* _italic_ ~struck~ `code` ```fences``` > quotes, and the tokens in angle brackets: <@U1>, <#C1>,
 * <!here>, <https://x|label>. Marks count only at the edge of a word, as in Slack. `&amp; &lt; &gt;` are the
 * three entities of the wire; nothing else is decoded.
 */
import { h, link } from "./dom.js";
import { emoji } from "./emoji.js";
import { channelName, isBot, person, state } from "./state.js";

const INLINE =
  /(?<code>`[^`\n]+`)|<(?<token>[^<>\n]+)>|:(?<emoji>[a-z0-9_+'-]+(?:::skin-tone-\d)?):|(?<url>https?:\/\/[^\s<>|]*[^\s<>|.,;:!?)\]'"*_~`])|(?<mark>[*_~])/giu;
const WORD = /[\p{L}\p{N}]/u;
const ELEMENT = { "*": "strong", _: "em", "~": "s" };

export function unescape(text) {
  return text.replace(/&(lt|gt|amp);/g, (_, name) => ({ lt: "<", gt: ">", amp: "&" })[name]);
}

/** A whole mrkdwn text as a list of nodes. */
export function mrkdwn(text) {
  const parts = (text ?? "").split("```");
  const closed = parts.length % 2 === 1;
  return parts.flatMap((part, index) => {
    if (index % 2 === 0) return quotes(part);
    if (!closed && index === parts.length - 1) return quotes("```" + part);
    return [h("pre.code", { tabindex: "0" }, unescape(part.replace(/^\n|\n$/g, "")))];
  });
}

function quotes(text) {
  const nodes = [];
  let plain = [];
  let quoted = [];
  const flush = () => {
    if (plain.length) nodes.push(...paragraph(plain.join("\n")));
    if (quoted.length) nodes.push(h("blockquote", {}, paragraph(quoted.join("\n"))));
    plain = [];
    quoted = [];
  };
  for (const line of text.split("\n")) {
    const quote = /^(?:&gt;|>)(?!(?:&gt;|>))\s?(.*)$/.exec(line);
    if (quote ? plain.length : quoted.length) flush();
    (quote ? quoted : plain).push(quote ? quote[1] : line);
  }
  flush();
  return nodes;
}

function paragraph(text) {
  const trimmed = text.replace(/^\n+|\n+$/g, "");
  return trimmed ? [h("span.para", {}, inline(trimmed))] : [];
}

/** The inside of a line: a list of nodes and strings. */
export function inline(text) {
  const out = [];
  let at = 0;
  INLINE.lastIndex = 0;
  const pattern = new RegExp(INLINE);
  for (let found = pattern.exec(text); found; found = pattern.exec(text)) {
    const piece = found.groups.mark ? marked(text, found) : single(found);
    if (!piece) continue;
    out.push(unescape(text.slice(at, found.index)), piece.node);
    at = found.index + piece.length;
    pattern.lastIndex = at;
  }
  out.push(unescape(text.slice(at)));
  return out;
}

function single({ 0: whole, groups }) {
  if (groups.code) return { node: h("code", {}, unescape(whole.slice(1, -1))), length: whole.length };
  if (groups.token) return { node: token(groups.token), length: whole.length };
  if (groups.url) return { node: link(unescape(whole)), length: whole.length };
  const glyph = emoji(groups.emoji);
  return glyph && { node: emojiNode(glyph, groups.emoji), length: whole.length };
}

export function emojiNode(glyph, name) {
  return h("span.emoji", { role: "img", "aria-label": name.replaceAll("_", " "), title: `:${name}:` }, glyph);
}

function marked(text, { index, groups: { mark } }) {
  if (WORD.test(text[index - 1] ?? "") || /\s/.test(text[index + 1] ?? " ")) return null;
  for (let end = text.indexOf(mark, index + 1); end > 0; end = text.indexOf(mark, end + 1)) {
    const inner = text.slice(index + 1, end);
    if (inner.includes("\n")) return null;
    const closes = inner && !/\s$/.test(inner) && !WORD.test(text[end + 1] ?? "") && evenTicks(inner);
    if (closes) return { node: h(ELEMENT[mark], {}, inline(inner)), length: end + 1 - index };
  }
  return null;
}

const evenTicks = (text) => (text.split("`").length - 1) % 2 === 0;

/** What stands between `<` and `>`. */
function token(body) {
  const [target, label] = split(body);
  const rest = target.slice(1);
  if (target.startsWith("@")) return mention(rest, label);
  if (target.startsWith("#")) return h("span.mention", {}, `#${label || channelName(rest)}`);
  if (target.startsWith("!")) return special(rest, label);
  return link(unescape(target), label ? [unescape(label)] : null);
}

function split(body) {
  const bar = body.indexOf("|");
  return bar < 0 ? [body, ""] : [body.slice(0, bar), body.slice(bar + 1)];
}

/* People are mentioned by their handle, the bot by the name on its card. */
function nameFor(id) {
  return isBot(id) ? person(id).real_name : person(id)?.name;
}

export function mention(id, label) {
  const name = nameFor(id) ?? (unescape(label ?? "") || id);
  const kind = id === state.me ? "mention.me" : isBot(id) ? "mention.bot" : "mention";
  return h(`span.${kind}`, {}, `@${name.replace(/^@/, "")}`);
}

function special(body, label) {
  if (body.startsWith("date^")) return unescape(label || body);
  if (body.startsWith("subteam^")) return h("span.mention", {}, unescape(label || "@group"));
  return h("span.mention.me", {}, `@${body}`);
}

/** Text as a person would type it again: entities and tokens undone. */
export function typed(text) {
  return unescape(
    (text ?? "").replace(/<([^<>\n]+)>/g, (_, body) => {
      const [target, label] = split(body);
      if (target.startsWith("@")) return `@${nameFor(target.slice(1)) ?? (label || target.slice(1))}`;
      if (target.startsWith("#")) return `#${label || channelName(target.slice(1))}`;
      if (target.startsWith("!")) return `@${target.slice(1)}`;
      return label || target;
    }),
  );
}

/** A text object: mrkdwn or plain. */
export function text(object) {
  if (!object) return [];
  return object.type === "mrkdwn" ? mrkdwn(object.text) : plain(object);
}

export function plain(object) {
  const source = typeof object === "string" ? object : (object?.text ?? "");
  if (object?.emoji === false) return [unescape(source)];
  return source.split(/(:[a-z0-9_+-]+:)/).map((part) => {
    const glyph = /^:.+:$/.test(part) ? emoji(part.slice(1, -1)) : null;
    return glyph ? emojiNode(glyph, part.slice(1, -1)) : unescape(part);
  });
}
