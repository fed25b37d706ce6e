#include "scheduler/batch/batch_scheduler.h"

#include <algorithm>
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
                         bool alone) {
  SKEIN_CHECK_MSG(known >= 1 && computed >= 0 && computed < known, "nothing to compute");
  const bool decoding = computed > 0 && computed + 1 == known;
  const bool added =
      sequences_.emplace(id, Sequence{order, known, computed, decoding, 0, alone}).second;
  SKEIN_CHECK_MSG(added, "sequence added twice");
  if (decoding) {
    decoding_.emplace(0, id);
  } else {
    prompts_.emplace(order, id);
    pending_ += known - computed;
  }
}

std::vector<StepItem> BatchScheduler::Plan(PlanSequence before) {
  SKEIN_CHECK_MSG(in_flight_.empty(), "one step in flight at a time");
  if (!FirstPromptIsAlone(before)) PlanDecode(&in_flight_);
  PlanPrompts(before, &in_flight_);
  for (const StepItem& item : in_flight_) {
    Sequence& sequence = sequences_.at(item.id);
    if (sequence.decoding) decoding_.erase({sequence.last_turn, item.id});
    sequence.last_turn = ++turns_;
    sequence.in_step = true;
    if (sequence.decoding) decoding_.emplace(sequence.last_turn, item.id);
  }
  return in_flight_;
}

bool BatchScheduler::FirstPromptIsAlone(PlanSequence before) const {
  if (prompts_.empty() || prompts_.begin()->first >= before) return false;
  return sequences_.at(prompts_.begin()->second).alone;
}

void BatchScheduler::PlanDecode(std::vector<StepItem>* step) const {
  int64_t room = std::min(limits_.max_batch_tokens, limits_.max_batch_sequences);
  if (!prompts_.empty()) {
    const int64_t kept = std::min(limits_.min_slice_tokens, limits_.max_batch_tokens / 2);
    room = std::min(limits_.max_batch_tokens - kept,
                    std::max<int64_t>(1, limits_.max_batch_sequences - 1));
  }
  for (const auto& [last_turn, id] : decoding_) {
    if (--room < 0) break;
    step->push_back({.id = id, .position = sequences_.at(id).computed, .count = 1, .sample = true});
  }
}

void BatchScheduler::PlanPrompts(PlanSequence before, std::vector<StepItem>* step) const {
  int64_t tokens = limits_.max_batch_tokens - static_cast<int64_t>(step->size());
  int64_t places = limits_.max_batch_sequences - static_cast<int64_t>(step->size());
  for (const auto& [order, id] : prompts_) {
    if (tokens == 0 || places == 0 || order >= before) break;
    const Sequence& sequence = sequences_.at(id);
    if (sequence.alone && !step->empty()) break;
    const int64_t left = sequence.known - sequence.computed;
    if (SKEIN_PLANT(prompt_starved) && left > 2 * limits_.max_slice_tokens) continue;
    const int64_t count = std::min({left, tokens, limits_.max_slice_tokens});
    step->push_back(
        {.id = id, .position = sequence.computed, .count = count, .sample = count == left});
    if (sequence.alone) break;
    tokens -= count;
    --places;
  }
}

void BatchScheduler::Complete() {
  for (const StepItem& item : in_flight_) {
    Sequence& sequence = sequences_.at(item.id);
    sequence.in_step = false;
    sequence.computed += item.count;
    if (!sequence.decoding) pending_ -= item.count;
    if (!item.sample) continue;
    ++sequence.known;
    if (std::exchange(sequence.decoding, true)) continue;
    prompts_.erase({sequence.order, item.id});
    decoding_.emplace(sequence.last_turn, item.id);
  }
  in_flight_.clear();
}

void BatchScheduler::Remove(RequestId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  SKEIN_CHECK_MSG(!InFlight(id), "sequence removed during its step");
  const Sequence& sequence = it->second;
  if (sequence.decoding) {
    decoding_.erase({sequence.last_turn, id});
  } else {
    prompts_.erase({sequence.order, id});
    pending_ -= sequence.known - sequence.computed;
  }
  sequences_.erase(it);
}

bool BatchScheduler::InFlight(RequestId id) const {
  const auto it = sequences_.find(id);
  return it != sequences_.end() && it->second.in_step;
}

absl::Status BatchScheduler::CheckInvariants() const {
  int64_t prompts = 0;
  int64_t pending = 0;
  size_t in_step = 0;
  for (const auto& [id, sequence] : sequences_) {
    const int64_t left = sequence.known - sequence.computed;
    if (sequence.computed < 0 || left < 1 || (sequence.decoding && left != 1)) {
      return absl::InternalError(absl::StrCat("BatchScheduler 1: ", ToString(id), " computed ",
                                              sequence.computed, " of ", sequence.known));
    }
    prompts += !sequence.decoding;
    pending += sequence.decoding ? 0 : left;
    in_step += sequence.in_step;
    if (decoding_.count({sequence.last_turn, id}) != (sequence.decoding ? 1 : 0)) {
      return absl::InternalError(
          absl::StrCat("BatchScheduler 2: ", ToString(id), " is missing in the order of decoding"));
    }
    if (prompts_.count({sequence.order, id}) != (sequence.decoding ? 0 : 1)) {
      return absl::InternalError(
          absl::StrCat("BatchScheduler 3: ", ToString(id), " is missing in the order of prompts"));
    }
  }
  int64_t tokens = 0;
  std::map<RequestId, int> seen;
  for (const StepItem& item : in_flight_) {
    tokens += item.count;
    const auto it = sequences_.find(item.id);
    if (it == sequences_.end() || it->second.computed != item.position || seen[item.id]++ > 0) {
      return absl::InternalError(
          absl::StrCat("BatchScheduler 2: ", ToString(item.id), " does not fit its step"));
    }
  }
  if (tokens > limits_.max_batch_tokens ||
      static_cast<int64_t>(in_flight_.size()) > limits_.max_batch_sequences ||
      in_step != in_flight_.size() || pending != pending_ ||
      prompts != static_cast<int64_t>(prompts_.size()) ||
      prompts_.size() + decoding_.size() != sequences_.size()) {
    return absl::InternalError(absl::StrCat("BatchScheduler 2: ", tokens, " tokens in ",
                                            in_flight_.size(),
                                            " sequences: miscounted or above a limit"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
