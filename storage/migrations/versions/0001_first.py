"""Everything that the first version keeps."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        Column("name", String(80), primary_key=True),
        Column("owner", String(80), nullable=False),
        Column("until", Float, nullable=False),
    )
    op.create_table(
        "sessions",
        Column("id", String(40), primary_key=True),
        Column("team", String(20), nullable=False),
        Column("channel", String(20), nullable=False),
        Column("thread_ts", String(20), nullable=False),
        Column("parent_turn_id", String(40)),
        Column("state", String(12), nullable=False),
        Column("lease_owner", String(80)),
        Column("lease_until", Float),
        Column("epoch", Integer, nullable=False, server_default=text("0")),
        Column("next_seq", Integer, nullable=False, server_default=text("1")),
        Column("next_turn", Integer, nullable=False, server_default=text("1")),
        Column("version", Integer, nullable=False, server_default=text("1")),
        Column("model", String(80)),
        Column("system", Text),
        Column("tools", Text),
        Column("fingerprint", String(64)),
        Column("context_read", Boolean, nullable=False, server_default=text("false")),
        Column("created_at", Float, nullable=False),
        CheckConstraint("(lease_owner IS NULL) = (lease_until IS NULL)", name="lease"),
        CheckConstraint("state IN ('idle', 'running', 'suspended', 'waiting')", name="state"),
    )
    op.create_index("ix_sessions_channel_state", "sessions", ["channel", "state"])
    op.create_index(
        "uq_sessions_thread",
        "sessions",
        ["team", "channel", "thread_ts"],
        unique=True,
        sqlite_where=text("parent_turn_id IS NULL"),
        postgresql_where=text("parent_turn_id IS NULL"),
    )
    op.create_table(
        "switches",
        Column("name", String(40), primary_key=True),
        Column("value", String(200), nullable=False),
        Column("changed_by", String(80), nullable=False),
        Column("changed_at", Float, nullable=False),
    )
    op.create_table(
        "turns",
        Column("id", String(40), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("number", Integer, nullable=False),
        Column("state", String(12), nullable=False),
        Column("source", String(20), nullable=False),
        Column("asked_by", String(40), nullable=False),
        Column("asked_text", Text, nullable=False),
        Column("newest_ts", String(20), nullable=False),
        Column("first_at", Float, nullable=False),
        Column("start_after", Float, nullable=False),
        Column("predecessor_id", String(40), ForeignKey("turns.id")),
        Column("running_s", Float, nullable=False, server_default=text("0")),
        Column("rung", Integer, nullable=False, server_default=text("0")),
        Column("rung_cause", String(20)),
        Column("crashes", Integer, nullable=False, server_default=text("0")),
        Column("created_at", Float, nullable=False),
        UniqueConstraint("session_id", "number"),
        CheckConstraint("state IN ('waiting', 'running', 'suspended', 'settled')", name="state"),
    )
    op.create_index(
        "uq_turns_one_unsettled",
        "turns",
        ["session_id"],
        unique=True,
        sqlite_where=text("state <> 'settled'"),
        postgresql_where=text("state <> 'settled'"),
    )
    op.create_table(
        "attempts",
        Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("worker", String(80), nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("started_at", Float, nullable=False),
        Column("ended_at", Float),
        Column("ended", String(12)),
        Column("stamp", String(12)),
        CheckConstraint(
            "ended IN ('finished', 'cut', 'drained', 'suspended', 'crashed') OR ended IS NULL", name="ended"
        ),
        CheckConstraint("(ended IS NULL) = (ended_at IS NULL)", name="ended_at"),
        CheckConstraint("stamp IN ('steer', 'drain', 'dispatch', 'await', 'stop') OR stamp IS NULL", name="stamp"),
    )
    op.create_table(
        "automation",
        Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
        Column("source", String(20), nullable=False),
        Column("outcome", String(12), nullable=False),
        Column("evidence", Text),
        Column("created_at", Float, nullable=False),
        CheckConstraint("(outcome = 'done') = (evidence IS NOT NULL)", name="evidence"),
        CheckConstraint("outcome IN ('done', 'no_output', 'failed')", name="outcome"),
    )
    op.create_table(
        "evidence",
        Column("id", String(64), primary_key=True),
        Column("kind", String(8), nullable=False),
        Column("body", Text, nullable=False),
        Column("chars", Integer, nullable=False),
        Column("digest", String(64), nullable=False),
        Column("url", Text),
        Column("taken_at", Float),
        Column("created_at", Float, nullable=False),
        CheckConstraint("kind <> 'page' OR (url IS NOT NULL AND taken_at IS NOT NULL)", name="page"),
        CheckConstraint("kind IN ('output', 'page')", name="kind"),
    )
    op.create_table(
        "calls",
        Column("id", String(60), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("step", Integer, nullable=False),
        Column("position", Integer, nullable=False),
        Column("call_id", String(120), nullable=False),
        Column("tool", String(200), nullable=False),
        Column("tier", String(10), nullable=False),
        Column("status", String(12), nullable=False),
        Column("arguments", Text, nullable=False),
        Column("input_summary", Text, nullable=False),
        Column("output_summary", Text),
        Column("output", Text),
        Column("evidence_id", String(64), ForeignKey("evidence.id")),
        Column("links", Text, nullable=False, server_default=text("'[]'")),
        Column("started_at", Float),
        Column("ended_at", Float),
        Column("duration_ms", Float),
        UniqueConstraint("turn_id", "step", "position"),
        CheckConstraint(
            "status IN ('open', 'intent', 'ok', 'error', 'timeout', 'cancelled', 'denied', "
            "'refused', 'unknown', 'interrupted', 'not_run')",
            name="status",
        ),
        CheckConstraint("tier IN ('read', 'write', 'external', 'unlisted')", name="tier"),
    )
    op.create_index("ix_calls_session_id_call_id", "calls", ["session_id", "call_id"])
    op.create_table(
        "cards",
        Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("channel", String(20), nullable=False),
        Column("thread_ts", String(20), nullable=False),
        Column("message_ts", String(20)),
        Column("state", String(10), nullable=False),
        Column("sending", String(10)),
        Column("sending_at", Float),
        Column("lookups", Integer, nullable=False, server_default=text("0")),
        Column("sent_version", Integer, nullable=False, server_default=text("0")),
        Column("sent_hash", String(64)),
        Column("sent_at", Float),
        Column("reposts", Integer, nullable=False, server_default=text("0")),
        Column("tries", Integer, nullable=False, server_default=text("0")),
        Column("not_before", Float, nullable=False, server_default=text("0")),
        Column("error", Text),
        Column("fallback", Text),
        Column("opened_at", Float, nullable=False),
        Column("released_at", Float),
        CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released"),
        CheckConstraint("sending IN ('post', 'update') OR sending IS NULL", name="sending"),
        CheckConstraint("state IN ('open', 'released')", name="state"),
    )
    op.create_index(
        "ix_cards_open",
        "cards",
        ["session_id"],
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    )
    op.create_table(
        "costs",
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("step", Integer, nullable=False),
        Column("model", String(80), nullable=False),
        Column("input_tokens", Integer, nullable=False),
        Column("output_tokens", Integer, nullable=False),
        Column("cache_read_tokens", Integer, nullable=False),
        Column("cache_write_tokens", Integer, nullable=False),
        Column("estimated", Boolean, nullable=False),
        Column("usd", Float, nullable=False),
    )
    op.create_index("ix_costs_turn_id", "costs", ["turn_id"])
    op.create_table(
        "diagnoses",
        Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
        Column("kind", String(24), nullable=False),
        Column("text", Text, nullable=False),
        Column("created_at", Float, nullable=False),
    )
    op.create_table(
        "entries",
        Column("id", String(60), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("seq", Integer, nullable=False),
        Column("kind", String(12), nullable=False),
        Column("step", Integer, nullable=False),
        Column("body", Text, nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("created_at", Float, nullable=False),
        UniqueConstraint("session_id", "seq"),
        CheckConstraint("kind IN ('user', 'assistant', 'results', 'ladder', 'mended', 'condensed')", name="kind"),
    )
    op.create_index("ix_entries_turn_id", "entries", ["turn_id"])
    op.create_table(
        "messages",
        Column("id", String(40), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("dedupe_key", String(200), nullable=False),
        Column("source", String(20), nullable=False),
        Column("marker", String(20), nullable=False),
        Column("who", String(20), nullable=False),
        Column("author", String(40), nullable=False),
        Column("text", Text, nullable=False),
        Column("slack_ts", String(20), nullable=False),
        Column("target_ts", String(20)),
        Column("files", Text, nullable=False, server_default=text("'[]'")),
        Column("disposition", String(12), nullable=False),
        Column("policy_row", String(80), nullable=False),
        Column("state", String(12), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id")),
        Column("arrived_at", Float, nullable=False),
        UniqueConstraint("dedupe_key"),
        CheckConstraint("state <> 'consumed' OR turn_id IS NOT NULL", name="consumed_by"),
        CheckConstraint(
            "disposition IN ('start', 'steer', 'queue', 'note', 'control', 'refuse', 'ignore')", name="disposition"
        ),
        CheckConstraint(
            "state IN ('waiting', 'consumed', 'withdrawn', 'stopped', 'refused', 'ignored', 'control')", name="state"
        ),
    )
    op.create_index("ix_messages_session_id_slack_ts", "messages", ["session_id", "slack_ts"])
    op.create_index("ix_messages_turn_id", "messages", ["turn_id"])
    op.create_index(
        "ix_messages_waiting",
        "messages",
        ["session_id", "disposition"],
        sqlite_where=text("state = 'waiting'"),
        postgresql_where=text("state = 'waiting'"),
    )
    op.create_table(
        "outbox",
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("session_id", String(40), ForeignKey("sessions.id")),
        Column("turn_id", String(40), ForeignKey("turns.id")),
        Column("kind", String(16), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("dedupe_key", String(200), nullable=False),
        Column("part", Integer, nullable=False, server_default=text("0")),
        Column("channel", String(20), nullable=False),
        Column("thread_ts", String(20)),
        Column("target_ts", String(20)),
        Column("person", String(40)),
        Column("body", Text, nullable=False),
        Column("state", String(10), nullable=False),
        Column("tries", Integer, nullable=False, server_default=text("0")),
        Column("lookups", Integer, nullable=False, server_default=text("0")),
        Column("not_before", Float, nullable=False, server_default=text("0")),
        Column("sending_at", Float),
        Column("message_ts", String(20)),
        Column("error", Text),
        Column("created_at", Float, nullable=False),
        Column("ended_at", Float),
        UniqueConstraint("dedupe_key"),
        CheckConstraint(
            "kind IN ('answer', 'notice', 'ephemeral', 'reaction', 'direct', 'status', 'request', 'rewrite', "
            "'picture')",
            name="kind",
        ),
        CheckConstraint("state IN ('waiting', 'sending', 'sent', 'failed', 'dropped')", name="state"),
    )
    op.create_index(
        "ix_outbox_due",
        "outbox",
        ["priority", "id"],
        sqlite_where=text("state IN ('waiting', 'sending')"),
        postgresql_where=text("state IN ('waiting', 'sending')"),
    )
    op.create_index("ix_outbox_turn_id", "outbox", ["turn_id"])
    op.create_table(
        "pictures",
        Column("id", String(64), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("call_row", String(60), ForeignKey("calls.id"), nullable=False),
        Column("title", Text, nullable=False),
        Column("alt", Text, nullable=False),
        Column("png", LargeBinary, nullable=False),
        Column("created_at", Float, nullable=False),
    )
    op.create_index("ix_pictures_turn_id", "pictures", ["turn_id"])
    op.create_table(
        "repairs",
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("rule", String(8), nullable=False),
        Column("path", String(200), nullable=False),
        Column("what", Text, nullable=False),
        Column("created_at", Float, nullable=False),
        UniqueConstraint("turn_id", "rule", "path"),
    )
    op.create_table(
        "stops",
        Column("id", String(40), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id")),
        Column("level", String(8), nullable=False),
        Column("author", String(40), nullable=False),
        Column("source", String(20), nullable=False),
        Column("slack_ts", String(20), nullable=False),
        Column("arrived_at", Float, nullable=False),
        CheckConstraint("level IN ('step', 'task')", name="level"),
    )
    op.create_index("ix_stops_session_id_slack_ts", "stops", ["session_id", "slack_ts"])
    op.create_table(
        "suspensions",
        Column("id", String(40), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("kind", String(10), nullable=False),
        Column("until", Float, nullable=False),
        Column("created_at", Float, nullable=False),
        Column("ended_at", Float),
        CheckConstraint("kind IN ('approval', 'timer', 'job', 'helper')", name="kind"),
    )
    op.create_index(
        "uq_suspensions_open",
        "suspensions",
        ["turn_id"],
        unique=True,
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    )
    op.create_table(
        "approvals",
        Column("number", Integer, primary_key=True, autoincrement=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
        Column("suspension_id", String(40), ForeignKey("suspensions.id"), nullable=False),
        Column("call_row", String(60), ForeignKey("calls.id"), nullable=False),
        Column("digest", String(64), nullable=False),
        Column("preview", Text, nullable=False),
        Column("state", String(10), nullable=False),
        Column("expires_at", Float, nullable=False),
        Column("decided_by", String(40)),
        Column("reason", Text, nullable=False, server_default=text("''")),
        Column("message_ts", String(20)),
        Column("created_at", Float, nullable=False),
        Column("ended_at", Float),
        UniqueConstraint("call_row"),
        CheckConstraint(
            "state IN ('open', 'approved', 'denied', 'expired', 'withdrawn', 'stopped')",
            name="state",
        ),
        CheckConstraint("(state = 'open') = (ended_at IS NULL)", name="ended_at"),
        CheckConstraint("state NOT IN ('approved', 'denied') OR decided_by IS NOT NULL", name="decided_by"),
    )
    op.create_index("ix_approvals_turn_id", "approvals", ["turn_id"])
    op.create_index(
        "ix_approvals_open",
        "approvals",
        ["session_id"],
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    )
    op.create_table(
        "settles",
        Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
        Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
        Column("reason", String(16), nullable=False),
        Column("detail", String(24)),
        Column("final_event_id", String(60), ForeignKey("entries.id")),
        Column("ended_by", String(40)),
        Column("step", Integer, nullable=False),
        Column("known", Text, nullable=False, server_default=text("''")),
        Column("evidence", Text, nullable=False, server_default=text("'[]'")),
        Column("input_tokens", Integer, nullable=False),
        Column("output_tokens", Integer, nullable=False),
        Column("cost_usd", Float, nullable=False),
        Column("created_at", Float, nullable=False),
        CheckConstraint(
            "(reason = 'failed') = (detail IS NOT NULL) "
            "AND (detail IN ('refused_by_model', 'channel_archived', 'outcome_unknown', "
            "'structural_400', 'provider', 'internal') OR detail IS NULL)",
            name="detail",
        ),
        CheckConstraint("(reason = 'completed') = (final_event_id IS NOT NULL)", name="final_event"),
        CheckConstraint(
            "reason IN ('completed', 'empty', 'steered', 'stopped_step', 'cancelled', "
            "'dispatched', 'awaiting', 'timed_out', 'failed', 'abandoned')",
            name="reason",
        ),
    )


def downgrade() -> None:
    for table in (
        "approvals",
        "suspensions",
        "settles",
        "stops",
        "repairs",
        "pictures",
        "outbox",
        "messages",
        "entries",
        "diagnoses",
        "costs",
        "cards",
        "calls",
        "evidence",
        "automation",
        "attempts",
        "turns",
        "switches",
        "sessions",
        "leases",
    ):
        op.drop_table(table)
