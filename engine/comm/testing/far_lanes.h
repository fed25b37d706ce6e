// For tests: lanes between FarDevices of one process, as unforgiving as NCCL's communicators. What
// is started twice at once, or before it is made, or differs at the two ends, is kept as a mistake;
// a message whose other end never comes is never done.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/comm/device/lanes/lane.h"
#include "engine/comm/fabric.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {

class LinkFabric;
struct FarWire;

// The lanes of a process. Thread-safe.
class FarLaneHub {
 public:
  // `looks`: how many times Lane::Done is called at an end before it is made, asked for each end.
  // Null: none.
  explicit FarLaneHub(std::function<int()> looks = nullptr) : looks_(std::move(looks)) {}

  // The first rule of lanes that was broken; "": none.
  std::string Mistake() const;
  // Ends of lanes that were made and not destroyed.
  int Ends() const { return ends_; }

  // For FarLanes.
  void Blame(const std::string& mistake);
  void Count(int ends) { ends_ += ends; }
  int Looks() const { return looks_ ? looks_() : 0; }
  uint64_t NewWire();
  std::shared_ptr<FarWire> Wire(uint64_t key);

 private:
  const std::function<int()> looks_;
  std::atomic<int> ends_{0};
  mutable std::mutex mutex_;
  std::string mistake_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::shared_ptr<FarWire>> wires_;
};

// What this end's driver says when it is to make a lane.
using MayMake = std::function<absl::Status()>;

// `may_make` null: it may.
std::shared_ptr<LaneMaker> MakeFarLaneMaker(std::shared_ptr<FarLaneHub> hub,
                                            std::shared_ptr<FarDevice> device,
                                            MayMake may_make = nullptr);

// For the conformance suite: a LaneFabric over UCX's shared memory, behind buffers of the host.
std::unique_ptr<Fabric> MakeFarLanes(std::shared_ptr<FarLaneHub> hub);

}  // namespace skein::engine
