"""A hub as a process, driven by the official client of the OpenAI API."""

from __future__ import annotations

from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from tests.harness import Agent
from tests.hub.test_hub import demo_hub

__all__ = ["demo_hub"]


def test_the_official_openai_client_talks_to_agents(demo_hub: Agent) -> None:
    with OpenAI(base_url=f"{demo_hub.base}/v1", api_key="none") as client:
        names = [model.id for model in client.models.list()]
        assert {"demo", "writer", "writer/draft", "approver/approve"} <= set(names)
        assert [client.models.retrieve(name).id for name in names] == names
        drafts = "A first version of what you asked for."
        for model in ("demo", "writer", "writer/draft"):
            said = client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": [{"type": "text", "text": "A note"}]}]
            )
            assert (said.choices[0].message.content, said.choices[0].finish_reason) == (drafts, "stop")
        with client.chat.completions.create(
            model="writer", messages=[{"role": "user", "content": "A note"}], stream=True
        ) as stream:
            chunks = list(stream)
        assert "".join([one.choices[0].delta.content or "" for one in chunks]) == drafts
        assert [one.choices[0].finish_reason for one in chunks] == [None] * (len(chunks) - 1) + ["stop"]
        asked = client.chat.completions.create(
            model="approver", messages=[{"role": "user", "content": "Send it"}]
        )
        assert asked.choices[0].message.content == "May this go out?"
        about: Any = asked.to_dict()["metadata"]
        assert about["taskState"] == "input-required"
        answered = client.chat.completions.create(
            model="approver",
            messages=[{"role": "user", "content": "yes"}],
            metadata={"taskId": about["taskId"], "contextId": about["contextId"]},
        )
        assert answered.choices[0].message.content == "Approved."
        with pytest.raises(NotFoundError) as refused:
            client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    # What 0.3 has below the same prefix is still there.
    assert demo_hub.http.get(f"{demo_hub.base}/v1/tasks/{about['taskId']}").json()["id"] == about["taskId"]
