#include "scheduler/orchestrator/groups/switch_causes.h"

namespace skein::scheduler::orchestrator {

namespace {

using Stage = FormationSwitch::Stage;

SwitchCause CauseOf(BindReason reason) {
  switch (reason) {
    case BindReason::kPin:
      return SwitchCause::kOperator;
    case BindReason::kLength:
      return SwitchCause::kContext;
    case BindReason::kOffline:
      return SwitchCause::kOffline;
    case BindReason::kPriority:
      return SwitchCause::kPriority;
    case BindReason::kLoad:
      return SwitchCause::kLoad;
  }
  return SwitchCause::kLoad;
}

}  // namespace

SwitchCause CauseOfRelease(uint64_t epoch, const BindReasons& reasons,
                           std::optional<BindReason> next) {
  if (next.has_value()) return CauseOf(*next);
  const auto bound = reasons.find(epoch);
  // What an operator has unpinned is the policy's.
  const bool policys = bound == reasons.end() || bound->second == BindReason::kPin;
  return policys ? SwitchCause::kLoad : CauseOf(bound->second);
}

SwitchCause CauseOf(const SwitchEnded& report, const BindReasons& reasons,
                    const ReleaseCauses& ordered) {
  if (report.to > 1) {
    const auto reason = reasons.find(report.epoch);
    return reason == reasons.end() ? SwitchCause::kLoad : CauseOf(reason->second);
  }
  const auto cause = ordered.find(report.epoch);
  return cause == ordered.end() ? SwitchCause::kFailure : cause->second;
}

void NoteUnderWay(const FormationSwitch& formation, const BindReasons& reasons,
                  const ReleaseCauses& ordered, SwitchNotes* notes) {
  for (const auto& [epoch, live] : formation.live()) {
    if (live.stage == Stage::kBound) continue;
    const bool hard = live.stage == Stage::kEnding ||
                      (live.stage == Stage::kReleasing && live.how == Switch::kHard);
    notes->Note(
        live.report,
        {.cause = CauseOf(live.report, reasons, ordered), .began_us = live.began_us, .hard = hard});
  }
}

}  // namespace skein::scheduler::orchestrator
