// @a2a-js/sdk 1.x, speaking 1.0 and (by its compatibility layer) 0.3: node sdk_1.mjs BASE_URL HOOK_URL
import { randomUUID } from "node:crypto";
import {
  AgentCard, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, StreamResponse,
  SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
} from "a2a-js-1";
import { AgentCardResolver, ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "a2a-js-1/client";
import { play } from "./scenes.mjs";

const HOOK = process.argv[3];
const legacyCompat = { enabled: true };

function part(text, { data, image }) {
  if (data) return { data };
  return image ? { raw: image, mediaType: "image/png" } : { text };
}

function request(text, how) {
  const { taskId, contextId, receipt, push } = how;
  const configuration = { returnImmediately: !!receipt, ...(push && { taskPushNotificationConfig: { url: HOOK } }) };
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [part(text, how)], taskId, contextId };
  return SendMessageRequest.fromJSON({ message, configuration });
}

async function* plain(events) {
  for await (const event of events) yield StreamResponse.toJSON(event);
}

async function connect(base, version, binding, polling) {
  const card = await AgentCardResolver.default.resolve(base);
  // The SDK takes 1.0 where it is offered; an agent of yesterday would offer 0.3 alone.
  card.supportedInterfaces = card.supportedInterfaces.filter((one) => one.protocolVersion === version);
  const transports = [new JsonRpcTransportFactory({ legacyCompat }), new RestTransportFactory({ legacyCompat })];
  const options = { transports, preferredTransports: [binding], clientConfig: { polling } };
  return new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, options)).createFromAgentCard(card);
}

async function actor(base, version, binding) {
  const client = await connect(base, version, binding, false);
  // Whether a send waits is a setting of this client, not of the call.
  const receipts = await connect(base, version, binding, true);
  // The client asks the card first and would not send these; its transport does.
  const bare = client.transport;
  const headers = (more) => ({ serviceParameters: { "A2A-Version": version, ...more } });
  const one = (taskId) => ({ tenant: "", taskId, id: "c" });
  return {
    card: async () => AgentCard.toJSON(await client.getAgentCard()),
    send: async (text, how = {}) => {
      const result = await (how.receipt ? receipts : client).sendMessage(request(text, how));
      return "messageId" in result ? Message.toJSON(result) : Task.toJSON(result);
    },
    stream: (text, how = {}) => plain(client.sendMessageStream(request(text, how))),
    get: async (id, historyLength, more) => Task.toJSON(await bare.getTask(GetTaskRequest.fromJSON({ id, historyLength }), headers(more))),
    cancel: async (id) => Task.toJSON(await client.cancelTask(CancelTaskRequest.fromJSON({ id }))),
    subscribe: (id) => plain(client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }))),
    list: version === "1.0" && (async (query) => ListTasksResponse.toJSON(await client.listTasks(ListTasksRequest.fromJSON(query)))),
    extendedCard: () => bare.getExtendedAgentCard({ tenant: "" }, headers()),
    push: {
      set: (taskId) => bare.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON({ taskId, id: "c", url: HOOK }), headers()),
      get: (taskId) => bare.getTaskPushNotificationConfig(one(taskId), headers()),
      list: (taskId) => bare.listTaskPushNotificationConfig({ tenant: "", taskId, pageSize: 0, pageToken: "" }, headers()),
      delete: (taskId) => bare.deleteTaskPushNotificationConfig(one(taskId), headers()),
    },
  };
}

const base = process.argv[2];
for (const version of ["1.0", "0.3"]) {
  for (const binding of ["JSONRPC", "HTTP+JSON"]) await play(`${version}-${binding}`, await actor(base, version, binding));
}
process.exit(0);
