// GraphCache: recorded graphs by the rows of the padded batch that they were recorded for; the
// least recently used goes when there are too many. Pure. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "engine/cuda/graphs/graph_recorder.h"

namespace skein::engine {

class GraphCache {
 public:
  // REQUIRES: graphs_max >= 1.
  explicit GraphCache(size_t graphs_max) : graphs_max_(graphs_max) {}

  // False the first time: what a size needs (the choice of algorithms, code that is loaded at first
  // use) is made by a rehearsal.
  bool IsWarm(int64_t rows);

  // Null when there is none. Valid until the next Put.
  RecordedGraph* Find(int64_t rows);

  // REQUIRES: IsWarm was asked, and Find has none.
  RecordedGraph* Put(int64_t rows, std::unique_ptr<RecordedGraph> graph);

  size_t graphs() const { return graphs_; }
  int64_t evictions() const { return evictions_; }

 private:
  struct Entry {
    std::unique_ptr<RecordedGraph> graph;  // null: warm only
    uint64_t used_at = 0;
  };
  void EvictOldest();

  const size_t graphs_max_;
  std::map<int64_t, Entry> entries_;
  size_t graphs_ = 0;
  uint64_t now_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace skein::engine
