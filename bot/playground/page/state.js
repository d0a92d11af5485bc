/* What the page knows, in one value. Views read it, `update` changes it, and whoever subscribed draws again
 * with the next frame. Nothing here knows the server or the document.
 */

export const state = {
  scene: { team: { name: "" }, channels: [], people: [], bot: { id: "", name: "" }, model: "", note: "" },
  me: null,
  channel: null,
  thread: null, // ts of the root whose thread is open
  view: "channel", // what a phone shows: places | channel | thread | ledger
  ledgerOpen: false,
  messages: null, // the channel, oldest first; null while loading
  replies: null, // the thread, root first
  status: null, // Slack's agent session of the open thread
  ledger: null,
  connection: "connecting", // connecting | live | reconnecting
  movesHidden: false,
  stopping: false, // the native Stop was clicked and the session has not answered yet
  busy: new Set(), // keys of clicks under way
  editing: null, // ts of the message under the pen
  dismissed: new Set(), // ephemerals that were waved away
  unread: new Set(), // channels with news
};

const listeners = new Set();
let scheduled = false;

export function subscribe(listener) {
  listeners.add(listener);
}

export function update(patch = {}) {
  Object.assign(state, patch);
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const listener of listeners) listener();
  });
}

/** Mark a click as under way while `work` runs; a second click on the same thing meanwhile does nothing. */
export async function once(key, work) {
  if (state.busy.has(key)) return;
  state.busy.add(key);
  update();
  try {
    await work();
  } finally {
    state.busy.delete(key);
    update();
  }
}

/** Somebody by id: {id, name, real_name, role, title}; the bot has the role "bot". */
export function person(id) {
  const { people, bot } = state.scene;
  if (id && id === bot.id) return { ...bot, real_name: bot.real_name || bot.name, role: "bot" };
  return people.find((one) => one.id === id) ?? null;
}

export const isBot = (id) => id === state.scene.bot.id;

export const isDirect = (id) => (id ?? "").startsWith("D");

/** The conversation of `user` with the bot: it always exists, and its id is the user's with a D in front. */
export function directMessage(user) {
  return user ? `D${user.slice(1)}` : null;
}

export function rooms() {
  return state.scene.channels.filter((one) => !isDirect(one.id));
}

export function channelName(id) {
  if (isDirect(id)) return person(state.scene.bot.id)?.real_name ?? id;
  return state.scene.channels.find((one) => one.id === id)?.name ?? id;
}

export function visible(messages) {
  return (messages ?? []).filter(
    (one) => !one.ephemeral || (one.ephemeral_user === state.me && !state.dismissed.has(one.ts)),
  );
}
