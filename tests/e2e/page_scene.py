"""What the page is shown in its tests: one incident thread as the bot would have left it, and its ledger."""

from __future__ import annotations

import time
from typing import Any

Json = dict[str, Any]

CHANNEL = "C0INCIDENT"
ENGINEER, ON_CALL, GUEST, PILOT = "U0ENGINEER", "U0ONCALL", "U0GUEST", "U0PILOT"

SCENE: Json = {
    "team": {"id": "T0LOCAL", "name": "Local Slack"},
    "channels": [
        {"id": CHANNEL, "name": "incident-checkout", "topic": "Checkout answers 5xx. Coordination here, please."},
        {"id": "C0RANDOM", "name": "random", "topic": "Everything else"},
    ],
    "people": [
        {
            "id": ON_CALL,
            "name": "olive",
            "real_name": "Olive Tanaka",
            "role": "on_call",
            "title": "On call for checkout",
        },
        {
            "id": ENGINEER,
            "name": "emil",
            "real_name": "Emil Brandt",
            "role": "engineer",
            "title": "Payments engineer",
        },
        {"id": GUEST, "name": "gus", "real_name": "Gus Marten", "role": "guest", "title": "Contractor"},
    ],
    "bot": {"id": PILOT, "name": "Pilothouse"},
    "model": "scripted",
    "note": "Everything between this page and the model is the real product.",
}


def button(text: str, action_id: str, style: str | None = None, value: str = "turn-2") -> Json:
    made = {"type": "button", "text": {"type": "plain_text", "text": text}, "action_id": action_id, "value": value}
    return made | ({"style": style} if style else {})


def mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text}


def running_card(step: int, doing: str) -> list[Json]:
    """The card of a turn at work."""
    return [
        {"type": "section", "text": mrkdwn(f":mag: *Investigating* for <@{ON_CALL}>\n{doing}")},
        {"type": "context", "elements": [mrkdwn(f"step {step} of 8"), mrkdwn("12 s"), mrkdwn("$0.021")]},
        {
            "type": "actions",
            "elements": [button("Stop step", "stop_step", "danger"), button("Cancel task", "cancel_task")],
        },
    ]


REDIRECTED = [
    {"type": "section", "text": mrkdwn(f":leftwards_arrow_with_hook: Redirected by <@{ON_CALL}>, continued below")},
    {"type": "context", "elements": [mrkdwn("2 steps · 9 s · $0.014")]},
]

ANSWER = """## The gateway, not web-3

Checkout answers 5xx since **14:05**, right after the gateway configuration `gw-2217` was rolled out.

1. The share of 5xx rose from 0.2 % to **31 %** within a minute of the rollout.
2. All failing requests carry `upstream connect error`, and *none* of them reached a checkout pod.
3. `web-3` looks busy because it retries: it is a symptom.

| time | event | 5xx |
|:-----|:------|----:|
| 14:04 | before | 0.2 % |
| 14:05 | `gw-2217` rolled out | 4.1 % |
| 14:06 | retries pile up on web-3 | 31 % |

```promql
sum(rate(http_requests_total{job="checkout",code=~"5.."}[5m]))
```

> Suggested: roll back `gw-2217`. Say the word and I ask for approval.
"""

FEEDBACK = {
    "type": "context_actions",
    "elements": [
        {
            "type": "feedback_buttons",
            "action_id": "feedback",
            "positive_button": {"text": {"type": "plain_text", "text": "👍 Helpful"}, "value": "good"},
            "negative_button": {"text": {"type": "plain_text", "text": "👎 Not helpful"}, "value": "bad"},
        }
    ],
}

ALERT = {
    "color": "#e01e5a",
    "title": "CheckoutErrorRateHigh",
    "title_link": "http://alertmanager.local/#/alerts",
    "text": "5xx of *checkout* above 5 % for 2 min",
    "fields": [
        {"title": "Severity", "value": "critical", "short": True},
        {"title": "Cluster", "value": "eu-1", "short": True},
    ],
    "footer": "Prometheus eu-1",
}


class Canvas:
    """Timestamps counted from the start of the incident, so that a test run always shows a fresh one."""

    def __init__(self) -> None:
        self.base = int(time.time()) - 420

    def ts(self, second: float) -> str:
        return f"{self.base + int(second)}.{int(second * 10) % 10:01d}00100"


def incident(canvas: Canvas) -> list[Json]:
    """The channel and one thread of it, as `conversations.replies` gives them."""
    ts = canvas.ts
    root = ts(60)
    bot = {"user": PILOT, "bot_id": "B0PILOT", "thread_ts": root}
    return [
        {
            "ts": ts(0),
            "bot_id": "B0MONITOR",
            "username": "Alertmanager",
            "subtype": "bot_message",
            "text": "",
            "attachments": [ALERT],
        },
        {"ts": ts(20), "user": ON_CALL, "text": "I see it too. Looks like `web-3` is *struggling* :eyes:"},
        {
            "ts": ts(28),
            "user": ON_CALL,
            "text": "Errors &lt; 5 % on the other hosts, see <https://grafana.local/d/checkout|the dashboard>",
        },
        {
            "ts": root,
            "user": ENGINEER,
            "thread_ts": root,
            "text": f"<@{PILOT}> checkout answers 5xx since 14:05, what is going on?",
            "reactions": [{"name": "eyes", "count": 1, "users": [PILOT]}],
        },
        bot | {"ts": ts(61), "text": "Redirected", "blocks": REDIRECTED},
        {
            "ts": ts(70),
            "user": ON_CALL,
            "thread_ts": root,
            "text": "don't look at that host, it's the gateway",
            "reactions": [{"name": "white_check_mark", "count": 1, "users": [PILOT]}],
        },
        bot
        | {
            "ts": ts(71),
            "text": "Investigating",
            "blocks": running_card(2, "Reading the rollout history of `gateway`"),
        },
        bot | {"ts": ts(80), "text": "It is the gateway", "blocks": [{"type": "markdown", "text": ANSWER}, FEEDBACK]},
        {
            "ts": ts(95),
            "user": PILOT,
            "bot_id": "B0PILOT",
            "thread_ts": root,
            "ephemeral": True,
            "ephemeral_user": GUEST,
            "text": f"You are a guest here, so I did not stop. <@{ON_CALL}> may.",
        },
        {
            "ts": ts(120),
            "user": GUEST,
            "text": "Is there anything I can do?",
            "edited": {"user": GUEST, "ts": ts(125)},
        },
    ]


def ledger() -> Json:
    """Two turns of the thread: one redirected, its successor at work."""
    calls = [
        {
            "step": 1,
            "tool": "prometheus_query",
            "status": "ok",
            "duration_ms": 412,
            "input_summary": 'sum(rate(http_requests_total{code=~"5.."}[5m]))',
        },
        {
            "step": 1,
            "tool": "loki_query",
            "status": "ok",
            "duration_ms": 1240,
            "input_summary": '{app="checkout"} |= "error"',
        },
        {
            "step": 1,
            "tool": "kubernetes_get",
            "status": "cancelled",
            "duration_ms": 2004,
            "input_summary": "pods on web-3",
        },
    ]
    first = {
        "id": "turn-1",
        "state": "settled",
        "stamp": "steer",
        "reason": "steered",
        "detail": None,
        "final_event_id": None,
        "card_state": "released",
        "asked_by": ENGINEER,
        "asked_text": "checkout answers 5xx since 14:05, what is going on?",
        "steps": 1,
        "cost_usd": 0.0142,
        "attempts": [{"number": 1, "worker": "worker-1", "end": "cut", "stamp": "steer"}],
        "messages": [
            {
                "author": ENGINEER,
                "text": "checkout answers 5xx since 14:05, what is going on?",
                "source": "mention",
                "marker": "none",
                "disposition": "start",
                "policy_row": "mention_starts",
                "state": "consumed",
            }
        ],
        "calls": calls,
    }
    second = {
        "id": "turn-2",
        "state": "running",
        "stamp": None,
        "reason": None,
        "detail": None,
        "final_event_id": None,
        "card_state": "open",
        "asked_by": ON_CALL,
        "asked_text": "don't look at that host, it's the gateway",
        "steps": 2,
        "cost_usd": 0.021,
        "attempts": [{"number": 1, "worker": "worker-1", "end": None, "stamp": None}],
        "messages": [
            {
                "author": ON_CALL,
                "text": "don't look at that host, it's the gateway",
                "source": "reply",
                "marker": "none",
                "disposition": "steer",
                "policy_row": "participant_steers",
                "state": "consumed",
            }
        ],
        "calls": [
            {
                "step": 1,
                "tool": "kubernetes_rollout_history",
                "status": "running",
                "duration_ms": None,
                "input_summary": "deployment/gateway",
            }
        ],
    }
    return {"turns": [first, second], "stops": []}
