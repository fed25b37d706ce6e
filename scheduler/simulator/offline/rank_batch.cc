#include "scheduler/simulator/offline/rank_batch.h"

#include <algorithm>

namespace skein::scheduler {

void RankBatch::Admit(std::deque<OfflineRequest>* waiting) {
  while (!waiting->empty() && size() < limits_.sequences) {
    const OfflineRequest& next = waiting->front();
    if (!empty() && reserved_ + next.prompt + size() + 1 > limits_.kv_tokens) return;
    sequences_.push_back({.prompt_left = next.prompt, .output_left = next.output});
    reserved_ += next.prompt;
    waiting->pop_front();
  }
}

int64_t RankBatch::SliceOf(const Sequence& sequence, int64_t budget) const {
  return std::min(sequence.prompt_left, budget);
}

StepWork RankBatch::NextStep() const {
  StepWork work;
  int64_t budget = std::max<int64_t>(1, limits_.step_tokens - decoding_);
  for (const Sequence& sequence : sequences_) {
    if (sequence.prompt_left == 0) {
      work.AddDecode(sequence.context);
      continue;
    }
    const int64_t slice = SliceOf(sequence, budget);
    if (slice > 0) work.AddPrompt(sequence.context, slice);
    budget -= slice;
  }
  return work;
}

int64_t RankBatch::StepEnded(std::deque<OfflineRequest>* waiting) {
  int64_t made = 0;
  int64_t budget = std::max<int64_t>(1, limits_.step_tokens - decoding_);
  for (Sequence& sequence : sequences_) {
    if (sequence.prompt_left > 0) {
      const int64_t slice = SliceOf(sequence, budget);
      budget -= slice;
      sequence.prompt_left -= slice;
      sequence.context += slice;
      if (sequence.prompt_left > 0) continue;
      ++decoding_;
    } else {
      ++sequence.context;
      ++reserved_;
    }
    --sequence.output_left;
    ++made;
  }
  const auto has_ended = [&](const Sequence& sequence) {
    if (sequence.output_left > 0) return false;
    reserved_ -= sequence.context;
    --decoding_;
    return true;
  };
  sequences_.erase(std::remove_if(sequences_.begin(), sequences_.end(), has_ended),
                   sequences_.end());
  // The next step adds a token to each.
  while (size() > 1 && reserved_ + size() > limits_.kv_tokens) {
    const Sequence& last = sequences_.back();
    waiting->push_front({last.context + last.prompt_left, last.output_left});
    reserved_ -= last.context + last.prompt_left;
    if (last.prompt_left == 0) --decoding_;
    sequences_.pop_back();
    ++preempted_;
  }
  return made;
}

}  // namespace skein::scheduler
