// HandoffSender's part of staged handoffs: the buffer of one, and what lies in it.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/handoff/handoff_sender.h"

namespace skein::engine {

void HandoffSender::UseBuffer(HandoffKey key, const std::string& memory) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end() || it->second.has_buffer) return;
    Handoff& handoff = it->second;
    handoff.waits = false;
    ReleasePeers(&handoff);
    if (absl::Status status = ConnectTo(memory, 1, &handoff); !status.ok()) {
      Fail(&handoff, std::move(status));
    }
  }
  transport_->Wake();
}

void HandoffSender::Taken(HandoffKey key, std::span<const int32_t> slots,
                          const absl::Status& status) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end()) return;
    Handoff& handoff = it->second;
    if (!status.ok()) Fail(&handoff, status);
    for (const int32_t slot : slots) {
      const auto part =
          std::find_if(handoff.untaken.begin(), handoff.untaken.end(),
                       [slot](const StagedBlock& block) { return block.slot == slot; });
      if (part == handoff.untaken.end()) continue;
      if (status.ok()) {
        handoff.layers[static_cast<size_t>(part->layer)].done_blocks += 1;
      }
      handoff.untaken.erase(part);
      handoff.free_slots.push_back(slot);
      handoff.used = std::chrono::steady_clock::now();
    }
  }
  transport_->Wake();
}

// Layers in order, as many blocks as there are free slots.
bool HandoffSender::PostStaged(HandoffKey key, Handoff* handoff) {
  const auto block_bytes = static_cast<uint64_t>(spec_.BlockBytes());
  std::vector<int64_t> last;
  std::vector<TransferPiece> pieces;
  Flight flight{.key = key};
  size_t slots = handoff->free_slots.size();
  for (int layer = 0; layer < spec_.num_layers; ++layer) {
    const int64_t written = WrittenBlocks(*handoff, layer);
    int64_t i = handoff->layers[static_cast<size_t>(layer)].posted_blocks[0];
    for (; i < written && slots > 0; ++i) {
      const HandoffBlock& block = handoff->blocks[static_cast<size_t>(i)];
      const int32_t slot = handoff->free_slots[--slots];
      flight.staged.push_back({slot, layer, block.global});
      pieces.push_back({.local = local_regions_[static_cast<size_t>(layer)],
                        .local_offset = static_cast<uint64_t>(block.local) * block_bytes,
                        .remote = handoff->peers[0].regions[0],
                        .remote_offset = static_cast<uint64_t>(slot) * block_bytes,
                        .bytes = block_bytes});
    }
    last.push_back(i);
  }
  if (pieces.empty() || !Post(handoff, 0, pieces, std::move(flight))) return false;
  handoff->free_slots.resize(slots);
  handoff->used = std::chrono::steady_clock::now();
  for (size_t layer = 0; layer < last.size(); ++layer) {
    handoff->layers[layer].posted_blocks[0] = last[layer];
  }
  return true;
}

std::chrono::nanoseconds HandoffSender::UntilIdle(const Handoff& handoff) const {
  constexpr auto kInUse = std::chrono::nanoseconds::max();
  const auto idle_after = handoff.grant.idle_after;
  if (!handoff.has_buffer || idle_after == kInUse || handoff.verdict != Verdict::kOpen ||
      handoff.in_flight > 0 || !handoff.untaken.empty()) {
    return kInUse;
  }
  for (int layer = 0; layer < spec_.num_layers; ++layer) {
    const Layer& one = handoff.layers[static_cast<size_t>(layer)];
    if (one.posted_blocks[0] < WrittenBlocks(handoff, layer)) return kInUse;
  }
  const std::chrono::nanoseconds unused = std::chrono::steady_clock::now() - handoff.used;
  return std::max(std::chrono::nanoseconds(), idle_after - unused);
}

void HandoffSender::CollectIdle(News* news) {
  for (auto& [key, handoff] : handoffs_) {
    if (Over(handoff) || UntilIdle(handoff) > std::chrono::nanoseconds()) continue;
    handoff.has_buffer = false;
    handoff.free_slots.clear();
    news->idle.push_back(key);
  }
}

}  // namespace skein::engine
