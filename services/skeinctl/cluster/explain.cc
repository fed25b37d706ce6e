#include "services/skeinctl/cluster/explain.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "services/skeinctl/cluster/cluster_client.h"

namespace skein::services {
namespace {

constexpr char kSuggestion[] =
    "'skeinctl requests' lists the requests that the orchestrator remembers.";

}  // namespace

void ExplainFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Explain how a request was planned, why alternatives were rejected, "
      "and how it ended.\n\nThe orchestrator remembers running requests and the latest 1,000 "
      "others. ",
      kSuggestion, " ", ExitCodesHelp()));
  set->OptionalPositional(
      &request, "REQUEST",
      "The id of an answer (cmpl-..., chatcmpl-...), its X-Request-Id header (request_id in the "
      "router's log), or ROUTER/SERIAL (request_id in the other logs).");
  RegisterCluster(&orchestrator, set);
  RegisterFormat(&format, "text", set);
  set->Check([this]() -> absl::Status {
    if (!request.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("REQUEST is required. ", kSuggestion));
  });
}

int RunExplain(const ExplainFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("explain", orchestrator.status());
  const auto response = ClusterClient(*orchestrator).Explain(flags.request);
  if (absl::IsNotFound(response.status())) {
    return EndWith("explain", absl::NotFoundError(absl::StrCat(
                                  std::string(response.status().message()), ". ", kSuggestion)));
  }
  if (!response.ok()) return EndWith("explain", response.status());
  const bool json = flags.format == "json";
  std::fputs((json ? ExplainJson(*response) : ExplainText(*response)).c_str(), stdout);
  return kDone;
}

}  // namespace skein::services
