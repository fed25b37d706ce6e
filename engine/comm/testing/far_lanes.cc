#include "engine/comm/testing/far_lanes.h"

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/comm/device/device_fabric.h"
#include "engine/comm/device/lanes/lane_fabric.h"
#include "engine/comm/device/peers/peer_link.h"
#include "engine/comm/testing/device_buffers.h"
#include "engine/comm/testing/far_peer.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

// Both ends of a lane. Every other one takes short messages away at once, as NCCL's buffers may; on
// the rest a message is sent when it is received.
struct FarWire {
  struct Sent {
    std::vector<std::byte> bytes;  // taken away
    const std::byte* data = nullptr;
    size_t size = 0;
  };
  struct End {
    bool made = false;
    std::deque<Sent> out;
    std::deque<LaneMessage> in;
    size_t waiting = 0;  // of its messages
  };

  std::mutex mutex;
  bool buffers = false;
  std::array<End, 2> ends;
};

namespace {

constexpr size_t kFarBytes = size_t{512} << 20;
constexpr size_t kBufferedMax = 64 << 10;

class FarLane final : public Lane {
 public:
  FarLane(std::shared_ptr<FarLaneHub> hub, std::shared_ptr<FarWire> wire, int end)
      : hub_(std::move(hub)), wire_(std::move(wire)), end_(end), looks_(hub_->Looks()) {
    hub_->Count(1);
    const std::lock_guard lock(wire_->mutex);
    if (std::exchange(Own().made, true)) hub_->Blame("an end was made twice");
  }
  // What it sent and nobody took is lost, as its buffers are.
  ~FarLane() override {
    hub_->Count(-1);
    const std::lock_guard lock(wire_->mutex);
    Own().in.clear();
    std::erase_if(Own().out, [](const FarWire::Sent& sent) { return sent.bytes.empty(); });
  }

  absl::StatusOr<bool> Done() override {
    const std::lock_guard lock(wire_->mutex);
    if (looks_ > 0) --looks_;
    if (looks_ > 0) return false;
    Pass(Own(), Other());
    Pass(Other(), Own());
    return Other().made && Own().waiting == 0;
  }

  absl::Status Start(std::span<const LaneMessage> messages) override {
    const std::lock_guard lock(wire_->mutex);
    if (looks_ > 0 || !Other().made) hub_->Blame("a lane was started before it was made");
    if (Own().waiting > 0) hub_->Blame("a lane was started while it moves other messages");
    for (const LaneMessage& message : messages) {
      ++Own().waiting;
      if (!message.outgoing) Own().in.push_back(message);
      if (message.outgoing) Put(message);
    }
    return absl::OkStatus();
  }

 private:
  FarWire::End& Own() { return wire_->ends[end_]; }
  FarWire::End& Other() { return wire_->ends[1 - end_]; }

  void Put(const LaneMessage& message) {
    FarWire::Sent sent{.data = message.data, .size = message.bytes};
    if (wire_->buffers && message.bytes <= kBufferedMax) {
      const auto* const near = static_cast<const std::byte*>(NearOfAny(message.data));
      sent.bytes.assign(near, near + message.bytes);
      --Own().waiting;
    }
    Own().out.push_back(std::move(sent));
  }

  void Pass(FarWire::End& from, FarWire::End& to) {
    for (; !from.out.empty() && !to.in.empty(); from.out.pop_front(), to.in.pop_front()) {
      const FarWire::Sent& sent = from.out.front();
      const LaneMessage& message = to.in.front();
      if (sent.size != message.bytes) {
        return hub_->Blame(absl::StrCat(sent.size, " bytes were sent, ", message.bytes, " wanted"));
      }
      const bool taken = !sent.bytes.empty();
      std::memmove(NearOfAny(message.data), taken ? sent.bytes.data() : NearOfAny(sent.data),
                   sent.size);
      if (!taken) --from.waiting;
      --to.waiting;
    }
  }

  const std::shared_ptr<FarLaneHub> hub_;
  const std::shared_ptr<FarWire> wire_;
  const size_t end_;
  int looks_;  // until it is made
};

class FarLaneMaker final : public LaneMaker {
 public:
  FarLaneMaker(std::shared_ptr<FarLaneHub> hub, std::shared_ptr<FarDevice> device, MayMake may_make)
      : hub_(std::move(hub)), device_(std::move(device)), may_make_(std::move(may_make)) {}

  const char* Name() const override { return "lanes"; }
  absl::StatusOr<LaneKey> NewKey() override {
    LaneKey key = {};
    const uint64_t wire = hub_->NewWire();
    std::memcpy(key.data(), &wire, sizeof wire);
    return key;
  }
  absl::StatusOr<std::unique_ptr<Lane>> Make(const LaneKey& key, int end) override {
    const absl::Status may = may_make_ ? may_make_() : absl::OkStatus();
    if (!may.ok()) return may;
    uint64_t wire = 0;
    std::memcpy(&wire, key.data(), sizeof wire);
    return std::make_unique<FarLane>(hub_, hub_->Wire(wire), end);
  }
  absl::StatusOr<std::unique_ptr<StreamMemory>> MakeMemory() override {
    return MakeFarPeerMemory(device_);
  }

 private:
  const std::shared_ptr<FarLaneHub> hub_;
  const std::shared_ptr<FarDevice> device_;
  const MayMake may_make_;
};

}  // namespace

std::string FarLaneHub::Mistake() const {
  const std::lock_guard lock(mutex_);
  return mistake_;
}

void FarLaneHub::Blame(const std::string& mistake) {
  const std::lock_guard lock(mutex_);
  if (mistake_.empty()) mistake_ = mistake;
}

uint64_t FarLaneHub::NewWire() {
  const std::lock_guard lock(mutex_);
  const uint64_t key = next_++;
  wires_[key] = std::make_shared<FarWire>();
  wires_[key]->buffers = key % 2 == 0;
  return key;
}

std::shared_ptr<FarWire> FarLaneHub::Wire(uint64_t key) {
  const std::lock_guard lock(mutex_);
  return wires_.at(key);
}

std::shared_ptr<LaneMaker> MakeFarLaneMaker(std::shared_ptr<FarLaneHub> hub,
                                            std::shared_ptr<FarDevice> device, MayMake may_make) {
  return std::make_shared<FarLaneMaker>(std::move(hub), std::move(device), std::move(may_make));
}

std::unique_ptr<Fabric> MakeFarLanes(std::shared_ptr<FarLaneHub> hub) {
  auto device = std::make_shared<FarDevice>(kFarBytes);
  auto hosts = MakeUcxLinkFabric({.tls = "self,shm"});
  SKEIN_CHECK_MSG(hosts.ok(), hosts.status().ToString().c_str());
  auto lanes = std::make_unique<LaneFabric>(std::shared_ptr<LinkFabric>(*std::move(hosts)),
                                            MakeFarLaneMaker(std::move(hub), device));
  return MakeBufferedFabric(MakeDeviceFabric(std::move(lanes), device, DevicePath::kOnDevice),
                            device);
}

}  // namespace skein::engine
