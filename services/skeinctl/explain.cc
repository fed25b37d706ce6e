#include "services/skeinctl/explain.h"

#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/rpc.h"
#include "services/skeinctl/command.h"

namespace skein::services {
void ExplainFlags::Register(FlagSet* set) {
  set->About(
      "Explain how a request was planned, what the alternatives were, and why they were not "
      "taken.\n"
      "\n"
      "The orchestrator knows the requests that run and the latest 1,000 others.");
  set->Positional(
      &request, "REQUEST",
      "The id of an answer (cmpl-..., chatcmpl-...), its X-Request-Id header (request_id "
      "in the router's log), or ROUTER/SERIAL (request_id in the other logs).");
  RegisterOrchestrator(&orchestrator, set);
  set->String(&format, "format", "How to print it.").OneOf({"text", "json"}).Value("FORMAT");
}

int RunExplain(const ExplainFlags& flags) {
  Channels channels;
  const auto stub = v1::Orchestrator::NewStub(channels.Get(flags.orchestrator));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::ExplainRequest request;
  request.set_request(flags.request);
  v1::ExplainResponse response;
  const grpc::Status status = stub->Explain(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return PrintErrors("skeinctl explain", absl::NotFoundError(status.error_message()), kUsage);
  }
  if (!status.ok()) {
    return PrintErrors(
        "skeinctl explain",
        absl::UnavailableError(absl::StrCat("the orchestrator at ", flags.orchestrator,
                                            " does not answer: ", status.error_message())),
        kFailed);
  }
  std::fputs((flags.format == "json" ? ExplainJson(response) : ExplainText(response)).c_str(),
             stdout);
  return 0;
}

}  // namespace skein::services
