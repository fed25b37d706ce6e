// EngineWatch: what a WorkerCore knows of its engine's health: whether it has failed, how long the
// step in flight has run and what such a step takes here, and when an idle engine is due for a
// probe. Part of StepLoop.
//
// A failed engine stays failed: the core ends its requests and leaves, and the process ends.
//
// A probe is a real step that computes and samples one token in a block outside the core's pool. It
// shows that the engine still answers, and with numbers; nothing else counts it.
//
// Invariants (CheckInvariants): no step is in flight at a failed engine; the step in flight is
// overdue one timeout after the moment from which its age counts.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

struct EngineWatchConfig {
  // A step that takes longer is a failure of the engine.
  TimeUs step_timeout_us = 600 * kSecondUs;
  // An engine that has been idle for so long is probed; 0: never.
  TimeUs probe_interval_us = 0;
  BlockId probe_block;  // of the engine, not of the pool
  // Time after a failure for reports and stream ends; then the worker leaves anyway.
  TimeUs last_words_us = 5 * kSecondUs;
  // Longest time that a worker with a failed engine waits for an orchestrator to hear of it, while
  // requests of the failed step may be planned again: their deadlines have not passed, and their
  // routers have got no token.
  TimeUs evidence_us = 0;
};

class EngineWatch {
 public:
  explicit EngineWatch(const EngineWatchConfig& config) : config_(config) {}

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // What the engine's requests end with: UNAVAILABLE, another engine may run them.
  absl::Status EndOfRequests() const;
  // The engine failed in `step`. REQUIRES: ok(), and !status.ok().
  void Fail(const absl::Status& status, const std::vector<StepSequence>& step);
  // The request was in the step in which the engine failed.
  bool FailedUnder(RequestId id) const { return failed_under_.count(id) > 0; }

  // A step begins, or has ended. At most one is in flight.
  void Begin(const RunStep& step, TimeUs now);
  void End(TimeUs now);
  // A step of several instances was aborted: it waits for the others no more, so its age counts.
  void Abort(TimeUs now);
  bool stepping() const { return stepping_; }
  bool probing() const { return stepping_ && probe_; }
  // The step in flight is older than the timeout. A step of several instances waits for the others
  // until its own deadline or its Abort; the timeout counts from there.
  bool Overdue(TimeUs now) const { return stepping_ && now >= overdue_us_; }
  absl::Status OverdueStatus() const;  // DEADLINE_EXCEEDED

  bool CanProbe() const { return config_.probe_interval_us > 0; }
  // A step or probe has ended. Without probes it is taken on trust.
  bool proven() const { return proven_ || !CanProbe(); }
  bool ProbeDue(TimeUs now) const;
  void ProbeSoon() { next_probe_us_ = 0; }  // the next probe is due at once
  RunStep Probe(uint64_t step) const;
  uint64_t probes() const { return probes_; }  // begun

  // When Overdue or, if the core is free to probe, ProbeDue turns true.
  TimeUs NextDeadline(bool may_probe) const;

  // Of the step in flight: its age, and about what it should take, from recent steps. 0: there is
  // none, or it waits for other instances; the estimate: nothing was measured yet. Of a step of
  // several instances both count from where it waits no more: an engine that does not hang returns
  // then within one of its layers.
  TimeUs StepAgeUs(TimeUs now) const;
  TimeUs StepEstimateUs() const;

  absl::Status CheckInvariants() const;

 private:
  struct Measured {
    int64_t tokens = 1;
    TimeUs took_us = 0;
  };

  EngineWatchConfig config_;
  absl::Status status_;
  std::set<RequestId> failed_under_;

  bool stepping_ = false;
  bool probe_ = false;
  bool joint_ = false;     // with other instances
  TimeUs returns_us_ = 0;  // joint: its end, after it waits no more
  int64_t tokens_ = 0;
  TimeUs since_us_ = 0;  // its age counts from here
  TimeUs overdue_us_ = kNever;
  std::deque<Measured> recent_;
  bool proven_ = false;
  TimeUs next_probe_us_ = 0;
  uint64_t probes_ = 0;
};

}  // namespace skein::scheduler
