// A collector that others have written, @elastic/mockotlpserver: takes OTLP/HTTP on a free port of 127.0.0.1, and writes a line of JSON
// for each message: first {"url": …}, then {"spans": […]}. Ends when its standard input does.
import { createRequire } from "node:module";
import { join } from "node:path";

const { MockOtlpServer } = createRequire(join(process.env.SKEIN_NPM, "node_modules", "x"))("@elastic/mockotlpserver");

const hex = (bytes) => Buffer.from(bytes ?? []).toString("hex");

/** What an AnyValue holds; its other members have defaults. */
function plain(any) {
  const [kind, value] = Object.entries(any)[0] ?? [];
  return kind === "arrayValue" ? value.values.map(plain) : kind === "intValue" ? Number(String(value)) : value;
}
const attributes = (list) => Object.fromEntries((list ?? []).map((one) => [one.key, plain(one.value)]));

function spansOf(trace) {
  return trace.resourceSpans.flatMap((of) => of.scopeSpans.flatMap((scope) => scope.spans.map((span) => ({
    resource: attributes(of.resource.attributes), name: span.name, kind: span.kind, trace: hex(span.traceId), span: hex(span.spanId),
    parent: hex(span.parentSpanId), start: String(span.startTimeUnixNano), end: String(span.endTimeUnixNano), attributes: attributes(span.attributes),
  }))));
}

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const server = new MockOtlpServer({ services: ["http"], httpHostname: "127.0.0.1", httpPort: 0, logLevel: "fatal",
  onTrace: (trace) => tell({ spans: spansOf(trace) }) });
await server.start();
tell({ url: String(server.httpUrl) });
process.stdin.on("end", () => process.exit(0)).resume();
