/* One message as Slack draws it: who and when, text or blocks, attachments, files, reactions, the way into its
 * thread, and the toolbar of what can be done with it.
 */
import { attachments, blocks, files } from "./blocks.js";
import { h } from "./dom.js";
import { emoji } from "./emoji.js";
import { icon } from "./icons.js";
import { mrkdwn } from "./mrkdwn.js";
import { isBot, person, state } from "./state.js";
import { clock, day, full, sinceDay } from "./time.js";

export const QUICK_REACTIONS = ["eyes", "+1", "octagonal_sign"];
const GROUP_SECONDS = 300;

/** Everything between the first and the last message, with a line for each new day. */
export function conversation(messages, options = {}) {
  const nodes = [];
  let before = null;
  for (const message of messages) {
    if (!before || day(before.ts) !== day(message.ts)) nodes.push(dayLine(message.ts));
    nodes.push(article(message, { ...options, compact: follows(before, message) }));
    before = message;
  }
  return nodes;
}

function dayLine(ts) {
  return h("div.day", { key: `day:${day(ts)}`, role: "separator" }, h("span", {}, sinceDay(ts)));
}

function follows(before, message) {
  if (!before || before.ephemeral || message.ephemeral || before.subtype || message.subtype) return false;
  const close = Number.parseFloat(message.ts) - Number.parseFloat(before.ts) < GROUP_SECONDS;
  return close && sender(before).id === sender(message).id && day(before.ts) === day(message.ts) && !before.reply_count;
}

/** Who a message is from: {id, name, role}. Bots without an account are known by the name they post under. */
export function sender(message) {
  const known = person(message.user);
  if (known) return { id: known.id, name: message.username || known.real_name || known.name, role: known.role };
  const name = message.username || message.bot_profile?.name || message.user || "App";
  return { id: message.bot_id ?? message.user ?? name, name, role: message.bot_id ? "bot" : "unknown" };
}

export function avatar({ id, name, role }, size = "") {
  if (isBot(id)) return h("span.avatar.pilot", { class: size, "aria-hidden": "true" }, icon("helm"));
  if (role === "bot") return h("span.avatar.app", { class: size, "aria-hidden": "true" }, icon("bot"));
  return h("span.avatar", { class: size, "aria-hidden": "true", data: { tone: tone(id ?? name) } }, initials(name));
}

function initials(name) {
  const words = (name || "?").split(/\s+/).filter(Boolean);
  return [words[0], words.length > 1 ? words.at(-1) : ""].map((word) => [...word][0] ?? "").join("").toUpperCase();
}

function tone(id) {
  return [...id].reduce((sum, char) => sum * 31 + char.codePointAt(0), 7) % 6;
}

export function keyOf(message) {
  return `${message.ephemeral ? "ephemeral" : "message"}:${message.ts}`;
}

export function article(message, { compact = false, inThread = false } = {}) {
  if (message.subtype === "tombstone") return tombstone(message, inThread);
  const who = sender(message);
  return h("article.message", {
    key: keyOf(message),
    class: [compact && "compact", message.ephemeral && "ephemeral", message.ts === state.thread && !inThread && "opened"].filter(Boolean).join(" ") || null,
    data: { ts: message.ts, channel: message.channel },
    tabindex: "-1",
    "aria-label": `${who.name}, ${full(message.ts)}`,
  },
    h("div.gutter", {}, compact ? h("time.small", {}, clock(message.ts)) : avatar(who)),
    h("div.message-body", {},
      message.ephemeral && onlyYou(message),
      message.subtype === "thread_broadcast" && !inThread && h("div.also", {}, "replied to a thread"),
      !compact && heading(message, who),
      state.editing === message.ts ? penOf() : content(message),
      reactions(message),
      !inThread && threadLink(message)),
    !message.ephemeral && state.editing !== message.ts && tools(message, inThread));
}

function heading(message, who) {
  return h("header", {},
    h("b.name", {}, who.name),
    who.role === "bot" && h("span.badge", {}, "App"),
    h("time", { title: full(message.ts) }, clock(message.ts)));
}

function onlyYou(message) {
  return h("div.only-you", {}, icon("eye"), "Only visible to you",
    h("button.text-button", { type: "button", data: { do: "dismiss", ts: message.ts } }, "Dismiss"));
}

function tombstone(message, inThread) {
  return h("article.message.tombstone", { key: keyOf(message), data: { ts: message.ts }, tabindex: "-1" },
    h("div.gutter", {}, h("span.avatar.gone", {}, icon("trash"))),
    h("div.message-body", {}, h("p", {}, "This message was deleted."), !inThread && threadLink(message)));
}

/* Blocks win over `text`, which is then only the short form for notifications. */
function content(message) {
  const drawn = message.blocks?.length
    ? h("div.blocks", {}, blocks(message.blocks, message))
    : h("div.text", {}, mrkdwn(message.text), edited(message));
  return h("div.content", { key: "content" },
    (message.blocks?.length || message.text) && drawn,
    message.blocks?.length && !message.bot_id ? edited(message) : null,
    attachments(message.attachments, message),
    files(message.files));
}

function edited(message) {
  return message.edited && h("span.edited", {}, " (edited)");
}

/* The pen is put in place by `pen.js`, which keeps what is typed there out of the reach of updates. */
function penOf() {
  return h("div.pen", { key: "pen", "data-keep": true });
}

function reactions(message) {
  if (!message.reactions?.length) return null;
  return h("div.reactions", {}, message.reactions.map((one) => {
    const mine = (one.users ?? []).includes(state.me);
    const names = (one.users ?? []).map((id) => person(id)?.real_name ?? id).join(", ");
    return h("button.pill", {
      type: "button",
      key: one.name,
      class: mine ? "mine" : null,
      "aria-pressed": String(mine),
      "aria-label": `${one.name.replaceAll("_", " ")}, ${one.count}`,
      title: `${names} reacted with :${one.name}:`,
      data: { do: "react", ts: message.ts, name: one.name },
    }, h("span.emoji", {}, emoji(one.name) ?? `:${one.name}:`), String(one.count));
  }));
}

function threadLink(message) {
  const root = message.thread_ts && message.thread_ts !== message.ts ? message.thread_ts : message.ts;
  if (!message.reply_count && root === message.ts) return null;
  const count = message.reply_count;
  const label = count ? `${count} ${count === 1 ? "reply" : "replies"}` : "View thread";
  return h("button.thread-link", { type: "button", data: { do: "thread", ts: root } },
    (message.reply_users ?? []).slice(0, 4).map((id) => avatar(sender({ user: id }), "tiny")),
    h("b", {}, label),
    message.latest_reply && h("span", {}, `Last reply ${clock(message.latest_reply)}`));
}

/** What `state.me` may do with a message. Anyone may delete the bot's, to see how it takes that. */
export function verbs(message, inThread) {
  const own = message.user === state.me;
  return [
    ...QUICK_REACTIONS.map((name) => ({ do: "react", name, label: `React with ${name.replaceAll("_", " ")}`, glyph: emoji(name) })),
    !inThread && { do: "thread", label: "Reply in thread", icon: "reply" },
    own && { do: "edit", label: "Edit message", icon: "edit" },
    (own || isBot(message.user)) && { do: "delete", label: "Delete message", icon: "trash" },
  ].filter(Boolean);
}

function tools(message, inThread) {
  const root = message.thread_ts ?? message.ts;
  return h("div.tools", { role: "toolbar", "aria-label": "Message actions" }, verbs(message, inThread).map((verb) =>
    h("button", {
      type: "button",
      key: verb.do + (verb.name ?? ""),
      "aria-label": verb.label,
      title: verb.label,
      data: { do: verb.do, ts: verb.do === "thread" ? root : message.ts, name: verb.name },
    }, verb.glyph ? h("span.emoji", {}, verb.glyph) : icon(verb.icon))));
}
