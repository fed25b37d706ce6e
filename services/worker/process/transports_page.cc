#include "services/worker/process/transports_page.h"

#include <map>

#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

double GbPerS(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0;
}

// A decode instance may be several peers, as it was restarted: one entry for each endpoint and
// path.
std::vector<engine::HandoffTotals> ByEndpoint(const std::vector<engine::HandoffTotals>& all) {
  std::map<std::vector<std::string>, engine::HandoffTotals> sums;
  for (const engine::HandoffTotals& one : all) {
    if (one.bytes == 0 || one.peer.empty()) continue;
    engine::HandoffTotals& sum = sums[{one.peer, one.path, one.transport}];
    const uint64_t bytes = sum.bytes + one.bytes;
    const double seconds = sum.busy_seconds + one.busy_seconds;
    sum = one;
    sum.bytes = bytes;
    sum.busy_seconds = seconds;
  }
  std::vector<engine::HandoffTotals> found;
  for (const auto& [key, sum] : sums) found.push_back(sum);
  return found;
}

}  // namespace

std::string TransportsJson(const std::vector<engine::HandoffTotals>& handoffs,
                           const std::vector<engine::CommTotals>& groups) {
  Json json = {{"handoffs", Json::array()}, {"groups", Json::array()}};
  for (const engine::HandoffTotals& one : ByEndpoint(handoffs)) {
    json["handoffs"].push_back({{"endpoint", one.peer},
                                {"transport", one.transport},
                                {"path", one.path},
                                {"bytes", one.bytes},
                                {"busy_s", one.busy_seconds},
                                {"gb_per_s", GbPerS(one.bytes, one.busy_seconds)},
                                {"why_not_faster", one.why_not_faster}});
  }
  for (const engine::CommTotals& one : groups) {
    json["groups"].push_back({{"instances", one.ranks},
                              {"path", std::string(engine::NameOf(one.path))},
                              {"bytes", one.bytes},
                              {"busy_s", one.busy_seconds},
                              {"gb_per_s", GbPerS(one.bytes, one.busy_seconds)},
                              {"best_gb_per_s", one.best_gb_per_s},
                              {"why_not_faster", one.why_not}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace skein::services
