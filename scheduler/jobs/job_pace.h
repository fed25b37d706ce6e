// JobPace: how fast a job's lines are answered of late, and how long the rest takes at that pace.
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler::jobs {

class JobPace {
 public:
  static constexpr TimeUs kBucketUs = 5 * kSecondUs;
  static constexpr int kBuckets = 12;  // the last minute

  // The first line was given; later calls have no effect.
  void Begin(TimeUs now);
  // A line was answered. `estimated`: the tokens that were estimated for it.
  void Count(int64_t tokens, int64_t estimated, TimeUs now);

  double TokensPerSecond(TimeUs now) const;  // 0: not known
  // Until lines of so many estimated tokens are answered, too; how far the estimates were off for
  // the answered lines counts. Negative: not known.
  double SecondsFor(int64_t estimated, TimeUs now) const;

 private:
  struct Bucket {
    int64_t number = -1;  // of the time, in units of kBucketUs
    int64_t tokens = 0;
  };

  TimeUs begun_us_ = kNever;
  std::array<Bucket, kBuckets> buckets_;  // by number modulo kBuckets
  int64_t tokens_ = 0;                    // in all
  int64_t estimated_ = 0;
};

}  // namespace skein::scheduler::jobs
