// What every client does with the demo agent, whatever its SDK. Each scene prints one JSON line with what
// the SDK gave, in the JSON of the version it speaks; the assertions are in test_js_sdk.py.

const UNKNOWN = "01980000-0000-7000-8000-000000000000";

export async function collect(events) {
  const seen = [];
  for await (const event of events) seen.push(event);
  return seen;
}

async function poll(client, task) {
  while (!/completed/i.test(task.status.state)) task = await client.get(task.id);
  return task;
}

// A stream wraps the error it was sent; the cause is what the agent said.
async function refusal(call) {
  try {
    await call();
  } catch (error) {
    const told = error.cause ?? error;
    return { type: told.constructor.name, message: told.message };
  }
  return { type: "none" };
}

const scenes = {
  card: (client) => client.card(),
  send: (client) => client.send("echo hello"),
  receipt: async (client) => {
    const first = await client.send("sleep 0.1", { receipt: true });
    return { first, last: await poll(client, first) };
  },
  history: async (client) => {
    const { id } = await client.send("echo history");
    return { none: await client.get(id, 0), one: await client.get(id, 1) };
  },
  stream: (client) => collect(client.stream("count 5 10")),
  resubscribe: async (client) => {
    let task;
    for await (const event of client.stream("count 20 20")) {
      task ??= event.task ?? event;
      if (event.artifactUpdate ?? event.artifact) break;
    }
    return collect(client.subscribe(task.id));
  },
  list: async (client) => {
    if (!client.list) return null;
    const { id, contextId } = await client.send("echo one");
    const second = await client.send("echo two", { contextId });
    const first = await client.list({ contextId, pageSize: 1 });
    const last = await client.list({ contextId, pageSize: 1, pageToken: first.nextPageToken });
    return { sent: [id, second.id], first, last };
  },
  cancel: async (client) => client.cancel((await client.send("sleep 60", { receipt: true })).id),
  question: async (client) => {
    const asked = await client.send("ask Which colour?");
    return { asked, done: await client.send("blue", { taskId: asked.id, contextId: asked.contextId }) };
  },
  question_streamed: async (client) => {
    const asked = await collect(client.stream("ask"));
    const { id } = asked[0].task ?? asked[0];
    return { asked, answered: await collect(client.stream("green", { taskId: id })) };
  },
  message: (client) => client.send("message hi"),
  message_streamed: (client) => collect(client.stream("message hi")),
  file: (client) => client.send("file"),
  data: (client) => client.send("data"),
  data_in: (client) => client.send("", { data: { a: 2, b: 3 } }),
  fail: (client) => client.send("fail no luck"),
  reject: (client) => client.send("reject not mine"),
  auth: (client) => client.send("auth Who are you?"),
  push: async (client) => {
    const { id } = await client.send("echo told", { push: true });
    const set = await client.push.set(id);
    const got = await client.push.get(id);
    const listed = await client.push.list(id);
    await client.push.delete(id);
    return { id, set, got, listed, left: await client.push.list(id) };
  },
  subscribe_finished: async (client) => {
    const { id } = await client.send("echo done");
    const events = [];
    const error = await refusal(async () => events.push(...(await collect(client.subscribe(id)))));
    return { error, events };
  },
  refusals: async (client) => {
    const { id } = await client.send("echo done");
    const calls = {
      get_unknown: () => client.get(UNKNOWN),
      cancel_unknown: () => client.cancel(UNKNOWN),
      send_unknown: () => client.send("hello", { taskId: UNKNOWN }),
      stream_unknown: () => collect(client.stream("hello", { taskId: UNKNOWN })),
      subscribe_unknown: () => collect(client.subscribe(UNKNOWN)),
      cancel_finished: () => client.cancel(id),
      send_finished: () => client.send("more", { taskId: id }),
      stream_finished: () => collect(client.stream("more", { taskId: id })),
      push_set_unknown: () => client.push.set(UNKNOWN),
      push_get_unknown: () => client.push.get(UNKNOWN),
      push_get_nothing: () => client.push.get(id),
      extended_card: () => client.extendedCard(),
      version: () => client.get(id, undefined, { "A2A-Version": "9.9" }),
      media_type: () => client.send("", { image: "iVBORw0KGgo=" }),
    };
    const told = {};
    for (const [name, call] of Object.entries(calls)) told[name] = await refusal(call);
    return told;
  },
};

export async function play(wire, client) {
  for (const [scene, act] of Object.entries(scenes)) {
    let line;
    try {
      line = { wire, scene, result: await act(client) };
    } catch (error) {
      line = { wire, scene, broke: String(error.stack ?? error) };
    }
    console.log(JSON.stringify(line));
  }
}
