// What communicators moved, by the way they took, for logs and metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/paths/comm_path.h"

namespace skein::engine {

// Of all groups of one size that went one way. Bytes of a call: the more of what the rank sent to
// others and received from them; of a reduction what a ring sends.
struct CommTotals {
  int ranks = 0;
  CommPath path = CommPath::kHost;
  std::string why_not;  // why no way before it; of the last group
  uint64_t bytes = 0;
  double busy_seconds = 0;   // in calls; waits for slower ranks and for the device included
  double best_gb_per_s = 0;  // the fastest call of at least 1 MiB: what the way can do
};

// Thread-safe.
class CommLedger {
 public:
  void Called(int ranks, CommPath path, uint64_t bytes, double seconds);
  // Why groups of so many ranks go this way and none before it.
  void Explain(int ranks, CommPath path, std::string why_not);
  // Of those that moved bytes, by ranks and path.
  std::vector<CommTotals> Totals() const;

 private:
  CommTotals& At(int ranks, CommPath path);

  mutable std::mutex mutex_;
  std::map<std::pair<int, CommPath>, CommTotals> totals_;
};

// `group`, with its calls that ended OK in `ledger`, under what `path` says then.
std::unique_ptr<Communicator> MakeMeteredCommunicator(std::unique_ptr<Communicator> group,
                                                      std::shared_ptr<CommLedger> ledger,
                                                      std::function<CommPath()> path);

}  // namespace skein::engine
