#include "engine/cuda/graphs/graph_cache.h"

#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

bool GraphCache::IsWarm(int64_t rows) { return !entries_.try_emplace(rows).second; }

RecordedGraph* GraphCache::Find(int64_t rows) {
  const auto found = entries_.find(rows);
  if (found == entries_.end() || found->second.graph == nullptr) return nullptr;
  found->second.used_at = ++now_;
  return found->second.graph.get();
}

RecordedGraph* GraphCache::Put(int64_t rows, std::unique_ptr<RecordedGraph> graph) {
  Entry& entry = entries_.at(rows);
  SKEIN_CHECK(entry.graph == nullptr && graph != nullptr);
  if (graphs_ == graphs_max_) EvictOldest();
  entry.graph = std::move(graph);
  entry.used_at = ++now_;
  ++graphs_;
  return entry.graph.get();
}

// Its size stays warm.
void GraphCache::EvictOldest() {
  Entry* oldest = nullptr;
  for (auto& [rows, entry] : entries_) {
    if (entry.graph == nullptr) continue;
    if (oldest == nullptr || entry.used_at < oldest->used_at) oldest = &entry;
  }
  oldest->graph.reset();
  --graphs_;
  ++evictions_;
}

}  // namespace skein::engine
