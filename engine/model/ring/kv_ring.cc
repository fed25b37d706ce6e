#include "engine/model/ring/kv_ring.h"

#include <pthread.h>

#include <algorithm>

#include "engine/model/ring/ring_blocks.h"

namespace skein::engine {

KvRing::KvRing(const RingStep& step, const RingLayout& layout, std::span<const int32_t> list,
               const RingOptions& options, RingProgress* progress)
    : step_(step),
      layout_(layout),
      list_(list),
      options_(options),
      progress_(progress),
      rank_(step.comm->Rank()),
      thread_([this] {
        pthread_setname_np(pthread_self(), "kv-ring");
        Run();
      }) {}

KvRing::~KvRing() { thread_.join(); }

int64_t KvRing::FillOf(int layer, int64_t segment, int hop) const {
  return (layer * layout_.segments() + segment) * layout_.ranks() + hop;
}

std::byte* KvRing::BufferOf(int64_t fill) const {
  if (options_.window_blocks > 0) {
    const int64_t window = fill / layout_.ranks(), segment = window % layout_.segments();
    int64_t block = window % 2 * options_.window_blocks;
    for (int hop = 0; hop < fill % layout_.ranks(); ++hop) {
      block += layout_.SegmentBlocksOf(RankBefore(hop), segment);
    }
    return options_.buffers + block * options_.kv->BlockBytes();
  }
  return options_.buffers + fill % kBuffers * options_.segment_blocks * options_.kv->BlockBytes();
}

int KvRing::RankBefore(int hop) const { return (rank_ - hop + layout_.ranks()) % layout_.ranks(); }

void KvRing::Run() {
  absl::Status status;
  for (int layer = 0; status.ok() && layer < options_.kv->num_layers; ++layer) {
    status = PassLayer(layer);
  }
  if (!status.ok()) progress_->Fail(status);
}

absl::Status KvRing::PassLayer(int layer) {
  if (!progress_->Await(Milestone::kWritten, layer + 1) ||
      !progress_->Await(Milestone::kMoved, layer + 1)) {
    return progress_->status();
  }
  const bool last = layer + 1 == options_.kv->num_layers;
  const std::vector<bool>& attends = options_.attends_last;
  const bool wanted = !last || std::find(attends.begin(), attends.end(), true) != attends.end();
  for (int64_t segment = 0; wanted && segment < layout_.segments(); ++segment) {
    const absl::Status passed = PassSegment(layer, segment);
    if (!passed.ok()) return passed;
  }
  progress_->Reach(Milestone::kPassed, layer + 1);
  return absl::OkStatus();
}

absl::Status KvRing::PassSegment(int layer, int64_t segment) {
  const int next = (rank_ + 1) % layout_.ranks();
  if (!AwaitBuffer(FillOf(layer, segment, 0))) return progress_->status();
  const auto own = list_.subspan(static_cast<size_t>(layout_.SegmentBegin(rank_, segment)),
                                 static_cast<size_t>(layout_.SegmentBlocksOf(rank_, segment)));
  absl::Status status;
  if (Packs(layer)) {
    status = PackBlocks(options_.device, {options_.layers[layer], options_.kv}, own,
                        BufferOf(FillOf(layer, segment, 0)));
  }
  for (int hop = 1; status.ok() && hop < layout_.ranks(); ++hop) {
    const int64_t fill = FillOf(layer, segment, hop);
    if (!AwaitBuffer(fill)) return progress_->status();
    status = step_.comm->SendRecv(
        {BufferOf(fill - 1), BytesOf(layer, segment, RankBefore(hop - 1), hop)}, next,
        {BufferOf(fill), BytesOf(layer, segment, RankBefore(hop), hop)}, RankBefore(1),
        step_.deadline);
    if (status.ok()) progress_->Reach(Milestone::kFilled, fill + 1);
  }
  return status;
}

// Waits until nobody reads what the buffer held. What was packed is read by the thread itself only;
// then what arrived before it is enough to wait for.
bool KvRing::AwaitBuffer(int64_t fill) {
  if (options_.window_blocks > 0) {
    const int64_t consumed = (fill / layout_.ranks() - 1) * layout_.ranks();
    return consumed <= 0 || progress_->Await(Milestone::kConsumed, consumed);
  }
  const int64_t held = fill - kBuffers;
  if (held < 0) return true;
  const bool packed = held % layout_.ranks() == 0;
  return progress_->Await(Milestone::kConsumed, packed ? held : held + 1);
}

// Whether anybody reads the own blocks from a buffer: the next rank, or with windows this one.
bool KvRing::Packs(int layer) const {
  const bool last = layer + 1 == options_.kv->num_layers;
  const bool attends = !last || options_.attends_last[static_cast<size_t>(rank_)];
  return Passes(layer, rank_, 1) || (options_.window_blocks > 0 && attends);
}

// Whether the blocks of `rank` go `hop` places: somebody that many places on, or farther, attends.
bool KvRing::Passes(int layer, int rank, int hop) const {
  if (layer + 1 < options_.kv->num_layers) return true;
  for (int place = hop; place < layout_.ranks(); ++place) {
    if (options_.attends_last[static_cast<size_t>((rank + place) % layout_.ranks())]) return true;
  }
  return false;
}

// The bytes of a segment of `rank`'s blocks that go to the rank `hop` places further.
size_t KvRing::BytesOf(int layer, int64_t segment, int rank, int hop) const {
  if (!Passes(layer, rank, hop)) return 0;
  return static_cast<size_t>(layout_.SegmentBlocksOf(rank, segment) * options_.kv->BlockBytes());
}

}  // namespace skein::engine
