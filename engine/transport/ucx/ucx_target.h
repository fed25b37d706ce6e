// The target's part of a UcxWire: it applies and answers messages on connections that peers opened.
// Internal to engine/transport/ucx.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>

#include "engine/transport/device/device_inbox.h"
#include "engine/transport/ucx/ucx_endpoint.h"
#include "engine/transport/ucx/ucx_grants.h"
#include "engine/transport/ucx/ucx_memory.h"

namespace skein::engine {

class UcxTarget {
 public:
  // The arguments outlive this; `inbox` may be null. It holds at most `sources_max` connections: a
  // new one replaces the one that has been idle longest, whose source gets a kBye.
  UcxTarget(UcxEndpoints* endpoints, UcxMemory* memory, DeviceInbox* inbox, UcxGrants* grants,
            size_t sources_max)
      : endpoints_(endpoints),
        memory_(memory),
        inbox_(inbox),
        grants_(grants),
        sources_max_(sources_max) {}

  void OnHello(const Header& header, const std::byte* data, size_t bytes);
  void OnPut(const Header& header, std::span<const Fragment> fragments,
             std::span<const std::byte> data);
  void OnFlush(const Header& header, const std::byte* data, size_t bytes);
  void OnGet(const Header& header, const std::byte* data, size_t bytes);
  void OnBye(const Header& header, const std::byte* data, size_t bytes);
  void OnAsk(const Header& header);
  void OnWithdrawn(const Header& header);

  // Continues operations that wait for a device. True if anything changed or still runs.
  bool Progress();

  // Not to be called from a message's callback, in which UCX still uses the endpoint.
  void CloseLost();
  void CloseAll();

 private:
  // A put that counts as applied when the copies up to `mark` and the puts before it are done.
  struct CopyingPut {
    uint64_t connection = 0;
    uint64_t mark = 0;
  };
  // The answer to a get of device memory.
  struct DeviceGet {
    Header header;
    DeviceInbox::Fetched fetched;
    bool answered = false;
    WireTicket sent;
  };

  Endpoint* Inbound(const Header& header);
  Endpoint* Used(const Header& header);
  // False: all connections are in use.
  bool MakeRoom();
  bool IsIdle(const Endpoint& endpoint) const;
  static bool MayWrite(Endpoint* source);
  bool ProgressPuts();
  bool ProgressGets();
  bool Advance(DeviceGet* get);
  void Answer(const Header& header, const std::byte* data, WireTicket* ticket);
  void AnswerFlushes(Endpoint* endpoint);
  void Close(std::unique_ptr<Endpoint> endpoint);

  UcxEndpoints* const endpoints_;
  UcxMemory* const memory_;
  DeviceInbox* const inbox_;
  UcxGrants* const grants_;
  const size_t sources_max_;
  uint64_t uses_ = 0;
  std::deque<CopyingPut> copying_;
  std::list<DeviceGet> gets_;
  std::map<uint64_t, std::unique_ptr<Endpoint>> inbound_;  // by connection
};

}  // namespace skein::engine
