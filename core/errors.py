"""Every error that Pilothouse raises on purpose, by who must act on it.

PilothouseError
+-- ModelError            the loop acts: wait, climb the ladder, or settle
|   +-- ModelBusy             429, 529 or overloaded in the stream; may carry `retry_after_s`
|   +-- ModelStreamBroken     the stream ended without `message_stop`
|   +-- ModelUnavailable      no answer: connection, time-out, 5xx
|   +-- ModelRefusedHistory   a structural 400: never retried with the same body
|   +-- ModelMisconfigured    key, model name or permission: the operator acts
+-- IllegalMove           a bug: a state machine was asked for a move that its table does not have
+-- LostLease             this worker may not write any more; somebody else does
+-- Stopped               a stop in scope is committed: nothing may start
+-- Overtaken             a write may not start any more: its text tells the model why
+-- ToolError             the model acts: its text is the tool's result
+-- OutcomeUnknown        a person acts: a write was sent and nobody knows whether it happened
+-- BadInput              a person or the operator acts: one sentence that says what to do
"""

from __future__ import annotations


class PilothouseError(Exception):
    """The root of the tree."""


class ModelError(PilothouseError):
    """The model gave no usable answer."""


class ModelBusy(ModelError):
    """The model is overloaded or we are over its limits. `retry_after_s` is what it asked for, if it did."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelStreamBroken(ModelError):
    """The stream ended before `message_stop`: nothing of it counts."""


class ModelUnavailable(ModelError):
    """The model could not be reached or answered with a server error."""


class ModelRefusedHistory(ModelError):
    """The API refuses this history. The same body will be refused for ever; the text is the API's own."""


class ModelMisconfigured(ModelError):
    """The key, the model's name or a permission is wrong."""


class IllegalMove(PilothouseError):
    """A state machine was asked for a move that its table does not have; nothing was changed."""


class LostLease(PilothouseError):
    """The lease of this session is not ours any more; nothing was written."""


class Stopped(PilothouseError):
    """A stop in scope is committed; nothing was started."""


class Overtaken(PilothouseError):
    """What was said or decided since forbids this write; nothing was started. The text says why, for the model."""


class ToolError(PilothouseError):
    """A tool could not do what was asked; the text goes to the model as the result."""


class OutcomeUnknown(PilothouseError):
    """A tool sent a change and did not learn how it ended; the text says what to check. Never tried again."""


class BadInput(PilothouseError):
    """Something that a person or an operator gave can't be used; the text says what to do."""
