// For tests: the passive side of a transfer, in this process (loopback) or in another one (UCX),
// with a progress thread and two regions: 0, 1 MiB that its transport allocated, and 1, 256 KiB of
// its own memory or of a device's.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/far_device.h"
#include "engine/transport/transport.h"

namespace skein::engine {

inline constexpr size_t kTargetRegionBytes[] = {1 << 20, 256 << 10};

class TestingTarget {
 public:
  virtual ~TestingTarget() = default;  // the target is gone, cleanly or not
  virtual std::string Describe() = 0;
  virtual std::string Read(size_t region, size_t offset, size_t bytes) = 0;
  virtual void Write(size_t region, size_t offset, const std::string& data) = 0;
  // Abruptly; afterwards only the destructor may be called.
  virtual void Kill() = 0;
  // Stands still until Continue; only in a process of its own.
  virtual void Stop() = 0;
  virtual void Continue() = 0;
};

class InProcessTarget : public TestingTarget {
 public:
  // With `device`, region 1 lies there.
  explicit InProcessTarget(std::unique_ptr<Transport> transport,
                           std::shared_ptr<FarDevice> device = nullptr);
  ~InProcessTarget() override;

  std::string Describe() override;
  std::string Read(size_t region, size_t offset, size_t bytes) override;
  void Write(size_t region, size_t offset, const std::string& data) override;
  void Kill() override;
  void Stop() override {}
  void Continue() override {}

 private:
  // Where the test reads and writes a region.
  std::byte* Near(size_t region, size_t offset) const;

  const std::shared_ptr<FarDevice> device_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> own_memory_;
  std::vector<Region> regions_;
  std::atomic<bool> ending_{false};
  std::thread progress_;
};

// Runs the binary engine/transport/testing_peer with UCX_TLS = `tls`; `far`: region 1 lies in a
// FarDevice.
std::unique_ptr<TestingTarget> SpawnProcessTarget(const std::string& tls, bool far = false);

// The other end of SpawnProcessTarget: serves `target` on `fd` until end of file.
void ServeTarget(TestingTarget* target, int fd);

}  // namespace skein::engine
