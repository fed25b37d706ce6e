// Requests under load are, token by token and logprob by logprob, what each is alone: random
// batches, slices, rings of 1 to 8 ranks with history dealt anew whose KV another instance takes
// over, groups of 2, 4 and 8 in changing modes, preemption and recompute. The same load without
// reproducible operations tells how often a token differs then.
//
// A share of the requests runs by default; REQUESTS=10000 in the environment runs as many with
// weights of each type.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kVocab = 203;
constexpr size_t kLiveMax = 12;   // requests of an instance at a time
constexpr int64_t kBlocks = 640;  // enough if all of them are the longest
constexpr int kRingRanks = 8;
constexpr size_t kPromptMax = 220;
// Of a long prompt; a tenth are long. Their last rows attend to two segments
// (engine/ops/cpu/attention_units.h).
constexpr size_t kLongMin = 513;
constexpr size_t kLongMax = 700;
constexpr size_t kOutputMax = 12;

size_t RequestCount() {
  const char* wanted = std::getenv("REQUESTS");
  return wanted == nullptr ? 120 : static_cast<size_t>(std::atoll(wanted));
}

std::string ModelDir(DType dtype) {
  const std::string dir = ::testing::TempDir() + "/reproducible_load_" + std::string(NameOf(dtype));
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 72},
                                 {"intermediate_size", 172},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 12},
                                 {"vocab_size", kVocab},
                                 {"max_position_embeddings", 1024}};
  const absl::Status written =
      tools::WriteRandomCheckpoint(dir, config, {.dtype = dtype, .seed = 9, .shards = 1});
  EXPECT_TRUE(written.ok()) << written;
  return dir;
}

ModelEngineOptions Options() {
  ModelEngineOptions options;
  options.num_blocks = kBlocks;
  options.max_batch_tokens = kLiveMax * (kLongMax + kOutputMax);
  return options;
}

std::unique_ptr<Ops> MakeOps(bool reproducible, int threads = 1) {
  return MakeCpuOps({.threads = threads, .reproducible = reproducible}).value();
}

std::unique_ptr<Engine> MakeOne(const std::string& dir, bool reproducible, int threads = 1) {
  return MakeModelEngine(dir, MakeOps(reproducible, threads), MakeCpuDevice(), Options()).value();
}

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  size_t output = 1;
};

using Tokens = std::vector<SampledToken>;

std::vector<Request> RandomRequests(size_t count, std::mt19937* random) {
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    const bool long_one = (*random)() % 10 == 0;
    const size_t most = (*random)() % 4 == 0 ? kPromptMax : 40;
    request.prompt.resize(long_one ? kLongMin + (*random)() % (kLongMax + 1 - kLongMin)
                                   : 1 + (*random)() % most);
    for (int32_t& id : request.prompt) id = static_cast<int32_t>((*random)() % kVocab);
    request.output = 1 + (*random)() % kOutputMax;
    SamplingParams& sampling = request.sampling;
    sampling.temperature = (*random)() % 2 == 0 ? 0.0f : 0.9f;
    if ((*random)() % 3 == 0) sampling.top_k = 20;
    if ((*random)() % 3 == 0) sampling.top_p = 0.8f;
    if ((*random)() % 4 == 0) sampling.repetition_penalty = 1.2f;
    sampling.seed = (*random)();
    sampling.top_logprobs = static_cast<int>((*random)() % 4);
  }
  return requests;
}

// A request on its way: what it has run and where.
struct Live {
  size_t request = 0;
  std::vector<int32_t> ids;  // prompt and output
  size_t done = 0;           // of ids, in KV
  std::vector<int32_t> blocks;
  Tokens tokens;
};

// An engine's batch: sequences that run in steps of random company and slices, and lose their KV
// at random.
class Batch {
 public:
  Batch(Engine* engine, const std::vector<Request>& requests, uint32_t seed)
      : engine_(*engine), requests_(requests), random_(seed) {
    free_.resize(static_cast<size_t>(engine_.Spec().kv.num_blocks));
    std::iota(free_.begin(), free_.end(), 0);
  }

  Engine& engine() { return engine_; }
  size_t size() const { return live_.size(); }
  // Blocks for `tokens`, from anywhere in the pool.
  std::vector<int32_t> TakeBlocks(size_t tokens) {
    const auto per_block = static_cast<size_t>(engine_.Spec().kv.block_tokens);
    std::shuffle(free_.begin(), free_.end(), random_);
    std::vector<int32_t> blocks;
    for (size_t covered = 0; covered < tokens; covered += per_block) {
      EXPECT_FALSE(free_.empty());
      blocks.push_back(free_.back());
      free_.pop_back();
    }
    return blocks;
  }
  void Add(Live live) { live_.push_back(std::move(live)); }
  // One step; what is complete goes to `answers`.
  void Step(std::vector<Tokens>* answers) {
    if (random_() % 10 == 0) Preempt(&live_[random_() % live_.size()]);
    std::shuffle(live_.begin(), live_.end(), random_);
    const size_t count = 1 + random_() % live_.size();
    std::vector<SequenceStep> steps;
    for (size_t i = 0; i < count; ++i) steps.push_back(StepOf(live_[i]));
    std::vector<SequenceResult> results;
    const absl::Status status = engine_.Step(steps, nullptr, &results);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(results[i].status.ok()) << results[i].status;
      live_[i].done += steps[i].tokens.size();
      if (!steps[i].sample) continue;
      live_[i].tokens.push_back(results[i].sampled);
      live_[i].ids.push_back(results[i].sampled.token);
    }
    for (size_t i = count; i-- > 0;) {
      if (live_[i].tokens.size() == requests_[live_[i].request].output) Finish(i, answers);
    }
  }
  int preemptions() const { return preemptions_; }

 private:
  SequenceStep StepOf(const Live& live) {
    const Request& request = requests_[live.request];
    const size_t left = live.ids.size() - live.done;
    const size_t slice = random_() % 2 == 0 ? left : 1 + random_() % left;
    SequenceStep step;
    step.tokens = std::span(live.ids).subspan(live.done, slice);
    step.position = static_cast<int64_t>(live.done);
    step.block_table = live.blocks;
    step.sample = slice == left;
    step.sampling = &request.sampling;
    step.token_index = live.tokens.size();
    step.prompt = request.prompt;
    step.output = std::span(live.ids).subspan(request.prompt.size());
    return step;
  }
  void Preempt(Live* live) {
    const size_t blocks = live->blocks.size();
    free_.insert(free_.end(), live->blocks.begin(), live->blocks.end());
    live->blocks = TakeBlocks(blocks * static_cast<size_t>(engine_.Spec().kv.block_tokens));
    preemptions_ += live->done > 0;
    live->done = 0;
  }
  void Finish(size_t index, std::vector<Tokens>* answers) {
    Live& live = live_[index];
    free_.insert(free_.end(), live.blocks.begin(), live.blocks.end());
    (*answers)[live.request] = std::move(live.tokens);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  Engine& engine_;
  const std::vector<Request>& requests_;
  std::mt19937 random_;
  std::vector<int32_t> free_;
  std::vector<Live> live_;
  int preemptions_ = 0;
};

Live NewLive(const std::vector<Request>& requests, size_t request, Batch* batch) {
  Live live;
  live.request = request;
  live.ids = requests[request].prompt;
  live.blocks = batch->TakeBlocks(live.ids.size() + requests[request].output);
  return live;
}

std::vector<Tokens> EachAlone(const std::string& dir, bool reproducible,
                              const std::vector<Request>& requests) {
  const auto engine = MakeOne(dir, reproducible);
  std::vector<int32_t> table(kBlocks);
  std::iota(table.begin(), table.end(), 0);
  std::vector<Tokens> answers;
  for (const Request& request : requests) {
    std::vector<int32_t> ids = request.prompt;
    Tokens tokens;
    for (size_t done = 0; tokens.size() < request.output;) {
      SequenceStep step;
      step.tokens = std::span(ids).subspan(done);
      step.position = static_cast<int64_t>(done);
      step.block_table = table;
      step.sample = true;
      step.sampling = &request.sampling;
      step.token_index = tokens.size();
      step.prompt = request.prompt;
      step.output = std::span(ids).subspan(request.prompt.size());
      std::vector<SequenceResult> results;
      const absl::Status status = engine->Step({&step, 1}, nullptr, &results);
      EXPECT_TRUE(status.ok() && results[0].status.ok()) << status;
      if (!status.ok()) return answers;
      done = ids.size();
      tokens.push_back(results[0].sampled);
      ids.push_back(results[0].sampled.token);
    }
    answers.push_back(std::move(tokens));
  }
  return answers;
}

// Eight instances that compute prompts together, plan by plan.
class Prefill {
 public:
  Prefill(const std::string& dir, bool reproducible) {
    for (int i = 0; i < kRingRanks; ++i) {
      owned_.push_back(MakeOne(dir, reproducible));
      engines_.push_back(owned_.back().get());
    }
    ranks_ = std::make_unique<RingRanks>(engines_, [&] { return hub_.MakeFabric(); });
  }
  // Computes the first `tokens` of `live` by a random plan, and hands their KV over.
  void Run(Live* live, size_t tokens, Engine& to, std::mt19937* random) {
    RingPrompt prompt;
    prompt.ids.assign(live->ids.begin(), live->ids.begin() + static_cast<std::ptrdiff_t>(tokens));
    prompt.seed = static_cast<uint32_t>((*random)());
    prompt.even = (*random)() % 2 == 0;
    prompt.score = false;
    std::vector<int> order(kRingRanks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), *random);
    const int64_t per_block = to.Spec().kv.block_tokens;
    auto blocks = (static_cast<int64_t>(tokens) + per_block - 1) / per_block;
    size_t members = 1 + (*random)() % kRingRanks;
    while (blocks > 0) {
      const int64_t size = 1 + static_cast<int64_t>((*random)() % static_cast<uint64_t>(blocks));
      blocks -= size;
      ++sizes_[members];
      prompt.chunks.push_back({size, {order.begin(), order.begin() + members}});
      members = std::min<size_t>(kRingRanks, members + (*random)() % 4);
    }
    const RingOutcome outcome = ranks_->Run(prompt);
    const auto bytes = static_cast<size_t>(to.Spec().kv.BlockBytes());
    for (size_t b = 0; b < outcome.places.size(); ++b) {
      const BlockPlace& place = outcome.places[b];
      for (size_t layer = 0; layer < to.KvRegions().size(); ++layer) {
        const auto at = [&](const Engine& engine, int32_t block) {
          return static_cast<std::byte*>(engine.KvRegions()[layer].base) +
                 static_cast<size_t>(block) * bytes;
        };
        std::memcpy(at(to, live->blocks[b]),
                    at(*engines_[static_cast<size_t>(place.engine)], place.block), bytes);
      }
    }
    live->done = tokens;
  }
  const std::map<size_t, int>& sizes() const { return sizes_; }

 private:
  LocalHub hub_;
  std::vector<std::unique_ptr<Engine>> owned_;
  std::vector<Engine*> engines_;
  std::unique_ptr<RingRanks> ranks_;
  std::map<size_t, int> sizes_;  // chunks by members
};

struct Loaded {
  std::vector<Tokens> answers;
  std::map<size_t, int> ring_sizes;    // chunks by members
  std::vector<int> requests_of_batch;  // a lone instance's, those of groups of 2, 4 and 8
  std::vector<int> long_of_batch;      // of these, with long prompts
  int preemptions = 0;
};

std::unique_ptr<GroupOfEngines> MakeGroup(const std::string& dir, bool reproducible, int ranks,
                                          LocalHub* hub) {
  TestingGroupOptions options;
  options.ranks = ranks;
  options.modes = ModesOf(ranks);
  options.engine = Options();
  options.make_rank = [=](int) {
    return TestingRankParts{MakeOps(reproducible), MakeCpuDevice(), hub->MakeFabric()};
  };
  return GroupOfEngines::Make(dir, options);
}

// All requests on a lone instance that takes prompts over from a prefill pool, and on groups.
Loaded UnderLoad(const std::string& dir, bool reproducible, const std::vector<Request>& requests) {
  Loaded loaded;
  loaded.answers.resize(requests.size());
  Prefill prefill(dir, reproducible);
  const auto lone = MakeOne(dir, reproducible, 2);
  LocalHub hub;
  std::vector<std::unique_ptr<GroupOfEngines>> groups;
  std::deque<Batch> batches;
  batches.emplace_back(lone.get(), requests, 1);
  for (const int ranks : {2, 4, 8}) {
    groups.push_back(MakeGroup(dir, reproducible, ranks, &hub));
    batches.emplace_back(groups.back().get(), requests, static_cast<uint32_t>(ranks));
  }
  loaded.requests_of_batch.resize(batches.size());
  loaded.long_of_batch.resize(batches.size());
  std::mt19937 random(23);
  size_t next = 0;
  const auto busy = [&] {
    return std::any_of(batches.begin(), batches.end(), [](const Batch& b) { return b.size() > 0; });
  };
  while ((next < requests.size() || busy()) && !::testing::Test::HasFailure()) {
    const size_t choice = random() % batches.size();
    Batch& batch = batches[choice];
    if (next < requests.size() && batch.size() < 1 + random() % kLiveMax) {
      Live live = NewLive(requests, next++, &batch);
      const size_t most = live.ids.size() - 1;
      if (choice == 0 && most > 0) prefill.Run(&live, 1 + random() % most, *lone, &random);
      ++loaded.requests_of_batch[choice];
      loaded.long_of_batch[choice] += most + 1 >= kLongMin;
      batch.Add(std::move(live));
    } else if (batch.size() > 0) {
      batch.Step(&loaded.answers);
    }
  }
  loaded.ring_sizes = prefill.sizes();
  for (const Batch& batch : batches) loaded.preemptions += batch.preemptions();
  return loaded;
}

auto KeyOf(const SampledToken& token) {
  std::vector<std::pair<int32_t, float>> top;
  for (const TokenLogprob& one : token.top) top.emplace_back(one.token, one.logprob);
  return std::make_tuple(token.token, token.logprob, top);
}

class ReproducibleLoad : public testing::TestWithParam<DType> {
 protected:
  ReproducibleLoad() : requests_(RandomRequests(RequestCount(), &random_)) {}
  std::mt19937 random_{29};
  const std::string dir_ = ModelDir(GetParam());
  const std::vector<Request> requests_;
};

TEST_P(ReproducibleLoad, EachIsAsAlone) {
  const std::vector<Tokens> alone = EachAlone(dir_, true, requests_);
  const Loaded loaded = UnderLoad(dir_, true, requests_);
  size_t tokens = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    ASSERT_EQ(loaded.answers[i].size(), requests_[i].output);
    for (size_t t = 0; t < requests_[i].output; ++t, ++tokens) {
      ASSERT_EQ(KeyOf(loaded.answers[i][t]), KeyOf(alone[i][t])) << "token " << t;
    }
  }
  std::printf("%zu requests, %d of them long, %zu tokens, %d preemptions, chunks by members:",
              requests_.size(),
              std::accumulate(loaded.long_of_batch.begin(), loaded.long_of_batch.end(), 0), tokens,
              loaded.preemptions);
  for (const auto& [members, count] : loaded.ring_sizes) std::printf(" %zu: %d", members, count);
  std::printf("\n");
  EXPECT_EQ(loaded.ring_sizes.size(), static_cast<size_t>(kRingRanks));
  EXPECT_GT(loaded.preemptions, static_cast<int>(requests_.size()) / 20);
  for (const int count : loaded.requests_of_batch) {
    EXPECT_GT(count, static_cast<int>(requests_.size()) / 10);
  }
  for (const int count : loaded.long_of_batch) EXPECT_GT(count, 0);
}

// This load shows a loss of reproducibility. How many tokens differ then is printed.
TEST_P(ReproducibleLoad, WithoutReproducibleOperationsLogprobsDiffer) {
  const std::vector<Tokens> alone = EachAlone(dir_, false, requests_);
  const Loaded loaded = UnderLoad(dir_, false, requests_);
  size_t texts = 0, tokens = 0, logprobs = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    ASSERT_EQ(loaded.answers[i].size(), requests_[i].output);
    for (size_t t = 0; t < requests_[i].output; ++t) {
      ++tokens;  // of those that have the same tokens before them
      const SampledToken &a = loaded.answers[i][t], &b = alone[i][t];
      logprobs += KeyOf(a) != KeyOf(b);
      if (a.token == b.token) continue;
      ++texts;
      break;
    }
  }
  std::printf("without: %zu of %zu texts differ, one of %zu tokens; logprobs of %zu differ\n",
              texts, requests_.size(), texts == 0 ? tokens : tokens / texts, logprobs);
  EXPECT_GT(logprobs, 0u) << "this load would not show a loss of reproducibility";
}

INSTANTIATE_TEST_SUITE_P(, ReproducibleLoad, testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& dtype) { return std::string(NameOf(dtype.param)); });

}  // namespace
}  // namespace skein::engine
