#include "scheduler/batch/batch_scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

BatchScheduler::BatchScheduler(const BatchLimits& limits) : limits_(limits) {
  SKEIN_CHECK_MSG(limits.max_batch_tokens >= 1 && limits.max_batch_sequences >= 1 &&
                      limits.max_slice_tokens >= 1 && limits.min_slice_tokens >= 0,
                  "batch limits are positive");
}

void BatchScheduler::Add(RequestId id, PlanSequence order, int64_t known, int64_t computed,
                         bool alone, const FairOwner& owner) {
  SKEIN_CHECK_MSG(known >= 1 && computed >= 0 && computed < known, "nothing to compute");
  const bool decoding = computed > 0 && computed + 1 == known;
  const auto [it, added] = sequences_.emplace(id, Sequence{.order = order,
                                                           .known = known,
                                                           .computed = computed,
                                                           .decoding = decoding,
                                                           .alone = alone,
                                                           .tenant = std::string(owner.tenant),
                                                           .weight = owner.weight});
  SKEIN_CHECK_MSG(added, "sequence added twice");
  if (decoding) {
    decoding_.emplace(0, id);
  } else {
    AddPrompt(it->second, id);
    pending_ += known - computed;
  }
}

void BatchScheduler::PutLast(RequestId id, bool last) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end() || it->second.decoding) return;
  Sequence& sequence = it->second;
  if (sequence.last == last) return;
  prompts_.Remove(sequence.Owner(), {sequence.order, id});
  sequence.last = last;
  prompts_.Add(sequence.Owner(), {sequence.order, id});
}

void BatchScheduler::AddPrompt(const Sequence& sequence, RequestId id) {
  prompts_.Add(sequence.Owner(), {sequence.order, id});
  if (++prompts_of_[sequence.tenant] > 1) return;
  std::erase_if(away_, [&sequence](const Away& away) { return away.tenant == sequence.tenant; });
}

void BatchScheduler::RemovePrompt(const Sequence& sequence, RequestId id) {
  prompts_.Remove(sequence.Owner(), {sequence.order, id});
  const auto of_tenant = prompts_of_.find(sequence.tenant);
  if (--of_tenant->second > 0) return;
  prompts_of_.erase(of_tenant);
  away_.push_back({sequence.tenant, steps_});
  if (away_.size() > kAwayMax) away_.pop_front();
}

std::vector<StepItem> BatchScheduler::Plan(PlanSequence before) {
  SKEIN_CHECK_MSG(in_flight_.size() < 2, "two steps in flight at a time");
  while (!away_.empty() && away_.front().since_step + kAwaySteps < steps_) away_.pop_front();
  Step step;
  if (!FirstPromptIsAlone(before)) PlanDecode(&step.items);
  PlanPrompts(before, &step.items);
  for (const StepItem& item : step.items) Advance(item, &step);
  if (step.items.empty()) return {};
  ++steps_;
  in_flight_.push_back(step);
  return step.items;
}

// As of the step's end.
void BatchScheduler::Advance(const StepItem& item, Step* step) {
  Sequence& sequence = sequences_.at(item.id);
  ++in_steps_[item.id];
  if (sequence.decoding) {
    decoding_.erase({sequence.last_turn, item.id});
  } else {
    step->prompt_tokens += item.count;
    prompts_.Charge(sequence.Owner(), item.count);
    if (item.sample) RemovePrompt(sequence, item.id);
  }
  sequence.last_turn = ++turns_;
  sequence.computed += item.count;
  sequence.known += item.sample ? 1 : 0;
  sequence.decoding = sequence.decoding || item.sample;
  if (sequence.decoding) decoding_.emplace(sequence.last_turn, item.id);
}

bool BatchScheduler::FirstPromptIsAlone(PlanSequence before) const {
  bool alone = false;
  prompts_.Walk([&](const PromptKey& key, int64_t /*ahead*/) {
    const Sequence& sequence = sequences_.at(key.id);
    if (!IsBefore(sequence, before)) return FairOrder<PromptKey>::kNextTenant;
    alone = sequence.alone;
    return FairOrder<PromptKey>::kStop;
  });
  return alone;
}

void BatchScheduler::PlanDecode(std::vector<StepItem>* step) const {
  int64_t room = std::min(limits_.max_batch_tokens, limits_.max_batch_sequences);
  if (!prompts_.empty()) {
    const int64_t kept = std::min(limits_.min_slice_tokens, limits_.max_batch_tokens / 2);
    room = std::min(limits_.max_batch_tokens - kept,
                    std::max<int64_t>(1, limits_.max_batch_sequences - 1));
  }
  for (const auto& [last_turn, id] : decoding_) {
    const Sequence& sequence = sequences_.at(id);
    if (sequence.alone && !step->empty()) continue;  // it is the first of the next step
    if (--room < 0) break;
    step->push_back({.id = id, .position = sequence.computed, .count = 1, .sample = true});
    if (sequence.alone) break;
  }
}

void BatchScheduler::PlanPrompts(PlanSequence before, std::vector<StepItem>* step) const {
  if (!step->empty() && sequences_.at(step->front().id).alone) return;
  auto used = static_cast<int64_t>(step->size());
  int64_t most = TokensOfStep(used);
  int64_t places = limits_.max_batch_sequences - static_cast<int64_t>(step->size());
  constexpr int64_t kNone = INT64_MAX / 2;
  // Of the tenants of prompts that end in this step, what the one that was given least has had.
  int64_t least_ended = kNone;
  bool in_last = false;
  prompts_.Walk([&](const PromptKey& key, int64_t ahead) -> int64_t {
    if (used >= most || places == 0) return FairOrder<PromptKey>::kStop;
    const Sequence& sequence = sequences_.at(key.id);
    if (!IsBefore(sequence, before)) return FairOrder<PromptKey>::kNextTenant;
    if (std::exchange(in_last, sequence.last) != sequence.last) least_ended = kNone;
    if (ahead - least_ended > kYieldsTokens) {
      most = std::min(most, limits_.max_batch_tokens / kYieldingPart);
      if (used >= most) return FairOrder<PromptKey>::kStop;
    }
    if (sequence.alone && !step->empty()) return FairOrder<PromptKey>::kStop;
    const int64_t left = sequence.known - sequence.computed;
    if (SKEIN_PLANT(prompt_starved) && left > 2 * limits_.max_slice_tokens) return 0;
    const int64_t count = std::min({left, most - used, limits_.max_slice_tokens});
    step->push_back(
        {.id = key.id, .position = sequence.computed, .count = count, .sample = count == left});
    if (sequence.alone) return FairOrder<PromptKey>::kStop;
    if (count == left) {
      least_ended = std::min(least_ended, ahead + count / std::max<int64_t>(1, sequence.weight));
    }
    used += count;
    --places;
    return count;
  });
}

int64_t BatchScheduler::TokensOfStep(int64_t used) const {
  const bool halves = std::any_of(away_.begin(), away_.end(), [this](const Away& away) {
    return prompts_.LeadOver({away.tenant, 1, PlaceIn(/*last=*/false)}) >= kHalvesTokens;
  });
  const int64_t all = limits_.max_batch_tokens;
  if (!halves) return all;
  return std::min(all, std::max(all / 2, used + std::max<int64_t>(1, limits_.min_slice_tokens)));
}

void BatchScheduler::Charge(const FairOwner& owner, int64_t tokens) {
  for (const bool last : {false, true}) {  // whichever prompts wait, they waited for these tokens
    prompts_.Charge({owner.tenant, owner.weight, PlaceIn(last)}, tokens);
  }
}

int64_t BatchScheduler::StepTokens() const {
  int64_t tokens = static_cast<int64_t>(decoding_.size()) + pending_;
  for (const Step& step : in_flight_) tokens -= step.prompt_tokens;
  return std::min(tokens, limits_.max_batch_tokens);
}

void BatchScheduler::Complete() {
  SKEIN_CHECK(!in_flight_.empty());
  for (const StepItem& item : in_flight_.front().items) {
    const auto in_steps = in_steps_.find(item.id);
    if (--in_steps->second == 0) in_steps_.erase(in_steps);
  }
  pending_ -= in_flight_.front().prompt_tokens;
  in_flight_.pop_front();
}

void BatchScheduler::Remove(RequestId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  const Sequence& sequence = it->second;
  if (sequence.decoding) {
    decoding_.erase({sequence.last_turn, id});
  } else {
    RemovePrompt(sequence, id);
    pending_ -= sequence.known - sequence.computed;
  }
  sequences_.erase(it);
}

absl::Status BatchScheduler::CheckInvariants() const {
  int64_t prompts = 0;
  int64_t pending = 0;
  std::map<std::string, int64_t> prompts_of;
  for (const auto& [id, sequence] : sequences_) {
    const int64_t left = sequence.known - sequence.computed;
    if (sequence.computed < 0 || left < 1 || (sequence.decoding && left != 1)) {
      return absl::InternalError(absl::StrCat("BatchScheduler 1: ", ToString(id), " computed ",
                                              sequence.computed, " of ", sequence.known));
    }
    prompts += !sequence.decoding;
    if (!sequence.decoding) ++prompts_of[sequence.tenant];
    pending += sequence.decoding ? 0 : left;
    if (decoding_.count({sequence.last_turn, id}) != (sequence.decoding ? 1 : 0)) {
      return absl::InternalError(
          absl::StrCat("BatchScheduler 2: ", ToString(id), " is missing in the order of decoding"));
    }
    if (prompts_.Has(sequence.Owner(), {sequence.order, id}) == sequence.decoding) {
      return absl::InternalError(
          absl::StrCat("BatchScheduler 3: ", ToString(id), " is missing in the order of prompts"));
    }
  }
  for (const Step& step : in_flight_) pending += step.prompt_tokens;
  if (pending != pending_ || prompts != static_cast<int64_t>(prompts_.size()) ||
      prompts_.size() + decoding_.size() != sequences_.size()) {
    return absl::InternalError(absl::StrCat("BatchScheduler 2: ", sequences_.size(),
                                            " sequences, or their ", pending_,
                                            " pending tokens, are miscounted"));
  }
  if (absl::Status status = prompts_.CheckInvariants(); !status.ok()) return status;
  const bool is_here = std::any_of(away_.begin(), away_.end(), [this](const Away& away) {
    return prompts_of_.count(away.tenant) > 0;
  });
  if (is_here || prompts_of != prompts_of_) {
    return absl::InternalError("BatchScheduler 2: the prompts of tenants are miscounted");
  }
  return CheckSteps();
}

absl::Status BatchScheduler::CheckSteps() const {
  std::map<RequestId, int> in_steps;
  std::map<RequestId, int64_t> ends;  // tokens computed, as of the step before
  for (const Step& step : in_flight_) {
    int64_t tokens = 0;
    std::set<RequestId> seen;
    for (const StepItem& item : step.items) {
      tokens += item.count;
      ++in_steps[item.id];
      const auto [end, first] = ends.try_emplace(item.id, item.position);
      if (!seen.insert(item.id).second || end->second != item.position) {
        return absl::InternalError(
            absl::StrCat("BatchScheduler 2: ", ToString(item.id), " does not fit its step"));
      }
      end->second += item.count;
    }
    if (tokens > limits_.max_batch_tokens ||
        static_cast<int64_t>(step.items.size()) > limits_.max_batch_sequences) {
      return absl::InternalError(absl::StrCat("BatchScheduler 2: ", tokens, " tokens in ",
                                              step.items.size(), " sequences are above a limit"));
    }
  }
  for (const auto& [id, end] : ends) {
    const auto sequence = sequences_.find(id);
    if (sequence != sequences_.end() && sequence->second.computed != end) {
      return absl::InternalError(
          absl::StrCat("BatchScheduler 2: ", ToString(id), " does not fit its last step"));
    }
  }
  if (in_steps == in_steps_) return absl::OkStatus();
  return absl::InternalError("BatchScheduler 2: the sequences in flight are not those counted");
}

}  // namespace skein::scheduler
