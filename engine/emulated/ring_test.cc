// Ring steps of the emulated device: every rank a thread with an engine of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "engine/comm/local/local_fabric.h"
#include "engine/emulated/emulated_engine.h"

namespace skein::engine {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr KvSpec kSpec = {
    {.num_layers = 2, .kv_heads = 2, .head_dim = 8, .block_tokens = 4, .dtype = DType::kBF16}, 128};

const SamplingParams kSampling = {.repetition_penalty = 1.1f, .frequency_penalty = 0.5f, .seed = 4};

EmulatedOptions Options() { return {.kv = kSpec, .vocab_size = 1 << 30, .max_positions = 4096}; }

// One instance: its engine, and which of its blocks holds which block of the prompt.
struct Instance {
  explicit Instance(LocalHub* hub) : fabric(hub->MakeFabric()) {
    engine = *EmulatedEngine::Create(Options());
    for (int32_t block = 0; block < kSpec.num_blocks; ++block) free.push_back(block);
  }
  int32_t Take(int64_t global) {
    blocks[global] = free.back();
    free.pop_back();
    return blocks[global];
  }
  std::byte* Block(int layer, int64_t global) {
    return static_cast<std::byte*>(engine->KvRegions()[static_cast<size_t>(layer)].base) +
           blocks.at(global) * kSpec.BlockBytes();
  }

  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<EmulatedEngine> engine;
  std::vector<int32_t> free;
  std::map<int64_t, int32_t> blocks;  // by global index: computed here or received
};

// What one rank gives to Step.
struct Part {
  RingStep step;
  std::vector<int32_t> tokens;
  std::vector<int32_t> block_table;
  bool sample = false;
  std::unique_ptr<Communicator> comm, moves, tensor;
  absl::Status status;
  std::vector<SequenceResult> results;
};

class Plan {
 public:
  Plan(int instances, uint64_t seed, int64_t tokens = 0) : random_(seed) {
    for (int i = 0; i < instances; ++i) instances_.push_back(std::make_unique<Instance>(&hub_));
    prompt_.resize(tokens > 0 ? static_cast<size_t>(tokens) : 1 + random_() % 150);
    for (int32_t& token : prompt_) token = static_cast<int32_t>(random_() % 1000);
  }

  // Pieces of random lengths on growing sets of instances, blocks dealt at random, in tensor groups
  // of any size.
  void RunAll(const std::function<void(int piece)>& before = nullptr) {
    int members = 1 + static_cast<int>(random_() % instances_.size());
    for (int piece = 0; done_ < blocks(); ++piece) {
      if (before) before(piece);
      tp_ = 1;
      while (members % (2 * tp_) == 0 && random_() % 2 == 0) tp_ *= 2;
      Run(members, done_ + 1 + static_cast<int64_t>(random_() % 12));
      members += static_cast<int>(random_() % (instances_.size() - members + 1));
    }
  }

  // The piece up to block `end` on the first `members` instances.
  std::vector<absl::Status> Run(int members, int64_t end, seconds limit = seconds(60)) {
    end = std::min(end, blocks());
    std::vector<Part> parts = PartsOf(members, end, limit);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < members; ++rank) {
      threads.emplace_back([this, &parts, rank] { RunRank(rank, &parts[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<absl::Status> statuses;
    for (Part& part : parts) {
      statuses.push_back(part.status);
      if (part.sample && part.status.ok()) first_token_ = part.results[0].sampled.token;
    }
    done_ = end;
    return statuses;
  }

  std::vector<Part> PartsOf(int members, int64_t end, seconds limit) {
    std::vector<Part> parts(static_cast<size_t>(members));
    std::vector<RankShare> shares(parts.size());
    DealHistory(members, &shares, &parts);
    for (int64_t global = done_; global < end; ++global) {
      const size_t rank = random_() % parts.size();
      computed_[global] = static_cast<int>(rank);
      const int64_t first = global * kSpec.block_tokens;
      const int64_t last = std::min<int64_t>(first + kSpec.block_tokens, TokensOfPrompt());
      shares[rank].spans.push_back({first, last - first});
      parts[rank].block_table.push_back(instances_[rank]->Take(global));
      parts[rank].tokens.insert(parts[rank].tokens.end(), prompt_.begin() + first,
                                prompt_.begin() + last);
      parts[rank].sample = last == TokensOfPrompt();
    }
    for (Part& part : parts) {
      part.step.shares = shares;
      part.step.deadline = steady_clock::now() + limit;
    }
    MakeGroups(&parts);
    return parts;
  }

  // The prompt's blocks from those who computed them, in a decode instance's; then the answer.
  std::vector<int32_t> Answer(int64_t count) {
    Instance decode(&hub_);
    std::vector<int32_t> table;
    for (int64_t global = 0; global < blocks(); ++global) {
      table.push_back(decode.Take(global));
      for (int layer = 0; layer < kSpec.num_layers; ++layer) {
        std::memcpy(decode.Block(layer, global),
                    instances_[static_cast<size_t>(computed_.at(global))]->Block(layer, global),
                    static_cast<size_t>(kSpec.BlockBytes()));
      }
    }
    for (int i = 0; i < 8; ++i) table.push_back(decode.Take(blocks() + i));
    std::vector<int32_t> output = {first_token_};
    while (static_cast<int64_t>(output.size()) < count) {
      SequenceStep step;
      step.tokens = {&output.back(), 1};
      step.position = TokensOfPrompt() + static_cast<int64_t>(output.size()) - 1;
      step.block_table = table;
      step.sample = true;
      step.sampling = &kSampling;
      step.token_index = output.size();
      step.prompt = prompt_;
      step.output = output;
      std::vector<SequenceResult> results;
      EXPECT_TRUE(decode.engine->Step({&step, 1}, nullptr, &results).ok());
      output.push_back(results[0].sampled.token);
    }
    return output;
  }
  std::vector<int32_t> Expected(int64_t count) const {
    return EmulatedContinuation(Options(), prompt_, count, kSampling);
  }

  void RunRank(int rank, Part* part) {
    SequenceStep sequence;
    sequence.ring = &part->step;
    sequence.tokens = part->tokens;
    sequence.block_table = part->block_table;
    sequence.prompt = prompt_;
    sequence.sample = part->sample;
    sequence.sampling = &kSampling;
    part->status = instances_[static_cast<size_t>(rank)]->engine->Step({&sequence, 1}, nullptr,
                                                                       &part->results);
  }

  void SetTp(int tp) { tp_ = tp; }
  int64_t TokensOfPrompt() const { return static_cast<int64_t>(prompt_.size()); }
  int64_t blocks() const {
    return (TokensOfPrompt() + kSpec.block_tokens - 1) / kSpec.block_tokens;
  }
  Instance& instance(int i) { return *instances_[static_cast<size_t>(i)]; }
  int ComputedBy(int64_t global) const { return computed_.at(global); }
  int AttendedBy(int64_t global) const { return attended_.at(global); }

 private:
  // Each earlier block goes to a random member: from who attended from it, if that is another.
  void DealHistory(int members, std::vector<RankShare>* shares, std::vector<Part>* parts) {
    bool moves = false;
    for (Part& part : *parts) {
      part.step.send.resize(static_cast<size_t>(members));
      part.step.receive.resize(static_cast<size_t>(members));
    }
    for (int64_t global = 0; global < done_; ++global) {
      const auto from =
          static_cast<size_t>(attended_.contains(global) ? attended_[global] : computed_[global]);
      size_t to = random_() % 2 == 0 ? from : random_() % parts->size();
      if (!instances_[to]->blocks.contains(global)) {
        moves = true;
        (*parts)[from].step.send[to].push_back({instances_[from]->blocks.at(global)});
        (*parts)[to].step.receive[from].push_back({instances_[to]->Take(global)});
      }
      attended_[global] = static_cast<int>(to);
      (*shares)[to].history_tokens += kSpec.block_tokens;
      (*parts)[to].step.history_blocks.push_back({instances_[to]->blocks.at(global)});
    }
    moves_ = moves;
    int64_t most = 0;
    for (const Part& part : *parts) {
      for (const auto& blocks : part.step.send) {
        most = std::max(most, static_cast<int64_t>(blocks.size()));
      }
    }
    for (Part& part : *parts) part.step.moved_blocks_max = most;
    if (moves) return;
    for (Part& part : *parts) part.step.send = part.step.receive = {};
  }

  void MakeGroups(std::vector<Part>* parts) {
    if (parts->size() == 1) return;
    std::vector<std::string> addresses;
    for (size_t i = 0; i < parts->size(); ++i) {
      addresses.push_back(instances_[i]->fabric->Address());
    }
    const auto tp = static_cast<size_t>(tp_);
    groups_ += 2 + parts->size();
    for (size_t rank = 0; rank < parts->size(); ++rank) {
      Part& part = (*parts)[rank];
      Fabric& fabric = *instances_[rank]->fabric;
      part.comm = *fabric.MakeGroup({1, groups_}, addresses, static_cast<int>(rank));
      part.step.comm = part.comm.get();
      if (tp_ > 1) {
        const size_t group = rank / tp;
        const std::span neighbours = std::span(addresses).subspan(group * tp, tp);
        part.tensor =
            *fabric.MakeGroup({1, groups_ + 2 + group}, neighbours, static_cast<int>(rank % tp));
        part.step.tensor = part.tensor.get();
        part.step.tp = tp_;
      }
      if (!moves_) continue;
      part.moves = *fabric.MakeGroup({1, groups_ + 1}, addresses, static_cast<int>(rank));
      part.step.moves = part.moves.get();
    }
  }

  LocalHub hub_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<int32_t> prompt_;
  int64_t done_ = 0;
  std::map<int64_t, int> computed_, attended_;
  bool moves_ = false;
  int tp_ = 1;  // of the next pieces
  uint64_t groups_ = 1;
  int32_t first_token_ = -1;
};

void RunAll(Plan* plan, std::vector<Part>* parts) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < parts->size(); ++rank) {
    threads.emplace_back([=] { plan->RunRank(static_cast<int>(rank), &(*parts)[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RingStep, RandomPlansGiveTheContinuation) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan(1 + static_cast<int>(seed % 6), seed);
    plan.RunAll();
    EXPECT_EQ(plan.Answer(3), plan.Expected(3));
  }
}

TEST(RingStep, AWrongBlockOfTheHistoryPoisonsWhatAllRanksWrite) {
  for (int64_t byte = 0; byte < kSpec.BlockBytes(); byte += 37) {
    Plan plan(3, 5, 101);
    for (const absl::Status& status : plan.Run(3, 8)) ASSERT_TRUE(status.ok()) << status;
    const int64_t wrong = byte % 8;
    plan.instance(plan.ComputedBy(wrong)).Block(1, wrong)[byte] ^= std::byte{1};
    for (const absl::Status& status : plan.Run(3, plan.blocks())) ASSERT_TRUE(status.ok());
    plan.instance(plan.ComputedBy(wrong)).Block(1, wrong)[byte] ^= std::byte{1};
    const std::vector<int32_t> answer = plan.Answer(2), expected = plan.Expected(2);
    EXPECT_NE(answer[0], expected[0]);  // sampled by one rank, from what it believes
    EXPECT_NE(answer[1], expected[1]);  // sampled from the blocks of all of them
  }
}

TEST(RingStep, AHistoryThatLacksABlockOrHasOneTwicePoisons) {
  Plan plan(2, 3, 102);
  for (const absl::Status& status : plan.Run(2, 6)) ASSERT_TRUE(status.ok()) << status;
  std::vector<Part> parts = plan.PartsOf(2, plan.blocks(), seconds(60));
  // Rank r attends from a copy of its first block instead of its second one.
  Part& part = parts[parts[0].step.history_blocks.size() >= 2 ? 0 : 1];
  ASSERT_GE(part.step.history_blocks.size(), 2u);
  part.step.history_blocks[1] = part.step.history_blocks[0];
  std::thread other([&] { plan.RunRank(1, &parts[1]); });
  plan.RunRank(0, &parts[0]);
  other.join();
  const Part& sampler = parts[parts[0].sample ? 0 : 1];
  ASSERT_TRUE(sampler.status.ok()) << sampler.status;
  EXPECT_NE(sampler.results[0].sampled.token, plan.Expected(1)[0]);
}

TEST(RingStep, ARankThatNeverComesEndsTheStepAtItsDeadlineAndTheEngineGoesOn) {
  Plan plan(2, 1, 50);
  std::vector<Part> parts = plan.PartsOf(2, plan.blocks(), seconds(0));
  plan.RunRank(0, &parts[0]);
  EXPECT_TRUE(absl::IsDeadlineExceeded(parts[0].status) || absl::IsUnavailable(parts[0].status))
      << parts[0].status;
  Plan again(1, 1);
  again.RunAll();
  EXPECT_EQ(again.Answer(2), again.Expected(2));
}

TEST(RingStep, AnAbortAndADeadRankEndIt) {
  for (const auto& [tp, dies] : {std::pair(1, false), {1, true}, {2, true}, {4, true}}) {
    Plan plan(4, 1, 50);
    plan.SetTp(tp);
    std::vector<Part> parts = plan.PartsOf(4, plan.blocks(), seconds(600));
    std::vector<std::thread> threads;
    for (const int rank : {0, 1, 3}) {
      threads.emplace_back([&, rank] { plan.RunRank(rank, &parts[static_cast<size_t>(rank)]); });
    }
    if (dies) {
      parts[2].comm.reset();
      parts[2].tensor.reset();
    } else {
      parts[2].comm->Abort(absl::CancelledError("not wanted any more"));
    }
    for (std::thread& thread : threads) thread.join();
    for (const size_t rank : {0, 1, 3}) {
      EXPECT_TRUE(absl::IsUnavailable(parts[rank].status)) << parts[rank].status;
    }
  }
}

TEST(RingStep, BadInputIsRefusedByNameAndTheOthersHearOfIt) {
  Plan plan(2, 1, 50);
  std::vector<Part> parts = plan.PartsOf(2, plan.blocks(), seconds(600));
  const size_t refuser = parts[0].tokens.empty() ? 1 : 0;
  parts[refuser].tokens[0] += 1;
  RunAll(&plan, &parts);
  ASSERT_TRUE(parts[refuser].status.ok()) << parts[refuser].status;
  const absl::Status& refusal = parts[refuser].results[0].status;
  EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(refusal.message()).find("tokens[0]"), std::string::npos);
  const absl::Status& other = parts[1 - refuser].status;
  EXPECT_TRUE(absl::IsUnavailable(other)) << other;
  EXPECT_NE(std::string(other.message()).find("refused its part"), std::string::npos) << other;
}

TEST(RingStep, RanksThatWereGivenOtherStepsFail) {
  Plan plan(2, 1, 50);
  std::vector<Part> parts = plan.PartsOf(2, plan.blocks(), seconds(600));
  parts[1].step.shares[0].wants_logits = !parts[1].step.shares[0].wants_logits;
  parts[1].step.shares[1].wants_logits = true;
  RunAll(&plan, &parts);
  for (const Part& part : parts) {
    EXPECT_TRUE(absl::IsInvalidArgument(part.status) || absl::IsUnavailable(part.status))
        << part.status;
  }
}

TEST(RingStep, ATensorGroupThatIsMissingIsRefusedByNameAndTheOthersHearOfIt) {
  Plan plan(4, 1, 50);
  plan.SetTp(2);
  std::vector<Part> parts = plan.PartsOf(4, plan.blocks(), seconds(600));
  parts[1].step.tensor = nullptr;
  RunAll(&plan, &parts);
  ASSERT_TRUE(parts[1].status.ok()) << parts[1].status;
  const std::string refusal(parts[1].results[0].status.message());
  EXPECT_NE(refusal.find("ring.tensor: missing, but tp = 2"), std::string::npos) << refusal;
  for (const size_t other : {0, 2, 3}) {
    EXPECT_TRUE(absl::IsUnavailable(parts[other].status)) << parts[other].status;
  }
}

TEST(RingStep, RanksThatWereGivenAnotherTpOrTensorGroupFail) {
  for (const bool crossed : {false, true}) {
    Plan plan(4, 1, 50);
    plan.SetTp(2);
    std::vector<Part> parts = plan.PartsOf(4, plan.blocks(), seconds(600));
    if (crossed) {
      std::swap(parts[1].step.tensor, parts[3].step.tensor);
    } else {
      parts[1].step.tp = 1;
      parts[1].step.tensor = nullptr;
    }
    RunAll(&plan, &parts);
    for (const Part& part : parts) {
      EXPECT_TRUE(absl::IsInvalidArgument(part.status) || absl::IsUnavailable(part.status))
          << part.status;
    }
  }
}

}  // namespace
}  // namespace skein::engine
