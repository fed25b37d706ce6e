// RegisteredDevice: a Device whose memory comes from a Transport, so that peers on this host reach
// it the fastest way (Transport::Register with null). The host's memory only.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "engine/device/device.h"
#include "engine/transport/transport.h"

namespace skein::engine {

class RegisteredDevice : public Device {
 public:
  // `transport` outlives the device and what was allocated; `host` copies and answers MemoryInfo.
  RegisteredDevice(Transport* transport, std::unique_ptr<Device> host)
      : transport_(transport), host_(std::move(host)) {}

  absl::StatusOr<void*> Alloc(size_t bytes) override;
  void Free(void* pointer, size_t bytes) override;
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    return host_->Copy(to, from, bytes, kind);
  }
  absl::Status Synchronize() override { return host_->Synchronize(); }
  absl::StatusOr<uint64_t> Mark() override { return host_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override { return host_->Done(mark); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return host_->MemoryInfo(); }
  bool IsHost() const override { return true; }

  // The region that begins at `pointer`. REQUIRES: Alloc returned it.
  RegionId RegionAt(const void* pointer) const;

 private:
  Transport* const transport_;
  const std::unique_ptr<Device> host_;
  mutable std::mutex mu_;
  std::map<const void*, RegionId> regions_;
};

}  // namespace skein::engine
