#include "engine/cuda/testing/near_opener.h"

#include <unistd.h>

namespace skein::engine {
namespace {

class NearOpener final : public PeerOpener {
 public:
  explicit NearOpener(bool may_open) : may_open_(may_open) {}

  std::string Name() const override { return "near"; }
  uint64_t Process() const override { return static_cast<uint64_t>(getpid()); }
  absl::StatusOr<PeerPlace> Export(const void* data) override {
    return PeerPlace{.process = Process(), .allocation = reinterpret_cast<uint64_t>(data)};
  }
  absl::StatusOr<std::shared_ptr<std::byte>> Open(const PeerPlace& place) override {
    if (!may_open_) return absl::UnavailableError("this rank may not open memory of others");
    auto* const memory = reinterpret_cast<std::byte*>(place.allocation) + place.offset;
    return std::shared_ptr<std::byte>(memory, [](std::byte*) {});
  }

 private:
  const bool may_open_;
};

}  // namespace

std::unique_ptr<PeerOpener> MakeNearOpener(bool may_open) {
  return std::make_unique<NearOpener>(may_open);
}

}  // namespace skein::engine
