#include "engine/model/testing/spanning_ranks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

}  // namespace

// All that one rank's Step points into.
struct SpanningRanks::RankStep {
  SpanningStep spanning;
  std::vector<int32_t> tokens, next_tokens, table;
  std::vector<int64_t> positions;
  std::vector<int32_t> blocks;  // of the prompt, as `table`
  int engine = 0;
  bool sample = false;
  SamplingParams sampling = Greedy();
  std::vector<SequenceResult> results;
  absl::Status status;
  int layers_done = 0;

  SequenceStep Sequence() const {
    SequenceStep step;
    step.tokens = tokens;
    step.block_table = table;
    step.spanning = &spanning;
    step.sample = sample;
    step.sampling = &sampling;
    step.next_tokens = next_tokens;
    return step;
  }
};

double SpanningOutcome::Nll() const {
  return -std::accumulate(logprobs.begin(), logprobs.end(), 0.0) /
         static_cast<double>(logprobs.size());
}

SpanningRanks::SpanningRanks(std::vector<Engine*> engines, const FabricFactory& make_fabric)
    : engines_(std::move(engines)), ranks_(make_fabric, static_cast<int>(engines_.size())) {}

void SpoilKv(Engine& engine) {
  for (const KvRegion& region : engine.KvRegions()) {
    std::memset(region.base, 0xff, static_cast<size_t>(region.bytes));
  }
}

int32_t SpanningRanks::LocalOf(int engine, int32_t block) {
  const auto [at, added] = local_[static_cast<size_t>(engine)].try_emplace(block, -1);
  if (added) {
    std::vector<int32_t>& free = free_[static_cast<size_t>(engine)];
    EXPECT_FALSE(free.empty());
    at->second = free.back();
    free.pop_back();
  }
  return at->second;
}

SpanningOutcome SpanningRanks::Run(const SpanningPrompt& prompt) {
  local_.assign(engines_.size(), {});
  free_.assign(engines_.size(), {});
  std::mt19937 random(prompt.seed);
  for (size_t e = 0; e < engines_.size(); ++e) {
    SpoilKv(*engines_[e]);
    free_[e].resize(static_cast<size_t>(engines_[e]->Spec().kv.num_blocks));
    std::iota(free_[e].begin(), free_[e].end(), 0);
    std::shuffle(free_[e].begin(), free_[e].end(), random);
  }
  SpanningOutcome outcome;
  outcome.logprobs.assign(prompt.ids.size() - 1, 0.0);
  PromptDealer dealer(static_cast<int64_t>(prompt.ids.size()), engines_[0]->Spec().kv.block_tokens,
                      prompt.seed + 1);
  for (const SpanningChunk& chunk : prompt.chunks) {
    const DealtPiece piece = prompt.even ? dealer.NextEven(chunk.members, chunk.blocks)
                                         : dealer.NextRandom(chunk.members, chunk.blocks);
    std::vector<RankStep> steps(piece.members.size());
    Prepare(piece, prompt, &steps);
    std::vector<std::unique_ptr<Communicator>> groups[2];
    for (auto& group : groups) group = ranks_.Group(piece.members);
    std::vector<std::thread> threads;
    for (size_t r = 0; r < steps.size(); ++r) {
      RankStep& step = steps[r];
      step.spanning.comm = steps.size() > 1 ? groups[0][r].get() : nullptr;
      step.spanning.moves = steps.size() > 1 ? groups[1][r].get() : nullptr;
      threads.emplace_back([&, this] {
        const SequenceStep sequence = step.Sequence();
        const auto layer_done = [&](int layer) {
          if (layer == step.layers_done) ++step.layers_done;
        };
        step.status = engines_[static_cast<size_t>(step.engine)]->Step({&sequence, 1}, layer_done,
                                                                       &step.results);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const RankStep& step : steps) {
      EXPECT_TRUE(step.status.ok()) << step.status;
      if (!step.status.ok()) return outcome;
    }
    Collect(prompt, steps, &outcome);
    CheckMoves(piece);
    for (const auto& from : piece.moves) {
      for (const auto& blocks : from) outcome.blocks_moved += static_cast<int64_t>(blocks.size());
    }
  }
  EXPECT_EQ(dealer.BlocksLeft(), 0);
  return outcome;
}

void SpanningRanks::Prepare(const DealtPiece& piece, const SpanningPrompt& prompt,
                            std::vector<RankStep>* steps) {
  const auto size = static_cast<int64_t>(prompt.ids.size());
  const int64_t block_tokens = engines_[0]->Spec().kv.block_tokens;
  const size_t ranks = steps->size();
  for (size_t r = 0; r < ranks; ++r) {
    RankStep& step = (*steps)[r];
    step.engine = piece.members[r];
    step.spanning.shares = piece.shares;
    step.spanning.deadline = Later();
    step.spanning.send.resize(ranks);
    step.spanning.receive.resize(ranks);
    for (size_t other = 0; other < ranks; ++other) {
      for (const int32_t block : piece.moves[r][other]) {
        step.spanning.send[other].push_back(LocalOf(step.engine, block));
      }
      for (const int32_t block : piece.moves[other][r]) {
        step.spanning.receive[other].push_back(LocalOf(step.engine, block));
      }
    }
    for (const int32_t block : piece.history[r]) {
      step.spanning.history_blocks.push_back(LocalOf(step.engine, block));
    }
    for (const TokenSpan& span : piece.shares[r].spans) {
      for (int64_t p = span.position; p < span.position + span.count; ++p) {
        step.positions.push_back(p);
        step.tokens.push_back(prompt.ids[static_cast<size_t>(p)]);
        if (prompt.score) {
          step.next_tokens.push_back(p + 1 < size ? prompt.ids[static_cast<size_t>(p + 1)] : -1);
        }
        if (p % block_tokens != 0) continue;
        step.blocks.push_back(static_cast<int32_t>(p / block_tokens));
        step.table.push_back(LocalOf(step.engine, step.blocks.back()));
      }
      step.sample = span.position + span.count == size;
    }
  }
}

void SpanningRanks::Collect(const SpanningPrompt& prompt, const std::vector<RankStep>& steps,
                            SpanningOutcome* outcome) {
  for (const RankStep& step : steps) {
    EXPECT_EQ(step.layers_done, engines_[0]->Spec().kv.num_layers);
    for (size_t i = 0; i < step.next_tokens.size(); ++i) {
      if (step.next_tokens[i] < 0) continue;
      outcome->logprobs[static_cast<size_t>(step.positions[i])] =
          step.results[0].prompt_logprobs[i].logprob;
    }
    if (step.sample) outcome->token = step.results[0].sampled.token;
    for (size_t b = 0; b < step.blocks.size(); ++b) {
      const auto block = static_cast<size_t>(step.blocks[b]);
      if (outcome->places.size() <= block) outcome->places.resize(block + 1);
      outcome->places[block] = {step.engine, step.table[b]};
    }
  }
}

void SpanningRanks::CheckMoves(const DealtPiece& piece) {
  const auto bytes = static_cast<size_t>(engines_[0]->Spec().kv.BlockBytes());
  const auto at = [&](size_t rank, int32_t block, size_t layer) {
    const int engine = piece.members[rank];
    return static_cast<const std::byte*>(
               engines_[static_cast<size_t>(engine)]->KvRegions()[layer].base) +
           static_cast<size_t>(LocalOf(engine, block)) * bytes;
  };
  const auto layers = static_cast<size_t>(engines_[0]->Spec().kv.num_layers);
  for (size_t from = 0; from < piece.members.size(); ++from) {
    for (size_t to = 0; to < piece.members.size(); ++to) {
      for (const int32_t block : piece.moves[from][to]) {
        for (size_t layer = 0; layer < layers; ++layer) {
          ASSERT_EQ(std::memcmp(at(from, block, layer), at(to, block, layer), bytes), 0)
              << "block " << block << " layer " << layer << " moved from rank " << from << " to "
              << to;
        }
      }
    }
  }
}

SpanningOutcome RunPlain(Engine& engine, const std::vector<int32_t>& ids, bool score) {
  SpoilKv(engine);
  std::vector<int32_t> table(static_cast<size_t>(engine.Spec().kv.num_blocks));
  std::iota(table.begin(), table.end(), 0);
  std::vector<int32_t> next;
  if (score) {
    next.assign(ids.begin() + 1, ids.end());
    next.push_back(-1);
  }
  const SamplingParams sampling = Greedy();
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  step.sample = true;
  step.sampling = &sampling;
  step.next_tokens = next;
  std::vector<SequenceResult> results;
  const absl::Status status = engine.Step({&step, 1}, nullptr, &results);
  EXPECT_TRUE(status.ok()) << status;
  SpanningOutcome outcome;
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
