#include "engine/stepping/testing/mixed_steps.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "engine/comm/local/local_fabric.h"
#include "engine/model/group/group_comms.h"
#include "engine/stepping/testing/run_plan.h"

namespace skein::engine {
namespace {

// The blocks [begin, end) of the text that each rank of a ring runs: zigzag, as Tetris deals them.
std::vector<std::vector<TokenSpan>> Deal(int64_t tokens, int64_t block_tokens, int ranks) {
  const int64_t blocks = (tokens + block_tokens - 1) / block_tokens;
  const int64_t shards = int64_t{2} * ranks;
  std::vector<std::vector<TokenSpan>> spans(static_cast<size_t>(ranks));
  for (int64_t shard = 0; shard < shards; ++shard) {
    const int64_t begin = blocks * shard / shards * block_tokens;
    const int64_t end = std::min(tokens, blocks * (shard + 1) / shards * block_tokens);
    const int64_t rank = std::min(shard, shards - 1 - shard);
    if (begin < end) spans[static_cast<size_t>(rank)].push_back({begin, end - begin});
  }
  return spans;
}

// One rank of the run.
class Rank {
 public:
  Rank(StepEngine* engine, const GroupComms* comms, Communicator* ring,
       const std::vector<int32_t>& text)
      : engine_(engine), comms_(*comms), ring_(ring), tokens_(static_cast<int64_t>(text.size())) {
    info_.prompt = std::make_shared<const std::vector<int32_t>>(text);
    info_.sampling = std::make_shared<const SamplingParams>(
        SamplingParams{.temperature = 0.0f, .top_logprobs = 0});
    info_.prompt_logprobs = true;
  }

  absl::Status Run(int64_t slice_tokens, std::vector<float>* alone, std::vector<float>* group,
                   std::vector<std::pair<int64_t, float>>* ring) {
    const int ranks = ring_->Size();
    const std::vector<GroupMode> modes = ModesOf(ranks);
    SequenceInfo grouped = info_;
    grouped.layout = KvLayout{ranks};
    const auto alone_handle = engine_->Admit(info_), group_handle = engine_->Admit(grouped);
    if (!alone_handle.ok()) return alone_handle.status();
    if (!group_handle.ok()) return group_handle.status();
    size_t step = 0;
    for (int64_t begin = 0; begin < tokens_; begin += slice_tokens, ++step) {
      const int64_t count = std::min(slice_tokens, tokens_ - begin);
      StepPlan plan;
      plan.sequences = {Slice(*alone_handle, begin, count, KvLayout{}, 0)};
      absl::Status status = RunPlan(std::move(plan), alone);
      StepPlan together;
      together.sequences = {Slice(*group_handle, begin, count, grouped.layout, 1)};
      together.group = GroupMeeting{.enter = [&]() -> absl::StatusOr<GroupPart> {
                                      return comms_.Part(modes[step % modes.size()], Later());
                                    },
                                    .leave = [](const absl::Status&) {}};
      if (status.ok()) status = RunPlan(std::move(together), group);
      if (status.ok() && step == 1) status = RunRing(ring);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  // Sequence `place`'s blocks are a third of the pool, downwards.
  BlockId BlockOf(int place, int64_t index) const {
    const int64_t third = engine_->Spec().kv.num_blocks / 3;
    return {static_cast<int32_t>(third * (place + 1) - 1 - index)};
  }

  // The table travels as what is new.
  PlannedSequence Slice(SequenceHandle handle, int64_t begin, int64_t count, KvLayout layout,
                        int place) const {
    const int64_t unit = TokensPerBlock(layout, engine_->Spec().kv);
    PlannedSequence planned{.sequence = handle, .position = begin, .count = count};
    planned.kept_blocks = (begin + unit - 1) / unit;
    for (int64_t i = planned.kept_blocks; i * unit < begin + count; ++i) {
      planned.blocks.push_back(BlockOf(place, i));
    }
    return planned;
  }

  absl::Status RunPlan(StepPlan plan, std::vector<float>* logprobs) {
    const CompletedStep completed = engine::RunPlan(engine_, std::move(plan));
    if (!completed.status.ok()) return completed.status;
    const SequenceResult& result = completed.results.front();
    if (!result.status.ok()) return result.status;
    for (const SampledToken& token : result.prompt_logprobs) {
      if (token.token >= 0) logprobs->push_back(token.logprob);
    }
    return absl::OkStatus();
  }

  absl::Status RunRing(std::vector<std::pair<int64_t, float>>* logprobs) {
    const auto handle = engine_->Admit(info_);
    if (!handle.ok()) return handle.status();
    const int64_t unit = engine_->Spec().kv.block_tokens;
    const auto dealt = Deal(tokens_, unit, ring_->Size());
    const std::vector<TokenSpan>& spans = dealt[static_cast<size_t>(ring_->Rank())];
    PlannedSequence planned{.sequence = *handle};
    std::vector<int64_t> positions;
    for (const TokenSpan& span : spans) {
      planned.count += span.count;
      for (int64_t at = span.position; at < span.position + span.count; ++at) {
        positions.push_back(at);
        if (at % unit == 0) planned.blocks.push_back(BlockOf(2, at / unit));
      }
    }
    StepPlan plan;
    plan.sequences = {std::move(planned)};
    plan.ring = RingMeeting{.spans = spans,
                            .enter = [&]() -> absl::StatusOr<RingStep> {
                              RingStep step{.comm = ring_, .deadline = Later()};
                              for (const auto& share : dealt) step.shares.push_back({0, share});
                              return step;
                            },
                            .leave = [](const absl::Status&) {}};
    std::vector<float> scores;
    const absl::Status status = RunPlan(std::move(plan), &scores);
    for (size_t i = 0; i < scores.size(); ++i) logprobs->emplace_back(positions[i], scores[i]);
    engine_->Release(*handle);
    return status;
  }

  StepEngine* const engine_;
  const GroupComms& comms_;
  Communicator* const ring_;
  const int64_t tokens_;
  SequenceInfo info_;
};

}  // namespace

absl::StatusOr<MixedScores> ScoreMixed(const std::vector<StepEngine*>& engines,
                                       const std::vector<int32_t>& text, int64_t slice_tokens) {
  LocalHub hub;
  const auto ranks = static_cast<int>(engines.size());
  TestingRanks fabrics([&] { return hub.MakeFabric(); }, ranks);
  std::vector<int> members(engines.size());
  std::iota(members.begin(), members.end(), 0);
  const std::vector<std::string> addresses = fabrics.Addresses(members);
  MixedScores scores;
  scores.alone.resize(engines.size());
  scores.group.resize(engines.size());
  scores.ring.resize(text.size() - 1);
  std::mutex mu;
  const auto run = [&](Communicator* ring) {
    const auto rank = static_cast<size_t>(ring->Rank());
    const auto comms = GroupComms::Make(fabrics.fabric(ring->Rank()), GroupId{77, 1}, addresses,
                                        ring->Rank(), ModesOf(ranks));
    if (!comms.ok()) return comms.status();
    std::vector<std::pair<int64_t, float>> of_ring;
    const absl::Status status =
        Rank(engines[rank], &*comms, ring, text)
            .Run(slice_tokens, &scores.alone[rank], &scores.group[rank], &of_ring);
    const std::lock_guard lock(mu);
    for (const auto& [position, logprob] : of_ring) {
      scores.ring[static_cast<size_t>(position)] = logprob;
    }
    return status;
  };
  for (const absl::Status& status : TestingRanks::Run(fabrics.GroupOfAll(), run)) {
    if (!status.ok()) return status;
  }
  return scores;
}

}  // namespace skein::engine
