// ExtraKv: KV blocks in the memory that shared weights free. They are in the same arrays as the
// pool's own ones, behind these: a model's KV is allocated with addresses for both, so that block
// tables, kernels and the transport's description of the arrays, by which writers reach them, need
// not know which is which. What comes and goes is their memory: a budget says how much there is,
// and pages that are given back are the system's at once. Addresses without memory are nobody
// else's, so a late put to one changes nothing that anybody reads.
//
// Internal to engine/model. The caller's calls come between steps. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/device/memory_budget.h"
#include "engine/kv/kv_spec.h"
#include "scheduler/vocabulary/block_range.h"

namespace skein::engine {

class ExtraKv {
 public:
  struct Parts {
    KvSpec kv;                  // num_blocks: with the extra ones
    int64_t extra_blocks = 0;   // the last ones
    std::vector<void*> layers;  // in the host's memory; the caller's
    Device* device = nullptr;   // which copies there
    std::shared_ptr<MemoryBudget> budget;
  };
  // Counts the own blocks in the budget as long as it lives. RESOURCE_EXHAUSTED: it has not so much
  // left. REQUIRES: no extra block was ever written.
  static absl::StatusOr<std::unique_ptr<ExtraKv>> Make(Parts parts);
  ~ExtraKv();
  ExtraKv(const ExtraKv&) = delete;

  // As many as the budget has room for, at most all. REQUIRES: none are there.
  BlockRange Come();
  // Copies the KV of these blocks; then none is there any more. The device's errors.
  absl::Status Go(std::span<const BlockMove> moves);

 private:
  explicit ExtraKv(Parts parts) : parts_(std::move(parts)) {}
  int64_t own() const { return parts_.kv.num_blocks - parts_.extra_blocks; }

  const Parts parts_;
  // Of the budget.
  int64_t counted_bytes_ = 0;  // by own blocks
  int64_t extra_bytes_ = 0;    // by extra ones
};

}  // namespace skein::engine
