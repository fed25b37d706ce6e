// FormationWorld: a FormationSwitch with simulated decode workers, for property tests. Each worker
// is a small model of what a worker makes of formation_messages.h: it prepares and forgets, the
// lead's first plan binds the others, FeedEnd ends an epoch for all. Own sequences may have to end
// before it is prepared, which may take too long. Messages are late, in order
// on each stream and on each link of the feed. Faults: workers refuse, pause, die and start anew;
// streams break and come back, with the old registration or a new one; the orchestrator restarts.
//
// Deterministic: a seed gives one course of events. What is wrong is collected in `errors`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler::orchestrator {

class FormationWorld {
 public:
  static constexpr FormationLimits kLimits = {.prepare_us = kSecondUs,
                                              .commit_us = 2 * kSecondUs,
                                              .release_us = 5 * kSecondUs,
                                              .end_us = kSecondUs,
                                              .leave_us = 2 * kSecondUs,
                                              .ready_us = kSecondUs,
                                              .set_us = 2 * kSecondUs};
  static constexpr TimeUs kLeaseUs = 3 * kSecondUs;
  static constexpr TimeUs kSettleUs = kSecondUs / 2;
  static constexpr TimeUs kAnswerUs = kSecondUs;  // a wait within the feed
  static constexpr TimeUs kPauseUs = kSecondUs;   // the longest pause of a worker
  // For how long an instance may be bound while a member of its epoch does not hold it: the feed's
  // waits, one after the other, each with a pause.
  static constexpr TimeUs kHalfUs = 3 * (kAnswerUs + kPauseUs);
  // After the last fault, all that was begun has ended.
  static constexpr TimeUs kHealUs = 2 * kLeaseUs + kSettleUs + kPauseUs + kLimits.prepare_us +
                                    kLimits.commit_us + kLimits.ready_us + kLimits.set_us +
                                    kLimits.release_us + 4 * kLimits.leave_us;
  static constexpr TimeUs kStepUs = kSecondUs / 5;  // the longest own step of a worker

  FormationWorld(uint64_t seed, size_t workers);

  void RunWithFaults(TimeUs duration);  // and random Bind and Release
  void Heal();                          // no more faults nor calls; until kHealUs have passed
  void RunFor(TimeUs duration);

  // As many members as can be bound together, from the first on.
  absl::StatusOr<uint64_t> BindWidest();
  // The same, but they share their weights.
  absl::StatusOr<uint64_t> ShareWidest(SharedMode mode);
  absl::Status SetMode(uint64_t epoch, SharedMode mode);
  // Workers that share their weights in this mode.
  size_t Sharing(SharedMode mode) const;
  void ReleaseAll(Switch how);
  // The switch and the workers agree, nothing is under way, and every accepted call has ended.
  void CheckSettled();
  size_t bound() const;    // workers that are bound
  size_t workers() const;  // that live
  const std::optional<SwitchEnded>& last_ended() const { return last_ended_; }

  std::vector<std::string> errors;
  // What happened, to show that a test saw it.
  std::map<std::string, int64_t> counts;

 private:
  struct Part {  // what a worker holds of an epoch
    PrepareFormation order;
    std::vector<size_t> peers;  // by rank, itself included
    bool prepared = false;      // own sequences that were to end have ended
    bool committed = false;     // at the lead
    bool bound = false;
    bool draining = false;
    uint64_t step = 0;
    std::set<size_t> ready;  // of this step, at the lead
    // Of shared weights.
    std::set<SharedMode> serves;  // to the others
    SharedMode mode = SharedMode::kWas;
    uint64_t turn = 0;  // that it has changed its mode by, or is ready for
  };
  struct Worker {
    InstanceId id;
    bool alive = true;
    uint64_t stream = 0;   // counts; odd: open at the worker
    bool heard = false;    // the orchestrator has its hello
    TimeUs up_us = 0;      // arrival of the latest message to the orchestrator
    TimeUs down_us = 0;    // and from it
    TimeUs paused_us = 0;  // until then
    uint64_t made = 0;     // generation of communicators
    uint64_t seen = 0;     // highest epoch
    std::optional<Part> part;
    std::optional<FormationTold> ended;  // the latest that has ended here
  };
  enum class Feed { kPlan, kReady, kEnd };

  // Time and chance.
  uint64_t Random(uint64_t below) { return Mix64(random_ += kMix64Step) % below; }
  bool Chance(uint64_t percent) { return Random(100) < percent; }
  TimeUs Delay() { return 1 + static_cast<TimeUs>(Random(static_cast<uint64_t>(delay_us_))); }
  void At(TimeUs at, std::function<void()> what) { events_.insert({{at, ++last_event_}, what}); }
  // At the worker, when it is not paused; never, if it has died.
  void AtWorker(TimeUs at, size_t worker, std::function<void()> what);

  // The orchestrator.
  // Calls the switch, and carries out what it wants.
  void Ask(const std::function<void(SwitchEffects*)>& call);
  absl::StatusOr<uint64_t> Bind(const Subset& subset, OwnSequences own);
  absl::StatusOr<uint64_t> Share(const Subset& subset, SharedMode mode);
  absl::Status Release(InstanceId member, Switch how);
  void Carry(const SwitchEffects& effects);
  void NoteEnded(const SwitchEnded& ended);
  void NoteChanged(const ModeChanged& changed);
  // Lost, if there is no stream; and what is on its way when the stream breaks.
  void ToWorker(InstanceId to, const std::function<void(size_t worker)>& deliver);
  void Restart();
  void LoseRegistration(InstanceId id);
  void RegroupSoon();
  void Regroup();
  void SwitchAtRandom();
  void ChangeModeAtRandom();

  // A worker.
  void Open(size_t worker, bool anew);
  void Cut(size_t worker, TimeUs pause_us);
  void Die(size_t worker);
  void Start();
  void Tell(size_t worker, const FormationTold& told);
  std::optional<FormationTold> LatestOf(const Worker& worker) const;
  void TakePrepare(size_t worker, const PrepareFormation& order);
  void BePrepared(size_t worker, uint64_t epoch);
  void TakeCommit(size_t worker, uint64_t epoch);
  void TakeEnd(size_t worker, const EndFormation& order);
  void EndPart(size_t worker, const std::string& why, bool tell_peers);
  void EnterShared(size_t worker, uint64_t epoch);
  void LeaveShared(size_t worker, const EndFormation& order);
  void TakeMode(size_t worker, const OrderMode& order);
  void ChangeMode(size_t worker, const OrderMode& order);
  void TellMode(size_t worker, const ModeTold& told);

  // The feed.
  Part* PartOf(size_t worker, uint64_t epoch);
  void SendFeed(size_t from, size_t to, uint64_t epoch, Feed message, uint64_t step);
  void TakeFeed(size_t from, size_t to, uint64_t epoch, Feed message, uint64_t step);
  void TakePlan(size_t from, size_t to, uint64_t epoch, uint64_t step);
  void TakeReady(size_t from, size_t to, uint64_t epoch, uint64_t step);
  void PlanStep(size_t lead, uint64_t epoch);

  void FaultAtRandom();
  void CheckHalves();
  void CheckModes();
  void Wrong(std::string what);

  uint64_t random_;
  TimeUs now_ = 0;
  uint64_t last_event_ = 0;
  std::map<std::pair<TimeUs, uint64_t>, std::function<void()>> events_;
  TimeUs delay_us_;
  bool faults_ = false;
  uint64_t faults_percent_;

  std::deque<Worker> workers_;  // processes, dead ones too
  std::map<std::pair<size_t, size_t>, TimeUs> links_us_;
  std::map<uint64_t, std::vector<size_t>> orders_;  // processes by generation
  uint64_t last_instance_ = 0;
  uint64_t last_generation_ = 0;
  uint64_t last_prepared_ = 0;
  uint64_t orchestrators_ = 0;
  bool regroups_ = false;
  FormationEpochs epochs_;
  std::unique_ptr<FormationSwitch> switch_;
  std::map<uint64_t, std::vector<SwitchEnded>> calls_;  // of this orchestrator, by epoch
  std::map<uint64_t, int64_t> turns_;  // accepted and not ended, by epoch, of this orchestrator
  std::optional<SwitchEnded> last_ended_;
  std::map<uint64_t, TimeUs> half_since_us_;
};

}  // namespace skein::scheduler::orchestrator
