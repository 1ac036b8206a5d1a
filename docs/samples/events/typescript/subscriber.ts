// Append every public event of HBox to FILE, each once: npm run build && node subscriber.js FILE. Settings: ../README.md.
import { appendFileSync, existsSync, openSync, fsyncSync, readFileSync } from "node:fs";
import { AckPolicy, connect, nanos, nkeyAuthenticator } from "nats";

const env = (name: string): string => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
};
const file = process.argv[2];
const stream = "HBOX_CLOUDEVENTS";
const consumer = env("EVENTS_CONSUMER");

const seen = new Set<string>();
if (existsSync(file)) {
  for (const line of readFileSync(file, "utf8").split("\n")) if (line) seen.add(JSON.parse(line).id);
}
const out = openSync(file, "a");

const client = await connect({
  servers: env("NATS_URL"),
  authenticator: nkeyAuthenticator(new TextEncoder().encode(readFileSync(env("NATS_NKEY"), "utf8").trim())),
  inboxPrefix: `_INBOX_${env("EVENTS_READER")}`,
  maxReconnectAttempts: -1,
  waitOnFirstConnect: true,
});
const manager = await client.jetstreamManager({ checkAPI: false });
const named = { name: consumer, durable_name: consumer, filter_subject: env("EVENTS_FILTER") };
const config = { ...named, ack_policy: AckPolicy.Explicit, ack_wait: nanos(5000), max_ack_pending: 1 };
await manager.consumers.add(stream, config);
for await (const message of await (await client.jetstream().consumers.get(stream, consumer)).consume()) {
  const event = message.string();
  const { id } = JSON.parse(event);
  if (!seen.has(id)) {
    appendFileSync(out, event + "\n");
    fsyncSync(out); // first keep the event, then acknowledge it: a crash in between repeats it
    seen.add(id);
  }
  message.ack();
}
