#include "services/log/repeat_limit.h"

#include <chrono>
#include <mutex>

namespace skein::services {
namespace {

struct ProcessLimit {
  std::mutex mutex;
  RepeatLimit limit;
};

// Never destroyed, as the log.
ProcessLimit& TheLimit() {
  static auto* limit = new ProcessLimit;
  return *limit;
}

}  // namespace

bool RepeatLimit::Admit(const std::string& kind, int64_t now_us) {
  const auto it = logged_us_.find(kind);
  if (it != logged_us_.end() && now_us - it->second < kSpacingUs) return false;
  const bool full = logged_us_.size() >= kKindsMax;
  if (it == logged_us_.end() && (full || now_us >= next_forget_us_)) {
    // Those that were not heard of for long have ended without a word, as a peer that was started
    // again at another address.
    std::erase_if(logged_us_,
                  [now_us](const auto& one) { return now_us - one.second >= 2 * kSpacingUs; });
    next_forget_us_ = now_us + kSpacingUs;
    if (logged_us_.size() >= kKindsMax) return true;
  }
  logged_us_[kind] = now_us;
  return true;
}

bool AdmitRepeated(const std::string& kind) {
  const int64_t now_us = std::chrono::duration_cast<std::chrono::microseconds>(
                             std::chrono::steady_clock::now().time_since_epoch())
                             .count();
  ProcessLimit& process = TheLimit();
  std::lock_guard<std::mutex> lock(process.mutex);
  return process.limit.Admit(kind, now_us);
}

void RepeatedIsOver(const std::string& kind) {
  ProcessLimit& process = TheLimit();
  std::lock_guard<std::mutex> lock(process.mutex);
  process.limit.Over(kind);
}

}  // namespace skein::services
