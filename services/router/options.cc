#include "services/router/options.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/admin/model_wait.h"
#include "services/base/process.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

void RegisterAddresses(RouterOptions* options, FlagSet* f) {
  f->Group("Addresses and models");
  f->Strings(&options->models, "model",
             "A model to serve: its Hugging Face folder, or NAME=FOLDER to serve it under another "
             "name than the folder's.")
      .Value("[NAME=]DIR")
      .Required();
  RegisterModelWait(&options->wait_for_model_s, f);
  f->String(&options->orchestrator, "orchestrator",
            "Address of the orchestrator; or of several, each with its own instances (cells), in "
            "the same order at all routers. The addresses of one cell's orchestrators, of which "
            "one leads and the others stand by, are joined by '+'.")
      .Value("HOST:PORT[+...][,...]");
  f->String(&options->host, "host", "Address to listen on.").Value("ADDRESS");
  f->String(&options->advertise, "advertise",
            "Address or DNS name at which operators reach this router.")
      .Value("ADDRESS")
      .Default("--host");
  f->Int(&options->port, "port", "HTTP port of the API; 0 takes a free one.", 0, 65535);
  f->String(&options->port_file, "port-file", "File to write the port to once it is open.");
  options->admin.Register(f);
  f->String(&options->record_trace, "record-trace",
            "File to record live traffic to as a Mooncake trace, for skeinctl bench and simulate: "
            "arrivals, lengths and keyed hashes of 512-token blocks; no text and no token ids.")
      .Value("FILE");
}

void RegisterAccess(RouterOptions* options, FlagSet* f) {
  f->Group("Access");
  f->String(&options->api_key_file, "api-key-file",
            "File of API keys, one per line, plain or as sha256:HEX. A request without one of "
            "them is answered 401. SIGHUP reads the file again.");
  f->String(&options->tenants_file, "tenants-file",
            "YAML file of the tenants that API keys name, and of their limits. SIGHUP reads it "
            "again.")
      .Value("FILE");
  f->Int(&options->tenant_routers, "tenant-routers",
         "Number of routers that share the tenants' limits: each enforces its part by itself. 0 "
         "means as many as the orchestrator knows now.",
         0, 10'000);
  f->Double(&options->key_reload_s, "key-reload-s",
            "How often to look whether the files of keys and tenants have changed, and read them "
            "then; 0 means only at SIGHUP.",
            0, 86400);
  f->String(&options->admin_key_file, "admin-key-file",
            "File of operators' keys, in the format of --api-key-file, for the pages /admin/... of "
            "the admin port; without it there are none. SIGHUP reads it again.")
      .Value("FILE");
  f->String(&options->audit_log, "audit-log",
            "File to append a line to for each request that ended or was refused: tenant, key's "
            "id, model, tokens, outcome. SIGHUP opens it anew.")
      .Value("FILE");
  f->Int(&options->audit_log_bytes, "audit-log-bytes",
         "Size at which --audit-log is renamed to FILE.TIME and begun anew; 0 means never.", 0,
         int64_t{1} << 50);
  f->Strings(&options->allowed_origins, "allowed-origins",
             "Web origin whose pages may use the API (CORS): scheme://host[:port], or * for all.")
      .Value("ORIGIN")
      .Default("* with --api-key-file, else this machine's own pages");
  f->Bool(&options->console, "console",
          "Serve the console, a page that shows the cluster live, at /console/ of the admin port.");
  f->Strings(&options->console_hosts, "console-host",
             "Name under which browsers reach the console, beside addresses, localhost, "
             "--advertise and the host's name. Pages of other names are refused, because any site "
             "can make its name lead here.")
      .Value("NAME");
  f->Strings(&options->allowed_hosts, "allowed-hosts",
             "DNS name under which clients reach this router, as their Host header says, such as "
             "that of a proxy. Other names are answered 403; addresses and names without a dot are "
             "always allowed.")
      .Value("NAME")
      .Default("none if --host is a loopback address and there is no --api-key-file, else any");
  f->Bool(&options->strict_api, "strict-api",
          "Refuse a request that has unknown parameters, instead of naming them in a header.");
}

void RegisterLimits(RouterOptions* options, FlagSet* f) {
  f->Group("Limits");
  f->Int(&options->max_body_bytes, "max-body-bytes", "Longest body of a request.", 1024, 1 << 30);
  f->Int(&options->max_held_bytes, "max-held-bytes",
         "Maximum bytes held by all requests in progress, as bodies and as prompts; a request "
         "beyond that is answered 429. At least twice --max-body-bytes. 0 means a quarter of the "
         "memory that the process may use.",
         0, int64_t{1} << 50);
  f->Int(&options->max_file_bytes, "max-file-bytes",
         "Largest file of a batch's requests that a client may upload. It is passed on while it "
         "arrives, so it takes no memory of that size here.",
         1024, int64_t{1} << 40);
  f->Int(&options->max_header_bytes, "max-header-bytes", "Longest header of a request.", 1024,
         1 << 20);
  f->Int(&options->max_connections, "max-connections", "Maximum number of client connections.", 1,
         1 << 20);
  f->Int(&options->max_prompt_tokens, "max-prompt-tokens",
         "Longest prompt; 0 means as long as the model's context.", 0, 1 << 30);
  f->Int(&options->max_choices, "max-choices",
         "Maximum number of choices of one request: its prompts times its n.", 1, 4096);
  f->Int(&options->default_max_tokens, "default-max-tokens",
         "Longest answer of a chat that gives no max_tokens, where the model's "
         "generation_config.json has no max_new_tokens; 0 means the rest of the context.",
         0, 1 << 30);
  f->Int(&options->max_streams, "max-streams", "Maximum number of choices generated at a time.", 1,
         1 << 20);
  f->Int(&options->max_queued, "max-queued",
         "Maximum number of waiting choices; a request beyond that is answered 429. Where several "
         "tenants send, a tenant that has filled its share is refused, and the others may have up "
         "to as many places more.",
         0, 1 << 20);
  f->Int(&options->job_lines_max, "job-lines-max",
         "Maximum number of lines of offline jobs that this router computes at a time; 0 means "
         "none. At most half of --max-streams, whatever is given here, so that online requests "
         "find places.",
         0, 1 << 16);
}

void RegisterTimes(RouterOptions* options, FlagSet* f) {
  f->Group("Times");
  f->Double(&options->request_deadline_s, "request-deadline-s",
            "Time from a request's arrival after which its generation is ended. A client that is "
            "still reading the answer --write-timeout-s later is disconnected.",
            0.1, 86400);
  f->Double(
      &options->resume_wait_s, "resume-wait-s",
      "Time for which an accepted choice is tried again after its instances were lost, while no "
      "instance takes it; 0 ends it with the first loss.",
      0, 86400);
  f->Double(&options->idle_timeout_s, "idle-timeout-s",
            "A connection without a request is closed after this time.", 0.1, 86400);
  f->Double(&options->read_timeout_s, "read-timeout-s",
            "Longest time that a request may take to arrive.", 0.1, 86400);
  f->Double(&options->write_timeout_s, "write-timeout-s",
            "A client that reads nothing of its answer for this time is disconnected.", 0.1, 86400);
  f->Double(&options->drain_grace_s, "drain-grace-s",
            "Time that running answers have to end after SIGTERM.", 0, 86400);
}

void CheckHeldBytes(const RouterOptions* options, FlagSet* f) {
  f->Check([options] {
    const int64_t held = options->max_held_bytes, body = options->max_body_bytes;
    if (held == 0 || held >= 2 * body) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--max-held-bytes: ", held,
                                                   " is less than twice --max-body-bytes (", body,
                                                   "); raise it or use 0"));
  });
}

// Without keys anyone could name himself as he likes.
void CheckTenants(const RouterOptions* options, FlagSet* f) {
  f->Check([options] {
    if (options->tenants_file.empty() || !options->api_key_file.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--tenants-file: needs --api-key-file, which says whose key "
        "is whose");
  });
}

void CheckOrchestrators(const RouterOptions* options, FlagSet* f) {
  f->Check([options] {
    std::set<std::string> seen;
    for (const std::string& cell : options->orchestrators()) {
      const auto addresses = ParseCell(cell);
      if (!addresses.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--orchestrator: ", std::string(addresses.status().message())));
      }
      for (const std::string& address : *addresses) {
        if (seen.insert(address).second) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("--orchestrator: ", address, " is there twice; name each once"));
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<std::string> RouterOptions::orchestrators() const {
  return absl::StrSplit(orchestrator, ',');
}

void RouterOptions::Register(FlagSet* f) {
  f->Name("router");
  f->About("Skein's router: serves the OpenAI API and passes requests to the cluster.");
  RegisterAddresses(this, f);
  RegisterAccess(this, f);
  RegisterLimits(this, f);
  RegisterTimes(this, f);
  tracing.Register(f);
  tls::RegisterServiceSecurity(f);
  RegisterLogFlags(&log_level, f);
  CheckHeldBytes(this, f);
  CheckOrchestrators(this, f);
  CheckTenants(this, f);
}

}  // namespace skein::services
