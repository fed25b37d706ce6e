#include "engine/cuda/device/deadline.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace skein::engine {

Deadline::Deadline(std::chrono::milliseconds limit, std::string cause)
    : cause_(std::move(cause)), watcher_([this, limit] { Watch(limit); }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

void Deadline::Watch(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, limit, [this] { return met_; })) return;
  std::fprintf(stderr, "%s\n", cause_.c_str());
  std::abort();
}

}  // namespace skein::engine
