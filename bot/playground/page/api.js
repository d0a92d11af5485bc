/* The server's two planes: questions (GET) and what a person does (POST). A refusal is an Error whose message
 * is the server's own sentence.
 */

const TIMEOUT_MS = 20_000;

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch {
    throw new Error("The local Slack does not answer. Is `make demo` still running?");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error ?? `The local Slack answered ${response.status}.`);
  return body;
}

export function get(what, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return call(`/playground/${what}${text ? `?${text}` : ""}`);
}

export function post(what, body) {
  return call(`/playground/${what}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}
