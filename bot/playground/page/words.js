/* The ledger's words, each explained in one line for somebody who sees them for the first time. */

export const TURN_STATES = {
  waiting: "Waiting for a worker.",
  running: "Working on it now.",
  suspended: "Waiting outside a worker: for an approval, a timer or a job.",
  settled: "Over. Exactly one row says how it ended.",
};

export const REASONS = {
  completed: "The model answered; the answer is in the history and in the thread.",
  empty: "The model ended without a word and every rung of the ladder stayed empty, so an honest summary was posted.",
  steered: "A person redirected it. It was cut at a safe point, and those words start the next turn. Cut is not empty: no ladder, no diagnosis.",
  stopped_step: "A person stopped this step. Nothing more starts until somebody writes; then it goes on from here.",
  cancelled: "A person ended the whole task, with everything that was queued or waiting.",
  dispatched: "It started helpers. Their reports start the next turn.",
  awaiting: "A helper asked its parent. The answer starts the next turn.",
  timed_out: "Its time or its steps were used up, and the last try for an answer failed as well.",
  failed: "Something went wrong that could not be retried. The detail says what.",
  abandoned: "It crashed three times and is not tried again.",
};

export const DETAILS = {
  refused_by_model: "the model refused",
  channel_archived: "the channel was archived",
  outcome_unknown: "a write has no known outcome: check before anything else",
  structural_400: "the model API refused the request as invalid",
  provider: "the model API did not recover in time",
  internal: "a fault of our own",
};

export const STAMPS = {
  steer: "cut because somebody redirected it",
  drain: "cut because the worker shuts down; another one goes on with the same turn",
  dispatch: "cut because helpers were started",
  await: "cut because a helper asked its parent",
  stop: "cut because somebody pressed the brake",
};

export const CARD_STATES = {
  open: "Its card is live.",
  released: "Its card has its final form.",
};

export const DISPOSITIONS = {
  start: "starts a turn",
  steer: "redirects the running turn",
  queue: "runs after this turn",
  note: "kept, and read with the next turn",
  control: "a brake or a decision: never shown to the model",
  refuse: "refused, visibly",
  ignore: "not for us",
};

export const LEVELS = { step: "stopped the step", task: "cancelled the task" };

export const ROLES = {
  on_call: { label: "On call", rights: "may ask, steer, stop and approve" },
  engineer: { label: "Engineer", rights: "may ask, steer and stop" },
  guest: { label: "Guest", rights: "may do nothing: see how it is refused" },
  external: { label: "External", rights: "belongs to another company and may do nothing" },
  member: { label: "Member", rights: "may ask, steer and stop" },
  bot: { label: "App", rights: "" },
};

/** Good first moves. Those of the thread show how it is steered and stopped. */
export const FIRST_MOVES = {
  channel: ["@{bot} checkout answers 5xx since 14:05, what is going on?"],
  direct: ["checkout answers 5xx since 14:05, what is going on?"],
  alert: ["@{bot} what is this?"],
  thread: ["don't look at that host, it's the gateway", "roll it back", "stop, wrong cluster", "刹车"],
};
