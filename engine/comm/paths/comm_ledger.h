// What communicators moved, by the path they used, for logs and metrics.
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

// The groups of one size that used one path. The bytes of calls are those of call_bytes.h.
struct CommTotals {
  int ranks = 0;
  CommPath path = CommPath::kHost;
  std::string why_not;  // why no way before it; of the last group
  uint64_t bytes = 0;
  double busy_seconds = 0;   // in calls; waits for slower ranks and for the device included. Calls
                             // that are kernels on the engine's stream take none: nobody waits
  double best_gb_per_s = 0;  // the fastest call of at least 1 MiB: what the way can do
};

// Thread-safe.
class CommLedger {
 public:
  void Called(int ranks, CommPath path, uint64_t bytes, double seconds);
  // Why groups of so many ranks use this path rather than a faster one.
  void Explain(int ranks, CommPath path, std::string why_not);
  // The groups that moved bytes, by number of ranks and path.
  std::vector<CommTotals> Totals() const;

 private:
  CommTotals& At(int ranks, CommPath path);

  mutable std::mutex mutex_;
  std::map<std::pair<int, CommPath>, CommTotals> totals_;
};

// How a group's bytes go. Both may be called from any thread, as long as the group lives.
struct GroupWay {
  std::function<CommPath()> path;
  std::function<std::string()> why_not;  // why by no path before it; "" for the first
};

// `group`, with its successful calls counted in `ledger` under the path that they took.
std::unique_ptr<Communicator> MakeMeteredCommunicator(std::unique_ptr<Communicator> group,
                                                      std::shared_ptr<CommLedger> ledger,
                                                      GroupWay way);
// Of such a group; null: it is another one. Valid as long as the group.
const GroupWay* WayOf(const Communicator& group);

}  // namespace skein::engine
