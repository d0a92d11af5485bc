"""What must survive: every table, every constraint. The migrations in `storage/migrations` build exactly this.

    sessions    one Slack thread: its state, who may write to it (lease, epoch), its frozen prompt and tools
    messages    what arrived, what the policy said of it, and what became of it
    stops       the tombstones: a stop stays true, also for what starts later
    turns       one run of the agent, from a trigger to its settle
    attempts    one stretch of a turn on one worker, with the stamp of its cut
    entries     the history with the model, append-only
    evidence    whole outputs and pages as they were read, named by what they are: each is kept once
    calls       the audit of every tool call: recorded before it runs, its outcome after
    suspensions what a turn waits for while no worker holds it
    approvals   one request for one change: asked once, decided once
    settles     how a turn ended: exactly one row a turn
    cards       the progress message of a turn, as desired state: the newest wins
    outbox      everything else that we say in Slack, a row before it is a call
    pictures    what tools drew for people, kept with the result of their call
    costs       tokens and money of every model request, dropped ones too
    diagnoses   what operators should look at
    automation  what became of alerts and schedules
    repairs     every stitch of the suture: each is a fault further up
    leases      named rights that one process holds at a time: the writer, each sweep
    switches    what operators switched: paused

Times are seconds since the epoch by the database's clock. Slack timestamps are text of one width, so that they
compare as text. Partial indexes are written for both dialects side by side.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _one_of(column: str, values: str, *, nullable: bool = False) -> str:
    listed = ", ".join(f"'{value}'" for value in values.split())
    return f"{column} IN ({listed})" + (f" OR {column} IS NULL" if nullable else "")


sessions = Table(
    "sessions",
    metadata,
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
    CheckConstraint(_one_of("state", "idle running suspended waiting"), name="state"),
    CheckConstraint("(lease_owner IS NULL) = (lease_until IS NULL)", name="lease"),
    Index(
        "uq_sessions_thread",
        "team",
        "channel",
        "thread_ts",
        unique=True,
        sqlite_where=text("parent_turn_id IS NULL"),
        postgresql_where=text("parent_turn_id IS NULL"),
    ),
    Index("ix_sessions_channel_state", "channel", "state"),
)

messages = Table(
    "messages",
    metadata,
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
    CheckConstraint(_one_of("disposition", "start steer queue note control refuse ignore"), name="disposition"),
    CheckConstraint(_one_of("state", "waiting consumed withdrawn stopped refused ignored control"), name="state"),
    CheckConstraint("state <> 'consumed' OR turn_id IS NOT NULL", name="consumed_by"),
    Index("ix_messages_session_id_slack_ts", "session_id", "slack_ts"),
    Index(
        "ix_messages_waiting",
        "session_id",
        "disposition",
        sqlite_where=text("state = 'waiting'"),
        postgresql_where=text("state = 'waiting'"),
    ),
    Index("ix_messages_turn_id", "turn_id"),
)

stops = Table(
    "stops",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", String(40), ForeignKey("turns.id")),
    Column("level", String(8), nullable=False),
    Column("author", String(40), nullable=False),
    Column("source", String(20), nullable=False),
    Column("slack_ts", String(20), nullable=False),
    Column("arrived_at", Float, nullable=False),
    CheckConstraint(_one_of("level", "step task"), name="level"),
    Index("ix_stops_session_id_slack_ts", "session_id", "slack_ts"),
)

turns = Table(
    "turns",
    metadata,
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
    CheckConstraint(_one_of("state", "waiting running suspended settled"), name="state"),
    UniqueConstraint("session_id", "number"),
    Index(
        "uq_turns_one_unsettled",
        "session_id",
        unique=True,
        sqlite_where=text("state <> 'settled'"),
        postgresql_where=text("state <> 'settled'"),
    ),
)

attempts = Table(
    "attempts",
    metadata,
    Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("worker", String(80), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("ended", String(12)),
    Column("stamp", String(12)),
    CheckConstraint(_one_of("ended", "finished cut drained suspended crashed", nullable=True), name="ended"),
    CheckConstraint(_one_of("stamp", "steer drain dispatch await stop", nullable=True), name="stamp"),
    CheckConstraint("(ended IS NULL) = (ended_at IS NULL)", name="ended_at"),
)

entries = Table(
    "entries",
    metadata,
    Column("id", String(60), primary_key=True),
    Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("kind", String(12), nullable=False),
    Column("step", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    CheckConstraint(_one_of("kind", "user assistant results ladder mended condensed"), name="kind"),
    UniqueConstraint("session_id", "seq"),
    Index("ix_entries_turn_id", "turn_id"),
)

evidence = Table(
    "evidence",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("body", Text, nullable=False),
    Column("chars", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("url", Text),
    Column("taken_at", Float),
    Column("created_at", Float, nullable=False),
    CheckConstraint(_one_of("kind", "output page"), name="kind"),
    CheckConstraint("kind <> 'page' OR (url IS NOT NULL AND taken_at IS NOT NULL)", name="page"),
)

calls = Table(
    "calls",
    metadata,
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
    CheckConstraint(
        _one_of(
            "status",
            "open intent ok error timeout cancelled denied refused unknown interrupted not_run",
        ),
        name="status",
    ),
    CheckConstraint(_one_of("tier", "read write external unlisted"), name="tier"),
    UniqueConstraint("turn_id", "step", "position"),
    Index("ix_calls_session_id_call_id", "session_id", "call_id"),
)

suspensions = Table(
    "suspensions",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
    Column("kind", String(10), nullable=False),
    Column("until", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float),
    CheckConstraint(_one_of("kind", "approval timer job helper"), name="kind"),
    Index(
        "uq_suspensions_open",
        "turn_id",
        unique=True,
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    ),
)

approvals = Table(
    "approvals",
    metadata,
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
    CheckConstraint(_one_of("state", "open approved denied expired withdrawn stopped"), name="state"),
    CheckConstraint("(state = 'open') = (ended_at IS NULL)", name="ended_at"),
    CheckConstraint("state NOT IN ('approved', 'denied') OR decided_by IS NOT NULL", name="decided_by"),
    Index("ix_approvals_turn_id", "turn_id"),
    Index(
        "ix_approvals_open",
        "session_id",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
)

settles = Table(
    "settles",
    metadata,
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
        _one_of(
            "reason",
            "completed empty steered stopped_step cancelled dispatched awaiting timed_out failed abandoned",
        ),
        name="reason",
    ),
    CheckConstraint("(reason = 'completed') = (final_event_id IS NOT NULL)", name="final_event"),
    CheckConstraint(
        "(reason = 'failed') = (detail IS NOT NULL) AND ("
        + _one_of(
            "detail",
            "refused_by_model channel_archived outcome_unknown structural_400 provider internal",
            nullable=True,
        )
        + ")",
        name="detail",
    ),
)

cards = Table(
    "cards",
    metadata,
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
    CheckConstraint(_one_of("state", "open released"), name="state"),
    CheckConstraint(_one_of("sending", "post update", nullable=True), name="sending"),
    CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released"),
    Index(
        "ix_cards_open",
        "session_id",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
)

outbox = Table(
    "outbox",
    metadata,
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
        _one_of("kind", "answer notice ephemeral reaction direct status request rewrite picture"), name="kind"
    ),
    CheckConstraint(_one_of("state", "waiting sending sent failed dropped"), name="state"),
    Index(
        "ix_outbox_due",
        "priority",
        "id",
        sqlite_where=text("state IN ('waiting', 'sending')"),
        postgresql_where=text("state IN ('waiting', 'sending')"),
    ),
    Index("ix_outbox_turn_id", "turn_id"),
)

pictures = Table(
    "pictures",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
    Column("call_row", String(60), ForeignKey("calls.id"), nullable=False),
    Column("title", Text, nullable=False),
    Column("alt", Text, nullable=False),
    Column("png", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("ix_pictures_turn_id", "turn_id"),
)

costs = Table(
    "costs",
    metadata,
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
    Index("ix_costs_turn_id", "turn_id"),
)

diagnoses = Table(
    "diagnoses",
    metadata,
    Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
    Column("kind", String(24), nullable=False),
    Column("text", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

automation = Table(
    "automation",
    metadata,
    Column("turn_id", String(40), ForeignKey("turns.id"), primary_key=True),
    Column("source", String(20), nullable=False),
    Column("outcome", String(12), nullable=False),
    Column("evidence", Text),
    Column("created_at", Float, nullable=False),
    CheckConstraint(_one_of("outcome", "done no_output failed"), name="outcome"),
    CheckConstraint("(outcome = 'done') = (evidence IS NOT NULL)", name="evidence"),
)

repairs = Table(
    "repairs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("session_id", String(40), ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", String(40), ForeignKey("turns.id"), nullable=False),
    Column("rule", String(8), nullable=False),
    Column("path", String(200), nullable=False),
    Column("what", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("turn_id", "rule", "path"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("owner", String(80), nullable=False),
    Column("until", Float, nullable=False),
)

switches = Table(
    "switches",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", String(200), nullable=False),
    Column("changed_by", String(80), nullable=False),
    Column("changed_at", Float, nullable=False),
)
