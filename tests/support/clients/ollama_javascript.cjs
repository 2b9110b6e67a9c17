// Package `ollama` of npm, as `tests.support.clients` describes. Arguments: its folder, the daemon's address, what to do.
"use strict";

const assert = require("node:assert/strict");
const readline = require("node:readline");

const [, , folder, host, what] = process.argv;
const { Ollama } = require(`${folder}/node_modules/ollama`);

const QUESTION = "w1 w2 w3";
const MESSAGES = [{ role: "user", content: QUESTION }];
const SHORT = { num_predict: 6, temperature: 0 };
const ENDLESS = { model: "endless", messages: MESSAGES, options: { num_predict: 30000 }, stream: true };
const PARAMETERS = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, required: ["a", "b"] };
const TOOL = { type: "function", function: { name: "add", description: "the sum", parameters: PARAMETERS } };
// One red pixel.
const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

async function everything() {
  const client = new Ollama({ host });
  const whole = await client.chat({ model: "tiny", messages: MESSAGES, options: SHORT });
  assert.deepEqual([whole.done_reason, whole.eval_count], ["length", 6]);
  let text = "";
  for await (const part of await client.chat({ model: "tiny", messages: MESSAGES, options: SHORT, stream: true })) {
    text += part.message.content;
  }
  assert.equal(text, whole.message.content);
  assert.equal((await client.generate({ model: "tiny", prompt: QUESTION, options: SHORT })).eval_count, 6);
  const called = await client.chat({ model: "caller", messages: MESSAGES, tools: [TOOL] });
  const { name, arguments: given } = called.message.tool_calls[0].function;
  assert.deepEqual([name, given], ["add", { a: 1, b: 2 }]);
  const thought = await client.chat({ model: "thinker", messages: MESSAGES, think: true });
  assert.deepEqual([thought.message.thinking.trim(), thought.message.content], ["hm so", "yes."]);
  const seen = [{ role: "user", content: QUESTION, images: [PNG] }];
  const sight = await client.chat({ model: "seer", messages: seen, options: SHORT });
  assert.notEqual(sight.message.content, whole.message.content);
  assert.equal((await client.embed({ model: "embedder", input: ["w1", "w2"] })).embeddings.length, 2);

  assert.ok((await client.list()).models.some((model) => model.name === "tiny:latest"));
  assert.deepEqual((await client.show({ model: "caller" })).capabilities, ["completion", "tools", "thinking"]);
  assert.ok((await client.ps()).models.some((model) => model.name === "seer:latest"));
  assert.equal((await client.create({ model: "made", from: "tiny", system: "w9" })).status, "success");
  await client.copy({ source: "made", destination: "copy" });
  for (const model of ["made", "copy"]) {
    assert.equal((await client.delete({ model })).status, "success");
  }
  await assert.rejects(client.chat({ model: "copy", messages: MESSAGES }), /not found/);
}

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function left(how) {
  console.log(`left by ${how}`);
  await lines.next();
}

async function leave() {
  const client = new Ollama({ host });
  const aborted = await client.chat(ENDLESS);
  await assert.rejects(
    (async () => {
      for await (const part of aborted) {
        assert.ok(part);
        client.abort();
      }
    })(),
    { name: "AbortError" },
  );
  await left("abort of the client");
  const stream = await client.chat(ENDLESS);
  await assert.rejects(
    (async () => {
      for await (const part of stream) {
        assert.ok(part);
        stream.abort();
      }
    })(),
    { name: "AbortError" },
  );
  await left("abort of the stream");
  const signal = AbortSignal.timeout(500);
  const impatient = new Ollama({ host, fetch: (url, init) => fetch(url, { ...init, signal }) });
  await assert.rejects(impatient.chat({ ...ENDLESS, stream: false }), { name: "TimeoutError" });
  await left("timeout");
}

(what === "do" ? everything() : leave()).then(() => process.exit(0));
