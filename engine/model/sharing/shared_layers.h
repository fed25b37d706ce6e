// An owner's feed-forward weights in memory that others of the node map, so that they read them
// without the owner (SiDP, section 4.2). Internal to engine/model. Not thread-safe, except that
// weights which are there may be read by all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/host/shared_region.h"
#include "engine/model/load/packed_feed_forward.h"
#include "engine/model/load/weights.h"
#include "engine/model/sharing/weight_owners.h"

namespace skein::engine {

// Where an owner's layers lie in its memory: packed, each from a page's begin on. The same for all
// who know the shapes of the model.
class SharedLayout {
 public:
  // `layers`: of the whole model, by shape.
  SharedLayout(const std::vector<FeedForwardWeights>& layers, WeightOwners owners, int owner);

  size_t bytes() const { return bytes_; }  // one page at least
  // REQUIRES: the owner's.
  size_t OffsetOf(int layer) const { return static_cast<size_t>(offsets_[Index(layer)]); }

 private:
  static size_t Index(int layer) { return static_cast<size_t>(layer); }

  std::vector<int64_t> offsets_;  // by layer; -1 of those of others
  size_t bytes_ = 0;
};

// One owner's memory, at the owner or mapped by another rank.
class SharedLayers {
 public:
  // Null: there is no memory.
  static std::unique_ptr<SharedLayers> Allocate(SharedLayout layout);
  // That of the process `process`, which calls it `name`. Null: the process has ended, is not on
  // this host, or has no such memory of the layout's size.
  static std::unique_ptr<SharedLayers> Map(SharedLayout layout, const std::string& process,
                                           const std::string& name);

  // The packed weights of a layer of the owner.
  std::byte* At(int layer) const { return region_->base() + layout_.OffsetOf(layer); }
  const std::string& name() const { return region_->name(); }  // for Map
  size_t bytes() const { return layout_.bytes(); }

 private:
  SharedLayers(SharedLayout layout, std::unique_ptr<SharedRegion> region)
      : layout_(std::move(layout)), region_(std::move(region)) {}

  const SharedLayout layout_;
  const std::unique_ptr<SharedRegion> region_;
};

}  // namespace skein::engine
