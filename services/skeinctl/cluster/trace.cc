#include "services/skeinctl/cluster/trace.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/orchestrator.pb.h"
#include "services/http/client.h"
#include "services/skeinctl/cluster/cluster_client.h"

namespace skein::services {
namespace {

constexpr auto kAnswerMax = std::chrono::seconds(5);
constexpr size_t kThreads = 32;  // that ask at a time

struct Process {
  std::string name;   // "router 127.0.0.1:7001"
  std::string admin;  // host:port; "": not known
};

// Of "dns:///host:port" or "host:port", with another port.
std::string WithPort(const std::string& endpoint, uint32_t port) {
  const size_t colon = endpoint.rfind(':');
  return absl::StrCat(endpoint.substr(0, colon), ":", port);
}

// All that the orchestrator knows, itself included, and those that the flag names.
std::vector<Process> ProcessesOf(const v1::StatusResponse& status, const std::string& orchestrator,
                                 const std::string& also) {
  std::vector<Process> processes;
  for (const v1::RouterStatus& router : status.routers()) {
    processes.push_back({absl::StrCat("router ", router.identity().endpoint()),
                         router.identity().admin_endpoint()});
  }
  processes.push_back(
      {absl::StrCat("orchestrator ", orchestrator),
       status.admin_port() == 0 ? "" : WithPort(orchestrator, status.admin_port())});
  for (const v1::InstanceStatus& instance : status.instances()) {
    const v1::RegisterRequest& registration = instance.registration();
    const char* role =
        registration.role() == v1::ROLE_PREFILL ? "prefill-worker " : "decode-worker ";
    processes.push_back(
        {absl::StrCat(role, registration.endpoint()), registration.admin_endpoint()});
  }
  for (const auto& admin : absl::StrSplit(also, ',', absl::SkipEmpty())) {
    processes.push_back({absl::StrCat("process ", std::string(admin)), std::string(admin)});
  }
  return processes;
}

std::string Encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || c == '-' || c == '.' || c == '_' || c == '/';
    if (plain) {
      out += c;
    } else {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

ProcessSpans AskOne(const Process& process, const std::string& id) {
  const auto address = http::ParseAddress(process.admin);
  if (!address.ok()) return {.process = process.name, .error = "its admin port is not known"};
  const auto response =
      http::Ask(*address, {"GET", "/debug/trace?id=" + Encoded(id), {}}, kAnswerMax);
  if (!response.ok()) {
    return {.process = process.name, .error = std::string(response.status().message())};
  }
  if (response->status != 200) {
    return {
        .process = process.name,
        .error = absl::StrCat(process.admin, " answers ", response->status,
                              response->status == 404 ? ": it may be of an older version" : "")};
  }
  return ParseSpans(process.name, response->body);
}

std::vector<ProcessSpans> AskAll(const std::vector<Process>& processes, const std::string& id) {
  std::vector<ProcessSpans> answers(processes.size());
  std::atomic<size_t> next{0};
  const auto ask = [&] {
    for (size_t i = next++; i < processes.size(); i = next++) {
      answers[i] = AskOne(processes[i], id);
    }
  };
  std::vector<std::thread> threads;
  const size_t count = std::min(kThreads, processes.size());
  threads.reserve(count);
  for (size_t i = 0; i < count; ++i) threads.emplace_back(ask);
  for (std::thread& thread : threads) thread.join();
  return answers;
}

bool IsTraceId(const std::string& id) {
  return id.size() == 32 && id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Spans of orchestrator and workers have the id of one choice, not the client's names: so the
// processes are asked for a name first, and then for the trace that one of them finds. `last`: the
// answers of the last round.
TraceTree Collect(const std::vector<Process>& processes, const std::vector<std::string>& names,
                  std::vector<ProcessSpans>* last) {
  for (const std::string& name : names) {
    *last = AskAll(processes, name);
    TraceTree found = TreeOf(*last);
    if (found.spans.empty()) continue;
    if (IsTraceId(name)) return found;
    TraceTree whole = TreeOf(AskAll(processes, found.spans[0].trace));
    whole.other_traces = found.other_traces;
    return whole;
  }
  return {};
}

// As the user gave it, then as the orchestrator knows it.
std::vector<std::string> NamesOf(const std::string& request,
                                 const absl::StatusOr<v1::ExplainResponse>& explained) {
  std::vector<std::string> names = {request};
  if (!explained.ok()) return names;
  for (const v1::RequestExplanation& one : explained->requests()) {
    for (const std::string& name : one.names()) names.push_back(name);
  }
  std::vector<std::string> unique;
  std::set<std::string> seen;
  for (std::string& name : names) {
    if (seen.insert(name).second) unique.push_back(std::move(name));
  }
  return unique;
}

}  // namespace

void TraceFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Draw a request's way through the cluster: its spans at the router, the orchestrator and the "
      "workers, each with its time, as a tree.\n\nEach process keeps its latest 4,096 spans of "
      "traced requests, if it runs with --trace-endpoint (local needs no collector), and is asked "
      "for them here. ",
      ExitCodesHelp()));
  set->OptionalPositional(
      &request, "REQUEST",
      "The id of an answer (cmpl-..., chatcmpl-...), its X-Request-Id header (request_id in the "
      "router's log), ROUTER/SERIAL (request_id in the other logs), or the id of a trace.");
  RegisterCluster(&orchestrator, set);
  set->String(&also, "also",
              "Admin ports of further processes, separated by commas: of standbys, or of workers "
              "that have left the cluster.")
      .Value("HOST:PORT,...");
  RegisterFormat(&format, "text", set);
  set->Check([this]() -> absl::Status {
    if (request.empty()) {
      return absl::InvalidArgumentError(
          "REQUEST is required. 'skeinctl requests' lists the requests that the orchestrator "
          "remembers.");
    }
    for (const auto& admin : absl::StrSplit(also, ',', absl::SkipEmpty())) {
      if (http::ParseAddress(std::string(admin)).ok()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--also: '", std::string(admin), "' is not HOST:PORT"));
    }
    return absl::OkStatus();
  });
}

std::string WhyNoTrace(const std::string& request, const std::vector<ProcessSpans>& asked,
                       bool known) {
  const bool tracing =
      std::any_of(asked.begin(), asked.end(), [](const ProcessSpans& one) { return one.tracing; });
  std::string text = absl::StrCat("no process has spans of '", request, "'. ");
  if (!tracing) {
    return absl::StrCat(text,
                        "No process that answered traces requests: start routers, orchestrator and "
                        "workers with --trace-endpoint (local needs no collector).");
  }
  if (known) {
    return absl::StrCat(text,
                        "The orchestrator knows it, so it was not sampled, or its spans have made "
                        "room for later ones. Raise --trace-ratio of the router, set "
                        "--trace-slow-ms everywhere, or send a traceparent that is sampled (its "
                        "last two digits are 01). 'skeinctl explain' tells of it.");
  }
  return absl::StrCat(text,
                      "The orchestrator does not know it either. 'skeinctl requests' lists the "
                      "requests that it remembers.");
}

int RunTrace(const TraceFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("trace", orchestrator.status());
  ClusterClient client(*orchestrator);
  const auto status = client.Status();
  if (!status.ok()) return EndWith("trace", status.status());
  const std::vector<Process> processes = ProcessesOf(*status, client.answered_by(), flags.also);
  const auto explained = client.Explain(flags.request);
  std::vector<ProcessSpans> answers;
  const TraceTree tree = Collect(processes, NamesOf(flags.request, explained), &answers);
  if (tree.spans.empty()) {
    return EndWith("trace",
                   absl::NotFoundError(WhyNoTrace(flags.request, answers, explained.ok())));
  }
  std::fputs((flags.format == "json" ? TraceJson(tree) : TraceText(tree)).c_str(), stdout);
  return kDone;
}

}  // namespace skein::services
