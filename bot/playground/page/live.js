/* The bell and the round: the feed says that something changed, a poll every few seconds finds the truth even
 * if the bell was lost. Each question has at most one request in flight; a bell meanwhile asks once more after
 * it, so a storm of updates costs two requests. An answer for a place that was left is dropped.
 */
import { get } from "./api.js";
import { state, update } from "./state.js";

const POLL_MS = 3_000;
const BACKOFF_MS = { first: 500, most: 15_000, steady: 3_000 };

const flights = new Map();
const latest = new Map();

/* What can be asked: the path, what it depends on, and what is done with the answer. */
const QUESTIONS = {
  messages: { when: () => state.channel, query: () => ({ channel: state.channel }), take: (body) => ({ messages: body.messages }) },
  replies: { path: "messages", when: () => state.thread, query: place, take: (body) => ({ replies: body.messages }) },
  status: { when: () => state.thread, query: place, take: (body) => ({ status: body, stopping: state.stopping && body.status === "processing" }) },
  ledger: { when: () => state.thread && state.ledgerOpen, query: place, take: (body) => ({ ledger: body }) },
};

function place() {
  return { channel: state.channel, thread_ts: state.thread };
}

/** Ask again for some of the questions, by default for all that matter now. */
export function refresh(names = Object.keys(QUESTIONS)) {
  return Promise.all(names.map(ask));
}

async function ask(name) {
  const flight = flights.get(name);
  if (flight) {
    flight.again = true;
    return flight.done;
  }
  const mine = { again: false };
  flights.set(name, mine);
  mine.done = fly(name, mine);
  return mine.done;
}

async function fly(name, flight) {
  try {
    do {
      flight.again = false;
      await answer(name);
    } while (flight.again);
  } finally {
    flights.delete(name);
  }
}

async function answer(name) {
  const { path = name, when, query, take } = QUESTIONS[name];
  if (!when()) return;
  const asked = JSON.stringify(query());
  try {
    const body = await get(path, query());
    if (JSON.stringify(query()) !== asked) return;
    const fingerprint = asked + JSON.stringify(body);
    if (latest.get(name) === fingerprint) return;
    latest.set(name, fingerprint);
    update(take(body));
  } catch {
    if (JSON.stringify(query()) === asked) lost();
  }
}

/** Forget what was drawn for a place, because another one is shown now. */
export function forget(...names) {
  for (const name of names) latest.delete(name);
}

function lost() {
  if (state.connection === "live") update({ connection: "reconnecting" });
}

let failures = 0;

/** Keep the feed open for as long as the page lives. */
export function listen() {
  const feed = new EventSource("/playground/feed");
  let steady = 0;
  feed.onopen = () => {
    steady = setTimeout(() => (failures = 0), BACKOFF_MS.steady);
    update({ connection: "live" });
    refresh();
  };
  const changed = (event) => heard(JSON.parse(event.data));
  feed.onmessage = changed;
  feed.addEventListener("changed", changed);
  feed.onerror = () => {
    clearTimeout(steady);
    feed.close();
    update({ connection: "reconnecting" });
    setTimeout(listen, Math.min(BACKOFF_MS.first * 2 ** failures, BACKOFF_MS.most));
    failures += 1;
  };
}

function heard({ type, channel, thread_ts: thread }) {
  if (type !== "changed") return;
  if (channel && channel !== state.channel) {
    state.unread.add(channel);
    update();
    return;
  }
  const here = !thread || thread === state.thread;
  refresh(here ? undefined : ["messages"]);
}

export function poll() {
  setInterval(() => document.visibilityState === "visible" && refresh(), POLL_MS);
}
