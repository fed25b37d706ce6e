// KeptTraces: the traces that routers found slow. Each worker is told of them in the answer to its
// next report (ReportResponse.keep_traces). The latest kTracesMax are remembered; a worker that has
// not been told of an older one never will be. Used on one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace skein::services {

class KeptTraces {
 public:
  static constexpr size_t kTracesMax = 1024;

  // The 16 bytes of a trace's id.
  void Add(std::string trace) {
    traces_.push_back(std::move(trace));
    if (traces_.size() <= kTracesMax) return;
    traces_.pop_front();
    ++forgotten_;
  }
  // Those that the worker of this stream was not told yet, the oldest first: all that are
  // remembered, if nothing was told on it.
  std::vector<std::string> TakeFor(uint64_t stream) {
    const uint64_t end = forgotten_ + traces_.size();
    uint64_t& told = told_[stream];
    const uint64_t first = std::clamp(told, forgotten_, end);
    told = end;
    return {traces_.begin() + static_cast<std::ptrdiff_t>(first - forgotten_), traces_.end()};
  }
  // The stream is over.
  void Forget(uint64_t stream) { told_.erase(stream); }
  bool empty() const { return traces_.empty(); }

 private:
  std::deque<std::string> traces_;
  uint64_t forgotten_ = 0;             // of all that were added
  std::map<uint64_t, uint64_t> told_;  // by stream: how many of all that were added
};

}  // namespace skein::services
