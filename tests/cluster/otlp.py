"""An OpenTelemetry collector for tests, written against the published schema and nothing of Skein's: it reads the .proto
files of third_party/interfaces/opentelemetry, and decodes protobuf by them, strictly: what the schema does not have is an error.
"""
import http.server
import os
import re
import struct
import threading
import time

SCHEMA = "third_party/interfaces/opentelemetry"
FILES = ("common.proto", "resource.proto", "trace.proto", "trace_service.proto")
REQUEST = "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest"


class Schema:
    """Messages by full name: {number: (field name, type, repeated)}; enums by full name: set of numbers."""

    def __init__(self, folder=SCHEMA):
        self.messages, self.enums = {}, {}
        for name in FILES:
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                self._read(re.sub(r"//[^\n]*|/\*.*?\*/", "", f.read(), flags=re.S))

    def _read(self, text):
        package = re.search(r"package ([\w.]+);", text)[1]
        stack = []  # of (kind, full name)
        for token in re.findall(r"(?:message|enum|oneof|service) \w+ *\{|[^{};]+;|\{|\}", text):
            token = token.strip()
            if token == "}":
                stack.pop()
            elif opened := re.match(r"(message|enum|oneof|service) (\w+)", token) if token.endswith("{") else None:
                kind, name = opened.groups()
                outer = next((n for k, n in reversed(stack) if k == "message"), package)
                stack.append((kind, outer if kind == "oneof" else outer + "." + name))
                {"message": self.messages, "enum": self.enums}.get(kind, {}).setdefault(stack[-1][1], {})
            elif token == "{":
                stack.append(("other", ""))
            elif stack and stack[-1][0] == "enum" and (value := re.match(r"\w+ *= *(0x[0-9a-fA-F]+|\d+)", token)):
                self.enums[stack[-1][1]][int(value[1], 0)] = token
            elif stack and stack[-1][0] in ("message", "oneof"):
                field = re.match(r"(repeated )?([\w.]+) (\w+) *= *(\d+)", token)
                if field and field[2] not in ("reserved", "option"):
                    self.messages[stack[-1][1]][int(field[4])] = (field[3], field[2], bool(field[1]))

    def _resolve(self, scope, name):
        while True:
            full = scope + "." + name if scope else name
            if full in self.messages or full in self.enums:
                return full
            assert scope, "no such type: " + name
            scope = scope.rpartition(".")[0]

    def decode(self, name, data):
        """A message as a dictionary; fields that are not set are missing."""
        fields, out, at = self.messages[name], {}, 0
        while at < len(data):
            key, at = varint(data, at)
            assert key >> 3 in fields, "%s has no field %d" % (name, key >> 3)
            field, kind, repeated = fields[key >> 3]
            value, at = self._value(name, kind, key & 7, data, at)
            if repeated:
                out.setdefault(field, []).append(value)
            else:
                out[field] = value
        assert at == len(data), name + " is cut off"
        return out

    def _value(self, scope, kind, wire, data, at):
        if kind in ("string", "bytes"):
            assert wire == 2, (scope, kind, wire)
            size, at = varint(data, at)
            assert at + size <= len(data), scope
            piece = data[at:at + size]
            return (piece.decode("utf-8") if kind == "string" else piece), at + size
        if kind in ("fixed64", "double", "fixed32"):
            width = 4 if kind == "fixed32" else 8
            assert wire == (5 if width == 4 else 1), (scope, kind, wire)
            return struct.unpack_from({"fixed64": "<Q", "double": "<d", "fixed32": "<I"}[kind], data, at)[0], at + width
        if kind in ("int64", "int32", "uint32", "uint64", "bool"):
            assert wire == 0, (scope, kind, wire)
            value, at = varint(data, at)
            return (bool(value) if kind == "bool" else value - (1 << 64) if kind == "int64" and value >> 63 else value), at
        full = self._resolve(scope, kind)
        if full in self.enums:
            assert wire == 0, (scope, kind, wire)
            value, at = varint(data, at)
            assert value in self.enums[full], (full, value)
            return value, at
        assert wire == 2, (scope, kind, wire)
        size, at = varint(data, at)
        assert at + size <= len(data), scope
        return self.decode(full, data[at:at + size]), at + size


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        assert shift < 70, "a varint of more than ten bytes"


def plain(any_value):
    """What an AnyValue holds."""
    if "array_value" in any_value:
        return [plain(value) for value in any_value["array_value"].get("values", [])]
    values = list(any_value.values())
    return values[0] if values else None


def attributes(message):
    return {one["key"]: plain(one.get("value", {})) for one in message.get("attributes", [])}


class Span:
    def __init__(self, resource, message):
        self.resource = resource
        self.trace, self.id = message["trace_id"].hex(), message["span_id"].hex()
        self.parent = message.get("parent_span_id", b"").hex()
        assert len(self.trace) == 32 and len(self.id) == 16 and len(self.parent) in (0, 16), message
        assert set(self.trace) != {"0"} and set(self.id) != {"0"}, message
        self.name, self.kind = message["name"], message.get("kind", 0)
        self.start, self.end = message["start_time_unix_nano"], message["end_time_unix_nano"]
        assert self.name and 0 < self.start <= self.end, message
        self.state = message.get("trace_state", "")
        self.attributes = attributes(message)
        self.events = [(event["name"], event["time_unix_nano"]) for event in message.get("events", [])]
        self.failed = message.get("status", {}).get("code", 0) == 2

    def seconds(self):
        return (self.end - self.start) * 1e-9

    def __repr__(self):
        return "%s %s %s<%s %.6f s %s" % (self.resource.get("service.name"), self.name, self.id, self.parent, self.seconds(),
                                          self.attributes)


INTERNAL, SERVER, CLIENT = 1, 2, 3


class Collector:
    """Takes OTLP/HTTP on a free port from the block's beginning to its end. `answer(number)` of the call with that number, from 0:
    (status, headers, body), "hang", "garbage" or None, which takes the spans."""

    def __init__(self, answer=lambda number: None):
        self.schema, self.answer = Schema(), answer
        self.lock = threading.Lock()
        self.spans, self.calls, self.errors = [], 0, []
        self.released = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                collector.take(self)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        assert kind is not None or not self.errors, self.errors

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self.lock:
            number, self.calls = self.calls, self.calls + 1
        answer = self.answer(number)
        if answer == "hang":
            self.released.wait()
            return
        if answer == "garbage":
            handler.wfile.write(b"\x00\x01 this is not HTTP \r\n\r\n" * 50)
            handler.close_connection = True
            return
        if answer is None:
            try:
                self.read(handler, body)
                answer = (200, {"Content-Type": "application/x-protobuf"}, b"")
            except Exception as error:  # pylint: disable=broad-except
                self.errors.append(repr(error))
                answer = (400, {}, repr(error).encode())
        status, headers, text = answer
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def read(self, handler, body):
        assert handler.path == "/v1/traces", handler.path
        assert handler.headers["Content-Type"] == "application/x-protobuf", handler.headers
        spans = []
        for of_process in self.schema.decode(REQUEST, body).get("resource_spans", []):
            resource = attributes(of_process["resource"])
            assert resource.get("service.name") and resource.get("service.instance.id"), resource
            for scope in of_process["scope_spans"]:
                spans += [Span(resource, message) for message in scope["spans"]]
        with self.lock:
            known = {(span.trace, span.id) for span in self.spans}
            again = [span for span in spans if (span.trace, span.id) in known]
            assert not again, "spans came twice: %s" % again
            self.spans += spans

    def all(self):
        with self.lock:
            return list(self.spans)

    def until(self, condition, what, seconds=30):
        """Waits until condition(spans); returns the spans."""
        end = time.monotonic() + seconds
        while True:
            spans = self.all()
            if condition(spans):
                return spans
            assert not self.errors, self.errors
            assert time.monotonic() < end, "not within %d s: %s\n%s" % (seconds, what, "\n".join(map(repr, spans)))
            time.sleep(0.02)


def tree_of(spans, trace, root_parent=""):
    """The spans of a trace, as {id: span}, and its root; fails unless they are one tree that stands under `root_parent`."""
    mine = {span.id: span for span in spans if span.trace == trace}
    roots = [span for span in mine.values() if span.parent not in mine]
    assert len(roots) == 1 and roots[0].parent == root_parent, "no single tree under '%s': %s" % (root_parent, roots)
    return mine, roots[0]
