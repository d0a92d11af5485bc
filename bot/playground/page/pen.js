/* Editing a message in its place. The pen is put into the message once and is then left alone by updates, so
 * that a poll never takes a half-written word away.
 */
import { post } from "./api.js";
import { wire } from "./composer.js";
import { notice } from "./dialogs.js";
import { h } from "./dom.js";
import { refresh } from "./live.js";
import { typed } from "./mrkdwn.js";
import { once, state, update } from "./state.js";

/** Make the pen of the message that is being edited, wherever it is drawn. */
export function placePen(message) {
  for (const holder of document.querySelectorAll(".pen:empty")) if (message) holder.append(pen(message, holder));
}

function pen(message, holder) {
  const box = h("textarea", { rows: "2", "aria-label": "Edit message" });
  box.value = typed(message.text);
  const form = h("form.writing", {}, box,
    h("div.pen-buttons", {},
      h("button.block-button", { type: "button", data: { do: "edit-cancel" } }, "Cancel"),
      h("button.block-button.primary", { type: "submit" }, "Save")));
  form.addEventListener("submit", (event) => (event.preventDefault(), save(message, box)));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    save(message, box);
  });
  if (holder.closest("#replies") || !state.thread) requestAnimationFrame(() => box.focus());
  return form;
}

function save(message, box) {
  if (!box.value.trim()) return;
  once(`edit|${message.ts}`, async () => {
    try {
      await post("edit", { channel: state.channel, ts: message.ts, user: state.me, text: wire(box.value.trim()) });
      update({ editing: null });
      await refresh();
    } catch (error) {
      notice(error.message);
    }
  });
}
