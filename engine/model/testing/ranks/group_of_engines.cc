#include "engine/model/testing/ranks/group_of_engines.h"

#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "engine/comm/device/device_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/testing/far_ops.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/element.h"
#include "engine/ops/kv_address.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/sampling/philox.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

std::unique_ptr<Ops> MakeOps(bool cpu_ops) {
  if (!cpu_ops) return std::make_unique<ReferenceOps>();
  return *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto});
}

}  // namespace

GroupOfEngines::GroupOfEngines(const TestingGroupOptions& options)
    : options_(options), ranks_([this] { return MakeFabric(); }, options.ranks) {}

// Called rank by rank.
std::unique_ptr<Fabric> GroupOfEngines::MakeFabric() {
  if (options_.make_rank) {
    parts_.push_back(options_.make_rank(static_cast<int>(parts_.size())));
    return std::move(parts_.back().fabric);
  }
  if (options_.far_bytes == 0) return hub_.MakeFabric();
  devices_.push_back(std::make_shared<FarDevice>(options_.far_bytes));
  return MakeDeviceFabric(hub_.MakeFabric(), devices_.back(), DevicePath::kHostStaged);
}

std::unique_ptr<GroupOfEngines> GroupOfEngines::Make(const std::string& model_dir,
                                                     const TestingGroupOptions& options) {
  std::unique_ptr<GroupOfEngines> group(new GroupOfEngines(options));
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::unique_ptr<Ops> ops = MakeOps(options.cpu_ops);
    std::unique_ptr<Device> device = MakeCpuDevice();
    ModelEngineOptions engine_options = options.engine;
    if (options.far_bytes > 0) {
      const std::shared_ptr<FarDevice>& far = group->devices_[static_cast<size_t>(rank)];
      ops = MakeFarOps(far, std::move(ops));
      device = ShareFarDevice(far);
    }
    if (options.make_rank) {
      TestingRankParts& parts = group->parts_[static_cast<size_t>(rank)];
      ops = std::move(parts.ops);
      device = std::move(parts.device);
      if (parts.make_token_sampler) engine_options.make_token_sampler = parts.make_token_sampler;
      if (parts.make_decode_runner) engine_options.make_decode_runner = parts.make_decode_runner;
    }
    auto engine = GroupEngine::Make(model_dir, std::move(ops), std::move(device), engine_options,
                                    options.ranks);
    EXPECT_TRUE(engine.ok()) << engine.status();
    if (!engine.ok()) return nullptr;
    group->engines_.push_back(*std::move(engine));
  }
  group->spec_ = group->engines_[0]->Spec();
  group->spec_.max_positions = group->engines_[0]->MaxPositions(options.ranks);
  group->Regroup();
  return group;
}

void GroupOfEngines::Regroup() {
  comms_.clear();
  std::vector<int> members(static_cast<size_t>(options_.ranks));
  std::iota(members.begin(), members.end(), 0);
  const std::vector<std::string> addresses = ranks_.Addresses(members);
  const GroupId id{1, ++groups_};
  for (const int rank : members) {
    auto comms = GroupComms::Make(ranks_.fabric(rank), id, addresses, rank, options_.modes);
    ASSERT_TRUE(comms.ok()) << comms.status();
    comms_.push_back(*std::move(comms));
  }
}

void GroupOfEngines::BreakNextStep(int rank, bool abort) {
  breaking_rank_ = rank;
  breaks_by_abort_ = abort;
}

std::vector<int32_t> GroupOfEngines::TableOf(int rank, std::span<const int32_t> table) const {
  std::vector<int32_t> own;
  for (const int32_t block : table) {
    const int64_t moved = (block + int64_t{3} * rank) % spec_.kv.num_blocks;
    own.push_back(block < 0 ? block : static_cast<int32_t>(moved));  // none stays none
  }
  return own;
}

absl::Status GroupOfEngines::StepOf(int rank, GroupMode mode,
                                    std::span<const SequenceStep> sequences, StepProgress* progress,
                                    std::vector<SequenceResult>* results) {
  std::vector<std::vector<int32_t>> tables;
  for (const SequenceStep& sequence : sequences) {
    tables.push_back(TableOf(rank, sequence.block_table));
  }
  std::vector<SequenceStep> steps(sequences.begin(), sequences.end());
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].block_table = tables[i];
    steps[i].layout = KvLayout{options_.ranks};
  }
  GroupComms& comms = comms_[static_cast<size_t>(rank)];
  if (rank == breaking_rank_) {
    if (breaks_by_abort_) comms.Abort(absl::UnavailableError("broken"));
    return absl::UnavailableError("did not come");
  }
  const bool alone = breaking_rank_ >= 0 && !breaks_by_abort_;
  const CommDeadline soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  const GroupPart part = comms.Part(mode, alone ? soon : Later());
  return engine(rank).StepTogether(part, steps, rank == 0 ? progress : nullptr, results);
}

absl::Status GroupOfEngines::Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                                  std::vector<SequenceResult>* results) {
  const auto ranks = static_cast<size_t>(options_.ranks);
  const auto drawn =
      static_cast<size_t>(UniformSample(11, steps_++) * static_cast<double>(options_.modes.size()));
  const GroupMode mode = options_.modes[drawn];
  std::vector<std::vector<SequenceResult>> by_rank(ranks);
  statuses_.assign(ranks, absl::OkStatus());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      statuses_[r] = StepOf(static_cast<int>(r), mode, sequences, progress, &by_rank[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  breaking_rank_ = -1;
  for (const absl::Status& status : statuses_) {
    if (!status.ok()) return status;
  }
  ExpectSame(by_rank);
  *results = std::move(by_rank[0]);
  return absl::OkStatus();
}

void GroupOfEngines::ExpectSame(const std::vector<std::vector<SequenceResult>>& by_rank) const {
  const std::vector<SequenceResult>& first = by_rank[0];
  for (const std::vector<SequenceResult>& other : by_rank) {
    ASSERT_EQ(other.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(other[i].status.code(), first[i].status.code());
      if (!first[i].status.ok()) continue;
      EXPECT_EQ(other[i].sampled.token, first[i].sampled.token);
      EXPECT_EQ(other[i].sampled.logprob, first[i].sampled.logprob);
      EXPECT_EQ(other[i].logits, first[i].logits);
      ASSERT_EQ(other[i].prompt_logprobs.size(), first[i].prompt_logprobs.size());
      for (size_t t = 0; t < first[i].prompt_logprobs.size(); ++t) {
        EXPECT_EQ(other[i].prompt_logprobs[t].logprob, first[i].prompt_logprobs[t].logprob);
      }
    }
  }
}

std::vector<float> GroupOfEngines::KvOf(std::span<const int32_t> table, int64_t tokens, int layer,
                                        int kv_head, bool values) {
  const KvSpec& kv = spec_.kv;
  const ShardShape shape{kv.kv_heads, kv.kv_heads, kv.head_dim, 0, 0};
  const int rank = static_cast<int>(HoldersOf(shape, options_.ranks, kv_head).begin);
  const int local_head = kv_head - static_cast<int>(KvHeadsOf(shape, options_.ranks, rank).begin);
  return KvAt(rank, table, tokens, layer, local_head, values);
}

std::vector<float> GroupOfEngines::KvAt(int rank, std::span<const int32_t> table, int64_t tokens,
                                        int layer, int local_head, bool values) {
  return KvOfHead(engine(rank), TableOf(rank, table), KvLayout{options_.ranks}, tokens, layer,
                  local_head, values);
}

std::vector<float> KvOfHead(const Engine& engine, std::span<const int32_t> table, KvLayout layout,
                            int64_t tokens, int layer, int local_head, bool values) {
  const KvSpec& kv = engine.Spec().kv;
  SequenceSpan span;
  span.block_table = table;
  span.layout = layout;
  const void* base = engine.KvRegions()[static_cast<size_t>(layer)].base;
  std::vector<float> elements;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = KvElementOf(span, kv, values ? KvSide::kValue : KvSide::kKey, local_head, t);
    for (int i = 0; i < kv.head_dim; ++i) elements.push_back(LoadElement(base, kv.dtype, at + i));
  }
  return elements;
}

}  // namespace skein::engine
