"""A workspace to begin with: three scripted agents, a workflow over them, and comments that teach."""

from __future__ import annotations

import shlex
from pathlib import Path

from trunkline.errors import Misuse

_HUB = """\
# What the hub is called on its card, and how it is set. Everything here is optional.
name: {name}
description: A fleet to begin with.
# The agent that takes a message that names no skill and no agent.
helm: writer
# Any setting of `trunkline config show --server`; durations may be written as 30s, 10m or 2h.
settings:
  retention: 7d
"""
_AGENTS = """\
# The agents of this hub. A file that is changed here is read again within five seconds.
# An agent is somewhere else (url), or a piece of Python that the hub runs itself (import).
agents:
  - name: writer
    # ${{MOCKS_URL}} is where the hub serves mocks.yaml. Put the address of a real agent here,
    # for example https://writer.example, with api_key_env: NAME for a key from the environment.
    url: ${{MOCKS_URL}}/writer
    description: Drafts short texts.
    skills:
      - {{id: draft, description: Writes a first version}}
  - name: reviewer
    url: ${{MOCKS_URL}}/reviewer
    skills:
      - {{id: review, description: Says what is wrong with a text, tags: [text]}}
  - name: approver
    url: ${{MOCKS_URL}}/approver
    skills:
      - {{id: approve, description: Asks a person before it says yes}}
  # A workflow is an agent too: this one has the writer draft, the reviewer look, and asks a person.
  - name: publisher
    workflow: workflows/publish.yaml
  # - name: here
  #   import: my_module:agent        # my_module.py beside this file
"""
_MOCKS = """\
# Scripted agents for development: the hub runs them beside itself, under ${{MOCKS_URL}}/NAME.
# They answer by the first rule that fits, and keep their tasks in mocks.jsonl, so that the hub may be killed.
# With `deduplicates` a message that comes twice is done once. Delete this file when all your agents are real.
agents:
  - name: writer
    deduplicates: true
    agent:
      name: Writer
      skills: [{{id: draft, description: Writes a first version}}]
    otherwise: {{stream: ["A first version", " of what", " you asked for."]}}
  - name: reviewer
    deduplicates: true
    agent:
      name: Reviewer
      skills: [{{id: review, description: Says what is wrong with a text}}]
    rules:
      - when: {{contains: slow}}
        reply: {{text: "It took me a while, and it reads well.", delay: 5}}
    otherwise: It reads well.
  - name: approver
    deduplicates: true
    agent:
      name: Approver
      skills: [{{id: approve, description: Asks a person before it says yes}}]
    otherwise: {{ask: "May this go out?", then: Approved.}}
"""
_KEYS = """\
# Who may call the hub. While no key is named here or by --key, everybody on this machine may do everything.
# keys:
#   ci:
#     env: CI_KEY                        # the variable that holds the key; the key itself never stands here
#     scopes: [tasks:read, tasks:write]  # answer opens the inbox, admin everything of its tenant
keys: {{}}
"""
_CEREMONY = """\
# Work that is asked for by the clock: five fields of cron, in UTC unless a timezone is given.
name: Morning draft
schedule: "0 7 * * 1-5"
skill: draft
targets: [writer]
"""
_WORKFLOW = """\
# What the agent `publisher` does, node by node; `trunkline flow graph` draws it. Filters are those of jq.
document:
  schema: https://agent-workflow.dev/schemas/workflow-definition.json
  name: publish
  version: 1.0.0
  description: Drafts a text, has it reviewed, and asks a person before it goes out.
state_schema:
  type: object
  properties:
    text: {{type: string}}
    draft: {{type: string}}
    review: {{type: string}}
    approved: {{type: boolean}}
nodes:
  - {{id: start, type: start}}
  - id: write
    type: agent_delegate
    config: {{agent_id: writer, protocol: a2a, input_mapping: {{task: {{jq: .text}}}}}}
    retry: {{max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2}}
  - id: keep
    type: set_state
    config: {{assignments: {{draft: {{jq: .text}}}}}}
  - id: look
    type: agent_delegate
    config: {{agent_id: reviewer, protocol: a2a, input_mapping: {{task: {{jq: .draft}}}}}}
  - id: note
    type: set_state
    config: {{assignments: {{review: {{jq: .text}}}}}}
  - id: ask
    type: interrupt
    config:
      prompt: May this go out?
      resume_schema:
        type: object
        required: [approved]
        properties: {{approved: {{type: boolean}}}}
  - id: end
    type: end
    config: {{output_mapping: "{{draft, review, approved}}"}}
edges:
  - {{source: __start__, target: start}}
  - {{source: start, target: write}}
  - {{source: write, target: keep}}
  - {{source: keep, target: look}}
  - {{source: look, target: note}}
  - {{source: note, target: ask}}
  - {{source: ask, target: end}}
"""
_FILES = {
    "hub.yaml": _HUB,
    "agents.yaml": _AGENTS,
    "mocks.yaml": _MOCKS,
    "keys.yaml": _KEYS,
    "ceremonies/morning.yaml": _CEREMONY,
    "workflows/publish.yaml": _WORKFLOW,
}


def write_workspace(workspace: Path) -> list[Path]:
    """Write a workspace that runs; gives its files.

    Raises:
        Misuse: one of them is there already, or cannot be written.
    """
    paths = [workspace / name for name in _FILES]
    known = [str(path) for path in paths if path.exists()]
    if known:
        text = f"{', '.join(known)} already exists; name another folder, or serve this one"
        raise Misuse(text, hint=shlex.join(["trunkline", "hub", str(workspace)]))
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, _FILES.values(), strict=True):
            path.write_text(text.format(name=workspace.resolve().name), encoding="utf-8")
    except OSError as error:
        raise Misuse(f"{workspace} cannot be written: {error.strerror}") from None
    return paths
