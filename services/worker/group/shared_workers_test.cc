// Decode-workers with a model on CPUs that share their weights by order, in one process: real
// shells, engines and wires, an orchestrator that says when. Whatever the formation did, every
// token is the one of an instance alone.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/worker/group/testing/bound_workers.h"

namespace skein::services {
namespace {

using scheduler::SharedMode;
using testing::BoundWorkers;
using testing::TinyModelAlone;

constexpr int kBlocks = 40;
constexpr double kDeviceGib = 0.03;  // of each, for weights, buffers and KV

WorkerEngine EngineOf(const std::string& dir, double device_memory_gib) {
  WorkerOptions options = testing::TinyWorkerOptions("cpu", dir, kBlocks);
  options.device_memory_gib = device_memory_gib;
  auto made = MakeWorkerEngine(options, scheduler::Role::kDecode);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

TEST(SharedWorkers, OnlyEnginesWithWeightsOfTheirOwnCanShare) {
  const std::string dir = testing::WriteTinyModel("shared_workers_cannot");
  const WorkerEngine own = EngineOf(dir, kDeviceGib);
  EXPECT_NE(own.sharing, nullptr);
  const WorkerEngine mapped = EngineOf(dir, 0);
  EXPECT_EQ(mapped.sharing, nullptr);
  EXPECT_NE(mapped.cannot_share.message().find("--device-memory-gib"), std::string::npos)
      << mapped.cannot_share;
  auto emulated = MakeWorkerEngine(testing::TinyWorkerOptions("emulated", dir, kBlocks),
                                   scheduler::Role::kDecode);
  ASSERT_TRUE(emulated.ok()) << emulated.status();
  EXPECT_EQ(emulated->sharing, nullptr);
  EXPECT_NE(emulated->cannot_share.message().find("'emulated'"), std::string::npos)
      << emulated->cannot_share;
}

class SharedWorkersTest : public ::testing::TestWithParam<int> {
 protected:
  void Start() {
    for (const auto& worker : group_.workers()) {
      for (int i = 0; i < 2; ++i) {
        ++serial_;
        worker->Start(testing::TinyRequest(serial_, static_cast<int64_t>(9 + serial_ * 5 % 8), 60),
                      &alone_);
      }
    }
  }
  void ExpectAll() {
    for (const auto& worker : group_.workers()) {
      worker->ExpectTokensOfOneAlone(&alone_);
      EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    }
  }

  const std::string dir_ = testing::WriteTinyModel("shared_workers");
  TinyModelAlone alone_{dir_};
  BoundWorkers group_{GetParam(), [this] { return EngineOf(dir_, kDeviceGib); }};
  uint64_t serial_ = 0;
};

TEST_P(SharedWorkersTest, EnterChangeAndLeaveWhileSequencesRun) {
  Start();
  group_.Share(SharedMode::kWas);
  for (const auto& worker : group_.workers()) EXPECT_TRUE(worker->shares());
  Start();
  group_.SetMode(SharedMode::kCas);
  group_.SetMode(SharedMode::kWas);
  group_.SetMode(SharedMode::kCas);
  Start();
  group_.Unshare();
  for (const auto& worker : group_.workers()) EXPECT_FALSE(worker->shares());
  ExpectAll();
}

TEST_P(SharedWorkersTest, EachModeAloneGivesTheTokensOfOneAlone) {
  for (const SharedMode mode : {SharedMode::kWas, SharedMode::kCas}) {
    group_.Share(mode);
    Start();
    ExpectAll();
    group_.Unshare();
  }
  Start();
  ExpectAll();
}

// What one formation has left on the wire does not end the next one.
TEST_P(SharedWorkersTest, BindAfterwards) {
  group_.Share(SharedMode::kCas);
  group_.Unshare();
  group_.Bind();
  Start();
  ExpectAll();
  group_.Release(scheduler::Switch::kHard);
  group_.Share(SharedMode::kWas);
  Start();
  ExpectAll();
  group_.Unshare();
}

INSTANTIATE_TEST_SUITE_P(OfSize, SharedWorkersTest, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services
