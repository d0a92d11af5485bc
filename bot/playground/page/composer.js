/* Where a person writes: as anyone, with names offered after `@`. Enter sends, Shift+Enter breaks the line, and
 * nothing is sent while an input method is still composing. What was typed for a place waits there.
 */
import { post } from "./api.js";
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { avatar } from "./message.js";
import { people } from "./panes.js";
import { channelName, isDirect, once, person, state } from "./state.js";
import { FIRST_MOVES, ROLES } from "./words.js";

const MOST_OFFERS = 6;
const drafts = new Map();

/** Everybody who can be mentioned: the bot first. */
function mentionable() {
  return [person(state.scene.bot.id), ...people()].filter(Boolean);
}

const CODE = /(```[\s\S]*?```|`[^`\n]+`)/;
const BEFORE = "(?<![\\p{L}\\p{N}@/])@";
const AFTER = "(?![\\p{L}\\p{N}_/])";

/** What was typed with the names in it turned into <@U1>, except in code. The server does the rest. */
export function wire(text) {
  const ids = new Map(mentionable().flatMap((one) => [one.name, one.real_name].filter(Boolean).map((name) => [name.toLowerCase(), one.id])));
  if (!ids.size) return text;
  const names = [...ids.keys()].sort((left, right) => right.length - left.length);
  const any = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  const mention = new RegExp(`${BEFORE}(${any})${AFTER}`, "giu");
  const parts = text.split(CODE);
  return parts.map((part, index) => (index % 2 ? part : part.replace(mention, (_, name) => `<@${ids.get(name.toLowerCase())}>`))).join("");
}

export class Composer {
  /** `onSent(ts, text)` runs after the server took a message. */
  constructor(root, kind, onSent, onError) {
    Object.assign(this, { root, kind, onSent, onError, offers: [], chosen: 0, subject: null });
    this.moves = h("div.moves", { role: "group", "aria-label": "First moves to try" });
    this.chips = h("div.chips", { role: "radiogroup", "aria-label": "Write as" });
    this.list = h("ul.offers", { role: "listbox", id: `${kind}-offers`, "aria-label": "People", hidden: true });
    this.box = h("textarea", { rows: "1", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-controls": this.list.id, enterkeyhint: "send", autocomplete: "off" });
    this.button = h("button.send", { type: "submit", "aria-label": "Send", title: "Send (Enter)" }, icon("send"));
    this.form = h("form.writing", {}, this.list, this.box, h("div.writing-foot", {}, this.chips, this.button));
    root.append(this.moves, this.form);
    this.connect();
  }

  connect() {
    this.form.addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("input", () => this.typed());
    this.box.addEventListener("click", () => this.typed());
    this.box.addEventListener("blur", () => setTimeout(() => this.offer([]), 150));
    this.list.addEventListener("mousedown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => this.take(event.target.closest("li")?.dataset.index));
    this.moves.addEventListener("click", (event) => this.move(event.target.closest("button")));
  }

  get place() {
    return this.kind === "thread" ? `${state.channel}/${state.thread}` : state.channel;
  }

  draw() {
    if (this.subject !== this.place) this.change();
    const me = person(state.me);
    const where = this.kind === "thread" ? "Reply …" : `Message ${isDirect(state.channel) ? "" : "#"}${channelName(state.channel) ?? ""}`;
    this.box.placeholder = where;
    this.box.setAttribute("aria-label", `${where} as ${me?.real_name ?? "somebody"}`);
    this.button.disabled = state.busy.has(`send:${this.kind}`) || !this.box.value.trim();
    fill(this.chips, people().map((one) => this.chip(one)));
    fill(this.moves, this.suggestions());
  }

  change() {
    if (this.subject) drafts.set(this.subject, this.box.value);
    this.subject = this.place;
    this.box.value = drafts.get(this.subject) ?? "";
    this.grow();
    this.offer([]);
  }

  chip(one) {
    const chosen = one.id === state.me;
    const name = one.real_name || one.name;
    const role = ROLES[one.role] ?? { label: one.role, rights: "" };
    return h("button.chip", {
      type: "button", role: "radio", key: one.id, "aria-checked": String(chosen), tabindex: chosen ? "0" : "-1",
      "aria-label": `Write as ${name}, ${role.label}`, title: `${name}: ${role.label}, ${role.rights}`, data: { do: "become", id: one.id },
    }, avatar({ ...one, name }, "tiny"), chosen && h("span", {}, name.split(" ")[0], h("small", {}, role.label)));
  }

  suggestions() {
    const bot = person(state.scene.bot.id);
    if (state.movesHidden || !bot?.id) return [];
    const moves = FIRST_MOVES[this.situation(bot)].map((move) => move.replace("{bot}", bot.real_name));
    return [
      h("span.moves-title", { key: "title" }, "Try"),
      ...moves.map((move) => h("button", { type: "button", key: move, title: `Sends this as ${person(state.me)?.real_name ?? "you"}`, data: { move } }, move)),
      h("button.moves-close", { type: "button", key: "close", "aria-label": "Hide these", title: "Hide these", data: { do: "hide-moves" } }, icon("close")),
    ];
  }

  /** Under an alert that the bot does not know yet, the first move is to call it. */
  situation(bot) {
    if (this.kind !== "thread") return isDirect(state.channel) ? "direct" : this.kind;
    if (isDirect(state.channel)) return "thread";
    const replies = state.replies ?? [];
    const called = !replies.length || replies.some((one) => one.user === bot.id || one.text?.includes(`<@${bot.id}>`));
    return called ? "thread" : "alert";
  }

  move(button) {
    if (button?.dataset.move) this.send(button.dataset.move);
  }

  key(event) {
    if (event.isComposing || event.keyCode === 229) return;
    if (this.offers.length && this.keyInOffers(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.submit();
    }
  }

  keyInOffers(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.choose((this.chosen + step + this.offers.length) % this.offers.length);
    else if (event.key === "Enter" || event.key === "Tab") this.take(this.chosen);
    else if (event.key === "Escape") this.offer([]);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  typed() {
    this.grow();
    this.button.disabled = !this.box.value.trim();
    const before = this.box.value.slice(0, this.box.selectionStart);
    const found = /(?:^|[\s(])@([\p{L}\p{N}._-]{0,20})$/u.exec(before);
    const wanted = found?.[1].toLowerCase();
    this.offer(found ? mentionable().filter((one) => [one.name, one.real_name].some((name) => name?.toLowerCase().startsWith(wanted))) : []);
  }

  offer(offers) {
    this.offers = offers.slice(0, MOST_OFFERS);
    this.list.hidden = !this.offers.length;
    this.choose(0);
  }

  choose(index) {
    this.chosen = index;
    fill(this.list, this.offers.map((one, at) =>
      h("li", { id: `${this.list.id}-${at}`, role: "option", "aria-selected": String(at === index), key: one.id, data: { index: at } },
        avatar({ ...one, name: one.real_name || one.name }, "tiny"), h("b", {}, one.real_name || one.name), h("small", {}, ROLES[one.role]?.label ?? one.role))));
    if (this.offers.length) this.box.setAttribute("aria-activedescendant", `${this.list.id}-${index}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  take(index) {
    const one = this.offers[Number(index)];
    if (!one) return;
    const at = this.box.selectionStart;
    const before = this.box.value.slice(0, at).replace(/@[^@]*$/, `@${one.role === "bot" ? one.real_name : one.name} `);
    this.box.value = before + this.box.value.slice(at);
    this.box.setSelectionRange(before.length, before.length);
    this.box.focus();
    this.typed();
  }

  submit() {
    const text = this.box.value.trim();
    if (text) this.send(text, true);
  }

  async send(text, fromBox = false) {
    const { channel, thread, me } = state;
    await once(`send:${this.kind}`, async () => {
      try {
        const body = { channel, user: me, text: wire(text), ...(this.kind === "thread" && { thread_ts: thread }) };
        const { ts } = await post("message", body);
        if (fromBox && this.box.value.trim() === text) this.clear();
        this.onSent(ts, body);
      } catch (error) {
        this.onError(error);
      }
    });
  }

  clear() {
    this.box.value = "";
    drafts.delete(this.subject);
    this.typed();
  }

  grow() {
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(this.box.scrollHeight, 220)}px`;
  }
}
