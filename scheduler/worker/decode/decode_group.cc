// What a DecodeCore does while its instance is bound: steps of the group, and the sequences that
// run in it.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

void DecodeCore::Impl::On(const PrepareFormation& event) {
  const bool other_is_held = event.shared ? group_.holds_any() : shared_.holds_any();
  if (membership_.leaving() || membership_.draining() || !steps_.engine().ok()) {
    RefuseFormation(event.epoch,
                    absl::UnavailableError("the decode instance is draining or has failed"));
  } else if (other_is_held) {
    RefuseFormation(event.epoch, absl::FailedPreconditionError(absl::StrCat(
                                     "this instance holds epoch ", LatestTold().epoch, " still")));
  } else if (event.shared) {
    shared_.Prepare(event, clock_.now);
  } else {
    group_.Prepare(event, clock_.now);
  }
}

void DecodeCore::Impl::RefuseFormation(uint64_t epoch, absl::Status why) {
  effects_.push_back(TellFormation{
      {.epoch = epoch, .phase = FormationTold::Phase::kEnded, .why = std::move(why)}});
}

void DecodeCore::Impl::On(const CommitFormation& event) {
  shared_.Holds(event.epoch) ? shared_.Commit(event, clock_.now) : group_.Commit(event, clock_.now);
}

void DecodeCore::Impl::On(const EndFormation& event) {
  shared_.Holds(event.epoch) ? shared_.End(event, clock_.now) : group_.End(event, clock_.now);
}

void DecodeCore::Impl::On(const SharingDone& event) {
  const absl::Status status = shared_.Done(event, clock_.now);
  const bool enters = event.extra.count > 0 && shared_.mode().has_value() && !shared_.LeaveDue();
  if (enters) extra_.Come(event.extra);
  if (!status.ok() && steps_.engine().ok()) LeaveWithFailedEngine(steps_.Fail(status));
}

// The engine enters, changes its mode or leaves between two steps.
bool DecodeCore::Impl::PausesForSharing() {
  if (!shared_.WantsPause() || (shared_.LeaveDue() && !extra_.MayGo())) return false;
  if (!steps_.MayLaunch()) return true;
  shared_.LeaveDue() ? shared_.AtPause(clock_.now, extra_.Go()) : shared_.AtPause(clock_.now);
  return true;
}

const FormationTold& DecodeCore::Impl::LatestTold() const {
  return shared_.told().epoch > group_.told().epoch ? shared_.told() : group_.told();
}

void DecodeCore::Impl::StartStepsOfGroup() {
  while (steps_.MayLaunch()) {
    std::optional<GroupStep> step = group_.TakeStep(clock_.now);
    if (!step.has_value()) break;
    for (const ReleaseSequence& removed : step->removed) effects_.push_back(removed);
    if (!step->removed.empty()) membership_.ReportSoon();  // their blocks are free
    if (step->mode.own() && StartOwnOfGroup(step->own_tokens)) return;
    if (!step->mode.own() && !step->sequences.empty()) {
      effects_.push_back(steps_.LaunchTogether(std::move(step->sequences), step->mode,
                                               clock_.now + config_.group.step_max_us, clock_.now));
      return;
    }
    TellOwn();
    group_.StepEnded(absl::OkStatus(), {}, clock_.now);
  }
  if (!steps_.MayLaunch() || membership_.leaving()) return;
  std::optional<RunStep> probe = steps_.Probe(clock_.now);
  if (probe.has_value()) effects_.push_back(*std::move(probe));
}

// False: nothing of this instance's own can run now.
bool DecodeCore::Impl::StartOwnOfGroup(int64_t tokens) {
  if (tokens == 0) return false;
  running_.GrowTables();
  std::vector<StepSequence> sequences = running_.NextStep();
  if (sequences.empty()) return false;
  effects_.push_back(steps_.Launch(std::move(sequences), clock_.now));
  return true;
}

void DecodeCore::Impl::EndStepOfGroup(const StepLoop::Ended& ended, const StepDone& event) {
  std::vector<int32_t> sampled;
  for (size_t i = 0; ended.status.ok() && i < ended.ran.size(); ++i) {
    const StepResult& result = event.results[i];
    if (ended.ran[i].sample) sampled.push_back(result.status.ok() ? result.token : -1);
  }
  group_.StepEnded(ended.status, sampled, clock_.now);
  // Of the group's sequences this rank knows those whose streams it has: all at the lead, but for
  // those that members handed over; at a member, the latter.
  for (size_t i = 0; ended.status.ok() && i < ended.ran.size(); ++i) {
    Sequence* sequence = sequences_.Find(ended.ran[i].id, ended.ran[i].epoch);
    if (sequence == nullptr || sequence->phase != Phase::kBound) continue;
    TakeResult(*sequence, ended.ran[i].sample, event.results[i], clock_.now - ended.took_us);
  }
  if (!steps_.engine().ok()) LeaveWithFailedEngine(ended.ahead);
}

void DecodeCore::Impl::TellOwn() {
  const int64_t own = sequences_.CountLive() - sequences_.Count(Phase::kBound);
  group_.SetOwn({.tokens = running_.StepTokens(),
                 .waits = running_.SomeWaitForBlocks(),
                 .any = own > 0 || running_.InFlight()},
                clock_.now);
}

// They join as preempted ones. What cannot join runs here, in turns with the group.
void DecodeCore::Impl::MoveToGroup() {
  if (!group_.MovesOwn() || running_.InFlight()) return;
  for (const RequestId id : running_.Running()) {
    Sequence& sequence = sequences_.at(id);
    if (group_.CheckFits(*sequence.spec).ok()) running_.Preempt(sequence);
  }
  JoinPreempted();
  group_.OwnMoved();
}

void DecodeCore::Impl::JoinGroup() {
  if (group_.MayJoin()) JoinPreempted();
}

void DecodeCore::Impl::JoinPreempted() {
  for (const RequestId id : running_.Preempted()) {
    Sequence& sequence = sequences_.at(id);
    const absl::Status joined = group_.Join(sequence.spec, sequence.epoch, sequence.arrived_us,
                                            *sequence.output, clock_.now);
    if (!joined.ok()) continue;  // it resumes here; those behind it may join
    running_.Remove(id);
    sequences_.Bind(sequence);
    // The engine knows it with the layout of an instance alone.
    effects_.push_back(ReleaseSequence{id, sequence.epoch});
    if (!group_.MayJoin() && !group_.MovesOwn()) return;
  }
}

void DecodeCore::Impl::RunInGroup(Sequence& sequence) {
  group_.JoinWithKv(sequence.spec, sequence.epoch, sequence.arrived_us, *sequence.output,
                    kv_in_.TakeTable(sequence.id()), clock_.now);
  sequences_.Bind(sequence);
}

void DecodeCore::Impl::TakeBack() {
  for (const FormationOver& over : std::exchange(overs_, {})) {
    gaps_.Released();  // the tokens of its last step have left
    membership_.ReportSoon();
    for (const auto& [id, epoch] : over.coming) {
      Sequence* sequence = sequences_.Find(id, epoch);
      if (sequence != nullptr && sequence->phase == Phase::kReceiving) {
        EndComing(*sequence, over.why);
      }
    }
    for (const auto& [id, epoch] : over.left) {
      effects_.push_back(ReleaseSequence{id, epoch});
      Sequence* sequence = sequences_.Find(id, epoch);
      if (sequence == nullptr || sequence->phase != Phase::kBound) continue;
      const absl::Status fits = opening_.FitsAlone(*sequence->spec);
      if (!fits.ok()) {
        EndWithGroup(*sequence, over.why, fits);
        continue;
      }
      sequences_.Unbind(*sequence);
      running_.AddPreempted(*sequence);
    }
  }
}

// It is planned again, where there is room: to compute it here, without its KV, would take longer
// than its prefill instances need to hand over what they have.
void DecodeCore::Impl::EndComing(Sequence& sequence, const absl::Status& why) {
  ends_.Touch(sequence.id());
  ends_.End(sequence, FinishReason::kError,
            absl::UnavailableError(absl::StrCat("the bound group that its KV was for has ended (",
                                                std::string(why.message()), ")")));
}

// The group had room for it, this instance alone never has. It has begun, so the orchestrator does
// not plan it again, not even without a token sent: the request fails with this error.
void DecodeCore::Impl::EndWithGroup(Sequence& sequence, const absl::Status& why,
                                    const absl::Status& fits) {
  ends_.End(sequence, FinishReason::kError,
            absl::UnavailableError(
                absl::StrCat("the bound group that computed the request has ended (",
                             std::string(why.message()), "); ", std::string(fits.message()))));
}

}  // namespace skein::scheduler
