// SwitchNotes: the latest switches of formations of each decode instance, under way or ended, for
// the explanations of the requests that it decodes. Part of ExplanationLog; Formations tells it.
//
// A switch is written once for each member, whatever they run. A request that comes to an instance
// keeps the number of its next switch; what came since is copied into its explanation when the plan
// is given up, the request ends, or someone asks. So it stays as long as the explanation, however
// many switches come later, and a request during which nothing is switched costs two look-ups.
//
// A release that lets requests end first ends after them: so switches are noted when they begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/orchestrator/explain/switch_explanation.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler::orchestrator {

class SwitchNotes {
 public:
  static constexpr size_t kKept = 8;  // the latest, of each instance

  struct Begun {
    SwitchCause cause = SwitchCause::kLoad;
    TimeUs began_us = 0;
    bool hard = false;  // a release that takes back what the group runs
  };
  // The switch that `report` tells of is under way. Told again: it may have become hard.
  void Note(const SwitchEnded& report, const Begun& begun);
  // It has ended. Also of one that was not noted: `cause` is of use for that one only.
  void NoteEnded(const SwitchEnded& ended, SwitchCause cause, TimeUs now);

  // The instance leaves or was lost: so are requests there, by switches that have not ended.
  void Leaves(InstanceId instance, TimeUs now);
  // Nothing of it is kept. After Leaves, when all its requests have been told.
  void Forget(InstanceId instance);

  // The number of the first switch that a request sees which comes to the instance now: of the one
  // under way, or else of the next.
  uint64_t NextOf(InstanceId instance) const;
  // Fills plan->switches and switches_left_out with those of plan->decode from plan->switches_from
  // on, without their meaning. `decided_us`: when the plan was decided. Changes nothing if the
  // instance has none.
  void Tell(TimeUs decided_us, PlanExplanation* plan) const;

  std::vector<InstanceId> instances() const;  // with notes
  absl::Status CheckInvariants() const;       // each keeps at most kKept

 private:
  struct OneNote {
    SwitchExplanation told;  // its times are of the clock
  };
  struct Notes {
    std::vector<std::shared_ptr<OneNote>> kept;  // the members of a switch share it
    uint64_t count = 0;                          // of all that there were
    TimeUs left_us = kNever;
  };

  OneNote* Find(const SwitchEnded& report) const;  // null: it was not noted
  OneNote* Add(const SwitchEnded& report, const Begun& begun);

  std::map<InstanceId, Notes> notes_;
};

}  // namespace skein::scheduler::orchestrator
