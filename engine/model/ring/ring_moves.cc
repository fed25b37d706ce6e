#include "engine/model/ring/ring_moves.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/model/ring/ring_blocks.h"

namespace skein::engine {

KvMover::KvMover(const RingStep& step, Device* device, std::span<void* const> layers,
                 const KvSpec* kv, int64_t piece_bytes, DeviceBuffer* staging,
                 RingProgress* progress)
    : step_(step),
      device_(device),
      layers_(layers),
      kv_(kv),
      staging_(staging),
      progress_(progress),
      piece_bytes_(piece_bytes),
      ranks_(step.moves->Size()),
      piece_blocks_(std::max<int64_t>(1, piece_bytes / (ranks_ * kv->BlockBytes()))),
      rounds_((step.moved_blocks_max + piece_blocks_ - 1) / piece_blocks_),
      thread_([this] {
        pthread_setname_np(pthread_self(), "kv-moves");
        Run();
      }) {}

KvMover::~KvMover() { thread_.join(); }

void KvMover::Run() {
  absl::Status status = Prepare();
  for (int layer = 0; status.ok() && layer < kv_->num_layers; ++layer) {
    if (!progress_->Await(Milestone::kPassed, layer)) return;
    status = MoveLayer(layer);
    if (status.ok()) progress_->Reach(Milestone::kMoved, layer + 1);
  }
  if (!status.ok()) progress_->Fail(status);
}

absl::Status KvMover::Prepare() {
  const int64_t pieces = 2 * ranks_ * piece_blocks_ * kv_->BlockBytes();
  // Enough at once for other numbers of ranks: other processes may have what would grow open.
  const auto wanted = static_cast<size_t>(std::max(pieces, 2 * piece_bytes_));
  if (staging_->bytes() >= wanted) return absl::OkStatus();
  absl::StatusOr<DeviceBuffer> grown = DeviceBuffer::Allocate(device_, wanted);
  if (!grown.ok()) return grown.status();
  *staging_ = *std::move(grown);
  return absl::OkStatus();
}

absl::Status KvMover::MoveLayer(int layer) {
  for (int64_t round = 0; round < rounds_; ++round) {
    const absl::Status moved = MovePieces(layer, round);
    if (!moved.ok()) return moved;
  }
  return absl::OkStatus();
}

absl::Status KvMover::MovePieces(int layer, int64_t round) {
  const KvLayerView view = {layers_[static_cast<size_t>(layer)], kv_};
  const int64_t block_bytes = kv_->BlockBytes();
  auto* const staging = static_cast<std::byte*>(staging_->data());
  const auto at = [&](int rank) { return staging + rank * piece_blocks_ * block_bytes; };
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int r = 0; r < ranks_; ++r) {
    const std::span<const int32_t> out = PieceOf(step_.send, r, round);
    const absl::Status packed = PackBlocks(device_, view, out, at(r));
    if (!packed.ok()) return packed;
    const std::span<const int32_t> in = PieceOf(step_.receive, r, round);
    send.emplace_back(at(r), out.size() * static_cast<size_t>(block_bytes));
    receive.emplace_back(at(ranks_ + r), in.size() * static_cast<size_t>(block_bytes));
  }
  const absl::Status moved = step_.moves->AllToAll(send, receive, step_.deadline);
  if (!moved.ok()) return moved;
  for (int r = 0; r < ranks_; ++r) {
    const absl::Status unpacked =
        UnpackBlocks(device_, view, PieceOf(step_.receive, r, round), at(ranks_ + r));
    if (!unpacked.ok()) return unpacked;
  }
  return absl::OkStatus();
}

std::span<const int32_t> KvMover::PieceOf(const Lists& lists, int rank, int64_t round) const {
  if (lists.empty()) return {};
  const std::span<const int32_t> all = NumbersOf(lists[static_cast<size_t>(rank)]);
  const auto size = static_cast<int64_t>(all.size());
  const int64_t begin = std::min(round * piece_blocks_, size);
  return all.subspan(static_cast<size_t>(begin),
                     static_cast<size_t>(std::min(piece_blocks_, size - begin)));
}

}  // namespace skein::engine
