/* What lies over the page for a moment: a question, the sheet of actions on a phone, a short notice. */
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { verbs } from "./message.js";
import { plain, text } from "./mrkdwn.js";

const $ = (id) => document.getElementById(id);
const NOTICE_MS = 6_000;

/** Ask with a `confirm` object as Slack has it; true if the person agreed. */
export function confirmed({ title, text: body, confirm, deny, style }) {
  const dialog = $("question");
  fill(dialog, h("form.dialog", { method: "dialog", key: "form" },
    h("h2", {}, plain(title)),
    h("div.text", {}, typeof body === "string" ? body : text(body)),
    h("div.dialog-buttons", {},
      h("button.block-button", { value: "no" }, plain(deny ?? "Cancel")),
      h("button.block-button", { value: "yes", class: style === "danger" ? "danger" : "primary", autofocus: true }, plain(confirm ?? "Yes")))));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

/** The actions of a message, for fingers. */
export function sheet(message, inThread) {
  const dialog = $("sheet");
  const close = { formmethod: "dialog" };
  fill(dialog, h("form.sheet", { method: "dialog", key: message.ts },
    h("div.sheet-reactions", {}, verbs(message, inThread).filter((verb) => verb.glyph).map((verb) =>
      h("button", { ...close, "aria-label": verb.label, data: { do: verb.do, ts: message.ts, name: verb.name } }, h("span.emoji", {}, verb.glyph)))),
    verbs(message, inThread).filter((verb) => verb.icon).map((verb) =>
      h("button.sheet-row", { ...close, data: { do: verb.do, ts: verb.do === "thread" ? (message.thread_ts ?? message.ts) : message.ts } }, icon(verb.icon), verb.label)),
    h("button.sheet-row", { ...close, data: { do: "copy", ts: message.ts } }, icon("copy"), "Copy text"),
    h("button.sheet-row", { ...close }, icon("close"), "Close")));
  dialog.showModal();
}

export function notice(words) {
  const node = h("div.notice", { role: "alert" }, words);
  $("notices").append(node);
  setTimeout(() => node.remove(), NOTICE_MS);
}

/** For those who listen to the page instead of looking at it. */
export function announce(words) {
  $("announcer").textContent = words;
}
