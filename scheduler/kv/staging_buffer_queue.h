// StagingBufferQueue: which writer may use which of a receiver's few staging buffers, when there
// are more writers than buffers. Implements the handshake of Tetris section 4.2, where the buffers
// are called backends.
//
//  - Requests are served in the order of their first call of Acquire, whichever writer made it.
//  - A free buffer goes to the first request in that order that has a waiting writer without a
//    buffer. The request keeps the buffer until its last chunk has arrived, even while no writer
//    uses it. So no chunk of a started request waits for another request, and none starves. Only if
//    no writer uses the buffer for `hold_us` is it lent to the next request (the first one keeps
//    its place), because the rest of the first request may wait for memory that other requests free
//    only after their handoffs.
//  - Within a request, one writer at a time uses a buffer, in the order of the writers' calls: from
//    its grant until it reports that it is finished (its last block was copied out, or it gave up).
//
// A writer that is told "not yet" must call Acquire again within `acquire_lease_us`, or its
// acquisition is forgotten (its request keeps its place). A grant has a lease: a writer silent for
// longer counts as dead. The buffer then goes to another writer, which is told so only when no late
// put of the former one can reach it (KvIn).
//
// Calls may arrive late and more than once. A writer numbers its acquisitions: finishing one
// does not finish a later one, and a finished one is not granted again.
//
// Invariants, by number (CheckInvariants names them):
//   1. A buffer has a writer only if it has a request.
//   2. A writer has at most one buffer, and does not wait while it has one.
//   3. If a writer waits, every buffer has a request. If a writer of a buffer's own request waits
//      and that request has not ended, the buffer has a writer.
//   4. Every request in the order is waiting, has a buffer, or has not ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"

namespace skein::scheduler {

struct StagingTimes {
  TimeUs lease_us = 3 * kSecondUs;
  TimeUs acquire_lease_us = 2 * kSecondUs;
  TimeUs hold_us = 5 * kSecondUs;
};

// One attempt of a request.
struct StagingRequest {
  RequestId id;
  Epoch epoch;
  auto operator<=>(const StagingRequest&) const = default;
};

class StagingBufferQueue {
 public:
  explicit StagingBufferQueue(int buffers, const StagingTimes& times = {});

  static constexpr uint64_t kEveryAcquisition = UINT64_MAX;

  // Gives `writer` a staging buffer under a lease of lease_us, or the same one if it has one.
  // Empty: call again later, or `acquisition` is already finished. Its number grows with each of
  // the writer's.
  std::optional<int> Acquire(const StagingRequest& request, InstanceId writer, TimeUs now,
                             uint64_t acquisition = 0);

  // Renews the lease. False: the writer has no staging buffer.
  bool Renew(const StagingRequest& request, InstanceId writer, TimeUs now);

  // The writer sends nothing more under this acquisition and earlier ones.
  void Finished(const StagingRequest& request, InstanceId writer, TimeUs now,
                uint64_t acquisition = kEveryAcquisition);

  // The request's last chunk has arrived, or it was given up. Its staging buffers are freed once
  // their writers have finished.
  void End(const StagingRequest& request, TimeUs now);

  void Tick(TimeUs now);
  TimeUs NextDeadline() const;

  // The writer that has the staging buffer; empty: it is free.
  std::optional<StagingRequest> OwnerOf(int buffer) const;
  std::optional<InstanceId> WriterOf(int buffer) const;
  // The staging buffer that the writer has.
  std::optional<int> BufferOf(const StagingRequest& request, InstanceId writer) const;
  int buffers() const { return static_cast<int>(buffers_.size()); }
  int free() const;
  int64_t waiting() const { return waiting_; }  // number of writers

  absl::Status CheckInvariants() const;

 private:
  struct Waiting {
    InstanceId writer;
    uint64_t acquisition = 0;
  };
  struct Request {
    std::vector<Waiting> waiting;             // in the order of their calls
    std::map<InstanceId, uint64_t> finished;  // acquisitions up to this one
    bool ended = false;
  };
  struct Buffer {
    std::optional<StagingRequest> owner;
    std::optional<InstanceId> writer;
    uint64_t acquisition = 0;  // the writer's
    TimeUs free_at = kNever;   // the lease's end; without a writer: end of the hold
  };

  Buffer* Find(const StagingRequest& request, InstanceId writer);
  Buffer* FirstFree();
  bool HasBuffer(const StagingRequest& request) const;
  Request* FindRequest(const StagingRequest& request);
  void Enqueue(const StagingRequest& request, InstanceId writer, TimeUs now, uint64_t acquisition);
  // The writer waits no more under acquisitions up to this one.
  void EraseWaiting(uint64_t place, InstanceId writer, uint64_t acquisition);
  void Assign(TimeUs now);
  void GiveTo(Buffer* buffer, uint64_t place, TimeUs now);
  void Expire(TimeUs now);
  void Release(Buffer* buffer, TimeUs now);
  void Free(Buffer* buffer);
  void ForgetIfEnded(const StagingRequest& request);  // ended, and without a staging buffer

  const StagingTimes times_;
  std::vector<Buffer> buffers_;
  std::map<StagingRequest, uint64_t> order_;  // by request: its position in the order
  std::map<uint64_t, std::pair<StagingRequest, Request>> requests_;  // by place
  uint64_t next_place_ = 1;
  std::set<uint64_t> places_waiting_;  // positions of requests with waiting writers
  int64_t waiting_ = 0;
  TimerQueue<std::pair<uint64_t, InstanceId>>
      acquisitions_;  // by position; when they are forgotten
};

}  // namespace skein::scheduler
