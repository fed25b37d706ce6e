// What switches of formations meant for a request.
#include "scheduler/base/own_end_first.h"
#include "scheduler/orchestrator/explain/explanation.h"

namespace skein::scheduler {

namespace {

// The meaning of a bind for a request that its instance computes alone.
SwitchMeaning MeaningOfBind(const SwitchExplanation& bind) {
  const bool done = bind.ended_us.has_value() && bind.outcome == orchestrator::SwitchOutcome::kDone;
  if (!done) return SwitchMeaning::kAlone;
  if (bind.own == OwnSequences::kHardPreempt) return SwitchMeaning::kPaused;
  return OwnJoinGroup(bind.own) ? SwitchMeaning::kTakenIn : SwitchMeaning::kAlone;
}

}  // namespace

const char* NameOf(SwitchCause cause) {
  switch (cause) {
    case SwitchCause::kLoad:
      return "load";
    case SwitchCause::kOffline:
      return "offline";
    case SwitchCause::kPriority:
      return "priority";
    case SwitchCause::kContext:
      return "context";
    case SwitchCause::kOperator:
      return "operator";
    case SwitchCause::kMember:
      return "member";
    case SwitchCause::kFailure:
      return "failure";
  }
  return "unknown";
}

const char* NameOf(SwitchMeaning meaning) {
  switch (meaning) {
    case SwitchMeaning::kAlone:
      return "alone";
    case SwitchMeaning::kPaused:
      return "paused";
    case SwitchMeaning::kTakenIn:
      return "taken_in";
    case SwitchMeaning::kInGroup:
      return "in_group";
    case SwitchMeaning::kTakenBack:
      return "taken_back";
    case SwitchMeaning::kLost:
      return "lost";
  }
  return "unknown";
}

// The first one that is told may release a group whose bind is left out. A group that was bound
// with kSoftPreempt while the request was at one of its members had taken it in.
void TellMeanings(PlanExplanation* plan) {
  uint64_t group = plan->RunsInGroup() ? plan->formation_epoch : 0;  // that computes it; 0: none
  for (size_t i = 0; i < plan->switches.size(); ++i) {
    SwitchExplanation& one = plan->switches[i];
    const bool taken_in_before =
        i == 0 && plan->switches_left_out > 0 && one.to == 1 && OwnJoinGroup(one.own);
    const bool in_group = one.epoch == group || taken_in_before;
    if (one.lost) {
      one.meaning = SwitchMeaning::kLost;
    } else if (one.to > 1) {
      one.meaning = in_group ? SwitchMeaning::kInGroup : MeaningOfBind(one);
      if (one.meaning == SwitchMeaning::kTakenIn) group = one.epoch;
    } else if (!in_group) {
      one.meaning = SwitchMeaning::kAlone;
    } else {
      one.meaning = one.hard ? SwitchMeaning::kTakenBack : SwitchMeaning::kInGroup;
      group = 0;
    }
  }
}

}  // namespace skein::scheduler
