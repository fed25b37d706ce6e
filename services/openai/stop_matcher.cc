#include "services/openai/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace skein::services::openai {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include)
    : stops_(std::move(stops)), include_(include) {}

std::string StopMatcher::Push(std::string_view piece) {
  if (matched()) return {};
  if (stops_.empty()) return std::string(piece);
  held_ += piece;
  size_t at = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found < at) {
      at = found;
      matched_ = &stop;
    }
  }
  if (matched()) {
    held_.resize(include_ ? at + matched_->size() : at);
    return std::exchange(held_, {});
  }
  const size_t from = HeldFrom();
  std::string out = held_.substr(0, from);
  held_.erase(0, from);
  return out;
}

std::string StopMatcher::PushUnchecked(std::string_view piece) {
  if (matched()) return {};
  return std::exchange(held_, {}).append(piece);
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

// Where the longest end of held_ starts that is the beginning of a stop string.
size_t StopMatcher::HeldFrom() const {
  size_t from = held_.size();
  const std::string_view held = held_;
  for (const std::string& stop : stops_) {
    const size_t longest = std::min(stop.size() - 1, held.size());
    for (size_t size = longest; size > held.size() - from; --size) {
      if (held.substr(held.size() - size) == std::string_view(stop).substr(0, size)) {
        from = held.size() - size;
        break;
      }
    }
  }
  return from;
}

}  // namespace skein::services::openai
