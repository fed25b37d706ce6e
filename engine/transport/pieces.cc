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

bool Continues(const Segment& segment, const Segment& last) {
  return segment.local == last.local && segment.remote == last.remote &&
         segment.local_address == last.local_address + last.bytes &&
         segment.remote_address == last.remote_address + last.bytes;
}

}  // namespace

absl::StatusOr<std::vector<Segment>> ToSegments(std::span<const TransferPiece> pieces,
                                                const FindExtent& local, const FindExtent& remote) {
  std::vector<Segment> segments;
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
    const Segment segment{piece.local, piece.remote,
                          reinterpret_cast<std::byte*>(from->address + piece.local_offset),
                          to->address + piece.remote_offset, piece.bytes};
    if (!segments.empty() && Continues(segment, segments.back())) {
      segments.back().bytes += segment.bytes;
    } else {
      segments.push_back(segment);
    }
  }
  return segments;
}

}  // namespace skein::engine
