// The target's part of a UcxWire: applies and answers what peers send over connections that they
// opened. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "engine/transport/ucx_endpoint.h"
#include "engine/transport/ucx_memory.h"

namespace skein::engine {

class UcxTarget {
 public:
  // Both outlive this.
  UcxTarget(UcxEndpoints* endpoints, UcxMemory* memory) : endpoints_(endpoints), memory_(memory) {}

  void OnHello(const Header& header, const std::byte* data, size_t bytes);
  void OnPut(const Header& header, std::span<const Fragment> fragments,
             std::span<const std::byte> data);
  void OnFlush(const Header& header, const std::byte* data, size_t bytes);
  void OnGet(const Header& header, const std::byte* data, size_t bytes);
  void OnBye(const Header& header, const std::byte* data, size_t bytes);

  // These not from within a message: UCX still uses the endpoint there.
  void CloseLost();
  void CloseAll();

 private:
  Endpoint* Inbound(const Header& header);
  void AnswerFlushes(Endpoint* endpoint);

  UcxEndpoints* const endpoints_;
  UcxMemory* const memory_;
  std::map<uint64_t, std::unique_ptr<Endpoint>> inbound_;  // by connection
};

}  // namespace skein::engine
