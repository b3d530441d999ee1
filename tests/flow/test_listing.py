"""Lists of runs by what they wait for."""

from __future__ import annotations

from tests.flow.documents import DELEGATE, flow_document
from tests.flow.engine.test_run import Coder, flows_with
from tests.flow.workbench import CALLER
from trunkline.flow.listing import RunListQuery
from trunkline.log.events import Status
from trunkline.run.executor import Verdict, Work
from trunkline.wire.types import Message, Part, Role, TaskState


class WantsLogin(Coder):
    """Works once somebody has logged in."""

    async def run(self, work: Work) -> Verdict:
        asked = Message(f"{work.state.task_id}:q", role=Role.AGENT, parts=(Part(text="Log in."),))
        await work.ask(Status(TaskState.AUTH_REQUIRED, asked))
        return await super().run(work)


async def test_a_run_whose_agent_wants_a_login_is_listed_as_interrupted() -> None:
    async with flows_with(WantsLogin()) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "add"}, execution_id="e")
        assert (await handle.wait()).node_id == "implement"
        page = await flows.port.list(CALLER, RunListQuery(phase="interrupted"))
        assert [(run.execution_id, run.phase) for run in page.executions] == [("e", "interrupted")]
