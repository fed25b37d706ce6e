#include "services/worker/engine/comm_log.h"

#include <algorithm>
#include <string>

#include "services/log/log.h"

namespace skein::services {

std::vector<engine::CommTotals> CommLog::Due(const std::vector<engine::CommTotals>& totals) {
  std::vector<engine::CommTotals> due;
  for (const engine::CommTotals& one : totals) {
    uint64_t& said = said_bytes_[{one.ranks, one.path}];
    if (one.bytes == 0 || one.bytes < 8 * said) continue;
    said = one.bytes;
    due.push_back(one);
  }
  return due;
}

void CommLog::Log(const std::vector<engine::CommTotals>& totals) {
  for (const engine::CommTotals& one : Due(totals)) {
    const double seconds = one.busy_seconds;
    const double mean = seconds > 0 ? static_cast<double>(one.bytes) / seconds * 1e-9 : 0;
    LogInfo("communicator path", {{"ranks", one.ranks},
                                  {"path", std::string(engine::NameOf(one.path))},
                                  {"reason", one.why_not.empty() ? "preferred path" : one.why_not},
                                  {"bytes", one.bytes},
                                  {"gb_per_s", mean},
                                  {"best_gb_per_s", std::max(one.best_gb_per_s, mean)}});
  }
}

}  // namespace skein::services
