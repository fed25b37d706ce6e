// Membership: a worker's registration at the orchestrator. Opens the stream and registers, reports
// (every sixth of the lease, and soon after a request ended), repeats ended requests until
// acknowledged, reopens a broken stream, leaves after a drain. Part of both WorkerCores.
//
// The core says of each request when it is held, when it moves on and when it ends (Holds, Ended,
// Gone). A report tells what has changed since the message before; the whole list goes with a
// registration, and when the orchestrator finds that the digest does not fit what it was told. So a
// report costs nothing for requests that do nothing.
//
// A worker does not register before its engine has run a step (HoldBack), so that no request goes
// to an engine that hangs from its start.
//
// A worker drains for one of two reasons: its process is stopping (StartDrain; it leaves when
// empty), or an operator ordered it (it stays, empty, until it is stopped or the order is undone),
// through the orchestrator or at this worker. The order survives the orchestrator that forwarded
// it.
//
// At most one of its messages is unanswered at a time, and none for longer than answer_timeout_us;
// a report for no longer than a third of the lease.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/backoff.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/membership/held_changes.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/membership/untold_ends.h"

namespace skein::scheduler {

using MembershipEffect =
    std::variant<CallRegister, CallReport, CallUnregister, CloseStream, Drained>;

class Membership {
 public:
  explicit Membership(const MembershipConfig& config)
      : config_(config), backoff_(config.register_retry_us / 8, config.register_retry_us) {}

  void On(const RegisterReplied& event, TimeUs now);
  void On(const ReportReplied& event, TimeUs now);
  void On(const UnregisterReplied& event, TimeUs now);
  void On(const Disconnected& event, TimeUs now);

  // Whether the orchestrator that this worker is registered with, or one before it, can have issued
  // this epoch: INVALID_ARGUMENT "epoch: ...". A request whose end such an epoch brought would
  // never run again.
  absl::Status CheckEpoch(Epoch epoch) const;

  // The request is held from now on, or was and has moved on. `chunk_since_us`: when the chunk
  // began that runs now, kNever: none does.
  void Holds(const HeldRequest& held, TimeUs chunk_since_us = kNever) {
    held_.Holds(held, chunk_since_us);
  }
  // No longer held, without an end.
  void Gone(RequestId id, Epoch epoch) { held_.Gone(id, epoch); }
  // While `held_back` it does not register for the first time.
  void HoldBack(bool held_back) { held_back_ = held_back; }
  // Something ended, if it was held or not: it will be reported soon. `alive_until_us`: the request
  // lives no longer, wherever it is planned again. Used if the engine failed under it.
  void Ended(EndedRequest ended, TimeUs alive_until_us = 0);
  // The last report is outdated in a way that placement should learn soon.
  void ReportSoon() { wanted_ = std::max(wanted_, Report::kSoon); }
  void StartDrain() {
    drain_ = Drain::kLeaving;
    ReportSoon();
  }
  // The same after a failure of the engine. If no orchestrator can be reached, it tries to tell one
  // until then, and those requests under which the engine failed until the last of their deadlines,
  // at most until `evidence_until_us`: an orchestrator that comes back may plan them again, and
  // must not forget the failure.
  void StartLastWords(TimeUs until_us, TimeUs evidence_until_us) {
    StartDrain();
    last_words_end_us_ = until_us;
    evidence_limit_us_ = evidence_until_us;
  }
  // True: the worker did not drain, and does now.
  bool OrderDrain(bool drain);

  // What is due now. `load` and `held`, the whole list, are asked for only if they are told;
  // `empty`: nothing is held any more, so that a draining worker may leave. A CloseStream is a
  // Disconnected to the core: it gets no other.
  template <class Load, class Held>
  std::optional<MembershipEffect> Due(TimeUs now, bool empty, Load load, Held held) {
    if (phase_ == Phase::kLeft) return std::nullopt;
    if (AwaitsAnswer()) return now >= answer_by_us_ ? Close(now) : std::nullopt;
    if (leaving() && empty && MayLeave(now)) return Leave(now);
    if (phase_ == Phase::kAway) {
      return now >= next_us_ && MayRegister() ? Register(load(), held(), now) : std::nullopt;
    }
    NoteWanted(now);
    if (!ReportDue(now)) return std::nullopt;
    return wanted_ == Report::kFull ? ReportFull(load(), held(), now) : ReportChanges(load(), now);
  }

  // When Due may next have a call, if nothing else happens. REQUIRES: Due was called since the last
  // event.
  TimeUs NextDeadline() const;

  // The orchestrator knew this instance when it was last heard.
  bool registered() const { return registered_; }
  // The stream stands and the orchestrator has answered the registration.
  bool connected() const {
    return phase_ == Phase::kReady || phase_ == Phase::kReporting || phase_ == Phase::kParting;
  }
  bool draining() const { return drain_ != Drain::kNone; }
  bool leaving() const { return drain_ == Drain::kLeaving; }
  // The orchestrator has acknowledged the drain and all ended requests, or cannot be reached.
  bool drain_told() const { return !connected() || (told_draining_ && ended_.empty()); }
  // How the latest message to the orchestrator was answered; UNKNOWN before the first.
  const absl::Status& last_call() const { return last_call_; }
  InstanceId instance() const { return instance_; }
  // The highest generation seen; a lower one is refused.
  const Generation& generation() const { return seen_; }
  const WorkerIdentity& identity() const { return config_.identity; }
  // INTERNAL unless `held` is what Holds, Gone and Ended have told, and all fits together.
  absl::Status CheckInvariants(const std::vector<HeldRequest>& held) const;

 private:
  bool MayRegister() const { return !held_back_ || registered_; }
  // Without a stream it leaves when it was never known there, or could not open another one.
  bool MayLeave(TimeUs now) const {
    if (phase_ == Phase::kAway && now < evidence_limit_us_ && ended_.HasEvidence(now)) return false;
    const bool in_vain = backoff_.failures() > 1;  // the first is the break
    const bool has_words = !ended_.empty() && now < last_words_end_us_;
    return phase_ == Phase::kReady ? ended_.empty() : !registered_ || (in_vain && !has_words);
  }
  enum class Phase {
    kAway,       // no stream; the next attempt at next_us_
    kGreeting,   // the registration is not answered
    kRefused,    // this worker refuses the welcome, or the orchestrator a report: Due closes it
    kReady,      // the stream stands, nothing is unanswered
    kReporting,  // a report is not answered
    kParting,    // the Unregister is not answered
    kLeft,
  };
  enum class Drain {
    kNone,
    kOrdered,  // by an operator, who may undo it
    kLeaving,  // its process is stopping; no order changes that
  };
  // The next report: when it is due, and what is in it.
  enum class Report {
    kInTime,  // a sixth of a lease after the last one
    kSoon,    // a spacing after Due first sees that it is wanted, so that it tells more at once
    kFull,    // then, with the whole list
  };

  absl::Status CheckCall() const;
  void NoteWanted(TimeUs now);
  bool ReportDue(TimeUs now) const;
  ReportRequest ReportOf(WorkerLoad load, TimeUs now);
  bool AwaitsAnswer() const {
    return phase_ == Phase::kGreeting || phase_ == Phase::kRefused || phase_ == Phase::kReporting ||
           phase_ == Phase::kParting;
  }
  void Await(Phase phase, TimeUs now);
  void Refuse(absl::Status why, TimeUs now);
  std::optional<MembershipEffect> Close(TimeUs now);
  std::optional<MembershipEffect> Register(WorkerLoad load, std::vector<HeldRequest> held,
                                           TimeUs now);
  std::optional<MembershipEffect> ReportFull(WorkerLoad load, std::vector<HeldRequest> held,
                                             TimeUs now);
  std::optional<MembershipEffect> ReportChanges(WorkerLoad load, TimeUs now);
  std::optional<MembershipEffect> Leave(TimeUs now);

  MembershipConfig config_;
  Phase phase_ = Phase::kAway;
  bool registered_ = false;
  bool held_back_ = false;
  TimeUs last_words_end_us_ = 0;
  TimeUs evidence_limit_us_ = 0;
  Drain drain_ = Drain::kNone;
  bool draining_in_flight_ = false;  // the message under way says that we drain
  bool told_draining_ = false;       // and the latest that was heard said so
  TimeUs answer_by_us_ = kNever;     // while an answer is awaited
  Report wanted_ = Report::kInTime;
  TimeUs soon_us_ = kNever;  // when one that is wanted soon is due; kNever: none is, or not noted
  Backoff backoff_;          // between attempts to open a stream
  absl::Status last_call_ = absl::UnknownError("not called yet");
  InstanceId instance_;
  Generation seen_;
  TimeUs lease_us_ = 0;
  TimeUs next_us_ = 0;         // away: next attempt; ready: next report at the latest
  TimeUs spacing_end_us_ = 0;  // no report before this
  uint64_t serial_ = 0;
  uint64_t streams_ = 0;  // opened so far
  UntoldEnds ended_;
  size_t listed_ = 0;  // requests in the report under way
  HeldChanges held_;
};

}  // namespace skein::scheduler
