// What the agents on both SDKs do: what the first word of the text says. Events are those of 1.0, or of 0.3 with `kind`.
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import express from "express";

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Obedient {
  // `say` turns (name, object in the JSON of its version) into what the bus takes; `spell` spells a state.
  constructor({ say, spell, text, agent }) {
    Object.assign(this, { say, spell, text, agent, waiting: new Map() });
  }

  execute = async ({ userMessage, taskId, contextId, task }, bus) => {
    const ids = { taskId, contextId };
    const said = userMessage.parts.map(this.text).join("");
    const [word, rest] = said.split(/ (.*)/s);
    const message = (text) => ({ messageId: randomUUID(), role: this.agent, parts: [this.part(text)], ...ids });
    const status = (state, text, final = false) =>
      bus.publish(this.say("statusUpdate", {
        ...ids, final, status: { state: this.spell(state), timestamp: new Date().toISOString(), message: text && this.kinded("message", message(text)) },
      }));
    const artifact = (text, more = {}) =>
      bus.publish(this.say("artifactUpdate", { ...ids, artifact: { artifactId: "out", parts: [this.part(text)] }, ...more }));
    if (word === "message") {
      bus.publish(this.say("message", { ...message(rest), taskId: undefined }));
      return bus.finished();
    }
    if (!task) {
      bus.publish(this.say("task", {
        id: taskId, contextId, status: { state: this.spell("submitted"), timestamp: new Date().toISOString() }, history: [this.json(userMessage)], artifacts: [],
      }));
    }
    status("working");
    if (word === "ask") {
      status("input-required", "Which one?", true);
    } else if (word === "fail") {
      status("failed", rest, true);
    } else if (word === "wait") {
      await new Promise((done) => this.waiting.set(taskId, done));
      status("canceled", undefined, true);
    } else {
      const pieces = word === "count" ? [...Array(Number(rest)).keys()].map((number) => `${number} `) : [said];
      for (const [place, piece] of pieces.entries()) {
        artifact(piece, { append: place > 0, lastChunk: place === pieces.length - 1 });
        await pause(10);
      }
      status("completed", undefined, true);
    }
    bus.finished();
  };

  cancelTask = async (taskId) => {
    // It may be asked to before it has begun to wait.
    while (!this.waiting.has(taskId)) await pause(5);
    this.waiting.get(taskId)();
  };
}

// Serves what `routes` adds to an application made for the address, and prints the address once it is open.
export function serve(routes) {
  const app = express();
  const server = createServer(app);
  server.listen(0, "127.0.0.1", () => {
    const base = `http://127.0.0.1:${server.address().port}`;
    routes(app, base);
    console.log(base);
  });
  // Who started it holds its input open; it must not outlive that.
  process.stdin.on("end", () => process.exit(0)).resume();
}
