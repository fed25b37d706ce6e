// ClientRequests: the requests of a router, their counts by state and model, and the queue of those
// that wait for a free stream. Part of RouterCore, and used only on its thread. A call costs
// O(log requests), and Admit as much as there are tenants that wait. While no tenant that waits may
// have a stream, that is only so after a request came or ended, and ten times a second.
//
// Tenants. The queue is served fairly by tenant (fairness/fair_order.h), by the tokens of prompts
// and of answers. While several tenants are known, one that has its share of the streams leaves an
// eighth of them free for the others, and one that has its share of the places in the queue gets no
// further one when all are taken, while the others do (fairness/tenant_places.h). So the tenant
// that sends too much is the one that waits, and that is refused.
//
// Goals. Within a tenant, requests that can still reach their TTFT go before others.
//
// Invariants (CheckInvariants names them, by RouterCore's numbers):
//   1. running <= max_streams, queued <= 2 max_queued; no request is queued whose tenant may have a
//      stream.
//   2. The present attempt at a request has delivered nothing, unless it is placed or was lost.
//   4. The snapshot counts the requests there are, by state.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/fairness/fair_order.h"
#include "scheduler/fairness/tenant_places.h"
#include "scheduler/router/client_request.h"

namespace skein::scheduler {

// Kept up to date event by event, so that a look at it costs nothing like the number of requests.
struct RouterSnapshot {
  int64_t queued = 0;     // not submitted yet
  int64_t submitted = 0;  // no decode instance, or none any more
  int64_t streaming = 0;
  TimeUs oldest_arrival_us = kNever;  // of those queued; kNever: none is
  uint64_t accepted = 0;
  uint64_t rejected = 0;
  uint64_t finished = 0;  // stop or length
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t index_errors = 0;   // gaps and repetitions
  uint64_t moved_refused = 0;  // to another cell, since theirs refused them
  uint64_t moved_lost = 0;     // since theirs was lost
  uint64_t resumes = 0;        // attempts that were lost or moved, and followed by another one
  uint64_t moves = 0;          // of these, given up by choice because their instance drains
  uint64_t unreached = 0;  // attempts that were lost since the router does not reach their instance
  uint64_t retries_delayed = 0;  // attempts that waited for the RetryBudget
  uint64_t reattached = 0;       // streams with tokens that went on at their instance after a break
  // Of choices that ended and whose clients had such a goal. One that failed missed it; one that
  // its client cancelled is not counted.
  struct Goal {
    uint64_t met = 0, missed = 0;
  };
  Goal ttft_goals, tpot_goals;
  std::vector<bool> ready;  // by cell
  struct OfModel {
    int64_t queued = 0, submitted = 0, streaming = 0;
  };
  std::map<std::string, OfModel> models;  // of which there was a request
  uint64_t version = 0;  // changes with each event that changes the rest: tokens do not
};

struct AdmissionConfig {
  int64_t max_streams = 256;
  int64_t max_queued = 256;
  TimeUs min_retry_after_us = kSecondUs;
  TimeUs max_retry_after_us = 60 * kSecondUs;
};

class ClientRequests {
 public:
  using State = ClientRequest::State;

  // `snapshot` outlives this.
  ClientRequests(const AdmissionConfig& config, RouterSnapshot* snapshot)
      : config_(config),
        snapshot_(*snapshot),
        streams_(config.max_streams),
        places_(config.max_queued) {}

  // For its tenant neither a stream is free nor a place in the queue. Empty: it is not; else the
  // reason, for its client.
  std::string WhyFull(const RequestHead& spec, TimeUs now);
  // How long until a place in the queue is likely to be free: one more end at the recent rate.
  TimeUs RetryAfter(TimeUs now) const;
  // A new request, queued. REQUIRES: its id is unknown, and WhyFull is empty.
  void Add(ClientRequest request);
  // The next queued request, submitted from now on, if a stream is free for its tenant; null: there
  // is none.
  ClientRequest* Admit(TimeUs now);
  // One more token was delivered to its client.
  void NoteDelivered(const ClientRequest& request);
  void SetState(ClientRequest& request, State state);  // REQUIRES: it is not queued
  // Its end.
  void Erase(ClientRequest& request, TimeUs now);

  // `id` is that of any of its attempts.
  bool Has(RequestId id) const { return requests_.count(id.First()) > 0; }
  ClientRequest* FindAny(RequestId id);  // null: there is none
  ClientRequest& at(RequestId id) { return requests_.at(id.First()); }
  // `id` is that of its present attempt; null: there is none.
  ClientRequest* Find(RequestId id);
  ClientRequest* FindStream(RequestId id, Epoch epoch);  // that has one, under this epoch
  const std::map<RequestId, ClientRequest>& all() const { return requests_; }  // by first attempt
  std::vector<RequestId> InCell(size_t cell) const;  // their present attempts
  int64_t running() const { return running_; }       // that are not queued
  TimeUs OldestQueuedUs() const;                     // its arrival; kNever: none is queued
  std::string_view StateOf(RequestId id) const;
  absl::Status CheckInvariants() const;

 private:
  using QueueKey = std::pair<uint64_t, RequestId>;  // by ClientRequest::number

  void Count(const ClientRequest& request, int64_t change);  // in its state
  void LeaveQueue(const ClientRequest& request);
  // The queue is one of all priorities.
  static FairOwner OwnerOf(const ClientRequest& request) {
    return {request.asked->tenant, request.asked->tenant_weight, 0};
  }

  const AdmissionConfig config_;
  RouterSnapshot& snapshot_;
  std::map<RequestId, ClientRequest> requests_;
  int64_t running_ = 0;
  std::map<uint64_t, RequestId> queue_;  // by ClientRequest::number
  FairOrder<QueueKey> order_;            // of the same
  TenantPlaces streams_;                 // of those that are not queued
  TenantPlaces places_;                  // of those that are
  TimeUs none_may_until_us_ = 0;         // until then no tenant that waits may have a stream
  uint64_t last_number_ = 0;
  std::deque<TimeUs> recent_ends_;  // of requests that had been submitted, for RetryAfter
};

}  // namespace skein::scheduler
