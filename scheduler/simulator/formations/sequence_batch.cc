#include "scheduler/simulator/formations/sequence_batch.h"

#include <algorithm>

namespace skein::scheduler {

void SequenceBatch::Add(size_t request, int64_t made) {
  waiting_.insert({-(*requests_)[request].priority, request, made});
}

int64_t SequenceBatch::StepTokens() const {
  int64_t decode = 0;
  int64_t prompts = 0;
  for (const BatchSequence& sequence : running_) {
    decode += sequence.to_compute == 0 ? 1 : 0;
    prompts += sequence.to_compute;
  }
  return std::min(limits_.step_tokens, decode + prompts);
}

int64_t SequenceBatch::Admit(const Fits& fits) {
  int64_t tokens = StepTokens();
  while (!waiting_.empty() && tokens < limits_.step_tokens &&
         static_cast<int64_t>(running_.size()) < limits_.sequences) {
    const Waiting next = *waiting_.begin();
    if (!fits(next.request)) break;
    waiting_.erase(waiting_.begin());
    const int64_t to_compute = (*requests_)[next.request].prompt_tokens + next.made;
    running_.push_back({next.request, to_compute, 0, next.made, 0});
    tokens = std::min(limits_.step_tokens, tokens + to_compute);
  }
  return tokens;
}

StepWork SequenceBatch::BeginStep() {
  StepWork work;
  for (BatchSequence& sequence : running_) {
    sequence.slice = 0;
    if (sequence.to_compute == 0) work.AddDecode(sequence.computed);
  }
  for (BatchSequence& sequence : running_) {
    if (sequence.to_compute == 0) continue;
    sequence.slice =
        std::min(sequence.to_compute, std::max<int64_t>(0, limits_.step_tokens - work.tokens));
    if (sequence.slice > 0) work.AddPrompt(sequence.computed, sequence.slice);
  }
  return work;
}

void SequenceBatch::EndStep(const Made& made) {
  for (BatchSequence& sequence : running_) {
    const bool decodes = sequence.to_compute == 0;
    sequence.computed += decodes ? 1 : sequence.slice;
    sequence.to_compute -= sequence.slice;
    sequence.slice = 0;
    if (sequence.to_compute > 0) continue;
    ++sequence.made;
    made(sequence, sequence.made - 1);
  }
  std::erase_if(running_, [&](const BatchSequence& sequence) {
    return sequence.made >= (*requests_)[sequence.request].output_tokens;
  });
}

std::vector<std::pair<size_t, int64_t>> SequenceBatch::TakeWaiting() {
  std::vector<std::pair<size_t, int64_t>> taken;
  for (const Waiting& waiting : waiting_) taken.emplace_back(waiting.request, waiting.made);
  waiting_.clear();
  return taken;
}

std::vector<std::pair<size_t, int64_t>> SequenceBatch::TakeAll() {
  std::vector<std::pair<size_t, int64_t>> taken = TakeWaiting();
  for (const BatchSequence& sequence : running_)
    taken.emplace_back(sequence.request, sequence.made);
  running_.clear();
  return taken;
}

int64_t SequenceBatch::held_tokens() const {
  int64_t tokens = 0;
  for (const BatchSequence& sequence : running_) tokens += sequence.computed;
  return tokens;
}

int64_t SequenceBatch::tokens_to_compute() const {
  int64_t tokens = 0;
  for (const BatchSequence& sequence : running_) tokens += sequence.to_compute;
  for (const Waiting& waiting : waiting_) {
    tokens += (*requests_)[waiting.request].prompt_tokens + waiting.made;
  }
  return tokens;
}

std::vector<size_t> SequenceBatch::Requests() const {
  std::vector<size_t> all;
  for (const BatchSequence& sequence : running_) all.push_back(sequence.request);
  for (const Waiting& waiting : waiting_) all.push_back(waiting.request);
  return all;
}

}  // namespace skein::scheduler
