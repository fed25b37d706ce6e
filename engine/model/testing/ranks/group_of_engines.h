// A whole group of GroupEngines, each rank in a thread, that looks like one Engine: whatever runs
// on one rank in tests (sequence_runner.h) runs on a group, and must say the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/testing/far_device.h"
#include "engine/model/group/group_comms.h"
#include "engine/model/group/group_engine.h"
#include "engine/ops/decode_runner.h"
#include "engine/ops/ops.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

// What a rank runs on.
struct TestingRankParts {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Device> device;
  std::unique_ptr<Fabric> fabric;
  // Not null: in place of those of TestingGroupOptions::engine.
  MakeTokenSampler make_token_sampler = nullptr;
  MakeDecodeRunner make_decode_runner = nullptr;
};

struct TestingGroupOptions {
  int ranks = 2;
  std::vector<GroupMode> modes;  // every step draws one of them; the ranks of all are `ranks`
  bool cpu_ops = true;
  ModelEngineOptions engine;
  size_t far_bytes = 0;  // > 0: each rank on a FarDevice of so many bytes
  std::function<TestingRankParts(int rank)> make_rank = nullptr;  // instead of all this
};

class GroupOfEngines final : public Engine {
 public:
  // Null, and a failed test, when the model cannot be loaded.
  static std::unique_ptr<GroupOfEngines> Make(const std::string& model_dir,
                                              const TestingGroupOptions& options);

  // Of rank 0, max_positions being the group's.
  const EngineSpec& Spec() const override { return spec_; }
  std::span<const KvRegion> KvRegions() const override { return engines_[0]->KvRegions(); }

  // `sequences` in layout tp = 1 are run in the group's, each rank with blocks of its own choice
  // (TableOf). Results are rank 0's; the test fails when another rank's differ in a bit. The status
  // is the first error of any rank.
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override;

  // INVALID_ARGUMENT: it is a group already.
  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override {
    return absl::InvalidArgumentError("mode: every step is one of the group");
  }

  // New communicators, after a failure.
  void Regroup();
  // Makes the next step of one rank fail: it does not come, or aborts.
  void BreakNextStep(int rank, bool abort);

  GroupEngine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  // The blocks in which a rank has what `table` names.
  std::vector<int32_t> TableOf(int rank, std::span<const int32_t> table) const;
  // The keys (or values) of one KV head of a sequence at its first holder, [tokens, head_dim],
  // found by the layout that kv_spec.h describes.
  std::vector<float> KvOf(std::span<const int32_t> table, int64_t tokens, int layer, int kv_head,
                          bool values);
  // The same of a rank's own head.
  std::vector<float> KvAt(int rank, std::span<const int32_t> table, int64_t tokens, int layer,
                          int local_head, bool values);
  const std::vector<absl::Status>& statuses() const { return statuses_; }  // of the last step

 private:
  explicit GroupOfEngines(const TestingGroupOptions& options);
  absl::Status StepOf(int rank, GroupMode mode, std::span<const SequenceStep> sequences,
                      StepProgress* progress, std::vector<SequenceResult>* results);
  void ExpectSame(const std::vector<std::vector<SequenceResult>>& by_rank) const;

  std::unique_ptr<Fabric> MakeFabric();

  TestingGroupOptions options_;
  std::vector<std::shared_ptr<FarDevice>> devices_;  // by rank, with far_bytes
  std::vector<TestingRankParts> parts_;              // by rank, with make_rank
  LocalHub hub_;
  TestingRanks ranks_;
  std::vector<std::unique_ptr<GroupEngine>> engines_;
  EngineSpec spec_;
  std::vector<GroupComms> comms_;  // by rank
  uint64_t groups_ = 0;
  std::vector<absl::Status> statuses_;
  uint64_t steps_ = 0;
  int breaking_rank_ = -1;
  bool breaks_by_abort_ = false;
};

// Keys (or values) of a head, [tokens, head_dim], in an engine's blocks of a layout.
std::vector<float> KvOfHead(const Engine& engine, std::span<const int32_t> table, KvLayout layout,
                            int64_t tokens, int layer, int local_head, bool values);

}  // namespace skein::engine
