// Decode-workers on the CUDA backend over an emulator of GPUs, bound and released in flight in one
// process: the parts of a worker on a GPU, that is a GroupEngine with sampling and graphs of decode
// steps on the device, and groups whose collectives are kernels on its stream. Whatever the
// formation did, every token is the one of an instance alone on a CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/device/kernels/kernel_fabric.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/comm/testing/near_copies.h"
#include "engine/cuda/testing/emulated_backend.h"
#include "engine/cuda/testing/near_opener.h"
#include "engine/cuda/testing/twin_backend.h"
#include "engine/model/group/group_contexts.h"
#include "engine/model/group/group_engine.h"
#include "engine/transport/loopback_transport.h"
#include "scheduler/vocabulary/check.h"
#include "services/worker/group/testing/bound_workers.h"

namespace skein::services {
namespace {

using scheduler::SpecPtr;
using scheduler::Switch;
using testing::BoundWorkers;
using testing::TinyModelAlone;

constexpr int kBlocks = 40;
constexpr int kGenerations = 3;  // of groups, for which a GPU worker's fabric has memory

// As MakeGpuFabric: kernels over the fabric that the workers have beside them.
std::unique_ptr<engine::PathFabric> KernelsOverHost() {
  auto made = engine::MakeHostFabric({.hosts = {.tls = "self,shm"}});
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  std::unique_ptr<engine::PathFabric> fabric = *std::move(made);
  const auto borrowed = [](engine::Fabric* one) {
    return std::shared_ptr<engine::Fabric>(one, [](engine::Fabric*) {});
  };
  engine::KernelFabricParts parts;
  parts.hosts = borrowed(fabric->Hosts());
  parts.below = borrowed(fabric.get());
  parts.device = engine::MakeEmulatedCudaDevice();
  parts.opener = engine::MakeNearOpener();
  parts.shape = {.lanes = 2, .slot_bytes = 4 << 10, .segment_bytes_min = 1 << 10, .threads = 32};
  parts.copies = engine::MakeNearCopies();
  parts.reserved_bytes = kGenerations * engine::KernelBytesOfNode(parts.shape, 4);
  parts.queued = [one = fabric.get()](int ranks, uint64_t bytes) {
    one->KernelMoved(ranks, bytes);
  };
  auto kernels = engine::MakeKernelFabric(std::move(parts));
  SKEIN_CHECK_MSG(kernels.ok(), kernels.status().ToString().c_str());
  fabric->SetKernels(*std::move(kernels));
  return fabric;
}

// As MakeWorkerEngine of a decode-worker on a GPU. The host reaches the emulated memory, so a test
// may bring KV there.
WorkerEngine CudaEngine(const std::string& dir) {
  WorkerEngine out;
  out.transport = engine::MakeLoopbackTransport(engine::MakeLoopbackFabric());
  out.fabric = KernelsOverHost();
  engine::TestingBackend backend = engine::MakeTestingBackend();
  engine::ModelEngineOptions options;
  options.num_blocks = kBlocks;
  options.block_tokens = testing::kTinyBlockTokens;
  options.max_batch_tokens = 128;
  options.ring_tp_max = 1;
  options.make_token_sampler = backend.make_token_sampler;
  options.make_decode_runner = backend.decode_graphs({}, nullptr);
  auto made = engine::GroupEngine::Make(dir, std::move(backend.ops), std::move(backend.device),
                                        options, engine::kGroupRanksMax);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  out.group_ranks_max = (*made)->GroupRanksMax();
  out.engine = *std::move(made);
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    out.regions.push_back(
        out.transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
  }
  out.description = *out.transport->Describe(out.regions);
  return out;
}

class CudaWorkersTest : public ::testing::TestWithParam<int> {
 protected:
  int Size() const { return GetParam(); }
  SpecPtr Next() {
    ++serial_;
    return testing::TinyRequest(serial_, static_cast<int64_t>(9 + serial_ * 5 % 8), 40);
  }
  uint64_t GroupSteps() {
    uint64_t steps = 0;
    for (const StepTotals& one : group_.lead().GroupSteps()) steps += one.steps;
    return steps;
  }

  const std::string dir_ = testing::WriteTinyModel("cuda_workers", {.dtype = engine::DType::kF32});
  TinyModelAlone alone_{dir_};
  BoundWorkers group_{Size(), [this] { return CudaEngine(dir_); }};
  uint64_t serial_ = 0;
};

// In turns with the group's requests each instance runs one that has its KV from before the bind.
TEST_P(CudaWorkersTest, BoundAndReleasedInFlight) {
  for (const Switch how : {Switch::kHard, Switch::kSequential}) {
    for (const auto& worker : group_.workers()) worker->Start(Next(), &alone_);
    group_.Bind();
    const uint64_t before = GroupSteps();
    for (int i = 0; i < 2; ++i) group_.lead().StartInGroup(Next(), group_.epoch());
    BoundWorkers::AwaitThat([&] { return GroupSteps() >= before + 10; });
    group_.Release(how);
  }
  for (const auto& worker : group_.workers()) worker->ExpectTokensOfOneAlone(&alone_);
  const std::vector<StepTotals> steps = group_.lead().GroupSteps();
  ASSERT_EQ(steps.size(), 2u) << "of TP, and of SP above the ordered number of tokens";
  for (const StepTotals& one : steps) {
    EXPECT_TRUE(one.mode == "tp" || one.mode == "sp") << one.mode;
    EXPECT_EQ(one.ranks, Size());
    EXPECT_GT(one.steps, 0u);
  }
  for (const auto& worker : group_.workers()) {
    EXPECT_EQ(worker->GroupSteps(), steps);
    const std::vector<engine::CommTotals> ways = worker->shell().GroupWays();
    const auto way = std::find_if(ways.begin(), ways.end(),
                                  [this](const auto& one) { return one.ranks == Size(); });
    ASSERT_NE(way, ways.end());
    EXPECT_EQ(way->path, engine::CommPath::kIpc) << "by kernels";
    EXPECT_GT(way->bytes, 0u);
    EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    BoundWorkers::AwaitThat([&] { return worker->Look().blocks.free == kBlocks; });
  }
}

INSTANTIATE_TEST_SUITE_P(OfSize, CudaWorkersTest, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::services
