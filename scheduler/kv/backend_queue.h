// BackendQueue: which writer may use which of a receiver's few staging buffers ("backends"), when
// it has fewer of them than writers. The handshake of Tetris section 4.2.
//
//   - Requests come in the order of their first asking, whichever writer asked and however often it
//     asks again.
//   - A backend that becomes free goes to the first request in that order that has a writer without
//     one; it is the request's until its last chunk arrived, even while none of its writers is
//     there. So no chunk of a request that has begun waits for another request: no starvation.
//     Only if none is there for `hold_us` is it lent on (the request keeps its place): what the
//     request still computes may wait for memory that the others cannot give back before they have
//     handed over.
//   - Within a request a backend serves one writer at a time, from its grant to its word that it is
//     finished (its last block copied out, or given up), in the order of the writers' asking.
//
// A writer that is told "not yet" asks again within `ask_lease_us`, or its wish (not its request's
// place) is forgotten. A backend is bound to leases: a writer that is silent for longer than
// lease + grace is taken for dead. Nobody else uses a backend before its writer's word, or lease +
// grace: a late put cannot fall into another's buffer.
//
// Calls may come late and twice. A writer numbers its wishes: to finish one says nothing of a later
// one, and one that was finished is not granted again.
//
// Invariants, by number (CheckInvariants names them):
//   1. A backend has a writer only if it has a request.
//   2. A writer has at most one backend, and does not wait while it has one.
//   3. No backend is without a request while a writer waits; none without a writer while one of
//      its own request waits, unless the request has ended.
//   4. Every request in the order is waiting, has a backend, or has not ended.
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

struct BackendTimes {
  TimeUs lease_us = 3 * kSecondUs;
  TimeUs grace_us = 2 * kSecondUs;
  TimeUs ask_lease_us = 2 * kSecondUs;
  TimeUs hold_us = 5 * kSecondUs;
};

// One attempt of a request.
struct BackendRequest {
  RequestId id;
  Epoch epoch;
  auto operator<=>(const BackendRequest&) const = default;
};

class BackendQueue {
 public:
  explicit BackendQueue(int backends, const BackendTimes& times = {});

  static constexpr uint64_t kEveryAsk = UINT64_MAX;

  // The backend that `writer` uses from now on under a lease of lease_us; the same one if it has it
  // already. Nothing: not yet, ask again (or wish `ask` is finished). `ask` grows from wish to
  // wish.
  std::optional<int> Ask(const BackendRequest& request, InstanceId writer, TimeUs now,
                         uint64_t ask = 0);

  // A new lease. False: the writer has no backend (any more).
  bool Renew(const BackendRequest& request, InstanceId writer, TimeUs now);

  // The writer's word: under `ask` and earlier wishes it puts nothing more.
  void Finished(const BackendRequest& request, InstanceId writer, TimeUs now,
                uint64_t ask = kEveryAsk);

  // The request's last chunk arrived, or it was given up. Its backends are free as soon as their
  // writers said their word.
  void End(const BackendRequest& request, TimeUs now);

  void Tick(TimeUs now);
  TimeUs NextDeadline() const;

  // The writers that were given a backend since the last call, in that order; it may be gone again.
  std::vector<std::pair<BackendRequest, InstanceId>> TakeGiven() {
    return std::exchange(given_, {});
  }

  // Who has the backend; nothing: free.
  std::optional<BackendRequest> OwnerOf(int backend) const;
  std::optional<InstanceId> WriterOf(int backend) const;
  // That the writer has.
  std::optional<int> BackendOf(const BackendRequest& request, InstanceId writer) const;
  int backends() const { return static_cast<int>(backends_.size()); }
  int free() const;
  int64_t waiting() const { return waiting_; }  // writers

  absl::Status CheckInvariants() const;

 private:
  struct Waiting {
    InstanceId writer;
    uint64_t ask = 0;
  };
  struct Request {
    std::vector<Waiting> waiting;             // in the order of asking
    std::map<InstanceId, uint64_t> finished;  // wishes up to this one
    bool ended = false;
  };
  struct Backend {
    std::optional<BackendRequest> owner;
    std::optional<InstanceId> writer;
    uint64_t ask = 0;         // the writer's wish
    TimeUs free_at = kNever;  // lease + grace; without a writer: the end of the hold
  };

  Backend* Find(const BackendRequest& request, InstanceId writer);
  Backend* FirstFree();
  bool HasBackend(const BackendRequest& request) const;
  Request* FindRequest(const BackendRequest& request);
  void Wish(const BackendRequest& request, InstanceId writer, TimeUs now, uint64_t ask);
  // Of the writer's wishes up to `ask`.
  void EraseWish(uint64_t place, InstanceId writer, uint64_t ask);
  void Assign(TimeUs now);
  void GiveTo(Backend* backend, uint64_t place, TimeUs now);
  void Expire(TimeUs now);
  void Release(Backend* backend, TimeUs now);
  void Free(Backend* backend);
  void ForgetIfEnded(const BackendRequest& request);  // and has no backend any more

  const BackendTimes times_;
  std::vector<Backend> backends_;
  std::map<BackendRequest, uint64_t> order_;                         // by request: its place
  std::map<uint64_t, std::pair<BackendRequest, Request>> requests_;  // by place
  uint64_t next_place_ = 1;
  std::set<uint64_t> places_waiting_;  // of requests with writers that wait
  int64_t waiting_ = 0;
  TimerQueue<std::pair<uint64_t, InstanceId>> wishes_;  // by place; when they are forgotten
  std::vector<std::pair<BackendRequest, InstanceId>> given_;
};

}  // namespace skein::scheduler
