#include "engine/model/sharing/owners_reader.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {

OwnersReader::OwnersReader(std::vector<LayersOwner> owners, std::unique_ptr<FeedForwardReader> file,
                           std::shared_ptr<ReadCounts> counts)
    : owners_(std::move(owners)),
      ended_(owners_.size()),
      file_(std::move(file)),
      counts_(std::move(counts)) {
  for (size_t rank = 0; rank < owners_.size(); ++rank) {
    const LayersOwner& owner = owners_[rank];
    ended_[rank] =
        owner.layers == nullptr || !watch_.Add(owner.process, reinterpret_cast<void*>(rank + 1));
  }
}

void OwnersReader::NoteEnds() {
  for (void* const token : watch_.Ended()) ended_[reinterpret_cast<size_t>(token) - 1] = true;
}

absl::Status OwnersReader::Read(int layer, int64_t offset, std::span<std::byte> to) {
  NoteEnds();
  const auto i = static_cast<size_t>(layer);
  const auto rank =
      static_cast<size_t>(WeightOwners{static_cast<int>(owners_.size())}.OwnerOf(layer));
  const auto bytes = static_cast<int64_t>(to.size());
  LayersOwner& owner = owners_[rank];
  if (ended_[rank]) {
    const absl::Status read = file_->Read(layer, offset, to);
    if (read.ok()) {
      owner.layers.reset();
      counts_->from_file[i] += bytes;
      return absl::OkStatus();
    }
    if (owner.layers == nullptr) {
      return absl::UnavailableError(absl::StrCat("owner ", rank, " of layer ", layer,
                                                 " has ended or is not reached, and the "
                                                 "checkpoint cannot be read: ",
                                                 read.message()));
    }
  }
  std::memcpy(to.data(), owner.layers->At(layer) + offset, to.size());
  counts_->from_owner[i] += bytes;
  return absl::OkStatus();
}

}  // namespace skein::engine
