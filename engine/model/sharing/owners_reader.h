// OwnersReader: feed-forward weights from the memory of the ranks that own them (SiDP's weights as
// a service), one-sided: an owner takes no part, and may be stopped. When an owner's process ends,
// its memory is let go and its layers come from the checkpoint's folder; where that cannot be read,
// from the memory all the same, which lasts as long as a rank maps it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/host/process_watch.h"
#include "engine/model/load/feed_forward_reader.h"
#include "engine/model/sharing/shared_layers.h"
#include "engine/model/sharing/weight_owners.h"

namespace skein::engine {

// Bytes read so far, by layer. Any thread.
struct ReadCounts {
  explicit ReadCounts(size_t layers) : from_owner(layers), from_file(layers) {}

  std::vector<std::atomic<int64_t>> from_owner;
  std::vector<std::atomic<int64_t>> from_file;
};

// One owner, as others see it.
struct LayersOwner {
  std::string process;                   // its ThisProcess(); empty: there is none
  std::shared_ptr<SharedLayers> layers;  // null: its memory is not reached
};

class OwnersReader final : public FeedForwardReader {
 public:
  // `owners`: by rank. `file` reads any layer.
  OwnersReader(std::vector<LayersOwner> owners, std::unique_ptr<FeedForwardReader> file,
               std::shared_ptr<ReadCounts> counts);

  // UNAVAILABLE names owner and layer, and why the checkpoint cannot be read either.
  absl::Status Read(int layer, int64_t offset, std::span<std::byte> to) override;

 private:
  void NoteEnds();

  std::vector<LayersOwner> owners_;
  std::vector<bool> ended_;  // by rank
  const std::unique_ptr<FeedForwardReader> file_;
  const std::shared_ptr<ReadCounts> counts_;
  ProcessWatch watch_;
};

}  // namespace skein::engine
