// SwitchExplanation: a switch of formations that a request's decode instance went through with its
// group while the request was there; for `skeinctl explain`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/shared_mode.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler {

// What a switch was ordered for.
enum class SwitchCause {
  kLoad,
  kOffline,   // lines of offline jobs, or that they are over
  kPriority,  // a request of high priority
  kContext,   // a request that no instance alone holds
  kOperator,
  kMember,   // a member drains or is missed
  kFailure,  // nobody ordered it
};
const char* NameOf(SwitchCause cause);  // "load", "priority", …

// What it meant for the request, as far as the orchestrator knows: of a sequence that its instance
// preempted meanwhile, and that so moved into the group, it does not.
enum class SwitchMeaning {
  kAlone,      // its instance went on with it alone; while bound, in turns with the group's steps
  kPaused,     // it paused while the group had work (OwnSequences::kHardPreempt)
  kTakenIn,    // the group took it over and computed it anew (kSoftPreempt)
  kInGroup,    // the group went on with it
  kTakenBack,  // its instance took it back from the group and computed it anew, alone
  kLost,       // its instance left or was lost
};
const char* NameOf(SwitchMeaning meaning);  // "alone", "paused", …

struct SwitchExplanation {
  uint64_t epoch = 0;
  int32_t from = 1, to = 1;          // instances that work together; 1: each alone
  std::optional<SharedMode> shared;  // its members share their weights; empty: they are bound
  TimeUs began_us = 0;               // from the plan's decision; negative: before it
  std::optional<TimeUs> ended_us;    // likewise; empty: not while the request was there
  SwitchCause cause = SwitchCause::kLoad;
  std::string why;                          // of the cause, for people
  OwnSequences own = OwnSequences::kShare;  // of the bind, also when the group is released
  // Once it has ended.
  orchestrator::SwitchOutcome outcome = orchestrator::SwitchOutcome::kDone;
  std::string reason;  // of an outcome other than kDone

  // Facts by which TellMeanings finds the meaning.
  bool hard = false;  // a release: what the group runs is taken back
  bool lost = false;  // that instance left or was lost before the switch ended
  SwitchMeaning meaning = SwitchMeaning::kAlone;
};

}  // namespace skein::scheduler
