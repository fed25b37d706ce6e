#include "services/router/options.h"

namespace skein::services {

void RouterOptions::Register(FlagSet* f) {
  f->String(&host, "host", "address to listen on");
  f->Int(&port, "port", "HTTP port; 0 takes a free one", 0, 65535);
  f->String(&port_file, "port_file", "file to write the bound port to");
  f->Int(&admin_port, "admin_port",
         "HTTP port of metrics, probes and debug pages; 0 takes a free one", 0, 65535);
  f->String(&admin_port_file, "admin_port_file", "file to write the bound admin port to");
  f->String(&orchestrator, "orchestrator", "host:port of the orchestrator");
  f->Strings(&models, "model",
             "NAME=DIR or DIR (its name is the folder's): a model to serve; repeatable");
  f->Strings(&allowed_origins, "allowed-origins",
             "origin whose pages may use the API, 'scheme://host[:port]' or '*'; repeatable. "
             "Default: '*' with --api-key-file, else this machine's own pages");
  f->String(
      &api_key_file, "api-key-file",
      "file of API keys, one a line or 'sha256:HEX'; requests without one get 401. Read again "
      "on SIGHUP");
  f->Int(&max_body_bytes, "max_body_bytes", "longest request body", 1024, 1 << 30);
  f->Int(&max_header_bytes, "max_header_bytes", "longest request header", 1024, 1 << 20);
  f->Int(&max_connections, "max_connections", "open client connections", 1, 1 << 20);
  f->Int(&max_prompt_tokens, "max_prompt_tokens", "longest prompt; 0: what the model holds", 0,
         1 << 30);
  f->Int(&max_choices, "max_choices", "prompts times n of one request", 1, 4096);
  f->Int(&max_streams, "max_streams", "choices under way at a time", 1, 1 << 20);
  f->Int(&max_queued, "max_queued", "choices that wait for a stream before 429 is answered", 0,
         1 << 20);
  f->Int(&stream_buffer_bytes, "stream_buffer_bytes",
         "unsent bytes of one answer above which its tokens wait at the worker", 4096, 1 << 30);
  f->Double(&request_deadline_s, "request_deadline_s", "longest life of a request", 0.1, 86400);
  f->Double(&idle_timeout_s, "idle_timeout_s", "idle connections are closed after this", 0.1,
            86400);
  f->Double(&read_timeout_s, "read_timeout_s", "a request has to arrive within this", 0.1, 86400);
  f->Double(&write_timeout_s, "write_timeout_s",
            "a client that reads nothing for this long is dropped", 0.1, 86400);
  f->Double(&drain_grace_s, "drain_grace_s", "running answers may take this long after SIGTERM", 0,
            86400);
  f->Int(&http_threads, "http_threads", "threads that serve connections", 1, 256);
  f->Int(&tokenize_threads, "tokenize_threads", "threads that parse and tokenise requests", 1, 256);
}

}  // namespace skein::services
