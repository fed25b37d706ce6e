// Records live traffic as a Mooncake trace (`router --record-trace FILE`), which `skeinctl
// simulate` and `skeinctl bench` replay: a JSON object a line with `timestamp` (milliseconds from
// the start of the recording to the arrival), `input_length`, `output_length` (tokens of one
// choice) and `hash_ids`, one for each 512 tokens of the prompt and the rest. Prompts that are
// equal up to the end of a block have equal ids up to there.
//
// Neither text nor token ids can be had from the file: an id is 53 bits of a chain of HMAC-SHA256
// under a random key, which is made for the recording and never written. Ids of two recordings are
// not comparable.
//
// Lines stand in the order in which requests ended. A line is of one choice: n choices of a prompt
// are n lines. Requests that were refused are not recorded.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/base/request.h"

namespace skein::services {

inline constexpr size_t kTraceBlockTokens = 512;
using TraceKey = std::array<uint8_t, 32>;

// Pure. An id for each block of the tokens, the last of which may be shorter; in 0 ... 2^53 - 1.
std::vector<int64_t> TraceHashIds(const TraceKey& key, absl::Span<const int32_t> tokens,
                                  size_t block_tokens = kTraceBlockTokens);

class TraceRecorder {
 public:
  struct Choice {
    int64_t arrived_us = 0;  // of MonotonicUs
    scheduler::SpecPtr spec;
    int64_t output_tokens = 0;
  };

  // Makes the file, for the user alone. One that is there is kept: FILE.1, FILE.2, ... is made
  // then. `start_us` is when the recording begins. UNAVAILABLE names a path that cannot be written.
  static absl::StatusOr<std::unique_ptr<TraceRecorder>> Open(const std::string& path,
                                                             int64_t start_us,
                                                             size_t queue_max = 4096);
  // Writes what is queued.
  ~TraceRecorder();

  // Any thread. Never waits for the file: when `queue_max` choices wait to be written, this one is
  // dropped and counted.
  void Record(Choice choice);

  const std::string& path() const { return path_; }
  uint64_t written() const { return written_.load(); }
  uint64_t dropped() const { return dropped_.load(); }

 private:
  TraceRecorder(std::FILE* file, std::string path, int64_t start_us, size_t queue_max);
  void WriteAll();
  void Write(const std::vector<Choice>& choices);
  std::string Line(const Choice& choice) const;

  std::FILE* const file_;
  const std::string path_;
  const int64_t start_us_;
  const size_t queue_max_;
  TraceKey key_;
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> dropped_{0};
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Choice> queue_;  // guarded by mu_, as stopping_
  bool stopping_ = false;
  std::thread writer_;  // last: it uses the above
};

}  // namespace skein::services
