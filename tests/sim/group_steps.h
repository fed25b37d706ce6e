// The timing of steps of bound groups. The nth step of a context (FormationFeeds) at one rank is
// the nth at all: it begins when all ranks have entered it and ends at each a moment after its time
// is over. If a rank dies or breaks the communicators, it ends for all, each at its own time; if a
// rank hangs or stands still, at the others' deadline. The tokens come from the ranks' own memories
// (group_talk.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/parallel/group_part.h"
#include "scheduler/worker/steps/step.h"
#include "tests/sim/core_process.h"
#include "tests/sim/formation_feeds.h"
#include "tests/sim/formation_watch.h"
#include "tests/sim/network.h"

namespace skein::sim {

// From the break of a group's communicators until a step in them has ended at all ranks, at most.
inline constexpr TimeUs kBreakToldUs = 5 * scheduler::kMillisecondUs;
// The same of a step's end at one rank and at all.
inline constexpr TimeUs kStepLagUs = 300;
// The longest that a step takes, of a group or not, if no worker is slow.
inline TimeUs LongestStepUs(const Scenario& scenario) {
  return scenario.step_us + scenario.step_us / 2 + kStepLagUs;
}

class GroupSteps {
 public:
  // All outlive it.
  GroupSteps(Network* network, Verdict* verdict, FormationWatch* watch)
      : network_(network), verdict_(verdict), watch_(watch) {}

  struct Entrant {
    Process* process = nullptr;
    scheduler::RunStep step;
    // Runs the step, or ends it with the error. To be called exactly once.
    std::function<scheduler::StepDone(const absl::StatusOr<engine::GroupPart>&)> compute;
    std::function<bool()> fails;  // the device, in this step
    std::function<int64_t()> slowness;
    std::function<void(scheduler::StepDone)> done;
  };

  // The process has an open feed, in whose context the step runs.
  void Enter(const FormationFeeds::Place& place, Entrant entrant);
  // The communicators of the context have broken.
  void Break(const FormationFeeds::ContextPtr& context);

  int64_t run() const { return run_; }  // to their end
  int64_t run_in_sp() const { return run_in_sp_; }
  int64_t broken() const { return broken_; }

 private:
  struct Entry {
    Entrant entrant;
    std::optional<scheduler::StepDone> computed;
    bool over = false;
  };
  struct Meeting {
    FormationFeeds::ContextPtr context;
    uint64_t number = 0;
    std::map<int, Entry> entries;  // by rank
    bool broken = false;
  };
  using MeetingPtr = std::shared_ptr<Meeting>;
  using Key = std::pair<const FormationFeeds::Context*, uint64_t>;

  void Join(const FormationFeeds::Place& place, Entrant entrant);
  void Begin(const MeetingPtr& meeting);
  void Finish(const MeetingPtr& meeting);
  void Compute(Meeting& meeting);
  void BreakOne(const MeetingPtr& meeting, const absl::Status& why);
  void EndAfter(TimeUs delay, const MeetingPtr& meeting, int rank, absl::Status status);
  void End(const MeetingPtr& meeting, int rank, const absl::Status& status);

  Network* network_;
  Verdict* verdict_;
  FormationWatch* watch_;
  std::map<Key, MeetingPtr> meetings_;
  int64_t run_ = 0;
  int64_t run_in_sp_ = 0;
  int64_t broken_ = 0;
};

}  // namespace skein::sim
