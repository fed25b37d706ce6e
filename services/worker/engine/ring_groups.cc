#include "services/worker/engine/ring_groups.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/engine/step_conversion.h"

namespace skein::services {
namespace {

constexpr size_t kWhyMax = 1000;  // bytes; the orchestrator refuses reports with much longer texts

}  // namespace

absl::StatusOr<engine::RingStep> RingGroups::Enter(uint64_t step, const scheduler::RingPart& part) {
  engine::RingStep out = RingStepOf(part);
  path_.reset();
  std::lock_guard lock(mu_);
  Run(steps_.Enter(step, part));
  if (!steps_.entry().ok()) return steps_.entry();
  out.comm = GroupOf(scheduler::RingKind::kPieces).get();
  out.tensor = GroupOf(scheduler::RingKind::kTensor).get();
  out.moves = GroupOf(scheduler::RingKind::kMoves).get();
  return out;
}

void RingGroups::Leave(const absl::Status& status) {
  std::lock_guard lock(mu_);
  if (status.ok()) path_ = PathNow();
  Run(steps_.Leave(status));
}

std::optional<scheduler::RingPath> RingGroups::PathNow() {
  if (GroupOf(scheduler::RingKind::kPieces) == nullptr) return std::nullopt;
  scheduler::RingPath path;
  for (const Group& group : groups_) {
    if (group == nullptr || why_through_host_ == nullptr || path.through_host) continue;
    const std::optional<std::string> why = why_through_host_(*group);
    if (why.has_value()) path = {.through_host = true, .why = why->substr(0, kWhyMax)};
  }
  return path;
}

void RingGroups::Abort(uint64_t step, const absl::Status& reason) {
  std::lock_guard lock(mu_);
  Run(steps_.Abort(step, reason));
}

void RingGroups::Break(const scheduler::BreakGroup& group, const absl::Status& reason) {
  std::lock_guard lock(mu_);
  Run(steps_.Break(group, reason));
}

void RingGroups::Stop() {
  std::lock_guard lock(mu_);
  Run(steps_.Stop());
}

void RingGroups::Run(const scheduler::RingSteps::Effects& effects) {
  for (const scheduler::RingEffect& effect : effects) {
    std::visit([this](const auto& one) { On(one); }, effect);
  }
}

void RingGroups::On(const scheduler::OpenRing& effect) {
  absl::StatusOr<Group> made = Make(effect.key, effect.comm_addresses, effect.rank);
  if (made.ok()) GroupOf(effect.group) = *std::move(made);
  Run(steps_.Opened(made.status()));
}

void RingGroups::On(const scheduler::CloseRing& effect) { GroupOf(effect.group).reset(); }

void RingGroups::On(const scheduler::AbortRing& effect) {
  GroupOf(effect.group)->Abort(effect.reason);
}

void RingGroups::On(const scheduler::RefuseRing& effect) {
  const scheduler::BreakGroup& refused = effect.refused;
  const absl::StatusOr<Group> group = Make(refused.group, refused.comm_addresses, refused.rank);
  if (group.ok()) (*group)->Abort(effect.reason);
}

absl::StatusOr<RingGroups::Group> RingGroups::Make(GroupId key,
                                                   const std::vector<std::string>& addresses,
                                                   int rank) {
  if (fabric_ == nullptr) return absl::UnavailableError("this worker has no fabric");
  absl::StatusOr<Group> group = fabric_->OpenRing(key, addresses, rank);
  if (group.ok()) return group;
  return absl::UnavailableError(absl::StrCat("group: ", std::string(group.status().message())));
}

}  // namespace skein::services
