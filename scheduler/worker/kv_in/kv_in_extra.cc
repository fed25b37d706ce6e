// Extra blocks that go.
#include <algorithm>
#include <memory>
#include <utility>

#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

// Of blocks that go, those to which somebody may write. One in quarantine may be in the table of a
// sequence that shares the prompt.
std::set<BlockId> KvIn::GoingThatMayBeWritten() const {
  std::set<BlockId> written = quarantine_.Blocks();
  std::erase_if(written, [this](BlockId block) { return !pool_.Goes(block); });
  for (const auto& [id, entry] : entries_) {
    if (entry.phase == Phase::kWhole && !MayBeWritten(entry)) continue;
    for (const BlockId block : *entry.blocks) {
      if (pool_.Goes(block)) written.insert(block);
    }
  }
  return written;
}

bool KvIn::IsMovable(const Entry& entry, const std::set<BlockId>& written) const {
  return entry.phase == Phase::kWhole &&
         std::none_of(entry.blocks->begin(), entry.blocks->end(),
                      [&](BlockId block) { return written.contains(block); });
}

KvIn::Going KvIn::LookAtGoing() const {
  Going going;
  if (pool_.going() == 0) return going;
  const std::set<BlockId> written = GoingThatMayBeWritten();
  std::set<BlockId> movable;
  for (const auto& [id, entry] : entries_) {
    const bool moves = IsMovable(entry, written);
    bool uses = false;
    for (const BlockId block : *entry.blocks) {
      if (!pool_.Goes(block)) continue;
      uses = true;
      if (moves) movable.insert(block);
    }
    if (!uses || moves) continue;
    if (entry.Coming()) going.coming.push_back(id);
    if (entry.phase == Phase::kWhole) going.stuck.push_back(id);
  }
  going.movable = static_cast<int64_t>(movable.size());
  going.awaited = pool_.going() - going.movable;
  return going;
}

std::vector<BlockMove> KvIn::MoveGoing() {
  std::vector<BlockMove> moves;
  if (pool_.going() == 0) return moves;
  const std::set<BlockId> written = GoingThatMayBeWritten();
  std::map<BlockId, BlockId> moved;
  for (auto& [id, entry] : entries_) {
    if (!IsMovable(entry, written)) continue;
    std::vector<BlockId> blocks(*entry.blocks);
    for (BlockId& block : blocks) {
      if (!pool_.Goes(block)) continue;
      auto to = moved.find(block);
      if (to == moved.end()) {
        const std::optional<BlockId> own = pool_.Replace(block);
        SKEIN_CHECK_MSG(own.has_value(), "as many own blocks are free as are moved");
        to = moved.emplace(block, *own).first;
        moves.push_back({block, *own});
      }
      block = to->second;
    }
    if (blocks != *entry.blocks) {
      entry.blocks = std::make_shared<const std::vector<BlockId>>(std::move(blocks));
    }
  }
  return moves;
}

}  // namespace skein::scheduler
