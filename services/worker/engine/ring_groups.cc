#include "services/worker/engine/ring_groups.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/engine/step_conversion.h"

namespace skein::services {
absl::StatusOr<engine::RingStep> RingGroups::Enter(uint64_t step, const scheduler::RingPart& part) {
  engine::RingStep out = RingStepOf(part);
  std::lock_guard lock(mu_);
  // Groups first, even for a step that was aborted: by them the other members hear of it.
  if (absl::Status status = EnterGroups(part); !status.ok()) return status;
  if (stopped_ || step <= aborted_step_) {
    AbortGroups(absl::CancelledError("the step was aborted before it began"));
    return absl::CancelledError("the step was aborted before it began");
  }
  entered_step_ = step;
  out.comm = group_.get();
  out.moves = moves_.get();
  return out;
}

absl::Status RingGroups::EnterGroups(const scheduler::RingPart& part) {
  moves_.reset();
  if (key_ != part.group) {
    group_.reset();
    key_ = part.group;
  }
  if (part.comm_addresses.size() == 1) return absl::OkStatus();
  if (group_ == nullptr) {
    absl::StatusOr<std::unique_ptr<engine::Communicator>> group =
        Make(part.group, part.comm_addresses, part.rank);
    if (!group.ok()) return group.status();
    group_ = *std::move(group);
  }
  if (part.piece.moves.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<engine::Communicator>> moves =
      Make(part.moves_group, part.comm_addresses, part.rank);
  if (!moves.ok()) return moves.status();
  moves_ = *std::move(moves);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<engine::Communicator>> RingGroups::Make(
    GroupId id, const std::vector<std::string>& addresses, int rank) {
  if (fabric_ == nullptr) return absl::UnavailableError("this worker has no fabric");
  auto group = fabric_->MakeGroup(id, addresses, rank);
  if (group.ok()) return group;
  return absl::UnavailableError(absl::StrCat("group: ", std::string(group.status().message())));
}

void RingGroups::Leave(const absl::Status& status) {
  std::lock_guard lock(mu_);
  moves_.reset();
  if (status.ok()) return;
  // The others may not know it yet: a failure of this instance alone must not leave them waiting.
  AbortGroups(absl::UnavailableError("a member's step failed"));
  group_.reset();
  key_.reset();
}

void RingGroups::AbortGroups(const absl::Status& reason) {
  if (group_ != nullptr) group_->Abort(reason);
  if (moves_ != nullptr) moves_->Abort(reason);
}

void RingGroups::Abort(uint64_t step, const absl::Status& reason) {
  std::lock_guard lock(mu_);
  if (step > aborted_step_) aborted_step_ = step;
  // Also when it has just left: the others may already wait in the group for the next piece.
  if (step == entered_step_) AbortGroups(reason);
}

void RingGroups::Break(const scheduler::BreakGroup& effect, const absl::Status& reason) {
  std::lock_guard lock(mu_);
  if (key_ == effect.group && group_ != nullptr) {
    group_->Abort(reason);  // it goes when another takes its place
    return;
  }
  const auto group = Make(effect.group, effect.comm_addresses, effect.rank);
  if (group.ok()) (*group)->Abort(reason);
}

void RingGroups::Stop() {
  std::lock_guard lock(mu_);
  stopped_ = true;
  AbortGroups(absl::UnavailableError("an instance is stopping"));
}

}  // namespace skein::services
