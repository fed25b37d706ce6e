#include "scheduler/orchestrator/decode/decode_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void DecodePlacement::RemoveUnopened(InstanceId member, PlanSequence first) {
  const auto plans = unopened_.find(member);
  if (plans == unopened_.end()) return;
  plans->second.erase(first);
  if (plans->second.empty()) unopened_.erase(plans);
}

bool DecodePlacement::MustWait(InstanceId member, PlanSequence first) const {
  const auto plans = unopened_.find(member);
  return plans != unopened_.end() && *plans->second.begin() < first;
}

void DecodePlacement::Wait(const std::string& model, uint64_t number, RequestId request) {
  const bool added = lines_[model].emplace(number, request).second;
  SKEIN_CHECK_MSG(added, "a place in the line is given once");
  NoteChange(model);
}

void DecodePlacement::Leave(const std::string& model, uint64_t number) {
  const auto line = lines_.find(model);
  if (line == lines_.end() || line->second.erase(number) == 0) return;
  if (line->second.empty()) lines_.erase(line);
  NoteChange(model);
}

bool DecodePlacement::Waits(const std::string& model, uint64_t number, RequestId request) const {
  const auto line = lines_.find(model);
  if (line == lines_.end()) return false;
  const auto it = line->second.find(number);
  return it != line->second.end() && it->second == request;
}

std::optional<std::pair<uint64_t, RequestId>> DecodePlacement::NextBehind(const std::string& model,
                                                                          uint64_t number) const {
  const auto line = lines_.find(model);
  if (line == lines_.end()) return std::nullopt;
  const auto next = line->second.upper_bound(number);
  if (next == line->second.end()) return std::nullopt;
  return *next;
}

size_t DecodePlacement::waiting() const {
  size_t count = 0;
  for (const auto& [model, line] : lines_) count += line.size();
  return count;
}

std::vector<std::string> DecodePlacement::TakeChanged() {
  std::vector<std::string> models;
  for (const std::string& model : std::exchange(changed_, {})) {
    if (SomeWait(model)) models.push_back(model);
  }
  return models;
}

DecodeCandidate DecodePlacement::CandidateOf(const Instance& instance, bool asked) {
  DecodeCandidate candidate{
      .instance = instance.id,
      .free_blocks = instance.load.free_blocks,
      .unreported_blocks = instance.unreported.blocks,
      .active_requests = instance.load.running_requests + instance.load.queued_requests,
      .unreported_requests = instance.unreported.requests};
  if (asked) candidate.unreported_blocks -= instance.announced.blocks;
  return candidate;
}

DecodePlacement::Choice DecodePlacement::Choose(const Question& question,
                                                const std::vector<const Instance*>& pool) {
  std::vector<DecodeCandidate> candidates;
  std::vector<DecodeCandidate> old_candidates;
  const int64_t tokens = PromptTokens(*question.spec) + question.spec->max_tokens;
  int64_t blocks = 0;
  bool tried = false;
  for (const Instance* instance : pool) {
    if (instance->draining()) continue;
    if (question.tried->count(instance->id) > 0) {
      tried = true;
      continue;
    }
    blocks = BlocksOf(instance->identity.shape, tokens);  // one shape in a model's pool
    if (blocks > instance->identity.total_blocks) continue;
    const bool old = question.old->count(instance->id) > 0;
    auto& list = old ? old_candidates : candidates;
    list.push_back(CandidateOf(*instance, question.asked));
    const int64_t others = question.asked ? instance->announced.requests : 0;
    if (!instance->Placeable() || !instance->HasRoom(others)) list.back().free_blocks = 0;  // now
  }
  if (candidates.empty()) candidates = std::move(old_candidates);
  if (candidates.empty()) return {tried ? Outcome::kAllTried : Outcome::kNone, {}};
  const std::optional<InstanceId> pick = PickDecode(candidates, blocks);
  if (!pick.has_value()) return {Outcome::kNoRoom, {}};
  return {Outcome::kPlaced, *pick};
}

absl::Status DecodePlacement::CheckInvariants() const {
  for (const auto& [model, line] : lines_) {
    if (line.empty()) {
      return absl::InternalError(absl::StrCat("DecodePlacement: the line of ", model, " is empty"));
    }
    if (line.rbegin()->first > last_number_) {
      return absl::InternalError("DecodePlacement: a number was not given out");
    }
  }
  for (const auto& [instance, plans] : unopened_) {
    if (!plans.empty()) continue;
    return absl::InternalError(
        absl::StrCat("DecodePlacement: no plan at instance ", instance.value));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
