/* "What the ledger says": each turn of the open thread with its state, stamp, settle, card, messages, calls and
 * attempts, and every word of it explained.
 */
import { fill, h } from "./dom.js";
import { person, state } from "./state.js";
import { duration, precise } from "./time.js";
import { CARD_STATES, DETAILS, DISPOSITIONS, LEVELS, REASONS, STAMPS, TURN_STATES } from "./words.js";

const $ = (id) => document.getElementById(id);

export function drawLedger() {
  const { ledger } = state;
  if (!state.thread) return fill($("ledger-body"), hint("Open a thread to see what the ledger says about it."));
  if (!ledger) return fill($("ledger-body"), hint("Reading the ledger …"));
  const turns = ledger.turns ?? [];
  const stops = ledger.stops ?? [];
  if (!turns.length && !stops.length) return fill($("ledger-body"), hint("No turn in this thread yet. Mention the bot to start one."));
  return fill($("ledger-body"),
    stops.length > 0 && h("section.stops", { key: "stops" }, h("h3", {}, "Stops"), h("ul", {}, stops.map(stop))),
    turns.map((turn, index) => turnCard(turn, index + 1, index === turns.length - 1)).reverse());
}

const hint = (words) => h("p.empty", { key: words }, words);

const nameOf = (id) => person(id)?.real_name ?? id ?? "somebody";

function stop(one, index) {
  return h("li", { key: `${one.ts ?? index}` }, h("b", {}, nameOf(one.author)), ` ${LEVELS[one.level] ?? one.level} `, h("time", {}, precise(one.at ?? one.ts)));
}

function turnCard(turn, number, newest) {
  const calls = turn.calls ?? [];
  const messages = turn.messages ?? [];
  const attempts = turn.attempts ?? [];
  return h("section.turn", { key: turn.id, class: turn.state, "aria-label": `Turn ${number}` },
    h("header", {}, h("h3", {}, `Turn ${number}`), outcome(turn), h("code.id", {}, turn.id)),
    turn.asked_text && h("p.asked", {}, h("b", {}, nameOf(turn.asked_by)), ` “${turn.asked_text}”`),
    h("p.why", {}, explain(turn)),
    facts(turn),
    part("Messages", messages.length, newest, h("ul.rows", {}, messages.map(message))),
    part("Calls", calls.length, newest, h("ul.rows", {}, calls.map(call))),
    part("Attempts", attempts.length, false, h("ul.rows", {}, attempts.map(attempt))));
}

function outcome(turn) {
  const word = turn.state === "settled" ? (turn.reason ?? "settled") : turn.state;
  return h("span.outcome", { data: { word }, title: TURN_STATES[turn.state] }, word);
}

function explain(turn) {
  if (turn.state !== "settled") return TURN_STATES[turn.state] ?? "";
  const detail = turn.detail ? ` (${DETAILS[turn.detail] ?? turn.detail})` : "";
  return `${REASONS[turn.reason] ?? ""}${detail}`;
}

function facts(turn) {
  const settled = turn.state === "settled";
  const rows = [
    ["state", turn.state, ""],
    ["stamp", turn.stamp ?? "none", STAMPS[turn.stamp] ?? (settled ? "it ended without a cut" : "not cut so far")],
    ["reason", turn.reason ?? "not settled", turn.detail ?? ""],
    ["final event", turn.final_event_id ?? "none", turn.final_event_id ? "the entry of the answer" : "only a completed turn has one"],
    ["card", turn.card_state ?? "none", CARD_STATES[turn.card_state] ?? ""],
    ["steps, cost", `${turn.steps ?? 0}, ${cost(turn.cost_usd)}`, ""],
  ];
  return h("dl.facts", {}, rows.map(([name, value, words]) =>
    h("div", { key: name }, h("dt", {}, name), h("dd", {}, h("b", {}, String(value)), words && h("small", {}, words)))));
}

function cost(usd) {
  return usd === null || usd === undefined ? "no cost yet" : `$${Number(usd).toFixed(4)}`;
}

function part(title, count, open, list) {
  if (!count) return null;
  return h("details", { open, key: title }, h("summary", {}, title, h("span.number", {}, String(count))), list);
}

function message(one, index) {
  return h("li.row", { key: `message:${index}` },
    h("div.row-head", {},
      h("span.disposition", { data: { word: one.disposition }, title: DISPOSITIONS[one.disposition] }, one.disposition ?? "?"),
      h("b", {}, nameOf(one.author)),
      h("small", {}, [one.source, one.marker !== "none" && one.marker].filter(Boolean).join(" · "))),
    one.text && h("p.row-text", {}, one.text),
    h("p.row-why", {}, DISPOSITIONS[one.disposition] ?? "", one.policy_row && [" by row ", h("code", {}, one.policy_row)], one.state && h("span.state", {}, one.state)));
}

const FINE = new Set(["ok", "done", "succeeded", "completed", "closed", "success"]);
const MOVING = new Set(["open", "running", "started", "pending"]);

function call(one, index) {
  const kind = FINE.has(one.status) ? "fine" : MOVING.has(one.status) ? "moving" : "other";
  return h("li.row.call", { key: `call:${one.step}:${index}` },
    h("div.row-head", {}, h("span.step", { title: "step" }, String(one.step)), h("code", {}, one.tool),
      h("span.call-status", { data: { kind } }, one.status), h("small", {}, duration(one.duration_ms))),
    one.input_summary && h("p.row-text.mono", {}, one.input_summary));
}

function attempt(one) {
  return h("li.row", { key: `attempt:${one.number}` },
    h("div.row-head", {}, h("span.step", {}, String(one.number)), h("span", {}, one.end ?? "running"), h("small", {}, one.worker ?? ""), one.stamp && h("code", {}, one.stamp)),
    one.stamp && h("p.row-why", {}, STAMPS[one.stamp] ?? ""));
}

