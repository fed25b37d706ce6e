// Membership: a worker's standing with the orchestrator. Registers, reports (every third of the
// lease, and soon after something ended), repeats what ended until it was heard, leaves after a
// drain. Part of both WorkerCores.
//
// A worker drains for one of two reasons: its process is stopping (StartDrain; it leaves when it is
// empty), or an operator ordered it (it stays, empty, until it is stopped or the order is undone):
// in the orchestrator's answer to a report, or at this worker itself. The order outlives the
// orchestrator that passed it on.
//
// At most one of its calls is under way at a time. Bounded: at most kMaxEnded ended requests are
// remembered (the oldest go first; an orchestrator that was away for so long has failed them).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/membership_events.h"

namespace skein::scheduler {

using MembershipEffect = std::variant<CallRegister, CallReport, CallUnregister, Drained>;

class Membership {
 public:
  static constexpr size_t kMaxEnded = 65536;
  // No orchestrator issues more epochs: that is 10,000 a second for three years.
  static constexpr uint64_t kEpochsMax = uint64_t{1} << 40;

  explicit Membership(const MembershipConfig& config) : config_(config) {}

  void OnRegistered(const RegisterReply& reply, TimeUs now);
  void OnReported(uint64_t serial, const ReportReply& reply, TimeUs now);
  void OnUnregistered();

  // Whether the orchestrator that this worker is registered with can have issued this epoch. Its
  // epochs and the ids of its instances begin at one number, so a larger one comes from nobody:
  // INVALID_ARGUMENT "epoch: ...". A request whose end such an epoch brought would never run again.
  absl::Status CheckEpoch(Epoch epoch) const;

  // Something ended: it will be reported soon.
  void Ended(EndedRequest ended);
  // What was last reported is no longer true in a way that placement should hear soon.
  void ReportSoon() { dirty_ = true; }
  void StartDrain() { leaving_ = dirty_ = true; }
  // True: the worker did not drain, and does now.
  bool OrderDrain(bool drain);

  // The call that is due now. `load` and `held` are asked for only if a report is due; `empty`:
  // nothing is held any more, so that a draining worker may leave.
  template <class Load, class Held>
  std::optional<MembershipEffect> Due(TimeUs now, bool empty, Load load, Held held) {
    if (calling_ || left_) return std::nullopt;
    if (leaving_ && empty && MayLeave()) return Leave();
    if (!registered_) return now >= next_us_ ? Register() : std::nullopt;
    if (!ReportDue(now)) return std::nullopt;
    return Report(load(), held(), now);
  }

  // When Due may next have a call, if nothing else happens.
  TimeUs NextDeadline() const;

  bool registered() const { return registered_; }
  bool draining() const { return leaving_ || ordered_; }
  bool leaving() const { return leaving_; }
  // The orchestrator has heard of the drain and of all that ended, or cannot be told.
  bool drain_told() const {
    return !registered_ || last_report_failed_ || (told_draining_ && ended_.empty());
  }
  // Of the latest call to the orchestrator; UNKNOWN before the first.
  const absl::Status& last_call() const { return last_call_; }
  InstanceId instance() const { return instance_; }
  const WorkerIdentity& identity() const { return config_.identity; }

 private:
  bool MayLeave() const { return !registered_ || ended_.empty() || last_report_failed_; }
  bool ReportDue(TimeUs now) const;
  std::optional<MembershipEffect> Register();
  std::optional<MembershipEffect> Report(WorkerLoad load, std::vector<HeldRequest> held,
                                         TimeUs now);
  std::optional<MembershipEffect> Leave();

  MembershipConfig config_;
  bool registered_ = false;
  bool leaving_ = false;
  bool ordered_ = false;             // by an operator, to drain
  bool draining_in_flight_ = false;  // the report under way says that we drain
  bool told_draining_ = false;       // and the latest that was heard said so
  bool left_ = false;
  bool calling_ = false;
  bool dirty_ = false;
  bool last_report_failed_ = false;
  absl::Status last_call_ = absl::UnknownError("not called yet");
  InstanceId instance_;
  TimeUs lease_us_ = 0;
  TimeUs next_us_ = 0;  // not registered: next attempt; registered: next report at the latest
  TimeUs spacing_end_us_ = 0;  // no report before this
  uint64_t serial_ = 0;
  std::deque<EndedRequest> ended_;
  size_t ended_in_flight_ = 0;  // the first so many were in the report under way
  size_t listed_ = 0;           // requests in that report
};

}  // namespace skein::scheduler
