// StagingReceiver: the receiving side of staged handoffs (handoff_sender.h; Tetris section 4.2). It
// has a few staging buffers instead of registered blocks. A writer that was granted one puts blocks
// into its slots and names them; the receiver copies them out into the KV blocks. Then the slots
// may be used again.
//
// scheduler/kv/staging_buffer_queue.h decides which writer is granted which buffer, and when; here
// bytes are moved. Immutable but for the bytes: Take may be called from several threads for
// different buffers. The blocks that are copied to belong to the caller, which keeps them reserved
// until Take has returned; unlike one-sided handoffs, no late put can reach them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"
#include "engine/kv/kv_spec.h"
#include "engine/transport/transport.h"
#include "scheduler/vocabulary/block_id.h"
#include "scheduler/vocabulary/staged_block.h"

namespace skein::engine {

class StagingReceiver {
 public:
  // Registers `buffers` buffers of `slots` blocks each. `transport` and the memory of `pool`, one
  // region a layer, outlive this. INVALID_ARGUMENT for counts below 1; RESOURCE_EXHAUSTED.
  // With `copies` the pool is memory of the device behind it.
  static absl::StatusOr<std::unique_ptr<StagingReceiver>> Create(
      Transport* transport, const KvSpec& spec, std::span<const KvRegion> pool, int buffers,
      int slots, std::shared_ptr<CopyStream> copies = nullptr);
  ~StagingReceiver();

  int buffers() const { return static_cast<int>(buffers_.size()); }
  int slots() const { return slots_; }
  // The description with which a writer connects: HandoffTarget::memory of a staged grant.
  const std::string& Description(int buffer) const {
    return buffers_[static_cast<size_t>(buffer)].description;
  }

  // Copies `part`, which lies in `buffer`, into the prompt's blocks: global block g into
  // `blocks[g]`. REQUIRES: the writer's puts of it have completed. INVALID_ARGUMENT names what lies
  // outside the buffer, the layers or the prompt; nothing was copied then. OK: the bytes are there,
  // on a device, too; else, of a device, its error.
  absl::Status Take(int buffer, std::span<const StagedBlock> part,
                    std::span<const BlockId> blocks) const;

 private:
  struct Buffer {
    Region region;
    std::string description;
  };

  StagingReceiver(Transport* transport, const KvSpec& spec, std::span<const KvRegion> pool,
                  int slots, std::shared_ptr<CopyStream> copies)
      : transport_(transport),
        spec_(spec),
        pool_(pool.begin(), pool.end()),
        slots_(slots),
        copies_(std::move(copies)) {}

  absl::Status Check(int buffer, const StagedBlock& staged, std::span<const BlockId> blocks) const;

  Transport* const transport_;
  const KvSpec spec_;
  const std::vector<KvRegion> pool_;
  const int slots_;
  const std::shared_ptr<CopyStream> copies_;
  std::vector<Buffer> buffers_;
};

}  // namespace skein::engine
