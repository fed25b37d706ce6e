// Batch invariance through the whole engine, on deploy/models/fledgling (bf16): a sequence's logits
// are the same bits alone and in any company, and on any number of threads.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr char kModelDir[] = "deploy/models/fledgling";

std::unique_ptr<Engine> MakeFledgling(int threads) {
  ModelEngineOptions options;
  options.num_blocks = 1500;
  options.max_batch_tokens = 8192;
  auto ops = MakeCpuOps({.threads = threads, .isa = CpuIsa::kAuto});
  EXPECT_TRUE(ops.ok()) << ops.status();
  auto engine = MakeModelEngine(kModelDir, *std::move(ops), MakeCpuDevice(), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// A text that is run in slices of given sizes, one a step, from a step on; after the last slice it
// starts again from its beginning.
struct Text {
  std::vector<int32_t> ids;
  std::vector<size_t> slices;  // sum to ids.size()
  std::vector<int32_t> blocks = {};
  size_t slice = 0;
  size_t done = 0;

  SequenceStep Next() {
    if (slice == slices.size()) slice = done = 0;
    SequenceStep step;
    step.tokens = std::span(ids).subspan(done, slices[slice]);
    step.position = static_cast<int64_t>(done);
    step.block_table = blocks;
    step.want_logits = true;
    done += slices[slice++];
    return step;
  }
};

std::vector<int32_t> RandomIds(size_t count, std::mt19937* random) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>((*random)() % 2000);
  return ids;
}

// A prompt, in one slice or in some, then tokens one by one.
Text MakeText(std::vector<size_t> prompt_slices, size_t decoded, std::mt19937* random) {
  Text text{{}, std::move(prompt_slices)};
  text.slices.resize(text.slices.size() + decoded, 1);
  text.ids = RandomIds(std::accumulate(text.slices.begin(), text.slices.end(), size_t{0}), random);
  return text;
}

Text RandomCompanion(std::mt19937* random) {
  // One prompt in four is long enough to be a product of its own.
  const size_t prompt = (*random)() % 4 == 0 ? 65 + (*random)() % 60 : 1 + (*random)() % 30;
  return MakeText({prompt}, (*random)() % 20, random);
}

// Logits after each slice of `text`, beside `others` companions, at changing places in the batch.
std::vector<std::vector<float>> LogitsAmong(int others, Text text, int threads, uint32_t seed) {
  const std::unique_ptr<Engine> engine = MakeFledgling(threads);
  std::mt19937 random(seed);
  std::vector<Text> all = {std::move(text)};
  for (int i = 0; i < others; ++i) all.push_back(RandomCompanion(&random));
  std::vector<int32_t> blocks(static_cast<size_t>(engine->Spec().kv.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (Text& one : all) {
    const auto count = static_cast<std::ptrdiff_t>(one.ids.size() / 16 + 1);
    one.blocks.assign(blocks.end() - count, blocks.end());
    blocks.resize(blocks.size() - one.blocks.size());
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<std::vector<float>> logits;
  while (all[0].slice < all[0].slices.size()) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<SequenceStep> steps;
    for (const size_t i : order) steps.push_back(all[i].Next());
    std::vector<SequenceResult> results;
    const absl::Status status = engine->Step(steps, nullptr, &results);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) break;
    const auto place = std::find(order.begin(), order.end(), size_t{0}) - order.begin();
    logits.push_back(results[static_cast<size_t>(place)].logits);
  }
  return logits;
}

void ExpectSameBits(const std::vector<std::vector<float>>& actual,
                    const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].size(), expected[i].size());
    ASSERT_EQ(std::memcmp(actual[i].data(), expected[i].data(), actual[i].size() * sizeof(float)),
              0)
        << "after slice " << i;
  }
}

TEST(BatchInvariance, TheSameBatchTwice) {
  std::mt19937 random(1);
  const Text text = MakeText({9}, 12, &random);
  ExpectSameBits(LogitsAmong(7, text, 2, 5), LogitsAmong(7, text, 2, 5));
}

TEST(BatchInvariance, AloneAndAmongOthers) {
  std::mt19937 random(2);
  const Text text = MakeText({9}, 40, &random);
  const auto alone = LogitsAmong(0, text, 1, 1);
  for (const int others : {1, 2, 7, 30, 63}) {
    SCOPED_TRACE(others);
    ExpectSameBits(LogitsAmong(others, text, 1, static_cast<uint32_t>(others)), alone);
  }
}

TEST(BatchInvariance, AnyNumberOfThreads) {
  std::mt19937 random(3);
  // Far enough that decode attention is split.
  const Text text = MakeText(std::vector<size_t>(18, 60), 3, &random);
  const auto alone = LogitsAmong(0, text, 1, 1);
  ExpectSameBits(LogitsAmong(2, text, 2, 9), alone);
}

TEST(BatchInvariance, LongSlicesAmongOthers) {
  std::mt19937 random(4);
  const Text text = MakeText({65, 300, 64, 129}, 4, &random);
  ExpectSameBits(LogitsAmong(12, text, 2, 3), LogitsAmong(0, text, 2, 1));
}

}  // namespace
}  // namespace skein::engine
