// Metrics of a decode-worker about the formations that it takes part in (docs/metrics.md).
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "engine/model/sharing/weight_sharing.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/worker/decode/stream_gaps.h"
#include "scheduler/worker/group/group_batch.h"
#include "services/metrics/metrics.h"

namespace skein::services {

// Counts the gaps that streams saw when their instance was bound or released. Any thread.
class StreamGapMetrics {
 public:
  // `metrics` outlives this and its copies. All series exist from here on.
  StreamGapMetrics(const std::string& model, Metrics* metrics);

  void Count(const scheduler::StreamGap& gap) const;

 private:
  static constexpr std::array kOwn = {
      scheduler::OwnSequences::kShare, scheduler::OwnSequences::kSequential,
      scheduler::OwnSequences::kSoftPreempt, scheduler::OwnSequences::kHardPreempt};

  // By kind (bind, release), then by what OwnSequences says.
  std::array<std::array<prometheus::Histogram*, kOwn.size()>, 2> gaps_;
};

// What this instance holds of the KV of its bound group's sequences. It works alone: nothing.
void RefreshBoundKv(const scheduler::BatchKv& kv, const std::string& model, Metrics* metrics);

// What it has read, sent and computed for others while it shared its weights.
void RefreshSharing(const engine::SharingTotals& totals, const std::string& model,
                    Metrics* metrics);

}  // namespace skein::services
