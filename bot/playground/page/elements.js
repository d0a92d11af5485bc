/* The interactive elements of blocks. Each carries what a click must say in its data attributes; while a click
 * is under way the element is disabled, so that one click is one click.
 */
import { h } from "./dom.js";
import { plain } from "./mrkdwn.js";
import { state } from "./state.js";

export function element(one, message) {
  return (ELEMENTS[one.type] ?? unknown)(one, message);
}

const ELEMENTS = {
  button: (one, message) => button(one, message, plain(one.text)),
  icon_button: (one, message) => button(one, message, plain(one.text)),
  feedback_buttons: feedback,
  static_select: select,
  overflow: select,
};

function unknown(one) {
  return h("span.unknown", {}, `Element of type ${one.type ?? "?"}`);
}

/** One name for one click: the same button of the same message. */
export function clickKey(ts, actionId, value) {
  return ["action", ts, actionId, value ?? ""].join("|");
}

function button(one, message, label) {
  const busy = state.busy.has(clickKey(message.ts, one.action_id, one.value));
  return h("button.block-button", {
    type: "button",
    class: ["primary", "danger"].includes(one.style) ? one.style : null,
    disabled: busy,
    "aria-busy": busy ? "true" : null,
    "aria-label": one.accessibility_label,
    key: `${one.action_id}:${one.value ?? ""}`,
    data: {
      do: "action", ts: message.ts, actionId: one.action_id, value: one.value, url: one.url,
      confirm: one.confirm ? JSON.stringify(one.confirm) : null,
    },
  }, label);
}

function feedback(one, message) {
  const choice = (option, glyph) => {
    const words = (option?.text?.text ?? "").replace(glyph, "").trim();
    return button({ ...option, action_id: one.action_id }, message, [h("span.emoji", { "aria-hidden": "true" }, glyph), words && ` ${words}`]);
  };
  return h("span.feedback", {}, choice(one.positive_button, "👍"), choice(one.negative_button, "👎"));
}

function select(one, message) {
  const busy = state.busy.has(clickKey(message.ts, one.action_id, ""));
  const first = h("option", { value: "" }, one.placeholder ? one.placeholder.text : "More …");
  const options = (one.options ?? []).map((option) => h("option", { value: option.value }, plain(option.text)));
  return h("select.block-select", {
    disabled: busy,
    "aria-label": one.placeholder?.text ?? "More actions",
    key: one.action_id,
    data: { change: "choose", ts: message.ts, actionId: one.action_id },
  }, first, options);
}
