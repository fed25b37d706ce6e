// StagingLoans: the staging buffers that writers have or wait for, with their calls and the grants
// under which they put. StagingBufferQueue says whose turn it is; this answers the writers. Part of
// KvIn.
//
// A buffer is given to the next writer only when the grant of the former one was closed: then no
// late put of the former one reaches it.
//
// Invariants:
//   1. Each call that waits has a time at which it is answered.
//   2. A grant that is being closed is a buffer's.
//   3. StagingBufferQueue's own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/kv/staging_buffer_queue.h"
#include "scheduler/worker/kv_in/kv_in_events.h"

namespace skein::scheduler {

class StagingLoans {
 public:
  // A prefill instance that writes the KV of one attempt of a request.
  struct Writer {
    RequestId id;
    Epoch epoch;
    InstanceId instance;
    auto operator<=>(const Writer&) const = default;
  };

  // `lease_us`: of a loan that is not renewed. `new_grant` gives a number that no grant had.
  StagingLoans(const StagingConfig& config, TimeUs lease_us, std::function<GrantId()> new_grant,
               std::function<void(KvInEffect)> emit);

  // The call is answered when the writer has a buffer, or after config.acquire_wait_us. An older
  // call of the writer is answered at once.
  void Acquire(const Writer& writer, CallId call, uint64_t acquisition, TimeUs now);
  // Its call, if one waits, is answered with this error.
  void Refuse(const Writer& writer, absl::Status status);
  void Renew(const Writer& writer, TimeUs now);
  // The writer sends nothing more under this acquisition and earlier ones.
  void Finish(const Writer& writer, TimeUs now,
              uint64_t acquisition = StagingBufferQueue::kEveryAcquisition);
  // Nothing more comes for this attempt.
  void End(RequestId id, Epoch epoch, TimeUs now);

  // The buffer that the writer has.
  std::optional<int> BufferOf(const Writer& writer) const;

  // False: the grant is not a buffer's.
  bool GrantClosed(GrantId grant);
  void RunTimers(TimeUs now);
  TimeUs NextDeadline() const;

  const StagingBufferQueue& queue() const { return queue_; }
  absl::Status CheckInvariants() const;

 private:
  // The writer that may use a buffer.
  struct Loan {
    Writer writer;
    GrantId grant;  // 0: nobody
    bool closing = false;
  };

  void AnswerAll();  // whose turn has come
  void AnswerOne(const Writer& writer, int buffer);
  GrantId Lend(int buffer, const Writer& writer);

  const StagingConfig config_;
  const std::function<GrantId()> new_grant_;
  const std::function<void(KvInEffect)> emit_;
  StagingBufferQueue queue_;
  std::vector<Loan> loans_;         // by buffer
  std::map<Writer, CallId> calls_;  // that wait
  TimerQueue<Writer> call_ends_;
};

}  // namespace skein::scheduler
