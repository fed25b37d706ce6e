#include "services/skeinctl/cluster/requests.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/request_id.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string IdOf(const v1::RequestExplanation& request) {
  return ToString(RequestId{request.id().router(), request.id().serial()});
}

std::string TimeOr(bool known, double seconds) {
  return known ? absl::StrFormat("%.3f", seconds) : "-";
}

Json RequestJson(const v1::RequestExplanation& request) {
  const auto known = [](bool has, auto value) { return has ? Json(value) : Json(); };
  return {{"id", IdOf(request)},
          {"names", std::vector<std::string>(request.names().begin(), request.names().end())},
          {"model", request.model()},
          {"prompt_tokens", request.prompt_tokens()},
          {"output_tokens", known(request.has_output_tokens(), request.output_tokens())},
          {"state", request.state()},
          {"ended", request.has_ended_s()},
          {"age_s", request.age_s()},
          {"placed_s", known(request.has_placed_s(), request.placed_s())},
          {"prefilled_s", known(request.has_prefilled_s(), request.prefilled_s())},
          {"first_token_s", known(request.has_first_token_s(), request.first_token_s())},
          {"ended_s", known(request.has_ended_s(), request.ended_s())}};
}

}  // namespace

std::string RequestsTable(const v1::ListRequestsResponse& response) {
  if (response.requests().empty()) return "no requests yet\n";
  std::vector<std::vector<std::string>> rows = {{"REQUEST", "MODEL", "PROMPT TOK", "OUTPUT TOK",
                                                 "SUBMITTED", "PLACED S", "KV TAKEN S",
                                                 "FIRST TOKEN S", "TOTAL S", "STATE"}};
  for (const v1::RequestExplanation& one : response.requests()) {
    const double total_s = one.has_ended_s() ? one.ended_s() : one.age_s();
    rows.push_back({one.names().empty() ? IdOf(one) : one.names(0), one.model(),
                    absl::StrCat(one.prompt_tokens()),
                    one.has_output_tokens() ? absl::StrCat(one.output_tokens()) : "-",
                    DurationText(one.age_s()) + " ago", TimeOr(one.has_placed_s(), one.placed_s()),
                    TimeOr(one.has_prefilled_s(), one.prefilled_s()),
                    TimeOr(one.has_first_token_s(), one.first_token_s()), TimeOr(true, total_s),
                    one.state()});
  }
  return AlignedTable(rows);
}

std::string RequestsJson(const v1::ListRequestsResponse& response) {
  Json json = {{"requests", Json::array()}};
  for (const v1::RequestExplanation& one : response.requests()) {
    json["requests"].push_back(RequestJson(one));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void RequestsFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "List recent requests, or the slowest, with lengths, times and how they ended.\n\nThe "
      "orchestrator remembers running requests and the latest 1,000 others. Times count from the "
      "submission; skeinctl explain shows one request in full. ",
      ExitCodesHelp()));
  RegisterCluster(&orchestrator, set);
  set->Bool(&recent, "recent", "The latest submission first; the default.");
  set->Bool(&slowest, "slowest", "The longest total time first.");
  set->Int(&limit, "limit", "Requests to list.", 1, 1000);
  RegisterFormat(&format, "table", set);
  set->Check([this]() -> absl::Status {
    if (!recent || !slowest) return absl::OkStatus();
    return absl::InvalidArgumentError("--recent and --slowest: give only one of them");
  });
}

int RunRequests(const RequestsFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("requests", orchestrator.status());
  v1::ListRequestsRequest request;
  request.set_order(flags.slowest ? v1::ListRequestsRequest::ORDER_SLOWEST
                                  : v1::ListRequestsRequest::ORDER_RECENT);
  request.set_limit(static_cast<uint32_t>(flags.limit));
  const auto response = ClusterClient(*orchestrator).Requests(request);
  if (!response.ok()) return EndWith("requests", response.status());
  const bool json = flags.format == "json";
  std::fputs((json ? RequestsJson(*response) : RequestsTable(*response)).c_str(), stdout);
  return kDone;
}

}  // namespace skein::services
