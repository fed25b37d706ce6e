#include "engine/stepping/sequence_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/parallel/step_digest.h"
#include "engine/sampling/sampler.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// The tokens that the plan runs, and those after them where their logprobs are wanted.
void FillTokens(const PlannedSequence& planned, const std::optional<RingMeeting>& ring,
                PreparedStep::Arrays* arrays) {
  const std::vector<int32_t>& prompt = *arrays->info.prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      arrays->tokens.push_back(i < prompt_tokens
                                   ? prompt[static_cast<size_t>(i)]
                                   : (*arrays->output)[static_cast<size_t>(i - prompt_tokens)]);
      if (arrays->info.prompt_logprobs && begin < prompt_tokens) {
        arrays->next_tokens.push_back(i + 1 < prompt_tokens ? prompt[static_cast<size_t>(i + 1)]
                                                            : -1);
      }
    }
  };
  if (!ring.has_value()) return run(planned.position, planned.position + planned.count);
  for (const TokenSpan& span : ring->spans) run(span.position, span.position + span.count);
}

SequenceStep StepOf(const PlannedSequence& planned, const PreparedStep::Arrays& arrays,
                    const SequenceStep::Checked& checked) {
  SequenceStep step;
  step.tokens = arrays.tokens;
  step.position = planned.position;
  step.block_table = *arrays.table;
  step.layout = arrays.info.layout;
  step.sample = planned.sample;
  step.sampling = arrays.info.sampling.get();
  step.token_index = planned.token_index;
  step.prompt = *arrays.info.prompt;
  if (arrays.output != nullptr) step.output = *arrays.output;
  step.next_tokens = arrays.next_tokens;
  step.checked = checked;
  return step;
}

}  // namespace

absl::StatusOr<SequenceHandle> SequenceTable::Admit(const SequenceInfo& info) {
  if (info.prompt == nullptr || info.prompt->empty()) {
    return absl::InvalidArgumentError("prompt: empty");
  }
  if (info.sampling == nullptr) return absl::InvalidArgumentError("sampling: none");
  for (const int32_t token : *info.prompt) {
    if (token >= 0 && token < spec_.vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: token ", token, " is outside the vocabulary of ", spec_.vocab_size));
  }
  const absl::Status params = CheckSamplingParams(*info.sampling, spec_.vocab_size);
  if (!params.ok()) return params;
  const SequenceHandle handle{++last_};
  sequences_[handle.value] = {
      .info = info,
      .table = std::make_shared<std::vector<int32_t>>(),
      .checked = {.prompt_and_sampling = true,
                  .identity = IdentityOf(*info.prompt, info.sampling.get())}};
  return handle;
}

void SequenceTable::ChangeTable(const PlannedSequence& planned, Sequence* sequence) const {
  const auto kept = static_cast<size_t>(planned.kept_blocks);
  SKEIN_CHECK(kept <= sequence->table->size());
  if (kept == sequence->table->size() && planned.blocks.empty()) return;
  if (sequence->table.use_count() > 1) {  // a step in flight reads it
    sequence->table = std::make_shared<std::vector<int32_t>>(*sequence->table);
  }
  std::vector<int32_t>& table = *sequence->table;
  table.resize(kept);
  table.insert(table.end(), planned.blocks.begin(), planned.blocks.end());
  size_t& checked = sequence->checked.blocks;
  checked = std::min(checked, kept);
  while (checked < table.size() && table[checked] >= 0 && table[checked] < spec_.kv.num_blocks) {
    ++checked;
  }
}

void SequenceTable::CheckOutput(const PlannedSequence& planned, Sequence* sequence) const {
  const size_t size = planned.output == nullptr ? 0 : planned.output->size();
  size_t& checked = sequence->checked.output;
  uint64_t& digest = sequence->checked.output_digest;
  if (checked > size) checked = digest = 0;
  while (checked < size && (*planned.output)[checked] >= 0 &&
         (*planned.output)[checked] < spec_.vocab_size) {
    digest = OutputDigest(digest, (*planned.output)[checked]);
    ++checked;
  }
}

std::shared_ptr<const PreparedStep> SequenceTable::Prepare(StepPlan plan) {
  auto prepared = std::make_shared<PreparedStep>();
  prepared->plan = std::move(plan);
  prepared->arrays.reserve(prepared->plan.sequences.size());
  prepared->steps.reserve(prepared->plan.sequences.size());
  for (const PlannedSequence& planned : prepared->plan.sequences) {
    Sequence& sequence = sequences_.at(planned.sequence.value);
    ChangeTable(planned, &sequence);
    CheckOutput(planned, &sequence);
    prepared->arrays.push_back({.info = sequence.info,
                                .table = sequence.table,
                                .output = planned.output,
                                .tokens = {},
                                .next_tokens = {}});
    FillTokens(planned, prepared->plan.ring, &prepared->arrays.back());
    prepared->steps.push_back(StepOf(planned, prepared->arrays.back(), sequence.checked));
  }
  return prepared;
}

}  // namespace skein::engine
