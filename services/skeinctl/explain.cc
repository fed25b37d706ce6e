#include "services/skeinctl/explain.h"

#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/flags.h"
#include "services/base/rpc.h"

namespace skein::services {
namespace {

struct Flags {
  std::string request;
  std::string orchestrator = "127.0.0.1:7100";
  std::string format = "text";
};

absl::Status ParseFlags(int argc, char** argv, Flags* flags) {
  FlagSet set(
      "skeinctl explain REQUEST: how a request was planned, what else there was, and why not. "
      "REQUEST is\n"
      "the id of a response (cmpl-..., chatcmpl-...), its X-Request-Id header (request_id in the "
      "router's log),\n"
      "or router/serial (request_id in the other logs). Known are requests that run and the latest "
      "1,000 others.");
  set.Positional(&flags->request, "REQUEST");
  set.String(&flags->orchestrator, "orchestrator", "host:port of the orchestrator");
  set.String(&flags->format, "format", "text or json");
  absl::Status parsed = set.Parse(argc, argv, EnvironmentMap());
  if (parsed.ok() && flags->format != "text" && flags->format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: '", flags->format, "' is not text or json"));
  }
  return parsed;
}

}  // namespace

int ExplainCommand(int argc, char** argv) {
  Flags flags;
  const absl::Status parsed = ParseFlags(argc, argv, &flags);
  if (absl::IsCancelled(parsed)) {
    std::fputs(std::string(parsed.message()).c_str(), stdout);
    return 0;
  }
  if (!parsed.ok()) {
    std::fprintf(stderr, "skeinctl: %s\n", std::string(parsed.message()).c_str());
    return 2;
  }
  Channels channels;
  const auto stub = v1::Orchestrator::NewStub(channels.Get(flags.orchestrator));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::ExplainRequest request;
  request.set_request(flags.request);
  v1::ExplainResponse response;
  const grpc::Status status = stub->Explain(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    std::fprintf(stderr, "skeinctl: %s\n", status.error_message().c_str());
    return 2;
  }
  if (!status.ok()) {
    std::fprintf(stderr, "skeinctl: the orchestrator at %s does not answer: %s\n",
                 flags.orchestrator.c_str(), status.error_message().c_str());
    return 1;
  }
  std::fputs((flags.format == "json" ? ExplainJson(response) : ExplainText(response)).c_str(),
             stdout);
  return 0;
}

}  // namespace skein::services
