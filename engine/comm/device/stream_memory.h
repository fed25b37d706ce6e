// LinkMemory whose work runs on a stream of its own, and where links keep it between their lives.
// Internal to engine/comm.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/algorithms/link.h"

namespace skein::engine {

class StreamMemory : public LinkMemory {
 public:
  // Until all that was started is done. The first failure, from then on at each call.
  virtual absl::Status Finish() = 0;
};

// The memories (a stream, scratch, what peers have opened) of links that ended well serve later
// links: a ring makes none. Thread-safe.
template <typename Memory>
class StreamMemories {
 public:
  using Make = std::function<absl::StatusOr<std::unique_ptr<Memory>>()>;
  explicit StreamMemories(Make make) : make_(std::move(make)) {}

  absl::StatusOr<std::unique_ptr<Memory>> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto memory = std::move(idle_.back());
        idle_.pop_back();
        return memory;
      }
    }
    return make_();
  }
  // REQUIRES: nothing of it is under way, and none of its work has failed.
  void GiveBack(std::unique_ptr<Memory> memory) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(memory));
  }

 private:
  const Make make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> idle_;
};

}  // namespace skein::engine
