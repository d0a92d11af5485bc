/* Times for reading. A ts stays a string; only its whole seconds are used here. */

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const PRECISE = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long" });

/** From a Slack ts, seconds since the epoch, or an ISO date. */
export function moment(value) {
  const seconds = Number(value);
  return Number.isNaN(seconds) ? new Date(value) : new Date(seconds * 1000);
}

const readable = (value) => value !== null && value !== undefined && !Number.isNaN(moment(value).getTime());

export const clock = (value) => (readable(value) ? CLOCK.format(moment(value)) : "");
export const precise = (value) => (readable(value) ? PRECISE.format(moment(value)) : "");
export const day = (value) => moment(value).toDateString();
export const full = (value) => `${sinceDay(value)} at ${precise(value)}`;

export function sinceDay(value) {
  const now = new Date();
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1);
  if (day(value) === now.toDateString()) return "Today";
  return day(value) === yesterday.toDateString() ? "Yesterday" : DAY.format(moment(value));
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
