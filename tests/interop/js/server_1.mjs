// An agent on @a2a-js/sdk 1.x, in 1.0 and (by its compatibility layer) 0.3: node server_1.mjs
import { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from "a2a-js-1";
import { AgentEvent, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore } from "a2a-js-1/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from "a2a-js-1/server/express";
import { Obedient, serve } from "./obey.mjs";

const TYPES = { task: Task, message: Message, statusUpdate: TaskStatusUpdateEvent, artifactUpdate: TaskArtifactUpdateEvent };
const legacyCompat = { enabled: true };

const executor = new Obedient({
  say: (name, { final, ...given }) => AgentEvent[name](TYPES[name].fromJSON(given)),
  spell: (state) => `TASK_STATE_${state.toUpperCase().replace("-", "_")}`,
  text: (part) => Message.toJSON({ parts: [part] }).parts[0].text ?? "",
  agent: "ROLE_AGENT",
});
executor.part = (text) => ({ text });
executor.kinded = (_, given) => given;
executor.json = (message) => Message.toJSON(message);

serve((app, base) => {
  const both = ["1.0", "0.3"].flatMap((protocolVersion) => [
    { url: `${base}/rpc`, protocolBinding: "JSONRPC", protocolVersion },
    { url: `${base}/rest`, protocolBinding: "HTTP+JSON", protocolVersion },
  ]);
  const card = AgentCard.fromJSON({
    name: "Official in JavaScript",
    description: "Does what the first word says",
    version: "1.0.0",
    supportedInterfaces: both,
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "obey", name: "Obey", description: "Obeys", tags: ["interop"] }],
  });
  const requestHandler = new DefaultRequestHandler(
    card, new InMemoryTaskStore(), executor, undefined, new InMemoryPushNotificationStore(), undefined, card,
  );
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat };
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
});
