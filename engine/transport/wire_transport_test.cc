#include "engine/transport/wire_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
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
  std::string TransportName(uint64_t) override { return ""; }
  TransferPath Path(uint64_t) override { return TransferPath::kDirect; }
  void Close(uint64_t) override {}

 private:
  NoGrants grants_;
  std::atomic<int>* const looks_;
};

// Closes them at once; Open comes from any thread.
class PlainGrants : public WireGrants {
 public:
  void Open(uint64_t) override { ++opened_; }
  void Close(uint64_t grant) override { closed_.push_back(grant); }
  std::vector<uint64_t> TakeClosed() override { return std::exchange(closed_, {}); }
  int opened() const { return opened_; }

 private:
  std::atomic<int> opened_ = 0;
  std::vector<uint64_t> closed_;
};

// Has nothing to do but to close grants.
class IdleWire : public StuckWire {
 public:
  IdleWire() : StuckWire(&looks_) {}
  WireGrants* Grants() override { return &grants_; }
  std::optional<int> Arm() override { return -1; }

 private:
  std::atomic<int> looks_ = 0;
  PlainGrants grants_;
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

// Its Progress does not return before it is told to, as if it moved many bytes.
class BusyWire : public StuckWire {
 public:
  BusyWire(std::promise<void>* begun, std::shared_future<void> may_end)
      : StuckWire(&looks_), begun_(begun), may_end_(std::move(may_end)) {}

  WireGrants* Grants() override { return &grants_; }
  bool Progress() override {
    if (looks_++ > 0) return false;
    begun_->set_value();
    in_time_ = may_end_.wait_for(60s) == std::future_status::ready;
    return true;
  }
  bool in_time() const { return in_time_; }
  int opened() const { return grants_.opened(); }

 private:
  std::promise<void>* const begun_;
  const std::shared_future<void> may_end_;
  std::atomic<int> looks_ = 0;
  std::atomic<bool> in_time_ = false;
  PlainGrants grants_;
};

TEST(WireTransportTest, OpeningAndClosingGrantsDoesNotWaitForAPollThatMovesBytes) {
  std::promise<void> begun;
  std::promise<void> may_end;
  auto owned = std::make_unique<BusyWire>(&begun, may_end.get_future().share());
  const BusyWire* const wire = owned.get();
  WireTransport transport(TransportKind::kUcx, "address", std::move(owned));
  std::jthread poller([&] {
    std::vector<TransferCompletion> none;
    transport.Poll(1, 1h, &none);
  });
  begun.get_future().wait();
  transport.OpenGrant({1});
  transport.CloseGrant({2});
  EXPECT_EQ(wire->opened(), 1) << "it counts before the Poll that moves bytes has ended";
  may_end.set_value();  // what waits for that Poll would wait for 60 s
  poller.join();        // it returns early, because there is a closed grant to take
  EXPECT_TRUE(wire->in_time());
  EXPECT_EQ(transport.TakeClosed(), std::vector<GrantId>{{2}});
}

// A Poll that is about to sleep misses none of them: it would sleep for an hour.
TEST(WireTransportTest, EachClosedGrantWakesThePollThatSleeps) {
  constexpr uint64_t kGrants = 5000;
  constexpr uint64_t kThreads = 2;
  WireTransport transport(TransportKind::kUcx, "address", std::make_unique<IdleWire>());
  std::map<GrantId, int> closed;
  std::atomic<uint64_t> taken = 0;
  std::jthread poller([&] {
    while (taken < kGrants) {
      std::vector<TransferCompletion> none;
      transport.Poll(1, 1h, &none);
      for (const GrantId grant : transport.TakeClosed()) {
        ++closed[grant];
        ++taken;
      }
    }
  });
  std::vector<std::jthread> cores;
  for (uint64_t core = 0; core < kThreads; ++core) {
    cores.emplace_back([&, core] {
      for (uint64_t grant = core + 1; grant <= kGrants; grant += kThreads) {
        transport.OpenGrant({grant});
        transport.CloseGrant({grant});
        // Now and then the poller falls asleep.
        while (grant % 64 < kThreads && taken + kThreads < grant) std::this_thread::yield();
      }
    });
  }
  cores.clear();
  poller.join();
  EXPECT_EQ(closed.size(), kGrants);
  for (const auto& [grant, times] : closed) EXPECT_EQ(times, 1) << grant.value;
}

}  // namespace
}  // namespace skein::engine
