"""Snippets that a newcomer can paste: the same call by our command line and client, curl and other SDKs."""

from __future__ import annotations

COMMANDS = """\
{trunkline} send {base} "echo hello"
{trunkline} stream {base} "count 10 100"
{trunkline} list {base}
"""

CLIENT = """\
# with the Python that trunkline is installed in
import asyncio
from trunkline import Client

async def main():
    async with Client("{base}") as client:
        result = await client.send("echo hello")
        print(result.text)
        async for update in client.stream("count 5 100"):
            print(update.text, end="", flush=True)

asyncio.run(main())
"""

CURL = """\
curl -s {base}/a2a -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d '{{
  "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
  "params": {{"message": {{"messageId": "m1", "role": "ROLE_USER", "parts": [{{"text": "echo hello"}}]}}}}}}'

curl -N {base}/message:stream -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\
  -d '{{"message": {{"messageId": "m2", "role": "ROLE_USER", "parts": [{{"text": "count 10 200"}}]}}}}'

curl -s {base}/tasks -H 'A2A-Version: 1.0'
"""

SDK = """\
# pip install a2a-sdk
import asyncio
from a2a.client import create_client
from a2a.helpers import get_stream_response_text, new_text_message
from a2a.types import Role, SendMessageRequest

async def main():
    client = await create_client("{base}")
    message = new_text_message("count 5 100", role=Role.ROLE_USER)
    async for update in client.send_message(SendMessageRequest(message=message)):
        # The last update of an answer tells the whole of it.
        if not update.artifact_update.last_chunk:
            print(get_stream_response_text(update))

asyncio.run(main())
"""

JAVASCRIPT = """\
// npm install @a2a-js/sdk
import {{ Role }} from "@a2a-js/sdk";
import {{ ClientFactory }} from "@a2a-js/sdk/client";

const client = await new ClientFactory().createFromUrl("{base}");
const parts = [{{ content: {{ $case: "text", value: "count 5 100" }} }}];
const message = {{ messageId: crypto.randomUUID(), role: Role.ROLE_USER, parts }};
for await (const update of client.sendMessageStream({{ message }})) {{
  console.log(JSON.stringify(update.payload));
}}
"""

SNIPPETS = (
    ("bash", COMMANDS),
    ("python", CLIENT),
    ("bash", CURL),
    ("python", SDK),
    ("javascript", JAVASCRIPT),
)
