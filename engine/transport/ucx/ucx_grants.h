// The grants of a UcxWire (transport.h: Grants). Internal to engine/transport/ucx.
//
// A source asks before it writes to mapped memory or by RMA (kAsk), and is answered (kPermit). The
// target closes a grant by kWithdraw to each source that was given permission; kWithdrawn
// acknowledges. All go in order, through rings of engine/host, or through UCX for those that write
// by RMA. Processes that have a ring see one another's end, so a connection that is lost
// acknowledges everything. Of UCX's, see UcxTarget::MayWrite.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/transport/device/device_inbox.h"
#include "engine/transport/ucx/ucx_endpoint.h"
#include "engine/transport/wire.h"

namespace skein::engine {

class UcxGrants : public WireGrants {
 public:
  using Endpoints = std::map<uint64_t, std::unique_ptr<Endpoint>>;

  // The arguments outlive this; `inbox` may be null. `opened` are this process's connections.
  // `greet` makes sure that the target knows the connection.
  UcxGrants(const Endpoints* opened, DeviceInbox* inbox, std::function<void(Endpoint*)> greet)
      : opened_(opened), inbox_(inbox), greet_(std::move(greet)) {}

  // ---- at the target ----
  void Open(uint64_t grant) override;
  void Close(uint64_t grant) override;
  std::vector<uint64_t> TakeClosed() override;
  // Whether a put that arrives now may be applied.
  bool IsOpen(uint64_t grant) const;
  // A put was applied to a device's memory, by copies up to this mark.
  void Applied(uint64_t mark) { last_mark_ = mark; }
  void OnAsk(Endpoint* source, uint64_t grant);
  void OnWithdrawn(Endpoint* source, uint64_t grant);
  // The source has left, or its process has ended. To be called before its connection is closed.
  void Forget(Endpoint* source);

  // ---- at the source ----
  Permit Ask(uint64_t endpoint, uint64_t grant) override;
  std::vector<uint64_t> Withdrawn(uint64_t endpoint) override;
  void Acknowledge(uint64_t endpoint, uint64_t grant) override;
  bool Asks(uint64_t endpoint) const override;
  static void OnPermit(Endpoint* target, uint64_t grant, bool refused);
  static void OnWithdraw(Endpoint* target, uint64_t grant);

 private:
  const Endpoints* const opened_;
  DeviceInbox* const inbox_;
  const std::function<void(Endpoint*)> greet_;
  mutable std::mutex open_mutex_;  // guards open_ alone; held for one look or change
  std::set<uint64_t> open_;
  // Of open grants and of those that are being closed: connections whose sources may write.
  std::map<uint64_t, std::set<Endpoint*>> writers_;
  std::map<uint64_t, uint64_t> closing_;  // grant -> mark of the inbox
  uint64_t last_mark_ = 0;
};

}  // namespace skein::engine
