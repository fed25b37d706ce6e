#include "engine/handoff/staging_receiver.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<StagingReceiver>> StagingReceiver::Create(
    Transport* transport, const KvSpec& spec, std::span<const KvRegion> pool, int buffers,
    int slots, std::shared_ptr<CopyStream> copies) {
  if (buffers < 1)
    return absl::InvalidArgumentError(absl::StrCat("buffers = ", buffers, ": must be at least 1"));
  if (slots < 1)
    return absl::InvalidArgumentError(absl::StrCat("slots = ", slots, ": must be at least 1"));
  if (static_cast<int>(pool.size()) != spec.num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("pool: ", pool.size(), " layers; the model has ", spec.num_layers));
  }
  std::unique_ptr<StagingReceiver> receiver(
      new StagingReceiver(transport, spec, pool, slots, std::move(copies)));
  for (int i = 0; i < buffers; ++i) {
    const auto bytes = static_cast<size_t>(slots * spec.BlockBytes());
    const absl::StatusOr<Region> region = transport->Register(nullptr, bytes);
    if (!region.ok()) return region.status();
    receiver->buffers_.push_back({*region, ""});
    absl::StatusOr<std::string> description = transport->Describe({&region->id, 1});
    if (!description.ok()) return description.status();
    receiver->buffers_.back().description = *std::move(description);
  }
  return receiver;
}

StagingReceiver::~StagingReceiver() {
  for (const Buffer& buffer : buffers_) (void)transport_->Unregister(buffer.region.id);
}

absl::Status StagingReceiver::Check(int buffer, const StagedBlock& staged,
                                    std::span<const BlockId> blocks) const {
  const auto invalid = [](const char* field, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is out of range"));
  };
  if (buffer < 0 || buffer >= buffers()) return invalid("buffer", buffer);
  if (staged.slot < 0 || staged.slot >= slots_) return invalid("slot", staged.slot);
  if (staged.layer < 0 || staged.layer >= spec_.num_layers) return invalid("layer", staged.layer);
  if (staged.global < 0 || staged.global >= static_cast<int64_t>(blocks.size())) {
    return invalid("block", staged.global);
  }
  const int32_t to = blocks[static_cast<size_t>(staged.global)].value;
  if (to < 0 || to >= spec_.num_blocks) return invalid("blocks", to);
  return absl::OkStatus();
}

absl::Status StagingReceiver::Take(int buffer, std::span<const StagedBlock> part,
                                   std::span<const BlockId> blocks) const {
  for (const StagedBlock& staged : part) {
    if (absl::Status status = Check(buffer, staged, blocks); !status.ok()) return status;
  }
  const int64_t bytes = spec_.BlockBytes();
  absl::Status status;
  for (const StagedBlock& staged : part) {
    const std::byte* from = buffers_[static_cast<size_t>(buffer)].region.base + staged.slot * bytes;
    std::byte* to = static_cast<std::byte*>(pool_[static_cast<size_t>(staged.layer)].base) +
                    blocks[static_cast<size_t>(staged.global)].value * bytes;
    if (copies_ == nullptr) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    } else if (status.ok()) {
      status = copies_->Copy(to, from, static_cast<size_t>(bytes));
    }
  }
  if (copies_ == nullptr) return absl::OkStatus();
  const absl::Status arrived = AwaitCopies(copies_.get());
  return status.ok() ? arrived : status;
}

}  // namespace skein::engine
