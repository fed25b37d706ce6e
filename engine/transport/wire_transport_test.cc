#include "engine/transport/wire_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

class NoGrants : public WireGrants {
 public:
  void Open(uint64_t) override {}
  void Close(uint64_t) override {}
  std::vector<uint64_t> TakeClosed() override { return {}; }
};

// Has something to do, and cannot do it.
class StuckWire : public Wire {
 public:
  explicit StuckWire(std::atomic<int>* looks) : looks_(looks) {}

  absl::StatusOr<WireMapping> Map(void*, size_t) override { return WireMapping(); }
  void Unmap(uint64_t) override {}
  absl::StatusOr<uint64_t> Open(const std::string&) override { return 1; }
  absl::StatusOr<uint64_t> Import(uint64_t, const DescribedRegion&) override { return 1; }
  void Start(uint64_t, TransferOp, std::span<const WirePiece>, WireTicket*) override {}
  void Flush(uint64_t, WireTicket*) override {}
  WireGrants* Grants() override { return &grants_; }
  bool Progress() override {
    ++*looks_;
    return false;
  }
  std::optional<int> Arm() override { return std::nullopt; }
  absl::Status Health(uint64_t) override { return absl::OkStatus(); }
  std::string Lanes(uint64_t) override { return ""; }
  TransferPath Path(uint64_t) override { return TransferPath::kDirect; }
  void Close(uint64_t) override {}

 private:
  NoGrants grants_;
  std::atomic<int>* const looks_;
};

// It tries again, but no more often than once in a millisecond.
TEST(WireTransportTest, AWireThatCannotBeArmedKeepsNoProcessorBusy) {
  std::atomic<int> looks = 0;
  WireTransport transport(TransportKind::kUcx, "address", std::make_unique<StuckWire>(&looks));
  std::vector<TransferCompletion> ended;
  EXPECT_EQ(transport.Poll(1, 100ms, &ended), 0u);
  EXPECT_GT(looks, 1);
  EXPECT_LT(looks, 200);
}

}  // namespace
}  // namespace skein::engine
