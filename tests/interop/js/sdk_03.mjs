// @a2a-js/sdk 0.3: node sdk_03.mjs BASE_URL HOOK_URL
import { randomUUID } from "node:crypto";
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "a2a-js-03/client";
import { play } from "./scenes.mjs";

const HOOK = process.argv[3];

function parts(text, { data, image }) {
  if (data) return [{ kind: "data", data }];
  if (image) return [{ kind: "file", file: { bytes: image, mimeType: "image/png" } }];
  return [{ kind: "text", text }];
}

function params(text, how) {
  const { taskId, contextId, receipt, push } = how;
  const configuration = { blocking: !receipt, ...(push && { pushNotificationConfig: { url: HOOK } }) };
  const message = { kind: "message", messageId: randomUUID(), role: "user", parts: parts(text, how), taskId, contextId };
  return { message, configuration };
}

async function connect(base, transport, binding) {
  const options = { transports: [transport], preferredTransports: [binding] };
  const client = await new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, options)).createFromUrl(base);
  // The client asks the card first and would not send these; its transport does.
  const bare = client.transport;
  const config = (taskId) => ({ taskId, pushNotificationConfig: { id: "c", url: HOOK } });
  return {
    card: () => client.getAgentCard(),
    send: (text, how = {}) => client.sendMessage(params(text, how)),
    stream: (text, how = {}) => client.sendMessageStream(params(text, how)),
    get: (id, historyLength, serviceParameters) => client.getTask({ id, historyLength }, { serviceParameters }),
    cancel: (id) => client.cancelTask({ id }),
    subscribe: (id) => client.resubscribeTask({ id }),
    extendedCard: () => bare.getExtendedAgentCard(),
    push: {
      set: (id) => bare.setTaskPushNotificationConfig(config(id)),
      get: (id) => bare.getTaskPushNotificationConfig({ id, pushNotificationConfigId: "c" }),
      list: (id) => bare.listTaskPushNotificationConfig({ id }),
      delete: (id) => bare.deleteTaskPushNotificationConfig({ id, pushNotificationConfigId: "c" }),
    },
  };
}

const base = process.argv[2];
await play("0.3-JSONRPC", await connect(base, new JsonRpcTransportFactory(), "JSONRPC"));
await play("0.3-HTTP+JSON", await connect(base, new RestTransportFactory(), "HTTP+JSON"));
process.exit(0);
