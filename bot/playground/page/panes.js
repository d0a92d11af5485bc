/* The places of the page: the side bar, the channel, the thread, and the strip under the thread. */
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { article, avatar, conversation } from "./message.js";
import { channelName, directMessage, isDirect, person, rooms, state, visible } from "./state.js";
import { ROLES } from "./words.js";

const $ = (id) => document.getElementById(id);

export function people() {
  return state.scene.people.filter((one) => one.role !== "bot");
}

export function drawPlaces() {
  $("team").textContent = state.scene.team.name || "Local Slack";
  fill($("channels"), rooms().map(place));
  fill($("direct"), state.me && place({ id: directMessage(state.me), name: channelName(directMessage(state.me)) }));
  fill($("people"), people().map(someone));
  fill($("model"), h("span.dot", { class: state.connection }), h("span", {}, modelWords()));
  $("note").textContent = state.scene.note ?? "";
}

function place(channel) {
  const current = channel.id === state.channel;
  return h("li", { key: channel.id }, h("button.place", {
    type: "button",
    class: state.unread.has(channel.id) ? "unread" : null,
    "aria-current": current ? "page" : null,
    data: { do: "channel", id: channel.id },
  }, icon(isDirect(channel.id) ? "at" : "hash"), h("span", {}, channel.name),
    state.unread.has(channel.id) && h("span.news", { "aria-label": "unread" })));
}

function someone(one) {
  const chosen = one.id === state.me;
  const role = ROLES[one.role] ?? { label: one.role, rights: "" };
  return h("li", { key: one.id, role: "none" }, h("button.someone", {
    type: "button",
    role: "radio",
    "aria-checked": String(chosen),
    tabindex: chosen ? "0" : "-1",
    title: [one.title, role.rights].filter(Boolean).join(" · "),
    data: { do: "become", id: one.id },
  }, avatar({ ...one, name: one.real_name || one.name }, "small"),
    h("span.someone-words", {}, h("b", {}, one.real_name || one.name), h("small", {}, one.title || role.rights)),
    h("span.role", { data: { role: one.role } }, role.label)));
}

function modelWords() {
  const model = state.scene.model === "scripted" ? "Scripted model" : (state.scene.model ?? "");
  const link = { live: "live", connecting: "connecting …", reconnecting: "reconnecting …" }[state.connection];
  return [model, link].filter(Boolean).join(" · ");
}

export function drawChannel() {
  const channel = state.scene.channels.find((one) => one.id === state.channel);
  fill($("channel-title"), icon(isDirect(state.channel) ? "at" : "hash"), channelName(state.channel) ?? "");
  $("channel-topic").textContent = channel?.topic ?? "";
  const messages = visible(state.messages);
  scroll($("timeline"), state.channel, state.messages === null ? [] : [welcome(), ...conversation(messages)]);
}

function welcome() {
  const direct = isDirect(state.channel);
  const bot = person(state.scene.bot.id)?.real_name;
  return h("div.welcome", { key: "welcome" },
    h("h3", {}, direct ? `Your conversation with ${bot}` : `This is the very beginning of #${channelName(state.channel)}`),
    h("p", {}, direct ? "Write" : ["Mention ", h("span.mention.bot", {}, `@${bot}`)],
      " to start an investigation. Then reply in its thread to redirect it, or press Stop: both work while it is working."));
}

export function drawThread() {
  $("thread-title").textContent = "Thread";
  $("thread-place").textContent = state.channel ? `${isDirect(state.channel) ? "" : "#"}${channelName(state.channel)}` : "";
  const [root, ...rest] = visible(state.replies);
  if (!root) {
    scroll($("replies"), state.thread, state.replies === null ? [] : [h("p.empty", { key: "gone" }, "This thread has no messages any more.")]);
    return;
  }
  const count = rest.filter((one) => !one.ephemeral).length;
  scroll($("replies"), state.thread, [
    article(root, { inThread: true }),
    count > 0 && h("div.count", { key: "count", role: "separator" }, h("span", {}, count === 1 ? "1 reply" : `${count} replies`)),
    ...conversation(rest, { inThread: true }).filter((node) => !node.classList.contains("day")),
  ]);
  drawStatus();
}

/* The strip is always there, so that the thread doesn't move when the bot begins or ends to work. */
function drawStatus() {
  const bot = person(state.scene.bot.id)?.real_name;
  const status = state.status?.status ?? null;
  const working = status === "processing";
  const words = { processing: state.stopping ? "Stopping …" : `${bot} is working …`, suspended: `${bot} is waiting for an approval, a timer or a job.` }[status];
  const me = person(state.me)?.real_name;
  fill($("status"),
    words && h("span.working", { key: "words", class: working ? "moving" : null }, working && h("span.dots", { "aria-hidden": "true" }, h("i"), h("i"), h("i")), words),
    !words && h("span.quiet", { key: "quiet" }, me ? `You write as ${me}` : ""),
    working && state.status.native_stop !== false && h("button.native-stop", { key: "stop", type: "button", disabled: state.stopping, data: { do: "native-stop" } }, icon("stop"), "Stop"));
}

/* At the end of a conversation the reader stays at the end, at the beginning of a message that is longer than the
 * pane; elsewhere nothing moves, and a pill tells of news.
 */
const NEAR_PX = 80;
const seen = new Map();
const reading = new Set(); // panes that show the beginning of a long message, until the next one comes

function scroll(scroller, subject, nodes) {
  const list = scroller.querySelector(".messages");
  const fresh = seen.get(scroller.id) !== subject;
  const near = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
  const [before, last] = [list.childElementCount, list.lastElementChild];
  fill(list, nodes);
  roving(list);
  if (nodes.length) seen.set(scroller.id, subject);
  const newest = list.lastElementChild;
  const arrived = newest !== last;
  if (fresh || arrived) reading.delete(scroller.id);
  if (fresh || (near && !reading.has(scroller.id))) toEnd(scroller, !fresh && arrived && newest);
  else if (list.childElementCount > before) scroller.classList.add("news-below");
}

function toEnd(scroller, newest) {
  scroller.scrollTop = scroller.scrollHeight;
  if (!newest || newest.offsetHeight <= scroller.clientHeight) return;
  reading.add(scroller.id);
  scroller.scrollTop += newest.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
}

export function watchScrolling(scroller) {
  const near = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
  scroller.addEventListener("scroll", () => near() && scroller.classList.remove("news-below"), { passive: true });
  let stuck = true;
  scroller.addEventListener("scroll", () => (stuck = near()), { passive: true });
  new ResizeObserver(() => stuck && (scroller.scrollTop = scroller.scrollHeight)).observe(scroller);
}

/* One message of a list can be reached with Tab, the arrows go to the others. */
function roving(list) {
  const articles = [...list.querySelectorAll("article")];
  if (!articles.some((one) => one.tabIndex === 0)) articles.at(-1)?.setAttribute("tabindex", "0");
}

export function moveBetween(current, direction) {
  const articles = [...current.closest(".messages").querySelectorAll("article")];
  const next = articles[articles.indexOf(current) + direction];
  if (!next) return;
  current.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}
