/* Slack's `rich_text`: sections, lists, quotes and preformatted text made of small styled elements. */
import { h, link } from "./dom.js";
import { emoji } from "./emoji.js";
import { emojiNode, mention } from "./mrkdwn.js";
import { channelName } from "./state.js";

export function richText(elements) {
  return (elements ?? []).map((one) => (PARTS[one.type] ?? unknown)(one));
}

const PARTS = {
  rich_text_section: (one) => h("div.para", {}, leaves(one.elements)),
  rich_text_quote: (one) => h("blockquote", {}, h("div.para", {}, leaves(one.elements))),
  rich_text_preformatted: (one) => h("pre.code", { tabindex: "0" }, (one.elements ?? []).map((leaf) => leaf.text ?? leaf.url ?? "")),
  rich_text_list: (one) =>
    h(one.style === "ordered" ? "ol" : "ul", { vars: { "--indent": String(one.indent ?? 0) }, start: one.offset ? one.offset + 1 : null },
      (one.elements ?? []).map((item) => h("li", {}, leaves(item.elements)))),
};

function unknown(one) {
  return h("div.unknown", {}, `Text of type ${one.type ?? "?"}`);
}

function leaves(elements) {
  return (elements ?? []).map((one) => styled((LEAVES[one.type] ?? ((other) => `[${other.type}]`))(one), one.style));
}

const LEAVES = {
  text: (one) => one.text ?? "",
  link: (one) => link(one.url ?? "", one.text ? [one.text] : null),
  user: (one) => mention(one.user_id),
  usergroup: (one) => h("span.mention", {}, `@${one.usergroup_id}`),
  channel: (one) => h("span.mention", {}, `#${channelName(one.channel_id)}`),
  broadcast: (one) => h("span.mention.me", {}, `@${one.range}`),
  emoji: (one) => (emoji(one.name) ? emojiNode(emoji(one.name), one.name) : `:${one.name}:`),
  date: (one) => one.fallback ?? new Date(one.timestamp * 1000).toLocaleString(),
  color: (one) => one.value ?? "",
};

const STYLES = [["code", "code"], ["bold", "strong"], ["italic", "em"], ["strike", "s"]];

function styled(node, style = {}) {
  return STYLES.reduce((inner, [name, tag]) => (style[name] ? h(tag, {}, inner) : inner), node);
}
