/* The page of the local Slack: state in `state.js`, truth from `live.js`, drawing in the views. This file joins
 * them: the address, the verbs of buttons, the keyboard, and the first steps after loading.
 *
 * A button says what it does with `data-do`; one listener looks the verb up here. That is why a redrawn card
 * needs no listeners of its own.
 */
import { get, post } from "./api.js";
import { Composer } from "./composer.js";
import { announce, confirmed, notice, sheet } from "./dialogs.js";
import { clickKey } from "./elements.js";
import { drawLedger } from "./ledger.js";
import { forget, listen, poll, refresh } from "./live.js";
import { keyOf, sender } from "./message.js";
import { typed, unescape } from "./mrkdwn.js";
import { drawChannel, drawPlaces, drawThread, moveBetween, people, watchScrolling } from "./panes.js";
import { placePen } from "./pen.js";
import { directMessage, isBot, isDirect, once, person, rooms, state, subscribe, update, visible } from "./state.js";

const $ = (id) => document.getElementById(id);
const LONG_PRESS_MS = 450;
const fail = (error) => notice(error.message);

// -- places ---------------------------------------------------------------------------------------------------

/** Show a place and put it into the address, so that Back goes where the reader came from. */
function go({ channel = state.channel, thread = state.thread, view = state.view }) {
  const address = `#/${[channel, thread ?? "-", view].join("/")}`;
  if (location.hash !== address) history.pushState(null, "", address);
  arrive();
}

function arrive() {
  const [, channel, thread, view] = location.hash.split("/");
  const known = channel === directMessage(state.me) || rooms().some((one) => one.id === channel);
  const next = known ? channel : rooms()[0]?.id;
  const root = known && thread && thread !== "-" ? thread : null;
  if (next !== state.channel) {
    state.messages = null;
    forget("messages");
  }
  if (root !== state.thread || next !== state.channel) {
    Object.assign(state, { replies: null, status: null, ledger: null, stopping: false, editing: null });
    forget("replies", "status", "ledger");
  }
  state.unread.delete(next);
  update({ channel: next, thread: root, view: view || "channel", ledgerOpen: state.ledgerOpen || view === "ledger" });
  refresh();
}

// -- verbs ----------------------------------------------------------------------------------------------------

const find = (ts) => [...(state.replies ?? []), ...(state.messages ?? [])].find((one) => one.ts === ts);

const VERBS = {
  channel: ({ id }) => go({ channel: id, thread: null, view: "channel" }),
  thread: ({ ts }) => openThread(ts),
  "close-thread": () => go({ thread: null, view: "channel" }),
  view: ({ view }) => (view === "ledger" ? toggleLedger(true) : go({ view })),
  ledger: () => toggleLedger(!state.ledgerOpen),
  become: ({ id }) => become(id),
  action: (data, button) => click(data, button),
  react: (data) => react(data),
  edit: ({ ts }) => update({ editing: ts }),
  "edit-cancel": () => update({ editing: null }),
  delete: ({ ts }) => remove(ts),
  dismiss: ({ ts }) => (state.dismissed.add(ts), update()),
  copy: ({ ts }) => navigator.clipboard?.writeText(typed(find(ts)?.text)),
  "native-stop": () => nativeStop(),
  "hide-moves": () => (remember("movesHidden", true), update({ movesHidden: true })),
  skip: () => $(state.view === "thread" ? "thread-composer" : "channel-composer").querySelector("textarea").focus(),
  bottom: (_, button) => {
    const scroller = button.closest(".pane").querySelector(".scroller");
    scroller.scrollTop = scroller.scrollHeight;
  },
};

function openThread(ts) {
  go({ thread: ts, view: "thread" });
  const box = $("thread-composer").querySelector("textarea");
  if (matchMedia("(hover: hover)").matches) requestAnimationFrame(() => box.focus()); // it is drawn by then
}

function toggleLedger(open) {
  remember("ledgerOpen", open);
  state.ledgerOpen = open;
  go({ view: open ? "ledger" : "thread" });
}

function become(id) {
  remember("me", id);
  update({ me: id, editing: null });
  if (isDirect(state.channel)) go({ channel: directMessage(id), thread: null, view: "channel" });
}

/** A second click takes the reaction back, as in Slack. */
function react({ ts, name }) {
  const mine = find(ts)?.reactions?.some((one) => one.name === name && one.users?.includes(state.me));
  return send(`react|${ts}|${name}`, mine ? "unreact" : "react", { channel: state.channel, ts, user: state.me, name });
}

/** One thing that a person does, then the truth. */
function send(key, what, body) {
  return once(key, async () => {
    try {
      await post(what, body);
    } catch (error) {
      fail(error);
    }
    await refresh();
  });
}

async function click({ ts, actionId, value, url, confirm }) {
  if (confirm && !(await confirmed(JSON.parse(confirm)))) return;
  if (url && URL.canParse(url) && /^https?:/i.test(url)) window.open(url, "_blank", "noopener");
  const body = { channel: state.channel, message_ts: ts, action_id: actionId, user: state.me };
  await send(clickKey(ts, actionId, value), "action", value === undefined ? body : { ...body, value });
}

async function remove(ts) {
  const message = find(ts);
  const whose = isBot(message?.user) ? `${sender(message).name}'s message` : "this message";
  const question = { title: "Delete message", text: `Delete ${whose}? This can't be undone.`, confirm: "Delete", style: "danger" };
  if (await confirmed(question)) await send(`delete|${ts}`, "delete", { channel: state.channel, ts, user: state.me });
}

function nativeStop() {
  update({ stopping: true });
  return send("native-stop", "native_stop", { channel: state.channel, thread_ts: state.thread, user: state.me });
}

/** What is meant for the bot opens its thread: that is where the next thing happens. */
function sentInChannel(ts, { channel, text }) {
  if (isDirect(channel) || text.includes(`<@${state.scene.bot.id}>`)) openThread(ts);
  else refresh();
}

// -- drawing --------------------------------------------------------------------------------------------------

const composers = [
  new Composer($("channel-composer"), "channel", sentInChannel, fail),
  new Composer($("thread-composer"), "thread", () => refresh(), fail),
];

function draw() {
  const app = $("app");
  app.dataset.view = state.view;
  app.classList.toggle("with-thread", state.thread !== null);
  app.classList.toggle("with-ledger", state.thread !== null && state.ledgerOpen);
  $("ledger-toggle").setAttribute("aria-pressed", String(state.ledgerOpen));
  for (const tab of document.querySelectorAll(".tabs [data-view]")) drawTab(tab);
  $("reconnecting").hidden = state.connection !== "reconnecting";
  drawPlaces();
  drawChannel();
  drawThread();
  drawLedger();
  for (const composer of composers) composer.draw();
  placePen(find(state.editing));
  tellNews();
}

function drawTab(tab) {
  const current = tab.dataset.view === state.view;
  tab.setAttribute("aria-current", current ? "page" : "false");
  tab.disabled = ["thread", "ledger"].includes(tab.dataset.view) && !state.thread;
}

const told = new Set();
let toldPlace = null;

function tellNews() {
  const shown = visible([...(state.messages ?? []), ...(state.replies ?? [])]);
  const place = `${state.channel}/${state.thread}`;
  const news = shown.filter((one) => !told.has(keyOf(one)));
  for (const one of news) told.add(keyOf(one));
  const last = news.at(-1);
  if (last && toldPlace === place && last.user !== state.me) announce(`${sender(last).name}: ${unescape(last.text ?? "")}`.slice(0, 200));
  if (state.messages !== null && (state.replies !== null || state.thread === null)) toldPlace = place;
}

// -- hands ----------------------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-do]");
  if (target && !target.disabled) Promise.resolve(VERBS[target.dataset.do]?.({ ...target.dataset }, target)).catch(fail);
});

document.addEventListener("change", (event) => {
  const { change, ts, actionId } = event.target.dataset ?? {};
  if (change !== "choose" || !event.target.value) return;
  const { value } = event.target;
  event.target.value = "";
  click({ ts, actionId, value }).catch(fail);
});

document.addEventListener("keydown", (event) => {
  const article = event.target.closest?.("article");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && article === event.target) (event.preventDefault(), moveBetween(article, step));
  else if (step && event.target.matches?.("[role=radio]")) radio(event, step);
  else if (event.key === "Escape" && !document.querySelector("dialog[open]")) escape();
});

function radio(event, step) {
  event.preventDefault();
  const group = [...event.target.closest("[role=radiogroup]").querySelectorAll("[role=radio]")];
  const next = group[(group.indexOf(event.target) + step + group.length) % group.length];
  next.focus();
  become(next.dataset.id);
}

function escape() {
  if (state.editing) update({ editing: null });
  else if (state.ledgerOpen && state.thread) toggleLedger(false);
  else if (state.thread) VERBS["close-thread"]();
}

let press = null;
const release = () => clearTimeout(press);

document.addEventListener("pointerdown", (event) => {
  const article = event.target.closest("article.message:not(.ephemeral):not(.tombstone)");
  if (event.pointerType !== "touch" || !article || event.target.closest("button, a, select, textarea")) return;
  const message = find(article.dataset.ts);
  press = setTimeout(() => message && sheet(message, $("replies").contains(article)), LONG_PRESS_MS);
});
for (const end of ["pointerup", "pointercancel", "pointermove"]) document.addEventListener(end, release);
document.addEventListener("scroll", release, true);
document.addEventListener("contextmenu", (event) => {
  if (matchMedia("(hover: none)").matches && event.target.closest("article")) event.preventDefault();
});

// -- first steps ----------------------------------------------------------------------------------------------

function remember(name, value) {
  localStorage.setItem(`pilothouse.${name}`, JSON.stringify(value));
}

function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`pilothouse.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

async function loadScene() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 8_000)) {
    try {
      return await get("scene");
    } catch {
      update({ connection: "reconnecting" });
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** `/?channel=C1&thread_ts=1.2`, where permalinks lead to. */
function followPermalink() {
  const query = new URLSearchParams(location.search);
  if (!query.has("channel")) return;
  const place = [query.get("channel"), query.get("thread_ts") ?? "-", query.has("thread_ts") ? "thread" : "channel"];
  history.replaceState(null, "", `/#/${place.join("/")}`);
}

async function start() {
  subscribe(draw);
  state.scene = await loadScene();
  const first = people().find((one) => one.role === "engineer") ?? people()[0];
  state.me = person(recall("me", null))?.id ?? first?.id ?? null;
  state.ledgerOpen = recall("ledgerOpen", false);
  state.movesHidden = recall("movesHidden", false);
  for (const id of ["timeline", "replies"]) watchScrolling($(id));
  addEventListener("popstate", arrive);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
  followPermalink();
  arrive();
  listen();
  poll();
}

start();
