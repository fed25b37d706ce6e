// Requests of a bound group and its lead's plans for them: random slices, modes, preemptions and
// own steps. The plans follow from the number of ranks and requests alone, as long as no rank
// refuses one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/parallel/shard_layout.h"
#include "proto/common.pb.h"
#include "scheduler/base/request.h"
#include "scheduler/worker/group/group_batch.h"

namespace skein::services::testing {

// The request {7, serial}, greedy, of tokens below `vocabulary`; the same wherever it is called.
inline scheduler::SpecPtr GroupRequest(uint64_t serial, int vocabulary) {
  const auto tokens = static_cast<uint64_t>(std::min(vocabulary, 100'000));
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {7, serial};
  for (uint64_t i = 0; i < 5 + serial * 11 % 40; ++i) {
    spec->prompt.push_back(static_cast<int32_t>((serial * 1000 + i * 7) % tokens));
  }
  spec->max_tokens = static_cast<int64_t>(8 + serial % 20);
  v1::SamplingParams sampling;
  sampling.set_temperature(0);
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  spec->sampling = sampling.SerializeAsString();
  return spec;
}

// GroupRank::Options::next of a lead whose ranks were offered the requests 1 … `requests`, each
// under its serial as its epoch.
class RandomGroupPlans {
 public:
  RandomGroupPlans(int ranks, size_t requests)
      : modes_(engine::ModesOf(ranks)),
        requests_(requests),
        random_(static_cast<uint32_t>(ranks)) {}

  // nullopt: all are answered.
  std::optional<scheduler::FeedPlan> Next(const scheduler::GroupBatch& batch) {
    scheduler::FeedPlan plan;
    const engine::GroupMode mode = modes_[random_() % modes_.size()];
    plan.mode = {mode.sp, mode.tp};
    const bool own = random_() % 6 == 0;
    if (own) {
      plan.mode = {};
      plan.own_tokens = 16;
    }
    size_t there = 0;
    int64_t tokens = 24;
    for (const scheduler::GroupBatch::Member& member : batch.Members()) {
      ++there;
      seen_.insert(member.spec->id.serial);
      last_handle_ = std::max(last_handle_, member.handle);
      if (member.output_tokens >= member.spec->max_tokens) {
        plan.removed.push_back(member.handle);
      } else if (member.blocks > 0 && random_() % 24 == 0) {
        plan.preempted.push_back(member.handle);
      } else if (!own && member.Lacks() > 1) {
        const int64_t slice =
            std::min<int64_t>(member.Lacks(), std::min<int64_t>(tokens, 1 + random_() % 16));
        plan.slices.push_back({member.handle, slice});
        tokens -= slice;
      }
    }
    const uint64_t next = seen_.size() + 1;
    if (next <= requests_ && there < 4) plan.added.push_back({last_handle_ + 1, {7, next}, {next}});
    if (there == 0 && plan.added.empty()) return std::nullopt;
    ++plans_;
    return plan;
  }

  // Every rank has ended a plan's step, or one has refused it.
  void Over() { ++over_; }
  bool AllOver() const { return over_ == plans_; }

 private:
  const std::vector<engine::GroupMode> modes_;
  const size_t requests_;
  std::mt19937 random_;
  uint32_t last_handle_ = 0;
  std::set<uint64_t> seen_;
  int plans_ = 0;
  int over_ = 0;
};

}  // namespace skein::services::testing
