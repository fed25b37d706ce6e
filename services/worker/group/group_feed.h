// GroupFeed: carries the messages of a bound group's step feed between this instance's core and the
// other ranks, on a thread of its own that waits on the context's wire. So does it with the offers
// of a group that is to share its weights (shared_weights.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/host/rank_wire.h"
#include "engine/model/group/group_contexts.h"
#include "scheduler/worker/group/step_feed.h"

namespace skein::services {

class GroupFeed {
 public:
  // Called on the feed's thread; they may not block.
  struct Told {
    std::function<void(int rank, scheduler::FeedMessage message)> arrived;
    // That rank's process has ended, or sends what cannot be read.
    std::function<void(int rank, const absl::Status& why)> lost;
    // What SendSharing sent. Empty: nobody waits for it.
    std::function<void(int rank, const std::string& message)> sharing = nullptr;
  };

  // Nobody else reads or writes the context's feed meanwhile.
  GroupFeed(std::shared_ptr<engine::GroupContext> context, Told told);
  ~GroupFeed();  // what was sent before is on its way if there is room; nothing is told after it

  // Any thread; does not block. To no other rank of the context: dropped.
  void Send(int rank, const scheduler::FeedMessage& message);
  // The same of bytes that are no message of a step feed.
  void SendSharing(int rank, const std::string& message);
  const std::shared_ptr<engine::GroupContext>& context() const { return context_; }

 private:
  void Loop();
  void Queue(int rank, std::string message);
  bool SendQueued();  // false: it is to end
  void Tell(const engine::RankWire::Arrival& arrival);

  const std::shared_ptr<engine::GroupContext> context_;
  engine::RankWire* const wire_;  // the context's
  const Told told_;
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> queued_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skein::services
