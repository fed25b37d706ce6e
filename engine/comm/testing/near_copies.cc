#include "engine/comm/testing/near_copies.h"

#include <cstdlib>
#include <cstring>

namespace skein::engine {
namespace {

class NearCopies final : public CopyStream {
 public:
  bool IsDevice(const void*) const override { return false; }
  absl::StatusOr<void*> AllocHost(size_t bytes) override { return std::malloc(bytes); }
  void FreeHost(void* pointer, size_t) override { std::free(pointer); }
  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyPieces(std::span<const CopyPiece> pieces) override {
    for (const CopyPiece& piece : pieces) std::memcpy(piece.to, piece.from, piece.bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Mark() override { return 1; }
  absl::StatusOr<bool> Done(uint64_t) override { return true; }
};

}  // namespace

std::unique_ptr<CopyStream> MakeNearCopies() { return std::make_unique<NearCopies>(); }

}  // namespace skein::engine
