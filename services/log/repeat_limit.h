// RepeatLimit: decides which occurrences of a repeated failure are logged, such as that of a peer
// that cannot be reached: the first, then one every 30 s until it is over. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace skein::services {

class RepeatLimit {
 public:
  static constexpr int64_t kSpacingUs = 30'000'000;
  static constexpr size_t kKindsMax = 1024;  // remembered; failures of further kinds are all logged

  // Whether this failure is to be logged.
  bool Admit(const std::string& kind, int64_t now_us);
  // It does not fail any more: the next failure is a first one.
  void Over(const std::string& kind) { logged_us_.erase(kind); }
  // The same of all kinds.
  void Clear() { logged_us_.clear(); }
  // Kinds that are remembered. Those of peers that never come back are forgotten after a while.
  size_t size() const { return logged_us_.size(); }

 private:
  std::map<std::string, int64_t> logged_us_;  // by kind, when it was logged last
  int64_t next_forget_us_ = 0;
};

// The same for the whole process, by the time now. Thread-safe.
bool AdmitRepeated(const std::string& kind);
void RepeatedIsOver(const std::string& kind);

}  // namespace skein::services
