#include "engine/transport/pieces.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

bool Inside(uint64_t offset, uint64_t bytes, const RegionExtent& extent) {
  return offset <= extent.bytes && bytes <= extent.bytes - offset;
}

absl::Status CheckSide(size_t index, const char* side, RegionId id, uint64_t offset, uint64_t bytes,
                       const RegionExtent* extent) {
  if (extent == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("piece ", index, ": unknown ", side, " region ", id.value));
  }
  if (Inside(offset, bytes, *extent)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("piece ", index, ": ", bytes, " bytes at offset ",
                                                 offset, " leave ", side, " region ", id.value,
                                                 " of ", extent->bytes, " bytes"));
}

// Runs of pieces share a region: asks once per run.
class LastExtent {
 public:
  explicit LastExtent(const FindExtent& find) : find_(find) {}

  const RegionExtent* operator()(RegionId id) {
    if (extent_ == nullptr || id != id_) extent_ = find_(id);
    id_ = id;
    return extent_;
  }

 private:
  const FindExtent& find_;
  RegionId id_;
  const RegionExtent* extent_ = nullptr;
};

bool Continues(const Chunk& chunk, const Chunk& last) {
  return chunk.local == last.local && chunk.remote == last.remote &&
         chunk.local_address == last.local_address + last.bytes &&
         chunk.remote_address == last.remote_address + last.bytes;
}

}  // namespace

absl::StatusOr<std::vector<Chunk>> ToChunks(std::span<const TransferPiece> pieces,
                                            const FindExtent& local, const FindExtent& remote) {
  std::vector<Chunk> chunks;
  LastExtent find_local(local);
  LastExtent find_remote(remote);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TransferPiece& piece = pieces[i];
    const RegionExtent* from = find_local(piece.local);
    const RegionExtent* to = find_remote(piece.remote);
    if (auto status = CheckSide(i, "local", piece.local, piece.local_offset, piece.bytes, from);
        !status.ok()) {
      return status;
    }
    if (auto status = CheckSide(i, "remote", piece.remote, piece.remote_offset, piece.bytes, to);
        !status.ok()) {
      return status;
    }
    if (piece.bytes == 0) continue;
    const Chunk chunk{piece.local, piece.remote,
                      reinterpret_cast<std::byte*>(from->address + piece.local_offset),
                      to->address + piece.remote_offset, piece.bytes};
    if (!chunks.empty() && Continues(chunk, chunks.back())) {
      chunks.back().bytes += chunk.bytes;
    } else {
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

}  // namespace skein::engine
