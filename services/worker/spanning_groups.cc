#include "services/worker/spanning_groups.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/block_ids.h"

namespace skein::services {
namespace {

engine::SpanningStep StepOf(const scheduler::SpanningPart& part) {
  engine::SpanningStep step;
  for (size_t rank = 0; rank < part.piece.spans.size(); ++rank) {
    engine::RankShare share{.history_tokens = part.history_tokens[rank], .spans = {}};
    for (const scheduler::TokenSpan& span : part.piece.spans[rank]) {
      share.spans.push_back({span.position, span.count});
    }
    step.shares.push_back(std::move(share));
  }
  step.history_blocks = PlainIds(part.history);
  for (const auto& blocks : part.send) step.send.push_back(PlainIds(blocks));
  for (const auto& blocks : part.receive) step.receive.push_back(PlainIds(blocks));
  step.deadline =
      std::chrono::steady_clock::time_point(std::chrono::microseconds(part.deadline_us));
  return step;
}

}  // namespace

absl::StatusOr<engine::SpanningStep> SpanningGroups::Enter(uint64_t step,
                                                           const scheduler::SpanningPart& part) {
  engine::SpanningStep out = StepOf(part);
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

absl::Status SpanningGroups::EnterGroups(const scheduler::SpanningPart& part) {
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

absl::StatusOr<std::unique_ptr<engine::Communicator>> SpanningGroups::Make(
    scheduler::GroupKey key, const std::vector<std::string>& addresses, int rank) {
  if (fabric_ == nullptr) return absl::UnavailableError("this worker has no fabric");
  auto group = fabric_->MakeGroup({key.high, key.low}, addresses, rank);
  if (group.ok()) return group;
  return absl::UnavailableError(absl::StrCat("group: ", std::string(group.status().message())));
}

void SpanningGroups::Leave(const absl::Status& status) {
  std::lock_guard lock(mu_);
  moves_.reset();
  if (status.ok()) return;
  // The others may not know it yet: a failure of this instance alone must not leave them waiting.
  AbortGroups(absl::UnavailableError("a member's step failed"));
  group_.reset();
  key_.reset();
}

void SpanningGroups::AbortGroups(const absl::Status& reason) {
  if (group_ != nullptr) group_->Abort(reason);
  if (moves_ != nullptr) moves_->Abort(reason);
}

void SpanningGroups::Abort(uint64_t step, const absl::Status& reason) {
  std::lock_guard lock(mu_);
  if (step > aborted_step_) aborted_step_ = step;
  // Also when it has just left: the others may already wait in the group for the next piece.
  if (step == entered_step_) AbortGroups(reason);
}

void SpanningGroups::Break(const scheduler::BreakGroup& effect, const absl::Status& reason) {
  std::lock_guard lock(mu_);
  if (key_ == effect.group && group_ != nullptr) {
    group_->Abort(reason);  // it goes when another takes its place
    return;
  }
  const auto group = Make(effect.group, effect.comm_addresses, effect.rank);
  if (group.ok()) (*group)->Abort(reason);
}

void SpanningGroups::Stop() {
  std::lock_guard lock(mu_);
  stopped_ = true;
  AbortGroups(absl::UnavailableError("an instance is stopping"));
}

}  // namespace skein::services
