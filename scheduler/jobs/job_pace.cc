#include "scheduler/jobs/job_pace.h"

#include <algorithm>

namespace skein::scheduler::jobs {

void JobPace::Begin(TimeUs now) { begun_us_ = std::min(begun_us_, now); }

void JobPace::Count(int64_t tokens, int64_t estimated, TimeUs now) {
  Begin(now);
  const int64_t number = now / kBucketUs;
  Bucket& bucket = buckets_[static_cast<size_t>(number % kBuckets)];
  if (bucket.number != number) bucket = {number, 0};
  bucket.tokens += tokens;
  tokens_ += tokens;
  estimated_ += estimated;
}

double JobPace::TokensPerSecond(TimeUs now) const {
  if (begun_us_ == kNever) return 0;
  const int64_t number = now / kBucketUs;
  int64_t tokens = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number > number - kBuckets) tokens += bucket.tokens;
  }
  // The oldest bucket that counts began here.
  const TimeUs window_us = now - (number - kBuckets + 1) * kBucketUs;
  const TimeUs span_us = std::max(std::min(window_us, now - begun_us_), kSecondUs);
  return static_cast<double>(tokens) * 1e6 / static_cast<double>(span_us);
}

double JobPace::SecondsFor(int64_t estimated, TimeUs now) const {
  const double rate = TokensPerSecond(now);
  if (rate <= 0 || estimated_ <= 0) return -1;
  const double actual = static_cast<double>(tokens_) / static_cast<double>(estimated_);
  return static_cast<double>(estimated) * actual / rate;
}

}  // namespace skein::scheduler::jobs
