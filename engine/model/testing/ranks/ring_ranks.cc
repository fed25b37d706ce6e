#include "engine/model/testing/ranks/ring_ranks.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace skein::engine {

double RingOutcome::Nll() const {
  return -std::accumulate(logprobs.begin(), logprobs.end(), 0.0) /
         static_cast<double>(logprobs.size());
}

RingRanks::RingRanks(const std::vector<Engine*>& engines, const FabricFactory& make_fabric,
                     const std::vector<Device*>& devices)
    : ranks_(make_fabric, static_cast<int>(engines.size())) {
  for (size_t m = 0; m < engines.size(); ++m) {
    members_.emplace_back(engines[m], devices.empty() ? nullptr : devices[m]);
  }
}

RingOutcome RingRanks::Run(const RingPrompt& prompt) {
  for (size_t m = 0; m < members_.size(); ++m) {
    members_[m].Start(prompt.ids, prompt.score, prompt.seed + static_cast<uint32_t>(m));
  }
  int64_t moved = 0;
  PromptDealer dealer(static_cast<int64_t>(prompt.ids.size()),
                      members_[0].engine().Spec().kv.block_tokens, prompt.seed);
  for (const RingChunk& chunk : prompt.chunks) {
    const DealtPiece piece = prompt.even ? dealer.NextEven(chunk.members, chunk.blocks)
                                         : dealer.NextRandom(chunk.members, chunk.blocks);
    RunPiece(piece, chunk.tp);
    if (::testing::Test::HasFailure()) return {};
    CheckMoves(piece);
    for (const auto& from : piece.moves) {
      for (const auto& blocks : from) moved += static_cast<int64_t>(blocks.size());
    }
  }
  EXPECT_EQ(dealer.BlocksLeft(), 0);
  RingOutcome outcome = Outcome(prompt);
  outcome.blocks_moved = moved;
  return outcome;
}

void RingRanks::RunPiece(const DealtPiece& piece, int tp) {
  const size_t size = piece.members.size();
  const auto comm = ranks_.Group(piece.members), moves = ranks_.Group(piece.members);
  std::vector<std::unique_ptr<Communicator>> tensor;  // by rank
  for (size_t first = 0; tp > 1 && first < size; first += static_cast<size_t>(tp)) {
    for (auto& group :
         ranks_.Group(std::span(piece.members).subspan(first, static_cast<size_t>(tp)))) {
      tensor.push_back(std::move(group));
    }
  }
  std::vector<absl::Status> ends(size);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      RingGroups groups;
      if (size > 1) groups = {comm[r].get(), moves[r].get()};
      if (tp > 1) groups.tensor = tensor[r].get();
      groups.tp = tp;
      RingMember& member = members_[static_cast<size_t>(piece.members[r])];
      ends[r] = member.Run(piece, r, groups, Later(), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
}

RingOutcome RingRanks::Outcome(const RingPrompt& prompt) const {
  RingOutcome outcome;
  if (prompt.score) outcome.logprobs.assign(prompt.ids.size() - 1, 0.0);
  for (size_t m = 0; m < members_.size(); ++m) {
    for (const auto& [position, logprob] : members_[m].logprobs()) {
      outcome.logprobs[static_cast<size_t>(position)] = logprob;
    }
    if (members_[m].token() >= 0) outcome.token = members_[m].token();
    for (const auto& [block, local] : members_[m].computed()) {
      const auto at = static_cast<size_t>(block);
      if (outcome.places.size() <= at) outcome.places.resize(at + 1);
      outcome.places[at] = {static_cast<int>(m), local};
    }
  }
  return outcome;
}

void RingRanks::CheckMoves(const DealtPiece& piece) {
  const auto at = [&](size_t rank, int32_t block, size_t layer) {
    RingMember& member = members_[static_cast<size_t>(piece.members[rank])];
    return member.ReadBlock(layer, member.LocalOf(block));
  };
  const auto layers = static_cast<size_t>(members_[0].engine().Spec().kv.num_layers);
  for (size_t from = 0; from < piece.members.size(); ++from) {
    for (size_t to = 0; to < piece.members.size(); ++to) {
      for (const int32_t block : piece.moves[from][to]) {
        for (size_t layer = 0; layer < layers; ++layer) {
          ASSERT_TRUE(at(from, block, layer) == at(to, block, layer))
              << "block " << block << " layer " << layer << " moved from rank " << from << " to "
              << to;
        }
      }
    }
  }
}

RingOutcome RunPlain(Engine& engine, const std::vector<int32_t>& ids, bool score, Device* device) {
  SpoilKv(engine, device);
  std::vector<int32_t> table(static_cast<size_t>(engine.Spec().kv.num_blocks));
  std::iota(table.begin(), table.end(), 0);
  std::vector<int32_t> next;
  if (score) {
    next.assign(ids.begin() + 1, ids.end());
    next.push_back(-1);
  }
  SamplingParams sampling;
  sampling.temperature = 0.0f;
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  step.sample = true;
  step.sampling = &sampling;
  step.next_tokens = next;
  std::vector<SequenceResult> results;
  const absl::Status status = engine.Step({&step, 1}, nullptr, &results);
  EXPECT_TRUE(status.ok()) << status;
  RingOutcome outcome;
  if (!status.ok()) return outcome;
  outcome.token = results[0].sampled.token;
  for (const SampledToken& token : results[0].prompt_logprobs) {
    if (token.token >= 0) outcome.logprobs.push_back(token.logprob);
  }
  const auto block_tokens = static_cast<size_t>(engine.Spec().kv.block_tokens);
  for (size_t b = 0; b * block_tokens < ids.size(); ++b) {
    outcome.places.push_back({0, static_cast<int32_t>(b)});
  }
  return outcome;
}

}  // namespace skein::engine
