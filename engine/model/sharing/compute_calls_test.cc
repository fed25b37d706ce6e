// What ranks that call owners may rely on, without an engine.
#include "engine/model/sharing/compute_calls.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/host/process_watch.h"
#include "engine/model/sharing/testing/watched_ops.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

// Rank 0's first product for others waits until all three ranks have called; the next ones are of
// all that is there.
TEST(ComputeCalls, CallsOfALayerThatAreThereAreOneProduct) {
  constexpr int kRanks = 3;
  constexpr int64_t kRows = 5;
  std::vector<FeedForwardWeights> shapes(1);
  std::vector<float> weights(3 * 4 * 8);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;
  shapes[0].gate.weight = {&weights[0], DType::kF32, 8, 4, 4};
  shapes[0].up.weight = {&weights[32], DType::kF32, 8, 4, 4};
  shapes[0].down.weight = {&weights[64], DType::kF32, 4, 8, 8};
  ModelConfig config;
  config.hidden_size = 4;
  config.intermediate_size = 8;
  const CallShape shape = {.ranks = kRanks, .rows_max = kRows, .hidden = 4};

  std::mutex mu;
  std::condition_variable changed;
  bool held = true, waits = false;
  std::vector<int64_t> products;
  WatchedOps ops(*MakeCpuOps({.threads = 1}), [&](int64_t rows) {
    std::unique_lock lock(mu);
    products.push_back(rows);
    waits = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !held; });
  });
  std::vector<std::unique_ptr<RankWire>> wires;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<CallAreas>> own;
  for (int rank = 0; rank < kRanks; ++rank) {
    wires.push_back(*RankWire::Make());
    names.push_back(wires.back()->name());
    own.push_back(CallAreas::Allocate(shape));
  }
  std::vector<std::string> areas_of;
  areas_of.reserve(own.size());
  for (const auto& areas : own) areas_of.push_back(areas->name());
  const std::unique_ptr<Device> device = MakeCpuDevice();
  const std::unique_ptr<Ops> others = *MakeCpuOps({.threads = 1});
  std::vector<std::shared_ptr<CallCounts>> counts;
  std::vector<std::unique_ptr<ComputeCalls>> calls;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    ASSERT_EQ(wires[i]->Join(3, names, rank), absl::OkStatus());
    std::vector<std::unique_ptr<CallAreas>> areas;
    for (size_t r = 0; r < kRanks; ++r) {
      areas.push_back(r == i ? std::move(own[i])
                             : CallAreas::Map(shape, ThisProcess(), areas_of[r]));
      ASSERT_NE(areas.back(), nullptr);
    }
    counts.push_back(std::make_shared<CallCounts>(1));
    auto made =
        ComputeCalls::Make({.shape = shape,
                            .config = &config,
                            .device = device.get(),
                            .ops = rank == 0 ? static_cast<Ops*>(&ops) : others.get(),
                            .rank = rank,
                            .owned = rank == 0 ? shapes : std::vector<FeedForwardWeights>(1),
                            .answer_max = std::chrono::minutes(1)},
                           std::move(wires[i]), std::move(areas), counts.back());
    ASSERT_TRUE(made.ok()) << made.status();
    calls.push_back(*std::move(made));
  }

  // Row r of every rank is r, r, r, r: the same results wherever it was computed.
  std::vector<std::vector<float>> results(kRanks);
  const auto call = [&](int rank, int64_t rows) {
    ComputeCalls& mine = *calls[static_cast<size_t>(rank)];
    ASSERT_TRUE(mine.Reaches(0));
    const Matrix in = mine.In(0, rows);
    for (int64_t i = 0; i < rows * 4; ++i) {
      static_cast<float*>(in.data)[i] = static_cast<float>(i / 4 + 1);
    }
    Batch batch;
    batch.ids.resize(static_cast<size_t>(rows));
    SequenceSpan span;
    span.token_count = rows;
    batch.sequences = {span};
    std::vector<float>& out = results[static_cast<size_t>(rank)];
    out.resize(static_cast<size_t>(rows) * 4);
    EXPECT_EQ(mine.Call(0, 0, batch, {out.data(), DType::kF32, rows, 4, 4}), absl::OkStatus());
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { call(0, 2); });
  {
    std::unique_lock lock(mu);
    changed.wait(lock, [&] { return waits; });
  }
  threads.emplace_back([&] { call(1, 5); });
  threads.emplace_back([&] { call(2, 3); });
  // What has been sent when its product ends is there.
  while (counts[1]->messages == 0 || counts[2]->messages == 0) std::this_thread::yield();
  {
    std::lock_guard lock(mu);
    held = false;
    changed.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  // Each product is two of Ops: gate with up, and down.
  EXPECT_THAT(products, ::testing::ElementsAre(2, 2, 8, 8));
  EXPECT_EQ(counts[0]->products, 2);
  EXPECT_EQ(counts[0]->rows_served[0], 10);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(results[0][i], results[1][i]);
    EXPECT_EQ(results[0][i], results[2][i]);
  }
}

}  // namespace
}  // namespace skein::engine
