// An agent on @a2a-js/sdk 0.3.x: node server_03.mjs
import { DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore } from "a2a-js-03/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from "a2a-js-03/server/express";
import { Obedient, serve } from "./obey.mjs";

const KINDS = { task: "task", message: "message", statusUpdate: "status-update", artifactUpdate: "artifact-update" };
const executor = new Obedient({
  say: (name, given) => ({ kind: KINDS[name], ...given }),
  spell: (state) => state,
  text: (part) => part.text ?? "",
  agent: "agent",
});
executor.part = (text) => ({ kind: "text", text });
executor.kinded = (kind, given) => ({ kind, ...given });
executor.json = (message) => message;

serve((app, base) => {
  const card = {
    protocolVersion: "0.3.0",
    name: "Official in JavaScript",
    description: "Does what the first word says",
    version: "1.0.0",
    url: `${base}/rpc`,
    preferredTransport: "JSONRPC",
    additionalInterfaces: [{ url: `${base}/rpc`, transport: "JSONRPC" }, { url: `${base}/rest`, transport: "HTTP+JSON" }],
    capabilities: { streaming: true, pushNotifications: true },
    supportsAuthenticatedExtendedCard: true,
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "obey", name: "Obey", description: "Obeys", tags: ["interop"] }],
  };
  const requestHandler = new DefaultRequestHandler(
    card, new InMemoryTaskStore(), executor, undefined, new InMemoryPushNotificationStore(), undefined, card,
  );
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
});
