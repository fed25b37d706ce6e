#include "engine/stepping/sequence_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/parallel/step_digest.h"
#include "engine/sampling/sampler.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// The prompt's tokens of those that the plan runs, and what comes after each where its logprob is
// wanted. The output's tokens follow in Begin.
void FillTokens(const PlannedSequence& planned, const std::optional<RingMeeting>& ring,
                PreparedStep::Arrays* arrays) {
  const std::vector<int32_t>& prompt = *arrays->info.prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  arrays->tokens.reserve(static_cast<size_t>(planned.count));
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(end, prompt_tokens); ++i) {
      arrays->tokens.push_back(prompt[static_cast<size_t>(i)]);
    }
    if (!arrays->info.prompt_logprobs || begin >= prompt_tokens) return;
    for (int64_t i = begin + 1; i <= end; ++i) {
      arrays->next_tokens.push_back(i < prompt_tokens ? prompt[static_cast<size_t>(i)] : -1);
    }
  };
  if (!ring.has_value()) return run(planned.position, planned.position + planned.count);
  for (const TokenSpan& span : ring->spans) run(span.position, span.position + span.count);
}

// Without tokens and output.
SequenceStep StepOf(const PlannedSequence& planned, const PreparedStep::Arrays& arrays,
                    const SequenceStep::Checked& checked) {
  SequenceStep step;
  step.position = planned.position;
  step.block_table = *arrays.table;
  step.layout = arrays.info.layout;
  step.sample = planned.sample;
  step.sampling = arrays.info.sampling.get();
  step.token_index = planned.token_index;
  step.prompt = *arrays.info.prompt;
  step.next_tokens = arrays.next_tokens;
  step.checked = checked;
  return step;
}

// The output's tokens of those that the plan runs. False: there are not so many.
bool AddOutputTokens(std::span<const TokenSpan> spans, PreparedStep::Arrays* arrays) {
  const auto prompt_tokens = static_cast<int64_t>(arrays->info.prompt->size());
  const std::vector<int32_t>& output = arrays->output->tokens;
  for (const TokenSpan& span : spans) {
    const int64_t begin = std::max(span.position - prompt_tokens, int64_t{0});
    const int64_t end = span.position + span.count - prompt_tokens;
    if (end > static_cast<int64_t>(output.size())) return false;
    if (begin >= end) continue;
    arrays->tokens.insert(arrays->tokens.end(), output.begin() + begin, output.begin() + end);
  }
  return true;
}

}  // namespace

bool SequenceOutput::Change(const PlannedSequence& planned, const SequenceInfo& info,
                            int vocab_size) {
  const auto kept = static_cast<size_t>(planned.kept_output);
  if (tokens.size() < kept) return false;
  tokens.resize(kept);
  tokens.insert(tokens.end(), planned.output.begin(), planned.output.end());
  if (checked > kept) {
    checked = digest = 0;
    seen = SeenIds(*info.sampling, *info.prompt);
  }
  for (; checked < tokens.size(); ++checked) {
    const int32_t token = tokens[checked];
    if (token < 0 || token >= vocab_size) break;
    digest = OutputDigest(digest, token);
    seen.Add(token);
  }
  return true;
}

void PreparedStep::Begin(int vocab_size) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlannedSequence& planned = plan.sequences[i];
    Arrays& of = arrays[i];
    const TokenSpan whole{planned.position, planned.count};
    const std::span<const TokenSpan> spans =
        plan.ring.has_value() ? std::span(plan.ring->spans) : std::span(&whole, 1);
    const bool there =
        of.output->Change(planned, of.info, vocab_size) && AddOutputTokens(spans, &of);
    if (there) steps[i].tokens = of.tokens;
    steps[i].output = of.output->tokens;
    steps[i].checked.output = of.output->checked;
    steps[i].checked.output_digest = of.output->digest;
    steps[i].checked.seen = &of.output->seen;
  }
}

void PreparedStep::End(const std::vector<SequenceResult>& results) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].sample || !results[i].status.ok()) continue;
    arrays[i].output->tokens.push_back(results[i].sampled.token);
  }
}

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
      .output = std::make_shared<SequenceOutput>(
          SequenceOutput{.seen = SeenIds(*info.sampling, *info.prompt)}),
      .checked = {.prompt_and_sampling = true,
                  .identity = IdentityOf(*info.prompt, info.sampling.get())}};
  return handle;
}

void SequenceTable::ChangeTable(const PlannedSequence& planned, Sequence* sequence) const {
  const auto kept = static_cast<size_t>(planned.kept_blocks);
  SKEIN_CHECK(kept <= sequence->table->size());
  if (kept == sequence->table->size() && planned.blocks.empty()) return;
  // Steps in flight read what they were given of it: entries may be added behind that, unless the
  // array would move.
  const size_t size = kept + planned.blocks.size();
  if (kept < sequence->table->size() || size > sequence->table->capacity()) {
    auto other = std::make_shared<std::vector<int32_t>>();
    other->reserve(std::max(size, 2 * kept));
    other->assign(sequence->table->begin(), sequence->table->begin() + planned.kept_blocks);
    sequence->table = std::move(other);
  }
  std::vector<int32_t>& table = *sequence->table;
  const std::span<const int32_t> added = NumbersOf(planned.blocks);
  table.insert(table.end(), added.begin(), added.end());
  size_t& checked = sequence->checked.blocks;
  checked = std::min(checked, kept);
  while (checked < table.size() && table[checked] >= 0 && table[checked] < spec_.kv.num_blocks) {
    ++checked;
  }
}

std::shared_ptr<PreparedStep> SequenceTable::Prepare(StepPlan plan) {
  auto prepared = std::make_shared<PreparedStep>();
  prepared->plan = std::move(plan);
  prepared->progress = std::make_shared<StepProgress>(prepared->plan.layer_queued);
  prepared->arrays.reserve(prepared->plan.sequences.size());
  prepared->steps.reserve(prepared->plan.sequences.size());
  for (const PlannedSequence& planned : prepared->plan.sequences) {
    Sequence& sequence = sequences_.at(planned.sequence.value);
    ChangeTable(planned, &sequence);
    prepared->arrays.push_back({.info = sequence.info,
                                .table = sequence.table,
                                .output = sequence.output,
                                .tokens = {},
                                .next_tokens = {}});
    FillTokens(planned, prepared->plan.ring, &prepared->arrays.back());
    prepared->steps.push_back(StepOf(planned, prepared->arrays.back(), sequence.checked));
  }
  return prepared;
}

}  // namespace skein::engine
