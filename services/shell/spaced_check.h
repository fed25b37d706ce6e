// SpacedCheck: runs an expensive check at most once a second, however often it is requested; in
// between it returns the last result. One thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace skein::services {

class SpacedCheck {
 public:
  static constexpr int64_t kSpacingUs = 1'000'000;

  template <typename Check>
  const absl::Status& Run(int64_t now_us, Check check) {
    if (!made_ || now_us >= made_us_ + kSpacingUs) {
      last_ = check();
      made_us_ = now_us;
      made_ = true;
    }
    return last_;
  }
  const absl::Status& last() const { return last_; }  // OK before the first

 private:
  absl::Status last_;
  bool made_ = false;
  int64_t made_us_ = 0;
};

}  // namespace skein::services
