#include "scheduler/batch/batch_scheduler.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

BatchScheduler::BatchScheduler(const BatchLimits& limits) : limits_(limits) {
  SKEIN_INVARIANT_MSG(limits.max_batch_tokens >= 1 && limits.max_batch_sequences >= 1 &&
                          limits.max_chunk_tokens >= 1 && limits.min_chunk_tokens >= 0,
                      "batch limits are positive");
}

void BatchScheduler::Add(RequestId id, PlanSequence order, int64_t known, int64_t computed,
                         bool alone) {
  SKEIN_INVARIANT_MSG(known >= 1 && computed >= 0 && computed < known, "nothing to compute");
  const bool decoding = computed > 0 && computed + 1 == known;
  const bool added =
      sequences_.emplace(id, Sequence{order, known, computed, decoding, 0, alone}).second;
  SKEIN_INVARIANT_MSG(added, "sequence added twice");
  if (!decoding) prompts_.emplace(order, id);
}

std::vector<StepItem> BatchScheduler::Plan(PlanSequence before) {
  SKEIN_INVARIANT_MSG(in_flight_.empty(), "one step in flight at a time");
  if (!FirstPromptIsAlone(before)) PlanDecode(&in_flight_);
  PlanPrompts(before, &in_flight_);
  for (const StepItem& item : in_flight_) sequences_.at(item.id).last_turn = ++turns_;
  return in_flight_;
}

bool BatchScheduler::FirstPromptIsAlone(PlanSequence before) const {
  if (prompts_.empty() || prompts_.begin()->first >= before) return false;
  return sequences_.at(prompts_.begin()->second).alone;
}

void BatchScheduler::PlanDecode(std::vector<StepItem>* step) const {
  int64_t room = std::min(limits_.max_batch_tokens, limits_.max_batch_sequences);
  if (!prompts_.empty()) {
    const int64_t kept = std::min(limits_.min_chunk_tokens, limits_.max_batch_tokens / 2);
    room = std::min(limits_.max_batch_tokens - kept,
                    std::max<int64_t>(1, limits_.max_batch_sequences - 1));
  }
  std::vector<std::tuple<uint64_t, RequestId, int64_t>> ready;  // last turn, id, position
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.decoding) ready.emplace_back(sequence.last_turn, id, sequence.computed);
  }
  if (static_cast<int64_t>(ready.size()) > room) {
    std::nth_element(ready.begin(), ready.begin() + room, ready.end());
    ready.resize(room);
  }
  std::sort(ready.begin(), ready.end());
  for (const auto& [last_turn, id, position] : ready) {
    step->push_back({.id = id, .position = position, .count = 1, .sample = true});
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
    if (SKEIN_PLANT(prompt_starved) && left > 2 * limits_.max_chunk_tokens) continue;
    const int64_t count = std::min({left, tokens, limits_.max_chunk_tokens});
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
    sequence.computed += item.count;
    if (!item.sample) continue;
    ++sequence.known;
    sequence.decoding = true;
    prompts_.erase({sequence.order, item.id});
  }
  in_flight_.clear();
}

void BatchScheduler::Remove(RequestId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  SKEIN_INVARIANT_MSG(!InFlight(id), "sequence removed during its step");
  prompts_.erase({it->second.order, id});
  sequences_.erase(it);
}

bool BatchScheduler::InFlight(RequestId id) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(),
                     [id](const StepItem& item) { return item.id == id; });
}

int64_t BatchScheduler::PendingPromptTokens() const {
  int64_t tokens = 0;
  for (const auto& [order, id] : prompts_) {
    const Sequence& sequence = sequences_.at(id);
    tokens += sequence.known - sequence.computed;
  }
  return tokens;
}

absl::Status BatchScheduler::CheckInvariants() const {
  int64_t prompts = 0;
  for (const auto& [id, sequence] : sequences_) {
    const int64_t left = sequence.known - sequence.computed;
    if (sequence.computed < 0 || left < 1 || (sequence.decoding && left != 1)) {
      return absl::InternalError(absl::StrCat("BatchScheduler 1: ", ToString(id), " computed ",
                                              sequence.computed, " of ", sequence.known));
    }
    prompts += !sequence.decoding;
    if (prompts_.count({sequence.order, id}) != (sequence.decoding ? 0 : 1)) {
      return absl::InternalError(absl::StrCat("BatchScheduler 3: order of ", ToString(id)));
    }
  }
  int64_t tokens = 0;
  std::map<RequestId, int> seen;
  for (const StepItem& item : in_flight_) {
    tokens += item.count;
    const auto it = sequences_.find(item.id);
    if (it == sequences_.end() || it->second.computed != item.position || seen[item.id]++ > 0) {
      return absl::InternalError(absl::StrCat("BatchScheduler 2: step of ", ToString(item.id)));
    }
  }
  if (tokens > limits_.max_batch_tokens ||
      static_cast<int64_t>(in_flight_.size()) > limits_.max_batch_sequences ||
      prompts != static_cast<int64_t>(prompts_.size())) {
    return absl::InternalError(
        absl::StrCat("BatchScheduler 2: ", tokens, " tokens in ", in_flight_.size(), " sequences"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
