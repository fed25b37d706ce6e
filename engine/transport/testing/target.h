// For tests: the passive side of a transfer, in this process (loopback) or in another one (UCX),
// with a progress thread and two regions of 1 MiB and 256 KiB.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/device.h"
#include "engine/transport/transport.h"

namespace skein::engine {

inline constexpr size_t kTargetRegionBytes[] = {1 << 20, 256 << 10};

// Where the regions 0 and 1 lie.
enum class TargetMemory {
  kHost,           // what the transport allocated; memory of the caller
  kHostAndDevice,  // what the transport allocated; a device
  kAllocation,     // in the middle of one allocation of a device, 1 before 0
  kDeviceAndHost,  // a device; memory of the caller
};

class TestingTarget {
 public:
  virtual ~TestingTarget() = default;  // the target is gone, cleanly or not
  virtual std::string Describe() = 0;
  virtual std::string Read(size_t region, size_t offset, size_t bytes) = 0;
  virtual void Write(size_t region, size_t offset, const std::string& data) = 0;
  // Opens the grant, and describes the regions under it.
  virtual std::string DescribeUnder(GrantId grant) = 0;
  // Asks for it; WaitUntilClosed returns when TakeClosed brought it, at most once for each.
  virtual void CloseGrant(GrantId grant) = 0;
  virtual bool IsClosed(GrantId grant) = 0;
  virtual void WaitUntilClosed(GrantId grant) = 0;
  // Abruptly; afterwards only the destructor may be called.
  virtual void Kill() = 0;
  // Stands still until Continue; only in a process of its own.
  virtual void Stop() = 0;
  virtual void Continue() = 0;
};

class InProcessTarget : public TestingTarget {
 public:
  // `device` is null for kHost.
  explicit InProcessTarget(std::unique_ptr<Transport> transport,
                           std::shared_ptr<Device> device = nullptr,
                           TargetMemory memory = TargetMemory::kHost);
  ~InProcessTarget() override;

  std::string Describe() override;
  std::string Read(size_t region, size_t offset, size_t bytes) override;
  void Write(size_t region, size_t offset, const std::string& data) override;
  std::string DescribeUnder(GrantId grant) override;
  void CloseGrant(GrantId grant) override { transport_->CloseGrant(grant); }
  bool IsClosed(GrantId grant) override;
  void WaitUntilClosed(GrantId grant) override;
  void Kill() override;
  void Stop() override {}
  void Continue() override {}

 private:
  bool IsOnDevice(size_t region) const;
  std::byte* Place(size_t region);

  const std::shared_ptr<Device> device_;
  const TargetMemory memory_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> own_memory_;
  std::byte* allocation_ = nullptr;  // the device's; it goes with it
  std::vector<Region> regions_;
  std::mutex mutex_;
  std::condition_variable some_closed_;
  std::set<GrantId> closed_;
  std::atomic<bool> ending_{false};
  std::thread progress_;
};

// Runs the binary `peer`, which calls RunTestingPeer, with UCX_TLS = `tls`.
std::unique_ptr<TestingTarget> SpawnProcessTarget(
    const std::string& tls, TargetMemory memory = TargetMemory::kHost,
    const std::string& peer = "engine/transport/testing/peer");

// The main function of such a binary, with the arguments that it got. `make` gives the transport,
// and the device if the memory needs one.
struct PeerParts {
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Device> device;
};
using MakePeerParts = std::function<PeerParts(const std::string& tls, TargetMemory memory)>;
int RunTestingPeer(int argc, char** argv, const MakePeerParts& make);

// Whether peers of this node may open the device memory.
constexpr bool IsShared(TargetMemory memory) {
  return memory == TargetMemory::kAllocation || memory == TargetMemory::kDeviceAndHost;
}

}  // namespace skein::engine
