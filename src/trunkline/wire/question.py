"""How a question and the answer to it are marked in the metadata of their messages. Pure."""

from __future__ import annotations

from typing import cast

from trunkline.wire.types import Message, Metadata

QUESTION_KEY = "trunkline.question"


def question_metadata(question_id: str) -> Metadata:
    """The metadata by which a message says which question it asks, or answers."""
    return {QUESTION_KEY: {"id": question_id}}


def answered_question(message: Message) -> str:
    """The id of the question that a message names; empty if it names none."""
    named: object = (message.metadata or {}).get(QUESTION_KEY)
    if isinstance(named, dict):
        named = cast("Metadata", named).get("id")
    return named if isinstance(named, str) else ""
